"""`cleaner plan`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.model import TopicPartition
from cleaner.base.sizes import counted, duration, human_bytes
from cleaner.cli.arguments import (
    add_common,
    add_high_watermark,
    add_recompress,
    add_sampling,
    sampling_of,
    settings_given,
    sources,
)
from cleaner.cli.logs import log_note, log_warning
from cleaner.cli.output import (
    json_line,
    print_error,
    print_rules,
    say,
    say_table,
    survivor_words,
    ttl_words,
    view_words,
)
from cleaner.cli.who import add_who, run_who
from cleaner.cli.work import announce_compiling, take_identity
from cleaner.config.process_settings import KAFKA_VERSION_KEY
from cleaner.errors import UsageError
from cleaner.policy.reasons import Reason

if TYPE_CHECKING:
    from cleaner.app.plan_report import PlanEntry
    from cleaner.policy.estimate import PackingEstimate

SUMMARY = "list the partitions of a log dir: policy, sizes, due or not"

DESCRIPTION = """\
Lists every partition of a log dir: its cleanup policy and where that comes from, its segments, how much of it is
clean, dirty and uncleanable, the dirty ratio, and whether `cleaner clean --all` would take it, with the reason.

With --estimate it also says what cleaning would do: bytes freed, extra disk, rounds and seconds, from a sample.
A small log is read whole, and the figures are exact; in a large one the keys outside the sample are
estimated, and a range shows the possible error.

With --recompress it says how a round would pack the batches that stay, and with --estimate how much smaller they
become and how much longer it takes.

With --who it says instead whose bytes the log dir holds, live and dead: topics, partitions, key prefixes, keys,
producers, ages, and of __consumer_offsets groups and topics. Of a partition at most 64 MiB are read.

Takes no lock and writes nothing, so it may run beside a broker; the figures of a log that is being written are
then already out of date.

Directories may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner plan /var/lib/kafka --config /etc/kafka/server.properties
  cleaner plan /var/lib/kafka --estimate --sample 10G
  cleaner plan /var/lib/kafka prices-0 --estimate --recompress zstd
  cleaner plan /var/lib/kafka --who
  cleaner plan /var/lib/kafka __consumer_offsets-17 --who --sample 1G
  cleaner plan /var/lib/kafka --format json | jq -r 'select(.is_due) | .partition'

exit status:
  0  listed      1  some partition could not be read      2  usage      78  a bad setting"""

_HEADINGS = ("partition", "policy", "segments", "clean", "dirty", "uncleanable", "ratio", "due", "why")
_ESTIMATE_HEADINGS = ("partition", "sample", "dirty keys", "freed", "likely", "extra disk", "rounds", "time")
_PACKING_HEADINGS = ("partition", "packed with", "sample", "what stays", "packed", "extra time")
_WORDS = frozenset((0, 1, 7, 8))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_common(parser)
    parser.add_argument("partitions", metavar="TOPIC-PARTITION", nargs="*", help="only these (default: all)")
    add_high_watermark(parser)
    add_sampling(parser)
    add_recompress(parser)
    add_who(parser)
    parser.add_argument(
        "--trust-default-policy",
        action="store_true",
        help="plan as clean --all --trust-default-policy does",
    )


def run(arguments: argparse.Namespace) -> int:
    """List the partitions; returns the exit code."""
    if arguments.who:
        return run_who(arguments)
    if arguments.top is not None:
        raise UsageError("--top is for --who")
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.plan_log_dir import plan_log_dir
    from cleaner.storage.fs.remote import files_for

    sampling = sampling_of(arguments)
    if sampling is not None:
        announce_compiling(print_error)
    take_identity(arguments.log_dir, stay_root=arguments.as_root, needs_kernels=sampling is not None)
    context = CallContext.of(files_for(None, arguments.log_dir), now_ms=arguments.now, warn=log_warning)
    high_watermark = arguments.high_watermark
    entries = plan_log_dir(
        arguments.log_dir,
        settings,
        context,
        partitions=arguments.partitions or None,
        high_watermark=high_watermark,
        as_if_all=True,
        sampling=sampling,
        recompress=arguments.recompress,
    )
    return show_plan(entries, arguments.format, arguments.log_dir, settings_given(arguments))


def show_plan(entries: Sequence[PlanEntry], form: str, log_dir: Path, options: str = "") -> int:
    """
    Print the entries; returns 1 if one of them could not be read.

    Args:
        entries: in the order to be shown.
        form: `table` or `json`.
        log_dir, options: for the next commands; see `explain_entry`.
    """
    if form == "json":
        for entry in entries:
            print(plan_line(entry, log_dir, options))
    elif entries:
        say_table(_HEADINGS, map(_row, entries), left=_WORDS)
        _show_estimates(entries)
        _show_rules(entries)
        _show_notes(entries, log_dir)
    broken = [entry for entry in entries if entry.error]
    for entry in broken:
        print_error(f"{entry.partition}: {entry.error}")
    return max((entry.exit_code for entry in broken), default=0)


def plan_line(entry: PlanEntry, log_dir: Path, options: str) -> str:
    """Return an entry as a line of JSON, with its meaning and the next commands."""
    from cleaner.present.explanations import PLAN_CODES, explain_entry

    found = explain_entry(entry, log_dir, options)
    commands = [{"command": command, "what": what} for command, what in found.commands]
    behind = list(found.settings)
    code = PLAN_CODES.get(entry.why, entry.why.value)
    return json_line("plan", entry, why=code, meaning=found.meaning, settings_behind=behind, next=commands)


def _show_estimates(entries: Sequence[PlanEntry]) -> None:
    """Print what cleaning would do, if that was asked for."""
    rows = [
        (
            entry.partition,
            f"{entry.estimate.sample_part:.0%}",
            str(entry.estimate.dirty_keys),
            human_bytes(entry.estimate.bytes_freed),
            f"{human_bytes(entry.estimate.least_bytes_freed)} to {human_bytes(entry.estimate.most_bytes_freed)}",
            human_bytes(entry.estimate.extra_disk_bytes),
            str(entry.rounds.count if entry.rounds else 0),
            duration(1000 * entry.estimate.seconds),
        )
        for entry in entries
        if entry.estimate is not None
    ]
    if rows:
        say()
        say_table(_ESTIMATE_HEADINGS, rows)
    packings = [(entry.partition, entry.packing) for entry in entries if entry.packing is not None]
    if packings:
        say()
        say_table(_PACKING_HEADINGS, [_packing_row(*each) for each in packings], left=frozenset((0, 1)))


def _packing_row(partition: str, packing: PackingEstimate) -> tuple[str, ...]:
    return (
        partition,
        packing.recompress,
        human_bytes(packing.sampled_bytes),
        human_bytes(packing.bytes_before),
        human_bytes(packing.bytes_after),
        duration(1000 * packing.seconds),
    )


def _show_rules(entries: Sequence[PlanEntry]) -> None:
    """Print which Kafka's rules apply; they are the same for all partitions."""
    found = next(filter(None, (entry.setting(KAFKA_VERSION_KEY) for entry in entries)), None)
    if found is not None:
        print_rules(found.value, found.origin)


