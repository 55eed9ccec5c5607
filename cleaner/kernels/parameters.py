"""
The types a version of a kernel was compiled for, told apart without numba.

Machine code believes its caller: code for 64-bit words reads a byte array to eight times its length. So a version is
called only with arguments of exactly the types numba would have chosen it for; anything else is numba's to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

INT64 = "int64"
BOOLEAN = "bool"

Check = Callable[[Any], bool]


def is_int64(value: Any) -> bool:
    """Tell whether numba takes a value for an int64: of Python's integers those that fit."""
    kind = type(value)
    return (kind is int and -(2**63) <= value < 2**63) or kind is np.int64


def is_boolean(value: Any) -> bool:
    """Tell whether numba takes a value for a boolean."""
    return type(value) in (bool, np.bool_)


class IsArray:
    """Tells whether a value is an array without gaps, of one element type and rank."""

    def __init__(self, dtype: np.dtype[Any], rank: int, *, writable: bool) -> None:
        self._dtype = dtype
        self._rank = rank
        self._is_writable = writable

    def __call__(self, value: Any) -> bool:
        if type(value) is not np.ndarray or value.ndim != self._rank:
            return False
        if value.dtype is not self._dtype:
            if value.dtype != self._dtype:
                return False
            self._dtype = value.dtype  # the same type, and found sooner the next time
        flags = value.flags
        if self._is_writable:
            return bool(flags.carray)  # gapless, aligned, writable
        return bool(flags.c_contiguous and flags.aligned and not flags.writeable)


def describe_array(dtype: np.dtype[Any], rank: int, *, writable: bool) -> dict[str, Any]:
    """
    Return what `make_check` needs to know of an array, in words of JSON.

    Raises:
        ValueError: no words for this type of element.
    """
    words: Any = dtype.str if dtype.names is None else [list(field) for field in dtype.descr]
    if _element_type(words) != dtype:
        raise ValueError(f"no description of {dtype}")
    return {"dtype": words, "rank": rank, "writable": writable}


def _element_type(words: str | Sequence[Sequence[str]]) -> np.dtype[Any]:
    return np.dtype(words if isinstance(words, str) else [(field[0], field[1]) for field in words])


def make_check(parameter: str | dict[str, Any]) -> Check:
    """
    Return what tells whether an argument is of a described type.

    Raises:
        KeyError, TypeError, ValueError: a description not made by this version.
    """
    if isinstance(parameter, str):
        return {INT64: is_int64, BOOLEAN: is_boolean}[parameter]
    return IsArray(_element_type(parameter["dtype"]), parameter["rank"], writable=parameter["writable"])
