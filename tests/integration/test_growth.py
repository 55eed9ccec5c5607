"""
A process's memory does not grow with the rounds it has done or the records it has read.

Each test looks at a process of its own: what a test process has had in memory before says nothing. When it has warmed
up, anonymous memory, which no file stands behind, may grow by 5 MB up to the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from tests.cleaner_run import REPOSITORY, cleaner_run, wait_until

MAX_GROWTH_BYTES = 5 << 20
_LONG_SECONDS = 3600.0
_SETTINGS = {
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.cleaner.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "50",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "cleaner.trust.default.policy": "true",
}
_RECORDS, _VALUE_BYTES = 40, 2000


def short_and_long(short: tuple[int, ...], long: tuple[int, ...]) -> pytest.MarkDecorator:
    """Run a test with few rounds, and with as many as are promised for."""
    names = "warm_up, end" if len(short) == 2 else "partitions, warm_up, end"
    cases = [pytest.param(*short, id="short"), pytest.param(*long, id="long", marks=pytest.mark.slow)]
    return pytest.mark.parametrize(names, cases)


def anonymous_bytes(pid: int | str = "self") -> int:
    """Return a process's anonymous memory, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))


def append_everywhere(manager: LogManager) -> None:
    """Append to every log, always under the same keys, so that cleaned logs stay as large as they are; and roll."""
    for log in manager.logs().values():
        log.append([Record(b"k%d" % number, b"v" * _VALUE_BYTES) for number in range(_RECORDS)])
        log.roll()
    manager.upkeep.note_all()


def _require_no_growth(sizes: dict[int, int]) -> None:
    print({number: f"{size / 1e6:.1f} MB" for number, size in sizes.items()})
    first, last = min(sizes), max(sizes)
    assert sizes[last] <= sizes[first] + MAX_GROWTH_BYTES, sizes


def _points(warm_up: int, end: int) -> list[int]:
    return [*range(warm_up, end, max(1, (end - warm_up) // 8)), end]


def _in_process_of_its_own(function: Callable[..., None], *arguments: object) -> dict[int, int]:
    """Call a function of this module in a new process, with JSON values; returns what it has printed."""
    script = f"import tests.integration.test_growth as growth; growth.{function.__name__}(*{json.dumps(arguments)})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=_LONG_SECONDS
    )
    assert done.returncode == 0, done.stderr
    return {int(number): size for number, size in json.loads(done.stdout.splitlines()[-1]).items()}


@short_and_long((10, 40, 160), (200, 100, 2000))
def test_daemon_does_not_grow_with_its_rounds(tmp_path: Path, partitions: int, warm_up: int, end: int) -> None:
    """`cleaner run` over partitions that keep getting dirty."""
    log_dir = tmp_path / "logs"
    sizes: dict[int, int] = {}
    settings = {**_SETTINGS, "log.dirs": str(log_dir)}
    log_dir.mkdir()
    with LogManager(log_dir, _SETTINGS, create=True, cleaner=False) as manager:
        manager.create_topic("topic", partitions)
        with cleaner_run(tmp_path, settings) as run:
            run.start()
            turn = 0
            for point in _points(warm_up, end):
                while len(run.events("cleaned")) < point:
                    append_everywhere(manager)
                    turn += 1
                    wanted = turn * partitions
                    wait_until(lambda: len(run.events("cleaned")) >= wanted, "all is clean", _LONG_SECONDS)  # noqa: B023
                sizes[point] = anonymous_bytes(run.pid)
            run.stop()
    _require_no_growth(sizes)


@short_and_long((20, 100), (100, 500))
def test_cleaning_all_does_not_grow_with_the_partitions(tmp_path: Path, warm_up: int, end: int) -> None:
    """`cleaner clean --all`, partition after partition."""
    with LogManager(tmp_path, _SETTINGS, create=True, cleaner=False) as manager:
        manager.create_topic("topic", end)
        append_everywhere(manager)
    _require_no_growth(_in_process_of_its_own(clean_all, str(tmp_path), _points(warm_up, end)))


def clean_all(log_dir: str, points: list[int]) -> None:
    """Clean a log dir as the command does; print how large this process is after so many partitions."""
    from cleaner.app.clean_log_dir import clean_log_dir
    from cleaner.app.options import CallContext, CleanOptions
    from cleaner.app.reports import CleanReport
    from cleaner.settings.sources import Sources

    sizes = {}
    outcomes = clean_log_dir(
        Path(log_dir), None, Sources.of_call("topic", _SETTINGS, None, None), CleanOptions(), CallContext.of()
    )
    for number, outcome in enumerate(outcomes, 1):
        assert isinstance(outcome, CleanReport), outcome
        if number in points:
            sizes[number] = anonymous_bytes()
    print(json.dumps(sizes))


@short_and_long((5, 40, 150), (50, 100, 2000))
def test_manager_does_not_grow_with_the_rounds_of_its_cleaner(
    tmp_path: Path, partitions: int, warm_up: int, end: int
) -> None:
    """`LogManager` with a cleaner of its own, whose logs are written to and read."""
    _require_no_growth(_in_process_of_its_own(manage, str(tmp_path), partitions, _points(warm_up, end)))


def manage(log_dir: str, partitions: int, points: list[int]) -> None:
    """Write to logs that are cleaned in this process; print how large it is after so many rounds."""
    from cleaner.storage.fs.file_system import FileSystem
    from cleaner.storage.log_dir import LogDir

    sizes, turn = {}, 0
    with LogManager(log_dir, _SETTINGS, create=True, cleaner=True) as manager:
        manager.create_topic("topic", partitions)
        assert manager.cleaner is not None
        for point in points:
            while turn * partitions < point:
                append_everywhere(manager)
                turn += 1
                ends = {partition: log.log_end_offset for partition, log in manager.logs().items()}
                manager.cleaner.wake()
                wait_until(
                    lambda: dict(LogDir(FileSystem(), Path(log_dir)).cleaner_offsets) == ends,  # noqa: B023
                    "all is clean",
                    _LONG_SECONDS,
                )
                for log in manager.logs().values():
                    assert sum(1 for _ in log.read(log.log_start_offset))
                    assert log.latest().to_dict()
            sizes[point] = anonymous_bytes()
    print(json.dumps(sizes))


@short_and_long((1000, 5000), (3600, 72_000))
def test_following_does_not_grow_with_what_was_read(tmp_path: Path, warm_up: int, end: int) -> None:
    """One `follow()` while records are appended, rolled, and deleted behind it: 20 polls a second, for an hour."""
    _require_no_growth(_in_process_of_its_own(follow, str(tmp_path), _points(warm_up, end)))


def follow(log_dir: str, points: list[int]) -> None:
    """Follow a log that is written to; print how large this process is after so many polls."""
    sizes = {}
    settings = {**_SETTINGS, "cleanup.policy": "delete", "retention.bytes": "1000000", "file.delete.delay.ms": "0"}
    with LogManager(log_dir, settings, create=True, cleaner=False) as manager:
        manager.create_topic("topic")
        log = manager.log("topic")
        with log.follow(0, until="end", timeout_seconds=0.0) as follower:
            for poll in range(1, points[-1] + 1):
                log.append([Record(b"k%d" % poll, b"v" * _VALUE_BYTES)] * 5)
                assert sum(1 for _ in follower.poll()) == 5
                if poll % 100 == 0:
                    log.roll()
                    manager.upkeep.note_all()
                    manager.upkeep.retain()
                if poll in points:
                    sizes[poll] = anonymous_bytes()
    print(json.dumps(sizes))
