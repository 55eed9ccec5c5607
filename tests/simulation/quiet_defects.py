"""Planted defects of rounds in which nothing is dirty; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.cleaning.map.build_map import MapBuilder
from cleaner.cleaning.round import quiet
from cleaner.cleaning.round import round as round_module
from tests.simulation.planting import breaks


@breaks(quiet, "find_quiet_work")
def quiet_rounds_find_nothing(real: Any, *args: Any) -> Any:
    """No segment is recopied."""
    return real(*args)._replace(segments=frozenset())


@breaks(quiet._Found, "add")
def quiet_rounds_forget_transactions(real: Any, self: Any, rows: Any) -> None:
    """A marker is recopied without the segments that may hold its transaction's data."""
    real(self, rows)
    self.is_transactional = False


@breaks(quiet._Found, "_follow")
def quiet_rounds_wait_for_horizons_that_nobody_sets(real: Any, self: Any, rows: Any) -> None:
    """A marker whose data has gone is not due as long as it has no horizon."""


@breaks(MapBuilder, "build")
def quiet_rounds_judge_no_record(real: Any, self: Any) -> Any:
    """The map of an empty range covers nothing: all records are above it."""
    built = real(self)
    if not self._segments:
        self.offset_map.latest_offset = -1
    return built


@breaks(MapBuilder, "build")
def quiet_rounds_reset_the_checkpoint(real: Any, self: Any) -> Any:
    """The round ends where the map of an empty range does: at offset 0."""
    built = real(self)
    return built if self._segments else replace(built, end_offset=0)


@breaks(MapBuilder, "build")
def quiet_rounds_checkpoint_the_log_end(real: Any, self: Any) -> Any:
    """What is in the active segment counts as clean."""
    built = real(self)
    return built if self._segments else replace(built, end_offset=self._log.log_end_offset)


@breaks(round_module, "clean_log")
def quiet_rounds_recopy_everything(real: Any, log: Any, cleanable: Any, topic: Any, config: Any, context: Any) -> Any:
    """Segments are merged into groups as in any other round."""
    return real(log, cleanable, topic, config, replace(context, only=None))


@breaks(quiet, "find_quiet_work")
def quiet_rounds_recopy_one_segment(real: Any, *args: Any) -> Any:
    """Of several segments in which something is due only the first is recopied."""
    found = real(*args)
    return found._replace(segments=frozenset(sorted(found.segments)[:1]))
