"""Rows sorted by key, in memory or through a file, against a dictionary."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.verification.proof.findings import MAX_FINDINGS
from cleaner.verification.proof.key_rows import KEPT, MAY_GO, MUST_GO, KeyRows
from cleaner.verification.proof.last_values import RefutedRecords, Uncounted, judge

NONE: dict[str, list[tuple[int, int]]] = {"aborted": [], "passed_over": [], "doubtful": []}
Row = tuple[int, int, int, int]


def key_rows(tmp_path: Path, rows: list[Row], memory_bytes: int, made: list[Path] | None = None) -> KeyRows:
    """Return rows (digest, its rest, offset, flags), added a few at a time."""

    def make() -> File:
        path = tmp_path / f"rows-{len(list(tmp_path.iterdir()))}"
        if made is not None:
            made.append(path)
        return FileSystem().create(path, like=tmp_path)

    found = KeyRows(memory_bytes, make)
    for at in range(0, len(rows), 37):
        found.add(np.array(rows[at : at + 37], np.uint64))
    return found


def within(offset: int, batches: list[tuple[int, int]]) -> bool:
    return any(low <= offset <= high for low, high in batches)


def expected(
    rows: list[Row], first_dirty: int, uncounted: dict[str, list[tuple[int, int]]], *, is_one_round: bool
) -> dict[str, list[int]]:
    """The obvious way: the keys, and the offsets that are refuted."""
    counted = [row for row in rows if not within(row[2], uncounted["aborted"])]
    by_key: dict[tuple[int, int], list[Row]] = {}
    for row in counted:
        by_key.setdefault(row[:2], []).append(row)
    lost, superseded, expired = [], [], []
    for mine in by_key.values():
        possible = [row[2] for row in mine if not within(row[2], uncounted["passed_over"])]
        certain = max([at for at in possible if not within(at, uncounted["doubtful"])], default=-1)
        last = max(possible, default=-1)
        first_kept = min([row[2] for row in mine if row[3] & KEPT], default=1 << 60)
        for _, _, offset, flags in mine:
            # A row at or above the first dirty offset stands for all that come before it.
            if is_one_round:
                stays = offset >= last or last < first_dirty
            else:
                stays = offset == last or certain <= offset > first_kept
            if stays and not flags & (KEPT | MAY_GO):
                lost.append(offset)
            if flags & KEPT and offset < certain >= first_dirty:
                superseded.append(offset)
            elif flags & KEPT and flags & MUST_GO:
                expired.append(offset)
    refuted = {"lost": lost, "superseded": superseded, "expired": expired}
    return {"keys": [len(by_key)], **{name: sorted(offsets) for name, offsets in refuted.items()}}


def uncounted(batches: dict[str, list[tuple[int, int]]]) -> Uncounted:
    return Uncounted(**{name: np.array(some, np.int64).reshape(-1, 2) for name, some in batches.items()})


@pytest.mark.parametrize("has_passed_over", [False, True], ids=["plain", "passed-over"])
@pytest.mark.parametrize("is_one_round", [True, False], ids=["one-round", "rounds"])
@pytest.mark.parametrize("memory_bytes", [1, 1 << 24], ids=["on-disk", "in-memory"])
@pytest.mark.parametrize("seed", range(6))
def test_judgement_agrees_with_a_dictionary(
    tmp_path: Path, seed: int, memory_bytes: int, is_one_round: bool, has_passed_over: bool
) -> None:
    """
    Random rows, digests that agree in their first half, and a key with most of the records, which then does not fit the
    memory its part may take.
    """
    randomness = random.Random(seed)
    keys = [(randomness.getrandbits(64), randomness.getrandbits(64)) for _ in range(300)]
    keys += [(keys[0][0], 1), (keys[0][0], 2)]
    rows: list[Row] = []
    for offset in range(6000):
        key = keys[7] if randomness.random() < 0.6 else randomness.choice(keys)
        flags = randomness.choice([0, KEPT, KEPT, KEPT | MUST_GO | MAY_GO, MAY_GO])
        rows.append((*key, 10 + 3 * offset, flags))
    batches = {"aborted": [(40, 45), (5000, 6000), (18_000, 18_009)], "passed_over": [], "doubtful": []}
    for start in range(9000, 17_000, 100) if has_passed_over else ():
        kinds = ["passed_over", "aborted"] if is_one_round else ["doubtful", "aborted"]
        batches[randomness.choice(kinds)].append((start, start + randomness.choice([0, 30, 90])))
    batches = {name: sorted(some) for name, some in batches.items()}
    made: list[Path] = []
    found = judge(key_rows(tmp_path, rows, memory_bytes, made), 9000, uncounted(batches), is_one_round=is_one_round)
    wanted = expected(rows, 9000, batches, is_one_round=is_one_round)

    assert [found.keys] == wanted.pop("keys")
    for name, offsets in wanted.items():
        refuted = getattr(found, name)
        assert (refuted.total, sorted(refuted.lowest.tolist())) == (len(offsets), offsets[:MAX_FINDINGS])
        assert offsets
    assert len(made) == (1 if memory_bytes == 1 else 0)


def test_no_rows_have_no_keys(tmp_path: Path) -> None:
    """An empty log is as right as any."""
    assert judge(key_rows(tmp_path, [], 1), 0, uncounted(NONE), is_one_round=True).keys == 0


def test_refuted_records_are_counted_and_the_first_of_them_kept() -> None:
    """A log beside one that has nothing to do with it refutes every record: memory must not follow their number."""
    refuted, offsets = RefutedRecords(), np.random.default_rng(1).permutation(50 * MAX_FINDINGS)
    for some in np.array_split(offsets, 20):
        refuted.add(some)
        assert len(refuted.lowest) <= MAX_FINDINGS
    assert refuted.total == len(offsets)
    assert sorted(refuted.lowest.tolist()) == list(range(MAX_FINDINGS))
