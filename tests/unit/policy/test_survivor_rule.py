"""The survivor rule; whatever decides between two records of a key asks it: passed the reverse, each reverses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.survivors import BlockRetention, MapSurvivors
from cleaner.format.batch import SegmentReader
from cleaner.format.key_digests import FIRST, KeyDigests, Words, new_secret
from cleaner.format.records import Block
from cleaner.kernels import offset_map as kernel
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.read.latest import Digest, LatestByKey
from cleaner.spark.clean.digest_task import DigestRows, RangeDigester, RangeStart
from cleaner.spark.clean.plan import PLACE_SHIFT, JobSettings, Range
from cleaner.spark.clean.small_log import surviving_codes
from cleaner.spark.clean.transactions import PassState
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import abort_rows
from cleaner.storage.segment.segment import Segment
from cleaner.verification.check.batches import BatchChecker
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.twice import TwiceFinder
from tests.support.log_builder import LogBuilder
from tests.unit.policy.survivor_rules import EARLIEST_OFFSET, RULES
from tests.unit.read.test_latest import blocks_of

pytestmark = pytest.mark.kernels

KEYS = "abacabb"
SURVIVORS = {LATEST_OFFSET: [3, 4, 6], EARLIEST_OFFSET: [0, 1, 3]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Write a log of these keys, a batch each, and return its `.log`."""
    builder = LogBuilder(index_interval_bytes=0)
    for key in KEYS:
        builder.append((key, "v"))
    return builder.write(tmp_path) / f"{0:020d}.log"


def no_flags(block: Block) -> np.ndarray:
    """Return a flag a batch, none set."""
    return np.zeros(len(block.batches), np.uint8)


def survivors_of(log: Path, rule: SurvivorRule, end_offset: int) -> list[int]:
    """Return the offsets that stay by a map, which has bits of offsets up to an end."""
    offset_map = OffsetMap(10, 20, rule)
    offset_map.clear(0, end_offset)
    (block,) = blocks_of(log)
    assert offset_map.put(KeyDigests().of(log, block, no_flags(block), offset_map.keys)) == len(KEYS)
    offset_map.latest_offset = len(KEYS) - 1
    verdicts = no_flags(block)
    MapSurvivors(offset_map, 0).judge(log, block, BlockRetention.undecided(len(verdicts), True), verdicts)
    assert sorted(offset_map.offsets().tolist()) == np.flatnonzero(verdicts).tolist()
    return np.flatnonzero(verdicts).tolist()


@pytest.mark.parametrize("rule", RULES)
def test_compiled_rule_is_the_plain_one(rule: SurvivorRule) -> None:
    """Its code means to kernels what its ranks mean elsewhere."""
    for one in range(3):
        for other in range(3):
            words = np.uint64(one + 1), np.uint64(other + 1)
            assert bool(kernel.supersedes(rule.code, *words)) == rule.supersedes(one, other)


def test_the_rule_is_the_latest_offset() -> None:
    """Of two records of a key the one of the higher offset stays (R-550)."""
    assert LATEST_OFFSET.code == kernel.LATEST_OFFSET
    assert LATEST_OFFSET.supersedes(8, 7)
    assert not LATEST_OFFSET.supersedes(7, 7)
    assert not LATEST_OFFSET.supersedes(7, 8)


@pytest.mark.parametrize("end_offset", [0, len(KEYS)])
@pytest.mark.parametrize("rule", RULES)
def test_map_asks_the_rule(log: Path, rule: SurvivorRule, end_offset: int) -> None:
    """Both putting keys and judging records, by the table or by the bits of offsets, follow the rule."""
    assert survivors_of(log, rule, end_offset) == SURVIVORS[rule]


@pytest.mark.parametrize("rule", RULES)
def test_latest_values_ask_the_rule(log: Path, rule: SurvivorRule) -> None:
    """Readers of a key's last record go by it."""

    def digest_all(digest: Digest) -> Iterator[Words]:
        for block in blocks_of(log):
            yield digest(log, block, no_flags(block))

    latest = LatestByKey(digest_all, 0, len(KEYS), 10, 10, rule)
    assert np.flatnonzero(latest.has(np.arange(len(KEYS)))).tolist() == SURVIVORS[rule]


@pytest.mark.parametrize("rule", RULES)
def test_digest_tasks_ask_the_rule(log: Path, rule: SurvivorRule) -> None:
    """A task of a round on Spark emits of each key the record that stays."""
    size = log.stat().st_size
    settings = JobSettings(log.parent, log.parent, "", 1, 0, len(KEYS) - 1, 1 << 20, 1 << 20, 10, 1e12, rule)
    whole = Range(0, 0, 0, 0, size, 0, size, 0, is_dirty=True, checks_index=False)
    digester = RangeDigester(FileSystem(), settings, RangeStart(whole, PassState(), None))
    offsets = [code >> PLACE_SHIFT for rows in digester.rows() for code in rows.codes.tolist()]
    assert sorted(offsets) == SURVIVORS[rule]


@pytest.mark.parametrize("rule", RULES)
def test_small_logs_on_spark_ask_the_rule(rule: SurvivorRule) -> None:
    """What one task reduces: the code that stays, and those that only ask and are superseded."""
    words = np.zeros(5, np.int64)
    codes = np.array([2 << 2, 3 << 2 | 1, 4 << 2 | 1, 5 << 2, 6 << 2], np.int64)
    expected = [2 << 2, 4 << 2 | 1] if rule == LATEST_OFFSET else [3 << 2 | 1, 5 << 2, 6 << 2]
    assert surviving_codes([DigestRows(words, words, codes)], rule).tolist() == expected


@pytest.mark.parametrize("rule", RULES)
def test_check_uses_the_rule(log: Path, rule: SurvivorRule) -> None:
    """Of a key that comes twice below the checkpoint, every record except the surviving one is reported."""
    findings: list[Finding] = []
    (chunk,) = SegmentReader(FileSystem().open(log), size=log.stat().st_size)
    checked = BatchChecker(1 << 20, new_secret()).check(log, chunk, digest_from=0)
    twice = np.sort(np.unique(checked.digests[:, FIRST]))
    finder = TwiceFinder(0, len(KEYS), abort_rows(()), twice, findings.append, rule)
    finder.add(Segment.open(FileSystem(), log.parent, 0), checked)
    assert sorted(finding.offset or 0 for finding in findings) == [
        offset for offset in range(len(KEYS)) if offset not in SURVIVORS[rule]
    ]
