"""Errors that are kept: what they came through is not kept with them."""

from __future__ import annotations

import ast
import re
import traceback
import weakref
from pathlib import Path
from typing import NoReturn

import pytest

from cleaner import errors
from cleaner.errors import (
    CleanerError,
    CleaningAborted,
    CorruptBatchError,
    LogChangedError,
    as_value,
    forget_frames,
    unexpected,
)

PACKAGE = Path(errors.__file__).parent


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


def drawn_tree() -> dict[str, tuple[str, int | None]]:
    """Return each class of the tree in `cleaner.errors`, with its parent and the exit code beside it."""
    drawn: dict[str, tuple[str, int | None]] = {}
    path: list[str] = []
    for indent, name, code in re.findall(
        r"^    ((?:\|  )*(?:\|- )?)([A-Z]\w+)(?: +(\d+))?(?= |$)", str(errors.__doc__), re.MULTILINE
    ):
        depth = len(indent) // 3
        path[depth:] = [name]
        drawn[name] = (path[depth - 1] if depth else "Exception", int(code) if code else None)
    return drawn


def test_tree_of_errors_is_drawn_whole() -> None:
    """Every class with its parent; the exit code beside it is the one it ends a command with."""
    classes: dict[str, type[CleanerError]] = {
        name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
    }
    drawn = drawn_tree()
    assert drawn.keys() == classes.keys()
    assert {name: parent for name, (parent, _) in drawn.items()} == {
        name: kind.__bases__[0].__name__ for name, kind in classes.items()
    }
    codes = {name: code for name, (_, code) in drawn.items() if code is not None}
    assert len(codes) > 20
    assert codes == {name: classes[name].exit_code for name in codes}


def exceptions_elsewhere() -> dict[str, set[str]]:
    """Return the public exception classes of all other files, each with its bases, its bases' bases and so on."""
    bases: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if path.name != "errors.py" else ():
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    for each in bases.values():
        while new := {far for near in each for far in bases.get(near, ())} - each:
            each |= new
    known = {"Exception", "ValueError", *drawn_tree()}
    return {name: each for name, each in bases.items() if each & known and not name.startswith("_")}


def test_no_error_for_callers_is_defined_elsewhere() -> None:
    """What a public call may raise is in `cleaner.errors`; rooms have `ValueError`s of their own, for their callers."""
    elsewhere = exceptions_elsewhere()
    assert "DecompressionError" in elsewhere
    assert [name for name, bases in elsewhere.items() if bases & drawn_tree().keys()] == []
    assert {name for name, bases in elsewhere.items() if "ValueError" not in bases} == {"InvalidTransitionError"}


def test_change_of_a_log_is_no_stop_that_was_asked_for() -> None:
    """A reader that may try again must not take it for the end of its work."""
    assert not issubclass(LogChangedError, CleaningAborted)
