"""
Forcing a log to disk, once for many waiting callers.

An fsync takes as long for one record as for a thousand. So a caller that needs a record on disk gets a future, and
everything appended during one fsync is covered together by the next: *group commit*. This makes `flush.messages=1`
affordable.

    append          `appended()`: counts against `flush.messages`, starts the time of `flush.ms`
    `.durable`      `durable(offset)`: a future; the call also requests the flush
    `flush()`       waits; the caller's own thread does the fsync, unless another thread's fsync covers it
    a thread        does the other requested flushes, log after log
    another thread  calls the callbacks of futures: one that waits, or takes long, holds up no flush

One caller that waits for one record after the other gains nothing from that thread, and waking it takes longer than the
rest of an append. So when the last two futures had one caller each, who waited alone and without a timeout, `result()`
flushes in the caller's thread. The request, which is made all the same, is *postponed*: the thread looks at it every
millisecond, and flushes once nobody has flushed since the look before. A second caller, a callback or a timeout ends
that at once.

A future ends whatever happens to earlier callers: each caller requests a flush from another thread unless such a
request is known to be queued; it never relies on another caller being about to make one.

Futures are resolved in the order of their offsets. After a failed fsync all of them fail, and so does every later
call: the log accepts nothing more until it is opened again (rule C-2).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, LogClosedError, LogWriteError
from cleaner.log.durable import durable_type
from cleaner.log.interrupted import require_unheld
from cleaner.log.origin import Origin
from cleaner.log.work_threads import Work

if TYPE_CHECKING:
    from cleaner.log.partition_writer import PartitionWriter

_NANOS_PER_MILLI = 1_000_000
_NEVER_MS = 2**63 - 1
_ALONE = 2  # after so many futures in a row with one caller alone, the next caller flushes by itself


class _Waiting(NamedTuple):
    """A future that waits for an offset; `order` keeps futures of one offset in the order of the calls."""

    last_offset: int
    order: int
    future: Any  # a `Durable`


@dataclass
class _Request:
    """
    A flush requested from another thread.

    Attributes:
        is_patient: it is postponed as long as callers flush by themselves.
        flushes_seen: how many flushes there had been at the last look at it.
        has_begun: it may not see what is appended from now on.
    """

    is_patient: bool
    flushes_seen: int = -1
    has_begun: bool = False


class LogFlusher:
    """
    The flusher of one log. Thread-safe.

    Args:
        log: the log to flush.
        where: the log's name, for errors.
        submit: has some work done by another thread, now or, as long as it returns True, at its next look; called
            without a lock held.
        call_back: the same for the callbacks of futures, which may wait for flushes.
        wake: called when the time of `flush.ms` begins to run.
        clock: `flush.ms` is measured by its monotonic clock.
        topic: `flush_messages` and `flush_ms` are used.
        flushed: called after each flush with its seconds and the flushed offset.
    """

    def __init__(
        self,
        log: PartitionWriter,
        where: str,
        *,
        submit: Callable[[Work], None],
        call_back: Callable[[Work], None],
        wake: Callable[[], None],
        clock: Clock,
        topic: TopicConfig,
        flushed: Callable[[float, int], None],
    ) -> None:
        self._log = log
        self._where = where
        self._origin = Origin(where)
        self._submit = submit
        self._call_back = call_back
        self._wake = wake
        self._clock = clock
        self._on_flushed = flushed
        self._flush_messages, self._flush_ms = topic.flush_messages, topic.flush_ms
        # Held while flushing: a thread that waited for it may find its records flushed. Reentrant, as a signal handler
        # may request a flush.
        self._flushing = concurrency.RLock()
        self._lock = concurrency.RLock()
        # Guarded by _lock: the waiting futures, ascending by offset; those that are open but not settled; the final
        # error.
        self._waiting: list[_Waiting] = []
        self._opened: list[_Waiting] = []
        self._settling = concurrency.RLock()  # held by a flush thread that settles futures
        self._orders = 0
        self._end: CleanerError | None = None
        # The last submitted request: while it is queued no other is needed.
        self._requested: _Request | None = None
        # Written without a lock, need not be exact: how many futures in a row had one caller alone, how many the last
        # flush has ended; flushes so far.
        self._alone = 0
        self._last_ended = 1
        self._flushes = 0
        # When the oldest unflushed record was appended; read and written without a lock, need not be exact.
        self._oldest_ns: int | None = None

    def configure(self, topic: TopicConfig) -> None:
        """Use other settings from now on."""
        self._flush_messages, self._flush_ms = topic.flush_messages, topic.flush_ms
        self._wake()

    def appended(self) -> None:
        """Count appended records; requests a flush when `flush.messages` is reached."""
        if self._oldest_ns is None:
            self._oldest_ns = self._clock.monotonic_ns()
            if self._flush_ms < _NEVER_MS:
                self._wake()
        if self._log.log_end_offset - self._log.flushed_offset >= self._flush_messages:
            self._request()

    def durable(self, last_offset: int) -> concurrency.Future[None]:
        """
        Return a future that is done once everything up to an offset, inclusive, is on disk; requests the flush.

        It fails with FailedFsyncError, with LogClosedError if the log was closed without a flush, or with LogWriteError
        if the log was cut below the offset.
        """
        future = durable_type(concurrency.Future)(self)
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
            future.open(error)
            future.settle()  # nobody else has it
        durable: concurrency.Future[None] = future
        return durable

    def require_own(self) -> None:
        """Raise ForkedError in a fork: no thread there ends a future."""
        self._origin.require_own()

    def require_idle(self) -> None:
        """
        Make sure that this thread has no lock that another thread's flush needs: it would wait for that forever.

        Raises:
            LogWriteError: called by a signal handler in the middle of another call.
        """
        self._log.require_idle()
        require_unheld(self._lock, self._where)

    def on_wait(self, timeout: float | None) -> None:
        """
        Flush in the calling thread, which is about to wait for a future, if it seems to be alone with that.

        Raises:
            ForkedError: as `require_own`.
            LogWriteError: called by a signal handler in the middle of another call; the future ends later.
        """
        self._origin.require_own()
        self.require_idle()
        if timeout is not None or len(self._waiting) != 1 or self._last_ended > 1:
            self.hurry()
        elif self._alone < _ALONE:
            self._alone += 1
        else:
            try:
                self.flush()
            except LogClosedError:
                return  # the future carries it

    def hurry(self) -> None:
        """Have a postponed request begin, as not a single caller waits, or one that flushes by itself."""
        was_alone, self._alone = self._alone >= _ALONE, 0
        if was_alone:
            self._requested = None
            self._request()

    def flush(self) -> int:
        """
        Wait until everything appended before the call is on disk; returns the flushed offset.

        Raises:
            FailedFsyncError, LogClosedError: it is not, and will not be.
            LogWriteError: as `require_idle`.
        """
        self.require_idle()
        wanted = self._log.log_end_offset
        try:
            with self._flushing:
                if self._end is not None:
                    raise self._end.with_traceback(None)
                if self._log.flushed_offset < wanted:
                    self._flush()
                self._resolve()
                return self._log.flushed_offset
        except CleanerError:
            raise
        except BaseException:
            self._request()  # this thread was interrupted: another one finishes the flush
            raise

    def is_due(self, now_ns: int) -> bool:
        """Tell whether the oldest record has waited for `flush.ms`."""
        due_ns = self.due_ns
        return due_ns is not None and due_ns <= now_ns

    @property
    def due_ns(self) -> int | None:
        """When it will be due, by the monotonic clock; None: no record waits, or `flush.ms` is not set."""
        if self._flush_ms == _NEVER_MS or self._end is not None:
            return None
        if self._log.flushed_offset >= self._log.log_end_offset:
            # Flushed otherwise: by a roll, or by a flush between an append and its count.
            self._oldest_ns = None
            # Looked at again: a record appended before the line above was not counted, one after it will be.
            if self._log.flushed_offset >= self._log.log_end_offset:
                return None
        oldest_ns = self._oldest_ns
        if oldest_ns is None:
            # The append or the flush was interrupted.
            oldest_ns = self._oldest_ns = self._clock.monotonic_ns()
        return oldest_ns + self._flush_ms * _NANOS_PER_MILLI

    def close(self, end: CleanerError | None = None) -> None:
        """End all futures: those whose offsets are flushed succeed, the rest fail with `end`."""
        with self._flushing:
            self._fail(end or LogClosedError(self._where))
        if self._opened:
            self._request()

    def _request(self) -> None:
        """Have another thread flush, unless a request is queued that has not begun."""
        if self._requested is None or self._requested.has_begun:
            request = _Request(self._alone >= _ALONE)
            self._submit(partial(self._flush_in_background, request))
            # Only now: a request that an interrupt prevented must not prevent later ones.
            self._requested = request

    def _flush_in_background(self, request: _Request) -> bool:
        """Flush in another thread, or postpone it; futures carry an error to the waiting callers."""
        try:
            if request.is_patient and request.flushes_seen != self._flushes and self._end is None:
                request.flushes_seen = self._flushes
                return True
            # From here on a new request may come too late for this flush.
            request.has_begun = True
            with self._flushing:
                self._flush_for_others(was_patient=request.is_patient)
        finally:
            self._settle()
        return False

    def _flush_for_others(self, *, was_patient: bool) -> None:
        try:
            if self._end is None and self._log.flushed_offset < self._log.log_end_offset:
                if was_patient:
                    self._alone = 0  # it was needed
                self._flush()
            if self._end is not None:
                self._fail(self._end)  # the thread that met the error may have been interrupted before this
            elif self._resolve():
                self._request()
        except CleanerError as error:
            self._fail_waiting(error)  # whatever it was, no other flush was requested for them
        except BaseException as error:
            self._fail_waiting(LogWriteError(self._where, f"the flush failed: {error!r}"))
            raise

    def _settle(self) -> None:
        """Settle the open futures, and have their callbacks called, in the order in which they were opened."""
        with self._settling:
            while self._opened:
                future = self._opened[0].future
                future.settle()
                if future.has_callbacks:
                    self._call_back(future.call_back)
                self._opened.pop(0)

    def _flush(self) -> None:
        began_ns = self._clock.monotonic_ns()
        before_ns, self._oldest_ns = self._oldest_ns, None
        try:
            offset = self._log.flush_to_disk()
        except LogWriteError:
            self._oldest_ns = before_ns  # called by a signal handler in the middle of another flush, which goes on
            raise
        except CleanerError as error:
            self._oldest_ns = before_ns
            self._fail(error)
            raise
        self._flushes += 1
        self._on_flushed((self._clock.monotonic_ns() - began_ns) / 1e9, offset)

    def _resolve(self) -> bool:
        """
        Open the futures whose offsets are flushed, or were cut off.

        Returns:
            Whether futures wait for later offsets.
        """
        ended = 0
        while True:
            with self._lock:
                self._last_ended = ended or self._last_ended
                if not self._waiting:
                    return False
                first = self._waiting[0]
            error: CleanerError | None = None
            if first.last_offset >= self._log.flushed_offset:
                if first.last_offset < self._log.log_end_offset:
                    return True
                error = self._cut_off(first.last_offset)
            self._open(first, error)
            ended += 1

    def _cut_off(self, offset: int) -> CleanerError:
        return LogWriteError(self._where, f"offset {offset} was cut off")

    def _open(self, waiting: _Waiting, error: CleanerError | None) -> None:
        """Open a future, and have it settled; again after an interrupt."""
        waiting.future.open(error)
        with self._lock:
            if waiting in self._waiting:
                self._opened.append(waiting)
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
            self._open(first, error)


def _by_offset(waiting: _Waiting) -> tuple[int, int]:
    return waiting.last_offset, waiting.order
