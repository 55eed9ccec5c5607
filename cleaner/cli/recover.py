"""`cleaner recover`."""

from __future__ import annotations

import argparse
from pathlib import Path

from cleaner.cli.arguments import add_common, sources

SUMMARY = "recover the logs of a log dir that was not closed in order"

DESCRIPTION = """\
Loads every log as a broker does when it starts: completes or undoes interrupted swaps, checks what may be torn,
cuts a torn end off, makes missing or damaged indexes and producer snapshots anew.

When every partition directory was recovered without error in this run, the log dir gets a clean-shutdown marker,
and a broker will start on it without a recovery of its own. With partitions named, or after any failure, there is
none and a broker will recover.

A recovery that would cut off more than the torn end of a last segment stops and lists what it would cut, unless
--allow-truncate says that this is wanted: a broker would cut it without asking."""

EXAMPLES = """\
examples:
  cleaner recover /var/lib/kafka --config /etc/kafka/server.properties
  cleaner recover /var/lib/kafka prices-0 --allow-truncate

exit status:
  0  recovered      1  some partition was refused, the others are done
  2  usage      75  the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_common(parser)
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="default: all of them")
    parser.add_argument(
        "--allow-truncate", action="store_true", help="cut off more than the torn end of a last segment if need be"
    )
    parser.add_argument(
        "--save-cut",
        metavar="DIR",
        type=Path,
        help="before anything is cut off, keep it there as TOPIC-PARTITION/SEGMENT.log.FROM-TO (positions in bytes)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Recover; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.recover_log_dir import recover_log_dir
    from cleaner.app.reports import RecoverReport
    from cleaner.cli.compiling import announce_compiling
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.output import print_error
    from cleaner.cli.progress import ProgressBar
    from cleaner.cli.show_recover import show_recovered
    from cleaner.cli.stop import StopFlag, run_interruptibly

    bar = ProgressBar()
    announce_compiling(bar.speaking(print_error))
    take_identity(arguments.log_dir, arguments.save_cut, stay_root=arguments.as_root)
    with bar:

        def work(flag: StopFlag) -> RecoverReport:
            lent = CallContext.of(
                now_ms=arguments.now, progress=bar, check_done=flag.check_done, warn=bar.speaking(log_warning)
            )
            names = arguments.partitions or None
            return recover_log_dir(
                arguments.log_dir,
                names,
                settings,
                lent,
                allow_truncate=arguments.allow_truncate,
                save_cut=arguments.save_cut,
            )

        report = run_interruptibly(work)
    return show_recovered(report, arguments.format)
