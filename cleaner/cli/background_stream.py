"""
Text written by its own thread, so that logging never waits for a reader of the logs.

If a daemon itself wrote to a pipe that no process reads, or to a stopped terminal, it would block with all its workers
and could not even stop. Here lines that find no room are dropped and counted, and their number is logged later.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable

from cleaner.base import concurrency

# Hundreds of events: a reader that is merely slow never leaves so many.
MAX_BYTES = 1 << 20


class BackgroundStream:
    """
    A stream for lines of text. Thread-safe; only `drain` waits for the reader.

    Args:
        descriptor: to write to; it stays open.
        lost: makes the line that says how many were dropped.
        max_bytes: the most bytes that may wait to be written.
    """

    def __init__(self, descriptor: int, lost: Callable[[int], str], max_bytes: int = MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._lost = lost
        self._max_bytes = max_bytes
        self._change = concurrency.Condition()
        # All guarded by _change.
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._thread: concurrency.Thread | None = None

    def write(self, text: str) -> int:
        """Queue text, or drop it if too much is waiting; returns its length."""
        data = text.encode("utf-8", "backslashreplace")
        with self._change:
            if self._waiting_bytes + len(data) > self._max_bytes:
                self._left_out += 1
                return len(text)
            self._put(data)
            if self._thread is None:
                self._thread = concurrency.Thread(target=self._run, name="cleaner-logs", daemon=True)
                self._thread.start()
            self._change.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are written as soon as they can be."""

    def isatty(self) -> bool:
        """Tell whether a person is likely to read it."""
        return os.isatty(self._descriptor)

    def drain(self, timeout: float) -> bool:
        """Wait until everything is written, at most this many seconds; False: something is not."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting_bytes, timeout)

    def _put(self, data: bytes) -> None:
        self._lines.append(data)
        self._waiting_bytes += len(data)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            self._write(line)
            with self._change:
                self._waiting_bytes -= len(line)
                if self._left_out:
                    self._put(self._lost(self._left_out).encode())
                    self._left_out = 0
                self._change.notify_all()

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                return  # the reader has gone; cleaning goes on
