"""
Planted defects of loading and rounds; see `planting.py`. Each function breaks one promise of the product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.app import rounds, session
from cleaner.base import concurrency
from cleaner.cleaning.map import build_map
from cleaner.cleaning.passes import transactions
from cleaner.cleaning.recopy import batch_retention
from cleaner.cleaning.recopy import group as recopy_group
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.retained import RetainedWriter
from cleaner.cleaning.round import round as cleaning_round
from cleaner.cleaning.round import steps
from cleaner.cleaning.round.group_end import GroupEnds
from cleaner.format.chunks import CONTROL_FLAG, Chunk
from cleaner.kernels.retain import STATE_MESSAGES_READ, STATE_MESSAGES_WRITTEN, STATE_OUT
from cleaner.read import directory_view
from cleaner.storage.fs.open_file import File
from cleaner.storage.load import leftovers, loaded_log, recovery
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap import swap
from tests.simulation.planting import breaks, defect, replaced


@defect
def marker_stays_when_a_writer_begins() -> Iterator[None]:
    """The clean-shutdown marker is not removed."""
    with replaced(LogDir, "remove_marker", lambda _: None):
        yield


@defect
def recovery_does_not_cut() -> Iterator[None]:
    """A torn tail stays."""
    with replaced(recovery, "cut_damage", lambda *_: False):
        yield


@defect
def cleaned_files_are_left() -> Iterator[None]:
    """What an unfinished round has written stays for good."""

    def removals(self: leftovers.Leftovers) -> list[list[str]]:
        return [group for group in (self.condemned_swaps, self.deleted) if group]

    with (
        replaced(leftovers.Leftovers, "removals", removals),
        replaced(swap, "discard_cleaned", lambda *_: None),
    ):
        yield


@breaks(leftovers, "split_swaps")
def undecided_swaps_are_completed(real: Any, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """A `.cleaned` file does not condemn the `.swap` files."""
    decided, condemned = real(files)
    return decided + condemned, []


@breaks(leftovers, "split_swaps")
def swaps_are_not_completed(real: Any, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """A decided swap is thrown away like an undecided one."""
    decided, condemned = real(files)
    return [], decided + condemned


@breaks(build_map.MapBuilder, "build")
def checkpoint_is_written_before_the_swaps(real: Any, self: Any) -> Any:
    """A round says first how far it will have cleaned."""
    built = real(self)
    self._context.write_checkpoint(built.end_offset)
    return built


@breaks(rounds.Work, "write_checkpoint")
def checkpoint_is_one_too_far(real: Any, self: rounds.Work, offset: int) -> None:
    """A round says that it has cleaned one offset more."""
    real(self, offset + 1)


@breaks(loaded_log.LoadedLog, "_find_last_stable")
def rounds_go_beyond_open_transactions(_: Any, self: loaded_log.LoadedLog) -> None:
    """The last stable offset is the high watermark."""
    self.last_stable_offset = self.high_watermark


@defect
def aborted_data_supersedes() -> Iterator[None]:
    """The map has keys of aborted transactions."""

    def discardable(self: Any, path: Any, chunk: Any) -> Any:
        flags = real(self, path, chunk)
        return np.zeros_like(flags)

    class Blind(transactions.CleanedTransactions):
        pass

    real = transactions.CleanedTransactions.discardable
    Blind.discardable = discardable  # type: ignore[method-assign]
    with replaced(build_map, "CleanedTransactions", Blind):
        yield


@defect
def markers_go_at_once() -> Iterator[None]:
    """A marker goes before its transaction's data, and before its horizon."""

    def decide(batches: Any, can_discard: Any, *args: Any, **named: Any) -> Any:
        is_control = (batches["attributes"] & CONTROL_FLAG) != 0
        return real(batches, np.where(is_control, 1, can_discard).astype(np.uint8), *args, **named)

    real = batch_retention.decide_retention
    with replaced(recopy_group, "decide_retention", decide):
        yield


@defect
def rounds_do_not_lock_the_partition() -> Iterator[None]:
    """A cleaner swaps while a writer rolls."""
    with replaced(session.Session, "partition_lock", lambda *_: contextlib.nullcontext()):
        yield


@defect
def readers_are_not_told_of_swaps() -> Iterator[None]:
    """The generation number stays."""
    with replaced(session, "raise_generation", lambda *_: None):
        yield


@defect
def rounds_leave_a_file_open() -> Iterator[None]:
    """A leak: an old segment is opened for each swap, and stays open."""

    def install(log: Any, group: Sequence[Segment], context: Any, **named: Any) -> Segment:
        leaked.append(context.fs.open(group[0].log_path))
        return real(log, group, context, **named)

    leaked: list[Any] = []
    real = steps.install_group
    with replaced(cleaning_round, "install_group", install):
        yield


@defect
def readers_leave_a_file_open() -> Iterator[None]:
    """A leak: a reader's files of high watermarks stay open."""

    def close(self: directory_view.DirectoryView) -> None:
        leaked.append(self._published)
        self._published = None
        real(self)

    leaked: list[Any] = []
    real = directory_view.DirectoryView.close
    with replaced(directory_view.DirectoryView, "close", close):
        yield


