"""Planted defects of rounds with a topic's own rules; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy import expiry
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.cleaning.round import round as round_module
from cleaner.config.values import TopicConfig
from cleaner.format import record_numbers
from cleaner.format.record_numbers import RecordNumbers
from cleaner.kernels.offset_map import EXPIRED_TOMBSTONE
from tests.simulation.planting import breaks, defect


@defect
def rules_compare_only_from_the_checkpoint_on() -> Any:
    """A record of the clean section loses to any that comes later."""
    real = TopicConfig.takes_whole_log
    TopicConfig.takes_whole_log = property(lambda topic: topic.key_view != "none")  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        TopicConfig.takes_whole_log = real  # type: ignore[method-assign]


@breaks(RecordNumbers, "of_layout")
def rules_compare_numbers_without_their_sign(real: Any, self: Any, layout: Any) -> Any:
    """-3 is greater than 7."""
    return real(self, layout) ^ np.uint64(1 << 63)


@breaks(OffsetMap, "_put_numbered")
def rules_keep_records_that_lose_at_once(real: Any, self: Any, rows: Any) -> int:
    """A record that is outranked when it comes has a bit all the same."""
    done = real(self, rows)
    for place in (rows[:done, 2].astype(np.int64) - 1 - self.latest_base).tolist():
        if place // 8 < len(self.latest):
            self.latest[place // 8] |= 1 << place % 8
    return int(done)


@breaks(record_numbers, "lay_out")
def rules_take_times_that_only_grow(real: Any, *arguments: Any) -> Any:
    """A timestamp is never lower than the one before it."""
    layout = real(*arguments)
    return replace(layout, timestamps_ms=np.maximum.accumulate(layout.timestamps_ms))


@breaks(expiry, "lay_out")
def expiry_takes_no_time_for_an_old_one(real: Any, *arguments: Any) -> Any:
    """A record without a timestamp expires."""
    layout = real(*arguments)
    return replace(layout, timestamps_ms=np.maximum(layout.timestamps_ms, 0))


@breaks(expiry, "_without_values")
def expiry_leaves_the_old_horizon(real: Any, block: Any, *more: Any) -> Any:
    """The tombstones go when others of their batch may go."""
    found = real(block, *more)
    found.batches["attributes"] = block.batches["attributes"]
    return found


@breaks(Expiry, "apply")
def expiry_removes_records_at_once(real: Any, self: Any, path: Any, block: Any, retention: Any, verdicts: Any) -> Any:
    """Nobody sees a tombstone."""
    before = verdicts.copy()
    found, count = real(self, path, block, retention, verdicts)
    verdicts[before != verdicts] = EXPIRED_TOMBSTONE
    return found, count


@breaks(round_module, "rules_of")
def expiry_is_forgotten_by_rounds(real: Any, *arguments: Any) -> Any:
    """The setting is read, and nothing expires."""
    return replace(real(*arguments), expire_before_ms=None)
