"""
Producer snapshots: `<offset>.snapshot`, the state of every active producer up to an offset, exclusive.

    i16 version = 1 | u32 CRC-32C of the rest | i32 number of entries | entries of 46 bytes each

Kafka writes the entries in the iteration order of a Java `HashMap<Long, ...>`. `java_order` computes that order, so
that a snapshot written here equals Kafka's byte for byte.

Source: rule R-125; `ProducerStateManager.java`, `ProducerSnapshot.json`; the order: OpenJDK's `HashMap`, `Long`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cleaner.errors import CorruptCheckpointError
from cleaner.format.checksums import crc32c
from cleaner.storage.files.checkpoint import read_bounded
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import ReadableFiles

SNAPSHOT_LIMIT_BYTES = 64 << 20
"""Largest snapshot read: 1.4 million producers of one partition; a busy one has some thousands."""

VERSION = 1  # Value on disk, never changes.

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_ENTRY = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp_ms", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
SnapshotRows = npt.NDArray[np.void]
_CRC_POSITION = 2
_COUNT_POSITION = 6  # the CRC covers everything from here on
assert _HEADER.size == 10  # noqa: S101 - widths of R-125
assert _ENTRY.size == SNAPSHOT_ENTRY.itemsize == 46  # noqa: S101

# java.util.HashMap: the initial table size, and the limits for building a tree instead of growing.
_FIRST_TABLE = 16
_CHAIN_LIMIT = 8
_SMALLEST_TREE_TABLE = 64


SEQUENCES = 2**31
"""Sequence numbers are Kafka's int32: 0 follows the highest (R-211)."""


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` after another one; -1, for none, stays."""
    return sequence if sequence == -1 else (sequence + count) % SEQUENCES


class ProducerEntry(NamedTuple):
    """
    The state of one producer, fields in the order of the bytes.

    `last_offset` is below 0 while the producer has no data batch (then `last_sequence` is -1 and `offset_delta` 0);
    `current_txn_first_offset` is -1 while it has no open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Sequence[ProducerEntry], max_entries: int = 0) -> bytes:
    """
    Return the bytes of a snapshot file.

    Args:
        entries: one per producer, in the order in which they became known.
        max_entries: the largest number of producers known at one time, if more than now. A Java map never shrinks,
            and its size decides the order.
    Raises:
        ValueError: a producer id occurs twice.
    """
    by_id = {entry.producer_id: entry for entry in entries}
    if len(by_id) != len(entries):
        raise ValueError("a producer id occurs twice")
    body = bytearray(struct.pack(">i", len(entries)))
    for producer_id in java_order(by_id, max_entries):
        body += _ENTRY.pack(*by_id[producer_id])
    return struct.pack(">hI", VERSION, crc32c(bytes(body))) + bytes(body)


def decode_rows(data: bytes, path: Path) -> SnapshotRows:
    """
    Decode a snapshot file.

    Args:
        data: the whole file.
        path: for error messages.
    Returns:
        SNAPSHOT_ENTRY rows in file order.
    Raises:
        CorruptCheckpointError: another version, a wrong checksum, or more entries announced than the bytes can hold.
            Kafka deletes such a snapshot and tries the next older one.
    """
    if len(data) < _HEADER.size:
        raise CorruptCheckpointError(
            path, len(data), f"a snapshot of {len(data)} bytes, at least {_HEADER.size} expected"
        )
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptCheckpointError(path, 0, f"snapshot version {version}, only {VERSION} is known")
    # Bounded by the actual bytes, not by what the file claims.
    if not 0 <= count <= (len(data) - _HEADER.size) // _ENTRY.size:
        raise CorruptCheckpointError(path, _COUNT_POSITION, f"{count} producers announced in {len(data)} bytes")
    actual = crc32c(data[_COUNT_POSITION:])
    if crc != actual:
        raise CorruptCheckpointError(path, _CRC_POSITION, f"checksum {crc:#010x} but the bytes have {actual:#010x}")
    return np.frombuffer(data, SNAPSHOT_ENTRY, count, _HEADER.size)


def read_snapshot(fs: ReadableFiles, path: Path) -> SnapshotRows:
    """
    Read a snapshot file.

    Returns:
        SNAPSHOT_ENTRY rows in file order.
    Raises:
        FileNotFoundError: the file does not exist.
        CorruptCheckpointError: as `decode_rows`, or absurdly long.
    """
    data = read_bounded(fs, path, SNAPSHOT_LIMIT_BYTES)
    if data is None:
        raise FileNotFoundError(path)
    return decode_rows(data, path)


def write_snapshot(fs: FileSystem, path: Path, entries: Sequence[ProducerEntry], max_entries: int = 0) -> None:
    """Write or replace a snapshot file durably; the arguments are those of `encode_snapshot`."""
    fs.write_atomically(path, encode_snapshot(entries, max_entries))


def java_order(producer_ids: Iterable[int], max_entries: int = 0) -> list[int]:
    """
    Return producer ids in the iteration order of a Java `HashMap` to which they were added in the given order.

    The map is a table of buckets, doubled when it is three quarters full; within a bucket, ids are in the order of
    insertion. A bucket with more than eight entries also doubles a small table. In a large one it becomes a tree, whose
    order may differ: that takes nine producer ids that agree in their low bits, and is not reproduced.
    """
    ids = list(producer_ids)
    table = _FIRST_TABLE
    lengths: dict[int, int] = {}
    for known, producer_id in enumerate(ids, start=1):
        bucket = _spread_hash(producer_id) % table
        lengths[bucket] = lengths.get(bucket, 0) + 1
        grows = lengths[bucket] > _CHAIN_LIMIT and table < _SMALLEST_TREE_TABLE
        wanted = table * 2 if grows else table
        if known > wanted * 3 // 4:
            wanted *= 2
        if wanted != table:
            table = wanted
            lengths = _chain_lengths(ids[:known], table)
    while max_entries > table * 3 // 4:
        table *= 2
    return sorted(ids, key=lambda producer_id: _spread_hash(producer_id) % table)


def _chain_lengths(ids: Iterable[int], table: int) -> dict[int, int]:
    lengths: dict[int, int] = {}
    for producer_id in ids:
        bucket = _spread_hash(producer_id) % table
        lengths[bucket] = lengths.get(bucket, 0) + 1
    return lengths


def _spread_hash(producer_id: int) -> int:
    """Return `Long.hashCode` with its high half mixed into the low one, as `HashMap` does; unsigned."""
    unsigned = producer_id & 0xFFFF_FFFF_FFFF_FFFF
    hash_code = (unsigned ^ (unsigned >> 32)) & 0xFFFF_FFFF
    return hash_code ^ (hash_code >> 16)
