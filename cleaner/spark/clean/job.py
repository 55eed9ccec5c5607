"""
The child process that holds the Spark session (`python -m cleaner.spark.clean.job`); `child.py` starts it.

Parent and child talk over a connection of `multiprocessing`: first the settings of the session, then jobs, several of
which may run at a time:

    (3, "recopy", (SETTINGS, RULES, WORK, NAME))     a method of `SessionJobs`, or an attribute, and its arguments
    (3, RESULT, None) or (3, None, "why it failed")

The child holds no lock and swaps nothing: if it is killed, it leaves only temporary files. It ends with the connection,
and with the process that started it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from cleaner.base import concurrency
from cleaner.errors import CleanerError
from cleaner.spark.clean.spark_jobs import SessionJobs, start_jobs

_PR_SET_PDEATHSIG = 1


class _Server:
    """Runs the requested jobs, each in its own thread, once the session has started."""

    def __init__(self, given: dict[str, str], parent: Connection) -> None:
        self._parent = parent
        self._lock = concurrency.Lock()
        self._session: concurrency.Future[SessionJobs] = concurrency.Future()
        concurrency.Thread(target=self._start, args=(given,), daemon=True).start()

    def _start(self, given: dict[str, str]) -> None:
        try:
            self._session.set_result(start_jobs("cleaner", given))
        except Exception as error:  # noqa: BLE001 - each job reports it
            self._session.set_exception(error)

    def run(self, number: int, what: str, arguments: tuple[Any, ...]) -> None:
        """Run a job and answer."""
        try:
            found = getattr(self._session.result(), what)
            self._answer(number, found(*arguments) if callable(found) else found, None)
        except Exception as error:  # noqa: BLE001 - the parent reports it
            words = str(error) if isinstance(error, CleanerError) else f"{type(error).__name__}: {error}"
            self._answer(number, None, words)

    def _answer(self, *answer: object) -> None:
        with self._lock:
            self._parent.send(answer)


def _die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the parent dies, even if the other end of the pipe is still open."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Serve until the connection ends."""
    _die_with_parent(int(sys.argv[1]))
    parent = Connection(int(sys.argv[2]))
    os.set_inheritable(parent.fileno(), False)
    try:
        server = _Server(parent.recv(), parent)
        while True:
            concurrency.Thread(target=server.run, args=parent.recv(), daemon=True).start()
    except (EOFError, OSError):
        os._exit(0)  # the JVM ends when its pipe from this process closes


if __name__ == "__main__":
    main()
