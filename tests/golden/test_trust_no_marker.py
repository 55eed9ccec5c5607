"""`recover --trust-no-marker` on files of Kafka beside whose marker a power cut has left zeros."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.cli.main import main

ACTIVE = "00000000000000000015"
ZERO_BYTES = 300  # behind the batches of the scenario's active segment
COMMAND = "cleaner recover --trust-no-marker"
STAGES = {
    "log-zero-tail/before": (".log", "FAIL"),
    "index-zero-tails/before": (".index", "WARN"),
    "index-zero-tails/before-2": (".timeindex", "WARN"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_zeros_beside_the_marker_are_named_and_ended(
    stage: str, unpacked: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`check` and `doctor` name file and command; after the command neither finds anything, and no record is lost."""
    suffix, grade = STAGES[stage]
    scenario, _, name = stage.partition("/")
    log_dir = tmp_path / "logs"
    shutil.copytree(unpacked(scenario) / name, log_dir)
    zeros = log_dir / "topic-0" / (ACTIVE + suffix)
    logs = {path.name: path.read_bytes() for path in (log_dir / "topic-0").glob("*.log")}

    def told(*command: str) -> str:
        main([*command, str(log_dir)])
        output = capfd.readouterr()
        return output.out + output.err

    def marker() -> dict[str, str]:
        lines = told("doctor", "--format", "json").splitlines()
        answers = [json.loads(line) for line in lines if line.startswith("{")]
        (answer,) = [each for each in answers if each["check"] == "marker"]
        return answer

    assert COMMAND in told("check")
    assert (marker()["result"].upper(), COMMAND in marker()["next"]) == (grade, True)
    assert zeros.name in marker()["finding"]
    if suffix == ".log":
        assert COMMAND in told("clean", "--all", "--set", "topic:cleanup.policy=compact")
    before = zeros.stat().st_size
    assert main(["recover", str(log_dir), "--trust-no-marker"]) == 0
    assert zeros.stat().st_size < before
    if suffix == ".log":
        logs[zeros.name] = logs[zeros.name][:-ZERO_BYTES]
    assert {path.name: path.read_bytes() for path in (log_dir / "topic-0").glob("*.log")} == logs
    assert (log_dir / ".kafka_cleanshutdown").exists()
    capfd.readouterr()
    assert COMMAND not in told("check")
    assert marker()["result"].upper() == "PASS"
