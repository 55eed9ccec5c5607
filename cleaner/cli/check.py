"""`cleaner check`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from cleaner.cli.arguments import add_format, add_settings, parse_bytes, parse_now, sources

SUMMARY = "read everything in log dirs or partitions, and tell what is damaged"

DESCRIPTION = """\
Reads every byte of the logs, indexes, producer snapshots, checkpoints and ids in log dirs (or in single partition
directories), holds them against each other, and tells each damaged batch, index entry and file by position and
offset; behind a damaged batch reading goes on. Several log dirs are taken for those of one broker: a partition in
two of them, or ids that differ, are told too. Without any directory, those in log.dirs of --config are read.

Takes no lock and writes nothing, so it may run beside a broker and on a read-only mount; logs that somebody may be
writing to are marked "in use while read". What the next start of a broker settles by itself (a torn end, left-over
files) is a note, no damage.

--repair makes anew what intact .log files determine, and nothing else: indexes and producer snapshots. It locks the log
dir as `cleaner clean` does. A .log file is never changed."""

EXAMPLES = """\
examples:
  cleaner check /var/lib/kafka
  cleaner check /disk1/kafka /disk2/kafka --clean-section
  cleaner check /var/lib/kafka/prices-0 --repair
  cleaner check --config /etc/kafka/server.properties --format json | jq -r 'select(.what == "finding")'

exit status:
  0  nothing is damaged, or not any more      1  something is
  2  usage      75  with --repair: the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", metavar="LOG_DIR|PARTITION_DIR", type=Path, nargs="*", help="what to read")
    parser.add_argument(
        "--clean-section",
        action="store_true",
        help="also look for keys that occur twice below cleaner-offset-checkpoint: one more pass over what is clean",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=parse_bytes,
        default=None,
        help="for --clean-section: beyond it more passes are made (default: 256M)",
    )
    parser.add_argument("--repair", action="store_true", help="make damaged indexes and producer snapshots anew")
    add_settings(parser)
    parser.add_argument(
        "--now", metavar="MS", type=parse_now, help="the moment to work by, in ms since 1970 (default: the clock's)"
    )
    add_format(parser)
    parser.add_argument(
        "--as-root", action="store_true", help="started as root, stay root instead of becoming the directory's owner"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.check_log_dir import CheckOptions, CheckTotals, check_paths, paths_to_check
    from cleaner.app.options import CallContext
    from cleaner.cli.compiling import announce_compiling
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.output import print_error, say
    from cleaner.cli.progress import ProgressBar
    from cleaner.cli.show_check import show_checks
    from cleaner.cli.stop import StopFlag, run_interruptibly
    from cleaner.storage.fs.file_system import FileSystem
    from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES

    bar = ProgressBar()
    announce_compiling(bar.speaking(print_error))
    paths = paths_to_check(FileSystem(), arguments.paths, settings)
    take_identity(*paths, stay_root=arguments.as_root)
    options = CheckOptions(
        clean_section=arguments.clean_section,
        repair=arguments.repair,
        memory_bytes=arguments.memory or DEFAULT_MEMORY_BYTES,
    )
    say_it = print if arguments.format == "json" else partial(say, hang="    ")
    show = show_checks(arguments.format, bar.speaking(say_it), is_one_path=len(arguments.paths) == 1)
    with bar:

        def work(flag: StopFlag) -> CheckTotals:
            lent = CallContext.of(
                now_ms=arguments.now, progress=bar, check_done=flag.check_done, warn=bar.speaking(log_warning)
            )
            return check_paths(paths, settings, lent, options, show)

        totals = run_interruptibly(work)
    return show.end(totals)
