"""
Following the end of a log: a wait that new records or `close()` end.

A writer in this process signals each change. For a writer in another process the directory is polled: often after new
records, seldom while there are none. Even a signal is not relied on forever: the thread that should have given it may
have been interrupted.

An interrupt or a cancelled task loses no record: records that were not handed out are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType

from cleaner.base import arguments, concurrency
from cleaner.errors import CleanerError, ForkedError, LogTruncatedError, OffsetOutOfRangeError
from cleaner.log.broadcast import Broadcast
from cleaner.log.columns import Columns
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, RecordStream, Until
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView, Signal

_FIRST_PAUSE_SECONDS = 0.002


class Follower:
    """
    Records from an offset on, without end: iterate over it with `for` or `async for`, or call `poll`.

    One thread or task at a time reads; any thread may close it. Iterating ends when the follower or the log is closed,
    and when no record came within its timeout. Close it, or use it in a `with` or `async with` block: it holds a
    segment's file open. A follower dropped without `close` releases the file with a ResourceWarning.

    Attributes:
        next_offset: first offset not read yet: where to resume following.
    """

    def __init__(
        self,
        files: PartitionFiles,
        view: ReadView,
        offset: int,
        isolation: Isolation,
        until: Until,
        timeout_seconds: float | None = None,
        broadcast: Broadcast | None = None,
    ) -> None:
        self._files = files
        self._view = view
        self._isolation = isolation
        self._until = until
        self._timeout_seconds = timeout_seconds
        self._stream = RecordStream(files, view, offset, isolation)
        self._chunk: Iterator[Columns] | None = None
        # The shared broadcast; the end offset and leader epoch of the records last taken from it, if they are the
        # latest; and the log's epoch at this follower's last read.
        self._broadcast = broadcast
        self._behind_kept: tuple[int, int] | None = None
        self._leader_epoch = view.leader_epoch
        self._records: deque[Record] = deque()
        self._next_offset = offset
        # The records may lack some that were read last: the read was interrupted.
        self._is_in_doubt = False
        self._is_handing_out = False
        self._guard = concurrency.Lock()
        self._signal = Signal()
        self._log_signal = view.signal
        self._stop_listening: Callable[[], None] = lambda: None
        if broadcast is not None:
            self._stop_listening = broadcast.join(self._signal.notify)
        elif self._log_signal is not None:
            self._stop_listening = self._log_signal.listen(self._signal.notify)
        owned = (str(files.directory), self._stop_listening, self._stream)
        self._when_dropped = weakref.finalize(self, _drop, view, *owned)
        self._when_dropped.atexit = False
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        with contextlib.suppress(ForkedError):
            self.close()

    async def __aenter__(self) -> Follower:
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        with contextlib.suppress(ForkedError):
            self.close()

    @property
    def next_offset(self) -> int:
        """First offset not read yet."""
        return self._next_offset

    @property
    def is_closed(self) -> bool:
        """Whether it, the log, or its reader was closed."""
        return self._view.is_closed or self._signal.is_closed

    def close(self) -> None:
        """
        End it: waiting calls return, and iterating ends. A second call does nothing.

        Raises:
            ForkedError: it follows a log that the parent has open. Leaving the block leaves it to the parent.
        """
        self._view.require_own()
        self._signal.close()
        # A thread that is reading now closes the stream itself; otherwise it is closed here.
        if not self._guard.locked():
            self._end()

    # ---- waiting in a thread ---------------------------------------------------------------------------------------

    def poll(self, timeout_seconds: float | None = 0.0, max_records: int | None = None) -> list[Record]:
        """
        Return some unread records, after a wait for the first; an empty list when none comes in time.

        Args:
            timeout_seconds: how long to wait; 0: not at all; None: until there are some or it is closed.
            max_records: how many at most.
        Raises:
            OffsetOutOfRangeError: retention was faster than this reader.
            LogTruncatedError: the log was cut below what was read.
            CorruptLogError: damage.
            ForkedError: it follows a log that the parent has open.
        """
        if max_records is not None:
            max_records = arguments.whole("max_records", max_records, 0)
        if not self._wait(arguments.seconds("timeout_seconds", timeout_seconds)):
            return []
        self._is_handing_out = True
        found: list[Record] = []
        while self._records and (max_records is None or len(found) < max_records):
            found.append(self._records.popleft())
        if found:
            self._next_offset = _behind(found[-1])
        self._is_handing_out = False
        return found

    def poll_columns(self, timeout_seconds: float | None = 0.0) -> Columns | None:
        """Return some records as columns, or None; otherwise as `poll`. Not to be mixed with reading records."""
        until = self._deadline(arguments.seconds("timeout_seconds", timeout_seconds))
        if self._is_handing_out:
            self._view.require_own()
            self._resume()
        while not self.is_closed:
            seen = self._signal.version
            with self._guard:
                columns = self._read_on()
                self._is_handing_out = columns is not None
                self._is_in_doubt = False
            if columns is not None:
                self._next_offset = columns.next_offset
                self._is_handing_out = False
                return columns
            if not self._pause(seen, until):
                return None
        self._end()
        return None

    def go_back(self, offset: int) -> None:
        """Go on from an earlier offset: what was returned from there on could not be handed on. Reads nothing."""
        self._view.require_own()
        self._is_handing_out, self._next_offset = True, arguments.whole("offset", offset, 0)

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if not self._wait(self._timeout_seconds):
            self._rest()
            raise StopIteration
        return self._take()

    def _take(self) -> Record:
        self._is_handing_out = True
        record = self._records.popleft()
        self._next_offset = _behind(record)
        self._is_handing_out = False
        return record

    def _resume(self) -> None:
        """Read records again that an interrupt kept from being handed out."""
        with self._guard:
            self._records.clear()
            self._go_back(self._next_offset)
            self._is_handing_out = False

    def _wait(self, timeout_seconds: float | None) -> bool:
        """Wait until there are records to take; False when there are none in time, or it is closed."""
        until: float | None = None
        is_first = True
        if self._is_handing_out:
            self._view.require_own()
            self._resume()
        while not self.is_closed:
            if self._records:
                return True
            if is_first:  # a record that is available at once costs no call of the clock
                until, is_first = self._deadline(timeout_seconds), False
            seen = self._signal.version
            if not self._fill() and not self._pause(seen, until):
                return False
        self._end()
        return False

    def _pause(self, seen: int, until: float | None) -> bool:
        left = None if until is None else until - self._now_seconds()
        if left is not None and left <= 0:
            return False
        self._signal.wait(seen, self._patience(left))
        return True

    def _patience(self, left_seconds: float | None) -> float | None:
        """Return how long to wait for a signal before the log is polled."""
        longest = self._view.longest_pause_seconds
        pause = longest if self._log_signal is not None else min(self._pause_seconds, longest)
        self._pause_seconds = 2 * pause
        return pause if left_seconds is None else min(pause, left_seconds)

    # ---- waiting in an event loop ----------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        until = None
        began = False
        if self._is_handing_out:
            self._view.require_own()
            self._resume()
        while not self.is_closed:
            if self._records:
                return self._take()
            if not began:
                until, began = self._deadline(self._timeout_seconds), True
            seen = self._signal.version
            has_records = self._fill_at_once()
            if has_records is None:
                # In a thread: the disk may be slow, and unpacking takes its time.
                has_records = await asyncio.to_thread(self._fill)
            if not has_records and not await self._pause_async(seen, until):
                break
        if self.is_closed:
            self._end()
        self._rest()
        raise StopAsyncIteration

    async def _pause_async(self, seen: int, until: float | None) -> bool:
        left = None if until is None else until - self._now_seconds()
        if left is not None and left <= 0:
            return False
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # A loop that was closed by then has no task waiting.
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        stop_listening = self._signal.listen(wake)
        try:
            if self._signal.version == seen and not self.is_closed:
                async with asyncio.timeout(self._patience(left)):
                    await woken.wait()
        except TimeoutError:
            return True  # the caller looks once more, and then checks its own timeout
        finally:
            stop_listening()
        return True

    # ---- reading ---------------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        # A cancelled task leaves its thread running: records that it reads are neither lost nor read twice.
        with self._guard:
            has_records = self._take_kept()
            if has_records is None:
                columns = self._read_on()
                has_records = columns is not None
                if columns is not None:
                    self._records.extend(columns)
                self._is_in_doubt = False
            if self.is_closed:
                # Closed during the read by a task that did not wait for this thread, such as a cancelled one.
                self._end_stream()
            return has_records

    def _fill_at_once(self) -> bool | None:
        """As `_fill` where no wait is needed; None where one is."""
        if self._broadcast is None or not self._guard.acquire(blocking=False):
            return None
        try:
            return self._take_kept()
        finally:
            self._guard.release()

    def _take_kept(self) -> bool | None:
        """Take broadcast records; False when none has come yet, None when this follower has to read by itself."""
        if self._broadcast is None or self._is_in_doubt or self._chunk is not None:
            return None
        offset = self._stream.next_offset if self._behind_kept is None else self._behind_kept[0]
        while (kept := self._broadcast.take(offset, self._leader_epoch)) is not None:
            if not self._view.log_start_offset <= offset <= self._view.log_end_offset:
                return None  # the read raises the right error
            if kept.next_offset == offset:
                return False
            self._is_in_doubt = True
            records = kept.since(offset)
            self._behind_kept = offset, _ = kept.next_offset, kept.epoch
            self._records.extend(records)
            if not self._records:
                self._next_offset = max(self._next_offset, offset)
            self._is_in_doubt = False
            if records:
                return True
        return None

    def _go_back(self, offset: int) -> None:
        self._chunk = self._behind_kept = None
        self._stream.go_back(offset)

    def _read_on(self) -> Columns | None:
        """Return the next columns; the caller clears the doubt when it has them."""
        if self._is_in_doubt:
            self._go_back(_behind(self._records[-1]) if self._records else self._next_offset)
        self._is_in_doubt = True
        try:
            return self._next_columns()
        except CleanerError:
            self._is_in_doubt = False
            raise

    def _next_columns(self) -> Columns | None:
        """Return the next columns; None at the present end."""
        for columns in self._chunk or ():
            self._pause_seconds = _FIRST_PAUSE_SECONDS
            return columns
        self._chunk = None
        stream, view = self._stream, self._view
        if self._behind_kept is not None:
            stream.go_on(*self._behind_kept)
            self._behind_kept = None
        leader_epoch = view.leader_epoch
        while stream.next_offset < (end_offset := stream.reach(self._until)):
            before = stream.next_offset
            if before < view.log_start_offset:
                raise OffsetOutOfRangeError(self._files.directory, before, view.log_start_offset, view.log_end_offset)
            self._chunk = stream.next_columns()
            for columns in self._chunk:
                self._pause_seconds = _FIRST_PAUSE_SECONDS
                self._leader_epoch = leader_epoch
                return columns
            self._chunk = None
            if stream.next_offset == before:
                break
        if stream.next_offset > end_offset:
            self._require_uncut()
        if not self._records:
            self._next_offset = max(self._next_offset, stream.next_offset)
        return None

    def _require_uncut(self) -> None:
        if self._stream.next_offset > self._view.log_end_offset:
            raise LogTruncatedError(self._files.directory, self._stream.next_offset)

    def _rest(self) -> None:
        """Close the file: a caller whose iteration ended seldom goes on; the file is reopened if it does."""
        with self._guard:
            self._stream.close()

    def _end(self) -> None:
        with self._guard:
            self._end_stream()

    def _end_stream(self) -> None:
        self._chunk = None
        self._when_dropped.detach()
        self._stop_listening()
        self._stream.close()

    def _deadline(self, timeout_seconds: float | None) -> float | None:
        return None if timeout_seconds is None else self._now_seconds() + timeout_seconds

    def _now_seconds(self) -> float:
        return self._files.clock.monotonic_ns() / 1e9


def _behind(record: Record) -> int:
    """Return the offset after a record that was read."""
    assert record.offset is not None  # noqa: S101 - what is read has one
    return record.offset + 1


def _drop(view: ReadView, directory: str, stop_listening: Callable[[], None], stream: RecordStream) -> None:
    """Release the resources of a follower that was not closed; in a forked child they are the parent's to close."""
    try:
        view.require_own()
    except ForkedError:
        return
    stop_listening()
    if stream.is_open:
        warnings.warn(f"{directory}: followed, and dropped without being closed", ResourceWarning, stacklevel=2)
        stream.close()
