"""A survivor rule that no round uses: with it, every caller of the rule gives another answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule


@dataclass(frozen=True)
class _EarliestOffset(SurvivorRule):
    code: int = 1

    def rank(self, offset: Any) -> Any:
        return -offset

    def offset_of(self, rank: Any) -> Any:
        return -rank


EARLIEST_OFFSET = _EarliestOffset()
RULES = (LATEST_OFFSET, EARLIEST_OFFSET)
