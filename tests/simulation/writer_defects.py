"""
Planted defects of the writer and its readers; see `planting.py`. Each function breaks one promise of the product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
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
    latest,
    log_producer,
    manager,
    opening,
    partition_writer,
    producers,
    stream,
    upkeep,
    work_threads,
    writable_log,
)
from cleaner.read import directory_view, held_files
from cleaner.read.aborted import AbortedTransactions
from cleaner.read.transactions import Transactions
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.log_dir import OffsetKind
from tests.simulation.planting import DEFECTS, breaks, defect, replaced


@breaks(flusher.LogFlusher, "durable")
def answered_as_durable_before_the_fsync(real: Any, self: flusher.LogFlusher, last_offset: int) -> Any:
    """A future is done when its flush is asked for."""
    real(self, last_offset)
    done: concurrency.Future[None] = concurrency.Future()
    done.set_result(None)
    return done


@breaks(flusher.LogFlusher, "on_wait")
def callers_alone_are_answered_before_the_force(
    real: Any, self: flusher.LogFlusher, timeout_seconds: float | None
) -> None:
    """A caller who would flush by itself has its answer first."""
    if timeout_seconds is None and self._alone >= flusher._ALONE:
        for waiting in self._waiting[:1]:
            waiting.future.open(None)
    real(self, timeout_seconds)


@defect
def callers_who_join_are_never_woken() -> Iterator[None]:
    """A request that was postponed is dropped, and nobody asks again for who comes while a caller flushes by itself."""

    def is_postponed(work: work_threads.Work) -> bool:
        real(work)
        return False

    real = work_threads.WorkThreads._is_postponed
    with (
        replaced(work_threads.WorkThreads, "_is_postponed", staticmethod(is_postponed)),
        replaced(flusher.LogFlusher, "hurry", lambda _: None),
    ):
        yield


@breaks(flusher.LogFlusher, "_flush_in_background")
def postponed_requests_never_begin(real: Any, self: flusher.LogFlusher, request: Any) -> bool:
    """A flush is left to the caller who flushed by itself before, whether it comes again or not."""
    return True if request.is_patient and self._end is None else bool(real(self, request))


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


@breaks(writable_log.WritableLog, "append")
def high_watermark_is_the_log_end(real: Any, self: writable_log.WritableLog, *args: Any) -> int:
    """A writer tells other processes of records that are not on disk."""
    first = real(self, *args)
    self._options.publish(self.log_end_offset)
    return first


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
    with replaced(writable_log.WritableLog, "end_open_transactions", lambda _: None):
        yield


class _NoLock(contextlib.nullcontext[None]):
    def _is_owned(self) -> bool:
        return False


@breaks(partition_writer.PartitionWriter, "__init__")
def appends_do_not_exclude_each_other(real: Any, self: partition_writer.PartitionWriter, *args: Any) -> None:
    """The writer's lock is none."""
    real(self, *args)
    self._lock = _NoLock()  # type: ignore[assignment]


@breaks(flusher.LogFlusher, "_request")
def flushes_are_not_asked_for_again(real: Any, self: flusher.LogFlusher) -> None:
    """A wake-up is missed: a request that has begun counts as one that will see what came after it."""
    if self._requested is None:
        real(self)


@breaks(writable_log.WritableLog, "_undo")
def interrupted_rolls_are_not_undone(real: Any, self: writable_log.WritableLog, *args: Any) -> None:
    """Only errors of the disk take an unfinished step back, not Ctrl-C."""
    if isinstance(args[-1], CleanerError):
        real(self, *args)
    else:
        self._lock.release()


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


@breaks(flusher.LogFlusher, "_request")
def interrupted_requests_prevent_later_ones(_: Any, self: flusher.LogFlusher) -> None:
    """A wake-up is lost: a flush counts as asked for before it is."""
    if self._end is None and (self._requested is None or self._requested.has_begun):
        request = self._requested = flusher._Request(is_patient=False)
        self._submit(lambda: self._flush_in_background(request))


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


@breaks(writable_log.WritableLog, "_roll")
def out_of_descriptors_is_final(real: Any, self: writable_log.WritableLog, base_offset: int) -> None:
    """A roll without a free descriptor counts as a failed fsync."""
    try:
        real(self, base_offset)
    except OutOfDescriptorsError as error:
        raise FailedFsyncError(self.directory, error) from error


