"""Reading log dirs in parallel: one that hangs delays no other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.daemon.log_dir_watch import DirLook
from cleaner.daemon.scanners import Scanners
from cleaner.policy.selection_context import DirCondition
from tests.support.manual_clock import ManualClock
from tests.unit.daemon.looks import log_status, look


class Dir:
    """A log dir that answers when it is let."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self.answers = threading.Event()
        self.answers.set()
        self.looks = 0
        self.error: Exception | None = None
        self.progress = (0, 0)

    def look(self, now_ms: int) -> DirLook:
        assert self.answers.wait(20)
        self.looks += 1
        if self.error is not None:
            raise self.error
        return look(log_status("a-0", log_dir=str(self.path)))


def test_log_dir_that_hangs_is_offline_until_it_answers() -> None:
    """Others are still read; what was known of it is kept, and it is not asked twice."""
    fast, slow, clock = Dir("/fast"), Dir("/slow"), ManualClock()
    scanners = Scanners(clock, patience_seconds=0.05)
    assert scanners.look([fast, slow], 0)["/slow"].facts.condition is DirCondition.ONLINE
    slow.answers.clear()
    for now_ms in (1000, 5000):
        found = scanners.look([fast, slow], now_ms)
        clock.move_on(4)
        assert found["/fast"].facts.condition is DirCondition.ONLINE
    hanging = found["/slow"]
    assert (hanging.facts.condition, len(hanging.logs)) == (DirCondition.OFFLINE, 1)
    assert hanging.facts.detail == "no answer for 4 s"
    assert (fast.looks, slow.looks) == (3, 1)
    slow.answers.set()
    patient = Scanners(clock, patience_seconds=20)
    patient._scanners = scanners._scanners
    assert patient.look([slow], 6000)["/slow"].facts.condition is DirCondition.ONLINE
    scanners.close()


def test_log_dir_that_never_answered_has_no_logs() -> None:
    """The daemon starts all the same, and says for how long it has waited."""
    slow = Dir("/slow")
    slow.answers.clear()
    scanners = Scanners(SystemClock(), patience_seconds=1.1)
    found = scanners.look([slow], 0)["/slow"]
    assert (found.facts.condition, found.logs) == (DirCondition.UNREAD, ())
    assert found.facts.detail in ("no answer for 1 s", "no answer for 2 s")
    slow.answers.set()
    scanners.close()


def test_log_dir_whose_look_gets_on_is_not_offline() -> None:
    """The first look at twenty thousand logs takes long: its progress is shown, and what was known stays."""
    slow = Dir("/slow")
    scanners = Scanners(ManualClock(), patience_seconds=0.01)
    slow.answers.clear()
    scanners._begin(slow, 0)
    slow.progress = (700, 20_000)
    found = scanners.look([slow], 0)["/slow"]
    assert (found.facts.condition, found.looked_at_ms) == (DirCondition.ONLINE, None)
    assert found.facts.detail == "700 of 20000 logs read so far"
    assert scanners.look([slow], 0)["/slow"].facts.condition is DirCondition.UNREAD
    slow.answers.set()
    patient = Scanners(ManualClock(), patience_seconds=20)
    patient._scanners = scanners._scanners
    seen = patient.look([slow], 0)["/slow"]
    slow.answers.clear()
    scanners._begin(slow, 1)
    slow.progress = (900, 20_000)
    assert scanners.look([slow], 1)["/slow"] is seen
    slow.answers.set()
    scanners.close()


def test_what_a_look_raises_is_raised_once() -> None:
    """It is an internal error, since a look tells what is wrong with a directory; the next look is a new one."""
    broken = Dir("/broken")
    scanners = Scanners(ManualClock(), patience_seconds=20)
    broken.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        scanners.look([broken], 0)
    broken.error = None
    assert scanners.look([broken], 1)["/broken"].facts.condition is DirCondition.ONLINE
    scanners.close()


def test_longer_work_takes_the_place_of_a_look() -> None:
    """A log dir that is being recovered is not looked at until that is over."""
    log_dir, go = Dir("/a"), threading.Event()
    scanners = Scanners(ManualClock(), patience_seconds=0.05)
    scanners.look([log_dir], 0)

    def recover() -> DirLook:
        assert go.wait(20)
        return look(log_status("b-0", log_dir="/a"))

    scanners.run_other(log_dir.path, recover, "it is being recovered")
    facts = scanners.look([log_dir], 2)["/a"].facts
    assert (facts.condition, facts.detail) == (DirCondition.NEEDS_RECOVERY, "it is being recovered")
    go.set()
    patient = Scanners(ManualClock(), patience_seconds=20)
    patient._scanners = scanners._scanners
    assert str(patient.look([log_dir], 3)["/a"].logs[0].partition) == "b-0"
    assert log_dir.looks == 1
    scanners.close()
