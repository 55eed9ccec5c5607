"""`cleaner export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.remote_path import any_path
from cleaner.base.sizes import counted, human_bytes
from cleaner.cli.arguments import add_as_root
from cleaner.cli.output import say
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.options import CallContext
    from cleaner.exporting.manifest import Export, ExportedTable

SUMMARY = "write the latest value of each key as Parquet, JSON lines or an Iceberg table, and what changed"

DESCRIPTION = """\
Writes a topic as a table: the latest value of each key, as consumers of committed records see it. Keys that were
deleted are not in it, nor records without a key. The files and a manifest.json that names them go to a directory; the
manifest comes last, so that a crash leaves the export before or this one, and the export before is then removed.

With --format iceberg the directory is an Iceberg table, and each export one snapshot of it: what changed since the one
before (extra `iceberg`).

With --changes it is compared with the export that is there: rows to put and keys to delete go to files of their own.

Nothing in the log dir is locked or changed. Needs the extra `export` (docs/export.md).

The log dir may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner export /var/lib/kafka prices --to /srv/prices
  cleaner export /var/lib/kafka prices --to /srv/prices --changes
  cleaner export /var/lib/kafka prices --to /srv/prices-table --format iceberg
  cleaner export s3://backups/kafka prices --to prices --format jsonl

exit status:
  0  exported      1  damage, no such topic; the export before is still there
  2  usage      75  another export into the directory is at work"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("log_dir", metavar="LOG_DIR", type=any_path, help="one entry of a broker's log.dirs")
    parser.add_argument("topic", metavar="TOPIC", help="its partitions in this log dir")
    parser.add_argument(
        "--to", metavar="DIR", type=Path, required=True, help="a directory of exports of this topic; it may be new"
    )
    parser.add_argument(
        "--format",
        choices=("parquet", "jsonl", "iceberg"),
        default="parquet",
        help="jsonl: lines as of `cleaner consume --format json`; iceberg: a table of it (default: parquet)",
    )
    parser.add_argument("--changes", action="store_true", help="also what changed since the export that is there")
    parser.add_argument(
        "--survivor",
        metavar="RULE",
        default="offset",
        help="which record of a key is the last one, the topic's cleaner.survivor (default: offset)",
    )
    add_as_root(parser)


def run(arguments: argparse.Namespace) -> int:
    """Export the topic; returns the exit code."""
    from cleaner.exporting.topic import ExportOptions, export_topic

    target: Path = arguments.to
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target}: not a directory; --to names one for exports")
    options = ExportOptions(arguments.format, arguments.changes, arguments.survivor)
    bar = prepare_work(arguments.log_dir, target if target.exists() else None, stay_root=arguments.as_root)

    def work(context: CallContext) -> Export | ExportedTable:
        return export_topic(arguments.log_dir, arguments.topic, target, options, context)

    made = run_work(work, bar, fs=files_for(None, arguments.log_dir))
    rows, partitions = counted(made.rows, "row"), counted(len(made.partitions), "partition")
    say(
        f"{made.topic}: {rows} of {partitions}, {human_bytes(made.bytes)}: export {made.number} in "
        f"{printable(str(target))}"
    )
    if made.upserts is not None and made.deletes is not None:
        since = "since there was none before" if made.since is None else f"since export {made.since}"
        say(f"  {since}: {counted(made.upserts, 'upsert')}, {counted(made.deletes, 'delete')}")
    return 0
