"""High watermarks that readers in other processes see at once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirLockedError, LogDirOfflineError
from cleaner.storage.files.published import BOOT_ID, ENTRY_BYTES, UNKNOWN, Published, Publisher
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.byte_ranges import READ, WRITE, try_lock
from cleaner.storage.segment.names import PUBLISHED
from tests.support.watched_fs import Operation, WatchedFileSystem

FS = FileSystem()
ORDERS, PRICES = TopicPartition("orders", 0), TopicPartition("prices", 3)


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    """A live writer."""
    made = Publisher(FS, tmp_path)
    yield made
    made.close()


@pytest.fixture
def prices(tmp_path: Path) -> Iterator[Published]:
    """A reader of one of its partitions."""
    made = Published(FS, tmp_path, PRICES)
    yield made
    made.close()


def test_offset_is_seen_as_soon_as_it_is_published(publisher: Publisher, prices: Published) -> None:
    """Raised, lowered, withdrawn; separately for each partition."""
    assert prices.high_watermark() is None
    publisher.publish(ORDERS, 5)
    assert prices.high_watermark() is None
    for offset in (0, 7, 2**62, 3):
        publisher.publish(PRICES, offset)
        assert prices.high_watermark() == offset
    publisher.publish(PRICES, UNKNOWN)
    assert prices.high_watermark() is None
    publisher.publish(PRICES, 4)
    assert prices.high_watermark() == 4


def test_offset_of_a_writer_that_left_is_not_believed(tmp_path: Path, publisher: Publisher, prices: Published) -> None:
    """Although it is still in the file: the log's next writer may not know the file."""
    publisher.publish(PRICES, 7)
    assert prices.high_watermark() == 7
    publisher.close()
    assert (tmp_path / PUBLISHED).stat().st_size == ENTRY_BYTES
    assert prices.high_watermark() is None
    publisher.publish(PRICES, 8)
    assert prices.high_watermark() is None


def test_offset_of_a_writer_that_was_killed_is_not_believed(tmp_path: Path, prices: Published) -> None:
    """The kernel releases its lock; then the next writer's offsets count, only for this partition."""
    code = (
        "import sys; from pathlib import Path; from cleaner.base.model import TopicPartition\n"
        "from cleaner.storage.fs.file_system import FileSystem; from cleaner.storage.files.published import Publisher\n"
        f"publisher = Publisher(FileSystem(), Path({str(tmp_path)!r}))\n"
        "publisher.publish(TopicPartition('prices', 3), 9); print('there', flush=True); sys.stdin.read()"
    )
    writer = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"there\n"
        assert prices.high_watermark() == 9
        with pytest.raises(LogDirLockedError, match="another writer"):
            Publisher(FS, tmp_path)
        writer.send_signal(signal.SIGKILL)
    assert prices.high_watermark() is None
    following = Publisher(FS, tmp_path)
    assert prices.high_watermark() is None
    following.publish(PRICES, 2)
    assert prices.high_watermark() == 2
    following.close()


class OtherBoot(FileSystem):
    """The same disk on another machine, or after a power cut."""

    def __init__(self, boot: Path) -> None:
        super().__init__()
        self._boot = boot

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open another file instead of the kernel's."""
        return super().open(self._boot if path == BOOT_ID else path, write=write)


@pytest.mark.parametrize("text", ["another", "", None], ids=["other", "empty", "missing"])
def test_offset_of_another_boot_is_not_believed(tmp_path: Path, text: str | None) -> None:
    """Even with the lock held; without a boot id, nothing is published or read."""
    boot = tmp_path / "boot"
    if text is not None:
        boot.write_text(text)
    elsewhere = Publisher(OtherBoot(boot), tmp_path)
    elsewhere.publish(PRICES, 9)
    here, there = Published(FS, tmp_path, PRICES), Published(OtherBoot(boot), tmp_path, PRICES)
    assert here.high_watermark() is None
    assert there.high_watermark() == (9 if text else None)
    for each in (here, there, elsewhere):
        each.close()


