"""The page cache is not changed: a pass drops only pages that were not cached before."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from cleaner.cleaning.passes.segment_chunks import SegmentChunks
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.load.loaded_log import list_segments
from tests.support.log_builder import LogBuilder

pytestmark = pytest.mark.kernels

WINDOW_BYTES = 150


class ToldFile(File):
    """A file that reports a given cache state, and records dropped ranges."""

    def __init__(self, path: Path, handle: io.FileIO, is_warm: bool) -> None:
        super().__init__(path, handle)
        self._is_warm = is_warm
        self.dropped: list[tuple[int, int]] = []

    def is_cached(self, position: int) -> bool:
        """Return the given state."""
        return self._is_warm

    def drop_cache(self, position: int, size: int) -> None:
        """Note the range."""
        self.dropped.append((position, size))


class ToldFileSystem(FileSystem):
    """A disk with some segments in memory."""

    def __init__(self, warm: set[int]) -> None:
        self.logs: dict[int, ToldFile] = {}
        self._warm = warm

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open a file; a `.log` knows whether it is in memory."""
        file = super().open(path, write=write)
        if path.suffix != ".log":
            return file
        base_offset = int(path.stem)
        self.logs[base_offset] = ToldFile(path, file.handle, base_offset in self._warm)
        return self.logs[base_offset]


def read_all(fs: ToldFileSystem, directory: Path, *, drops_behind: bool) -> SegmentChunks:
    """Read a log's segments, window by window."""
    segments = ((i, segment, 0) for i, segment in enumerate(list_segments(fs, directory)))
    chunks, buffer = SegmentChunks(segments, WINDOW_BYTES, drops_behind=drops_behind), WindowBuffer(WINDOW_BYTES)
    while (claim := chunks.claim()) is not None:
        chunks.fill(claim, buffer)
        chunks.arrange(claim, buffer)
        chunks.release(claim)
    return chunks


def two_segments(tmp_path: Path) -> Path:
    """Write a log of two segments of some windows; the active one is empty."""
    log = LogBuilder()
    for number in range(20):
        log.append((f"key {number}", "value"))
        if number == 9:
            log.roll()
    log.roll()
    return log.write(tmp_path)


def test_windows_of_a_cold_segment_are_dropped_and_those_of_a_warm_one_stay(tmp_path: Path) -> None:
    """All windows of the cold one, none of the warm one."""
    directory = two_segments(tmp_path)
    fs = ToldFileSystem(warm={0})
    chunks = read_all(fs, directory, drops_behind=True)
    assert fs.logs[0].dropped == []
    size = (directory / f"{10:020d}.log").stat().st_size
    expected = [(at, min(WINDOW_BYTES, size - at)) for at in range(0, size, WINDOW_BYTES)]
    assert fs.logs[10].dropped == expected
    assert chunks.found_cold


def test_nothing_is_dropped_by_default(tmp_path: Path) -> None:
    """A short log's first pass keeps the pages that the second will read."""
    fs = ToldFileSystem(warm=set())
    assert read_all(fs, two_segments(tmp_path), drops_behind=False).found_cold
    assert [file.dropped for file in fs.logs.values()] == [[], []]


def test_log_in_memory_is_not_called_cold(tmp_path: Path) -> None:
    """Then the new segments stay there as well."""
    assert not read_all(ToldFileSystem(warm={0, 10}), two_segments(tmp_path), drops_behind=True).found_cold


def test_byte_just_read_is_cached(tmp_path: Path) -> None:
    """The check itself reads nothing from the disk, and there is nothing beyond the end."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    with FileSystem().open(path) as file:
        file.read(5000, 0)
        assert file.is_cached(0)
        assert file.is_cached(4999)
        assert not file.is_cached(5000)
        file.expect_sequential_reads()
        file.drop_cache(0, 0)
        assert file.read(5000, 0) == b"x" * 5000
