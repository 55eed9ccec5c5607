"""
The first pass over a log that fits into one task: no rows are shuffled, and the task finds the last record of each key.

A log dir has thousands of such logs for each large one. For them Spark would spend more time on planning, sorting and
shuffling than on the work itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.spark.clean.digest_task import DigestRows, RangeStart, digest_range
from cleaner.spark.clean.plan import GROUP_SHIFT, OUTRANKING, Codes, JobSettings
from cleaner.spark.clean.verdicts import GroupBits, Verdicts
from cleaner.storage.fs.file_system import FileSystem

_NO_RANK = -(2**63)

ROWS_SHARE = 4
"""Rows are in memory together with the table they come from, and a second time while they are sorted."""


def digest_small_log(
    fs: FileSystem, settings: JobSettings, starts: Sequence[RangeStart], base_offsets: tuple[int, ...]
) -> tuple[GroupBits, ...] | None:
    """
    Digest all ranges of a log, one after the other, and write their reports and the verdicts.

    Args:
        base_offsets: of the groups, by number.
    Returns:
        The verdicts of every group that has any; None if there are more rows than a task may hold.
    """
    max_rows = settings.task_entries // ROWS_SHARE
    held: list[DigestRows] = []
    count = 0
    for start in starts:
        for rows in digest_range(fs, settings, start):
            count += len(rows.codes)
            if count > max_rows:
                return None
            held.append(rows)
    return save_verdicts(fs, settings.work_dir, base_offsets, surviving_codes(held, settings.rule))


def surviving_codes(held: Sequence[DigestRows], rule: SurvivorRule = LATEST_OFFSET) -> Codes:
    """Return for each key the code of its last record, and those of all superseded records that only ask; sorted."""
    if not any(len(rows.codes) for rows in held):
        return np.zeros(0, np.int64)
    sip, murmur, codes, numbers = (np.concatenate(column) for column in zip(*held, strict=True))
    if rule.numbers is not None:
        return _codes_by_number(DigestRows(sip, murmur, codes, numbers), rule)
    order = _by_key(sip, murmur)
    sip, murmur, codes = sip[order], murmur[order], codes[order]
    begins = np.flatnonzero(np.concatenate(([True], (sip[1:] != sip[:-1]) | (murmur[1:] != murmur[:-1]))))
    puts: npt.NDArray[np.bool_] = codes & 1 == 1
    ranks = rule.rank(codes)
    last_of_key = np.maximum.reduceat(np.where(puts, ranks, _NO_RANK), begins)
    last = np.repeat(last_of_key, np.diff(np.append(begins, len(codes))))
    return np.sort(codes[(puts & (ranks == last)) | (~puts & (ranks < last))])


def _by_key(sip: npt.NDArray[np.int64], murmur: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return an order in which rows of one key are neighbours."""
    order = np.argsort(sip)
    first, second = sip[order], murmur[order]
    if ((first[1:] == first[:-1]) & (second[1:] != second[:-1])).any():  # as good as never
        return np.lexsort((murmur, sip))
    return order


def _codes_by_number(rows: DigestRows, rule: SurvivorRule) -> Codes:
    """Do the same by numbers; in a round, too, a record that only asks is superseded by any other of its key."""
    puts = rows.codes & 1
    order = np.lexsort((rule.rank(rows.codes), rows.numbers, puts, rows.murmur, rows.sip))
    sip, murmur, codes, puts = rows.sip[order], rows.murmur[order], rows.codes[order], puts[order] == 1
    ends = np.concatenate(((sip[1:] != sip[:-1]) | (murmur[1:] != murmur[:-1]), [True]))
    counts = np.diff(np.append(-1, np.flatnonzero(ends)))
    has_any = np.repeat(puts[ends], counts)
    latest = np.maximum.reduceat(np.where(puts, codes, -1), np.cumsum(counts) - counts)
    codes[ends] |= (latest > codes[ends]) * np.int64(OUTRANKING)
    return np.sort(codes[(ends & puts) | (~puts & has_any)])


def by_group(codes: Codes) -> Iterator[Codes]:
    """Yield the codes of each group that has any; they are given in the order of their groups."""
    groups = codes >> GROUP_SHIFT
    return (some for some in np.split(codes, np.flatnonzero(groups[1:] != groups[:-1]) + 1) if len(some))


def save_verdicts(fs: FileSystem, work_dir: Path, base_offsets: tuple[int, ...], codes: Codes) -> tuple[GroupBits, ...]:
    """Write the bits of ascending codes, one file for each group that has any."""
    saved = []
    for some in by_group(codes):
        verdicts = Verdicts(base_offsets)
        verdicts.add(some)
        bits = verdicts.save(fs, work_dir)
        if bits is not None:
            saved.append(bits)
    return tuple(saved)
