"""
Paths into storage that is not mounted: `s3://bucket/prefix`, `gs://bucket/prefix`, `abfs://container@host/prefix`,
`hdfs://host:port/path`, `webhdfs://host:port/path`.

Such a path is a `Path`, so that everything that names a file's place can hold one; it prints as its URL. The file
system calls of `Path` itself are of no use for it: its files are read through `storage/fs/remote.py`.

A log whose older segments a broker has moved away is one path too: `tiered+URL::DIR`, where URL is the place of the
moved segments and DIR the broker's own log dir, which may be missing. Its printed form has a part `::` between the log
dir so joined and what is in it: `tiered+s3://bucket/prefix::/var/lib/kafka/::/orders-0`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath
from typing import NamedTuple

from cleaner.errors import UsageError

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs", "webhdfs", "swebhdfs")
"""The kinds of storage that can be read."""

KINDS = "s3://, gs://, abfs://, hdfs://, webhdfs://"
"""The same in words."""

TIERED = "tiered+"
"""Begins the scheme of a log dir that is joined with its moved segments."""

_AZURES = "no bucket; give {}://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"
_WANTED = {
    "abfs": _AZURES,
    "abfss": _AZURES,
    "hdfs": "no name node; give {}://NAMENODE:8020/PATH",
    "webhdfs": "no name node; give {}://NAMENODE:9870/PATH",
    "swebhdfs": "no name node; give {}://NAMENODE:9871/PATH",
}

_INSIDE = "::"

_AZURE = re.compile(r"[a-z0-9$][a-z0-9-]*@[a-z0-9]+(\.[a-z0-9-]+)+")  # which is no user with a host
_TIERED_DIR = f"{TIERED}file://"
_URL = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)(.*)", re.DOTALL)


class RemotePath(PosixPath):
    """
    A path in a bucket; `str` gives its URL. Its first part is the scheme with a colon, the second the bucket: what is
    between `//` and the next slash.
    """

    __slots__ = ()

    def __str__(self) -> str:
        """Return the URL."""
        text = super().__str__().replace(":/", "://", 1)
        return text.replace(_TIERED_DIR, f"{_TIERED_DIR}/", 1) if text.startswith(_TIERED_DIR) else text

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
    if scheme.startswith(TIERED):
        return _tiered_path(scheme.removeprefix(TIERED), rest)
    bucket = rest.partition("/")[0]
    # Whatever stands before an @ may be a password, so it is not shown.
    if "@" in bucket and not _is_azure(scheme, bucket):
        raise UsageError(
            f"{scheme}://...@...: credentials do not belong in a path, where others can read them; they come from the "
            "environment, ~/.aws or the machine's role"
        )
    if scheme not in SCHEMES:
        raise UsageError(f"{given}: logs are read from {KINDS} and from mounted file systems, not from {scheme}://")
    if not bucket or (scheme.startswith("abfs") and "@" not in bucket):
        words = _WANTED.get(scheme, "no bucket; give {}://BUCKET/PREFIX").format(scheme)
        raise UsageError(f"{given}: {words}")
    return RemotePath(given)


class TieredPlace(NamedTuple):
    """
    What a path into a joined log dir names.

    Attributes:
        moved: where the moved segments are, a bucket or a directory.
        local: the broker's log dir; None without one.
        inside: the parts of the path below the log dir.
    """

    moved: Path
    local: Path | None
    inside: tuple[str, ...]

    @property
    def local_file(self) -> Path | None:
        """The same path in the broker's log dir."""
        return None if self.local is None else self.local.joinpath(*self.inside)


def _tiered_path(kind: str, rest: str) -> RemotePath:
    root, _, inside = f"{rest}/".partition(f"/{_INSIDE}/")
    moved, _, local = root.partition("::")
    if is_remote(local):
        raise UsageError(f"{TIERED}{kind}://{moved}::: behind the `::` belongs the broker's log dir, on this machine")
    if kind != "file":
        any_path(f"{kind}://{moved}")  # refuses what it refuses without `tiered+`
    elif not moved.startswith("/"):
        raise UsageError(f"{TIERED}file://{moved}: give the whole path: {TIERED}file:///DIR")
    joined = f"::{Path(local).absolute()}" if local.strip("/") else ""
    return RemotePath(f"{TIERED}{kind}:/{moved.rstrip('/')}{joined}/{_INSIDE}/{inside}")


def tiered_place(path: Path) -> TieredPlace | None:
    """Take a path into a joined log dir apart; None for other paths."""
    if not isinstance(path, RemotePath) or not path.scheme.startswith(TIERED) or _INSIDE not in path.parts:
        return None
    at = path.parts.index(_INSIDE)
    moved, _, local = "/".join(path.parts[1:at]).partition("::")
    kind = path.scheme.removeprefix(TIERED)
    return TieredPlace(
        Path(f"/{moved}") if kind == "file" else RemotePath(f"{kind}:/{moved}"),
        Path(local) if local else None,
        path.parts[at + 1 :],
    )


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
