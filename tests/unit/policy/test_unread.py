"""Which segments of the clean section must be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cleaner.policy.unread import (
    MOST_ROUNDS_PAUSED,
    NO_HORIZON,
    FileIdentity,
    ReadSettings,
    RoundTerms,
    SegmentFacts,
    SegmentIdentity,
    WhyRead,
    Worth,
    why_read,
)

DAY_MS = 86_400_000
SETTINGS = ReadSettings(record_limit_bytes=100, batch_limit_bytes=200, interval_bytes=3, max_index_bytes=4)
FILE = FileIdentity(1, 2, 3, 4)
FACTS = SegmentFacts(
    identity=SegmentIdentity(FILE, FILE, FILE, b"first", b"last", 10),
    key_id=b"key",
    read_ms=1000,
    earliest_horizon_ms=NO_HORIZON,
    last_offset=9,
    keys=5,
    settings=SETTINGS,
)
TERMS = RoundTerms(key_id=b"key", now_ms=2000, removal_ms=2000, full_read_days=30, settings=SETTINGS, unchanging_end=10)


def test_segment_as_noted_is_not_read() -> None:
    """If all terms are those of the reading, nothing but keys and identity is asked for."""
    assert why_read(FACTS, TERMS) is None


@pytest.mark.parametrize(
    ("facts", "terms", "why"),
    [
        ({}, {"key_id": b"new"}, WhyRead.OTHER_KEY),
        ({}, {"unchanging_end": 9}, WhyRead.NEEDED_AT_END),
        ({"earliest_horizon_ms": 2000}, {}, WhyRead.HORIZON_DUE),
        ({"earliest_horizon_ms": 2001}, {}, None),
        ({"earliest_horizon_ms": 2000}, {"removal_ms": -(2**63)}, None),
        ({}, {"now_ms": 1000 + 30 * DAY_MS}, WhyRead.FULL_READ_DUE),
        ({}, {"now_ms": 999 + 30 * DAY_MS}, None),
        ({}, {"now_ms": 999}, WhyRead.FULL_READ_DUE),
        ({}, {"settings": SETTINGS._replace(record_limit_bytes=99)}, WhyRead.OTHER_SETTINGS),
        ({}, {"settings": SETTINGS._replace(batch_limit_bytes=199)}, WhyRead.OTHER_SETTINGS),
        ({}, {"settings": SETTINGS._replace(interval_bytes=2)}, WhyRead.OTHER_SETTINGS),
        ({}, {"settings": SETTINGS._replace(max_index_bytes=5)}, WhyRead.OTHER_SETTINGS),
        ({}, {"settings": ReadSettings(101, 201, 3, 4)}, None),
    ],
)
def test_segment_is_read_where_something_is_due_or_unknown(
    facts: dict[str, int], terms: dict[str, int], why: WhyRead | None
) -> None:
    """A key, an end, a horizon, an age or settings that are not those noted make a round read the segment."""
    assert why_read(replace(FACTS, **facts), replace(TERMS, **terms)) is why


def test_indexes_in_vain_pause_for_twice_as_long_each_time() -> None:
    """A log whose segments always have keys in common builds ever fewer indexes; one success resets that."""
    worth, pauses = Worth(), []
    for _ in range(9):
        worth = worth.after(saved_bytes=0, vain_bytes=100)
        pauses.append(worth.pause)
        while worth.pause:
            worth = worth.after(saved_bytes=0, vain_bytes=0)
    assert pauses == [1, 2, 4, 8, 16, 32, MOST_ROUNDS_PAUSED, MOST_ROUNDS_PAUSED, MOST_ROUNDS_PAUSED]
    assert worth.after(saved_bytes=100, vain_bytes=0) == Worth()
    assert worth.after(saved_bytes=32, vain_bytes=100).pause == MOST_ROUNDS_PAUSED
    assert worth.after(saved_bytes=34, vain_bytes=100) == Worth()
