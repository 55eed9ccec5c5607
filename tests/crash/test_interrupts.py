"""An interrupt, or a lack of memory, anywhere in an operation of a writable log: whole, or undone, or closed."""

from __future__ import annotations

import warnings
from pathlib import Path
from random import Random

import pytest

from tests.crash.interrupts import OPERATIONS, Interrupt, OutOfMemory, interrupt

_SAMPLE = 12
_NONE = 10**9


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
    """Every point at which CPython may raise an exception out of a signal handler."""
    interrupt(tmp_path / "warm", name, _NONE)
    points = interrupt(tmp_path / "count", name, _NONE).points
    for point in range(1, points + 1):
        _interrupt(tmp_path, name, point, kind)


def _interrupt(tmp_path: Path, name: str, point: int, kind: type[BaseException]) -> None:
    with warnings.catch_warnings():
        # What an exception holds on to is let go with it.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            interrupt(tmp_path / str(point), name, point, kind)
        except BaseException as error:
            error.add_note(f"{name}, point {point}")
            raise
