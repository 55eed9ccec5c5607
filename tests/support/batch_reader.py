"""Reads back what tests need from batches: headers, markers, ends. For whole, sound bytes only."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from tests.support.batch_builder import HEADER, HEADER_BYTES, NO_PRODUCER, TRANSACTIONAL, Producer


class MemoryFile:
    """
    A `.log` in memory, for the product's readers; `shrink_to` makes it end earlier than the size they are given.

    Attributes:
        reads: position and length of each read that was asked for.
        bytes_read: what they got.
    """

    def __init__(self, content: bytes, shrink_to: int | None = None) -> None:
        self.path = Path("some.log")
        self.reads: list[tuple[int, int]] = []
        self.bytes_read = 0
        self._content = content[:shrink_to]

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`."""
        part = self._content[position : position + len(buffer)]
        buffer[: len(part)] = part
        self.reads.append((position, len(buffer)))
        self.bytes_read += len(part)
        return len(part)


class BatchInfo(NamedTuple):
    """What a log must know of a batch that it appends."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int
    attributes: int
    producer: Producer
    magic: int
    record_count: int


def batch_info(batch: bytes) -> BatchInfo:
    """Read back the header of one batch or legacy entry."""
    magic = batch[16]
    if magic < 2:
        (offset,) = struct.unpack_from(">q", batch)
        time = struct.unpack_from(">q", batch, 18)[0] if magic == 1 else -1
        return BatchInfo(offset, offset, time, -1, batch[17], NO_PRODUCER, magic, 1)
    base, _, leader_epoch, _, _, attributes, delta, _, max_time, producer_id, epoch, sequence, count = (
        HEADER.unpack_from(batch)
    )
    producer = Producer(producer_id, epoch, sequence, bool(attributes & TRANSACTIONAL))
    return BatchInfo(base, base + delta, max_time, leader_epoch, attributes, producer, magic, count)


def split_batches(log: bytes) -> list[bytes]:
    """Cut the bytes of a `.log` into its batches; every length must be right."""
    found: list[bytes] = []
    at = 0
    while at < len(log):
        size = int(struct.unpack_from(">i", log, at + 8)[0]) + 12
        if size < 26 or at + size > len(log):
            raise ValueError(f"no whole batch at byte {at}")
        found.append(log[at : at + size])
        at += size
    return found


def without_room(log: bytes) -> bytes:
    """Return a `.log` without the zeros that a writer with `preallocate` keeps behind its batches while it is open."""
    end = 0
    while len(log) - end >= HEADER_BYTES and (size := int(struct.unpack_from(">i", log, end + 8)[0])):
        end += size + 12
    return log if any(log[end:]) else log[:end]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode one varint or varlong; returns the value and the position after it."""
    number = shift = 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return (number >> 1) ^ -(number & 1), at


def read_marker(batch: bytes) -> tuple[int, int]:
    """Return type and coordinator epoch of a commit or abort marker (R-230, R-231)."""
    _, at = read_varint(batch, HEADER_BYTES)
    _, at = read_varint(batch, at + 1)
    _, at = read_varint(batch, at)
    size, at = read_varint(batch, at)
    (kind,) = struct.unpack_from(">h", batch, at + 2)
    _, at = read_varint(batch, at + size)
    (coordinator_epoch,) = struct.unpack_from(">i", batch, at + 2)
    return int(kind), int(coordinator_epoch)
