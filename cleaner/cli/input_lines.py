"""
Input lines as they come: as many at once as one read returns, so that a file is fast and a pipe need not wait.

On a terminal there is a prompt for each line.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator

from cleaner.base.clock import Clock
from cleaner.errors import CleanerError

_READ_BYTES = 1 << 20
_LOOK_MS = 200  # how often a wait for input asks whether to stop
_LONGEST_LINE_BYTES = 1 << 30
_MAX_PAUSES_PER_SECOND = 100
_CAUGHT_UP_NS = 100_000_000

Lines = list[bytes]


class LineInput:
    """
    Lines of a descriptor.

    Args:
        descriptor: to read from; not closed here.
        should_stop: called while no input comes; input ends if it returns True.
    """

    def __init__(self, descriptor: int, should_stop: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._should_stop = should_stop
        self.is_terminal = os.isatty(descriptor)

    def __iter__(self) -> Iterator[Lines]:
        """Yield lines without their ends, several at a time; the last one need not have a line end."""
        rest: list[bytes] = []
        rest_bytes = 0
        while not self._should_stop():
            self._prompt(bool(rest))
            data = self._read()
            if data is None:
                return
            if not data:
                if rest:
                    yield [_without_end(b"".join(rest))]
                return
            first, newline, others = data.partition(b"\n")
            rest.append(first)
            rest_bytes += len(first)
            if rest_bytes > _LONGEST_LINE_BYTES:
                raise CleanerError(f"a line of more than {_LONGEST_LINE_BYTES} bytes")
            if newline:
                *whole, last = others.split(b"\n")
                lines = [b"".join(rest), *whole]
                rest, rest_bytes = [last] if last else [], len(last)
                yield [_without_end(line) for line in lines]

    def _prompt(self, is_within_line: bool) -> None:
        if self.is_terminal and not is_within_line:
            sys.stdout.write(">")
            sys.stdout.flush()

    def _read(self) -> bytes | None:
        """Wait for input and read some; None: asked to stop."""
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        while not poller.poll(_LOOK_MS):
            if self._should_stop():
                return None
        return os.read(self._descriptor, _READ_BYTES)


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\r")


def paced(batches: Iterator[Lines], rate: float, clock: Clock, should_stop: Callable[[], bool]) -> Iterator[Lines]:
    """
    Pass lines at a rate: all due ones at once, and never one too early.

    Args:
        batches: the input, at its own speed.
        rate: lines per second.
        clock: its monotonic clock is used; a pause in the input is not made up for.
        should_stop: called while waiting.
    """
    due_ns = float(clock.monotonic_ns())
    step_ns = 1e9 / rate
    # At a low rate lines pass one by one, and a late line delays the next one, too. At a high rate all lines due after
    # a pause pass together, and a pause that was too long is made up for.
    is_slow = rate <= _MAX_PAUSES_PER_SECOND
    for batch in batches:
        begin = 0
        while begin < len(batch):
            now_ns = clock.monotonic_ns()
            if now_ns < due_ns:
                if should_stop():
                    return
                clock.sleep(min((due_ns - now_ns) / 1e9, _LOOK_MS / 1e3))
                continue
            due_ns = max(due_ns, now_ns - (0 if is_slow else _CAUGHT_UP_NS))
            end = begin + 1 if is_slow else min(len(batch), begin + 1 + int((now_ns - due_ns) / step_ns))
            yield batch[begin:end]
            due_ns += (end - begin) * step_ns
            begin = end
