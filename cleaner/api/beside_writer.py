"""
Telling damage from change: beside a writer a log may be cut, or lose its oldest segments, while it is read.

Whatever fails then (a file that is gone, a batch that ends too early, an index that does not fit) looks like damage. It
is taken for damage only if the log is still the one that was there before.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

from cleaner.api.session import Session
from cleaner.errors import CleanerError, CorruptLogError, LogChangedError, LogDirOfflineError, UncleanableError
from cleaner.storage.log import Log, list_segments
from cleaner.storage.segment import Segment


class Watch:
    """
    What a log is made of while it is cleaned, but for the active segment, which changes all the time.

    Args:
        segments: those there were before it was loaded.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = list(segments)
        self._log: Log | None = None

    def follow(self, log: Log) -> None:
        """Go by a loaded log from now on, which knows of its own swaps."""
        self._log = log

    def is_same(self) -> bool:
        """Tell whether all segments are still there, unchanged."""
        segments = self._segments if self._log is None else self._log.segments[:-1]
        return all(segment.is_unchanged() for segment in segments)


@contextlib.contextmanager
def noticing_changes(session: Session, directory: Path) -> Iterator[Watch]:
    """
    Load and clean a log in this `with` block, and let what it yields `follow` the log; without a writer that is all.

    Raises:
        LogChangedError: something failed, and the writer has cut the log or deleted from it meanwhile.
    """
    if not session.beside_writer:
        yield Watch(())
        return
    try:
        watch = Watch(list_segments(session.surroundings.fs, directory)[:-1])
    except FileNotFoundError as error:
        raise LogChangedError(f"{directory}: the writer is deleting from it") from error
    try:
        yield watch
    except (CleanerError, OSError) as error:
        if not _looks_like_change(error) or watch.is_same():
            raise
        raise LogChangedError(f"{directory}: the writer has changed it meanwhile ({error})") from error


def _looks_like_change(error: CleanerError | OSError) -> bool:
    if isinstance(error, LogDirOfflineError):
        return error.cause.errno == errno.ENOENT
    return isinstance(error, CorruptLogError | UncleanableError | FileNotFoundError)
