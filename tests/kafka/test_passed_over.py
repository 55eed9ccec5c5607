"""Rounds of Kafka's cleaner that take committed batches for aborted: `verify` proves them, `check` lets them pass."""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from tests.kafka.rig import CLEANING_ROUND, Rig
from tests.scratch import scratch_directory
from tests.unit.verification_check.checking import Checked, check
from tests.unit.verification_proof.passed_over import NAME, Round, prove, random_rounds

pytestmark = pytest.mark.kafka

ROUNDS = 5


def checked(log_dir: Path) -> Checked:
    return check(log_dir, options=CheckOptions(clean_section=True))


def rounds_passing_over(work: Path) -> Iterator[Round]:
    """Yield random rounds of ours after which keys occur twice that did not before."""
    for seed in range(1000):
        for done in random_rounds(work / str(seed), random.Random(seed)):
            if len(checked(done.after).notes) > len(checked(done.before).notes):
                yield done


def test_what_kafka_passes_over_is_proven_and_no_damage(kafka: Rig, tmp_path: Path) -> None:
    """The same inputs, maps and moments as rounds of ours that did so, cleaned by Kafka."""
    with scratch_directory() as work:
        rounds = list(itertools.islice(rounds_passing_over(work), ROUNDS))
        orders = []
        for number, done in enumerate(rounds):
            theirs, settings_file = work / f"kafka{number}", tmp_path / f"settings{number}"
            shutil.copytree(done.before, theirs)
            lines = [f"{key}={value}\n" for key, value in done.settings.items() if "dirty.ratio" not in key]
            settings_file.write_text("".join(lines))
            orders.append(f"{theirs} {NAME} {done.now_ms} {settings_file}\n")
        answers = [json.loads(line) for line in kafka.java(CLEANING_ROUND, "-", stdin="".join(orders)).splitlines()]
        assert [answer for answer in answers if not answer.get("cleaned")] == []

        for number, done in enumerate(rounds):
            theirs = work / f"kafka{number}"
            assert prove(done.before, theirs, done.settings, now_ms=done.now_ms).findings == ()
            found = checked(theirs)
            assert found.damages == []
            assert len(found.notes) > len(checked(done.before).notes)
