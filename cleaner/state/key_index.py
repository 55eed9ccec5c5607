"""
The key index of a segment: what a round must know of it to leave it unread. One file, all numbers little-endian.

    header   SegmentFacts, the number of bucket bits b, a checksum of the body, a checksum of the header
    body     blocks of up to 4096 buckets: for each bucket the number of its keys (uint16), then for each key the
             32 bits of its digest after the first b (uint32), ascending in a bucket

The first b bits of a digest number its bucket; b is chosen so that a bucket has 8 to 16 keys. So a key takes 4.2 bytes.
Two keys with the same first b + 32 bits cannot be told apart: the segment is then read for nothing, about once in
2**(b + 32) pairs of keys.

Digests are made under a key that only the index's directory has (`key_index_dir.py`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.policy.unread import FileIdentity, ReadSettings, SegmentFacts, SegmentIdentity
from cleaner.state.digest_runs import PART_BITS, DigestRuns, Digests
from cleaner.storage.fs.file_system import UNFINISHED, File, FileSystem

_MAGIC = b"ckeyidx\x01"  # the last byte is the version; another meaning of a byte is another version
_HEADER = struct.Struct("<8s8sQB3qqqqq12qq61s61sI")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size

_LOW_BITS = 32
_KEYS_A_BUCKET_BITS = 3
_BLOCK_BITS = 12
_MOST_BUCKET_BITS = 32
_MOST_IN_BUCKET = 2**16 - 1
_WRITE_BYTES = 1 << 20

Counts = npt.NDArray[np.uint16]
Lows = npt.NDArray[np.uint32]


class DamagedIndexError(ValueError):
    """An index is not what was written; it is as good as none."""


class IndexBlock(NamedTuple):
    """Some buckets: how many of a digest's bits number a bucket, the first one's number, and their keys."""

    bucket_bits: int
    first_bucket: int
    counts: Counts
    lows: Lows


def bucket_bits_of(keys: int) -> int:
    """Return how many of a digest's first bits number a bucket."""
    return min(max(0, keys.bit_length() - 1 - _KEYS_A_BUCKET_BITS), _MOST_BUCKET_BITS)


def index_bytes(keys: int) -> int:
    """Return the size of an index."""
    return HEADER_BYTES + (2 << bucket_bits_of(keys)) + 4 * keys


