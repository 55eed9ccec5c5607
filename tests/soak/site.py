"""A log dir with a writer, a reader and perhaps a daemon, each a process, and the model of what they were answered."""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.cleaner_run import REPOSITORY, CleanerRun
from tests.simulation.found import Wrong, checkpoints_of
from tests.soak.gauges import Gauge
from tests.soak.model import Model
from tests.soak.notes import NotesReader
from tests.soak.writer import LOG_CLOSED

_ANSWER_SECONDS = 300.0
_GRACE_SECONDS = 5.0
_MOST_FAILED_SCRAPES = 3
RETENTION_MS = 40_000
_COMMON = {
    "delete.retention.ms": "15000",
    "file.delete.delay.ms": "2000",
    "index.interval.bytes": "1000",
    "internal.segment.bytes": "60000",
    "min.cleanable.dirty.ratio": "0.0",
}
TOPICS = {
    "alpha": {**_COMMON, "cleanup.policy": "compact"},
    "beta": {**_COMMON, "cleanup.policy": "compact", "compression.type": "lz4", "flush.messages": "7"},
    "gamma": {**_COMMON, "cleanup.policy": "compact,delete", "retention.ms": str(RETENTION_MS), "segment.ms": "10000"},
    "epsilon": {**_COMMON, "cleanup.policy": "delete", "retention.ms": str(RETENTION_MS), "segment.ms": "5000"},
    "delta": {**_COMMON, "cleanup.policy": "compact", "compression.type": "zstd", "delete.retention.ms": "0"},
}
_MANAGER = {
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.flush.scheduler.interval.ms": "500",
    "flush.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.threads": "1",
    "cleaner.pipeline.threads": "1",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
}
DAEMON = {
    "cleaner.pipeline.threads": "1",
    "cleaner.retry.max.ms": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": str(8 << 20),
    "log.cleaner.threads": "2",
    "cleaner.trust.default.policy": "true",
    **_COMMON,
}


@dataclass
class Trouble:
    """
    While this lasts, and shortly after, calls may fail.

    Attributes:
        lies_until: until then a file system may answer an fsync that it has not done: one of ext4 that waits for the
            commit of a journal that is being aborted returns without an error.
    """

    begin: float
    end: float = math.inf
    lies_until: float = -math.inf


_OF_FSYNCS = ("durable", "flushed", "stable", "shown")


