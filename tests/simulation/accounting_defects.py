"""Planted defects of `gaps`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.verification.gaps.account import AbortedSpans, GapAccount
from cleaner.verification.gaps.reasons import GapReason
from cleaner.verification.gaps.tally import NO_SPANS
from tests.simulation.planting import breaks


@breaks(GapAccount, "_add_holes")
def gaps_explain_every_hole(
    real: Any, self: Any, holes: Any, is_damaged: Any, is_traced: Any, *more: Any, **named: Any
) -> None:
    """A hole above the checkpoint counts as cleaned."""
    real(self, holes, is_damaged, np.ones_like(is_traced), *more, **named)


@breaks(GapAccount, "begin_segment")
def gaps_miss_holes_between_segments(real: Any, self: Any, base_offset: int, **named: Any) -> None:
    """What is missing up to the next segment counts as not there to begin with."""
    self.next_offset = max(self.next_offset, base_offset)
    real(self, base_offset, **named)


@breaks(AbortedSpans, "split")
def gaps_take_all_for_aborted(_real: Any, _self: Any, holes: Any) -> Any:
    """Whatever a round has removed."""
    return holes, NO_SPANS


@breaks(GapAccount, "__init__")
def gaps_do_not_know_the_checkpoint(
    real: Any, self: Any, start_offset: int, cleaned: Any, *more: Any, **named: Any
) -> None:
    """What rounds have removed is called lost."""
    real(self, start_offset, replace(cleaned, end=0, recopied_end=0), *more, **named)


@breaks(GapAccount, "add_known")
def gaps_forget_what_retention_has_removed(
    real: Any, self: Any, reason: Any, first_offset: int, end_offset: int
) -> None:
    """Offsets below the log's start are left out."""
    if reason is not GapReason.RETENTION:
        real(self, reason, first_offset, end_offset)


@breaks(GapAccount, "_trust_trace")
def gaps_trust_the_last_batch_of_all(real: Any, self: Any, end_offset: int) -> None:
    """A trace of cleaning explains all that comes behind it, too."""
    real(self, end_offset)
    self._cleaned = replace(self._cleaned, end=1 << 62)
