"""
The reduction by key in tasks of ours: each reducer holds all rows of its share of the keys.

    rows of a range -> by digest, a share for each reducer -> the codes that stay -> by group: bits of offsets

Rows travel as bytes, thousands together, so that neither Spark nor Python touches a single one. A key's share follows
from the half of its digest that nobody can predict without the job's key, so that shares are even.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import GROUP_SHIFT, JobSettings
from cleaner.spark.clean.small_log import ROWS_SHARE, surviving_codes
from cleaner.spark.clean.verdicts import GroupBits, Verdicts
from cleaner.storage.fs.file_system import FileSystem

Shared = tuple[int, bytes | None]
"""The number of a reducer or group, and numbers of 64 bits for it; None: a reducer had too many rows."""


def split_rows(rows: DigestRows, reducers: int) -> Iterator[Shared]:
    """Yield the rows of each reducer that has any: all of the first column, then of the second, and so on."""
    # numpy sorts numbers of 16 bits in linear time.
    kind = np.uint16 if reducers <= np.iinfo(np.uint16).max else np.uint32
    places = (rows.sip.view(np.uint64) % np.uint64(reducers)).astype(kind)
    order = np.argsort(places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=reducers))
    table = np.stack([column[order] for column in rows.columns])
    begin = 0
    for number, end in enumerate(ends.tolist()):
        if end > begin:
            yield number, table[:, begin:end].tobytes()
        begin = end


def reduce_rows(settings: JobSettings, shares: Iterator[Shared]) -> Iterator[Shared]:
    """Yield the codes that stay, group by group; only `(0, None)` if there are more rows than a task may hold."""
    max_rows = max(1, settings.task_entries // ROWS_SHARE)
    held: list[DigestRows] = []
    count = 0
    columns = len(DigestRows._fields) - (settings.rule.numbers is None)
    for _, data in shares:
        rows = np.frombuffer(data or b"", np.int64).reshape(columns, -1)
        count += rows.shape[1]
        if count > max_rows:
            yield 0, None
            return
        held.append(DigestRows(*rows))
    codes = surviving_codes(held, settings.rule)
    groups = codes >> GROUP_SHIFT
    for some in np.split(codes, np.flatnonzero(groups[1:] != groups[:-1]) + 1):
        if len(some):
            yield int(some[0]) >> GROUP_SHIFT, some.tobytes()


def gather_codes(
    fs: FileSystem, work_dir: Path, base_offsets: tuple[int, ...], shares: Iterator[Shared]
) -> Iterator[GroupBits | None]:
    """Write the bits of a group, if it has any; None if a reducer had too many rows."""
    verdicts = Verdicts(base_offsets)
    for _, data in shares:
        if data is None:
            yield None
            return
        verdicts.add(np.frombuffer(data, np.int64))
    saved = verdicts.save(fs, work_dir)
    if saved is not None:
        yield saved
