"""`verify` on what Kafka's cleaner made: every round is proven, and one with a single thing wrong never is."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import cleaner
from cleaner.app.options import CallContext
from cleaner.app.verify_log_dirs import VerifyOptions, VerifyReport, verify_log_dirs
from cleaner.settings.sources import Sources
from tests.golden.mutations import Mutation, Mutator
from tests.golden.random_rounds import PARTITION, RandomRound, random_rounds
from tests.golden.scenario import Step, steps
from tests.golden.test_random_kafka_logs import sound_files
from tests.reference.batches import read_batches, read_records
from tests.scratch import scratch_directory

CLEANED = [step for step in steps() if step.kind in ("byte-identical", "logically-identical")]
SHORT, LONG = 150, 1000


def prove(before: Path, after: Path, name: str, settings: Mapping[str, str], options: VerifyOptions) -> VerifyReport:
    """Verify one partition."""
    sources = Sources.of_call(name.rpartition("-")[0], settings, None, None)
    (report,) = verify_log_dirs(before, after, sources, CallContext.of(), options, [name])
    assert isinstance(report, VerifyReport), report
    return report


@dataclass(frozen=True)
class Round:
    """A round on a log dir."""

    about: RandomRound
    before: Path

    def prove(self, work: Path, changed: Mapping[str, bytes]) -> VerifyReport:
        """Verify its result, with some files changed."""
        got = self.about.got
        directory = work / str(PARTITION)
        directory.mkdir(parents=True)
        for name, data in (sound_files(self.about.files("out")) | changed).items():
            (directory / name).write_bytes(data)
        if got["log_start"]:
            (work / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {got['log_start']}\n")
        options = VerifyOptions(now_ms=got["now"], end_offset=got["end"])
        try:
            return prove(self.before, work, str(PARTITION), self.about.settings, options)
        finally:
            shutil.rmtree(work)

    def mutate(self, randomness: random.Random) -> Mutation | None:
        """Return its result with one thing wrong in it."""
        after = sound_files(self.about.files("out"))
        first = min(int(name[:20]) for name in after if name.endswith(".log"))
        visible_from = max(self.about.got["log_start"], first)
        return Mutator(self.about.files("in"), after, visible_from, randomness).mutate()


def cleaned_rounds(random_logs: Path, work: Path) -> list[Round]:
    """Return the rounds of the random logs in which Kafka cleaned something, each prepared."""
    rounds = [each for each in random_rounds(random_logs) if "error" not in each.got and each.got["cleaned"]]
    return [Round(each, each.prepare(work / str(number))) for number, each in enumerate(rounds)]


@pytest.mark.parametrize("step", CLEANED, ids=str)
def test_verify_of_a_golden_round_proves_it(step: Step, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """What Kafka's cleaner left is right, judged by its own moment and settings."""
    home = unpacked(step.scenario)
    before = step.prepare(home, tmp_path / "before")
    report = prove(before, home / step.output, step.partition, step.settings, VerifyOptions(now_ms=step.now_ms))

    assert report.findings == ()
    assert report.is_proven
    assert report.end_offset == step.expected["end_offset"]


@pytest.mark.parametrize("name", ["map-full", "min-lag"])
def test_verify_over_several_of_kafkas_rounds_proves_them(
    name: str, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """From the first input to the last output, where nothing was appended in between: a map too small, a lag."""
    first, *_, last = (step for step in CLEANED if step.scenario == name)
    before = first.prepare(unpacked(name), tmp_path / name)
    options = VerifyOptions(now_ms=last.now_ms, since_ms=first.now_ms)
    report = prove(before, unpacked(name) / last.output, last.partition, last.settings, options)

    assert report.findings == ()
    assert report.end_offset == last.expected["end_offset"] > first.expected["end_offset"]


def records(directory: Path) -> int:
    """Count a partition's records, markers too."""
    return sum(len(read_records(b)) for path in directory.glob("*.log") for b in read_batches(path.read_bytes()))


@pytest.mark.parametrize(
    "name",
    ["broker-transactions", "consumer-offsets", "headers-and-nulls", "legacy-magic", "tombstones", "transactions"],
)
def test_verify_over_rounds_longer_than_retention_proves_them(
    name: str, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """Tombstones and markers have got horizons from one round and gone in another; too short a time refutes that."""
    step = next(step for step in CLEANED if step.scenario == name)
    before = step.prepare(unpacked(name), tmp_path / "before")
    after = shutil.copytree(before, tmp_path / "after")
    retention_ms = int(step.settings.get("delete.retention.ms", 86_400_000))
    moments = [step.now_ms + (retention_ms + 1) * number for number in range(4)]
    left = []
    for now_ms in moments:
        cleaner.clean(after, step.partition, {**step.settings, "min.cleanable.dirty.ratio": "0"}, now_ms=now_ms)
        # What was clean is recopied only if there is something dirty: as if the checkpoint had been lost.
        left.append(records(after / step.partition))
        if now_ms != moments[-1]:
            (after / "cleaner-offset-checkpoint").unlink()
    options = VerifyOptions(now_ms=moments[-1], since_ms=moments[0])
    report = prove(before, after, step.partition, step.settings, options)

    assert report.findings == ()
    # Of magic 0 and 1 tombstones go by the times of files, as if they had been cleaned long ago.
    if left[-1] < left[0] and name != "legacy-magic":
        too_short = VerifyOptions(now_ms=moments[0] + retention_ms - 1, since_ms=moments[0])
        assert not prove(before, after, step.partition, step.settings, too_short).is_proven
    assert name in ("consumer-offsets", "legacy-magic") or left[-1] < left[0]


def test_verify_of_every_random_round_proves_it(random_logs: Path) -> None:
    """All codecs and magics, transactions, tiny maps that end a round in the middle of a batch."""
    with scratch_directory() as scratch:
        rounds = cleaned_rounds(random_logs, scratch)
        reports = {str(each.about): each.prove(scratch / "after", {}) for each in rounds}

    assert len(reports) > 140
    assert {name: report.findings for name, report in reports.items() if not report.is_proven} == {}
    assert sum(report.records > report.keys for report in reports.values()) > 90


@pytest.mark.parametrize(
    ("seed", "count"), [(1, SHORT), pytest.param(2, LONG, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_verify_of_a_mutated_result_refutes_it(random_logs: Path, seed: int, count: int) -> None:
    """Whatever single thing is wrong in a result, it is not proven."""
    randomness = random.Random(seed)
    accepted: list[str] = []
    kinds: Counter[str] = Counter()
    with scratch_directory() as scratch:
        rounds = cleaned_rounds(random_logs, scratch)
        while kinds.total() < count:
            chosen = randomness.choice(rounds)
            mutation = chosen.mutate(randomness)
            if mutation is None:
                continue
            kinds[mutation.what] += 1
            report = chosen.prove(scratch / "after", mutation.files)
            if report.is_proven:
                accepted.append(f"{chosen.about}: {mutation.what} at {mutation.offset}")

    assert accepted == []
    assert min(kinds.values()) > count // 20
    assert len(kinds) == 6
