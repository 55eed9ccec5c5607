"""How `cleaner plan`, and `cleaner clean --dry-run`, show their entries."""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.api.reports import PlanEntry
from cleaner.cli.output import json_line, print_error, table
from cleaner.cli.progress import human_bytes

_HEADINGS = ("partition", "policy", "from", "segments", "clean", "dirty", "uncleanable", "ratio", "due", "why")
_WORDS = frozenset((0, 1, 2, 8, 9))


def show_plan(entries: Sequence[PlanEntry], form: str) -> int:
    """Print the entries; returns 1 when one of them could not be looked at."""
    if form == "json":
        for entry in entries:
            print(json_line(entry))
    elif entries:
        print(table(_HEADINGS, map(_row, entries), left=_WORDS))
    broken = [entry for entry in entries if entry.error]
    for entry in broken:
        print_error(f"{entry.partition}: {entry.error}")
    return 1 if broken else 0


def _row(entry: PlanEntry) -> tuple[str, ...]:
    is_weighed = entry.first_dirty_offset is not None
    return (
        entry.partition,
        entry.policy or "-",
        entry.policy_origin or "-",
        str(entry.segments),
        human_bytes(entry.clean_bytes) if is_weighed else "-",
        human_bytes(entry.dirty_bytes) if is_weighed else "-",
        human_bytes(entry.uncleanable_bytes if is_weighed else entry.bytes),
        f"{entry.ratio:.3f}" if is_weighed else "-",
        "yes" if entry.is_due else "no",
        entry.reason,
    )