@dataclass
class Site:
    """
    A log dir and its processes.

    Attributes:
        root: for everything that no accident reaches.
        has_daemon: otherwise the writer cleans by itself.
        rate: operations a second of each client.
        is_doubtful: the disk may have lost what was not forced to it since the log dir was opened.
        frozen: processes that are stopped.
        rounds_before: rounds of daemons that have ended.
    """

    name: str
    log_dir: Path
    root: Path
    seed: int
    rate: float
    has_daemon: bool = True
    writer: subprocess.Popen[str] | None = None
    reader: subprocess.Popen[bytes] | None = None
    life: int = 0
    is_doubtful: bool = False
    troubles: list[Trouble] = field(default_factory=list)
    frozen: set[str] = field(default_factory=set)
    gauges: list[Gauge] = field(default_factory=list)
    rounds_before: float = 0.0
    rounds_now: float = 0.0

    def __post_init__(self) -> None:
        (self.root / "daemon").mkdir(parents=True)
        self.model = Model(self.log_dir, TOPICS, self.root / "copies")
        # The readers' notes are read first: what they were shown was noted before by the writer.
        self._notes = [NotesReader(self.root / f"{who}.notes") for who in ("reader", "writer")]
        self.daemon = CleanerRun(self.root / "daemon", DAEMON | {"log.dirs": str(self.log_dir)})
        self._errors = (self.root / "errors").open("ab")
        self._address: tuple[int, str] | None = None
        self._failed_scrapes = 0

    # ---- processes -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start everything."""
        self.open_writer()
        if self.has_daemon:
            self.start_daemon()
        self.start_reader()

    def open_writer(self) -> None:
        """Start a writer and, while it waits, judge what it has opened."""
        settings = {"manager": _MANAGER, "topics": TOPICS, "cleaner": not self.has_daemon}
        self.writer = self._start("writer", json.dumps(settings), is_spoken_to=True)
        self._hear("ready")
        self.drain()
        self.model.judge(power_was_cut=self.is_doubtful)
        self.is_doubtful = False
        self.life += 1
        order = {"life": self.life, "seed": f"{self.seed}/{self.name}/{self.life}", "rate": self.rate}
        self.model.up_since = time.monotonic()
        self._tell(f"go {json.dumps({**order, 'again': self.model.last_stamped()})}")
        self._watch("writer", self.writer.pid)

    def start_reader(self) -> None:
        """Start a reader."""
        self.reader = self._start("reader", "2", *TOPICS)
        self._watch("reader", self.reader.pid)

    def start_daemon(self) -> None:
        """Start a daemon."""
        self.rounds_before, self.rounds_now = self.rounds_before + self.rounds_now, 0.0
        self.daemon.start()
        self._watch("daemon", self.daemon.pid)

    def _start(self, what: str, *more: str, is_spoken_to: bool = False) -> subprocess.Popen[Any]:
        command = [sys.executable, "-m", f"tests.soak.{what}", str(self.log_dir), str(self.root / f"{what}.notes")]
        pipe = subprocess.PIPE if is_spoken_to else subprocess.DEVNULL
        return subprocess.Popen(
            [*command, *more], cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=self._errors, text=is_spoken_to
        )

    def kill_writer(self) -> None:
        """SIGKILL."""
        self.end_writer(signal.SIGKILL)

    def end_writer(self, number: signal.Signals) -> None:
        """Kill it, or have it close in order."""
        writer = self.require_writer()
        self.model.up_since = math.inf
        writer.send_signal(number)
        code = writer.wait(_ANSWER_SECONDS)
        expected = (-number,) if number is signal.SIGKILL else (0,)
        if code not in (*expected, *((LOG_CLOSED,) if self.is_troubled(time.monotonic()) else ())):
            raise Wrong(f"the writer ended with {code}:\n{self.errors()}")
        self._drop_writer()

    def kill_reader(self) -> None:
        """SIGKILL."""
        if self.reader is not None:
            self.reader.kill()
            self.reader.wait()
            self.reader = None

    def kill_daemon(self) -> None:
        """SIGKILL."""
        self.frozen.discard("daemon")
        self.daemon.kill()

    def end_all(self) -> None:
        """Kill all that is left."""
        self.kill_reader()
        if self.writer is not None:
            self.writer.kill()
            self.writer.wait()
            self._drop_writer()
        if self.daemon.process is not None and self.daemon.process.poll() is None:
            self.kill_daemon()

    def keep(self) -> None:
        """Stop the processes where they are, and copy the log dir to where it stays."""
        self.end_all()
        try:
            shutil.copytree(self.log_dir, self.root / "kept")
        except (shutil.Error, OSError) as error:
            (self.root / "not-kept").write_text(str(error))

    def _drop_writer(self) -> None:
        writer = self.require_writer()
        for pipe in (writer.stdin, writer.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        self.writer = None
        self.frozen.discard("writer")

    def require_writer(self) -> subprocess.Popen[str]:
        """Return the writer, which there is."""
        assert self.writer is not None
        return self.writer

    def pid_of(self, what: str) -> int:
        """Return the number of a process."""
        if what == "daemon":
            return self.daemon.pid
        process = self.writer if what == "writer" else self.reader
        assert process is not None
        return process.pid

    def freeze(self, what: str) -> None:
        """SIGSTOP."""
        self.frozen.add(what)
        os.kill(self.pid_of(what), signal.SIGSTOP)

    def thaw(self, what: str) -> None:
        """SIGCONT."""
        os.kill(self.pid_of(what), signal.SIGCONT)
        self.frozen.discard(what)

    # ---- the writer's ear ------------------------------------------------------------------------------------------

    def _tell(self, line: str) -> None:
        pipe = self.require_writer().stdin
        assert pipe is not None
        print(line, file=pipe, flush=True)

    def _hear(self, expected: str = "") -> str:
        writer = self.require_writer()
        assert writer.stdout is not None
        ready, _, _ = select.select([writer.stdout], [], [], _ANSWER_SECONDS)
        line = writer.stdout.readline().strip() if ready else ""
        if not line or (expected and line != expected):
            raise Wrong(f"the writer says {line!r} instead of {expected!r} ({writer.poll()}):\n{self.errors()}")
        return line

    def judge_at_rest(self) -> None:
        """Judge the files while the writer waits, and let it go on."""
        self._tell("pause")
        self._hear("paused")
        self.drain()
        self.model.judge(power_was_cut=False)
        self.model.judge_retention()
        self._tell("go {}")

    def roll_writer(self) -> None:
        """Bring the writer to rest, and have it roll all logs."""
        self._tell("roll")
        self._hear("rolled")
        self.drain()

    def finish_writer(self, *, roll: bool = True) -> None:
        """Have the writer close, after a roll."""
        if roll:
            self.roll_writer()
        self._tell("end")
        code = self.require_writer().wait(_ANSWER_SECONDS)
        if code:
            raise Wrong(f"the writer ended with {code}:\n{self.errors()}")
        self.model.up_since = math.inf
        self._drop_writer()

    def errors(self) -> str:
        """Return the end of what writers and readers wrote to their standard error."""
        return (self.root / "errors").read_text(errors="replace")[-3000:]

    # ---- what is looked at all the time ----------------------------------------------------------------------------

    def is_troubled(self, moment: float) -> bool:
        """Tell whether calls may have failed at a moment."""
        return any(each.begin <= moment <= each.end + _GRACE_SECONDS for each in self.troubles)

    def drain(self) -> None:
        """Take in all notes. Raises Wrong: what they say must not be."""
        notes = [note for reader in self._notes for note in reader.read()]
        for note in sorted(notes, key=itemgetter("t")):
            if note["do"] in _OF_FSYNCS and self._may_be_untrue(note["t"]):
                self.model.counts["answers not believed"] += 1
            elif note["do"] != "error":
                self.model.take(note)
            elif not self._may_fail(note):
                raise Wrong(f"{self.name}: a call failed: {note}")

    def _may_fail(self, note: dict[str, Any]) -> bool:
        # Retention may be faster than a reader.
        is_expired = note["what"] == "OffsetOutOfRangeError" and "delete" in TOPICS[note["p"][:-2]]["cleanup.policy"]
        return is_expired or self.is_troubled(note["t"])

    def _may_be_untrue(self, moment: float) -> bool:
        """Tell whether an fsync answered at a moment, and what readers were shown because of it, may be lost."""
        return any(each.begin <= moment <= each.lies_until for each in self.troubles)

    def look(self) -> None:
        """See that all processes are there that should be, and what they say. Raises Wrong: one is not."""
        self.drain()
        if self.has_daemon and (self.daemon.process is None or self.daemon.process.poll() is not None):
            raise Wrong(f"{self.name}: the daemon has ended:\n{self.daemon.log_file.read_text()[-3000:]}")
        for what, process in (("writer", self.writer), ("reader", self.reader)):
            if process is not None and process.poll() is not None:
                if what == "writer" and process.returncode == LOG_CLOSED and self.is_troubled(time.monotonic()):
                    self.model.up_since = math.inf
                    self._drop_writer()
                else:
                    raise Wrong(f"{self.name}: the {what} has ended with {process.returncode}:\n{self.errors()}")

    def _watch(self, what: str, pid: int) -> None:
        self.gauges.append(Gauge(f"{self.name} {what}", pid))

    def measure(self) -> None:
        """Take a sample of every process."""
        if self.has_daemon and "daemon" not in self.frozen:
            self.rounds_now = self._rounds_of_daemon()
        if not self.has_daemon and "writer" not in self.frozen and self.writer is not None:
            self._tell("rounds")
            self.rounds_now = float(self._hear())
        for gauge in self.gauges:
            gauge.take(self.rounds)

    @property
    def rounds(self) -> float:
        """The rounds of all daemons so far, or of the writer's own cleaner."""
        return self.rounds_before + self.rounds_now

    def _rounds_of_daemon(self) -> float:
        if self._address is None or self._address[0] != self.daemon.pid:
            self._address = self.daemon.pid, self.daemon.events("http")[-1]["listen"]
        try:
            with urllib.request.urlopen(f"http://{self._address[1]}/metrics", timeout=60) as answer:
                lines = answer.read().decode().splitlines()
        except OSError as error:
            # A daemon answers within some seconds or not at all; on a busy machine that may happen once.
            self.model.counts["scrapes failed"] += 1
            self._failed_scrapes += 1
            if self._failed_scrapes > _MOST_FAILED_SCRAPES:
                raise Wrong(
                    f"{self.name}: {self._failed_scrapes} scrapes one after the other failed: {error}"
                ) from error
            return self.rounds_now
        self._failed_scrapes = 0
        return sum(float(line.split()[-1]) for line in lines if line.startswith("cleaner_rounds_total{"))

    def not_clean(self) -> list[str]:
        """Return the partitions that are not cleaned up to their active segment."""
        found = []
        for topic, its in TOPICS.items():
            if "compact" not in its["cleanup.policy"]:
                continue
            active = max(int(path.name[:20]) for path in (self.log_dir / f"{topic}-0").glob("*.log"))
            clean_to = checkpoints_of(self.log_dir, topic).get("cleaner-offset-checkpoint", 0)
            if clean_to < active:
                found.append(f"{topic}-0 to {clean_to} of {active}")
        return found
