"""Committed batches that a first pass takes for aborted (R-510, R-511, R-533): what is proven, and what is not."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

import cleaner
from cleaner.app.check_log_dir import CheckOptions
from tests.golden.mutations import Mutator
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer
from tests.support.batch_reader import split_batches
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.verification_check.checking import check
from tests.unit.verification_proof.passed_over import NAME, Round, prove, random_rounds

pytestmark = pytest.mark.long

NOW = START_MS + 1000
LOG = "00000000000000000000.log"
VALUE = b"l\x021"  # the record at offset 3, as it lies in its batch
FEW, MANY = 60, 600


def clean(before: Path, after: Path, keys: int, **settings: str) -> Round:
    """Clean a copy with a map for so many keys."""
    shutil.copytree(before, after)
    chosen = {
        "cleanup.policy": "compact",
        "index.interval.bytes": "0",
        "log.cleaner.dedupe.buffer.size": str(24 * (keys + 1)),
        "log.cleaner.io.buffer.load.factor": str(keys / (keys + 1)),
    } | settings
    cleaner.clean(after, NAME, chosen, now_ms=NOW)
    return Round(before, after, NOW, chosen)


def two_rounds(tmp_path: Path, *last: tuple[str, str]) -> tuple[Round, Round]:
    """See `rounds`; `last` are records behind the transactions."""
    log = LogBuilder(index_interval_bytes=0)
    log.append(("a", "aborted"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=False)
    log.append(("k", "0"))
    log.append(("l", "1"))
    log.append(("l", "2"), producer=Producer(7, 0, 1, transactional=True))
    log.end_transaction(7, 0, commit=True)
    for record in last:
        log.append(record)
    log.roll()
    log.append(("z", "z"))
    before = tmp_path / "before"
    before.mkdir()
    write_log_dir(before, log)
    first = clean(before, tmp_path / "first", 1)
    return first, clean(first.after, tmp_path / "second", 10)


@pytest.fixture
def rounds(tmp_path: Path) -> tuple[Round, Round]:
    """
    Two rounds over one segment: the first ends at offset 3, behind the marker that aborts what producer 7 wrote at 0.

    So the second takes what producer 7 commits at 4 for aborted, and the value at 3 stays beside it.
    """
    return two_rounds(tmp_path)


def test_round_behind_an_abort_marker_is_proven(rounds: tuple[Round, Round]) -> None:
    """Both values are there: as one round, as one of two, and without their moment."""
    first, second = rounds
    assert prove(first.before, first.after, first.settings, now_ms=NOW).end_offset == 3
    for report in (
        prove(second.before, second.after, second.settings, now_ms=NOW),
        prove(first.before, second.after, second.settings, now_ms=NOW, since_ms=NOW),
        prove(first.before, second.after, second.settings),
    ):
        assert (report.findings, report.end_offset) == ((), 6)
    assert VALUE in (second.after / NAME / LOG).read_bytes()


def test_check_of_what_such_a_round_leaves_tells_no_damage(rounds: tuple[Round, Round]) -> None:
    """The key that occurs twice is worth a note: the record that comes later is in a transaction."""
    checked = check(rounds[1].after, options=CheckOptions(clean_section=True))
    assert (checked.damages, checked.notes) == ([], [("key-twice", LOG)])


def test_missing_value_that_such_a_round_keeps_is_reported_as_lost(rounds: tuple[Round, Round], tmp_path: Path) -> None:
    """Where the rounds are known: the value at 3 was superseded by nothing."""
    second = rounds[1]
    without = clean(second.before, tmp_path / "without", 10, **{"index.interval.bytes": "4096"})
    (without.after / NAME / LOG).write_bytes((second.after / NAME / LOG).read_bytes())
    path = without.after / NAME / LOG
    path.write_bytes(b"".join(batch for batch in split_batches(path.read_bytes()) if VALUE not in batch))
    report = prove(second.before, without.after, second.settings, now_ms=NOW)
    assert [(found.kind, found.offset) for found in report.findings] == [("lost", 3)]


def test_round_that_begins_before_the_marker_supersedes_as_ever(rounds: tuple[Round, Round], tmp_path: Path) -> None:
    """One round from offset 0 comes to the marker: had it left the value at 3, it would be refuted."""
    first, second = rounds
    whole = clean(first.before, tmp_path / "whole", 10)
    assert prove(first.before, whole.after, whole.settings, now_ms=NOW).is_proven
    assert VALUE not in (whole.after / NAME / LOG).read_bytes()
    refuted = prove(first.before, second.after, second.settings, now_ms=NOW)
    assert ("revived", 3) in [(found.kind, found.offset) for found in refuted.findings]


def test_source_without_indexes_leaves_both_outcomes_open(rounds: tuple[Round, Round], tmp_path: Path) -> None:
    """Without its indexes it is unknown where the first pass began to read: both outcomes are proven."""
    second = rounds[1]
    whole = clean(second.before, tmp_path / "whole", 10)
    # An offset index without entries leads to the beginning of the segment.
    plain = tmp_path / "plain"
    shutil.copytree(second.before, plain)
    (plain / NAME / LOG.replace(".log", ".index")).write_bytes(b"")
    other = clean(plain, tmp_path / "other", 10)
    assert VALUE in (whole.after / NAME / LOG).read_bytes()
    assert VALUE not in (other.after / NAME / LOG).read_bytes()
    for path in (plain / NAME).iterdir():
        if path.suffix != ".log":
            path.unlink()
    for done in (whole, other):
        assert prove(plain, done.after, done.settings, now_ms=NOW).findings == ()


def test_value_superseded_by_a_plain_record_counts_as_revived(tmp_path: Path) -> None:
    """A later record outside of the transaction counts, whatever the first pass takes for aborted."""
    first, second = two_rounds(tmp_path, ("l", "3"))
    assert prove(first.after, second.after, second.settings, now_ms=NOW).is_proven
    # As if nobody had superseded it.
    path = second.after / NAME / LOG
    revived = [batch for batch in split_batches((first.after / NAME / LOG).read_bytes()) if VALUE in batch]
    assert len(revived) == 1
    path.write_bytes(b"".join(sorted([*split_batches(path.read_bytes()), *revived])))
    for options in ({"now_ms": NOW}, {}):
        refuted = prove(first.after, second.after, second.settings, **options)
        assert ("revived", 3) in [(found.kind, found.offset) for found in refuted.findings]


@pytest.mark.parametrize(
    ("seed", "count"), [(1, FEW), pytest.param(2, MANY, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_random_rounds_with_tiny_maps_are_proven_and_mutated_ones_refuted(seed: int, count: int) -> None:
    """Each round, some chains of rounds, and no round with a record or marker dropped, revived or changed."""
    randomness = random.Random(seed)
    passed_over = mutated = 0
    refuted, accepted = [], []
    for number in range(count):
        with scratch_directory() as work:
            done = list(random_rounds(work, random.Random(f"{seed}.{number}")))
            for each in done:
                about = f"log {number}, round {each.after.name}"
                report = prove(each.before, each.after, each.settings, now_ms=each.now_ms)
                checked = check(each.after, options=CheckOptions(clean_section=True))
                if not report.is_proven or checked.damages:
                    refuted.append((about, report.findings, checked.damages))
                passed_over += ("key-twice", LOG) in checked.notes
                changed = work / "mutated"
                mutation = mutate(each, changed, randomness)
                if mutation:
                    mutated += 1
                    if prove(each.before, changed, each.settings, now_ms=each.now_ms).is_proven:
                        accepted.append(f"{about}: {mutation}")
                    shutil.rmtree(changed)
    assert (refuted, accepted) == ([], [])
    assert passed_over > count // 20
    assert mutated > count


@pytest.mark.parametrize(
    ("seed", "count"), [(3, FEW), pytest.param(4, MANY, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_random_chains_of_rounds_with_tiny_maps_are_proven(seed: int, count: int) -> None:
    """From the input of one round to a later one's output, without the ends of the rounds in between."""
    refuted = []
    for number in range(count):
        with scratch_directory() as work:
            done = list(random_rounds(work, random.Random(f"{seed}.{number}")))
            chains = [(first, last) for first in done[:-1:2] for last in done[-1:] if first is not last]
            for first, last in chains:
                report = prove(first.before, last.after, last.settings, now_ms=last.now_ms, since_ms=first.now_ms)
                if not report.is_proven:
                    refuted.append((number, first.before.name, last.after.name, report.findings))
    assert refuted == []


def mutate(done: Round, target: Path, randomness: random.Random) -> str:
    """Copy what a round left, with one thing wrong in it; returns what, or nothing if there is nothing for it."""
    before, after = (
        {path.name: path.read_bytes() for path in sorted((side / NAME).iterdir())} for side in (done.before, done.after)
    )
    mutation = Mutator(before, after, 0, randomness).mutate()
    if mutation is None:
        return ""
    shutil.copytree(done.after, target)
    for name, data in mutation.files.items():
        (target / NAME / name).write_bytes(data)
    return f"{mutation.what} at {mutation.offset}"
