"""
Planted defects of the daemon, and of what operators do; see `planting.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cleaner.app import check_log_dir, load_partition, recover_log_dir, undo_clean
from cleaner.app.session import Session
from cleaner.daemon import log_watch, retention_pass
from cleaner.daemon.pauses import Pauses
from cleaner.daemon.service import Service
from cleaner.errors import CorruptBatchError, TruncationRefusedError, ZeroTailError
from cleaner.log import reader, tasks
from cleaner.state import journal
from cleaner.state.lock_file import LockFile
from cleaner.storage.load import recovery
from cleaner.storage.segment import indexes, names, segment
from cleaner.storage.swap import swap
from tests.simulation.planting import breaks, defect, replaced

# ---- the daemon -----------------------------------------------------------------------------------------------------


@breaks(retention_pass, "find_expired")
def daemons_leave_expired_segments(real: Any, *args: Any, **named: Any) -> Any:
    """A pass finds nothing."""
    return replace(real(*args, **named), count=0)


@breaks(retention_pass, "find_expired")
def daemons_remove_a_segment_too_many(real: Any, log: Any, *args: Any, **named: Any) -> Any:
    """The first segment that may stay goes, too."""
    found = real(log, *args, **named)
    return replace(found, count=min(found.count + 1, len(log.segments) - 1)) if found.count else found


@defect
def daemons_share_their_state() -> Iterator[None]:
    """The state directory is not locked."""
    with replaced(LockFile, "_lock", lambda *_: None):
        yield


@defect
def pauses_do_nothing() -> Iterator[None]:
    """What is paused is cleaned."""
    with (
        replaced(Pauses, "covers", lambda *_: False),
        replaced(Pauses, "is_all", property(lambda _: False)),
        replaced(Pauses, "topics", property(lambda _: {})),
    ):
        yield


@breaks(Service, "reload")
def refused_settings_are_taken_over(real: Any, self: Service) -> Any:
    """A reload that is refused has changed settings."""
    result = real(self)
    if result.errors:
        self._history.note_settings(replace(self._settings, values={}), ())
    return result


@defect
def lost_state_ends_rounds() -> Iterator[None]:
    """An entry that cannot be written, for want of its directory, is an internal error."""
    with replaced(journal, "disk_errors", lambda *_: contextlib.nullcontext()):
        yield


@defect
def failed_tasks_are_tried_at_once() -> Iterator[None]:
    """The writer's thread turns without a pause while something that is due fails."""
    with replaced(tasks, "_RETRY_NANOS", 0):
        yield


@breaks(log_watch.WatchedLog, "_with_last_stable")
def looks_go_beyond_open_transactions(_: Any, _self: Any, _at: Any, log: Any, _below: int) -> Any:
    """A look and a round disagree on the last stable offset."""
    return replace(log, last_stable_offset=log.high_watermark)


@breaks(log_watch.WatchedLog, "_with_last_stable")
def looks_stop_at_the_log_start(_: Any, _self: Any, _at: Any, log: Any, _below: int) -> Any:
    """A look takes every log for one open transaction: it stays due, and is not cleaned."""
    return replace(log, last_stable_offset=log.log_start_offset)


# ---- commands -------------------------------------------------------------------------------------------------------


@defect
def recover_trusts_torn_logs() -> Iterator[None]:
    """It takes logs for closed in order, and says so."""

    def load(*args: Any, **named: Any) -> Any:
        return real(*args, **{**named, "clean_shutdown": True})

    real = load_partition.load
    with replaced(load_partition, "load", load):
        yield


@breaks(recover_log_dir, "_why_no_marker")
def recover_marks_what_it_refused(real: Any, session: Any, partitions: Any, _: Any, **named: Any) -> Any:
    """The log dir counts as closed in order whatever was refused."""
    return real(session, partitions, (), **named)


@breaks(recovery, "_refuse_unless_torn")
def recover_cuts_what_it_refused(real: Any, segment: Any, rebuilt: Any, *args: Any, **named: Any) -> None:
    """A log that is refused has been cut all the same."""
    try:
        real(segment, rebuilt, *args, **named)
    except TruncationRefusedError:
        with segment._fs.open(segment.log_path, write=True) as file:
            file.truncate(rebuilt.valid_bytes)
        raise


@breaks(undo_clean, "_groups_to_undo")
def undo_leaves_a_group(real: Any, *args: Any) -> Any:
    """The last group stays as the round wrote it."""
    return real(*args)[:-1]


@defect
def undo_leaves_the_checkpoint() -> Iterator[None]:
    """What is back counts as clean."""
    real = undo_clean._undo_held

    def undo(*args: Any) -> Any:
        with replaced(Session, "put_cleaner_offset", lambda *_: None):
            return real(*args)

    with replaced(undo_clean, "_undo_held", undo):
        yield


@breaks(undo_clean, "_forget")
def undo_removes_first_what_says_where_files_belong(_: Any, fs: Any, kept_dir: Any) -> None:
    """Stopped behind that, it leaves kept files that nothing tells from those whose manifest was lost."""
    fs.remove(kept_dir / names.KEPT_MANIFEST)
    fs.fsync_dir(kept_dir)
    undo_clean._remove_undone(fs, kept_dir)


@defect
def undo_trusts_kept_files() -> Iterator[None]:
    """A kept file that is damaged takes the place of a sound one."""
    with replaced(undo_clean, "_check_kept", lambda *_: None):
        yield


@defect
def repair_does_nothing() -> Iterator[None]:
    """An index file that is lost stays lost."""
    with replaced(check_log_dir, "repair_partition", lambda *_: []):
        yield


# ---- found by others once -------------------------------------------------------------------------------------------


@breaks(swap, "_install")
def swaps_leave_a_segment_without_its_index(real: Any, fs: Any, directory: Any, new_base: int) -> None:
    """The new log is there, and its offset index is not."""
    real(fs, directory, new_base)
    fs.remove(directory / names.segment_file_name(new_base, names.INDEX))


@breaks(reader.LogReader, "close")
def closed_readers_refer_to_themselves(real: Any, self: Any) -> None:
    """A leak until the collector comes: a cycle holds a closed reader, and what it has read."""
    real(self)
    self._self = self


@breaks(segment, "read_offset_index")
def zeros_of_an_index_are_entries(_: Any, fs: Any, path: Path, log_bytes: int, on_zeros: Any) -> Any:
    """An index that ends in zeros, as a power cut after a stop of Kafka 4.3 can leave it, is damaged."""
    del on_zeros
    entries = indexes.read_entries(fs, path, indexes.OFFSET_ENTRY, indexes.refuse, log_bytes)
    indexes.check_offset_entries(entries, path, log_bytes)
    return entries


@breaks(load_partition, "load")
def recover_believes_a_marker_beside_zeros(real: Any, *args: Any, **named: Any) -> Any:
    """With a marker nothing is recovered, even if zeros follow the active log."""
    try:
        return real(*args, **named)
    except ZeroTailError as error:
        raise CorruptBatchError(error.path, error.position, error.reason) from error
