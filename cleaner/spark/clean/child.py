"""
Runs Spark in a child process, to keep its heap, signals and crashes out of a daemon that runs for years.

The session is started for the first job, and kept while jobs run and for some time after: a start takes about ten
seconds, and several logs are often due at the same time. The output of the child and its JVM goes to a file.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cleaner.base import concurrency
from cleaner.errors import SparkJobError
from cleaner.spark.clean.plan import CopyRules, JobSettings
from cleaner.spark.clean.recopy_task import GroupResult, GroupWork
from cleaner.spark.clean.spark_jobs import DigestResult, DigestWork

LOG_NAME = "spark.log"
IDLE_SECONDS = 120.0


class _Child:
    """
    One child process with a session.

    Raises:
        SparkJobError: it cannot be started, for example because this process may no longer read its own program.
    """

    def __init__(self, given: Mapping[str, str], log: Path) -> None:
        self._lock = concurrency.Lock()
        self._waiting: dict[int, concurrency.Future[Any]] = {}  # guarded by _lock
        self._gone = ""  # why the child accepts no more jobs; guarded by _lock
        self._numbers = itertools.count(1)
        self._pipe, child_end = Pipe()
        started: concurrency.Future[subprocess.Popen[bytes]] = concurrency.Future()
        # The thread that starts the process must outlive it: the process is killed when that thread ends.
        arguments = started, child_end, log
        self._reader = concurrency.Thread(target=self._serve, args=arguments, name="cleaner-spark", daemon=True)
        self._reader.start()
        self._process = started.result()
        self._send(dict(given))

    def _serve(
        self, started: concurrency.Future[subprocess.Popen[bytes]], child_end: Connection, log_path: Path
    ) -> None:
        try:
            with child_end, log_path.open("wb") as log:
                process = subprocess.Popen(
                    # -P: import nothing from the current directory, which may belong to another user.
                    [sys.executable, "-P", "-m", "cleaner.spark.clean.job", str(os.getpid()), str(child_end.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[child_end.fileno()],
                    start_new_session=True,  # a Ctrl-C at the terminal is for the parent
                )
        except OSError as error:
            self._pipe.close()
            started.set_exception(SparkJobError(f"Python is not started for Spark: {error}"))
            return
        started.set_result(process)
        with contextlib.suppress(EOFError, OSError):  # the child was killed, perhaps in the middle of an answer
            while True:
                number, result, failure = self._pipe.recv()
                with self._lock:
                    task = self._waiting.pop(number)
                if failure is None:
                    task.set_result(result)
                else:
                    task.set_exception(SparkJobError(failure))
        process.kill()
        with self._lock:
            self._gone = f"the Spark process is gone: it ended with {process.wait()}; {log_path} says more"
            left, self._waiting = list(self._waiting.values()), {}
            self._pipe.close()
        for task in left:
            task.set_exception(SparkJobError(self._gone))

    @property
    def is_alive(self) -> bool:
        """Whether it accepts jobs."""
        return self._reader.is_alive() and self._process.poll() is None

    def begin(self, what: str, *arguments: object) -> concurrency.Future[Any]:
        """Begin a job. Raises SparkJobError if the process is gone; if it ends later, the future raises it."""
        with self._lock:
            if self._gone:
                raise SparkJobError(self._gone)
            number, task = next(self._numbers), concurrency.Future[Any]()
            self._waiting[number] = task
            self._send((number, what, arguments))
        return task

    def _send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # the reader notices
            self._pipe.send(message)

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._process.kill()
        self._reader.join()


class ChildJobs:
    """
    Runs jobs in a child process, which is started when it is needed and ended when it is idle. Thread-safe.

    Args:
        given: `spark.*` keys.
        work_dir: directory of the child's output file.

    Attributes:
        given: `spark.*` keys of the next child that is started.
    """

    def __init__(self, given: Mapping[str, str], work_dir: Path) -> None:
        self.given = given
        self._work_dir = work_dir
        self._lock = concurrency.Lock()
        # All guarded by _lock.
        self._child: _Child | None = None
        self._users = 0
        self._timer: concurrency.Timer | None = None

    @property
    def slots(self) -> int:
        """How many tasks run at the same time; starts the child."""
        with self._using() as child:
            return int(child.begin("slots").result())

    def digest(self, work: DigestWork, name: str) -> DigestResult:
        """Digest all ranges. Raises SparkJobError."""
        with self._using() as child:
            result: DigestResult = child.begin("digest", work, name).result()
            return result

    def recopy(self, settings: JobSettings, rules: CopyRules, work: GroupWork, name: str) -> GroupResult:
        """Recopy a group. Raises SparkJobError."""
        with self._using() as child:
            result: GroupResult = child.begin("recopy", settings, rules, work, name).result()
            return result

    def cancel(self, name: str) -> None:
        """Cancel all jobs of this name."""
        with self._lock:
            child = self._child
        if child is not None:
            with contextlib.suppress(SparkJobError):  # the child is gone, and its jobs too
                child.begin("cancel", name)

    def close(self) -> None:
        """End the child; running jobs fail. The next job starts another child."""
        with self._lock:
            child, self._child = self._child, None
            if self._timer is not None:
                self._timer.cancel()
        if child is not None:
            child.close()

    @contextlib.contextmanager
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
                    self._timer = concurrency.Timer(IDLE_SECONDS, self._close_idle)
                    self._timer.daemon = True
                    self._timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            is_idle = not self._users
        if is_idle:
            self.close()
