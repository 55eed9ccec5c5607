"""`cleaner clean`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.json_values import described
from cleaner.base.mistakes import Mistakes
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import counted, human_bytes
from cleaner.cli.advice import advice
from cleaner.cli.arguments import (
    add_common,
    add_high_watermark,
    add_recompress,
    parse_bytes,
    parse_rounds,
    parse_seconds,
    settings_given,
    sources,
    typed_again,
)
from cleaner.cli.logs import log_note, log_warning
from cleaner.cli.output import (
    json_line,
    print_next,
    print_rules,
    say_refusal,
    say_table,
    survivor_words,
    ttl_words,
    view_words,
)
from cleaner.cli.plan import show_plan
from cleaner.cli.progress import ProgressBar
from cleaner.cli.work import prepare_work, run_work, take_identity
from cleaner.config.forms import OTEL_ENDPOINT_KEY, checked_otel_endpoint
from cleaner.errors import NoSpaceError, PolicyRefusedError, UsageError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.which_dir import require_log_dir

if TYPE_CHECKING:
    from cleaner.app.clean_log_dir import Outcome
    from cleaner.app.options import CallContext, CleanOptions
    from cleaner.app.reports import CleanReport, Refusal
    from cleaner.present.spans import Spans
    from cleaner.settings.sources import Sources

SUMMARY = "clean compacted partitions of a log dir now"

DESCRIPTION = """\
Cleans compacted partitions as Kafka's own log cleaner does: of the records with the same key only the last one
stays. The log dir must not be in use by a broker. Every change is safe against crashes: whenever the command or
the machine stops, each group of segments is the old one or the new one.

A named partition is cleaned if anything in it can be. --all takes those that are due, by min.cleanable.dirty.ratio,
min.compaction.lag.ms and max.compaction.lag.ms. The active (last) segment, records above the high watermark,
everything from the first open transaction on, and segments younger than min.compaction.lag.ms cannot be cleaned.

A damaged partition is named with file, byte and reason. Damage in its dirty section leaves it as it was; damage in
its clean section leaves the groups before it cleaned, each complete. The others are still cleaned."""

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

_HEADINGS = (
    "partition",
    "from",
    "to",
    "rounds",
    "bytes read",
    "written",
    "records read",
    "written",
    "removed",
    "seconds",
)
_COMPACT = "cleanup.policy=compact"
_MAX_CONFIRMED = 3
# What a collector gets for the spans that are left at the end.
_SPANS_SECONDS = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_shared(parser)
    parser.add_argument(
        "--rounds",
        metavar="N|all",
        type=parse_rounds,
        default=1,
        help="clean this many rounds while the offset map is too small for the dirty section (default: 1)",
    )
    parser.add_argument(
        "--max-dirty-bytes",
        metavar="BYTES",
        type=parse_bytes,
        help="end a round's offset map after this much of the log (K, M, G, T)",
    )
    parser.add_argument(
        "--damaged",
        choices=("refuse", "keep"),
        default="refuse",
        help="keep: copy batches with wrong checksums or unreadable records unchanged, and clean "
        "around them. Not where the log holds transactions, or lengths or offsets are wrong (default: refuse)",
    )
    add_recompress(parser)
    parser.add_argument(
        "--index-dir",
        metavar="DIR",
        type=Path,
        help="keep an index of each clean segment's keys here, and leave segments unread in which nothing can change "
        "(default: cleaner.index.dir)",
    )
    parser.add_argument(
        "--no-index", dest="use_index", action="store_false", help="read every segment, whatever cleaner.index.dir says"
    )
    parser.add_argument(
        "--safe-tombstones",
        metavar="FILE",
        type=Path,
        help="keep tombstones and transaction markers from the safe offset on that `cleaner check --replicas "
        "--safe-tombstones FILE` has written: not every replica has seen them",
    )
    parser.add_argument(
        "--max-seconds", metavar="S", type=parse_seconds, help="end a round's offset map after this time"
    )


def _note_held(report: CleanReport) -> None:
    """Say what a safe offset has held, which Kafka would not have."""
    if report.safe_offset is None:
        return
    held = f"{report.held_tombstones} tombstones and {report.held_markers} markers were kept past their delete horizon"
    from_there = f"the safe offset of --safe-tombstones is {report.safe_offset}"
    log_note(f"{held}: {from_there}", partition=report.partition)


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every command that cleans partitions of a log dir."""
    add_common(parser)
    parser.add_argument(
        "partitions", metavar="TOPIC-PARTITION", nargs="*", help="name of the partition's directory: prices-0"
    )
    parser.add_argument("--all", action="store_true", help="every partition that is due")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, only show what would be cleaned")
    parser.add_argument(
        "--retention", action="store_true", help="afterwards delete expired segments (cleanup.policy=compact,delete)"
    )
    parser.add_argument(
        "--recover",
        action="store_true",
        help="without a clean-shutdown marker: recover the logs first instead of refusing",
    )
    parser.add_argument(
        "--allow-truncate", action="store_true", help="let --recover cut off more than the torn end of a last segment"
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
        "puts them back. Their space is free again once DIR is removed",
    )
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not read a written segment again before it replaces the old ones",
    )
    parser.add_argument(
        "--trust-default-policy",
        action="store_true",
        help="with --all: also clean topics that only a default declares compacted",
    )


