"""
Forcing a log to disk, once for many who wait for it.

An fsync takes as long for one record as for a thousand. So whoever wants to know that a record is on disk gets a
future, and while one fsync is under way all that is appended meanwhile waits for the next one, together: *group
commit*. It is what makes `flush.messages=1` bearable.

    append          `appended()`: counts against `flush.messages`, starts the time of `flush.ms`
    `.durable`      `durable(offset)`: a future; to ask for it is to ask for the flush
    `flush()`       waits; the caller's own thread does the fsync, unless somebody else's covers it
    a thread        does what was asked for in passing, log after log

A future ends whatever becomes of those who asked before: who wants a flush asks another thread for it unless such a
request is known to wait its turn, and takes nobody's word that one was about to be made.

Futures are resolved in the order of their offsets. After an fsync that failed all of them fail, and so does whatever is
asked for later: the log accepts nothing more until it is opened again (rule C-2).
"""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from cleaner.base.clock import Clock
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, LogClosedError, LogWriteError

_NANOS_PER_MILLI = 1_000_000
_NEVER_MS = 2**63 - 1


class Flushable(Protocol):
    """What is flushed: the writer of one partition."""

    @property
    def log_end_offset(self) -> int:
        """The offset the next record will get."""

    @property
    def flushed_offset(self) -> int:
        """First offset not known to be on disk."""

    def flush_to_disk(self) -> int:
        """Force all that was appended to disk; returns the flushed offset then. After an error it raises for ever."""


class _Waiting(NamedTuple):
    """Somebody who waits for an offset; `order` keeps those of one offset in the order they came."""

    last_offset: int
    order: int
    future: Future[None]


@dataclass
class _Request:
    """A flush that another thread was asked for."""

    has_begun: bool = False


