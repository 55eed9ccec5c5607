"""What happens on a day, and what must be true at its end."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cleaner.base.model import TopicPartition
from cleaner.daemon.faults import Ending
from cleaner.state.journal_reader import JournalReader
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANER_CHECKPOINT, LOG, TEMPORARY_SUFFIXES, offset_of
from tests.cleaner_run import REPOSITORY, CleanerRun, total, wait_until
from tests.coexistence.truth import Truth
from tests.crash.loop_image import small_disk
from tests.day.writer import NO_ROOM, partition
from tests.integration.log_dirs import contents, flip_bit, keyed_log
from tests.support.log_builder import write_log_dir

DAMAGED = "damaged-0"
ARCHIVE = ("archive-0", "archive-1")
STOP_SECONDS = 5.0
_OLD_MS = 1500
_DISK_BYTES = 128 << 20
_SETTINGS = {
    "cleaner.pipeline.threads": "1",
    "cleaner.retry.max.ms": "1000",
    "cleaner.trust.default.policy": "true",
    "cleanup.policy": "compact",
    "delete.retention.ms": "20",
    "file.delete.delay.ms": "0",
    "index.interval.bytes": "100",
    "internal.segment.bytes": "1500",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.threads": "2",
    "min.cleanable.dirty.ratio": "0.0",
}


@dataclass(frozen=True)
class Plan:
    """
    How long and how full a day is.

    Attributes:
        seed: the same seed makes the same choices; not the same moments.
        partitions: that are written to.
        hours: what happens, all of it, so many times, each time in another order.
        steps_a_second: of the writer.
        max_pause_seconds: between two things that happen.
    """

    seed: int
    partitions: int
    hours: int
    steps_a_second: float
    max_pause_seconds: float


@dataclass
class Day:
    """
    The processes and the directories of a day.

    Attributes:
        live: a log dir with a writer, and one damaged log that no process writes to.
        archive: a log dir without a writer.
        has_own_disk: `live` is on a disk that can be filled up.
        told: what has happened, for whoever has to understand a failure.
    """

    plan: Plan
    root: Path
    live: Path
    archive: Path
    cleaner: CleanerRun
    has_own_disk: bool
    writer: subprocess.Popen[str] | None = None
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed)
        self._moment = threading.Event()

    # --- the writer -------------------------------------------------------------------------------------------------

    def start_writer(self) -> None:
        """Start it and wait until its logs are loaded; without room it may die before."""
        plan = self.plan
        arguments = (self.live, self.root / "journal", self.random.randrange(2**31), plan.partitions)
        self.writer = subprocess.Popen(
            [sys.executable, "-m", "tests.day.writer", *map(str, arguments), str(plan.steps_a_second)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.writer.stdout is not None
        assert self.writer.stdout.readline().strip() == "ready", f"the writer ended with {self.writer.wait()}"

    def end_writer(self, number: signal.Signals) -> None:
        """Kill or stop it."""
        assert self.writer is not None
        self.writer.send_signal(number)
        code = self.writer.wait(60)
        assert code == (0 if number is signal.SIGTERM else -number), f"the writer ended with {code}"

    # --- what happens -----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let everybody work for a while."""
        self._moment.wait(self.random.uniform(0, self.plan.max_pause_seconds))

    def kill_cleaner(self) -> None:
        """SIGKILL, and a new one."""
        self.cleaner.kill()
        self.pause()
        self.cleaner.start()

    def stop_cleaner(self) -> None:
        """SIGTERM, and a new one."""
        seconds = self.cleaner.stop()
        assert seconds < STOP_SECONDS, f"stopping took {seconds:.1f} s"
        self.cleaner.start()

    def stop_cleaner_at_once(self) -> None:
        """SIGTERM twice, and a new one; the first may have been enough."""
        self.cleaner.send(signal.SIGTERM)
        with contextlib.suppress(ProcessLookupError):
            self.cleaner.send(signal.SIGTERM)
        code = self.cleaner.wait()
        assert code in (0, 128 + signal.SIGTERM, -signal.SIGTERM), code
        self.cleaner.start()

    def kill_writer(self) -> None:
        """SIGKILL, and a new one."""
        self.end_writer(signal.SIGKILL)
        self.pause()
        self.start_writer()

    def stop_writer(self) -> None:
        """SIGTERM, and a new one."""
        self.end_writer(signal.SIGTERM)
        self.pause()
        self.start_writer()

    def kill_both(self) -> None:
        """As when the machine's power fails, but for its memory."""
        self.end_writer(signal.SIGKILL)
        self.kill_cleaner()
        self.start_writer()

    def fill_disk(self) -> None:
        """Leave no room; the writer may die of it, the daemon must not."""
        if not self.has_own_disk:
            return
        assert self.writer is not None
        filler = self.live.parent / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                continue
        self.pause()
        self._moment.wait(1.0)
        assert self.cleaner.status()["state"] == "running"
        filler.unlink()
        if self.writer.poll() is not None:
            assert self.writer.wait() == NO_ROOM
            self.start_writer()

    def reload_badly(self) -> None:
        """SIGHUP with a mistake in the file: nothing changes."""
        before = len(self.cleaner.events("reload refused, the settings stay as they were"))
        self.cleaner.write_settings(self.cleaner.settings | {"log.cleaner.threads": "many"})
        self.cleaner.send(signal.SIGHUP)
        refused = "reload refused, the settings stay as they were"
        wait_until(lambda: len(self.cleaner.events(refused)) > before, "the reload is refused")
        self.wait_for_metric("cleaner_config_last_reload_successful", 0)
        assert self.cleaner.command("reload").returncode != 0
        self.cleaner.write_settings(self.cleaner.settings)
        self._reload()

    def reload_well(self) -> None:
        """SIGHUP with another number of threads and a speed limit; recovery from now on, or no longer."""
        changed = {
            "log.cleaner.threads": str(self.random.randint(1, 3)),
            "log.cleaner.io.max.bytes.per.second": str(self.random.choice((2_000_000, 50_000_000))),
            "cleaner.recover": self.random.choice(("true", "false")),
        }
        self.cleaner.settings.update(changed)
        self.cleaner.write_settings(self.cleaner.settings)
        self._reload()
        threads = int(changed["log.cleaner.threads"])
        self.wait_for_metric("cleaner_workers", threads)

    def _reload(self) -> None:
        before = len(self.cleaner.events("reloaded"))
        self.cleaner.send(signal.SIGHUP)
        wait_until(lambda: len(self.cleaner.events("reloaded")) > before, "the settings are reloaded")
        self.wait_for_metric("cleaner_config_last_reload_successful", 1)

    def pause_and_resume(self) -> None:
        """Everything, then a topic."""
        for scope in ((), ("topic-1",)):
            assert self.cleaner.command("pause", *scope).returncode == 0
            assert self.cleaner.status()["pauses"]
            self.pause()
            assert self.cleaner.command("resume", *scope).returncode == 0

    def ask_for_one(self) -> None:
        """`cleaner now`."""
        chosen = str(partition(self.random.randrange(self.plan.partitions)))
        done = self.cleaner.command("now", chosen)
        assert done.returncode == 0, done.stderr

    def release_damaged(self) -> None:
        """It is quarantined again, since it is still damaged."""
        self.wait_for_metric("cleaner_quarantined_partitions", 1)
        before = len(self.cleaner.events("quarantined"))
        done = self.cleaner.command("release", DAMAGED)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: len(self.cleaner.events("quarantined")) > before, "it is quarantined again")

    def wait_for_metric(self, name: str, value: float) -> None:
        """Wait until a metric has a value: what is scraped may be a second old."""
        wait_until(lambda: total(self.cleaner.metrics(), name) == value, f"{name} is {value}")

    def freeze_cleaner(self) -> None:
        """SIGSTOP, and SIGCONT after a while: nothing is taken for stuck, no worker dies."""
        self.cleaner.send(signal.SIGSTOP)
        self.pause()
        self.cleaner.send(signal.SIGCONT)
        assert self.cleaner.status()["is_progressing"]

    def run(self) -> None:
        """Let all of it happen, in some order, as often as planned."""
        deeds: list[Callable[[], None]] = [
            self.kill_cleaner,
            self.kill_cleaner,
            self.kill_writer,
            self.kill_both,
            self.fill_disk,
            self.reload_badly,
            self.reload_well,
            self.stop_cleaner,
            self.stop_cleaner_at_once,
            self.stop_writer,
            self.pause_and_resume,
            self.ask_for_one,
            self.release_damaged,
            self.freeze_cleaner,
        ]
        self.cleaner.start()
        self.start_writer()
        for _ in range(self.plan.hours):
            for deed in self.random.sample(deeds, len(deeds)):
                self.pause()
                self.told.append(deed.__name__)
                deed()
                assert self.writer is not None
                assert self.writer.poll() is None, f"the writer has died: {self.writer.returncode}"

    # --- its end ----------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop the writer, let the daemon finish, and judge everything."""
        self.end_writer(signal.SIGTERM)
        ended_ms = time.time_ns() // 1_000_000
        wait_until(lambda: self._is_clean(self.cleaner.status(), ended_ms), "all logs but the damaged one are clean")
        self._judge_status(self.cleaner.status())
        seconds = self.cleaner.stop()
        assert seconds < STOP_SECONDS, f"stopping took {seconds:.1f} s"
        self._judge_events()
        self._judge_live()
        _compare(_logs(self.live / DAMAGED), _logs(self.root / "damaged-as-it-was"))
        _compare(contents(self.archive), contents(self.root / "archive-as-it-should-be"))

    def _is_clean(self, status: dict[str, Any], since_ms: int) -> bool:
        """Tell whether there is nothing left to do, by a look since a moment; verdicts may be a second old."""
        reasons = Counter(log["verdict"]["reason"] for log in status["logs"] if log["verdict"] is not None)
        is_idle = not status["queue"] and not any(worker["partition"] for worker in status["workers"])
        clean = self.plan.partitions + len(ARCHIVE)
        is_recent = status["turn_ended_ms"] > since_ms + _OLD_MS
        return is_recent and is_idle and reasons == {"nothing_to_clean": clean, "quarantined": 1}

    def _judge_status(self, status: dict[str, Any]) -> None:
        """Compare what the daemon says in three ways: metrics, status, journal."""
        metrics = self.cleaner.metrics()
        assert total(metrics, "cleaner_worker_deaths_total") == 0
        assert total(metrics, "cleaner_offline_log_dirs") == 0
        assert total(metrics, "cleaner_quarantined_partitions") == 1
        (entry,) = status["quarantine"]
        assert entry["partition"] == DAMAGED
        assert entry["file"] == str(self._damaged_file())
        assert "CRC" in entry["reason"]
        assert status["is_progressing"]
        assert not status["stuck"] + status["pauses"] + status["queue"]
        # A scrape may be a second old, and a round that finds nothing to do may end at any time.
        wait_until(lambda: _figures(self.cleaner) == _figures_told(self.cleaner, status["started_ms"]), "metrics agree")

    def _damaged_file(self) -> Path:
        return damaged_file(self.live).resolve()

    def _judge_events(self) -> None:
        """Nothing unforeseen was logged in any run."""
        strange = [event for event in self.cleaner.events(of_all_runs=True) if "traceback" in event]
        assert not strange, strange[:3]
        quarantined = {event["partition"] for event in self.cleaner.events("quarantined", of_all_runs=True)}
        assert quarantined == {DAMAGED}

    def _judge_live(self) -> None:
        """Compare every log with what its writer noted, and with the checkpoint."""
        truths = Truth.of(self.root / "journal")
        checkpoints = read_offset_checkpoint(FileSystem(), self.live / CLEANER_CHECKPOINT)
        for number in range(self.plan.partitions):
            topic_partition = partition(number)
            directory = self.live / str(topic_partition)
            active = max(offset_of(path.name) for path in directory.glob(f"*{LOG}"))
            self._judge_log(truths, topic_partition, active, checkpoints.get(topic_partition, 0))
        assert sum(len(truth.entries) for truth in truths.values()) > 0
        found = [path for path in self.live.rglob("*") if path.name.endswith((*TEMPORARY_SUFFIXES, ".tmp"))]
        # A recovery killed in the damaged log: nobody loads that again before it is released.
        left = [path for path in found if path.parent.name != DAMAGED]
        assert not left, left

    def _judge_log(
        self, truths: dict[str, Truth], topic_partition: TopicPartition, active: int, checkpoint: int
    ) -> None:
        assert checkpoint == active or active == 0, f"{topic_partition}: clean to {checkpoint} of {active}"
        truths[str(topic_partition)].judge(self.live / str(topic_partition), checkpoint)


