"""Writing varints, against the writer that the tests have of their own (R-221)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleaner.kernels.varints import varint_size, write_field, write_varint
from tests.support.batch_builder import varint
from tests.unit.kernels.arrays import padded

pytestmark = pytest.mark.kernels


@given(st.integers(-(2**63), 2**63 - 1))
@example(-(2**63))
@example(2**63 - 1)
@example(63)
@example(64)
@example(-65)
def test_varint_of_any_long_is_written_in_its_shortest_form(value: int) -> None:
    """Up to the limits of a long, where shifting a sign out must not go wrong."""
    out = np.zeros(12, np.uint8)
    end = write_varint(out, 1, np.int64(value))
    assert out[:end].tobytes() == b"\0" + varint(value)
    assert varint_size(np.int64(value)) == end - 1


@pytest.mark.parametrize("field", [None, b"", b"k", b"v" * 200])
def test_field_is_written_behind_its_length(field: bytes | None) -> None:
    """Null and empty differ (R-220)."""
    size = -1 if field is None else len(field)
    out = np.zeros(220, np.uint8)
    end = write_field(out, 0, padded(b"--" + (field or b"")), 2, np.int64(size))
    assert out[:end].tobytes() == varint(size) + (field or b"")
