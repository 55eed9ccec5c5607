"""`gaps` on what Kafka's own brokers, loads and rounds have left: nothing of it is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner import GapReason, GapReport
from cleaner.errors import CorruptCheckpointError
from tests.golden.comparison import contents
from tests.golden.random_rounds import PARTITION, random_rounds
from tests.golden.test_check import DAMAGED_STAGES, SCENARIOS
from tests.property.test_gaps import differences, present, reasons_of
from tests.reference.gaps import Known
from tests.support.log_builder import write_log_dir

pytestmark = pytest.mark.kernels

# Killed in the second group's swap: the first one's result is there, no checkpoint, and no batch shows that it was
# cleaned. `gaps` must not call this a loss, and cannot call it anything else.
INTERRUPTED = ("swap-crash-s0", "swap-crash-s0-writing", "swap-crash-s1-index", "swap-crash-s1-log")
# Batches that were appended as by a follower, behind a hole that nobody cleaned; a round takes it for its own.
HOLES_APPENDED = ("watermark-behind-gap/before",)
# What `check` finds, and the account of offsets does not need: records, indexes but those of transactions, snapshots.
NOT_READ = {
    "batch-records",
    "batch-stream",
    "batch-too-large",
    "offset-index",
    "time-index",
    "snapshot",
    "foreign-file",
}
WITH_TWIN = ("compact-delete", "consumer-offsets", "idempotent-producers", "legacy-magic", "map-full", "transactions")


def stages_of(directory: Path) -> list[Path]:
    """Return the log dirs of a scenario."""
    return sorted(path for path in directory.iterdir() if path.is_dir())


def policy_of(directory: Path) -> str:
    """Return the cleanup policy of a scenario's topic."""
    topic = json.loads((directory / "scenario.json").read_text())["settings"]["topic"]
    return str(topic.get("cleanup.policy", "compact"))


def reports(stage: Path, policy: str) -> list[GapReport]:
    """Account for all partitions, each with the topic's policy."""
    found = []
    for partition in sorted(path.name for path in stage.iterdir() if path.is_dir()):
        (report,) = cleaner.gaps(stage, partition, {"cleanup.policy": policy})
        assert isinstance(report, GapReport), report
        found.append(report)
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_that_kafka_left_is_lost(name: str, unpacked: Callable[[str], Path]) -> None:
    """Every offset of every stage has a record or a reason; only damage is unreadable."""
    directory = unpacked(name)
    for stage in stages_of(directory):
        damages = {kind for kind, _, _ in DAMAGED_STAGES.get(f"{name}/{stage.name}", [])} - NOT_READ
        if damages == {"checkpoint"}:
            with pytest.raises(CorruptCheckpointError):
                reports(stage, policy_of(directory))
            continue
        for report in reports(stage, policy_of(directory)):
            assert report.records + sum(gap.offsets for gap in report.gaps) == report.end_offset
            assert report.offsets_of(GapReason.LOST) == 0, stage.name
            is_doubtful = name in INTERRUPTED or f"{name}/{stage.name}".startswith(HOLES_APPENDED)
            assert (report.offsets_of(GapReason.UNEXPLAINED) > 0) == is_doubtful, stage.name
            assert {each.kind for each in report.damage if each.is_damage} == damages, stage.name
            assert report.offsets_of(GapReason.UNREADABLE) == 0 or damages, stage.name


@pytest.mark.parametrize("name", WITH_TWIN)
def test_gaps_of_kafkas_logs_are_those_of_the_twin(name: str, unpacked: Callable[[str], Path]) -> None:
    """Transactions, markers, old formats, sparse batches and raised log starts as brokers write them."""
    directory = unpacked(name)
    for stage in stages_of(directory):
        for report in reports(stage, policy_of(directory)):
            lines = (stage / "log-start-offset-checkpoint").read_text().split()
            known = Known(
                log_start=int(lines[-1]) if len(lines) > 2 else None,
                cleaned=report.checkpoint_offset,
                reached=report.end_offset,
                never_compacted=False,
            )
            assert differences(report, contents(stage / report.partition), known) == []


def test_kafkas_rounds_on_random_logs_lose_nothing(random_logs: Path, tmp_path: Path) -> None:
    """What rounds have removed is explained, up to the end of the last one; and all of it is as the twin says."""
    for each in random_rounds(random_logs):
        outcome = each.got
        stages = [("in", outcome["checkpoint"])]
        if "end" in outcome and each.files("out"):
            stages.append(("out", outcome["end"]))
        for stage, checkpoint in stages:
            log_dir = tmp_path / f"{each.home.name}-{each.number}-{stage}"
            shutil.copytree(each.home / f"{stage}{each.number}", log_dir / str(PARTITION))
            write_log_dir(
                log_dir,
                cleaner_offsets={} if checkpoint is None else {PARTITION: checkpoint},
                log_start_offsets={PARTITION: outcome["log_start"]} if outcome["log_start"] else {},
            )
            (report,) = reports(log_dir, "compact")
            known = Known(outcome["log_start"] or None, checkpoint, report.end_offset, never_compacted=False)
            assert report.end_offset == outcome["log_end"], f"{each} {stage}"
            assert differences(report, contents(log_dir / str(PARTITION)), known) == [], f"{each} {stage}"
            # The log's maker has left holes, too; what the round has removed is none of them.
            exact, _ = reasons_of(report)
            doubtful = {offset for offset, reason in exact.items() if reason in ("lost", "unexplained")}
            assert doubtful.isdisjoint(present(each.home / f"in{each.number}").every), f"{each} {stage}"