class KeyIndexFile:
    """
    A stored index, opened; use it in a `with` block.

    Raises:
        FileNotFoundError: there is none.
        DamagedIndexError: its header is damaged, or of another version.
        LogDirOfflineError: the disk refused.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file: File = fs.open(path)
        try:
            self.size = self._file.size()
            self.facts, self._bucket_bits, self._checksum = _parse(self._file.read(HEADER_BYTES, 0))
            if self.size != HEADER_BYTES + (2 << self._bucket_bits) + 4 * self.facts.keys:
                raise DamagedIndexError("its length is wrong")
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> KeyIndexFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def blocks(self) -> Iterator[IndexBlock]:
        """
        Yield all keys. Only after the last one is known that all were right.

        Raises:
            DamagedIndexError: the content is not what was written; at the end at the latest.
        """
        position, checksum, bits = HEADER_BYTES, 0, self._bucket_bits
        buckets = min(1 << bits, 1 << _BLOCK_BITS)
        for first in range(0, 1 << bits, buckets):
            counts: Counts = np.empty(buckets, "<u2")
            self._fill(counts, position)
            position += counts.nbytes
            keys = int(counts.sum(dtype=np.int64))
            if position + 4 * keys > self.size:
                raise DamagedIndexError("its counts are wrong")
            lows: Lows = np.empty(keys, "<u4")
            self._fill(lows, position)
            position += lows.nbytes
            checksum = zlib.crc32(lows.data, zlib.crc32(counts.data, checksum))
            yield IndexBlock(bits, first, counts, lows)
        if position != self.size or checksum != self._checksum:
            raise DamagedIndexError("its checksum is wrong")

    def _fill(self, array: npt.NDArray[np.generic], position: int) -> None:
        if self._file.read_into(array.data.cast("B"), position) != array.nbytes:
            raise DamagedIndexError("it ends early")


def write_key_index(fs: FileSystem, path: Path, facts: SegmentFacts, runs: DigestRuns) -> int:
    """
    Write a segment's index: a crash leaves the file that was there, none, or the whole new one.

    It is not forced to disk: a torn file is noticed when it is read, and costs only time.

    Args:
        facts: their `keys` are those of `runs`.
        runs: the digests of all keys.
    Returns:
        The bytes written; 0 if the digests are no random numbers, and nothing was written.
    Raises:
        NoSpaceError, LogDirOfflineError: the disk refused; nothing is left.
    """
    temporary = path.with_name(path.name + UNFINISHED)
    fs.remove(temporary)
    try:
        with fs.create(temporary, like=None) as file:
            is_written = _write(file, facts, runs)
        if not is_written:
            fs.remove(temporary)
            return 0
        fs.rename(temporary, path)
    except BaseException:
        fs.remove(temporary)
        raise
    return index_bytes(facts.keys)


def _write(file: File, facts: SegmentFacts, runs: DigestRuns) -> bool:
    bits = bucket_bits_of(facts.keys)
    pending, position, checksum = bytearray(), HEADER_BYTES, 0
    for block in _blocks(bits, runs):
        if block is None:
            return False
        for part in block:
            checksum = zlib.crc32(part, checksum)
            pending += part
        if len(pending) >= _WRITE_BYTES:
            file.write(pending, position)
            position += len(pending)
            pending = bytearray()
    file.write(pending, position)
    file.write(_header(facts, bits, checksum), 0)
    return True


def _blocks(bits: int, runs: DigestRuns) -> Iterator[tuple[bytes, bytes] | None]:
    """Yield the bytes of each block: its counts and its keys; None if a bucket has too many keys to be counted."""
    buckets = min(1 << bits, 1 << _BLOCK_BITS)
    number = 0
    for part, blocks in _parts_of_blocks(runs, (1 << bits) // buckets):
        starts = np.arange(number, number + blocks, dtype=np.uint64) * np.uint64(buckets)
        at = np.searchsorted(part, starts << np.uint64(64 - bits) if bits else starts)
        for first, end in zip(at, [*at[1:], len(part)], strict=True):
            mine = part[first:end]
            # Where there is one bucket a shift by all 64 bits would be undefined.
            of_bucket = (mine >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(mine), np.int64)
            counts = np.bincount(of_bucket - number * buckets, minlength=buckets)
            if counts.max() > _MOST_IN_BUCKET:
                yield None
                return
            lows = mine >> np.uint64(64 - bits - _LOW_BITS)
            yield counts.astype("<u2").tobytes(), lows.astype("<u4").tobytes()
            number += 1


def _parts_of_blocks(runs: DigestRuns, blocks: int) -> Iterator[tuple[Digests, int]]:
    """Yield sorted digests of whole blocks, and of how many."""
    if runs.are_in_memory:
        yield next(runs.sorted_parts()), blocks
    elif blocks < 1 << PART_BITS:
        yield np.concatenate(list(runs.sorted_parts())), blocks
    else:
        for part in runs.sorted_parts():
            yield part, blocks >> PART_BITS


def _header(facts: SegmentFacts, bits: int, checksum: int) -> bytes:
    identity = facts.identity
    packed = _HEADER.pack(
        _MAGIC,
        facts.key_id,
        facts.keys,
        bits,
        *(facts.read_ms, facts.earliest_horizon_ms, facts.last_offset),
        *facts.settings,
        *(value for file in (identity.log, identity.offset_index, identity.time_index) for value in map(_signed, file)),
        identity.last_position,
        identity.first_header,
        identity.last_header,
        checksum,
    )
    return packed + _CHECKSUM.pack(zlib.crc32(packed))


def _signed(word: int) -> int:
    """Return a device or inode number, which may use all 64 bits, as a number with a sign."""
    return word - 2**64 if word >= 2**63 else word


def _parse(data: bytes) -> tuple[SegmentFacts, int, int]:
    if len(data) != HEADER_BYTES or data[: len(_MAGIC)] != _MAGIC:
        raise DamagedIndexError("it is no key index of this version")
    if _CHECKSUM.unpack(data[_HEADER.size :])[0] != zlib.crc32(data[: _HEADER.size]):
        raise DamagedIndexError("its header's checksum is wrong")
    values = _HEADER.unpack(data[: _HEADER.size])
    log, offset_index, time_index = (
        FileIdentity(values[at] % 2**64, values[at + 1] % 2**64, values[at + 2], values[at + 3]) for at in (11, 15, 19)
    )
    facts = SegmentFacts(
        SegmentIdentity(log, offset_index, time_index, values[24], values[25], last_position=values[23]),
        key_id=values[1],
        keys=values[2],
        read_ms=values[4],
        earliest_horizon_ms=values[5],
        last_offset=values[6],
        settings=ReadSettings(*values[7:11]),
    )
    return facts, values[3], values[26]
