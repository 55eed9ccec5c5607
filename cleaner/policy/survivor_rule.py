"""
Decides which record of a key stays. The map, its kernels, Spark's reductions, readers of latest values and `check` use
this rule wherever two records have the same key.

A rule gives every record a rank, and the record of a key with the highest rank stays. There is one rule, Kafka's: the
latest offset (R-550). The proof and the tests' twin have their own rules, on purpose:
`docs/decisions/survivor-rule.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

Ranked = TypeVar("Ranked")


@dataclass(frozen=True)
class SurvivorRule:
    """
    Compares two records of one key; this rule compares their offsets.

    Attributes:
        code: its number in kernels: `supersedes` in `kernels/offset_map.py` is the compiled rule.
    """

    code: int = 0

    def rank(self, offset: Ranked) -> Ranked:
        """Return the rank of `offset`: an offset, or an array or Spark column of them."""
        return offset

    def offset_of(self, rank: Ranked) -> Ranked:
        """Return what `rank` made a rank of; the inverse of it."""
        return rank

    def supersedes(self, offset: int, other: int) -> bool:
        """Tell whether the record at `offset` supersedes the one at `other`, which has the same key."""
        return self.rank(offset) > self.rank(other)


LATEST_OFFSET: Final = SurvivorRule()
