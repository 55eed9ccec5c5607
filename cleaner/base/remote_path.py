"""
Paths into storage that is not mounted: `s3://bucket/prefix`, `gs://bucket/prefix`, `abfs://container@host/prefix`,
`webhdfs://host:port/path`.

Such a path is a `Path`, so that everything that names a file's place can hold one; it prints as its URL. The file
system calls of `Path` itself are of no use for it: its files are read through `storage/fs/remote.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath

from cleaner.errors import UsageError

SCHEMES = ("s3", "gs", "abfs", "abfss", "webhdfs", "swebhdfs")
"""The kinds of storage that can be read."""

KINDS = "s3://, gs://, abfs://, webhdfs://"
"""The same in words."""

_AZURE = re.compile(r"[a-z0-9$][a-z0-9-]*@[a-z0-9]+(\.[a-z0-9-]+)+")  # which is no user with a host
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)(.*)", re.DOTALL)


class RemotePath(PosixPath):
    """
    A path in a bucket; `str` gives its URL. Its first part is the scheme with a colon, the second the bucket: what is
    between `//` and the next slash.
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return the URL."""
        return super().__str__().replace(":/", "://", 1)

    def absolute(self) -> RemotePath:
        """Return the path: it always is."""
        return self

    @property
    def scheme(self) -> str:
        """The kind of storage."""
        return self.parts[0].rstrip(":")

    @property
    def bucket(self) -> str:
        """The bucket's name; empty where the path names none."""
        return self.parts[1] if len(self.parts) > 1 else ""

    @property
    def key(self) -> str:
        """The object's name in its bucket; empty for the bucket itself."""
        return "/".join(self.parts[2:])


def is_remote(path: object) -> bool:
    """Tell whether a path or text leads to storage that is not mounted."""
    if isinstance(path, RemotePath):
        return True
    return isinstance(path, str) and (match := _URL.match(path)) is not None and bool(match[2]) and match[1] != "file"


def any_path(text: str | os.PathLike[str]) -> Path:
    """
    Return a path on this machine, or one into a bucket.

    Raises:
        UsageError: a URL of storage that cannot be read, or one with credentials or without a bucket in it.
    """
    if isinstance(text, RemotePath) or not is_remote(given := os.fspath(text)):
        return text if isinstance(text, Path) else Path(text)
    scheme, _, rest = given.partition("://")
    bucket = rest.partition("/")[0]
    # Whatever stands before an @ may be a password, so it is not shown.
    if "@" in bucket and not _is_azure(scheme, bucket):
        raise UsageError(
            f"{scheme}://...@...: credentials do not belong in a path, where others can read them; they come from the "
            "environment, ~/.aws or the machine's role"
        )
    if scheme == "hdfs":
        raise UsageError(f"{given}: HDFS is read over HTTP: give webhdfs://NAMENODE:9870/PATH")
    if scheme not in SCHEMES:
        raise UsageError(f"{given}: logs are read from {KINDS} and from mounted file systems, not from {scheme}://")
    if not bucket or (scheme.startswith("abfs") and "@" not in bucket):
        wanted = "CONTAINER@ACCOUNT.dfs.core.windows.net" if scheme.startswith("abfs") else "BUCKET"
        raise UsageError(f"{given}: no bucket; give {scheme}://{wanted}/PREFIX")
    return RemotePath(given)


def refuse_remote(path: object, what: str = "needs a directory of this machine") -> None:
    """Raise UsageError, with what to do instead, for a path into a bucket."""
    if is_remote(path):
        raise UsageError(f"{_without_credentials(str(path))}: {what}; {COPY_FIRST}")


def _without_credentials(url: str) -> str:
    scheme, _, rest = url.partition("://")
    bucket, slash, key = rest.partition("/")
    if "@" in bucket and not _is_azure(scheme, bucket):
        return f"{scheme}://...@..."
    return f"{scheme}://{bucket}{slash}{key}"


def _is_azure(scheme: str, bucket: str) -> bool:
    return scheme.startswith("abfs") and _AZURE.fullmatch(bucket) is not None


COPY_FIRST = "a bucket is only read: copy the log dir to a disk first, for example with `rclone copy`"
