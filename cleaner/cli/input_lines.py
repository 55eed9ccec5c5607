"""
Lines of input as they come: as many at a time as one read gives, so that a file is fast and a pipe is not kept waiting.

On a terminal each line is asked for by a prompt.
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
_MOST_PAUSES_PER_SECOND = 100
_CAUGHT_UP_NS = 100_000_000

Lines = list[bytes]


class LineInput:
    """
    Lines of a descriptor.

    Args:
        descriptor: to read from; borrowed.
        should_stop: asked while nothing comes; input ends when it says so.
    """

    def __init__(self, descriptor: int, should_stop: Callable[[], bool]) -> None:
        self._descriptor = descriptor
        self._should_stop = should_stop
        self.is_terminal = os.isatty(descriptor)

    def __iter__(self) -> Iterator[Lines]:
        """Give out lines without their ends, some at a time; the last one need not have one."""
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
    Let lines through at a rate: those that are due at once, and never one before its time.

    Args:
        batches: what comes, as fast as it does.
        rate: lines a second.
        clock: its monotonic clock counts; a pause in the input is not made up for.
        should_stop: asked while waiting.
    """
    due_ns = float(clock.monotonic_ns())
    step_ns = 1e9 / rate
    # Lines that can be let through one by one are; what came too late then makes the next one late, too. With more of
    # them, those of a pause are let through together, and what a pause was too long is caught up with.
    is_slow = rate <= _MOST_PAUSES_PER_SECOND
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
