"""
Objects put into a bucket, for a new copy of a log dir: the only way in which anything there is written.

Nothing is replaced or removed: the place must be empty before. A file becomes one object with one request, which is
repeated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

from cleaner.base.remote_path import RemotePath
from cleaner.errors import UsageError
from cleaner.storage.fs.open_file import File
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.s3 import S3, failures
from cleaner.storage.fs.store import LIMITS, Store, heard
from cleaner.storage.fs.stream import Stream

_LARGEST_PUT = 5 << 30  # of the service


class _Body(Stream):
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a buffer; what the service takes shows that it is there."""
        heard()
        return super().readinto(buffer)


class _S3Writer(S3):
    def put(self, path: RemotePath, file: File, size: int) -> None:
        """Store a file's first bytes as an object."""
        with failures():
            self._client.put_object(Bucket=path.bucket, Key=path.key, Body=_Body(file), ContentLength=size)


class NewCopy(RemoteFiles):
    """
    A place in a bucket for a new copy; reads as `RemoteFiles` do.

    Args:
        place: where.
        check_done: see `RemoteFiles`.
    Raises:
        UsageError: another kind of storage than S3, or there is something already.
        LogDirOfflineError: the service refuses or does not answer.
    """

    def __init__(self, place: RemotePath, check_done: Callable[[], None]) -> None:
        if place.scheme != "s3":
            raise UsageError(f"{place}: copies are written to s3:// only")
        self._writer = _S3Writer(LIMITS)
        super().__init__(store=self._writer)
        self.check_done = check_done
        if self.listing(place):
            raise UsageError(
                f"{place}: there is something already; name another prefix, or remove what an unfinished copy has left "
                f"(without cleaner-copy.json it is none): aws s3 rm --recursive {place}"
            )
        self._listings.clear()

    def put(self, path: RemotePath, file: File) -> int:
        """Store a file as an object; returns its size in bytes."""
        size = file.size()
        if size > _LARGEST_PUT:
            raise UsageError(f"{file.path}: {size} bytes, and one request stores {_LARGEST_PUT} at most")

        def request(_: Store) -> None:
            self._writer.put(path, file, size)

        self._ask(path, request)
        return size
