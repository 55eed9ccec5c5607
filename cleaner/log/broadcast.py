"""
One reader for many followers of a log that is written in this process.

Each follower that is woken, looks and reads for itself takes the interpreter from the writer it waits for: with
hundreds of them a writer of single records comes to nothing. So as soon as there are two, a thread reads what comes,
once, makes its records, and tells them, a few at a time, so that the interpreter is half of the time free of them
(`_SECONDS_A_FOLLOWER`): what came meanwhile they get together.

    the log changes     the thread reads on, keeps the records, and tells the followers
    a follower          takes what was kept, as of its own offset; the records are shared
    one that is slow    finds that its offset is not kept any more, and reads from the log by itself until it has caught
                        up: what is kept is bounded, and nothing is lost
    an error            the thread ends; each follower reads by itself and meets the error, if it is one of its own
    a cut               the same: a leader epoch begins, and nothing kept from before is given out

A single follower, and those that want columns, read by themselves as ever.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cleaner.errors import CleanerError
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, RecordStream, Until, reach
from cleaner.read.partition_files import PartitionFiles
from cleaner.read.view import ReadView, Signal

MOST_KEPT_BYTES = 2 << 20
"""Of the log; as records of 100 bytes three times as much memory. What was read last is kept in any case."""

_TOLD_AT_A_TIME = 16  # whoever else needs the interpreter waits for so many at most
_SECONDS_A_FOLLOWER = 60e-6  # twice what it takes to wake one and have it take its records
_LONGEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True)
class BroadcastChunk:
    """
    Some neighbouring records, and none where compaction has left a gap.

    Attributes:
        first_offset, next_offset: all records from the one up to the other, exclusive, are here.
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
    What the followers of one log share that want the same: one `isolation` and `until`. Safe to share between threads.

    Args:
        files: the partition's.
        view: a writer's in this process.
        log_signal: what that tells of changes by.
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
        self._guard = threading.RLock()
        # Guarded by _guard. The members are replaced, never changed.
        self._members: dict[object, Callable[[], None]] = {}
        self._thread: threading.Thread | None = None
        self._kept: deque[BroadcastChunk] = deque()
        self._kept_bytes = 0
        self._next_offset = 0
        self._leader_epoch: int | None = None
        self._pause = threading.Event()  # is never set: time for others
        log_signal.listen(self._pass_on)

    def join(self, told: Callable[[], None]) -> Callable[[], None]:
        """Have something quick called when there may be something to take; returns what ends that."""
        token = object()
        with self._guard:
            self._members = {**self._members, token: told}
        self._begin_if_worth_it()
        return partial(self._leave, token)

    def _leave(self, token: object) -> None:
        with self._guard:
            self._members = {key: told for key, told in self._members.items() if key is not token}

    def take(self, offset: int, leader_epoch: int | None) -> BroadcastChunk | None:
        """
        Return what is kept from an offset on, and nothing new if that is still to come; None: the follower has to read
        by itself.

        Args:
            offset: behind what the follower has read.
            leader_epoch: of the log when it read that; it may have been cut since.
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
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _pass_on(self) -> None:
        """Tell those that read by themselves, and all of them of the end; else the thread does, when it has read."""
        if self._thread is None or self._log_signal.is_closed:
            self._tell_all()

    def _tell_all(self) -> None:
        for told in self._members.values():
            told()

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _begin_if_worth_it(self) -> None:
        leader_epoch = self._view.leader_epoch
        # From here on; who is behind catches up by itself.
        next_offset = reach(self._view, self._isolation, self._until)
        with self._guard:
            if self._thread is not None or len(self._members) < 2 or self._log_signal.is_closed:
                return
            self._kept.clear()
            self._kept_bytes, self._next_offset, self._leader_epoch = 0, next_offset, leader_epoch
            self._thread = thread = threading.Thread(target=self._run, name="cleaner-broadcast", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._thread = None  # the system has no thread left: each reads by itself

    def _run(self) -> None:
        stream = RecordStream(self._files, self._view, self._next_offset, self._isolation)
        has_failed = True
        try:
            self._read_on(stream)
            has_failed = False
        except CleanerError:
            pass  # each follower meets it by itself, if it is one of its own
        finally:
            with self._guard:
                self._thread = None
                self._kept.clear()
            stream.close()
            self._tell_all()
        if not has_failed:
            self._begin_if_worth_it()

    def _read_on(self, stream: RecordStream) -> None:
        while not self._log_signal.is_closed and len(self._members) > 1:
            if self._view.leader_epoch != self._leader_epoch:
                return
            seen = self._log_signal.version
            if self._read(stream):
                self._tell_in_turn()
            else:
                self._log_signal.wait(seen, _LONGEST_WAIT_SECONDS)

    def _tell_in_turn(self) -> None:
        members = list(self._members.values())
        for first in range(0, len(members), _TOLD_AT_A_TIME):
            some = members[first : first + _TOLD_AT_A_TIME]
            for told in some:
                told()
            self._pause.wait(len(some) * _SECONDS_A_FOLLOWER)

    def _read(self, stream: RecordStream) -> bool:
        """Read some of what has come; False when nothing has."""
        before, bytes_before = stream.next_offset, stream.bytes_read
        end_offset = reach(self._view, self._isolation, self._until)
        if before >= end_offset:
            return False
        records = [record for columns in stream.next_columns(end_offset) for record in columns]
        if stream.next_offset == before:
            return False
        kept = BroadcastChunk(before, stream.next_offset, records, stream.epoch, stream.bytes_read - bytes_before)
        with self._guard:
            self._kept.append(kept)
            self._kept_bytes += kept.size
            while self._kept_bytes > MOST_KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popleft().size
            self._next_offset = kept.next_offset
        return True