def _show_notes(entries: Sequence[PlanEntry], log_dir: Path) -> None:
    """Print once what concerns many partitions."""
    in_use = sorted({entry.in_use for entry in entries if entry.in_use})
    if in_use:
        log_note(f"{log_dir}: in use while read, by {', '.join(in_use)}: the figures may be out of date")
    packed = list(dict.fromkeys(entry.recompress for entry in entries if entry.recompress))
    if packed:
        log_note(
            f"batches that stay are packed ({packed[0]}): the same records, not the batches that Kafka would leave"
        )
    from cleaner.settings.given import DEFAULT  # not for the help

    unknown = {
        TopicPartition.parse(entry.partition).topic
        for entry in entries
        if entry.why is Reason.NOT_COMPACTED and not entry.policy_trusted and entry.policy_origin == DEFAULT
    }
    if unknown:
        compacted = "it is compacted" if len(unknown) == 1 else "some of them are compacted"
        log_note(
            f"cleanup.policy of {counted(len(unknown), 'topic')} is only Kafka's default: if {compacted}, say so with "
            "--metadata-dir, --config, --topics-dir or --set TOPIC:cleanup.policy=compact"
        )
    for entry in entries:
        if entry.key_view:
            log_note(view_words(entry.key_view, entry.merged_keys), partition=entry.partition)
        if entry.survivor:
            log_note(survivor_words(entry.survivor), partition=entry.partition)
        if entry.record_ttl_ms is not None:
            log_note(ttl_words(entry.record_ttl_ms), partition=entry.partition)
    replicated = [entry for entry in entries if entry.replicas is not None and entry.replicas > 1 and entry.warnings]
    if replicated:
        first = replicated[0]
        more = f" (and {len(replicated) - 1} more partitions)" if len(replicated) > 1 else ""
        log_warning(first.warnings[-1] + more, partition=first.partition)


def _row(entry: PlanEntry) -> tuple[str, ...]:
    is_weighed = entry.first_dirty_offset is not None
    return (
        entry.partition,
        entry.policy or "-",
        str(entry.segments),
        human_bytes(entry.clean_bytes) if is_weighed else "-",
        human_bytes(entry.dirty_bytes) if is_weighed else "-",
        human_bytes(entry.uncleanable_bytes if is_weighed else entry.bytes),
        f"{entry.ratio:.3f}" if is_weighed else "-",
        "yes" if entry.is_due else "no",
        short_why(entry),
    )


def short_why(entry: PlanEntry) -> str:
    """Say why in a few words, with the one number that matters."""
    match entry.why:
        case Reason.OVERDUE:
            return f"overdue for {duration(entry.overdue_ms)}"
        case Reason.OVER_RATIO | Reason.UNDER_RATIO:
            ratio = entry.setting("min.cleanable.dirty.ratio")
            sign = ">" if entry.why is Reason.OVER_RATIO else "not >"
            return f"ratio {sign} {ratio.value if ratio else ''}".rstrip()
        case Reason.NOTHING_TO_CLEAN:
            return _short_bound(entry)
        case Reason.LOG_DIR_LOCKED:
            return f"in use by {entry.in_use}"
        case Reason.POLICY_NOT_TRUSTED:
            return f"policy only from {entry.policy_origin}"
    return entry.why.words.label


def _short_bound(entry: PlanEntry) -> str:
    if entry.undecided is not None and entry.bounded_by == "last stable offset":
        open_for = duration(max(0, entry.now_ms - entry.undecided.since_ms))
        return f"transaction of producer {entry.undecided.producer_id}, open {open_for}"
    if entry.lag_ends_ms is not None and entry.bounded_by == "min.compaction.lag.ms":
        return f"min lag, {duration(entry.lag_ends_ms - entry.now_ms)} left"
    return entry.bounded_by
