"""
Checks that driver and executors see the same files, by a token in the partition's directory and one in the job's.

The paths alone prove nothing: on another machine the same path may be another disk, with another broker's logs on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cleaner.errors import LogDirOfflineError, SparkJobError
from cleaner.spark.clean.plan import JobSettings
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import cleaned_file_name

_SUFFIX = ".probe"


def leave_probes(fs: FileSystem, settings: JobSettings) -> None:
    """Write the tokens. The one in the partition's directory is a file that every loader removes."""
    for path, like in _places(settings):
        fs.remove(path)
        with fs.create(path, like=like) as file:
            file.write(settings.probe.encode("ascii"), 0)


def remove_probes(fs: FileSystem, settings: JobSettings) -> None:
    """Remove the tokens."""
    for path, _ in _places(settings):
        fs.remove(path)


def require_probes(fs: FileSystem, settings: JobSettings) -> None:
    """
    Check, in a task, that it sees the driver's files.

    Raises:
        SparkJobError: it sees other files, or may not read them.
    """
    for path, directory in _places(settings):
        try:
            found = fs.read_bytes(path, 1024).decode("ascii", "replace")
        except FileNotFoundError:
            found = ""
        except LogDirOfflineError as error:
            raise SparkJobError(f"{error}: executors must be able to read {directory}") from error
        if found != settings.probe:
            raise SparkJobError(
                f"{directory}: an executor does not see the driver's files there; log dir and work directory must be "
                "on a file system that all executors mount at the same path"
            )


@contextlib.contextmanager
def at_work(fs: FileSystem, settings: JobSettings) -> Iterator[None]:
    """
    Hold the partition's directory, the same as the driver's, for a task.

    Raises:
        SparkJobError: as `require_probes`.
        LogDirOfflineError: the directory cannot be opened.
    """
    try:
        held = fs.hold(settings.directory, follow_above=True)
    except LogDirOfflineError:
        require_probes(fs, settings)  # gives the clearer error: this is not the driver's machine
        raise
    with held:
        require_probes(fs, settings)
        yield


def _places(settings: JobSettings) -> tuple[tuple[Path, Path], ...]:
    name = cleaned_file_name(0, _SUFFIX, settings.probe)
    return ((settings.directory / name, settings.directory), (settings.work_dir / "probe", settings.work_dir))