@breaks(build_map.MapBuilder, "__init__")
def maps_miss_a_segment(real: Any, self: build_map.MapBuilder, *args: Any) -> None:
    """The first dirty segment's keys are not in the map."""
    real(self, *args)
    self._segments = self._segments[1:] or self._segments


@defect
def first_group_is_not_cleaned() -> Iterator[None]:
    """A round leaves a group out, and its checkpoint does not say so."""

    def groups(*args: Any) -> Any:
        return list(real(*args))[1:]

    real = steps.groups_of
    with replaced(cleaning_round, "groups_of", groups):
        yield


def _rules_with(**changes: Any) -> contextlib.AbstractContextManager[None]:
    real = steps.rules_of

    def rules(*args: Any) -> Any:
        found = real(*args)
        return replace(found, **{name: change(getattr(found, name)) for name, change in changes.items()})

    return replaced(cleaning_round, "rules_of", rules)


@defect
def horizons_are_set_a_millisecond_early() -> Iterator[None]:
    """A tombstone's or a marker's delete horizon is off by one."""
    with _rules_with(delete_retention_ms=lambda retention_ms: retention_ms - 1):
        yield


@defect
def horizons_pass_a_millisecond_early() -> Iterator[None]:
    """What may go in a millisecond goes now."""
    with _rules_with(removal_ms=lambda removal_ms: removal_ms + 1):
        yield


@defect
def delete_retention_is_ignored() -> Iterator[None]:
    """Horizons are the time of the round."""
    with _rules_with(delete_retention_ms=lambda _: 0):
        yield


@defect
def horizons_are_ignored() -> Iterator[None]:
    """Tombstones and markers go whatever time their horizon names."""
    with _rules_with(removal_ms=lambda _: 2**62):
        yield


# ---- segments that stay in place ------------------------------------------------------------------------------------


@breaks(RetainedWriter, "equals")
def chunks_that_lose_their_end_count_as_equal(_: Any, self: RetainedWriter, chunk: Chunk) -> bool:
    """What stays of a chunk is compared with it, and its length is not."""
    filled = int(self._state[STATE_OUT])
    return bool((self._out.array[:filled] == chunk.data[:filled]).all())


@breaks(CleanedSegment, "_begin")
def equal_part_of_a_segment_is_not_copied(real: Any, self: CleanedSegment) -> Any:
    """A new segment begins with its first difference; before it there are zeros."""
    with replaced(File, "copy_from", lambda _self, _source, size, _position: size):
        return real(self)


@breaks(RetainedWriter, "equals")
def chunks_that_lose_no_record_count_as_equal(_: Any, self: RetainedWriter, _chunk: Chunk) -> bool:
    """A horizon that a batch gets counts for nothing."""
    return bool(self._state[STATE_MESSAGES_WRITTEN] == self._state[STATE_MESSAGES_READ])


@breaks(CleanedSegment, "reserve")
def first_chunk_decides_for_all(real: Any, self: CleanedSegment, *args: Any, is_equal: bool = False) -> int | None:
    """Once a chunk was equal, all later ones count as equal."""
    found: int | None = real(self, *args, is_equal=is_equal or (self.may_stay and self.size > 0))
    return found


@breaks(CleanedSegment, "equals_source")
def segments_stay_whatever_becomes_of_them(_: Any, self: CleanedSegment, _aborts: Any) -> bool:
    """A group of one segment is never swapped in."""
    return self._source is not None


# ---- ends of groups in the background -------------------------------------------------------------------------------


@breaks(GroupEnds, "__exit__")
def checkpoint_does_not_wait_for_the_last_swap(_: Any, self: GroupEnds, *_args: Any) -> None:
    """A round writes its checkpoint while a group ends in the background."""


@breaks(GroupEnds, "_run")
def errors_of_ends_are_dropped(_: Any, self: GroupEnds, end: Any) -> None:
    """A group whose end failed counts as swapped in."""
    with contextlib.suppress(Exception):
        self._note = end()


@breaks(GroupEnds, "wait")
def groups_end_in_any_order(_: Any, self: GroupEnds) -> None:
    """No group waits for the end of the one before."""
    if self._note is not None:
        self._note = None


@breaks(loaded_log.LoadedLog, "replace")
def swapped_segments_stay_in_the_list(_: Any, self: loaded_log.LoadedLog, *_args: Any) -> None:
    """After a swap the log goes on with the segments that are gone."""


@breaks(concurrency, "join_all")
def threads_outlive_an_interrupt(_: Any, threads: Any) -> BaseException | None:
    """An interrupt does not wait for the end of a group, nor for what else works in the background."""
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # noqa: BLE001 - returned
        return error
    return None


@breaks(CleanedSegment, "_write")
def times_of_indexes_are_set_behind_the_fsync(
    real: Any, self: CleanedSegment, extension: str, content: Any, mtime_ns: int | None
) -> None:
    """A power cut may leave new indexes with the time of the round."""
    real(self, extension, content, None)
    if mtime_ns is not None:
        self._fs.set_mtime_ns(self._name(extension), mtime_ns)


@defect
def rounds_forget_producers() -> Iterator[None]:
    """The last batch of an active producer goes if its records do."""
    active = batch_retention.ActiveProducers({})
    with replaced(cleaning_round, "ActiveProducers", lambda _: active):
        yield
