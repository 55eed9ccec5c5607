"""
Spark in a process of its own, for a process that runs for years: its heap, its signals and its crashes stay there.

The session is started for the first job, and kept as long as somebody is at work and for a while behind: starting one
takes some ten seconds, and several logs are often due at a time. What the child and its JVM print is kept in a file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cleaner.errors import SparkJobError
from cleaner.spark.clean.job import pack, unpack
from cleaner.spark.clean.plan import CopyRules, JobSettings
from cleaner.spark.clean.recopy_task import GroupResult, GroupWork
from cleaner.spark.clean.spark_jobs import DigestResult, DigestWork

LOG_NAME = "spark.log"
IDLE_SECONDS = 120.0


class _Child:
    """
    One process with a session.

    Raises:
        SparkJobError: it is not started, as where this process may not read its own program any more.
    """

    def __init__(self, given: Mapping[str, str], log: Path) -> None:
        self.slots: Future[int] = Future()
        self._log = log
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}  # guarded by _lock
        self._numbers = itertools.count(1)
        self._not_started: OSError | None = None
        started = threading.Event()
        # The thread that starts the process stays as long as it does: the process is killed when that thread ends.
        self._reader = threading.Thread(target=self._serve, args=(started,), name="cleaner-spark", daemon=True)
        self._reader.start()
        started.wait()
        if self._not_started is not None:
            raise SparkJobError(f"Python is not started for Spark: {self._not_started}")
        self.tell({"spark": dict(given)})

    def _serve(self, started: threading.Event) -> None:
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    # -P: not from the directory we were started in, which may be anybody's.
                    [sys.executable, "-P", "-m", "cleaner.spark.clean.job", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the parent
                )
        except OSError as error:
            self._not_started = error
            return
        finally:
            started.set()
        for line in self._process.stdout or ():
            self._hear(json.loads(line))
        self._process.wait()
        self._end(f"the Spark process ended with {self._process.returncode}; {self._log} says more")

    def _hear(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            if "slots" in message:
                self.slots.set_result(message["slots"])
            else:
                self.slots.set_exception(SparkJobError(message["failed"]))
            return
        with self._lock:
            task = self._waiting.pop(message["id"])
        if "done" in message:
            task.set_result(unpack(message["done"]))
        else:
            task.set_exception(SparkJobError(message["failed"]))

    def _end(self, reason: str) -> None:
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
        for task in (self.slots, *left):
            if not task.done():
                task.set_exception(SparkJobError(reason))

    @property
    def is_alive(self) -> bool:
        """Whether jobs can be given to it."""
        return self._reader.is_alive() and self._process.poll() is None

    def tell(self, message: dict[str, Any]) -> None:
        """Write a line to it; one that is gone tells so through its jobs."""
        with self._lock:
            if self._process.stdin is not None and not self._process.stdin.closed:
                try:
                    self._process.stdin.write(json.dumps(message) + "\n")
                    self._process.stdin.flush()
                except BrokenPipeError:
                    return

    def run(self, what: str, arguments: tuple[object, ...]) -> Any:
        """Run a job and wait for it."""
        self.slots.result()
        number, task = next(self._numbers), Future[Any]()
        with self._lock:
            self._waiting[number] = task
        self.tell({"id": number, "do": what, "arguments": pack(arguments)})
        if not self.is_alive:
            self._end(f"the Spark process is gone; {self._log} says more")
        return task.result()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self._process.kill()
        self._reader.join()


class ChildJobs:
    """
    Runs jobs in a child process, which is started when it is needed and ended when it is not. Thread-safe.

    Args:
        given: `spark.*` keys.
        work_dir: where the child's output is kept.
        idle_seconds: how long a child without work is kept.

    Attributes:
        given: of the next child that is started.
    """

    def __init__(self, given: Mapping[str, str], work_dir: Path, idle_seconds: float = IDLE_SECONDS) -> None:
        self.given = given
        self._work_dir = work_dir
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        # All guarded by _lock.
        self._child: _Child | None = None
        self._users = 0
        self._timer: threading.Timer | None = None

    @property
    def slots(self) -> int:
        """How many tasks run at the same time; starts the child."""
        with self._using() as child:
            return child.slots.result()

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges. Raises SparkJobError."""
        with self._using() as child:
            result: DigestResult = child.run("digest", (work, name))
            return result

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group. Raises SparkJobError."""
        with self._using() as child:
            result: GroupResult = child.run("recopy", (settings, rules, work, name))
            return result

    def cancel(self, name: str) -> None:
        """Cancel all jobs of this name."""
        with self._lock:
            child = self._child
        if child is not None:
            child.tell({"cancel": name})

    def close(self) -> None:
        """End the child; jobs that are under way fail. The next job would start another one."""
        with self._lock:
            child, self._child = self._child, None
            if self._timer is not None:
                self._timer.cancel()
        if child is not None:
            child.close()

    @contextmanager
    def _using(self) -> Iterator[_Child]:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._child is None or not self._child.is_alive:
                self._child = _Child(self.given, self._work_dir / LOG_NAME)
            child, self._users = self._child, self._users + 1
        try:
            yield child
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._timer = threading.Timer(self._idle_seconds, self._close_idle)
                    self._timer.daemon = True
                    self._timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            is_idle = not self._users
        if is_idle:
            self.close()