@breaks(active_segment.ActiveSegment, "go_back")
def undo_leaves_index_entries(real: Any, self: active_segment.ActiveSegment, mark: active_segment.AppendMark) -> None:
    """A failed append is cut off the log alone."""
    files, self._files = self._files, self._files[:1]
    try:
        with contextlib.suppress(ValueError):
            real(self, mark)
    finally:
        self._files = files


@defect
def aborts_are_not_indexed() -> Iterator[None]:
    """An abort writes its marker, and no entry of the transaction index."""
    with replaced(active_segment.ActiveSegment, "add_aborted", lambda *_: None):
        yield


@breaks(epochs.LeaderEpochs, "_put")
def leader_epochs_are_not_written(_: Any, self: epochs.LeaderEpochs, entries: list[Any]) -> None:
    """An epoch begins in memory alone."""
    self._entries = entries


@defect
def no_snapshots_are_written() -> Iterator[None]:
    """A roll and a close leave no producer snapshot."""
    with replaced(writable_log.WritableLog, "_write_snapshot", lambda *_: None):
        yield


@breaks(upkeep.Upkeep, "note_recovery_points")
def recovery_point_is_the_log_end(_: Any, self: upkeep.Upkeep) -> None:
    """The checkpoint says that all is on disk."""
    self._note(OffsetKind.RECOVERY_POINT, lambda served: served.writer.log_end_offset)


@breaks(upkeep.Upkeep, "note_high_watermarks")
def noted_high_watermark_is_the_log_end(_: Any, self: upkeep.Upkeep) -> None:
    """The checkpoint of high watermarks says more than is on disk."""
    self._note(OffsetKind.HIGH_WATERMARK, lambda served: served.writer.log_end_offset)


@breaks(writable_log.WritableLog, "finish")
def closes_without_a_flush(real: Any, self: writable_log.WritableLog) -> None:
    """A log is closed in order, and what was not flushed stays in the page cache."""
    with replaced(active_segment.ActiveSegment, "fsync_all", lambda _: None):
        real(self)


@breaks(dir_state.DirState, "close")
def marker_is_written_after_a_failed_close(real: Any, self: dir_state.DirState, *, in_order: bool) -> None:
    """A log dir gets its clean-shutdown marker whatever happened to its logs."""
    del in_order
    real(self, in_order=True)


@breaks(Transactions, "first_open")
def last_stable_offset_is_of_the_newest_transaction(_: Any, self: Transactions, end_offset: int) -> int:
    """A reader stops at the last open transaction, not at the first."""
    return max(self.open.values(), default=end_offset)


@defect
def futures_of_a_failed_flush_never_end() -> Iterator[None]:
    """Who waits is not told of an error."""
    with replaced(flusher.LogFlusher, "_fail_waiting", lambda *_: None):
        yield


@defect
def threads_outlive_the_close() -> Iterator[None]:
    """The threads that flush are not ended."""
    with replaced(work_threads.WorkThreads, "shutdown", lambda _: None):
        yield


@breaks(FileSystem, "write_atomically")
def small_files_are_written_in_place(_: Any, self: FileSystem, path: Path, data: bytes) -> None:
    """A checkpoint is overwritten, not replaced."""
    with self.open(path, write=True) if self.exists(path) else self.create(path, like=path.parent) as file:
        file.truncate(0)
        file.write(data, 0)
        file.fsync()
    self.fsync_dir(path.parent)


@breaks(AbortedTransactions, "hidden")
def aborted_records_are_shown(real: Any, self: AbortedTransactions, *args: Any) -> Any:
    """A reader of committed records leaves nothing out."""
    flags = real(self, *args)
    return np.zeros_like(flags)


@breaks(writable_log.WritableLog, "finish")
def indexes_are_closed_without_an_fsync(real: Any, self: writable_log.WritableLog) -> None:
    """A close forces the log to disk, and not its indexes; the marker says that all is there."""
    with replaced(active_segment.ActiveSegment, "fsync_all", active_segment.ActiveSegment.fsync_log):
        real(self)


@breaks(manager.LogManager, "_end_work")
def marker_is_written_before_the_logs_are_closed(real: Any, self: manager.LogManager) -> None:
    """A close says first that all was closed in order, and then closes."""
    real(self)
    for state in self._states:
        if state.was_closed:
            state.log_dir.write_marker()


@defect
def time_indexes_get_no_closing_entry() -> Iterator[None]:
    """The largest timestamp of a segment is not in its time index."""
    with replaced(active_segment.ActiveSegment, "become_inactive", lambda _: None):
        yield