class LogFlusher:
    """
    The flusher of one log. Thread-safe.

    Args:
        log: what is flushed.
        where: the log, in words.
        submit: has some work done by another thread, soon; called holding no lock.
        wake: told that the time of `flush.ms` has begun to run.
        clock: `flush.ms` goes by its monotonic clock.
        topic: `flush_messages` and `flush_ms` are used.
        flushed: called with each flush: how many seconds it took, and the flushed offset.
    """

    def __init__(
        self,
        log: Flushable,
        where: str,
        *,
        submit: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
        clock: Clock,
        topic: TopicConfig,
        flushed: Callable[[float, int], None],
    ) -> None:
        self._log = log
        self._where = where
        self._submit = submit
        self._wake = wake
        self._clock = clock
        self._told = flushed
        self._flush_messages, self._flush_ms = topic.flush_messages, topic.flush_ms
        # Held while flushing: whoever waits for it finds its records flushed when it gets it. Reentrant, as a future's
        # callback may ask for a flush.
        self._flushing = threading.RLock()
        self._lock = threading.RLock()
        # Guarded by _lock: who waits, ascending by offset; what ended it all.
        self._waiting: list[_Waiting] = []
        self._orders = 0
        self._end: CleanerError | None = None
        # The last request that was handed over: while it waits its turn no other is needed.
        self._requested: _Request | None = None
        # When the oldest record that is not flushed came; read and written without a lock, an exact time is no matter.
        self._oldest_ns: int | None = None

    def configure(self, topic: TopicConfig) -> None:
        """Go by other settings from now on."""
        self._flush_messages, self._flush_ms = topic.flush_messages, topic.flush_ms
        self._wake()

    def appended(self) -> None:
        """Note that something was appended; has it flushed if there is enough of it."""
        if self._oldest_ns is None:
            self._oldest_ns = self._clock.monotonic_ns()
            if self._flush_ms < _NEVER_MS:
                self._wake()
        if self._log.log_end_offset - self._log.flushed_offset >= self._flush_messages:
            self._request()

    def durable(self, last_offset: int) -> Future[None]:
        """
        Return a future that is done once all up to an offset, inclusive, is on disk; has it flushed soon.

        It fails with FailedFsyncError, with LogClosedError if the log was closed without a flush, or with LogWriteError
        if the log was cut below the offset.
        """
        future: Future[None] = Future()
        with self._lock:
            error, is_waiting = self._end, False
            if last_offset < self._log.flushed_offset:
                error = None
            elif last_offset >= self._log.log_end_offset:
                error = error or self._cut_off(last_offset)
            elif error is None:
                self._orders += 1
                insort(self._waiting, _Waiting(last_offset, self._orders, future), key=_by_offset)
                is_waiting = True
        if is_waiting:
            self._request()
        else:
            _settle(future, error)
        return future

    def flush(self) -> int:
        """
        Wait until all that is appended now is on disk; returns the flushed offset.

        Raises:
            FailedFsyncError, LogClosedError: it is not, and will not be.
        """
        wanted = self._log.log_end_offset
        try:
            with self._flushing:
                self._raise_if_ended()
                if self._log.flushed_offset < wanted:
                    self._flush()
                self._resolve()
                return self._log.flushed_offset
        except CleanerError:
            raise
        except BaseException:
            self._request()  # what this thread was interrupted in, another one does
            raise

    def is_due(self, now_ns: int) -> bool:
        """Tell whether the oldest record has waited for `flush.ms`."""
        due_ns = self.due_ns
        return due_ns is not None and due_ns <= now_ns

    @property
    def due_ns(self) -> int | None:
        """When it will have, by the monotonic clock; None: nothing waits, or not for the time."""
        if self._flush_ms == _NEVER_MS or self._end is not None:
            return None
        oldest_ns = self._oldest_ns
        if oldest_ns is None:
            if self._log.flushed_offset >= self._log.log_end_offset:
                return None
            # Who appended was interrupted, or the flush was.
            oldest_ns = self._oldest_ns = self._clock.monotonic_ns()
        return oldest_ns + self._flush_ms * _NANOS_PER_MILLI

    def close(self, end: CleanerError | None = None) -> None:
        """Let nobody wait any longer: what is flushed is, and the rest fails with `end`."""
        with self._flushing:
            self._fail(end or LogClosedError(self._where))

    def _raise_if_ended(self) -> None:
        with self._lock:
            end = self._end
        if end is not None:
            raise end

    def _request(self) -> None:
        """Have another thread flush, unless one is asked that has not begun to."""
        if self._end is None and (self._requested is None or self._requested.has_begun):
            request = _Request()
            self._submit(partial(self._flush_aside, request))
            # Not before: a request that an interrupt kept from being made must keep nobody from making one.
            self._requested = request

    def _flush_aside(self, request: _Request) -> None:
        """Flush as another thread; whoever waits is told of an error by the future."""
        # From here on what is asked for may come too late for this flush.
        request.has_begun = True
        with self._flushing:
            try:
                if self._end is None and self._log.flushed_offset < self._log.log_end_offset:
                    self._flush()
                if self._end is not None:
                    self._fail(self._end)  # who came upon the end may have been interrupted in telling the others
                elif self._resolve():
                    self._request()
            except CleanerError as error:
                self._fail_waiting(error)  # whatever it was, nobody else was asked to flush for them
            except BaseException as error:
                self._fail_waiting(LogWriteError(self._where, f"the flush failed: {error!r}"))
                raise

    def _flush(self) -> None:
        began_ns = self._clock.monotonic_ns()
        before_ns, self._oldest_ns = self._oldest_ns, None
        try:
            offset = self._log.flush_to_disk()
        except LogWriteError:
            self._oldest_ns = before_ns  # a signal handler in the middle of another flush, which goes on
            raise
        except CleanerError as error:
            self._oldest_ns = before_ns
            self._fail(error)
            raise
        self._told((self._clock.monotonic_ns() - began_ns) / 1e9, offset)

    def _resolve(self) -> bool:
        """
        End the futures whose offsets are flushed, or were cut off, one by one: a callback may come back here.

        Returns:
            Whether somebody waits for what has come since.
        """
        while True:
            with self._lock:
                if not self._waiting:
                    return False
                first = self._waiting[0]
            error: CleanerError | None = None
            if first.last_offset >= self._log.flushed_offset:
                if first.last_offset < self._log.log_end_offset:
                    return True
                error = self._cut_off(first.last_offset)
            _settle(first.future, error)
            self._forget(first)

    def _cut_off(self, offset: int) -> CleanerError:
        return LogWriteError(self._where, f"offset {offset} was cut off")

    def _forget(self, waiting: _Waiting) -> None:
        """Take somebody off the list who waits for nothing any more; never before its future is done."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _fail(self, end: CleanerError) -> None:
        self._resolve()
        with self._lock:
            if self._end is None:
                self._end = end
            end = self._end
        self._fail_waiting(end)

    def _fail_waiting(self, error: CleanerError) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    return
                first = self._waiting[0]
            _settle(first.future, error)
            self._forget(first)


def _settle(future: Future[None], error: CleanerError | None) -> None:
    """End a future, if nobody has; it may be one that an interrupt has left in the middle of this."""
    if future.done() or not (future.running() or future.set_running_or_notify_cancel()):
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _by_offset(waiting: _Waiting) -> tuple[int, int]:
    return waiting.last_offset, waiting.order
