"""
Decides which record of a key stays. The map, its kernels, Spark's reductions, readers of latest values and `check` use
this rule wherever two records have the same key.

A rule gives every record a rank, and the record of a key with the highest rank stays. Kafka's rule, and the default:
the latest offset (R-550). A topic may have another (`cleaner.survivor`, D-19): the greatest number in the records
themselves, and of equal ones the latest offset. The proof and the tests' twin have their own rules, on purpose:
`docs/decisions/survivor-rule.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from cleaner.config.forms import HEADER_SURVIVES, OFFSET_SURVIVES
from cleaner.format.record_numbers import RecordNumbers
from cleaner.kernels.offset_map import GREATEST_NUMBER

Ranked = TypeVar("Ranked")


@dataclass(frozen=True)
class SurvivorRule:
    """
    Compares two records of one key; the default compares their offsets.

    Attributes:
        code: its number in kernels: `supersedes` in `kernels/offset_map.py` is the compiled rule.
        numbers: what it compares before offsets; None: nothing.
    """

    code: int = 0
    numbers: RecordNumbers | None = None

    def rank(self, offset: Ranked) -> Ranked:
        """Return the rank of `offset`, among records of equal numbers: an offset, or an array or column of them."""
        return offset

    def offset_of(self, rank: Ranked) -> Ranked:
        """Return what `rank` made a rank of; the inverse of it."""
        return rank

    def supersedes(self, offset: int, other: int) -> bool:
        """Tell whether the record at `offset` supersedes the one at `other`, of the same key and number."""
        return self.rank(offset) > self.rank(other)


LATEST_OFFSET: Final = SurvivorRule()


def survivor_rule_of(text: str) -> SurvivorRule:
    """Return the rule of a topic's `cleaner.survivor`, which was checked."""
    if text == OFFSET_SURVIVES:
        return LATEST_OFFSET
    header = text.removeprefix(HEADER_SURVIVES).encode() if text.startswith(HEADER_SURVIVES) else None
    return SurvivorRule(GREATEST_NUMBER, RecordNumbers(header))
