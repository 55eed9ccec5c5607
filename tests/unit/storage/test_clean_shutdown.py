"""The clean-shutdown marker: R-112."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir

FS = FileSystem()


class Recorder(FileSystem):
    """Records the order of name changes and directory fsyncs."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def rename(self, source: Path, target: Path) -> None:
        """Rename."""
        self.calls.append(("rename", target.name))
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        """Remove."""
        if self.exists(path):
            self.calls.append(("remove", path.name))
        super().remove(path)

    def fsync_dir(self, path: Path) -> None:
        """Sync."""
        self.calls.append(("fsync_dir", path.name))
        super().fsync_dir(path)


def test_marker_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    """R-112: the same JSON, under its final name only, on disk with its directory."""
    fs = Recorder()
    LogDir(fs, tmp_path).write_marker()
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert fs.calls == [("rename", ".kafka_cleanshutdown"), ("fsync_dir", tmp_path.name)]
    assert LogDir(FS, tmp_path).has_clean_shutdown_marker()


def test_marker_is_removed_on_disk_too(tmp_path: Path) -> None:
    """A removed marker cannot come back after a power cut, also if a process before could not force its removal."""
    LogDir(FS, tmp_path).write_marker()
    fs = Recorder()
    LogDir(fs, tmp_path).remove_marker()
    LogDir(fs, tmp_path).remove_marker()
    fence = ("fsync_dir", tmp_path.name)
    assert fs.calls == [("remove", ".kafka_cleanshutdown"), fence, fence]
    assert not LogDir(FS, tmp_path).has_clean_shutdown_marker()


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":true}', b"\xff", b"[" * 4000, b" " * 5000],
    ids=["empty", "list", "no-epoch", "text", "bool", "bytes", "nested", "long"],
)
def test_marker_with_any_content_is_a_marker(tmp_path: Path, content: bytes) -> None:
    """R-112: only its existence counts."""
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    assert LogDir(FS, tmp_path).has_clean_shutdown_marker()
