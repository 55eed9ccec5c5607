"""Varints without a kernel, against the writer that the tests have of their own (R-221)."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cleaner.format.varints import encode_varint, read_varint
from tests.support.batch_builder import varint


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
@example(2**63 - 1)
@example(64)
def test_varint_of_any_long_is_written_and_read_back(value: int) -> None:
    """Writer and reader agree with each other and with a third."""
    data = encode_varint(value)
    assert data == varint(value)
    assert read_varint(memoryview(b"\x80" + data + b"\x01"), 1) == (value, 1 + len(data))
