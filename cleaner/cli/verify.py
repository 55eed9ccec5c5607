"""`cleaner verify`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.remote_path import any_path
from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import add_as_root, add_format, add_settings, parse_bytes, parse_now, parse_offset, sources
from cleaner.cli.outcomes import OutcomePrinter
from cleaner.cli.output import say
from cleaner.cli.verify_as import KINDS, run_replay
from cleaner.cli.work import prepare_work, run_work
from cleaner.present.text import printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.app.verify_log_dirs import VerifyOptions, VerifyReport

SUMMARY = "prove a cleaned log correct by comparing it with the log before cleaning"

DESCRIPTION = """\
Proves that AFTER is a correct result of cleaning BEFORE: the last record of every key is still there, the remaining
records are unchanged, only records that may be removed are gone, everything behind the cleaned range is the same, and
readers of committed records see the same. It sorts all keys, on disk if necessary, and uses no code of the cleaner;
so it also proves the work of a broker, in one round or in many.

BEFORE and AFTER are two log dirs, or two directories of one partition, each next to its checkpoints; BEFORE may also be
the directory of `clean --keep-old`, which holds the part of the old log that a round has touched. Nothing is
locked and nothing changes. Errors are reported with file, position and offset, never with a key.

With --as it replays internal topics instead, record by record, as the coordinators, registries and Connect workers do
that read them, and compares what they make of both logs: offsets, members, transactions, schemas, connectors.

Directories may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner verify /backup/kafka /var/lib/kafka                     every partition
  cleaner verify /backup/kafka /var/lib/kafka prices-0 --config /etc/kafka/server.properties
  cleaner verify /var/kept /var/lib/kafka                         what clean --keep-old /var/kept replaced
  cleaner verify /backup/prices-0 /var/lib/kafka/prices-0 --end 120000
  cleaner verify /backup/kafka /var/lib/kafka --since 1760000000000   rounds over more than delete.retention.ms
  cleaner verify --as auto /backup/kafka /var/lib/kafka           the states of all internal topics
  cleaner verify --as connect /backup/kafka /var/lib/kafka my-offsets-0

exit status:
  0  proven, or the same states      1  refuted, other states, or a log that cannot be read      2  usage
  78  a bad setting"""

_MAX_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("before", metavar="BEFORE", type=any_path, help="the log dir, or partition, before cleaning")
    parser.add_argument("after", metavar="AFTER", type=any_path, help="the same after cleaning")
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="only these (default: all)")
    parser.add_argument(
        "--as",
        dest="kind",
        choices=KINDS,
        help="compare the states that the readers of internal topics replay; auto: by the usual names of topics. With "
        "the names of partitions, of topics of any name",
    )
    parser.add_argument(
        "--end",
        metavar="OFFSET",
        type=parse_offset,
        help="up to where it was cleaned, exclusive (default: cleaner-offset-checkpoint beside AFTER)",
    )
    parser.add_argument(
        "--now",
        metavar="MS",
        type=parse_now,
        help="the exact time of the round, or with --since of the last one, in ms since 1970: everything that expired "
        "by then must be gone (default: rounds at any times up to now)",
    )
    parser.add_argument(
        "--since",
        metavar="MS",
        type=parse_now,
        help="the time of the first of several rounds, which may be that of --now: records that it gave a delete "
        "horizon may be gone by then",
    )
    parser.add_argument(
        "--recompressed",
        action="store_true",
        help="rounds may have packed batches in another way, and joined them: clean --recompress",
    )
    parser.add_argument("--delete-retention-ms", metavar="MS", type=parse_offset, help="instead of the topic's setting")
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=parse_bytes,
        default=1 << 30,
        help="for sorting, 200 bytes a record; more goes to a file (K, M, G; default: 1G)",
    )
    parser.add_argument("--temp-dir", metavar="DIR", type=Path, help="where that file is made (default: $TMPDIR)")
    add_settings(parser)
    add_format(parser, "one object a partition, see docs/verify.md")
    add_as_root(parser, "the log dirs'")


def run(arguments: argparse.Namespace) -> int:
    """Prove the partitions; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.verify_log_dirs import verify_log_dirs

    if arguments.kind is not None:
        return run_replay(arguments, settings)
    bar = prepare_work(arguments.before, arguments.after, stay_root=arguments.as_root)
    printer = OutcomePrinter["VerifyReport"]("verify", arguments.format, bar, lambda report: report.is_proven, _print)

    def work(context: CallContext) -> None:
        places = arguments.before, arguments.after
        for outcome in verify_log_dirs(*places, settings, context, _options(arguments), arguments.partitions):
            printer.show(outcome)

    run_work(work, bar, fs=files_for(None, arguments.before, arguments.after))
    return printer.exit_code


def _options(arguments: argparse.Namespace) -> VerifyOptions:
    import tempfile

    from cleaner.app.verify_log_dirs import VerifyOptions

    return VerifyOptions(
        end_offset=arguments.end,
        now_ms=arguments.now,
        since_ms=arguments.since,
        delete_retention_ms=arguments.delete_retention_ms,
        recompressed=arguments.recompressed,
        memory_bytes=arguments.memory,
        temp_dir=arguments.temp_dir or Path(tempfile.gettempdir()),
    )


def _print(report: VerifyReport) -> None:
    verdict = "proven" if report.is_proven else f"REFUTED, {report.total_findings} findings"
    say(f"{report.partition}: {verdict}")
    say(
        f"  cleaned [{report.first_dirty_offset}, {report.end_offset}), {report.records} records, {report.keys} keys; "
        f"{human_bytes(report.bytes_before)} before, {human_bytes(report.bytes_after)} after"
    )
    if report.is_proven:
        say(f"  by the rules of Kafka {', '.join(report.kafka)}")
    if report.repacked:
        say(f"  {report.repacked} batches are packed in another way than before (clean --recompress)")
    for finding in report.findings[:_MAX_SHOWN]:
        where = f"{printable(finding.path)}: at byte {finding.position}"
        say(f"  offset {finding.offset}: {finding.kind}: {finding.reason}", hang="    ")
        say(f"    {where}", hang="      ")
    if report.total_findings > _MAX_SHOWN:
        say(f"  and {report.total_findings - _MAX_SHOWN} more: --format json has the first thousand")
    if report.note and not report.is_proven:
        say(f"  {report.note}")
