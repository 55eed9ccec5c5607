"""
How near a round comes to what the machine can do: `make bench ARGS="--only limits"`, by itself, without Kafka.

The limit of an input is what a round on one thread cannot do without, each part measured alone in the same run on the
same bytes, from the page cache, on one thread:

    read      the dirty section twice, the clean one once, and what is written once more, in windows of 2 MiB
    check     CRC-32C of the same bytes
    table     each key of the dirty section put into the offset map, its digest already made
    codec     unpacking what is read of the old segments, and packing what stays
    write     what stays, in pieces of 512 KiB, with the fsync at the end

Not in it: parsing records, digests, verdicts, rebuilding batches, and all Python. So no round reaches 100 %. Removing
the old segments is measured too; it goes on behind a round.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cleaner
from benchmarks.cleaners import NOW_MS, copy
from benchmarks.inputs import PARTITION, Input, cached
from benchmarks.tables import table
from cleaner.app.reports import CleanReport
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.config.values import MAP_ENTRY_BYTES
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import COMPRESSION_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES
from cleaner.format.compression import compress, decompress
from cleaner.format.key_digests import OFFSET_PLUS_1
from cleaner.kernels.checksums import crc32c
from cleaner.kernels.offset_map import DIGEST_WORDS
from tests.kafka.rig import Rig

_WINDOW_BYTES = 2 << 20
_PIECE_BYTES = 512 << 10
_MAP_BYTES = 128 << 20
_KEYS_A_CALL = 1 << 14
_PARTS = ("read", "check", "table", "codec", "write")
_ATTRIBUTES_AT = 22  # the lower byte
_LARGEST_BATCH_BYTES = 1 << 26


class Limit(NamedTuple):
    """Seconds of the parts of one round, as in `_PARTS`, of the round itself on one thread, and of removing."""

    parts: tuple[float, ...]
    round: float
    remove: float


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _read_and_check(path: Path, size: int, window: memoryview) -> tuple[float, float]:
    """Return the seconds of reading some bytes of a file, and of their checksums; 0 bytes take none."""
    reading = checking = 0.0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for position in range(0, size, _WINDOW_BYTES):
            part = window[: min(_WINDOW_BYTES, size - position)]
            began = time.perf_counter()
            os.preadv(descriptor, [part], position)
            read = time.perf_counter()
            crc32c(part)
            reading += read - began
            checking += time.perf_counter() - read
    finally:
        os.close(descriptor)
    return reading, checking


def _put(records: int, keys: int) -> float:
    """Return the seconds of putting so many records of so many keys into a map, in no order."""
    random = np.random.default_rng(1)
    digests = random.integers(0, 2**63, (max(keys, 1), 2), np.uint64) << np.uint64(1)
    rows = np.zeros((records, DIGEST_WORDS), np.uint64)
    rows[:, :2] = digests[random.integers(0, max(keys, 1), records)]
    rows[:, OFFSET_PLUS_1] = np.arange(1, records + 1)
    offset_map = OffsetMap(keys + 1, 2 * keys + 2)
    offset_map.clear(0, records)
    try:
        return _timed(lambda: [offset_map.put(rows[at : at + _KEYS_A_CALL]) for at in range(0, records, _KEYS_A_CALL)])
    finally:
        offset_map.close()


def _write(path: Path, size: int, data: memoryview) -> float:
    def write() -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        try:
            for position in range(0, size, _PIECE_BYTES):
                os.pwrite(descriptor, data[: min(_PIECE_BYTES, size - position)], position)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    return _timed(write)


def _batches(path: Path) -> Iterator[tuple[int, memoryview]]:
    """Yield the codec and the packed records of each packed batch."""
    data, at = memoryview(path.read_bytes()), 0
    while at < len(data):
        size = LOG_OVERHEAD_BYTES + int.from_bytes(data[at + 8 : at + 12], "big")
        codec = data[at + _ATTRIBUTES_AT] & COMPRESSION_MASK
        if codec:
            yield codec, data[at + HEADER_BYTES : at + size]
        at += size


def _unpack_and_pack(segments: list[Path], *, packs: bool) -> float:
    """Return the seconds of unpacking all batches, or of packing them again."""
    unpacked, packed, seconds = GrowingBuffer(), GrowingBuffer(), 0.0
    for segment in segments:
        for codec, records in _batches(segment):
            began = time.perf_counter()
            size = decompress(codec, 2, records, unpacked, 0, _LARGEST_BATCH_BYTES)
            if packs:
                began = time.perf_counter()
                compress(codec, unpacked.view[:size], packed, 0)
            seconds += time.perf_counter() - began
    return seconds


def _remove(segments: list[Path]) -> None:
    for segment in segments:
        segment.unlink()


def measure(log: Input, source: Path, scratch: Path) -> tuple[Limit, CleanReport]:
    """Measure the parts of one round, and the round."""
    log_dir = copy(source, scratch / "round")
    settings = {"cleanup.policy": "compact", "cleaner.pipeline.threads": "1", **log.topic}
    settings["log.cleaner.dedupe.buffer.size"] = str(_MAP_BYTES)
    began = time.perf_counter()
    report = cleaner.clean(log_dir, PARTITION, settings, now_ms=NOW_MS)
    whole = time.perf_counter() - began
    parts = copy(source, scratch / "parts")
    segments = sorted((parts / PARTITION).glob("*.log"))
    buffer = memoryview(bytearray(_WINDOW_BYTES))
    reading = checking = 0.0
    dirty_bytes, first_bytes = report.map_bytes_read, report.bytes_read - report.bytes_read_once
    written = report.bytes_written - report.bytes_in_place
    _read_and_check(segments[0], segments[0].stat().st_size, buffer)  # so that its memory is there
    for left, newest_first in ((dirty_bytes, True), (first_bytes, False)):
        for segment in sorted(segments, reverse=newest_first):
            size = min(left, segment.stat().st_size)
            seconds = _read_and_check(segment, size, buffer)
            reading, checking, left = reading + seconds[0], checking + seconds[1], left - size
    unpacked = _unpack_and_pack(segments, packs=False) * (dirty_bytes + first_bytes)
    packed = _unpack_and_pack(sorted((log_dir / PARTITION).glob("*.log"))[:-1], packs=True) if written else 0.0
    codec = unpacked / max(1, sum(segment.stat().st_size for segment in segments)) + packed
    table_seconds = _put(report.map_messages_read, round(report.map_utilization * (_MAP_BYTES // MAP_ENTRY_BYTES)))
    writing = _write(scratch / "parts" / "written", written, buffer)
    seconds = _read_and_check(scratch / "parts" / "written", written, buffer)
    reading, checking = reading + seconds[0], checking + seconds[1]
    removed = [segment for segment in segments if segment.stat().st_size] if written else []
    removing = _timed(lambda: _remove(removed))
    return Limit((reading, checking, table_seconds, codec, writing), whole, removing), report


def limits_table(rig: Rig, inputs: list[Input], scratch: Path, runs: int) -> str:
    """Return each input's parts, their sum, and how much of a round on one thread that is."""
    rows = []
    for log in inputs:
        source = cached(rig, log)
        measure(log, source, scratch)  # loads kernels, and makes the machine's memory ours
        found = [measure(log, source, scratch)[0] for _ in range(runs)]
        parts = [statistics.median(each.parts[number] for each in found) for number in range(len(_PARTS))]
        whole = statistics.median(each.round for each in found)
        cells = [*(f"{part:.3f}" for part in parts), f"{sum(parts):.2f}", f"{whole:.2f}"]
        removing = statistics.median(each.remove for each in found)
        rows.append([log.title, *cells, f"{100 * sum(parts) / whole:.0f} %", f"{removing:.3f}"])
    columns = ["input", *_PARTS, "limit s", "one thread s", "of it is limit", "removing s"]
    return table("What a round cannot do without, one thread", columns, rows)
