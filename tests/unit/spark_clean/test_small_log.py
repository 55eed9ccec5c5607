"""The first pass of a small log: of each key the last record, and what is asked of it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cleaner.spark.clean.digest_task import DigestRows
from cleaner.spark.clean.plan import GROUP_SHIFT
from cleaner.spark.clean.small_log import save_verdicts, surviving_codes
from cleaner.storage.fs.file_system import FileSystem

keys = st.tuples(st.sampled_from([-1, 0, 7]), st.sampled_from([-1, 0, 7]))


def rows_of(rows: list[tuple[tuple[int, int], int]]) -> DigestRows:
    """Return rows as a task emits them."""
    sip, murmur, codes = ([row[0][0] for row in rows], [row[0][1] for row in rows], [row[1] for row in rows])
    return DigestRows(np.array(sip, np.int64), np.array(murmur, np.int64), np.array(codes, np.int64))


@given(st.lists(st.tuples(keys, st.booleans()), max_size=40), st.integers(1, 5), st.randoms(use_true_random=False))
def test_surviving_codes_are_the_last_of_each_key_and_what_asks_before_it(
    records: list[tuple[tuple[int, int], bool]], parts: int, random: Random
) -> None:
    """Whatever the order of the rows; equal halves of two digests are two keys."""
    rows = [(key, place << 2 | puts) for place, (key, puts) in enumerate(records)]
    last = {key: code for key, code in rows if code & 1}
    expected = [code for key, code in rows if code == last.get(key) or (not code & 1 and code < last.get(key, -1))]
    random.shuffle(rows)
    held = [rows_of(rows[first::parts]) for first in range(parts)]
    assert surviving_codes(held).tolist() == expected
    assert surviving_codes([]).tolist() == []


def test_verdicts_have_a_file_for_each_group_with_codes(tmp_path: Path) -> None:
    """Groups without any have none."""
    codes = np.array([1, 3, (2 << GROUP_SHIFT) | 1], np.int64)
    saved = save_verdicts(FileSystem(), tmp_path, (0, 50, 100), codes)
    assert [(bits.group, bits.count) for bits in saved] == [(0, 2), (2, 1)]
    assert sorted(bits.name for bits in saved) == sorted(path.name for path in tmp_path.iterdir())
    assert save_verdicts(FileSystem(), tmp_path, (0,), codes[:0]) == ()
