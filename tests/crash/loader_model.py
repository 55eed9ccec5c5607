"""
Kafka's loader on a partition directory after a stop, computed on values: a slow, obvious twin of R-630 to R-635.

A new segment without an offset index gets one of zeros, of `segment.index.bytes` (R-310). The twin knows no fences
and does not use our loader, so it stands for any broker that starts on the directory. The rebuilt index files of a
segment (R-635) come from a table: `rebuilt[log bytes]` gives them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.batch_reader import batch_info, split_batches

INDEXES = (".index", ".timeindex", ".txnindex")
Files = dict[str, bytes]
DEFAULT_INDEX_BYTES = 10 << 20


def offset_of(name: str) -> int | None:
    """Return the number before the first dot, or None."""
    prefix = name.partition(".")[0]
    return int(prefix) if "." in name and prefix.isdigit() else None


def next_offset(base_offset: int, log: bytes) -> int:
    """Return the offset after the last batch of a segment (R-537)."""
    batches = split_batches(log)
    return batch_info(batches[-1]).last_offset + 1 if batches else base_offset


def load(found: Mapping[str, bytes], rebuilt: Mapping[bytes, Files], index_bytes: int = DEFAULT_INDEX_BYTES) -> Files:
    """Return the files left after the loader's four passes."""
    files = {name: data for name, data in found.items() if not name.endswith(".deleted")}
    cleaned = [name for name in files if name.endswith(".cleaned")]
    if cleaned:
        lowest = min(number for number in map(offset_of, cleaned) if number is not None)
        condemned = [name for name in files if name.endswith(".swap") and (offset_of(name) or 0) >= lowest]
        for name in (*condemned, *cleaned):
            del files[name]
    _finish_swap(files, index_bytes)
    _check_segments(files, rebuilt)
    return files


def _finish_swap(files: Files, index_bytes: int) -> None:
    swaps = {offset_of(name) or 0: data for name, data in files.items() if name.endswith(".log.swap")}
    if swaps:
        low, high = min(swaps), max(next_offset(base, log) for base, log in swaps.items())
        for base in swaps:
            files.setdefault(f"{base:020d}.index.swap", bytes(index_bytes // 8 * 8))
        for name in list(files):
            offset = offset_of(name)
            if not name.endswith(".swap") and offset is not None and low <= offset < high:
                del files[name]
    for name in [name for name in files if name.endswith(".swap")]:
        files[name.removesuffix(".swap")] = files.pop(name)


def _check_segments(files: Files, rebuilt: Mapping[bytes, Files]) -> None:
    stems = {name.removesuffix(".log") for name in files if name.endswith(".log")}
    for name in list(files):
        if name.endswith(INDEXES) and name.rpartition(".")[0] not in stems:
            del files[name]
    for stem in stems:
        if stem + ".index" not in files:
            for suffix in INDEXES:
                files.pop(stem + suffix, None)
            files |= {stem + suffix: data for suffix, data in rebuilt[files[stem + ".log"]].items()}
        files.setdefault(stem + ".timeindex", b"")
    last = max((int(stem) for stem in stems), default=-1)
    strays = [name for name in files if name.endswith(".snapshot") and name.removesuffix(".snapshot") not in stems]
    for name in strays:
        # The newest stray stays if it lies above every segment: the log end's.
        if name != max(strays) or (offset_of(name) or 0) <= last:
            del files[name]
