"""`cleaner recover`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import add_common, sources
from cleaner.cli.logs import log_note
from cleaner.cli.output import say_all, say_refusal
from cleaner.cli.work import prepare_work, run_work

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.app.reports import RecoveredPartition, RecoverReport

SUMMARY = "recover the logs of a log dir that was not closed cleanly"

DESCRIPTION = """\
Loads every log as a broker does when it starts: completes or undoes interrupted swaps, checks what may be torn,
cuts a torn end off, and rebuilds missing or damaged indexes and producer snapshots.

If every partition directory was recovered without error in this run, the log dir gets a clean-shutdown marker, and
a broker starts on it without recovering it again. With named partitions, or after a failure, there is no marker, and
a broker recovers the log dir.

A recovery that would cut off more than the torn end of a last segment stops and lists what it would cut, unless
--allow-truncate is given: a broker would cut it without asking.

A clean-shutdown marker is believed: then nothing is recovered but logs whose end is zeros. After a power cut it may be
false, as Kafka up to 4.3 writes it before everything is on disk. --trust-no-marker removes it first and reads every
batch of every segment of the partitions, also below the recovery points, which the same stop wrote; it cuts by the same
rules, rebuilds all indexes and forces everything to disk. If it was interrupted, give it again with the option."""

EXAMPLES = """\
examples:
  cleaner recover /var/lib/kafka --config /etc/kafka/server.properties
  cleaner recover /var/lib/kafka prices-0 --allow-truncate
  cleaner recover /var/lib/kafka --trust-no-marker

exit status:
  0  recovered      1  some partition was refused, the others are done
  2  usage      75  the log dir is in use      78  a bad setting"""

_HEADINGS = ("partition", "log start", "log end", "bytes before", "after", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_common(parser)
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="default: all of them")
    parser.add_argument(
        "--allow-truncate", action="store_true", help="allow cutting off more than the torn end of a last segment"
    )
    parser.add_argument(
        "--save-cut",
        metavar="DIR",
        type=Path,
        help="keep what is cut off there, as TOPIC-PARTITION/SEGMENT.log.FROM-TO (positions in bytes)",
    )
    parser.add_argument(
        "--trust-no-marker",
        dest="trust_marker",
        action="store_false",
        help="recover as if there were no clean-shutdown marker and no recovery point: read every segment",
    )


def run(arguments: argparse.Namespace) -> int:
    """Recover; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.recover_log_dir import recover_log_dir

    bar = prepare_work(arguments.log_dir, arguments.save_cut, stay_root=arguments.as_root)

    def work(context: CallContext) -> RecoverReport:
        return recover_log_dir(
            arguments.log_dir,
            arguments.partitions or None,
            settings,
            context,
            allow_truncate=arguments.allow_truncate,
            save_cut=arguments.save_cut,
            trust_marker=arguments.trust_marker,
        )

    return _show(run_work(work, bar, arguments.now), arguments.format)


def _show(report: RecoverReport, form: str) -> int:
    """Print what was recovered and what refused; returns the exit code."""
    say_all(report.partitions, "recover", form, _HEADINGS, _row)
    codes = [say_refusal(refusal, "recover", form) for refusal in report.refused]
    if report.note:
        log_note(report.note)
    elif report.has_marker:
        log_note("the log dir has a clean-shutdown marker: a broker starts on it without recovery")
    return max(codes, default=0)


def _row(partition: RecoveredPartition) -> tuple[str, ...]:
    return (
        partition.partition,
        str(partition.log_start_offset),
        str(partition.log_end_offset),
        human_bytes(partition.bytes_before),
        human_bytes(partition.bytes_after),
        f"{partition.elapsed_seconds:.2f}",
    )
