"""
Ends groups of a round, and segments of an erasure, in the background: while one is forced to disk, read back, swapped
in and its old files removed, the next one is recopied.

Groups end one after the other, in the log's order, so a crash leaves what it would leave without the background: some
groups swapped, at most one of them half-way, and none behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cleaner.base import concurrency
from cleaner.cleaning.passes.lane_memory import LaneMemory
from cleaner.cleaning.passes.pipeline import threads_of
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.errors import OutOfThreadsError, forget_frames
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.storage.fs.file_system import FileSystem

_PLENTY = 4  # times the size of a group: then two groups may be on the disk before old files are removed

Note = Callable[[], None]
"""Notes, on the caller's thread, what a swap has changed of what the recopying of later groups reads."""


@dataclass(frozen=True)
class GroupEnd:
    """
    How a group that is recopied ends.

    Attributes:
        finish: forces the output to disk and reads it back with these buffers. On an error the output is discarded.
        install: swaps it in, with so many threads to remove files.
    """

    finish: Callable[[Sequence[WindowBuffer]], None]
    install: Callable[[int], Note]


class GroupEnds:
    """
    Runs the ends of groups, each on a thread of its own, one at a time. Its caller is one thread.

    Use it in a `with` block, which waits for the last one: no thread outlasts a round.
    """

    def __init__(self) -> None:
        self._thread: concurrency.Thread | None = None
        self._target: object = None
        self._error: BaseException | None = None
        self._note: Note | None = None
        self._last_bytes = 0

    def __enter__(self) -> GroupEnds:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Wait for the end that is under way; its error is that of an earlier group, and comes first."""
        try:
            self.wait()
        except BaseException as earlier:
            if self._thread is not None:
                concurrency.join_all([self._thread])  # an interrupt came before it was waited for
            if error is not None and not isinstance(error, Exception):
                return  # an interrupt
            raise earlier from None

    def recopy(
        self,
        target: CleanedSegment,
        recopy: Callable[[], GroupEnd | None],
        lanes: Sequence[LaneMemory],
        *,
        is_last: bool,
    ) -> None:
        """
        Recopy a group, and end it: in the background, unless it is the last one.

        An error before the swap discards the output, and the group is unchanged.

        Args:
            target: the output.
            recopy: writes it; returns how it ends, None if the group stays in place.
            lanes: memory for the end of the last group. The others are recopied with it meanwhile.
        """
        try:
            end = recopy()
            if end is None:
                return
            target.begin()  # here, as it may wait for the end of the group before: an end cannot wait for itself
            self.wait()
            if not is_last:
                self.begin(target, partial(_end, target, end))
                return
            # Removing many files mostly waits for the disk: use one thread more than the lanes keep busy.
            threads = threads_of(lanes) + 1
            end.finish([lane.buffer for lane in lanes])
        except BaseException:
            if not self.has(target):  # otherwise its end discards it
                target.discard()
            raise
        end.install(threads)()

    def begin(self, target: object, end: Callable[[], Note]) -> None:
        """
        Begin the end of a group; call `wait` before.

        Args:
            target: what is ended: from here on it is the end's, if `has` says so.
            end: what to do in the background; on an error it discards the target. What it returns is called in `wait`.
        """
        thread = concurrency.Thread(target=self._run, args=(end,), name="cleaner-group-end")
        try:
            self._thread, self._target = thread, target
            thread.start()
        except OutOfThreadsError:
            self._run(end)
        except BaseException:
            # An interrupt may come while `start` waits for a thread that runs already, or has ended since.
            if not thread.is_alive() and self._note is None and self._error is None:
                self._thread = self._target = None
            raise

    def has(self, target: object) -> bool:
        """Tell whether the end of a target is under way, or was."""
        return self._target is target

    def _run(self, end: Callable[[], Note]) -> None:
        try:
            self._note = end()
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
        interrupt = concurrency.join_all([self._thread])
        self._thread = None
        error, self._error = self._error, None
        note, self._note = self._note, None
        if note is not None:
            note()
        try:
            if error is not None:
                forget_frames(error)
                raise error
            if interrupt is not None:
                raise interrupt
        finally:
            del error, interrupt  # or they and this frame would refer to each other


def _end(target: CleanedSegment, end: GroupEnd) -> Note:
    """End a group in the background: the lanes are the next one's."""
    try:
        end.finish([WindowBuffer()])
    except BaseException:
        target.discard()
        raise
    return end.install(1)
