"""Replays of records that tests make, without a log."""

from __future__ import annotations

from collections.abc import Sequence

from cleaner.verification.replay.kinds import REPLAYS
from cleaner.verification.replay.state import Facts, Replay, Thing, differences
from tests.support.coordinator_records import Pair

Step = Pair | tuple[int, Pair] | tuple[int, bool]
"""A record; a record of a producer; a producer's marker."""


def replayed(kind: str, *steps: Step) -> Replay:
    """Replay records at the offsets 0, 1, 2, ..."""
    state = REPLAYS[kind]()
    for offset, step in enumerate(steps):
        if isinstance(step[0], bytes):
            state.record(offset, -1, *step)
        elif isinstance(step[1], bool):
            state.marker(*step)
        else:
            state.record(offset, step[0], *step[1])
    return state


def facts(state: Replay) -> dict[str, Facts]:
    """Return the state by `kind: name`."""
    return {f"{thing.kind}: {thing.name}": found for thing, found in state.things()}


def told(kind: str, before: Sequence[Step], after: Sequence[Step]) -> list[tuple[str | None, ...]]:
    """Return the differences of two replays as tuples."""
    found = differences(replayed(kind, *before), replayed(kind, *after))
    return [(each.kind, each.name, each.field, each.before, each.after) for each in found]


def failures(state: Replay) -> list[tuple[int, str, str]]:
    """Return where readers give up."""
    return [(each.offset, each.name, each.reason) for each in state.notes.failures]


__all__ = ["Step", "Thing", "facts", "failures", "replayed", "told"]
