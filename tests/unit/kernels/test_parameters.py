"""Arguments are taken for what numba takes them for, and nothing else reaches machine code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numba import typeof, types
from numba.core.errors import NumbaError
from numba.np.numpy_support import as_dtype

from cleaner.kernels.parameters import BOOLEAN, INT64, describe_array, make_check

ROW = np.dtype([("size", np.int64), ("last_offset", np.int64)])
LONGER_ROW = np.dtype([("size", np.int64), ("last_offset", np.int64), ("more", np.int64)])


def readonly(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array nobody may write to."""
    array.flags.writeable = False
    return array


class OwnArray(np.ndarray[Any, Any]):
    """Somebody's own kind of array."""


VALUES: list[Any] = [
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    True,
    1.5,
    None,
    b"abc",
    bytearray(b"abc"),
    memoryview(b"abc"),
    "abc",
    np.int64(5),
    np.uint64(5),
    np.int32(5),
    np.float64(5),
    np.bool_(True),
    np.zeros(3, np.uint8),
    np.zeros(0, np.uint8),
    np.zeros(3, np.int8),
    np.zeros(3, np.int64),
    np.zeros(3, np.uint64),
    np.zeros(3, ">i8"),
    np.zeros(6, np.int64)[::2],
    np.zeros((2, 3), np.int64),
    np.zeros((2, 3), np.int64).T,
    np.zeros((2, 3), np.int64)[:, 1:],
    np.zeros((), np.int64),
    np.zeros(3, np.int64).view(OwnArray),
    readonly(np.zeros(3, np.uint8)),
    np.frombuffer(b"abc", np.uint8),
    np.zeros(2, ROW),
    np.zeros(2, LONGER_ROW),
    readonly(np.zeros(2, ROW)),
    np.zeros(17, np.uint8)[1:].view(np.int64),  # not aligned
    [1],
    (1, 2),
]
EXPECTED = [
    (types.int64, INT64),
    (types.boolean, BOOLEAN),
    *(
        (typeof(array), describe_array(array.dtype, array.ndim, writable=array.flags.writeable))
        for array in (
            np.zeros(1, np.uint8),
            readonly(np.zeros(1, np.uint8)),
            np.zeros(1, np.int64),
            np.zeros(1, np.uint64),
            np.zeros((1, 1), np.int64),
            np.zeros(1, ROW),
            readonly(np.zeros(1, ROW)),
        )
    ),
]


def type_by_numba(value: Any) -> Any:
    """Return numba's type of a value; None if it has none."""
    try:
        return typeof(value)
    except (ValueError, NumbaError):
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("numba_type", "description"), EXPECTED, ids=str)
def test_check_accepts_what_numba_takes_for_the_type(numba_type: Any, description: Any) -> None:
    """Neither more, which would read beyond an array, nor less, which would load numba for nothing."""
    check = make_check(json.loads(json.dumps(description)))
    for value in VALUES:
        is_odd = isinstance(value, OwnArray) or (isinstance(value, np.ndarray) and not value.flags.aligned)
        assert check(value) == (type_by_numba(value) == numba_type and not is_odd), repr(value)


@pytest.mark.parametrize("dtype", [np.dtype(np.uint16), ROW, LONGER_ROW], ids=str)
def test_element_type_by_numba_is_the_same(dtype: np.dtype[Any]) -> None:
    """The description is made from numba's type, and held against numpy's."""
    array = np.zeros(2, dtype)
    description = describe_array(as_dtype(typeof(array).dtype), 1, writable=True)
    assert make_check(description)(array)


@pytest.mark.parametrize("offsets", [pytest.param([8, 0], id="out of order"), pytest.param([0, 16], id="with a gap")])
def test_element_type_without_words_is_refused(offsets: list[int]) -> None:
    """Such kernels stay with numba."""
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i8", "i8"], "offsets": offsets})
    with pytest.raises(ValueError, match="descr"):
        describe_array(dtype, 1, writable=True)


@pytest.mark.parametrize("description", ["int32", {}, {"dtype": "<i8"}, {"dtype": "what", "rank": 1, "writable": True}])
def test_unknown_description_is_refused(description: Any) -> None:
    """As a later version might write it."""
    with pytest.raises((KeyError, TypeError)):
        make_check(description)