def damaged_file(live: Path) -> Path:
    """Return the file that is damaged."""
    return next((live / DAMAGED).glob(f"*20{LOG}"))


def _figures(cleaner: CleanerRun) -> dict[str, float]:
    """Return rounds by result and records by pass, as scraped."""
    metrics = cleaner.metrics()
    rounds = {ending.value: total(metrics, "cleaner_rounds_total", result=ending.value) for ending in Ending}
    records = {each: total(metrics, "cleaner_read_records_total", **{"pass": each}) for each in ("map", "copy")}
    return {**rounds, **records}


def _figures_told(cleaner: CleanerRun, started_ms: int) -> dict[str, float]:
    """Return the same by the daemon's journal."""
    entries = JournalReader(FileSystem(), cleaner.state_dir).entries()
    rounds = [each.details for each in entries if each.kind == "round" and each.time_ms >= started_ms]
    figures: dict[str, float] = dict.fromkeys([*(ending.value for ending in Ending), "map", "copy"], 0)
    for details in rounds:
        figures[str(details["result"])] += 1
        figures["map"] += int(str(details.get("map_messages_read", 0)))
        figures["copy"] += int(str(details.get("messages_read", 0)))
    return figures


def _logs(directory: Path) -> dict[str, str]:
    """Return the segments; a recovery may have rebuilt their indexes."""
    return {name: digest for name, digest in contents(directory).items() if name.endswith(LOG)}