def test_half_an_entry_is_not_believed(tmp_path: Path, publisher: Publisher, prices: Published) -> None:
    """A reader in the middle of a write, at any byte; and a file that is cut or not ours."""
    publisher.publish(PRICES, 2**40)
    old = (tmp_path / PUBLISHED).read_bytes()
    publisher.publish(PRICES, 3)
    new = (tmp_path / PUBLISHED).read_bytes()
    for cut in range(1, ENTRY_BYTES):
        mixed = new[:cut] + old[cut:]
        for data in (mixed, new[:cut]):
            (tmp_path / PUBLISHED).write_bytes(data)
            assert prices.high_watermark() == {old: 2**40, new: 3}.get(data)
    (tmp_path / PUBLISHED).write_bytes(os.urandom(1000))
    assert prices.high_watermark() is None
    publisher.publish(PRICES, 4)
    assert prices.high_watermark() == 4


class FullDisk(WatchedFileSystem):
    """Accepts a limited number of writes of the file."""

    left = 1

    def before(self, operation: Operation) -> None:
        """Refuse."""
        if operation.kind == "write" and operation.path.name == PUBLISHED:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")


def test_offset_that_cannot_be_put_there_ends_all(tmp_path: Path, prices: Published) -> None:
    """An offset that it could not withdraw must not be used; callers that append or cut get no error."""
    publisher = Publisher(FullDisk(), tmp_path)
    publisher.publish(PRICES, 9)
    assert prices.high_watermark() == 9
    assert publisher.take_error() is None
    publisher.publish(PRICES, 3)
    assert prices.high_watermark() is None
    assert "more free space" in str(publisher.take_error())
    assert publisher.take_error() is None
    publisher.close()


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EIO, "Input/output error")])
def test_offset_that_cannot_be_put_there_fails_no_flush(
    tmp_path: Path, prices: Published, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Whatever the reason is, and if the file cannot even be closed in order."""
    publisher = Publisher(FS, tmp_path)
    publisher.publish(PRICES, 9)
    real = File.close

    def fail(*_args: object) -> None:
        raise error

    def close(file: File) -> None:
        real(file)
        raise LogDirOfflineError(file.path, OSError(errno.EIO, "Input/output error"))

    with monkeypatch.context() as patch:
        patch.setattr(File, "write", fail)
        patch.setattr(File, "close", close)
        publisher.publish(PRICES, 3)
    assert prices.high_watermark() is None
    assert type(error).__name__ in str(publisher.take_error())
    publisher.close()


def test_lock_of_a_process_that_does_not_write_is_not_a_writers(tmp_path: Path, prices: Published) -> None:
    """A backup that locks the files it reads keeps a writer from publishing, and does not count as a writer."""
    (tmp_path / PUBLISHED).touch()
    with FS.open(tmp_path / PUBLISHED) as file:
        assert try_lock(file, READ, 0, 1)
        publisher = Publisher(FS, tmp_path)
        publisher.publish(PRICES, 9)
        assert "a process that does not write" in str(publisher.take_error())
        assert prices.high_watermark() is None
    left = Publisher(FS, tmp_path)
    left.publish(PRICES, 9)
    left.close()
    with FS.open(tmp_path / PUBLISHED, write=True) as file:
        assert try_lock(file, WRITE, 0, 0)
        assert prices.high_watermark() is None


def test_file_of_high_watermarks_takes_after_the_log_dir(tmp_path: Path) -> None:
    """It has the directory's read and write bits, and does not grow with every published offset."""
    tmp_path.chmod(0o750)
    publisher = Publisher(FS, tmp_path)
    for offset in range(100):
        publisher.publish(PRICES, offset)
    publisher.close()
    status = (tmp_path / PUBLISHED).stat()
    assert (status.st_mode & 0o777, status.st_size) == (0o640, ENTRY_BYTES)
