"""
Telling damage from change: next to a writer a log may be cut, or lose its oldest segments, while it is read.

Any failure then (a file that is gone, a batch that ends too early, an index that does not fit) looks like damage. It
counts as damage only if the log's segments are unchanged.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cleaner.app.session import Session
from cleaner.errors import CleanerError, CorruptLogError, LogChangedError, LogDirOfflineError, UncleanableError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog, list_segments
from cleaner.storage.segment.segment import Segment

Follow = Callable[[LoadedLog], None]
"""Must be called with a log as soon as it is loaded."""


class _Watch:
    """
    The files of a log while it is cleaned, except the active segment, which changes all the time.

    Args:
        fs: the file system.
        directory: the partition's.
    """

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._directory = directory
        # Before the listing: a change in between then counts as a change, which only costs another attempt.
        self._mtime_ns = self._directory_mtime_ns()
        self._segments = list_segments(fs, directory)
        self._log: LoadedLog | None = None

    def follow(self, log: LoadedLog) -> None:
        """From now on use the loaded log, which knows its own swaps."""
        self._log = log

    def is_same(self) -> bool:
        """Tell whether all segments still exist, unchanged."""
        if self._log is not None:
            return _are_unchanged(self._log.segments[:-1])
        # The then active segment may since have been closed, loaded, and cut: the segments are the same, but the
        # directory has changed.
        try:
            return self._directory_mtime_ns() == self._mtime_ns and _are_unchanged(self._segments[:-1])
        except FileNotFoundError:
            return False

    def _directory_mtime_ns(self) -> int:
        return self._fs.stat(self._directory).st_mtime_ns


def _follow_nothing(_: LoadedLog) -> None:
    """Do nothing: the `Follow` for a log dir without a writer, where no log changes."""


def _are_unchanged(segments: Sequence[Segment]) -> bool:
    return all(segment.is_unchanged() for segment in segments)


@contextlib.contextmanager
def detect_changes(session: Session, directory: Path) -> Iterator[Follow]:
    """
    Load and clean a log in this `with` block, and call the yielded `Follow` with the loaded log, which knows its swaps.

    Raises:
        LogChangedError: something failed, and the writer has cut the log or deleted from it in the meantime.
    """
    if not session.beside_writer:
        yield _follow_nothing
        return
    try:
        watch = _Watch(session.context.fs, directory)
        yield watch.follow
    except (CleanerError, OSError) as error:
        looks_like_damage = isinstance(error, CorruptLogError | UncleanableError)
        if _is_missing_file(error) or (looks_like_damage and not watch.is_same()):
            raise LogChangedError(f"{directory}: the writer has changed it during the round ({error})") from error
        raise


def _is_missing_file(error: CleanerError | OSError) -> bool:
    """Tell whether a file is missing: a file that a round needs is missing only if a writer has just deleted it."""
    cause = error.cause if isinstance(error, LogDirOfflineError) else error
    return isinstance(cause, OSError) and cause.errno == errno.ENOENT