def run(arguments: argparse.Namespace) -> int:
    """Clean, or say what would be cleaned; returns the exit code."""
    from cleaner.app.options import CleanOptions

    return run_shared(arguments, sources(arguments), CleanOptions.of(vars(arguments)).checked())


def run_shared(arguments: argparse.Namespace, settings: Sources, options: CleanOptions) -> int:
    """Clean with some options, or say what would be cleaned; returns the exit code."""
    if bool(arguments.partitions) == arguments.all:
        # For a partition's directory instead of a log dir, the error says how to name it.
        require_log_dir(FileSystem(), arguments.log_dir)
        raise UsageError("name the partitions to clean, or --all (and not both)")
    return _preview(arguments, settings) if arguments.dry_run else _clean(arguments, settings, options)


def _clean(arguments: argparse.Namespace, settings: Sources, options: CleanOptions) -> int:
    from cleaner.app.clean_log_dir import clean_log_dir

    spans = _open_spans(arguments, settings)  # loaded before root becomes a user who may not read libraries
    # `bulk` also has a work directory, and no indexes.
    others = (arguments.keep_old, getattr(arguments, "work_dir", None), getattr(arguments, "index_dir", None))
    bar = prepare_work(arguments.log_dir, *others, stay_root=arguments.as_root)
    printer = CleanPrinter(arguments, bar)

    def work(context: CallContext) -> None:
        names = None if arguments.all else arguments.partitions
        for outcome in clean_log_dir(arguments.log_dir, names, settings, options, context):
            printer.show(outcome)
            if spans is not None:
                _trace(spans, arguments.log_dir, outcome)

    patience = 0.1  # after an error, or the signal that gives a command a second
    try:
        run_work(work, bar, arguments.now)
        patience = _SPANS_SECONDS
    finally:
        printer.finish()
        if spans is not None:
            spans.close(patience)
    return printer.exit_code


def _open_spans(arguments: argparse.Namespace, settings: Sources) -> Spans | None:
    from cleaner.settings.given import GivenSettings

    given = GivenSettings(settings, Mistakes()).process_values({}).get(OTEL_ENDPOINT_KEY)
    if given is None:
        return None
    from cleaner.present.spans import open_spans

    return open_spans(checked_otel_endpoint(given.text.strip()), arguments.command, log_warning)


def _trace(spans: Spans, log_dir: Path, outcome: Outcome) -> None:
    """Send a partition's report, or its refusal, as a span."""
    from cleaner.app.reports import CleanReport, Refusal

    if isinstance(outcome, CleanReport):
        spans.add_round(described("clean", outcome, log_dir=str(log_dir)), outcome.elapsed_seconds)
    elif isinstance(outcome, Refusal):
        spans.add_round({"partition": outcome.partition, "log_dir": str(log_dir)}, 0.0, str(outcome.error))


def _preview(arguments: argparse.Namespace, settings: Sources) -> int:
    """Plan instead of cleaning: the named partitions, or all of them."""
    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir
    from cleaner.app.safe_tombstones import with_safe_offsets

    take_identity(arguments.log_dir, stay_root=arguments.as_root, needs_kernels=False)
    names = None if arguments.all else arguments.partitions
    context = CallContext.of(now_ms=arguments.now, warn=log_warning)
    entries = plan_log_dir(
        arguments.log_dir,
        settings,
        context,
        partitions=names,
        high_watermark=arguments.high_watermark,
        recompress=getattr(arguments, "recompress", None),  # `bulk` has none
    )
    # `bulk` has no such option.
    if (file := getattr(arguments, "safe_tombstones", None)) is not None:
        entries = with_safe_offsets(entries, context.fs, arguments.log_dir, file)
        for entry in entries:
            if entry.safe_offset is not None:
                log_note(f"tombstones and markers from offset {entry.safe_offset} on stay", partition=entry.partition)
    return show_plan(entries, arguments.format, arguments.log_dir, settings_given(arguments))


