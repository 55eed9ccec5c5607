"""Logs written by their own thread: no thread that logs waits for the reader."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cleaner.cli.background_stream import BackgroundStream

WAIT_SECONDS = 20  # only ever waited for in full by a test that fails


class Pipe:
    """A pipe and a stream into it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.stream = BackgroundStream(self.writer, lambda count: f"{count} lost\n", max_bytes=1000)

    def read(self) -> str:
        """Read what is there."""
        return os.read(self.reader, 1 << 20).decode()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    found = Pipe()
    yield found
    found.stream.drain(WAIT_SECONDS)
    os.close(found.writer)


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    """All of them, as they were given."""
    for number in range(50):
        assert pipe.stream.write(f"{number} ä\n") == len(f"{number} ä\n")
    pipe.stream.flush()
    assert pipe.stream.drain(WAIT_SECONDS)
    assert pipe.read() == "".join(f"{number} ä\n" for number in range(50))
    assert not pipe.stream.isatty()


def test_reader_that_stopped_blocks_no_writer_and_learns_what_it_missed(pipe: Pipe) -> None:
    """Lines for which there is no room are left out and counted."""
    blocked = "x" * (1 << 17)  # more than a pipe holds
    pipe.stream = BackgroundStream(pipe.writer, lambda count: f"{count} lost\n", max_bytes=len(blocked) + 100)
    pipe.stream.write(blocked)
    for number in range(30):
        pipe.stream.write(f"line {number:04}\n")
    assert not pipe.stream.drain(0)
    found = ""
    while "lost" not in found:
        found += pipe.read()
    lines = found.removeprefix(blocked).splitlines()
    assert lines == [*(f"line {number:04}" for number in range(10)), "20 lost"]


def test_reader_that_has_gone_is_no_error(pipe: Pipe) -> None:
    """Cleaning goes on without logs."""
    os.close(pipe.reader)
    for _ in range(10):
        pipe.stream.write("line\n")
        assert pipe.stream.drain(WAIT_SECONDS)
