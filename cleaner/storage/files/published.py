"""
Current high watermarks: readers in other processes learn at once which offsets a writer has on disk.

The checkpoint of high watermarks is written every few seconds. So a writer also keeps one small file in the log dir,
and writes an offset to it whenever one moves; a reader needs only two system calls to get it.

    bytes     0 ...  one entry of 32 bytes a partition, unordered
    entry     16     BLAKE2b of the partition's name, keyed with this boot's id
               8     the high watermark, little endian; -1: unknown
               8     CRC-32 of the 24 bytes before, little endian

An offset is written here after the fsync that makes it true, and lowered before the log is cut. It is *not* forced to
disk, so an entry counts only under three conditions:

    its writer lives       the writer holds a lock on byte 0 of this file, which the kernel releases when it dies. The
                           log's next writer may cut it, and may not know this file: a broker, an earlier release
    on this machine,       the key of an entry's name is the boot's id: entries from before a power cut, or that another
    since it was booted    machine wrote to a shared disk, match no partition
    it is whole            the checksum: a reader may read in the middle of a write

Otherwise the checkpoint counts, as it did before this file existed. A reader checks the lock after the entry, so the
writer was alive when the entry was read. A new writer empties the file before it locks it.

A writer that cannot write an offset here releases the lock: readers then use the checkpoint, which never says more than
is on disk. A broker ignores plain files in a log dir (R-102). Without `/proc` nothing is published.
"""

from __future__ import annotations

import contextlib
import zlib
from hashlib import blake2b
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, LogDirLockedError, LogDirOfflineError, unexpected
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.names import PUBLISHED

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UNKNOWN = -1

_BOOT_ID_BYTES = 36
_NAME_BYTES, _OFFSET_BYTES, _CHECKED_BYTES = 16, 8, 24
ENTRY_BYTES = 32
_LOCK_BYTE = 0
_TRIES = 3
_MAX_BYTES = 64 << 20  # two million partitions; a larger file is not ours


def boot_id(fs: FileSystem) -> bytes | None:
    """Return the id of this boot of the machine; None if the system does not give one."""
    try:
        with fs.open(BOOT_ID) as file:
            return file.read(_BOOT_ID_BYTES, 0) or None
    except (FileNotFoundError, LogDirOfflineError):
        return None


def _name_of(topic_partition: TopicPartition, boot: bytes) -> bytes:
    return blake2b(str(topic_partition).encode(), digest_size=_NAME_BYTES, key=boot).digest()


def _entry(name: bytes, offset: int) -> bytes:
    checked = name + offset.to_bytes(_OFFSET_BYTES, "little", signed=True)
    return checked + zlib.crc32(checked).to_bytes(ENTRY_BYTES - _CHECKED_BYTES, "little")


