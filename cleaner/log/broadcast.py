"""
One reader for many followers of a log that is written in this process.

A follower that wakes up and reads by itself takes the interpreter from the writer it waits for: with hundreds of
followers a writer of single records makes no progress. So from two followers on, one thread reads new data once, makes
the records, and notifies the followers, a few at a time, so that the interpreter is free half of the time
(`_SECONDS_A_FOLLOWER`). Records that arrive during a notification are delivered together with the next one.

    the log changes     the thread reads on, keeps the records, and notifies the followers
    a follower          takes the kept records from its own offset on; the records are shared
    a slow follower     finds that its offset is no longer kept, and reads from the log by itself until it has caught
                        up: the kept records are bounded, and nothing is lost
    an error            the thread ends; each follower reads by itself and meets the error if it concerns it
    a cut               the same: a leader epoch begins, and records kept from before are not handed out

A single follower, and followers that read columns, read by themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cleaner.base import concurrency
from cleaner.errors import CleanerError, OutOfThreadsError
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, RecordStream, Until, reach
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView, Signal

MAX_KEPT_BYTES = 2 << 20
"""Bytes of the log; with records of 100 bytes, three times as much memory. The last chunk is always kept."""

_NOTIFIED_AT_A_TIME = 16  # other threads wait for the interpreter while at most this many followers wake
_SECONDS_A_FOLLOWER = 60e-6  # twice the time in which one follower wakes and takes its records
_LONGEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class BroadcastChunk:
    """
    Consecutive records; no record where compaction has left a gap.

    Attributes:
        first_offset, next_offset: all records from the first up to the second, exclusive, are here.
        records: in offset order.
        epoch: the leader epoch of the last batch; -1 before the first.
        size: bytes in the log.
    """

    first_offset: int
    next_offset: int
    records: Sequence[Record]
    epoch: int
    size: int

    def since(self, offset: int) -> Sequence[Record]:
        """Return the records from an offset on."""
        if offset <= self.first_offset:
            return self.records
        return [record for record in self.records if record.offset is not None and record.offset >= offset]


class Broadcast:
    """
    Shared by the followers of one log that have the same `isolation` and `until`. Thread-safe.

    Args:
        files: the partition's files.
        view: the view of a writer in this process.
        log_signal: signals changes of that view.
        isolation, until: what is read.
    """

    def __init__(
        self, files: PartitionFiles, view: ReadView, log_signal: Signal, isolation: Isolation, until: Until
    ) -> None:
        self._files = files
        self._view = view
        self._log_signal = log_signal
        self._isolation = isolation
        self._until = until
        self._guard = concurrency.RLock()
        # Guarded by _guard. The members are replaced, never changed.
        self._members: dict[object, Callable[[], None]] = {}
        self._thread: concurrency.Thread | None = None
        self._kept: deque[BroadcastChunk] = deque()
        self._kept_bytes = 0
        self._next_offset = 0
        self._leader_epoch: int | None = None
        self._pause = concurrency.Event()  # never set: its wait gives other threads time
        log_signal.listen(self._pass_on)

    def join(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, which must be quick, when there may be new records; returns a function that leaves."""
        token = object()
        with self._guard:
            self._members = {**self._members, token: listener}
        try:
            self._start_if_shared()
        except BaseException:  # interrupted
            self._leave(token)
            raise
        return partial(self._leave, token)

    def _leave(self, token: object) -> None:
        with self._guard:
            self._members = {key: listener for key, listener in self._members.items() if key is not token}

    def take(self, offset: int, leader_epoch: int | None) -> BroadcastChunk | None:
        """
        Return the kept records from an offset on, an empty chunk if there are none yet; None: the follower has to read
        by itself.

        Args:
            offset: the next one that the follower wants.
            leader_epoch: the log's epoch at the follower's last read; the log may have been cut since.
        """
        with self._guard:
            if self._thread is None or not leader_epoch == self._leader_epoch == self._view.leader_epoch:
                return None
            first_offset = self._kept[0].first_offset if self._kept else self._next_offset
            if offset < first_offset:
                return None
            if offset >= self._next_offset:
                return BroadcastChunk(offset, offset, (), -1, 0)
            return next(kept for kept in self._kept if kept.next_offset > offset)

    def close(self) -> None:
        """Wait for the thread to end; the log was closed."""
        with self._guard:
            thread = self._thread
        if thread is not None and thread.is_alive() and thread is not concurrency.current_thread():
            thread.join()

    def _pass_on(self) -> None:
        """Notify followers while no thread runs, and at the end; otherwise the thread notifies them after its read."""
        if self._thread is None or self._log_signal.is_closed:
            self._notify_all()

    def _notify_all(self) -> None:
        for listener in self._members.values():
            listener()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _start_if_shared(self) -> None:
        leader_epoch = self._view.leader_epoch
        # From here on; a follower that is behind catches up by itself.
        next_offset = reach(self._view, self._isolation, self._until)
        with self._guard:
            if self._thread is not None or len(self._members) < 2 or self._log_signal.is_closed:
                return
            self._kept.clear()
            self._kept_bytes, self._next_offset, self._leader_epoch = 0, next_offset, leader_epoch
            self._thread = thread = concurrency.Thread(target=self._run, name="cleaner-broadcast", daemon=True)
            try:
                thread.start()
            except OutOfThreadsError:
                self._thread = None  # each follower reads by itself
            except BaseException:
                self._thread = None  # interrupted: whether it has started or not, it is not waited for
                raise

    def _run(self) -> None:
        with self._guard:
            if self._thread is not concurrency.current_thread():
                return  # its start was interrupted
        stream = RecordStream(self._files, self._view, self._next_offset, self._isolation)
        has_failed = True
        try:
            self._read_on(stream)
            has_failed = False
        except CleanerError:
            pass  # each follower meets the error in its own read, if it concerns it
        finally:
            with self._guard:
                self._thread = None
                self._kept.clear()
            stream.close()
            self._notify_all()
        if not has_failed:
            self._start_if_shared()

    def _read_on(self, stream: RecordStream) -> None:
        while not self._log_signal.is_closed and len(self._members) > 1:
            if self._view.leader_epoch != self._leader_epoch:
                return
            seen = self._log_signal.version
            if self._read(stream):
                self._notify_in_turn()
            else:
                self._log_signal.wait(seen, _LONGEST_WAIT_SECONDS)

    def _notify_in_turn(self) -> None:
        members = list(self._members.values())
        for first in range(0, len(members), _NOTIFIED_AT_A_TIME):
            some = members[first : first + _NOTIFIED_AT_A_TIME]
            for listener in some:
                listener()
            self._pause.wait(len(some) * _SECONDS_A_FOLLOWER)

    def _read(self, stream: RecordStream) -> bool:
        """Read some of the new records; False when there are none."""
        before, bytes_before = stream.next_offset, stream.bytes_read
        if before >= stream.reach(self._until):
            return False
        records = [record for columns in stream.next_columns() for record in columns]
        if stream.next_offset == before:
            return False
        kept = BroadcastChunk(before, stream.next_offset, records, stream.epoch, stream.bytes_read - bytes_before)
        with self._guard:
            self._kept.append(kept)
            self._kept_bytes += kept.size
            while self._kept_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popleft().size
            self._next_offset = kept.next_offset
        return True
