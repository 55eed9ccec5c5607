"""Three questions for three askers."""

from __future__ import annotations

import json

import pytest

from cleaner.policy.selection_context import DirCondition
from cleaner.present.http.health import healthy, live, ready, warnings
from tests.support.sample_daemons import hostile, with_problems
from tests.support.snapshots import MB, log_dir, quarantined, retry, snapshot


def test_process_that_answers_lives() -> None:
    """Nothing else is asked."""
    assert live().status == 200


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 200),
        ({"is_ready": False, "state": "starting"}, 503),
        ({"state": "stopping"}, 503),
        ({"is_progressing": False, "stuck": ("cleaner-0",)}, 200),
        ({"log_dirs": (log_dir(condition=DirCondition.OFFLINE),)}, 200),
    ],
    ids=["running", "starting", "stopping", "stuck", "disk gone"],
)
def test_readiness_is_settings_looked_at_and_not_stopping(fields: dict[str, object], status: int) -> None:
    """A disk that is gone does not take a daemon out of service: the others are cleaned."""
    assert ready(snapshot(**fields)).status == status


def test_health_fails_only_when_nothing_moves() -> None:
    """A quarantined log is a warning; a stuck thread is a failure, in its own words."""
    well = healthy(snapshot())
    assert (well.status, json.loads(well.body)["status"], json.loads(well.body)["warnings"]) == (200, "ok", [])
    aside = healthy(snapshot(quarantine=(quarantined(),)))
    assert (aside.status, json.loads(aside.body)["warnings"]) == (
        200,
        [f"ledger-2 is in quarantine: {quarantined().reason}"],
    )
    stuck = healthy(snapshot(is_progressing=False, stuck=("cleaner-1 has moved nothing for 6 minutes",)))
    assert (stuck.status, json.loads(stuck.body)["failures"]) == (503, ["cleaner-1 has moved nothing for 6 minutes"])
    assert json.loads(healthy(snapshot(is_progressing=False)).body)["failures"] == ["nothing moves"]


def test_warnings_name_memory_that_no_setting_asks_for() -> None:
    """As much as the settings need is well; so is an unknown value."""
    assert warnings(snapshot(anonymous_bytes=400 * MB, needed_bytes=400 * MB)) == []
    assert warnings(snapshot(anonymous_bytes=None)) == []
    (line,) = warnings(snapshot(anonymous_bytes=401 * MB, needed_bytes=400 * MB))
    assert "of memory, its settings need" in line


def test_warnings_name_everything_that_is_wrong() -> None:
    """What is not well to `status`, with the same words; then what is odd: a log dir in use, dead workers."""
    found = json.loads(healthy(with_problems()).body)["warnings"]
    assert found == [
        "the last reload was refused: log.cleaner.threads=zero: not a number; allowed: 1 to 64",
        "/mnt/disk2/kafka is offline for 20 min: Input/output error reading cleaner-offset-checkpoint",
        "sessions-0 cannot be read: Permission denied",
        f"ledger-2 is in quarantine: {quarantined().reason}",
        "payments-7 is in quarantine: segments overlap: 2000 lies below the end of the segment before",
        f"accounts-1 failed 3 times in a row, tried again in 1 min: {retry().cause}",
        "log dir /mnt/disk3/kafka is in use by another process: held by process 4711",
        "1 worker died of an internal error; others took over",
        "waiting for a restart: log.dirs",
    ]


def test_health_of_hostile_words_is_one_line_of_ascii() -> None:
    """No control character comes out, whatever an error says."""
    body = healthy(hostile()).body.decode()
    assert body.isascii() and body.rstrip("\n").isprintable()
