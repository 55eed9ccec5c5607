"""
An open file, as `file_system.py` returns it, and the translation of the disk's errors.

Reads are `pread` into our own buffers, not `mmap`: a file that another process cuts short must not kill this one. Only
the index of a table is mapped, which none but its locked owner may write. An fsync that fails is final (rule C-2).
"""

from __future__ import annotations

import ctypes
import errno
import io
import mmap
import os
from pathlib import Path
from types import TracebackType

from cleaner.base.closing import Closing
from cleaner.errors import disk_error

# `copy_file_range` is not known, not between these two files, or forbidden (EPERM: by a container's filter of calls).
_NOT_WITHIN_THE_SYSTEM = (errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM)
_COPY_BYTES = 1 << 20
_KEEP_SIZE_AND_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE of <linux/falloc.h>
_CANNOT_PUNCH = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL)
_SEEK_DATA: int | None = getattr(os, "SEEK_DATA", None)  # not on every system that reads archives


class _DiskErrors:
    """The result of `disk_errors`; a class, as a generator takes three times as long and every call pays for it."""

    def __init__(self, path: Path, wanted_bytes: int, may_be_missing: bool) -> None:
        self._path = path
        self._wanted_bytes = wanted_bytes
        self._may_be_missing = may_be_missing

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Raise the cleaner's error instead of an `OSError`."""
        if isinstance(error, OSError) and not (self._may_be_missing and isinstance(error, FileNotFoundError)):
            raise disk_error(self._path, error, self._wanted_bytes) from error


def disk_errors(path: Path, wanted_bytes: int = 0, *, may_be_missing: bool = False) -> _DiskErrors:
    """
    Turn an `OSError` into the error that `errors.disk_error` makes of it, naming `path`.

    Args:
        path: the file or directory concerned.
        wanted_bytes: how many bytes the block writes.
        may_be_missing: a FileNotFoundError is an answer, and passes unchanged.
    """
    return _DiskErrors(path, wanted_bytes, may_be_missing)


