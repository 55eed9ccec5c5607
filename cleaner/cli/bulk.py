"""`cleaner bulk`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.remote_path import RemotePath, any_path
from cleaner.base.sizes import human_bytes
from cleaner.cli.arguments import parse_count, sources
from cleaner.cli.clean import add_shared, run_shared
from cleaner.cli.output import say
from cleaner.cli.work import prepare_work, run_work
from cleaner.config.bulk_settings import SPARK_PREFIX
from cleaner.errors import SparkJobError, UsageError
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.spark.clean.round import BulkCleaner

SUMMARY = "clean logs that are too large for one process, with Spark"

DESCRIPTION = """\
Cleans compacted partitions to the same bytes as `cleaner clean`, but no offset map can be too small: tasks of a Spark
session digest the keys and recopy the segments, and Spark keeps on disk what a task cannot hold in memory. One round
covers everything that can be cleaned. As many partitions are cleaned at the same time as Spark runs tasks; a single
task digests all keys of a small one.

For a log that fits the map this takes longer than `cleaner clean`. Needs the extra `spark` and Java 17. Without
--master Spark runs in this machine's processes alone. On a cluster all executors must see the log dir and the work
directory under the same paths.

The next job for the same partition finishes one that was killed, or starts again if the log has changed.

With --to the log dir stays as it is: all of it is copied to --scratch, the partitions named, or due, are cleaned there,
and the result is put into the bucket, read back, and its manifest put last (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner bulk /var/lib/kafka prices-0 --set prices:cleanup.policy=compact
  cleaner bulk /mnt/kafka --all --config /etc/kafka/server.properties --master spark://head:7077 --work-dir /mnt/bulk
  cleaner bulk /var/lib/kafka --all --to s3://backups/kafka --scratch /scratch/kafka
  cleaner bulk /var/lib/kafka prices-0 --conf spark.driver.memory=8g --conf spark.local.dir=/scratch

exit status:
  0  cleaned, or nothing to do          1  some partition was refused, or a Spark job failed
  2  usage      75  the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_shared(parser)
    parser.add_argument("--master", metavar="URL", help="of Spark: local[2], spark://host:7077, yarn, ... (local[*])")
    parser.add_argument(
        "--conf", metavar="spark.KEY=VALUE", action="append", default=[], help="a setting of Spark; may be repeated"
    )
    parser.add_argument(
        "--work-dir", metavar="DIR", type=Path, help="where jobs keep their state (cleaner.bulk.work.dir)"
    )
    parser.add_argument(
        "--map-entries",
        metavar="N",
        type=parse_count,
        help="end the round where an offset map of N keys would be full, to compare with `cleaner clean`",
    )
    parser.add_argument(
        "--to",
        metavar="s3://BUCKET/PREFIX",
        type=any_path,
        help="clean a copy, and put it there; LOG_DIR stays as it is",
    )
    parser.add_argument(
        "--scratch", metavar="DIR", type=Path, help="with --to: a new directory for the copy on its way"
    )


def run(arguments: argparse.Namespace) -> int:
    """Clean with Spark; returns the exit code."""
    from cleaner.app.options import CleanOptions
    from cleaner.spark.clean.available import why_not_available

    reason = why_not_available()
    if reason and not arguments.dry_run:
        raise SparkJobError(reason)
    settings = sources(arguments)
    settings = replace(settings, config={**settings.config, **_spark_settings(arguments)})
    cleaner = _make_cleaner(arguments)
    options = replace(CleanOptions.of(vars(arguments)), clean_round=cleaner.clean, side_by_side=cleaner.side_by_side)
    if arguments.to is None:
        return run_shared(arguments, settings, options)
    return clean_copy(arguments, lambda: run_shared(arguments, settings, options))


def clean_copy(arguments: argparse.Namespace, clean: Callable[[], int]) -> int:
    """Have `clean` clean a copy of the log dir, and put that into a bucket; returns the exit code."""
    from cleaner.app.copy_out import MANIFEST, copy_in, copy_out, remove_scratch
    from cleaner.storage.fs.new_copy import NewCopy

    log_dir, place, scratch = arguments.log_dir, arguments.to, arguments.scratch
    if not isinstance(place, RemotePath) or scratch is None or arguments.dry_run:
        raise UsageError("--to s3://BUCKET/PREFIX needs --scratch DIR, and does not go with --dry-run")
    bar = prepare_work(log_dir, stay_root=arguments.as_root)
    copy = run_work(lambda context: NewCopy(place, context.check_done), bar)
    run_work(lambda context: copy_in(log_dir, scratch, context), bar)
    arguments.log_dir = scratch
    if code := clean():
        say(f"nothing was put into the bucket; the copy is in {scratch}", stream=sys.stderr)
        return code
    files = run_work(lambda context: copy_out(log_dir, scratch, copy, place, context), bar)
    say(f"{len(files)} files, {human_bytes(sum(each.bytes for each in files))}, put and read back: {place / MANIFEST}")
    remove_scratch(FileSystem(), scratch)
    return 0


def _spark_settings(arguments: argparse.Namespace) -> dict[str, str]:
    found = {}
    for text in arguments.conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith(SPARK_PREFIX):
            raise UsageError(f"--conf {text}: not spark.KEY=VALUE")
        found[key] = value
    return found if arguments.master is None else {**found, "spark.master": arguments.master}


def _make_cleaner(arguments: argparse.Namespace) -> BulkCleaner:
    from cleaner.spark.clean.round import BulkCleaner
    from cleaner.spark.clean.spark_jobs import start_jobs
    from cleaner.spark.clean.work_dir import options_of

    return BulkCleaner(
        lambda config: start_jobs("cleaner bulk", dict(config.spark)),
        lambda config, log_dir: options_of(config, log_dir, arguments.work_dir, arguments.map_entries),
    )
