"""Times outside of any calendar: of the machine's clock, and of records at the limits of 64 bits."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner.cli.main import main
from tests.cleaner_run import REPOSITORY, WAIT_SECONDS, CleanerRun, wait_until
from tests.integration.daemons import settings_for
from tests.integration.log_dirs import keyed_log, offsets
from tests.support.batch_builder import Record
from tests.support.log_builder import LogBuilder, write_log_dir

LIMITS = (2**63 - 1, 2**62, 0, -1, -(2**63))
_BY_ANOTHER_CLOCK = """
import sys, time
now_ms, begun_ns = int(sys.argv.pop(1)), time.monotonic_ns()
time.time_ns = lambda: now_ms * 1_000_000 + time.monotonic_ns() - begun_ns
time.time = lambda: time.time_ns() / 1e9
from cleaner.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("now_ms", [-3_600_000, 4_294_967_296_000], ids=["1969", "2106"])
def test_daemon_runs_and_stops_whatever_its_clock_says(tmp_path: Path, now_ms: int) -> None:
    """Before 1970 it cleans nothing and says why, again and again; far ahead it cleans. No traceback is written."""
    logs = tmp_path / "logs"
    logs.mkdir()
    write_log_dir(logs, keyed_log("a-0"))
    run = CleanerRun(tmp_path, settings_for(logs, state_dir=tmp_path / "unused", log_cleaner_backoff_ms="100"))
    command = [sys.executable, "-c", _BY_ANOTHER_CLOCK, str(now_ms), "run", "--as-root", "--config", run.config_file]
    with run.log_file.open("wb") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        if now_ms < 0:
            wait_until(lambda: bool(run.events("failed, will be tried again")), "the clock is told of")
        else:
            wait_until(lambda: offsets(logs, "cleaner") == {"a-0": 60}, "all is clean")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    told = run.log_file.read_text()
    assert ("before 1970: set it" in told) == (now_ms < 0)
    assert "Traceback" not in told and "quarantined" not in told
    assert offsets(logs, "cleaner") == ({} if now_ms < 0 else {"a-0": 60})


@pytest.mark.parametrize(
    ("first_ms", "second_ms"), [pair for pair in itertools.permutations(LIMITS, 2) if sum(pair) % 2]
)
def test_commands_show_records_of_any_time(
    tmp_path: Path, first_ms: int, second_ms: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shown, planned, checked, cleaned (or refused with a message) and proven, with a time at either limit."""
    log = LogBuilder()
    log.append(Record(b"k", b"v", timestamp_ms=first_ms), Record(b"j", None, timestamp_ms=first_ms))
    log.roll()
    log.append(Record(b"k", b"v", timestamp_ms=second_ms), append_time_ms=first_ms)
    log.roll()
    log.append(Record(b"k", None, timestamp_ms=second_ms), Record(b"k", b"w", timestamp_ms=second_ms))
    log.roll()
    log.append(("q", "z"), timestamp_ms=second_ms)
    before, after = tmp_path / "before", tmp_path / "after"
    write_log_dir(before, log)
    shutil.copytree(before, after)
    compact = ("--set", "cleanup.policy=compact", "--set", "max.compaction.lag.ms=1")
    for now in ((), ("--now", "1"), ("--now", str(2**62 - 1))):
        assert main(["plan", str(before), *compact, "--estimate", *now]) in (0, 1)
        assert main(["plan", str(before), "--set", "cleanup.policy=delete", "--set", "retention.ms=1", *now]) == 0
        assert main(["check", str(before), *now]) in (0, 1)
    for name in ("00000000000000000000.log", "00000000000000000000.timeindex"):
        assert main(["dump", str(before / "topic-0" / name)]) == 0
    assert main(["clean", str(after), "topic-0", *compact]) in (0, 1)
    assert main(["verify", str(before), str(after), "topic-0", *compact]) in (0, 1)
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and "internal error of the cleaner" not in err
