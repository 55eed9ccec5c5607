"""
Planted defects of the writer and its readers; see `planting.py`. Each function breaks one promise of the product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cleaner.base import concurrency
from cleaner.errors import CleanerError, FailedFsyncError, OutOfDescriptorsError
from cleaner.log import (
    active_segment,
    dir_state,
    epochs,
    flusher,
    log_producer,
    partition_writer,
    producers,
    upkeep,
    writable_log,
)
from cleaner.read import directory_view
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.transactions import Transactions
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import OffsetKind
from tests.simulation.planting import defect, replaced


@defect
def answered_as_durable_before_the_fsync() -> Iterator[None]:
    """A future is done when its flush is asked for."""

    def durable(self: flusher.LogFlusher, last_offset: int) -> Any:
        real(self, last_offset)
        done: concurrency.Future[None] = concurrency.Future()
        done.set_result(None)
        return done

    real = flusher.LogFlusher.durable
    with replaced(flusher.LogFlusher, "durable", durable):
        yield


@defect
def failed_append_is_not_undone() -> Iterator[None]:
    """What a failed append has written stays."""
    with replaced(writable_log.WritableLog, "_undo", lambda *_: None):
        yield


@defect
def committed_readers_go_to_the_high_watermark() -> Iterator[None]:
    """The last stable offset of other processes ignores open transactions."""
    stable = property(lambda self: self.high_watermark)
    with replaced(directory_view.DirectoryView, "last_stable_offset", stable):
        yield


@defect
def high_watermark_is_the_log_end() -> Iterator[None]:
    """A writer tells other processes of records that are not on disk."""

    def append(self: writable_log.WritableLog, *args: Any) -> int:
        first = real(self, *args)
        self._options.publish(self.log_end_offset)
        return first

    real = writable_log.WritableLog.append
    with replaced(writable_log.WritableLog, "append", append):
        yield


@defect
def repeats_are_not_recognised() -> Iterator[None]:
    """An idempotent producer's second try is appended again."""
    with (
        replaced(producers.Producers, "find_repeat", lambda *_: None),
        replaced(producers.Producers, "check", lambda *_: None),
    ):
        yield


@defect
def open_transactions_survive_an_opening() -> Iterator[None]:
    """A writer does not abort what an earlier one has left open."""
    with replaced(writable_log.WritableLog, "abort_open_transactions", lambda _: None):
        yield


@defect
def appends_do_not_exclude_each_other() -> Iterator[None]:
    """The writer's lock is none."""

    def init(self: partition_writer.PartitionWriter, *args: Any) -> None:
        real(self, *args)
        self._lock = contextlib.nullcontext()  # type: ignore[assignment]

    real = partition_writer.PartitionWriter.__init__
    with replaced(partition_writer.PartitionWriter, "__init__", init):
        yield


@defect
def flushes_are_not_asked_for_again() -> Iterator[None]:
    """A wake-up is missed: a request that has begun counts as one that will see what came after it."""

    def request(self: flusher.LogFlusher) -> None:
        if self._requested is None:
            real(self)

    real = flusher.LogFlusher._request
    with replaced(flusher.LogFlusher, "_request", request):
        yield


@defect
def interrupted_rolls_are_not_undone() -> Iterator[None]:
    """Only errors of the disk take an unfinished step back, not Ctrl-C."""

    def undo(self: writable_log.WritableLog, *args: Any) -> None:
        if isinstance(args[-1], CleanerError):
            real(self, *args)
        else:
            self._lock.release()

    real = writable_log.WritableLog._undo
    with replaced(writable_log.WritableLog, "_undo", undo):
        yield


@defect
def new_appends_may_count_as_repeats() -> Iterator[None]:
    """A producer counts its sequences itself, after the append: one that was interrupted is sent a second time."""

    def append(self: partition_writer.PartitionWriter, *args: Any, may_repeat: bool = True, **named: Any) -> Any:
        del may_repeat
        return real(self, *args, **named)

    real = partition_writer.PartitionWriter.append
    own = property(lambda self: self._next_sequence)
    with (
        replaced(partition_writer.PartitionWriter, "append", append),
        replaced(log_producer.LogProducer, "next_sequence", own),
    ):
        yield


@defect
def interrupted_requests_prevent_later_ones() -> Iterator[None]:
    """A wake-up is lost: a flush counts as asked for before it is."""

    def request(self: flusher.LogFlusher) -> None:
        if self._end is None and (self._requested is None or self._requested.has_begun):
            request = self._requested = flusher._Request()
            self._submit(lambda: self._flush_in_background(request))

    with replaced(flusher.LogFlusher, "_request", request):
        yield


@defect
def locks_are_taken_in_two_orders() -> Iterator[None]:
    """A roll waits for a running flush while it has the log's lock, which the flush needs."""

    def fsync_all(self: active_segment.ActiveSegment) -> None:
        with guards[id(self)]:
            real_all(self)

    def flush_to_disk(self: partition_writer.PartitionWriter) -> int:
        with guards.setdefault(id(self._log.active), concurrency.RLock()):
            return real_flush(self)

    class Guards(dict[int, Any]):
        def __missing__(self, key: int) -> Any:
            return self.setdefault(key, concurrency.RLock())

    guards = Guards()
    real_all, real_flush = active_segment.ActiveSegment.fsync_all, partition_writer.PartitionWriter.flush_to_disk
    with (
        replaced(active_segment.ActiveSegment, "fsync_all", fsync_all),
        replaced(partition_writer.PartitionWriter, "flush_to_disk", flush_to_disk),
    ):
        yield


