"""
Who may use the logs of a log dir: a writer that loads them, a cleaner without a writer, or a writer and a cleaner.

A writer that opens a log dir first recovers its logs, and until then no other process may touch them. A cleaner that
finds no writer loads logs as a broker would and leaves them as a clean stop would, so no writer may begin during its
rounds. Alongside a running writer it does much less. Which case applies is decided when a round begins, until it ends:

    byte of `.lock`                    3 (the logs)   4 (waiting)
    writer, waiting for rounds to end  tries write    write
    writer, loading                    write
    writer, at work                    read
    rounds without a writer            write
    rounds beside a writer             read

At each buffer, a round asks whether a writer waits, and is aborted if so: a writer never waits for the end of a round.
No round begins while a writer waits.
"""

from __future__ import annotations

from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.errors import LogDirLockedError
from cleaner.storage.fs.file_system import File
from cleaner.storage.lock.byte_ranges import READ, WRITE, holder_of, try_lock, unlock
from cleaner.storage.lock.lock_bytes import LOGS_BYTE, WAITING_BYTE
from cleaner.storage.lock.waiting import wait_until


class LogsAccess:
    """
    One holder's access to the logs of a log dir. Safe to share between threads.

    Args:
        path: the lock file, for errors.
        file: the lock file, open; the log dir itself is locked already.
        is_alone: the log dir is locked exclusively, so no other process is there.
    """

    def __init__(self, path: Path, file: File, *, is_alone: bool) -> None:
        self._path = path
        self._file = file
        self._is_alone = is_alone
        self._guard = concurrency.Lock()
        # Guarded by _guard: how many rounds are running, and whether alongside a writer.
        self._rounds = 0
        self._is_beside_writer = False

    @property
    def is_beside_writer(self) -> bool:
        """Tell whether the running rounds are alongside a writer; meaningless while there are none."""
        return self._is_beside_writer

    def enter(self) -> bool:
        """
        Begin a round; returns whether it is alongside a writer. The first round decides, concurrent ones join it.

        Raises:
            LogDirLockedError: a writer waits for the logs or loads them.
        """
        with self._guard:
            if self.is_writer_waiting():
                raise LogDirLockedError(f"{self._path}: a writer is about to load the logs")
            if self._rounds == 0 and not self._is_alone:
                self._choose_side()
            self._rounds += 1
            return self._is_beside_writer

    def _choose_side(self) -> None:
        if try_lock(self._file, WRITE, LOGS_BYTE, 1):
            self._is_beside_writer = False
        elif try_lock(self._file, READ, LOGS_BYTE, 1):
            self._is_beside_writer = True
        else:
            raise LogDirLockedError(f"{self._path}: a writer is loading the logs")

    def leave(self) -> None:
        """End a round; the last one releases the logs. Raises ValueError: no round is running."""
        with self._guard:
            if self._rounds == 0:
                raise ValueError("no round is running")
            self._rounds -= 1
            if self._rounds == 0 and not self._is_alone:
                unlock(self._file, LOGS_BYTE, 1)

    def is_writer_waiting(self) -> bool:
        """Tell whether a writer waits for the rounds to end."""
        return not self._is_alone and holder_of(self._file, READ, WAITING_BYTE, 1) is not None

    # ---- the writer's side -----------------------------------------------------------------------------------------

    def wait_to_load(self, clock: Clock, patience_ms: int) -> None:
        """
        Take the logs exclusively, for a writer that is about to load them; running rounds are asked to end.

        Raises:
            LogDirLockedError: they did not end in time.
        """
        with self._guard:
            if self._is_alone:
                return
            # Held until the logs are taken: a round that began in between would be aborted at its first buffer.
            if not try_lock(self._file, WRITE, WAITING_BYTE, 1):
                raise LogDirLockedError(f"{self._path}: another writer waits for the logs")
            try:
                if not wait_until(lambda: try_lock(self._file, WRITE, LOGS_BYTE, 1), clock, patience_ms):
                    raise LogDirLockedError(f"{self._path}: a cleaner did not release the logs within {patience_ms} ms")
            finally:
                unlock(self._file, WAITING_BYTE, 1)

    def admit_cleaner(self) -> None:
        """
        Let rounds begin alongside this writer: every log is loaded, recovered and settled.

        Raises:
            LogDirLockedError: this writer does not have the logs.
        """
        if not self._is_alone and not try_lock(self._file, READ, LOGS_BYTE, 1):
            raise LogDirLockedError(f"{self._path}: this writer does not have the logs")
