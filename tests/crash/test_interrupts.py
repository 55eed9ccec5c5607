"""An interrupt, or a lack of memory, anywhere in an operation of a writable log: whole, or undone, or closed."""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from random import Random

import pytest

from tests.crash.interrupts import OPERATIONS, Interrupt, OutOfMemory, fail_call, interrupt

_SAMPLE = 12
_CALLS = 20
_NONE = 10**9
FAILURES = {
    "interrupt": Interrupt,
    "failing-disk": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "no-descriptors": lambda: OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_interrupted_at_some_points_keeps_what_was_promised(name: str, tmp_path: Path) -> None:
    """A sample of the points, others for each operation; `slow`: every one."""
    points = interrupt(tmp_path / "count", name, _NONE).points
    assert points > 50
    for point in sorted(Random(name).sample(range(1, points), _SAMPLE)):
        _interrupt(tmp_path, name, point, Interrupt)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Interrupt, OutOfMemory])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_interrupted_anywhere_keeps_what_was_promised(
    name: str, kind: type[BaseException], tmp_path: Path
) -> None:
    """Every point at which CPython may raise an exception of a signal handler."""
    interrupt(tmp_path / "warm", name, _NONE)
    points = interrupt(tmp_path / "count", name, _NONE).points
    for point in range(1, points + 1):
        _interrupt(tmp_path, name, point, kind)


@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_with_a_failing_call_keeps_what_was_promised(name: str, what: str, tmp_path: Path) -> None:
    """Some calls of the file system, reads too, each replaced by an error or an interrupt."""
    calls = fail_call(tmp_path / "count", name, _NONE, FAILURES[what]).points
    for number in sorted(Random(name + what).sample(range(1, calls + 1), min(calls, _CALLS))):
        _fail(tmp_path, name, number, what)


@pytest.mark.slow
@pytest.mark.parametrize("what", FAILURES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation_with_any_failing_call_keeps_what_was_promised(name: str, what: str, tmp_path: Path) -> None:
    """Every call of the file system."""
    calls = fail_call(tmp_path / "count", name, _NONE, FAILURES[what]).points
    for number in range(1, calls + 1):
        _fail(tmp_path, name, number, what)


def _fail(tmp_path: Path, name: str, number: int, what: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            fail_call(tmp_path / f"{what}-{number}", name, number, FAILURES[what])
        except BaseException as error:
            error.add_note(f"{name}, {what} in the place of call {number}")
            raise


def _interrupt(tmp_path: Path, name: str, point: int, kind: type[BaseException]) -> None:
    with warnings.catch_warnings():
        # Objects that an exception refers to are freed with it.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            interrupt(tmp_path / str(point), name, point, kind)
        except BaseException as error:
            error.add_note(f"{name}, point {point}")
            raise
