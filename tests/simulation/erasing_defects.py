"""Planted defects of `erase`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.app import erase_kept, erase_log_dir
from cleaner.cleaning.recopy.erasure import ErasedRecords, ErasingRecopier
from cleaner.cleaning.round.erase import Kept, SegmentEraser
from cleaner.format.chunks import CONTROL_FLAG
from cleaner.storage.fs.shred import Shredder
from tests.simulation.planting import breaks


@breaks(SegmentEraser, "search")
def erase_passes_over_the_last_segment(real: Any, self: Any, segments: Any, end_of: Any) -> Any:
    """As a round does: the active segment is not cleaned."""
    return real(self, segments[:-1], end_of)


@breaks(SegmentEraser, "search")
def erase_removes_segments_that_are_empty_then(real: Any, self: Any, segments: Any, end_of: Any) -> Any:
    """A segment that has nothing else is passed over."""
    return [each for each in real(self, segments, end_of) if each.bytes_after]


@breaks(Kept, "of")
def erase_forgets_the_end_of_the_log(real: Any, log: Any) -> Any:
    """The last batch goes if its records do."""
    kept = real(log)
    return replace(kept, ends=set(kept.ends) - {log.log_end_offset - 1})


@breaks(ErasedRecords, "passed_over")
def erase_passes_over_transactions(real: Any, self: Any, chunk: Any) -> Any:
    """Transactional batches are taken for control batches."""
    return real(self, chunk) | (chunk.batches["attributes"] & (CONTROL_FLAG >> 1) != 0).astype(np.uint8)


@breaks(ErasingRecopier, "_aborts")
def erase_drops_the_transaction_index(real: Any, self: Any) -> Any:
    """Readers take aborted records for committed ones."""
    return real(self)[:0]


@breaks(erase_log_dir, "find_places")
def erase_passes_over_renamed_directories(real: Any, *args: Any) -> Any:
    """What a broker has put aside is not searched."""
    return [place for place in real(*args) if place.place == "log"]


@breaks(erase_kept.KeptErasure, "_erase")
def erase_passes_over_what_is_kept(_: Any, self: Any, eraser: Any, todo: Any) -> None:
    """Of `--keep-old`, nothing is rewritten."""


@breaks(erase_kept.KeptErasure, "after")
def erase_leaves_the_manifest_as_it_was(real: Any, self: Any, log: Any) -> None:
    """Which then describes files that are no longer there."""


@breaks(Shredder, "overwrite")
def shredding_overwrites_the_next_file(real: Any, self: Any, fs: Any, path: Any) -> None:
    """Of a renamed file, the one that has its old name."""
    real(self, fs, path)
    successor = path.with_name(path.name.removesuffix(".deleted"))
    if path.name.endswith(".log.deleted") and successor.exists():
        real(self, fs, successor)


@breaks(Kept, "of")
def erase_drops_the_first_batch_of_a_transaction(real: Any, log: Any) -> Any:
    """Where an open transaction begins is in a snapshot alone."""
    return replace(real(log), starts=set())
