"""Errors that are kept: what they came through is not kept with them."""

from __future__ import annotations

import traceback
import weakref
from pathlib import Path
from typing import NoReturn

import pytest

from cleaner.errors import CleanerError, CorruptBatchError, as_value, forget_frames, unexpected


class _Buffer:
    """Stands for something large that a function works on."""


def _fail_with(error: Exception, seen: list[weakref.ref[_Buffer]]) -> NoReturn:
    buffer = _Buffer()
    seen.append(weakref.ref(buffer))
    raise error


def _fail_because_of(cause: Exception, seen: list[weakref.ref[_Buffer]]) -> NoReturn:
    buffer = _Buffer()
    seen.append(weakref.ref(buffer))
    try:
        _fail_with(cause, seen)
    except Exception as error:
        raise CleanerError("told") from error


def test_error_whose_frames_are_forgotten_holds_nothing_of_them() -> None:
    """Nor do those it came from; where they came from is still told."""
    seen: list[weakref.ref[_Buffer]] = []
    with pytest.raises(CleanerError) as raised:
        _fail_because_of(ValueError("cause"), seen)
    assert [ref() is not None for ref in seen] == [True, True]
    forget_frames(raised.value)
    assert [ref() for ref in seen] == [None, None]
    assert "_fail_with" in "".join(traceback.format_exception(raised.value))


def test_error_kept_as_a_value_does_not_know_where_it_came_from() -> None:
    """It would keep its callers too, and whoever keeps the error is one of them."""
    try:
        _fail_with(CorruptBatchError("0.log", 7, "damage"), [])
    except CorruptBatchError as error:
        kept = as_value(error)
    assert kept.__traceback__ is None
    assert str(kept) == "0.log: at byte 7: damage"


def test_mistake_of_ours_kept_as_a_value_still_tells_where_it_is() -> None:
    """Its traceback goes into the daemon's log; what its functions had in hand does not stay."""
    seen: list[weakref.ref[_Buffer]] = []
    try:
        _fail_with(IndexError("mistake"), seen)
    except IndexError as error:
        kept = as_value(unexpected(Path("topic-0"), error))
    assert seen[0]() is None
    assert "_fail_with" in "".join(traceback.format_exception(kept))


def test_chain_of_errors_that_leads_back_to_itself_has_an_end() -> None:
    """Python allows it."""
    first, second = CleanerError("first"), CleanerError("second")
    first.__context__, second.__context__ = second, first
    assert as_value(first) is first
