"""Planted defects of rounds with a key view; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.app import rounds
from cleaner.cleaning.estimate import merged_keys
from cleaner.cleaning.recopy.survivors import MapSurvivors
from cleaner.cleaning.round import round as round_module
from cleaner.format import key_digests, viewed_block
from tests.simulation.planting import breaks


@breaks(rounds, "key_view_of")
def views_are_forgotten_by_rounds(_: Any, _name: str) -> None:
    """A topic's view is not looked at: the round is Kafka's."""


@breaks(round_module, "key_view_of")
def views_do_not_reach_the_map(_: Any, _name: str) -> None:
    """All the log is read, and the bytes of keys are compared."""


@breaks(MapSurvivors, "__init__")
def survivors_are_judged_without_the_view(real: Any, self: Any, offset_map: Any, removal_ms: int, _view: Any) -> None:
    """What no bit decides is looked up by its bytes."""
    real(self, offset_map, removal_ms)


@breaks(rounds, "_clean_here")
def views_begin_at_the_checkpoint(real: Any, work: Any, found: Any, report: Any) -> Any:
    """What was cleaned before counts as clean."""
    first = found.first_dirty_offset if work.view is None else work.found.first_dirty_offset
    return real(work, replace(found, first_dirty_offset=first), report)


@breaks(viewed_block, "_record")
def views_lose_tombstones(real: Any, delta: int, key: Any, view: Any, *, is_tombstone: bool) -> Any:
    """A tombstone has no key to the view: it deletes nothing, and goes."""
    return real(delta, None if is_tombstone else key, view, is_tombstone=is_tombstone)


@breaks(viewed_block, "_record")
def views_take_short_keys_for_one(real: Any, delta: int, key: Any, view: Any, **more: Any) -> Any:
    """More is merged than the view says."""
    return real(delta, key and b"", view, **more)


@breaks(key_digests, "viewed_block")
def views_pass_over_the_first_batch(real: Any, path: Any, block: Any, skipped: Any, view: Any) -> Any:
    """The keys of a block's first batch are digested as they are."""
    found = real(path, block, skipped, view)
    found.batches[:1] = block.batches[:1]
    return found


@breaks(merged_keys, "_last_ones")
def merged_keys_are_not_counted(real: Any, fs: Any, log: Any, end: int, _view: Any, *more: Any) -> Any:
    """Both counts are by bytes."""
    return real(fs, log, end, None, *more)
