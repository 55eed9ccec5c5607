"""
Where a log ends that was not closed in order, or is appended to: what its recovery would find, by headers alone.

A recovery reads every segment from the recovery point on and cuts the log at the first batch that is torn or damaged
(R-640). Here the same segments are walked by their headers and nothing is changed; so a batch whose header is sound and
whose checksum is wrong is not seen, and where there are very many batches only the active segment's last ones are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.errors import CorruptBatchError
from cleaner.format.headers import HeaderReader
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.glance import SeenSegment
from cleaner.storage.segment.indexes import OFFSET_ENTRY, most_index_bytes
from cleaner.storage.segment.names import INDEX, LOG, segment_file_name

# Some 300 000 headers are walked in a second; so much of the smallest batches takes about one.
_MOST_BYTES = 64 << 20
_ENTRIES_TRIED = 4


class ForeseenEnd(NamedTuple):
    """
    What is left of a log.

    Attributes:
        segments: those that stay, the last as long as it will be.
        log_end_offset: the offset behind the last sound batch.
        cut_bytes: what would be cut, of `.log` files.
    """

    segments: tuple[SeenSegment, ...]
    log_end_offset: int
    cut_bytes: int


def foresee_end(
    fs: FileSystem, directory: Path, segments: Sequence[SeenSegment], recovery_point: int | None
) -> ForeseenEnd:
    """
    Walk the end of a log.

    Args:
        segments: as listed, at least one.
        recovery_point: the partition's line in the checkpoint; None: somebody appends, and only the active segment's
            end may be torn.
    Raises:
        FileNotFoundError: a segment has gone.
    """
    last = len(segments) - 1
    first = last
    if recovery_point is not None:
        first = max(0, bisect_right(segments, recovery_point, key=lambda segment: segment.base_offset) - 1)
    is_short = recovery_point is not None and sum(segment.size for segment in segments[first:]) <= _MOST_BYTES
    for row in range(first if is_short else last, last + 1):
        segment = segments[row]
        starts = [0] if is_short else [*_last_indexed(fs, directory, segment), 0]
        next_offset, end = _walk(fs, directory, segment, starts)
        if end < segment.size or row == last:
            cut_bytes = segment.size - end + sum(later.size for later in segments[row + 1 :])
            kept = (*segments[:row], segment if end == segment.size else segment.shortened(end))
            return ForeseenEnd(kept, next_offset, cut_bytes)
    raise AssertionError("the last segment ends every walk")


def _walk(fs: FileSystem, directory: Path, segment: SeenSegment, starts: Sequence[int]) -> tuple[int, int]:
    """Return the offset and the position behind the last sound batch, from the first start where there is one."""
    next_offset, end = segment.base_offset, 0
    with fs.open(directory / segment_file_name(segment.base_offset, LOG)) as file:
        for start in starts:
            try:
                for chunk in HeaderReader(file, size=segment.size, start=start, check_order_from=segment.base_offset):
                    last = chunk.batches[-1]
                    next_offset, end = int(last["last_offset"]) + 1, int(last["position"] + last["size"])
            except CorruptBatchError:
                pass  # the torn end; or, where nothing was read, an index that leads astray
            if end:
                break
    return next_offset, end


def _last_indexed(fs: FileSystem, directory: Path, segment: SeenSegment) -> list[int]:
    """Return the last positions the offset index names, falling; while it is written its file is longer than that."""
    try:
        with fs.open(directory / segment_file_name(segment.base_offset, INDEX)) as file:
            data = file.read(min(file.size(), most_index_bytes(segment.size, OFFSET_ENTRY)), 0)
    except FileNotFoundError:
        return []
    entries = np.frombuffer(data[: len(data) - len(data) % OFFSET_ENTRY.itemsize], OFFSET_ENTRY)
    positions = entries["position"].astype(np.int64)
    offsets = entries["relative_offset"].astype(np.int64)
    rises = (np.diff(positions, prepend=0) > 0) & (np.diff(offsets, prepend=0) > 0) & (positions < segment.size)
    used = len(rises) if rises.all() else int(np.argmin(rises))
    return [int(position) for position in positions[max(0, used - _ENTRIES_TRIED) : used][::-1]]
