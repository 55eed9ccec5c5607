"""
Ends groups of a round, and segments of an erasure, in the background: while one is forced to disk, read back, swapped
in and its old files removed, the next one is recopied.

Groups end one after the other, in the log's order, so a crash leaves what it would leave without the background: some
groups swapped, at most one of them half-way, and none behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError, forget_frames
from cleaner.storage.fs.file_system import FileSystem

_PLENTY = 4  # times the size of a group: then two groups may be on the disk before old files are removed


class GroupEnds:
    """
    Runs the ends of groups, each on a thread of its own, one at a time. Its caller is one thread.

    Use it in a `with` block, which waits for the last one: no thread outlasts a round.
    """

    def __init__(self) -> None:
        self._thread: concurrency.Thread | None = None
        self._target: object = None
        self._error: BaseException | None = None
        self._after: Callable[[], None] | None = None
        self._last_bytes = 0
        self._lock = concurrency.Lock()
        # Guarded by _lock: whether the last thread has begun its work, and whether it must not.
        self._has_begun = self._is_cancelled = False

    def __enter__(self) -> GroupEnds:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Wait for the end that is under way; its error is that of an earlier group, and comes first."""
        try:
            self.wait()
        except BaseException as earlier:
            if self._thread is not None:
                self._join(self._thread)  # an interrupt came before it was waited for
            if error is not None and not isinstance(error, Exception):
                return  # an interrupt
            raise earlier from None

    def begin(self, target: object, end: Callable[[], None], after: Callable[[], None]) -> None:
        """
        Begin the end of a group; call `wait` before.

        Args:
            target: what is ended: from here on it is the end's, if `has` says so.
            end: what to do in the background; on an error it discards the target.
            after: called by the caller's thread in `wait`, after a success; changes what the next group's recopying
                reads.
        """
        self._has_begun = self._is_cancelled = False
        thread = concurrency.Thread(target=self._run, args=(end,), name="cleaner-group-end")
        try:
            self._thread, self._target, self._after = thread, target, after
            thread.start()
        except OutOfThreadsError:
            self._run(end)
        except BaseException:
            # An interrupt may come while `start` waits for a thread that runs already.
            with self._lock:
                self._is_cancelled = not self._has_begun
            if self._is_cancelled:
                self._thread = self._target = self._after = None
            raise

    def has(self, target: object) -> bool:
        """Tell whether the end of a target is under way, or was."""
        return self._target is target

    def _run(self, end: Callable[[], None]) -> None:
        with self._lock:
            if self._is_cancelled:
                return
            self._has_begun = True
        try:
            end()
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._error = error

    def linger(self) -> None:
        """Wait until nothing runs in the background; raises no error of it. Any thread may call it."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def linger_unless_plenty(self, fs: FileSystem, directory: Path, size: int) -> None:
        """
        Do so unless there is plenty of room for a group of this size, bytes, beside the one that is ending.

        Call it for each group: the one that is ending has its indexes still to write.
        """
        larger, self._last_bytes = max(size, self._last_bytes), size
        if fs.free_bytes(directory) < _PLENTY * larger:
            self.linger()

    def wait(self) -> None:
        """Wait for the end that is under way, if there is one. Raises its error."""
        if self._thread is None:
            return
        interrupt = self._join(self._thread)
        self._thread = None
        error, self._error = self._error, None
        after, self._after = self._after, None
        if error is None and after is not None:
            after()
        if error is not None:
            forget_frames(error)
            raise error
        if interrupt is not None:
            raise interrupt

    @staticmethod
    def _join(thread: concurrency.Thread) -> BaseException | None:
        """Wait for a thread, even if interrupted: it works in the partition. Returns the interrupt."""
        interrupt = None
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:  # noqa: BLE001 - returned
                interrupt = error
        return interrupt
