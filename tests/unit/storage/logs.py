"""Shared by tests of loading: load a built log, read a directory, watch the file system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from tests.support.log_builder import START_MS

# Small enough for a few batches to get index entries; pass the same to `LogBuilder`.
INTERVAL_BYTES = 100
TP = TopicPartition("topic", 0)
DAY_MS = 86_400_000


def load(
    directory: Path,
    *,
    fs: FileSystem | None = None,
    topic: TopicConfig | None = None,
    clean: bool = True,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    high_watermark: int | None = 2**62,
    allow_truncate: bool = True,
    read_only: bool = False,
    now_ms: int = START_MS,
    check_done: Callable[[], None] = lambda: None,
) -> LoadedLog:
    """Load a log with usual settings."""
    return load_log(
        fs or FileSystem(),
        directory,
        TP,
        topic=topic or TopicConfig(index_interval_bytes=INTERVAL_BYTES),
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        high_watermark=high_watermark,
        clean_shutdown=clean,
        producer_id_expiration_ms=DAY_MS,
        now_ms=now_ms,
        allow_truncate=allow_truncate,
        read_only=read_only,
        check_done=check_done,
    )


def finish(log: LoadedLog) -> None:
    """Settle and close."""
    log.settle(FileSystem(), nullcontext)
    log.close(FileSystem(), nullcontext)


def content(directory: Path) -> dict[str, bytes]:
    """Return every file of a directory by name."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


class WatchedFile(File):
    """A file that reports every change to its file system."""

    watcher: WatchedFileSystem

    def truncate(self, size: int) -> None:
        """Cut, and report it."""
        self.watcher.operations.append(f"truncate {self.path.name}")
        super().truncate(size)


class WatchedFileSystem(FileSystem):
    """The real file system; records changes of names and sizes."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; a writable one is watched."""
        file = super().open(path, write=write)
        if write:
            file.__class__ = WatchedFile
            assert isinstance(file, WatchedFile)
            file.watcher = self
        return file

    def remove(self, path: Path) -> None:
        """Remove, and report it if the file existed."""
        if self.exists(path):
            self.operations.append(f"remove {path.name}")
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, and report it."""
        self.operations.append(f"rename {source.name}")
        super().rename(source, target)

    def rename_all(self, directory: Path, pairs: Sequence[tuple[str, str]]) -> None:
        """Rename one by one."""
        for source, target in pairs:
            if self.exists(directory / source):
                self.rename(directory / source, directory / target)

    def fsync_dir(self, path: Path) -> None:
        """Fence, and report it."""
        self.operations.append("fence")
        super().fsync_dir(path)
