"""
A writable log among many threads: one at a time has it to itself, until it is closed or has to be.

It has to be closed, for good, when nobody knows any more what is on disk: after a failed fsync (C-2), or when a step
was left in the middle and could not be taken back. Forcing to disk is done without holding the log, so that it does not
hold up appends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cleaner.errors import CleanerError, FailedFsyncError, LogClosedError, LogWriteError
from cleaner.log.origin import Origin
from cleaner.log.writable_log import WritableLog
from cleaner.storage.fs.file_system import disk_errors

_Result = TypeVar("_Result")


class GuardedLog:
    """
    See the head of the file. Not to be shared with a forked child.

    Attributes:
        origin: the process that may use it.

    Args:
        log: to be guarded; single numbers of it are read by others without asking here.
        directory: the partition's.
        tell: called when something may have changed, by the thread that did it, holding no lock.
    """

    def __init__(self, log: WritableLog, directory: Path, tell: Callable[[], None]) -> None:
        self._directory = directory
        self._tell = tell
        self.origin = Origin(directory)
        self._lock = threading.RLock()
        # Guarded by _lock.
        self._log = log
        self._end: LogClosedError | None = None
        self._was_closed_in_order = False
        # Seen by others as False: only the thread that holds the lock can meet itself here.
        self._is_running = False

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed, or had to be."""
        return self._end is not None

    def require_open(self) -> None:
        """
        Make sure that the log can be used, and by this process.

        Raises:
            LogClosedError, FailedFsyncError, ForkedError: see there.
        """
        self.origin.require_own()
        if self._end is not None:
            raise self._end.with_traceback(None)

    def _require_usable(self) -> None:
        """As `require_open`, by who has the lock: whether a step was left in the middle can be told then."""
        if not self._is_running:
            self._close_if_in_doubt("an exception")
        self.require_open()

    @property
    def lock(self) -> threading.RLock:
        """
        What is to be held by who asks the log for more than a single number.

        Raises:
            ForkedError: it may be held by a thread that is not there.
        """
        self.origin.require_own()
        return self._lock

    def require_closed_in_order(self) -> None:
        """
        Make sure that the log was left as a clean stop leaves it.

        Raises:
            LogClosedError: why it was not.
        """
        if not self._was_closed_in_order:
            raise self._end or LogClosedError(self._directory, "it is still open")

    def run(self, step: Callable[[WritableLog], _Result]) -> _Result:
        """
        Take a step with the log to oneself; the log is closed for good when nobody knows what it is like then.

        Raises:
            LogClosedError, FailedFsyncError, ForkedError: see `require_open`.
            LogWriteError: the thread is in the middle of a step, and a signal handler wants to take one.
            LogDirOfflineError, OutOfDescriptorsError: an `OSError` of the step.
        """
        # Before the lock, too: in a forked child it may be held by a thread that is not there.
        self.require_open()
        try:
            # The lock itself, and not a function that takes it: an interrupt cannot come between it and the block.
            with self._lock:
                self._require_usable()
                if self._is_running:
                    raise LogWriteError(self._directory, "called by a signal handler, in the middle of another call")
                self._is_running = True
                try:
                    with disk_errors(self._directory):
                        return step(self._log)
                except LogClosedError as error:
                    self._close_for_good(error)
                    raise
                except BaseException as error:
                    self._close_if_in_doubt(type(error).__name__)
                    raise
                finally:
                    self._is_running = False
        finally:
            self._tell()

    def flush_to_disk(self) -> int:
        """
        Force all that was appended up to now to disk; returns the offset up to which, exclusive, all is there.

        Raises:
            FailedFsyncError: now or earlier; what is on disk beyond `flushed_offset` is not known.
            LogClosedError: closed meanwhile.
            LogWriteError: the thread is in the middle of an fsync, and a signal handler wants another.
        """
        self.require_open()
        with self._lock:
            self._require_usable()
            end, segment = self._log.log_end_offset, self._log.active
            if end == self._log.flushed_offset:
                return end
        error: CleanerError | None = None
        try:
            segment.fsync_log()
        except LogWriteError:
            raise
        except CleanerError as failed:
            error = failed
        with self._lock:
            if error is not None:
                self._close_for_good(FailedFsyncError(self._directory, error))
            # A roll has noted it already; after a cut other records have these offsets.
            elif not segment.is_retired:
                self._log.note_flushed(end)
        self._tell()
        with self._lock:
            self.require_open()
            flushed, is_other = self._log.flushed_offset, self._log.active is not segment
        # A roll was interrupted before it had noted it, or the log was cut.
        return self.flush_to_disk() if flushed < end and is_other else flushed

    def close(self) -> None:
        """
        Leave the log as a clean stop does: trimmed, flushed, with a snapshot at its end. A second call does nothing.

        Raises:
            FailedFsyncError, LogDirOfflineError, NoSpaceError, LogChangedError: it could not, and is closed anyway.
            ForkedError: it is the parent's.
        """
        self.origin.require_own()
        with self._lock:
            self._close_if_in_doubt("an exception")
            if self._end is not None:
                # Once more, as the first time may have been interrupted.
                self._log.let_go()
                return
            try:
                with disk_errors(self._directory):
                    self._log.finish()
                self._was_closed_in_order = True
            except LogClosedError as error:
                self._close_for_good(error)
                raise
            except CleanerError as error:
                self._close_for_good(LogClosedError(self._directory, f"closing it failed: {error}"))
                raise
            finally:
                self._close_for_good(LogClosedError(self._directory))
                self._tell()

    def abandon(self) -> None:
        """Let go of the files and leave the log as it is, as a killed process would. Raises ForkedError."""
        self.origin.require_own()
        with self._lock:
            self._close_for_good(LogClosedError(self._directory))
        self._tell()

    def _close_if_in_doubt(self, what: str) -> None:
        if self._log.is_in_doubt:
            reason = f"{what} came in the middle of a change; open the log again"
            self._close_for_good(LogClosedError(self._directory, reason))

    def _close_for_good(self, end: LogClosedError) -> None:
        if self._end is None:
            self._end = end
        self._log.let_go()
