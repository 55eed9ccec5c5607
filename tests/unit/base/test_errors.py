"""Errors that are kept do not keep the frames they passed through; and they go from process to process."""

from __future__ import annotations

import ast
import copy
import errno
import inspect
import pickle
import re
import traceback
import weakref
from pathlib import Path
from typing import NoReturn, cast

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


def test_error_without_frames_keeps_no_locals() -> None:
    """Neither do its causes; the places in the traceback are still shown."""
    seen: list[weakref.ref[_Buffer]] = []
    with pytest.raises(CleanerError) as raised:
        _fail_because_of(ValueError("cause"), seen)
    assert [ref() is not None for ref in seen] == [True, True]
    forget_frames(raised.value)
    assert [ref() for ref in seen] == [None, None]
    assert "_fail_with" in "".join(traceback.format_exception(raised.value))


def test_error_kept_as_a_value_has_no_traceback() -> None:
    """A traceback would keep its callers alive, and with them the object that keeps the error."""
    try:
        _fail_with(CorruptBatchError("0.log", 7, "damage"), [])
    except CorruptBatchError as error:
        kept = as_value(error)
    assert kept.__traceback__ is None
    assert str(kept) == "0.log: at byte 7: damage"


def test_internal_error_kept_as_a_value_has_its_places() -> None:
    """Its traceback goes into the daemon's log; local variables of its functions are dropped."""
    seen: list[weakref.ref[_Buffer]] = []
    try:
        _fail_with(IndexError("mistake"), seen)
    except IndexError as error:
        kept = as_value(unexpected(Path("topic-0"), error))
    assert seen[0]() is None
    assert "_fail_with" in "".join(traceback.format_exception(kept))


def test_cyclic_chain_of_errors_ends() -> None:
    """Python allows such chains."""
    first, second = CleanerError("first"), CleanerError("second")
    first.__context__, second.__context__ = second, first
    assert as_value(first) is first


def drawn_tree() -> dict[str, tuple[str, int | None]]:
    """Return each class of the tree drawn in `cleaner.errors`, with its parent and exit code."""
    drawn: dict[str, tuple[str, int | None]] = {}
    path: list[str] = []
    for indent, name, code in re.findall(
        r"^    ((?:\|  )*(?:\|- )?)([A-Z]\w+)(?: +(\d+))?(?= |$)", str(errors.__doc__), re.MULTILINE
    ):
        depth = len(indent) // 3
        path[depth:] = [name]
        drawn[name] = (path[depth - 1] if depth else "Exception", int(code) if code else None)
    return drawn


def test_drawn_tree_of_errors_is_complete() -> None:
    """Every class with its parent, and the exit code with which it ends a command."""
    classes = {
        name: cast(type[CleanerError], kind)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
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
    """Return the public exception classes of all other files, each with all its base classes."""
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


def test_log_changed_error_is_no_requested_stop() -> None:
    """A reader that may try again must not take it for the end of its work."""
    assert not issubclass(LogChangedError, CleaningAborted)


def _made(kind: type[CleanerError]) -> CleanerError:
    """Make an error of a class, with something in each place."""
    if "__init__" not in {name for each in kind.__mro__ if issubclass(each, CleanerError) for name in vars(each)}:
        return kind("a message")
    examples = {"int": 7, "bool": True, "OSError": OSError(errno.EIO, "Input/output error")}
    examples["Iterable[ConfigError]"] = [errors.ConfigError("a.key", "value", "is bad")]
    parameters = inspect.signature(kind).parameters.values()
    return kind(**{each.name: examples.get(each.annotation, f"a {each.name}") for each in parameters})


@pytest.mark.parametrize(
    "kind", [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CleanerError)]
)
def test_error_goes_from_one_process_to_another(kind: type[CleanerError]) -> None:
    """A pool breaks down, with all its other work, where an error of a worker cannot be read."""
    error = _made(kind)
    error.add_note("and a note")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own
        assert type(again) is kind
        assert (str(again), again.exit_code, again.__notes__) == (str(error), error.exit_code, ["and a note"])
        assert {name: str(value) for name, value in vars(again).items()} == {
            name: str(value) for name, value in vars(error).items()
        }


class _Mixed:
    pass


class _OfAUser(_Mixed, CleanerError):
    pass


class _OnDisk(CleanerError, OSError):
    pass


@pytest.mark.parametrize("error", [_OfAUser("a message"), _OnDisk(errno.ENOENT, "No such file", "a file")])
def test_error_of_a_user_s_own_class_goes_there_too(error: CleanerError) -> None:
    """With another class before ours, or a built-in error that has its own constructor."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