@breaks(opening, "_load")
def openings_cut_what_was_on_disk(real: Any, *args: Any, **named: Any) -> Any:
    """Damage above the segment of the recovery point is cut though the high watermark, or the point, is above it."""
    return real(*args, **{**named, "min_end_offset": 0})


@breaks(stream.RecordStream, "_is_lowered")
def readers_keep_an_end_from_before_a_cut(_real: Any, _self: stream.RecordStream) -> bool:
    """What is decided is found out once, whatever becomes of the log."""
    return False


@breaks(latest.Latest, "_require_uncut")
def states_notice_a_cut_by_sizes_alone(
    real: Any, self: latest.Latest, cursor: Any, end_offset: int, _epoch: int
) -> None:
    """A log that was cut, and has grown again, is taken for the one from before."""
    real(self, cursor, end_offset, -1)


@breaks(stream.RecordStream, "next_columns")
def after_an_error_a_reader_goes_on_behind_what_it_read(_real: Any, self: stream.RecordStream) -> Iterator[Any]:
    """The chunk is behind the reader though none of its records were handed out."""
    return self._next_columns()


@contextlib.contextmanager
def _with_file(file: File, name: str, broken: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one open file; `broken` is called with the real one, and then with its arguments."""
    real = getattr(type(file), name)

    def planted(self: File, *args: Any) -> Any:
        return broken(partial(real, self), *args) if self is file else real(self, *args)

    with replaced(type(file), name, planted):
        yield


@breaks(active_segment.ActiveSegment, "become_inactive")
def room_stays_behind_closed_logs(real: Any, self: active_segment.ActiveSegment) -> None:
    """What a writer with `preallocate` has reserved is not cut off: a closed segment ends in zeros."""
    with _with_file(self._files[0], "truncate", lambda _truncate, _size: None):
        real(self)


@breaks(active_segment.ActiveSegment, "commit")
def records_are_put_behind_the_room(real: Any, self: active_segment.ActiveSegment, data: Any) -> None:
    """An append goes to the end of the file, as if there were no room."""
    behind = self._files[0].size()
    with _with_file(self._files[0], "write", lambda write, data, _position: write(data, behind)):
        real(self, data)


@breaks(active_segment.ActiveSegment, "go_back")
def undone_records_stay_in_the_room(real: Any, self: active_segment.ActiveSegment, mark: Any) -> None:
    """A failed append is not taken out of the file: the next one is written over it, as over zeros."""
    with _with_file(self._files[0], "size", lambda size: 0 if self.topic.preallocate else size()):
        real(self, mark)


@defect
def a_segment_that_loses_its_room_counts_as_cut() -> Iterator[None]:
    """A state that is read while the log is rolled is refused, as if records had been cut off."""
    with replaced(held_files, "end_without_room", lambda segment: segment.file.size()):
        yield


@defect
def room_is_cut_off_behind_the_fsync() -> Iterator[None]:
    """As Kafka up to 4.3: a power cut brings the zeros back beside the marker (D-02)."""

    def fsync_all(self: active_segment.ActiveSegment) -> None:
        real(self)
        if not self._is_retired:
            self._files[0].truncate(self._size)

    real = active_segment.ActiveSegment.fsync_all
    with DEFECTS["room stays behind closed logs"](), replaced(active_segment.ActiveSegment, "fsync_all", fsync_all):
        yield


@breaks(dir_state.DirState, "note")
def lines_are_worked_out_too_early(real: Any, self: dir_state.DirState, kind: Any, offsets: Any) -> None:
    """Of a topic that is made again before the checkpoint is written, they are of the log before."""
    early = offsets()
    real(self, kind, lambda: early)


@breaks(active_segment.ActiveSegment, "go_back")
def undone_appends_are_not_forced_to_disk(
    real: Any, self: active_segment.ActiveSegment, mark: active_segment.AppendMark
) -> None:
    """What a failed append has written is cut off in the page cache alone."""
    with replaced(active_segment.ActiveSegment, "fsync_log", lambda _: None):
        real(self, mark)


@breaks(directory_view._FollowedTransactions, "first_open")
def transactions_are_followed_beyond_a_cut(real: Any, self: Any, *args: Any) -> int:
    """A log that was cut and has grown to the same end again counts as unchanged."""
    self._generation = self._files.generation()
    found: int = real(self, *args)
    return found


@breaks(writable_log.WritableLog, "_set_flushed")
def cuts_leave_the_flushed_offset(real: Any, self: writable_log.WritableLog, offset: int) -> None:
    """Until it has grown again, a log says that more of it is on disk than it has."""
    real(self, max(offset, getattr(self, "flushed_offset", 0)))