def _compare(found: dict[str, str], expected: dict[str, str]) -> None:
    differing = [name for name in found | expected if found.get(name) != expected.get(name)]
    assert not differing, f"{differing} are not as they should be"


@contextlib.contextmanager
def day(plan: Plan, root: Path) -> Iterator[Day]:
    """Prepare a day; when the `with` block ends no process is left."""
    with contextlib.ExitStack() as stack:
        has_own_disk = os.geteuid() == 0
        disk = stack.enter_context(small_disk(root / "disk", _DISK_BYTES)) if has_own_disk else root
        live, archive = disk / "live", root / "archive"
        for path in (live, archive):
            path.mkdir()
        write_log_dir(live, keyed_log(DAMAGED))
        flip_bit(damaged_file(live))
        write_log_dir(archive, *map(keyed_log, ARCHIVE))
        _expect(root, live, archive)
        (root / "journal").touch()
        cleaner = CleanerRun(root, _SETTINGS | {"log.dirs": f"{live},{archive}"})
        found = Day(plan, root, live, archive, cleaner, has_own_disk)
        stack.callback(_end_processes, found)
        yield found


def _expect(root: Path, live: Path, archive: Path) -> None:
    """Write down the expected end state of two of the directories."""
    from cleaner import clean

    shutil.copytree(live / DAMAGED, root / "damaged-as-it-was")
    expected = root / "archive-as-it-should-be"
    shutil.copytree(archive, expected)
    settings = {key: value for key, value in _SETTINGS.items() if key != "cleaner.trust.default.policy"}
    for name in ARCHIVE:
        clean(expected, name, settings)


def _end_processes(found: Day) -> None:
    if found.writer is not None and found.writer.poll() is None:
        found.writer.kill()
        found.writer.wait()
    process = found.cleaner.process
    if process is not None and process.poll() is None:
        found.cleaner.kill()
