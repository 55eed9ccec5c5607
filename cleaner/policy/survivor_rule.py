"""
Which of the records of one key stays: the rule that the map, its kernels, Spark's reductions, readers of latest values
and `check` ask wherever two records of a key meet.

A rule gives every record a rank, and of one key's records the one of the highest rank stays. There is one rule,
Kafka's: the latest offset (R-550). The proof (`verification/proof/last_values.py`) and the tests' twin
(`tests/reference/`) have rules of their own, on purpose: they would find a mistake of this one right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

Ranked = TypeVar("Ranked")


@dataclass(frozen=True)
class SurvivorRule:
    """
    How two records of one key compare; this one by their offsets.

    Attributes:
        code: the number by which kernels know it: `supersedes` in `kernels/offset_map.py` is the rule compiled.
    """

    code: int = 0

    def rank(self, offset: Ranked) -> Ranked:
        """Return the rank of what stands for an offset and ascends with it: a number, an array, a column of Spark's."""
        return offset

    def offset_of(self, rank: Ranked) -> Ranked:
        """Return what had this rank."""
        return rank

    def supersedes(self, offset: int, other: int) -> bool:
        """Tell whether a record takes the place of another one of its key."""
        return self.rank(offset) > self.rank(other)


LATEST_OFFSET: Final = SurvivorRule()
