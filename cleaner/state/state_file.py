"""
A small file that survives restarts: one JSON object with a format name and a version, replaced as a whole.

    {
     "format": "cleaner-quarantine",
     "version": 1,
     ...
    }

A file that cannot be used is never overwritten. It is renamed to `<name>.newer-1` if a later release wrote it, or to
`<name>.damaged-1` if its content is wrong, with the next free number; the caller starts with no content and reports it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from cleaner.base.json_values import JsonValue, NotJsonError, format_json, parse_json
from cleaner.storage.fs.file_system import FileSystem

LIMIT_BYTES = 64 << 20
"""Far more than a line for each of 100 000 partitions."""

Content = TypeVar("Content")


class BadStateError(ValueError):
    """The content is invalid for a state file of this format and version; the message says why."""


@dataclass(frozen=True)
class LoadedState(Generic[Content]):
    """
    The result of loading a file.

    Attributes:
        content: None if the file does not exist or cannot be used.
        moved_to: the new path of a file that cannot be used.
        reason: why it cannot be used.
    """

    content: Content | None
    moved_to: Path | None = None
    reason: str = ""


class StateFile(Generic[Content]):
    """
    One state file.

    Args:
        fs: the file system.
        path: the file; its directory must exist.
        format_name: the name in the file; never changes.
        version: of the output of `write`; all versions from 1 up to it can be read.
        read: converts a version and an object to the content; raises BadStateError.
        write: converts the content to an object; `format` and `version` are added here.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        format_name: str,
        version: int,
        read: Callable[[int, dict[str, JsonValue]], Content],
        write: Callable[[Content], Mapping[str, object]],
    ) -> None:
        self.path = path
        self._fs = fs
        self._format_name = format_name
        self._version = version
        self._read = read
        self._write = write

    def load(self) -> LoadedState[Content]:
        """
        Read the file; one that cannot be used is renamed.

        Raises:
            LogDirOfflineError: the disk failed, or it is not a regular file; nothing was changed.
        """
        try:
            with self._fs.open(self.path) as file:
                data = file.read(LIMIT_BYTES + 1, 0) if file.size() > LIMIT_BYTES else file.read(file.size(), 0)
        except FileNotFoundError:
            return LoadedState(None)
        try:
            version, values = self._parse(data)
            if version > self._version:
                reason = f"version {version} is newer than {self._version}, the newest known here"
                return LoadedState(None, self._move_away("newer"), reason)
            return LoadedState(self._read(version, values))
        except (NotJsonError, BadStateError) as error:
            return LoadedState(None, self._move_away("damaged"), str(error))

    def peek(self) -> Content | None:
        """
        Read the file and change nothing, for a process that does not own the file.

        Returns:
            None if it does not exist.
        Raises:
            BadStateError: it cannot be used: damaged, or of a later release.
            LogDirOfflineError: the disk failed, or it is not a regular file.
        """
        try:
            data = self._fs.read_bytes(self.path, LIMIT_BYTES)
        except FileNotFoundError:
            return None
        try:
            version, values = self._parse(data)
        except NotJsonError as error:
            raise BadStateError(str(error)) from error
        if version > self._version:
            raise BadStateError(f"version {version} is newer than {self._version}, the newest known here")
        return self._read(version, values)

    def save(self, content: Content) -> None:
        """
        Replace the file durably: a crash leaves the old or the new content.

        Raises:
            NoSpaceError, LogDirOfflineError: the old content is still there.
        """
        values = {"format": self._format_name, "version": self._version, **self._write(content)}
        self._fs.write_atomically(self.path, format_json(values, indent=1).encode("ascii") + b"\n")

    def _parse(self, data: bytes) -> tuple[int, dict[str, JsonValue]]:
        if len(data) > LIMIT_BYTES:
            raise BadStateError(f"more than {LIMIT_BYTES} bytes")
        values = parse_json(data)
        if values.get("format") != self._format_name:
            raise BadStateError(f"its format is not {self._format_name}")
        version = values.get("version")
        if type(version) is not int or version < 1:
            raise BadStateError("its version is not a number of at least 1")
        return version, values

    def _move_away(self, why: str) -> Path:
        for number in itertools.count(1):
            moved = self.path.with_name(f"{self.path.name}.{why}-{number}")
            if not self._fs.exists(moved):
                break
        self._fs.rename(self.path, moved)
        self._fs.fsync_dir(self.path.parent)
        return moved