@defect
def out_of_descriptors_is_final() -> Iterator[None]:
    """A roll without a free descriptor counts as a failed fsync."""

    def roll(self: writable_log.WritableLog, base_offset: int) -> None:
        try:
            real(self, base_offset)
        except OutOfDescriptorsError as error:
            raise FailedFsyncError(self.directory, error) from error

    real = writable_log.WritableLog._roll
    with replaced(writable_log.WritableLog, "_roll", roll):
        yield


@defect
def undo_leaves_index_entries() -> Iterator[None]:
    """A failed append is cut off the log alone."""

    def go_back(self: active_segment.ActiveSegment, mark: active_segment.AppendMark) -> None:
        files, self._files = self._files, self._files[:1]
        try:
            with contextlib.suppress(ValueError):
                real(self, mark)
        finally:
            self._files = files

    real = active_segment.ActiveSegment.go_back
    with replaced(active_segment.ActiveSegment, "go_back", go_back):
        yield


@defect
def aborts_are_not_indexed() -> Iterator[None]:
    """An abort writes its marker, and no entry of the transaction index."""
    with replaced(active_segment.ActiveSegment, "add_aborted", lambda *_: None):
        yield


@defect
def leader_epochs_are_not_written() -> Iterator[None]:
    """An epoch begins in memory alone."""

    def put(self: epochs.LeaderEpochs, entries: list[Any]) -> None:
        self._entries = entries

    with replaced(epochs.LeaderEpochs, "_put", put):
        yield


@defect
def no_snapshots_are_written() -> Iterator[None]:
    """A roll and a close leave no producer snapshot."""
    with replaced(writable_log.WritableLog, "_write_snapshot", lambda *_: None):
        yield


@defect
def recovery_point_is_the_log_end() -> Iterator[None]:
    """The checkpoint says that all is on disk."""

    def note(self: upkeep.Upkeep) -> None:
        self._note(OffsetKind.RECOVERY_POINT, lambda served: served.writer.log_end_offset)

    with replaced(upkeep.Upkeep, "note_recovery_points", note):
        yield


@defect
def noted_high_watermark_is_the_log_end() -> Iterator[None]:
    """The checkpoint of high watermarks says more than is on disk."""

    def note(self: upkeep.Upkeep) -> None:
        self._note(OffsetKind.HIGH_WATERMARK, lambda served: served.writer.log_end_offset)

    with replaced(upkeep.Upkeep, "note_high_watermarks", note):
        yield


@defect
def closes_without_a_flush() -> Iterator[None]:
    """A log is closed in order, and what was not flushed stays in the page cache."""

    def finish(self: writable_log.WritableLog) -> None:
        with replaced(active_segment.ActiveSegment, "fsync_all", lambda _: None):
            real(self)

    real = writable_log.WritableLog.finish
    with replaced(writable_log.WritableLog, "finish", finish):
        yield


@defect
def marker_is_written_after_a_failed_close() -> Iterator[None]:
    """A log dir gets its clean-shutdown marker whatever happened to its logs."""

    def close(self: dir_state.DirState, *, in_order: bool) -> None:
        del in_order
        real(self, in_order=True)

    real = dir_state.DirState.close
    with replaced(dir_state.DirState, "close", close):
        yield


@defect
def last_stable_offset_is_of_the_newest_transaction() -> Iterator[None]:
    """A reader stops at the last open transaction, not at the first."""

    def first_open(self: Transactions, end_offset: int) -> int:
        return max(self.open.values(), default=end_offset)

    with replaced(Transactions, "first_open", first_open):
        yield


@defect
def futures_of_a_failed_flush_never_end() -> Iterator[None]:
    """Who waits is not told of an error."""
    with replaced(flusher.LogFlusher, "_fail_waiting", lambda *_: None):
        yield


@defect
def threads_outlive_the_close() -> Iterator[None]:
    """The threads that flush are not ended."""
    with replaced(flusher.FlushThreads, "shutdown", lambda _: None):
        yield


@defect
def small_files_are_written_in_place() -> Iterator[None]:
    """A checkpoint is overwritten, not replaced."""

    def write(self: FileSystem, path: Path, data: bytes) -> None:
        with self.open(path, write=True) if self.exists(path) else self.create(path, like=path.parent) as file:
            file.truncate(0)
            file.write(data, 0)
            file.fsync()
        self.fsync_dir(path.parent)

    with replaced(FileSystem, "write_atomically", write):
        yield


@defect
def aborted_records_are_shown() -> Iterator[None]:
    """A reader of committed records leaves nothing out."""

    def hidden(self: AbortedTransactions, *args: Any) -> Any:
        flags = real(self, *args)
        return np.zeros_like(flags)

    real = AbortedTransactions.hidden
    with replaced(AbortedTransactions, "hidden", hidden):
        yield
