"""
The reduction by key in tasks of ours: each reducer holds all rows of its share of the keys.

    rows of a range -> by digest, a share of the keys -> the codes that stay -> by group: bits of offsets

Rows lie in files between tasks (`shares.py`), so that neither Spark nor Python touches a single one. A key's share
follows from the half of its digest that nobody can predict without the job's key, so that shares are even.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from cleaner.spark.clean.digest_task import DigestRows, RangeStart, digest_range
from cleaner.spark.clean.plan import GROUP_SHIFT, JobSettings
from cleaner.spark.clean.probe import at_work, require_probes
from cleaner.spark.clean.shares import Numbers, Run, ShareFile, ShareWriter, read_shares, runs_of
from cleaner.spark.clean.small_log import ROWS_SHARE, by_group, surviving_codes
from cleaner.spark.clean.verdicts import GroupBits, Verdicts
from cleaner.storage.fs.file_system import FileSystem

SHARE_BYTES = 32 << 20
"""Bytes of the log that have about as many rows as a share of the keys."""

_MIN_SHARES = 256  # a task takes several: so tasks can be even, and as large as they may be
_ROWS, _CODES = "rows-", "codes-"  # how the files' names begin

Work = TypeVar("Work")
Result = TypeVar("Result")

Shared = tuple[ShareFile, Numbers]
"""A file of shares, and how many rows each share has."""


class InTasks(Protocol):
    """Does works in tasks, and returns their results in order."""

    def __call__(self, task: Callable[[Work], Result], works: Sequence[Work], /) -> list[Result]:
        """Raise what Spark raises if a task fails."""


def digest_in_memory(
    settings: JobSettings,
    starts: Sequence[RangeStart],
    base_offsets: tuple[int, ...],
    *,
    slots: int,
    in_tasks: InTasks,
    make_fs: Callable[[], FileSystem] = FileSystem,
) -> tuple[GroupBits, ...] | None:
    """
    Digest all ranges, and reduce in tasks that hold all rows of some keys.

    Args:
        starts: the ranges, by number.
        base_offsets: of the groups, by number.
        slots: how many tasks run at the same time.
        make_fs: makes a task's access to the disk.
    Returns:
        The verdicts of every group that has any; None if one share of the keys has more rows than a task may hold.
    """
    max_rows = max(1, settings.task_entries // ROWS_SHARE)
    shares = max(_MIN_SHARES, sum(start.range.bytes for start in starts) // SHARE_BYTES)
    fs = make_fs()

    @contextmanager
    def passed_on(
        kind: str, task: Callable[[Work], Shared], works: Sequence[Work], count: int, most: int | None
    ) -> Iterator[tuple[tuple[ShareFile, ...], list[Run] | None]]:
        """Run tasks that write files of `count` shares, removed at the end; also returns the runs of later tasks."""
        try:
            found = in_tasks(task, works)
            counts: Numbers = np.sum([np.zeros(count, np.int64), *(rows for _, rows in found)], axis=0)
            runs = runs_of(counts, int(counts.max(initial=1)) if most is None else most, slots)
            yield tuple(file for file, _ in found), runs
        finally:
            names = [name for name in fs.list_files(settings.work_dir) if name.startswith(kind)]  # of all attempts
            fs.remove_all(settings.work_dir, names)

    with passed_on(_ROWS, partial(_share, make_fs, settings, shares), starts, shares, max_rows) as (files, runs):
        if not runs:
            return None if runs is None else ()
        reduce = partial(_reduce, make_fs, settings, files, shares, len(base_offsets))
        # A group's bits are made of all its codes, however many; these need no sorting, nor digests.
        with passed_on(_CODES, reduce, runs, len(base_offsets), None) as (files, groups):
            found = in_tasks(partial(_gather, make_fs, settings, files, base_offsets), groups or [])
    return tuple(bits for some in found for bits in some)


def _share(make_fs: Callable[[], FileSystem], settings: JobSettings, shares: int, start: RangeStart) -> Shared:
    """Digest a range; in a task."""
    with at_work(fs := make_fs(), settings):
        return share_rows(fs, settings.work_dir, digest_range(fs, settings, start), shares)


def _reduce(
    make_fs: Callable[[], FileSystem],
    settings: JobSettings,
    files: Sequence[ShareFile],
    shares: int,
    groups: int,
    run: Run,
) -> Shared:
    """Reduce some shares of the keys; in a task."""
    require_probes(fs := make_fs(), settings)
    return reduce_shares(fs, settings, files, shares, groups, run)


def _gather(
    make_fs: Callable[[], FileSystem],
    settings: JobSettings,
    files: Sequence[ShareFile],
    base_offsets: tuple[int, ...],
    run: Run,
) -> tuple[GroupBits, ...]:
    """Collect the codes of some groups in files of bits; in a task."""
    require_probes(fs := make_fs(), settings)
    return gather_codes(fs, settings.work_dir, files, base_offsets, run)


def share_rows(fs: FileSystem, work_dir: Path, found: Iterable[DigestRows], shares: int) -> Shared:
    """Write the rows of a range, by share of the keys."""
    # numpy sorts numbers of 16 bits in linear time.
    kind = np.uint16 if shares <= np.iinfo(np.uint16).max else np.uint32
    with ShareWriter(fs, work_dir, _ROWS, shares) as writer:
        for rows in found:
            places = (rows.sip.view(np.uint64) % np.uint64(shares)).astype(kind)
            order = np.argsort(places, kind="stable")
            writer.add(places[order].astype(np.int64), np.stack(rows.columns, axis=1)[order])
    return writer.file, writer.counts


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
    with ShareWriter(fs, settings.work_dir, _CODES, groups) as writer:
        writer.add(codes >> GROUP_SHIFT, codes.reshape(-1, 1))
    return writer.file, writer.counts


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