class CleanPrinter:
    """
    Prints outcomes: JSON lines at once, the table at the end, errors to standard error.

    `exit_code` is 0 until a partition is refused.
    """

    def __init__(self, arguments: argparse.Namespace, bar: ProgressBar) -> None:
        self.exit_code = 0
        self._arguments = arguments
        self._form = arguments.format
        self._bar = bar
        self._rows: list[tuple[str, ...]] = []
        self._rules = ("", "")
        self._skipped = 0
        self._doubtful: list[str] = []  # topics that only a default declares compacted

    def show(self, outcome: Outcome) -> None:
        """Show one partition's outcome."""
        from cleaner.app.reports import CleanReport, Refusal, Skipped

        self._bar.clear()
        match outcome:
            case Refusal():
                code = say_refusal(outcome, "clean", self._form, self._what_next(outcome))
                self.exit_code = max(self.exit_code, code)
            case Skipped(is_doubtful=True):
                log_warning(f"passed over: {outcome.reason}", partition=outcome.partition)
                self._doubtful.append(TopicPartition.parse(outcome.partition).topic)
            case Skipped():
                self._skipped += 1
            case CleanReport():
                self._show_report(outcome)

    def _what_next(self, refusal: Refusal) -> str:
        """Return the command that confirms a policy that is only a default, or how to clean with little room."""
        if isinstance(refusal.error, NoSpaceError):
            others = "smaller logs first (name them), or `cleaner clean --retention` where the policy has delete"
            return f"{advice(refusal.error)}; or {others}"
        topic = refusal.error.topic if isinstance(refusal.error, PolicyRefusedError) else ""
        return typed_again(self._arguments, refusal.partition, [f"{topic}:{_COMPACT}"]) if topic else ""

    def _show_report(self, report: CleanReport) -> None:
        for warning in report.warnings:
            log_warning(warning, partition=report.partition)
        for kept in report.kept_damage:
            what = f"{kept.reason}; offsets {kept.base_offset} to {kept.last_offset} are kept as they are"
            log_warning(f"{kept.path}: at byte {kept.position}: {what}", partition=report.partition)
        if report.key_view:
            log_note(view_words(report.key_view, report.merged_keys), partition=report.partition)
        if report.survivor:
            log_note(survivor_words(report.survivor, report.outranked_records), partition=report.partition)
        if report.record_ttl_ms is not None:
            log_note(ttl_words(report.record_ttl_ms, report.expired_records), partition=report.partition)
        if report.note:
            log_note(report.note, partition=report.partition)
        _note_held(report)
        if report.batches_packed:
            log_note(_packed_words(report), partition=report.partition)
        if report.retention_deleted_segments:
            log_note(
                f"retention deleted {counted(report.retention_deleted_segments, 'segment')}", partition=report.partition
            )
        if self._form == "json":
            print(json_line("clean", report), flush=True)
        else:
            self._rows.append(_row(report))
            self._rules = (report.kafka, report.kafka_origin)

    def finish(self) -> None:
        """Print the table, and how many partitions were skipped."""
        self._bar.clear()
        if self._rows:
            say_table(_HEADINGS, self._rows)
            print_rules(*self._rules)
        if self._skipped:
            are = "partition is" if self._skipped == 1 else "partitions are"
            log_note(f"{self._skipped} {are} not due (cleaner plan says why)")
        topics = list(dict.fromkeys(self._doubtful))
        if len(topics) > _MAX_CONFIRMED:
            print_next(f"{typed_again(self._arguments)} --trust-default-policy")
        elif topics:
            print_next(typed_again(self._arguments, sets=[f"{topic}:{_COMPACT}" for topic in topics]))


def _packed_words(report: CleanReport) -> str:
    """Say what was packed, and that it departs from what Kafka would have left."""
    before, after = human_bytes(report.packed_bytes_before), human_bytes(report.packed_bytes_after)
    batches = f"{report.batches_packed} batches packed ({report.recompress}) into {_left(report)}"
    return f"{batches}, {before} became {after}: the records are the same, Kafka would have left other batches"


def _left(report: CleanReport) -> int:
    return report.batches_packed - report.batches_joined


def _row(report: CleanReport) -> tuple[str, ...]:
    return (
        report.partition,
        str(report.first_dirty_offset),
        str(report.end_offset),
        str(report.rounds),
        human_bytes(report.bytes_read),
        human_bytes(report.bytes_written),
        str(report.messages_read),
        str(report.messages_written),
        str(report.removed.total),
        f"{report.elapsed_seconds:.2f}",
    )
