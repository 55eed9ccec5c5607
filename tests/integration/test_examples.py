"""The examples run, and do what their comments say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples import change_feed, event_sourcing, state_restore

REPOSITORY = Path(__file__).parents[2]


def test_consumer_that_comes_late_knows_what_the_others_know(tmp_path: Path) -> None:
    """From far fewer records."""
    early, late = change_feed.main(tmp_path / "logs")
    assert early.prices == late.prices == {"tea": 7, "water": 1}
    assert early.next_offset == late.next_offset
    assert (early.records_read, late.records_read) == (203, 4)


def test_balances_are_what_follows_from_the_events(tmp_path: Path) -> None:
    """Also from records of an earlier run; an aborted transfer does not count."""
    found = event_sourcing.main(tmp_path / "logs")
    assert found["now"] == {"alice": 70, "bob": 20, "carol": 10}
    assert found["at first"] == {"alice": 100}


def test_state_is_restored_after_a_crash(tmp_path: Path) -> None:
    """Everything saved, and nothing deleted."""
    before = state_restore.main(tmp_path / "logs")
    assert before == {f"/page/{number}": 143 for number in range(6)}
    with state_restore.Visits(tmp_path / "logs") as visits:
        assert visits.counts == {**before, "/page/0": 144}


@pytest.mark.parametrize("name", ["change_feed", "event_sourcing", "state_restore"])
def test_example_runs_by_itself(name: str, tmp_path: Path) -> None:
    """As its first lines say, and it needs no directory."""
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
