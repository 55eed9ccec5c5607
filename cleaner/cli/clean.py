"""`cleaner clean`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.cli.arguments import (
    add_common,
    add_high_watermark,
    parse_bytes,
    parse_rounds,
    parse_seconds,
    settings_given,
    sources,
)
from cleaner.errors import UsageError

if TYPE_CHECKING:
    from cleaner.app.options import CleanOptions, Sources

SUMMARY = "clean compacted partitions of a log dir now"

DESCRIPTION = """\
Cleans compacted partitions: of records with the same key only the last one stays, as Kafka's own log cleaner
would leave it. The log dir must not be in use by a broker. Every change is safe against crashes: whenever the
command or the machine stops, each group of segments is the old one or the new one.

A partition that is named is cleaned whenever anything in it can be. --all takes those that are due, by
min.cleanable.dirty.ratio, min.compaction.lag.ms and max.compaction.lag.ms. What cannot be cleaned is what is in
the active (last) segment, above the high watermark, or from the first open transaction on.

A damaged partition is left exactly as it is, and the others are still cleaned."""

EXAMPLES = """\
examples:
  cleaner clean /var/lib/kafka --all --config /etc/kafka/server.properties
  cleaner clean /var/lib/kafka prices-0 prices-1 --set prices:cleanup.policy=compact
  cleaner clean /var/lib/kafka --all --dry-run      what would be done, and why not
  cleaner clean /backup/copy prices-0 --recover --high-watermark end --set prices:cleanup.policy=compact
                                                    a bare copy of partition directories

exit status:
  0  cleaned, or nothing to do          1  some partition was refused, the others are done
  2  usage      75  the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_shared(parser)
    parser.add_argument(
        "--rounds",
        metavar="N|all",
        type=parse_rounds,
        default=1,
        help="go on while the offset map is too small for the dirty section (default: 1)",
    )
    parser.add_argument(
        "--max-dirty-bytes", metavar="BYTES", type=parse_bytes, help="end a round's map after so much (K, M, G, T)"
    )
    parser.add_argument(
        "--damaged",
        choices=("refuse", "keep"),
        default="refuse",
        help="keep: carry batches with wrong checksums, or records that cannot be read, over as they are, and clean "
        "around them. Not where the log holds transactions, or lengths or offsets are wrong (default: refuse)",
    )
    parser.add_argument("--max-seconds", metavar="S", type=parse_seconds, help="end a round's map after so long")


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every command that cleans partitions of a log dir."""
    add_common(parser)
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="as the directory is named: prices-0")
    parser.add_argument("--all", action="store_true", help="every partition that is due")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, only say what would be cleaned")
    parser.add_argument(
        "--retention", action="store_true", help="afterwards delete expired segments (cleanup.policy=compact,delete)"
    )
    parser.add_argument(
        "--recover", action="store_true", help="without a clean-shutdown marker: recover the logs first, not refuse"
    )
    parser.add_argument(
        "--allow-truncate", action="store_true", help="let that recovery cut more than the torn end of a last segment"
    )
    add_high_watermark(parser)
    parser.add_argument(
        "--keep-tombstones",
        action="store_true",
        help="give tombstones and transaction markers their delete horizon, but remove none: for a log whose followers "
        "may have been away for longer than delete.retention.ms",
    )
    parser.add_argument(
        "--keep-old",
        metavar="DIR",
        type=Path,
        help="keep the segments that are replaced, as hard links if it is the same file system; `cleaner undo DIR` "
        "puts them back. Their room is not freed before DIR goes",
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="do not re-read a written segment before it replaces the old ones"
    )
    parser.add_argument(
        "--trust-default-policy",
        action="store_true",
        help="with --all: also clean topics of which only a default says that they are compacted",
    )


def run(arguments: argparse.Namespace) -> int:
    """Clean, or say what would be cleaned; returns the exit code."""
    options = replace(
        shared_options(arguments),
        rounds=arguments.rounds,
        max_dirty_bytes=arguments.max_dirty_bytes,
        max_seconds=arguments.max_seconds,
        damaged=arguments.damaged,
    )
    return run_shared(arguments, sources(arguments), options)


def run_shared(arguments: argparse.Namespace, settings: Sources, options: CleanOptions) -> int:
    """Clean with some options, or say what would be cleaned; returns the exit code."""
    if bool(arguments.partitions) == arguments.all:
        from cleaner.storage.fs.file_system import FileSystem
        from cleaner.storage.which_dir import require_log_dir

        # Who names a partition's directory has named no partition yet, and is told how.
        require_log_dir(FileSystem(), arguments.log_dir)
        raise UsageError("name the partitions to clean, or --all (and not both)")
    return _preview(arguments, settings) if arguments.dry_run else _clean(arguments, settings, options)


def _clean(arguments: argparse.Namespace, settings: Sources, options: CleanOptions) -> int:
    from cleaner.app.clean_log_dir import clean_log_dir
    from cleaner.app.options import CallContext
    from cleaner.cli.compiling import announce_compiling
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.output import print_error
    from cleaner.cli.progress import ProgressBar
    from cleaner.cli.show_clean import CleanPrinter
    from cleaner.cli.stop import StopFlag, run_interruptibly

    bar = ProgressBar()
    announce_compiling(bar.speaking(print_error))
    # `bulk` has a directory to work in as well.
    work_dir = getattr(arguments, "work_dir", None)
    take_identity(arguments.log_dir, arguments.keep_old, work_dir, stay_root=arguments.as_root)
    with bar:
        printer = CleanPrinter(arguments, bar)

        def work(flag: StopFlag) -> None:
            lent = CallContext.of(
                now_ms=arguments.now, progress=bar, check_done=flag.check_done, warn=bar.speaking(log_warning)
            )
            names = None if arguments.all else arguments.partitions
            for outcome in clean_log_dir(arguments.log_dir, names, settings, options, lent):
                printer.show(outcome)

        try:
            run_interruptibly(work)
        finally:
            printer.finish()
    return printer.exit_code


def shared_options(arguments: argparse.Namespace) -> CleanOptions:
    """Return what `add_shared`'s options say."""
    from cleaner.app.options import CleanOptions

    return CleanOptions(
        high_watermark=arguments.high_watermark,
        recover=arguments.recover,
        allow_truncate=arguments.allow_truncate,
        retention=arguments.retention,
        verify=not arguments.no_verify,
        keep_tombstones=arguments.keep_tombstones,
        keep_old=arguments.keep_old,
    )


def _preview(arguments: argparse.Namespace, settings: Sources) -> int:
    """Plan instead of cleaning: the named partitions, or all of them."""
    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir
    from cleaner.cli.identity import take_identity
    from cleaner.cli.logs import log_warning
    from cleaner.cli.show_plan import show_plan

    take_identity(arguments.log_dir, stay_root=arguments.as_root, needs_kernels=False)
    names = None if arguments.all else arguments.partitions
    lent = CallContext.of(now_ms=arguments.now, warn=log_warning)
    entries = plan_log_dir(arguments.log_dir, settings, lent, partitions=names, high_watermark=arguments.high_watermark)
    return show_plan(entries, arguments.format, arguments.log_dir, settings_given(arguments))
