"""
The verdicts on a group's records, which one task collects in one file: one bit for each offset.

If a record's key counts, its bit says that it is the last one of its key. For any other record, the bit says that a
later record of its key exists. `cleaning/recopy/survivors.py` reads them. A group without bits has no file. A task
checks the file against the driver's checksum before it reads it: a file that lost bits would lose records.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cleaner.cleaning.recopy.offset_bits import OffsetBits
from cleaner.errors import CorruptCheckpointError
from cleaner.kernels.checksums import crc32c
from cleaner.spark.clean.plan import GROUP_SHIFT, OUTRANKING, PLACE_MASK, PLACE_SHIFT, Codes, GroupPlan
from cleaner.storage.fs.file_system import FileSystem

SKEWED = -1
"""Replaces a code: the key has more records that only ask than one reduction can answer."""

_MAX_BYTES = 1 << 34


@dataclass(frozen=True)
class GroupBits:
    """
    A file of bits.

    Attributes:
        group: number of the group.
        name: of the file, in the job's directory.
        count: bits set.
        checksum: CRC-32C of the file.
        outranked: records that stay though a later one of their key came, which lost by its number.
    """

    group: int
    name: str
    count: int
    checksum: int
    outranked: int = 0


@dataclass
class Verdicts:
    """
    Collects the codes of one group.

    Args:
        base_offsets: of all groups, by number.
    """

    base_offsets: tuple[int, ...]
    group: int = -1
    skewed: int = 0
    outranked: int = 0
    bits: OffsetBits | None = None

    def add(self, codes: Codes) -> None:
        """Set the bits of some codes; `SKEWED` ones are counted. Raises AssertionError: codes of several groups."""
        is_code = codes >= 0
        self.skewed += len(codes) - int(is_code.sum())
        codes = codes[is_code]
        if not len(codes):
            return
        self.outranked += int(np.count_nonzero(codes & OUTRANKING))
        group = int(codes[0]) >> GROUP_SHIFT
        if self.bits is None:
            self.group, self.bits = group, OffsetBits(self.base_offsets[group])
        if (codes >> GROUP_SHIFT != self.group).any():
            raise AssertionError("verdicts on more than one group in one partition")
        self.bits.set((codes >> PLACE_SHIFT) & PLACE_MASK)

    def save(self, fs: FileSystem, work_dir: Path) -> GroupBits | None:
        """Write the bits to a file whose name is unique to this attempt; None if there are no bits."""
        if self.bits is None:
            return None
        data = self.bits.to_bytes()
        name = f"bits-{self.group:07d}-{os.urandom(6).hex()}"
        with fs.create(work_dir / name, like=work_dir) as file:
            file.write(data, 0)
            file.fsync()
        return GroupBits(self.group, name, self.bits.count, crc32c(data), self.outranked)


def read_bits(fs: FileSystem, work_dir: Path, group: GroupPlan, saved: GroupBits | None) -> OffsetBits:
    """
    Read the bits of a group.

    Raises:
        CorruptCheckpointError: the file is not what was written.
        LogDirOfflineError: the disk failed.
    """
    if saved is None:
        return OffsetBits(group.base_offset)
    path = work_dir / saved.name
    data = fs.read_bytes(path, _MAX_BYTES)
    if crc32c(data) != saved.checksum:
        raise CorruptCheckpointError(path, 0, "its checksum is not that of what was written")
    try:
        bits = OffsetBits.from_bytes(data)
    except ValueError as error:
        raise CorruptCheckpointError(path, 0, str(error)) from error
    if (bits.base_offset, bits.count) != (group.base_offset, saved.count):
        raise CorruptCheckpointError(path, 0, "the bits of another group")
    return bits
