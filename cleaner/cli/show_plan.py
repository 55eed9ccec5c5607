"""How `cleaner plan`, and `cleaner clean --dry-run`, show their entries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.app.plan_report import PlanEntry, Why
from cleaner.base.sizes import duration, human_bytes
from cleaner.cli.logs import log_note, log_warning
from cleaner.cli.output import json_line, print_error, say, say_table
from cleaner.cli.plan_explanations import explain_entry

_HEADINGS = ("partition", "policy", "segments", "clean", "dirty", "uncleanable", "ratio", "due", "why")
_ESTIMATE_HEADINGS = ("partition", "sample", "dirty keys", "freed", "likely", "extra disk", "rounds", "time")
_WORDS = frozenset((0, 1, 7, 8))


def show_plan(entries: Sequence[PlanEntry], form: str, log_dir: Path, options: str = "") -> int:
    """
    Print the entries; returns 1 when one of them could not be looked at.

    Args:
        entries: in the order they are shown.
        form: `table` or `json`.
        log_dir, options: for the next commands; see `explain_entry`.
    """
    if form == "json":
        for entry in entries:
            print(entry_line(entry, log_dir, options))
    elif entries:
        say_table(_HEADINGS, map(_row, entries), left=_WORDS)
        _show_estimates(entries)
        _show_notes(entries, log_dir)
    broken = [entry for entry in entries if entry.error]
    for entry in broken:
        print_error(f"{entry.partition}: {entry.error}")
    return max((entry.exit_code for entry in broken), default=0)


def entry_line(entry: PlanEntry, log_dir: Path, options: str) -> str:
    """Return an entry as a line of JSON, with its meaning and what may be typed next."""
    found = explain_entry(entry, log_dir, options)
    commands = [{"command": command, "what": what} for command, what in found.commands]
    return json_line("plan", entry, meaning=found.meaning, settings_behind=list(found.settings), next=commands)


def _show_estimates(entries: Sequence[PlanEntry]) -> None:
    """Print what cleaning would do, where that was asked for."""
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


def _show_notes(entries: Sequence[PlanEntry], log_dir: Path) -> None:
    """Say what concerns many partitions once."""
    in_use = sorted({entry.in_use for entry in entries if entry.in_use})
    if in_use:
        log_note(f"{log_dir}: in use while read, by {', '.join(in_use)}: this was true for a moment")
    replicated = [entry for entry in entries if entry.replicas is not None and entry.replicas > 1 and entry.warnings]
    if replicated:
        first = replicated[0]
        more = f" (and {len(replicated) - 1} more like it)" if len(replicated) > 1 else ""
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
        case Why.OVERDUE:
            return f"overdue for {duration(entry.overdue_ms)}"
        case Why.OVER_RATIO | Why.UNDER_RATIO:
            ratio = entry.setting("min.cleanable.dirty.ratio")
            sign = ">" if entry.why is Why.OVER_RATIO else "not >"
            return f"ratio {sign} {ratio.value if ratio else ''}".rstrip()
        case Why.NOTHING_TO_CLEAN:
            return _short_bound(entry)
        case Why.LOCKED:
            return f"in use by {entry.in_use}"
        case Why.POLICY_NOT_TRUSTED:
            return f"policy only from {entry.policy_origin}"
    return {
        Why.NO_HIGH_WATERMARK: "no high watermark",
        Why.NOT_COMPACTED: "not compacted",
        Why.NEEDS_RECOVERY: "needs recovery",
        Why.BAD_SETTING: "bad setting",
        Why.UNREADABLE: "cannot be looked at",
    }[entry.why]


def _short_bound(entry: PlanEntry) -> str:
    if entry.undecided is not None and entry.bounded_by == "last stable offset":
        open_for = duration(max(0, entry.now_ms - entry.undecided.since_ms))
        return f"transaction of producer {entry.undecided.producer_id}, open {open_for}"
    if entry.lag_ends_ms is not None and entry.bounded_by == "min.compaction.lag.ms":
        return f"min lag, {duration(entry.lag_ends_ms - entry.now_ms)} left"
    return entry.bounded_by
