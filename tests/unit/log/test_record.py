"""Records as values."""

from __future__ import annotations

from cleaner.log.record import Record


def test_records_alike_are_equal_and_one_member_of_a_set() -> None:
    """Records compare by value, not by identity."""
    record = Record(b"p5", b"14", (("source", b"web"),), 7, 3)
    assert len({record, Record(b"p5", b"14", (("source", b"web"),), 7, 3)}) == 1
    assert record not in {Record(b"p5", b"14", (("source", b"web"),), 7, 4), Record(b"p5", None)}
