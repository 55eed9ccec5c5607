"""How `cleaner explain LOG_DIR TOPIC-PARTITION` shows a log: its picture, every bound of what may be cleaned, why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cleaner.app.plan_report import PlanEntry, Why
from cleaner.base.sizes import duration, human_bytes
from cleaner.cli.log_page import LogPage
from cleaner.cli.plan_explanations import explain_entry
from cleaner.present.formatting import moment

_LAG = "min.compaction.lag.ms"
_Row = tuple[str, str, str]
_GOOD = (Why.OVERDUE, Why.OVER_RATIO, Why.UNDER_RATIO, Why.NOTHING_TO_CLEAN)


def show_plan_page(entry: PlanEntry, log_dir: Path, options: str) -> None:
    """Print all there is to say of a partition; for `options` see `explain_entry`."""
    page = LogPage()
    page.head(entry.partition, str(log_dir), _facts(entry))
    if entry.sections is not None:
        page.sections(entry.sections)
    if entry.bounds:
        page.table(("bound", "offset", "figure"), _bounds(entry), left=frozenset((0, 2)))
    if entry.settings:
        settings = [(setting.key, setting.value, setting.origin) for setting in entry.settings]
        page.table(("setting", "value", "from"), settings, left=frozenset((0, 2)))
    found = explain_entry(entry, log_dir, options)
    print()
    reason = f"{entry.reason}: {entry.error}" if entry.error else entry.reason
    page.words("why", reason, "red" if entry.error else "green" if entry.why in _GOOD else "yellow")
    page.words("meaning", found.meaning)
    page.words("settings", ", ".join(found.settings))
    page.words("rounds", _rounds(entry))
    page.words("estimate", _estimate(entry))
    if entry.cut_bytes:
        page.words("recovery", f"would cut {human_bytes(entry.cut_bytes)} from the end, as far as batch headers tell")
    if entry.in_use:
        page.words("in use", f"by {entry.in_use}, while it was read: this was true for a moment", "yellow")
    for warning in entry.warnings:
        page.words("warning", warning, "yellow")
    page.commands(found.commands)


def _facts(entry: PlanEntry) -> Iterator[str]:
    if entry.policy_origin:
        yield f"cleanup.policy={entry.policy} ({entry.policy_origin})"
    yield f"{entry.segments} segments"
    yield human_bytes(entry.bytes)
    if entry.log_end_offset is not None:
        yield f"offsets {entry.log_start_offset} to {entry.log_end_offset}"


def _bounds(entry: PlanEntry) -> Iterator[_Row]:
    """Yield what begins the cleanable range, each bound that may end it, and what makes it due."""
    line = entry.checkpoint_offset
    offsets = {bound.name: bound.offset for bound in entry.bounds}
    if entry.is_checkpoint_reset:
        figure = f"begun anew: its line, {line}, is outside of the log"
    else:
        figure = "no line in cleaner-offset-checkpoint" if line is None else "cleaner-offset-checkpoint"
    yield "first dirty offset", f"{entry.first_dirty_offset}", figure
    yield "active segment", f"{offsets['active segment']}", "never cleaned; begins by segment.ms, segment.bytes"
    yield "high watermark", f"{offsets['high watermark']}", "below it records are replicated"
    yield "last stable offset", f"{offsets['last stable offset']}", _transaction(entry)
    young = f"{offsets[_LAG]}" if _LAG in offsets else "-"
    yield _LAG, young, _too_young(entry)
    ends = f"by {entry.bounded_by}, at a segment's begin"
    yield "first uncleanable offset", f"{entry.first_uncleanable_offset}", ends
    yield "dirty ratio", "-", _ratio(entry)
    yield "max.compaction.lag.ms", "-", _overdue(entry)


def _too_young(entry: PlanEntry) -> str:
    if entry.lag_ends_ms is None:
        return "no dirty segment is too young"
    return f"old enough in {duration(entry.lag_ends_ms - entry.now_ms)}, at {moment(entry.lag_ends_ms)}"


def _transaction(entry: PlanEntry) -> str:
    found = entry.undecided
    if found is None:
        return "no open transaction below the high watermark"
    open_for = duration(max(0, entry.now_ms - found.since_ms))
    return f"open for {open_for}: producer {found.producer_id}, epoch {found.producer_epoch}"


def _ratio(entry: PlanEntry) -> str:
    dirty, all_ = human_bytes(entry.dirty_bytes), human_bytes(entry.dirty_bytes + entry.clean_bytes)
    return f"{entry.ratio:.3f}: {dirty} dirty of {all_}"


def _overdue(entry: PlanEntry) -> str:
    if entry.overdue_ms:
        return f"over it by {duration(entry.overdue_ms)}"
    if entry.overdue_at_ms is None:
        return "never over it"
    return f"over it in {duration(entry.overdue_at_ms - entry.now_ms)}"


def _estimate(entry: PlanEntry) -> str:
    """Say what cleaning would do, from a sample."""
    found = entry.estimate
    if found is None:
        return ""
    least, most = human_bytes(found.least_bytes_freed), human_bytes(found.most_bytes_freed)
    return (
        f"frees {human_bytes(found.bytes_freed)} of {human_bytes(found.bytes_before)} (likely {least} to {most}), "
        f"needs {human_bytes(found.extra_disk_bytes)} beside it for a while, takes about "
        f"{duration(1000 * found.seconds)}; {found.dirty_keys} keys are dirty; read: {found.sample_part:.0%}"
    )


def _rounds(entry: PlanEntry) -> str:
    """Say how many rounds are ahead with this buffer, and with which it would be one."""
    ahead = entry.rounds
    if ahead is None or not entry.dirty_bytes:
        return ""
    at_most = "at most" if entry.estimate is None else "about"
    words = (
        f"{at_most} {ahead.count}: there are {at_most} {ahead.keys} keys, and a round takes {ahead.most_keys} "
        f"({human_bytes(ahead.buffer_bytes)} a thread, {ahead.slots} slots)"
    )
    if ahead.count <= 1:
        return words
    words += f", of the dirty section about {human_bytes(ahead.head_bytes)}"
    if ahead.one_round_buffer_size is None:
        return f"{words}; cleaner.map.kafka.cap forbids a buffer for one round"
    return f"{words}; one round with log.cleaner.dedupe.buffer.size={ahead.one_round_buffer_size}"
