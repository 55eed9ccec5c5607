"""Lines of input."""

from __future__ import annotations

import os
import pty
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cli.input_lines import LineInput, paced
from tests.support.manual_clock import ManualClock


def _never() -> bool:
    return False


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"a\nb\n", [b"a", b"b"], id="two"),
        pytest.param(b"a\nb", [b"a", b"b"], id="last-one-without-an-end"),
        pytest.param(b"a\r\nb\r\n", [b"a", b"b"], id="carriage-returns"),
        pytest.param(b"\n\na", [b"", b"", b"a"], id="empty-lines"),
        pytest.param(b"a\rb\r", [b"a\rb"], id="carriage-return-within-a-line"),
        pytest.param(b"x" * 3_000_000 + b"\ny\n", [b"x" * 3_000_000, b"y"], id="longer-than-a-read"),
    ],
)
def test_lines_of_a_file_are_whole(tmp_path: Path, data: bytes, lines: list[bytes]) -> None:
    """Without their ends, however they lie in what is read at a time."""
    path = tmp_path / "input"
    path.write_bytes(data)
    with path.open("rb") as file:
        assert [line for some in LineInput(file.fileno(), _never) for line in some] == lines


def test_lines_of_a_pipe_are_given_out_as_they_come() -> None:
    """Nobody who pipes them in slowly waits for a buffer to fill."""
    read_end, write_end = os.pipe()
    try:
        batches = iter(LineInput(read_end, _never))
        os.write(write_end, b"a\nb")
        assert next(batches) == [b"a"]
        os.write(write_end, b"c\n")
        assert next(batches) == [b"bc"]
        os.close(write_end)
        assert list(batches) == []
    finally:
        os.close(read_end)


def test_waiting_for_input_ends_when_asked_to() -> None:
    """A pipe that stays open and silent blocks nothing."""
    read_end, write_end = os.pipe()
    stop = threading.Event()
    try:
        waiting = threading.Thread(target=lambda: list(LineInput(read_end, stop.is_set)))
        waiting.start()
        stop.set()
        waiting.join(30)
        assert not waiting.is_alive()
    finally:
        os.close(write_end)
        os.close(read_end)


def test_terminal_is_prompted_for_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    """By `>`; the end of input (Ctrl-D) ends it."""
    master, terminal = pty.openpty()
    try:
        batches = iter(LineInput(terminal, _never))
        os.write(master, b"p3:10\n")
        assert next(batches) == [b"p3:10"]
        os.write(master, b"\x04")
        assert list(batches) == []
        assert capsys.readouterr().out == ">>"
    finally:
        os.close(master)
        os.close(terminal)


def _moments(batches: list[list[bytes]], rate: float, clock: ManualClock) -> list[float]:
    return [clock.monotonic_ns() / 1e9 for some in paced(iter(batches), rate, clock, _never) for _ in some]


def test_rate_spaces_lines_evenly() -> None:
    """The first one at once."""
    assert _moments([[b"x"] * 5], 5, ManualClock()) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_late_line_is_not_followed_by_another_one_at_once() -> None:
    """Who asks for five a second wants them apart: as a topic with `segment.ms=100` shows."""
    clock = ManualClock()
    batches = paced(iter([[b"x"] * 4]), 5, clock, _never)
    assert next(batches) == [b"x"]
    clock.move_on(2)  # the first append took so long
    moments = [clock.monotonic_ns() / 1e9 for _ in batches]
    assert moments == pytest.approx([2, 2.2, 2.4])


def test_high_rate_is_kept_in_bundles() -> None:
    """A million lines are not a million pauses."""
    clock = ManualClock()
    counts = []
    for some in paced(iter([[b"x"] * 100_000]), 50_000, clock, _never):
        counts.append(len(some))
        clock.move_on(0.01)  # what it takes to append them
    assert sum(counts) == 100_000
    assert clock.monotonic_ns() / 1e9 == pytest.approx(2, rel=0.02)
    assert len(counts) < 300


def test_pause_in_the_input_is_not_made_up_for() -> None:
    """Lines that come after an hour are not all let through at once."""
    clock = ManualClock()

    def slow() -> Iterator[list[bytes]]:
        yield [b"a"]
        clock.move_on(3600)
        yield [b"b"] * 20

    moments = [clock.monotonic_ns() / 1e9 for some in paced(slow(), 10, clock, _never) for _ in some]
    assert moments[-1] - moments[1] >= 1.7


def test_pacing_ends_when_asked_to() -> None:
    """A line an hour blocks nothing."""
    clock = ManualClock()
    given = list(paced(iter([[b"a", b"b"]]), 1 / 3600, clock, lambda: clock.monotonic_ns() > 10**9))
    assert given == [[b"a"]]
