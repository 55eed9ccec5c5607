"""
The reduction by key in tasks of ours: each reducer holds all rows of its share of the keys.

    rows of a range -> by digest, a share of the keys -> the codes that stay -> by group: bits of offsets

Rows lie in files between tasks (`shares.py`), so that neither Spark nor Python touches a single one. A key's share
follows from the half of its digest that nobody can predict without the job's key, so that shares are even.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import GROUP_SHIFT, JobSettings
from cleaner.spark.clean.shares import Numbers, Run, ShareFile, ShareWriter, read_shares
from cleaner.spark.clean.small_log import by_group, surviving_codes
from cleaner.spark.clean.verdicts import GroupBits, Verdicts
from cleaner.storage.fs.file_system import FileSystem

ROWS, CODES = "rows-", "codes-"
"""How the files' names begin."""

Shared = tuple[ShareFile, Numbers]
"""A file of shares, and how many rows each share has."""


def share_rows(fs: FileSystem, work_dir: Path, found: Iterable[DigestRows], shares: int) -> Shared:
    """Write the rows of a range, by share of the keys."""
    writer = ShareWriter(fs, work_dir, ROWS, shares)
    # numpy sorts numbers of 16 bits in linear time.
    kind = np.uint16 if shares <= np.iinfo(np.uint16).max else np.uint32
    for rows in found:
        places = (rows.sip.view(np.uint64) % np.uint64(shares)).astype(kind)
        order = np.argsort(places, kind="stable")
        writer.add(places[order].astype(np.int64), np.stack(rows.columns, axis=1)[order])
    return writer.close(), writer.counts


def reduce_shares(
    fs: FileSystem, settings: JobSettings, files: Sequence[ShareFile], shares: int, groups: int, run: Run
) -> Shared:
    """
    Write the codes that stay of some shares of the keys, by group.

    Args:
        files, shares: of `share_rows`.
        groups: how many there are.
    Raises:
        CorruptCheckpointError: a file is not what was written.
    """
    columns = len(DigestRows._fields) - (settings.rule.numbers is None)
    tables = read_shares(fs, settings.work_dir, files, run, shares=shares, columns=columns)
    codes = surviving_codes([DigestRows(*table.T) for table in tables], settings.rule)
    writer = ShareWriter(fs, settings.work_dir, CODES, groups)
    writer.add(codes >> GROUP_SHIFT, codes.reshape(-1, 1))
    return writer.close(), writer.counts


def gather_codes(
    fs: FileSystem,
    work_dir: Path,
    files: Sequence[ShareFile],
    base_offsets: tuple[int, ...],
    run: Run,
) -> tuple[GroupBits, ...]:
    """
    Write the bits of some groups.

    Args:
        files: of `reduce_shares`.
        base_offsets: of all groups, by number.
    Raises:
        CorruptCheckpointError: a file is not what was written.
    """
    verdicts = [Verdicts(base_offsets) for _ in range(run.first, run.end)]
    for codes in read_shares(fs, work_dir, files, run, shares=len(base_offsets), columns=1):
        for some in by_group(codes.ravel()):
            verdicts[(int(some[0]) >> GROUP_SHIFT) - run.first].add(some)
    saved = [each.save(fs, work_dir) for each in verdicts]
    return tuple(bits for bits in saved if bits is not None)
