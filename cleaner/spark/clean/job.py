"""
The process that has the Spark session of another one (`python -m cleaner.spark.clean.job`); `child.py` starts it.

JSON lines in both directions; arguments and results are pickled, as both ends are of one release.

    {"spark": {"spark.master": ...}}                  the first line: the settings of the session
    {"id": 3, "do": "recopy", "arguments": "..."}     a job; several may run at a time
    {"cancel": "NAME"}                                 cancel all jobs of that name

    {"slots": 2}                                       the session has started
    {"failed": "..."}                                  it has not
    {"id": 3, "done": "..."} or {"id": 3, "failed": "..."}

It holds no lock and swaps nothing: what it leaves when it is killed are files that mean nothing. It ends with its
standard input, and with the process that started it.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from cleaner.errors import CleanerError
from cleaner.spark.clean.spark_jobs import SessionJobs, start_jobs

_PR_SET_PDEATHSIG = 1


def pack(value: object) -> str:
    """Return a value as a text that fits a line."""
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def unpack(text: str) -> Any:
    """Return the value of such a text; only ever of the process at the other end of a pipe."""
    return pickle.loads(base64.b64decode(text))  # noqa: S301 - the pipe is private to two processes of one user


class _Server:
    """Runs the jobs that are asked for, each in a thread of its own."""

    def __init__(self, say: Callable[[dict[str, Any]], None]) -> None:
        self._say = say
        self._jobs: SessionJobs | None = None

    def hear(self, line: str) -> None:
        """Do what a line says."""
        message = json.loads(line)
        if "spark" in message:
            threading.Thread(target=self._start, args=(message["spark"],), daemon=True).start()
        elif "cancel" in message:
            if self._jobs is not None:
                self._jobs.cancel(message["cancel"])
        else:
            threading.Thread(target=self._run, args=(message,), daemon=True).start()

    def _start(self, given: dict[str, str]) -> None:
        try:
            self._jobs = start_jobs("cleaner", given)
            self._say({"slots": self._jobs.slots})
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            self._say({"failed": _words(error)})

    def _run(self, message: dict[str, Any]) -> None:
        try:
            work = getattr(self._jobs, message["do"])
            self._say({"id": message["id"], "done": pack(work(*unpack(message["arguments"])))})
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            self._say({"id": message["id"], "failed": _words(error)})


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, CleanerError) else f"{type(error).__name__}: {error}"


def _die_with_parent(parent: int) -> None:
    """Be killed when the parent is gone, even if something still holds the other end of the pipe."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve until the standard input ends."""
    _die_with_parent(int(sys.argv[1]))
    # What Spark prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(message: dict[str, Any]) -> None:
        with lock:
            answers.write(json.dumps(message) + "\n")

    server = _Server(say)
    for line in sys.stdin:
        server.hear(line)
    # The JVM ends with the pipe it has from this process.
    os._exit(0)


if __name__ == "__main__":
    main()
