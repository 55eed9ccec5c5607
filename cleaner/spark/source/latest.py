"""
The last record of every key of a partition, in offset order.

As in a cleaning round, keys are put into an offset map by their digests, 24 bytes a key. What the map then names are
the offsets to be given out, a bit each; a last pass gives them out. Keys that are too many for a task's memory are put
share by share, by digest, with a pass over the log for each.

All segments are held open from before the end is looked for: what a cleaner removes later is still in these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from errno import ENOENT
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.offset_map import ENTRY_BYTES, OffsetMap
from cleaner.errors import LogChangedError, LogDirOfflineError
from cleaner.format.chunks import Flags
from cleaner.format.key_digests import MURMUR, OFFSET_PLUS_1, KeyDigests
from cleaner.format.layout import Layout, lay_out
from cleaner.format.records import Block
from cleaner.read.snapshot import LogSnapshots
from cleaner.spark.source.arrow import ArrowRows
from cleaner.spark.source.damage import Damage, passing
from cleaner.spark.source.options import ReadOptions
from cleaner.spark.source.plan import LatestTask
from cleaner.spark.source.read import SpanReader
from cleaner.spark.source.spans import Span, spans_of
from cleaner.storage.fs.file_system import File, FileSystem

_MOST_TRIES = 10
_LOAD_FACTOR = 0.75
_WHOLE_SEGMENTS = 2**62


def latest_rows(fs: FileSystem, options: ReadOptions, task: LatestTask, damage: Damage) -> Iterator[ArrowRows]:
    """
    Give out the last record of every key; raises as `task.run_task`.

    Records without a key are left out, and keys whose last value is null unless the options want them.
    """
    with ExitStack() as stack:
        held, first, end = _hold(fs, options, task, stack)
        quiet = Damage("fail" if options.bad_batches == "fail" else "skip")
        kept = _kept_offsets(SpanReader(fs, options, quiet), held, first, end, options.map_bytes)
        reader = SpanReader(fs, options, damage)
        for span, file in held:

            def work(path: Path, block: Block, hidden: Flags, span: Span = span) -> ArrowRows:
                layout = lay_out(path, block, hidden, span.first_offset, span.end_offset)
                wanted = _has_bit(kept, layout.offsets - first)
                if not options.tombstones:
                    wanted &= layout.value_sizes >= 0
                data, *arrays = vars(layout).values()
                layout = Layout(data, *(array[wanted] for array in arrays))
                return ArrowRows(span.topic_partition, path, layout, block.batches, hidden)

            yield from reader.each_of(span, file, work)


def _hold(
    fs: FileSystem, options: ReadOptions, task: LatestTask, stack: ExitStack
) -> tuple[list[tuple[Span, File]], int, int]:
    """Open all segments, then see how far they are to be read."""
    for _ in range(_MOST_TRIES):
        log = LogSnapshots(fs).take(task.topic_partition, task.directory)
        if not log.places and options.fail_on_data_loss:
            # It was planned because it had some: nothing removes the last one.
            gone = FileNotFoundError(ENOENT, "its segments have gone, or never were there")
            raise LogDirOfflineError(task.directory, gone)
        attempt = ExitStack()
        try:
            spans = list(spans_of(log, task.first_offset, log.end_offset, _WHOLE_SEGMENTS))
            held = [(span, attempt.enter_context(fs.open(span.path))) for span in spans]
            end = log.end_offset if task.end_offset is None else min(task.end_offset, log.end_offset)
            if options.committed:
                end = min(end, log.last_stable_offset(passing(options.bad_batches)))
        except FileNotFoundError:
            attempt.close()
            continue
        except BaseException:
            attempt.close()
            raise
        if all(file.stat().st_ino == span.inode for span, file in held):
            stack.push(attempt)
            wanted = [(span, file) for span, file in held if span.first_offset < end]
            return [(_up_to(span, end), file) for span, file in wanted], task.first_offset, end
        attempt.close()
    raise LogChangedError(f"{task.directory}: its segments change faster than they can be opened")


def _up_to(span: Span, end_offset: int) -> Span:
    return replace(span, end_offset=min(span.end_offset, end_offset))


def _kept_offsets(
    reader: SpanReader, held: list[tuple[Span, File]], first_offset: int, end_offset: int, map_bytes: int
) -> npt.NDArray[np.uint8]:
    """Return a bit for each offset, set for the last one of a key; the bit of `first_offset` is the first."""
    slots = max(2, map_bytes // ENTRY_BYTES)
    offset_map = OffsetMap(int(slots * _LOAD_FACTOR), slots)
    try:
        shares = 1
        while True:
            kept = np.zeros(0, np.uint8)
            for share in range(shares):
                offset_map.clear()
                if not _put_share(reader, held, offset_map, share, shares):
                    break
                kept = _with_bits(kept, offset_map.offsets() - first_offset)
            else:
                return kept
            shares *= 2
    finally:
        offset_map.close()


def _put_share(
    reader: SpanReader, held: list[tuple[Span, File]], offset_map: OffsetMap, share: int, shares: int
) -> bool:
    """Put the keys of a share; False when they do not fit."""
    digests = KeyDigests()
    for span, file in held:
        for rows in reader.each_of(
            span, file, lambda path, block, hidden: digests.of(path, block, hidden, offset_map.keys)
        ):
            is_mine = (rows[:, MURMUR] % np.uint64(shares) == share) & (rows[:, OFFSET_PLUS_1] > span.first_offset)
            mine = rows[is_mine & (rows[:, OFFSET_PLUS_1] <= span.end_offset)]
            if offset_map.put(mine) < len(mine):
                return False
    return True


def _with_bits(bits: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Set bits, in as many bytes as that takes."""
    if not len(places):
        return bits
    places = np.sort(places)
    size = int(places[-1] >> 3) + 1
    if size > len(bits):
        bits = np.concatenate([bits, np.zeros(size - len(bits), np.uint8)])
    cells = places >> 3
    firsts = np.flatnonzero(np.diff(cells, prepend=-1))
    ones = np.left_shift(1, places & 7).astype(np.uint8)
    bits[cells[firsts]] |= np.bitwise_or.reduceat(ones, firsts)
    return bits


def _has_bit(bits: npt.NDArray[np.uint8], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell which bits are set; those beyond the last byte are not."""
    found = np.zeros(len(places), bool)
    within = (places >= 0) & (places >> 3 < len(bits))
    inner = places[within]
    found[within] = (bits[inner >> 3] >> (inner & 7).astype(np.uint8)) & 1 != 0
    return found
