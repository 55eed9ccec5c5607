"""Detects with a few `stat` calls that the cluster's metadata log changed, or that another one is found now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cleaner.errors import CleanerError
from cleaner.settings.file_state import FileState, file_state
from cleaner.settings.metadata_log import METADATA_LOG, newest_segment
from cleaner.storage.fs.file_system import FileSystem


class MetadataLook:
    """
    The directories where a metadata log may be.

    A new snapshot or segment changes its directory, and records are appended to the newest segment only; so these two
    are checked, and the directory is listed only after it changed.

    Args:
        fs: the file system.
        named: directories that may be a metadata log or contain one, in the order of search.
        log_dirs: directories that may only contain one, searched after them. They change all the time.
        directory: the metadata log that was found; None: none.
    """

    def __init__(self, fs: FileSystem, named: Sequence[Path], log_dirs: Sequence[Path], directory: Path | None) -> None:
        self._fs = fs
        self._directory = directory
        self._candidates = [path for place in named for path in (place / METADATA_LOG, place)]
        self._candidates += [place / METADATA_LOG for place in log_dirs]
        self._listed_as: FileState | None = None
        self._newest: str | None = None

    def states(self) -> tuple[object, ...]:
        """Return the current state: equal as long as the same metadata log is found and has not changed."""
        states: list[object] = []
        for candidate in self._candidates:
            states.append(file_state(self._fs, candidate))
            if candidate == self._directory:
                break
        if self._directory is not None:
            states.append(self._newest_state(self._directory))
        return tuple(states)

    def _newest_state(self, directory: Path) -> tuple[object, ...]:
        state = file_state(self._fs, directory)
        if state is None:
            return (None,)
        if state != self._listed_as:
            try:
                self._newest = newest_segment(self._fs.list_dir(directory))
            except (OSError, CleanerError):
                return (state, None)
            self._listed_as = state
        return (state, None if self._newest is None else file_state(self._fs, directory / self._newest))