class Publisher:
    """
    The writer's side of the file; creates it. Thread-safe; the caller publishes each partition's offsets in order.

    Args:
        fs: the file system.
        log_dir: the caller holds its lock as a writer.

    Raises:
        LogDirLockedError: another live writer publishes here.
        LogDirOfflineError, NoSpaceError: the disk.
    """

    def __init__(self, fs: FileSystem, log_dir: Path) -> None:
        self._path = log_dir / PUBLISHED
        self._guard = concurrency.RLock()
        # Guarded by _guard.
        self._error: CleanerError | None = None
        self._slots: dict[TopicPartition, tuple[int, bytes]] = {}
        self._file: File | None = None
        self._boot = boot_id(fs)
        if self._boot is not None:
            self._file = self._open(fs)

    def _open(self, fs: FileSystem) -> File | None:
        from cleaner.storage.lock.byte_ranges import WRITE, holder_of, try_lock

        try:
            file = fs.open(self._path, write=True)
        except FileNotFoundError:
            file = fs.create(self._path, like=self._path.parent)
        try:
            if _is_held(file):
                raise LogDirLockedError(f"{self._path}: locked by another writer")
            # Before locking: an earlier writer's entries must not look alive even for a moment.
            file.truncate(0)
            if not try_lock(file, WRITE, _LOCK_BYTE, 1):
                holder = holder_of(file, WRITE, _LOCK_BYTE, 1)
                self._error = LogDirLockedError(f"{self._path}: locked by a process that does not write ({holder})")
                file.close()
                return None
        except BaseException:
            file.close()
            raise
        return file

    def publish(self, topic_partition: TopicPartition, offset: int) -> None:
        """
        Publish a partition's high watermark; UNKNOWN withdraws it.

        Never raises: see `take_error`. Its callers flush or cut the log, which is not to fail for this.
        """
        with self._guard:
            file, boot = self._file, self._boot
            if file is None or boot is None:
                return
            try:
                slot = self._slots.get(topic_partition)
                if slot is None:
                    slot = (len(self._slots) * ENTRY_BYTES, _name_of(topic_partition, boot))
                    self._slots[topic_partition] = slot
                file.write(_entry(slot[1], offset), slot[0])
            except Exception as error:  # noqa: BLE001 - as promised; for want of memory, too
                self._error = error if isinstance(error, CleanerError) else unexpected(self._path, error)
                with contextlib.suppress(CleanerError):  # whatever it says, the file is closed then, and unlocked
                    self.close()

    def take_error(self) -> CleanerError | None:
        """Return once why nothing is published any more; None without an error, and on later calls."""
        with self._guard:
            error, self._error = self._error, None
            return error

    def close(self) -> None:
        """Make readers use the checkpoint from now on; a second call does nothing."""
        from cleaner.storage.lock.byte_ranges import unlock

        with self._guard:
            # No call between here and the `try`: after an interrupt there, a second `close` would not find the file.
            file, self._file = self._file, None
            if file is None:
                return
            try:
                # Unlocked before closing, as the log dir's lock.
                if not file.is_closed:
                    unlock(file, _LOCK_BYTE, 1)
            finally:
                file.close()


class Published:
    """
    The readers' side: the published high watermark of one partition. Not thread-safe. Close it.

    Args:
        fs: the file system.
        log_dir: the log dir.
        topic_partition: the partition.
    """

    def __init__(self, fs: FileSystem, log_dir: Path, topic_partition: TopicPartition) -> None:
        self._fs = fs
        self._path = log_dir / PUBLISHED
        boot = boot_id(fs)
        self._name = None if boot is None else _name_of(topic_partition, boot)
        self._file: File | None = None
        self._position = 0

    def high_watermark(self) -> int | None:
        """Return the writer's current high watermark; None if no live writer publishes it."""
        if self._name is None:
            return None
        try:
            if self._file is None:
                self._file = self._fs.open(self._path)
            offset = self._read(self._file, self._name)
            if offset is not None and _is_held(self._file):
                return None if offset == UNKNOWN else offset
        except (FileNotFoundError, LogDirOfflineError):
            pass  # no writer publishes here, this user may not read the file, or the file system has no locks
        # The next writer may have another file.
        self.close()
        return None

    def _read(self, file: File, name: bytes) -> int | None:
        for _ in range(_TRIES):
            offset = _offset_in(file.read(ENTRY_BYTES, self._position), name)
            if offset is not None:
                return offset
            size = file.size()
            data = file.read(size, 0) if size <= _MAX_BYTES else b""
            found = next((at for at in range(0, len(data), ENTRY_BYTES) if data.startswith(name, at)), None)
            if found is None:
                return None
            self._position = found
        return None

    def close(self) -> None:
        """Close the file; the next `high_watermark` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _offset_in(entry: bytes, name: bytes) -> int | None:
    """Return the offset of a whole entry with this name; None for any other."""
    offset = int.from_bytes(entry[_NAME_BYTES:_CHECKED_BYTES], "little", signed=True)
    return offset if entry == _entry(name, offset) else None


def _is_held(file: File) -> bool:
    """Tell whether a writer holds its lock on the file; only a writer locks exactly this byte, in this way."""
    from cleaner.storage.lock.byte_ranges import OPEN_FILE, WRITE, holder_of

    holder = holder_of(file, WRITE, _LOCK_BYTE, 1)
    return holder is not None and (holder.kind, holder.length, holder.pid) == (WRITE, 1, OPEN_FILE)