class File(Closing):
    """
    An open regular file, read and written at positions. Close it, or use it in a `with` block.

    A file that is dropped while open is closed then, with a ResourceWarning: an exception may come between any two
    steps, and no descriptor may outlast its owner, nor a lock that lives as long as the descriptor. The `FileIO` that
    owns the descriptor does that; it has no other use here.
    """

    def __init__(self, path: Path, handle: io.FileIO) -> None:
        self.path = path
        self._handle = handle
        self._descriptor = handle.fileno()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def stat(self) -> os.stat_result:
        """Return the open file's status."""
        with disk_errors(self.path):
            return os.fstat(self._descriptor)

    def size(self) -> int:
        """Return the file's length in bytes."""
        return self.stat().st_size

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`; returns the bytes read, fewer than asked only at the end of the file."""
        done = 0
        with disk_errors(self.path):
            while done < len(buffer):
                count = self._read_some(buffer[done:], position + done)
                if count == 0:
                    break
                done += count
        return done

    def _read_some(self, buffer: memoryview, position: int) -> int:
        """Read what one call of the system gives, which may be less than asked; a test may let it be."""
        return os.preadv(self._descriptor, [buffer], position)

    def read(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        data = bytearray(size)
        return bytes(data[: self.read_into(memoryview(data), position)])

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data` at `position`."""
        view = memoryview(data).cast("B")
        size = len(view)
        try:  # as `disk_errors`, which costs as much as a small write
            while len(view):
                count = self._write_some(view, position)
                position += count
                view = view[count:]
        except OSError as error:
            raise disk_error(self.path, error, size) from error

    def _write_some(self, data: memoryview, position: int) -> int:
        """Write what one call of the system takes, likewise."""
        return os.pwrite(self._descriptor, data, position)

    def copy_from(self, source: File, size: int, position: int) -> int:
        """
        Copy a range of another file to the same place of this one, within the system where it can.

        File systems that can share blocks between files (XFS, Btrfs) then copy nothing. Returns the bytes copied, fewer
        than asked only at the end of the other file.
        """
        done = 0
        while done < size:
            with disk_errors(self.path, size - done):
                count = self._copy_some(source, position + done, size - done)
            if count == 0:
                break
            done += count
        return done

    def _copy_some(self, source: File, position: int, size: int) -> int:
        """Copy what one call of the system takes; where there is no such call, what a buffer holds."""
        copied = 0
        try:
            copied = os.copy_file_range(source.fileno(), self._descriptor, size, position, position)
        except OSError as error:
            if error.errno not in _NOT_WITHIN_THE_SYSTEM:
                raise
        # Some file systems copy nothing although there is something: only a read shows the end of a file.
        return copied or self._write_some(memoryview(source.read(min(size, _COPY_BYTES), position)), position)

    def begin_writeback(self, position: int, size: int) -> None:
        """Ask the system to begin writing a range to disk without waiting for it; promises nothing."""
        # For pages that are dirty this advice starts their writeback and keeps them; it drops only clean ones.
        self.drop_cache(position, size)

    def is_cached(self, position: int) -> bool:
        """Tell whether a byte can be read without waiting for the disk; True where the system cannot say."""
        try:
            return os.preadv(self._descriptor, [bytearray(1)], position, os.RWF_NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError:
            return True  # a file system without that flag, or an error: the real read reports it

    def data_from(self, position: int) -> int:
        """Return the first position from this one on that is in no hole; the file's length if only a hole follows."""
        if _SEEK_DATA is None:
            return position
        try:
            return os.lseek(self._descriptor, position, _SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return max(position, self.size())
            return position  # a file system that cannot tell: all of it counts as data

    def expect_sequential_reads(self) -> None:
        """Tell the system to read far ahead."""
        with disk_errors(self.path):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def drop_cache(self, position: int, size: int) -> None:
        """Let the system drop the clean pages of a range (`size` 0: to the end) from its cache."""
        with disk_errors(self.path):
            os.posix_fadvise(self._descriptor, position, size, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        """Cut or extend (sparsely) the file to `size` bytes."""
        with disk_errors(self.path):
            os.ftruncate(self._descriptor, size)

    def punch(self, size: int) -> bool:
        """Free the blocks of the first `size` bytes, which are zeros then; False where the system cannot."""
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "fallocate64"):
            return False
        with disk_errors(self.path):
            place, count = ctypes.c_int64(0), ctypes.c_int64(size)
            if library.fallocate64(self._descriptor, _KEEP_SIZE_AND_PUNCH, place, count) == 0:
                return True
            number = ctypes.get_errno()
            if number in _CANNOT_PUNCH:
                return False
            raise OSError(number, os.strerror(number))

    def map(self, size: int) -> mmap.mmap:
        """
        Return the first `size` bytes as memory that is written back to the file.

        The blocks are reserved first: with a hole on a full disk, a write to memory would kill the process.
        """
        with disk_errors(self.path, size):
            os.posix_fallocate(self._descriptor, 0, size)
            return mmap.mmap(self._descriptor, size)

    def fsync(self, *, data_only: bool = False) -> None:
        """
        Force data and size to disk. An error is final: nothing written to this file may be trusted (C-2).

        Args:
            data_only: leave out what is not needed to read it, such as its modification time.
        """
        try:
            (os.fdatasync if data_only else os.fsync)(self._descriptor)
        except OSError as error:
            raise disk_error(self.path, error) from error

    @property
    def handle(self) -> io.FileIO:
        """The owner of the descriptor; closes it when dropped."""
        return self._handle

    @property
    def is_closed(self) -> bool:
        """Tell whether it was closed."""
        return self._descriptor < 0

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._descriptor = -1
        try:
            self._handle.close()
        except OSError as error:
            raise disk_error(self.path, error) from error
