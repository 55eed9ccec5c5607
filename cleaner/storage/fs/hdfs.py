"""
The requests to HDFS in its own language: `hdfs://NAMENODE:8020/path`, or the name service of `HADOOP_CONF_DIR`.

The library has no time-outs: a name node that accepts a connection and says nothing is waited for without an end. So
requests are made in threads that can be left behind (`store.wait_for`). (Its coroutines could be cancelled, but a
client of theirs that is freed while one is answered waits for the interpreter's lock, which it holds.)

A file is named by its length and its time of change in milliseconds: the library does not tell its number. A read has
no condition, so after each it is asked whether it is still that file.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from cleaner.base.remote_path import RemotePath
from cleaner.errors import UsageError
from cleaner.storage.fs.store import (
    Again,
    Limits,
    Listed,
    Refused,
    RemoteObject,
    Replaced,
    heard,
    read_body,
    require_range,
)

# Repeats are the caller's. Two attempts, as one of two name nodes is on standby.
_CONFIG = {
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "300",
}
_REFUSALS = (
    *("AccessControlException", "PermissionError", "InvalidArgument", "UnsupportedFeature"),
    *("SASLError", "GSSAPIError", "NoSASLMechanism"),
)
_PANIC = "PanicException"  # of the library's own language, and no Exception of Python's
_KIND = re.compile(r".*?\b([A-Za-z]{1,64}Exception)\b|([A-Za-z]{1,64})\(", re.DOTALL)


class Hdfs:
    """
    See `Store`.

    Raises:
        UsageError: the library is missing.
    """

    def __init__(self, _: Limits) -> None:
        try:
            import hdfs_native
        except ImportError:
            raise UsageError("hdfs:// needs hdfs-native: pip install 'kafka-log-cleaner[remote]'") from None
        self._connect = hdfs_native.Client
        self._clients: dict[str, Any] = {}  # by the name node

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the files and directories directly below a path, by name."""
        # Of a file: itself.
        below = f"/{path.key}".rstrip("/") + "/"
        listed = Listed(below)
        try:
            with _failures():
                for row in self._client(path).list_status(f"/{path.key}"):
                    heard()
                    about = _object(row)
                    if not row.path.startswith(below):
                        continue
                    if about.is_directory:
                        listed.add_directory(row.path)
                    else:
                        listed.add(row.path, *about)
        except FileNotFoundError:
            return {}
        return listed.found

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of a file from `start`, which are there by its listing."""
        failure: Exception | None = None
        data: bytes | None = None
        try:
            with _failures():
                reader = self._client(path).read(f"/{path.key}")
                heard()
                # Beyond the end the library fails without an error.
                pieces = filter(None, reader.read_range_stream(start, size) if len(reader) == about.size else ())
                data = read_body(lambda _: next(pieces, b""), size)
        except (Again, Refused) as error:
            failure = error
        except FileNotFoundError:
            pass
        # Also after a failure: the blocks of a file that was replaced are removed.
        try:
            with _failures():
                now = self._client(path).get_file_info(f"/{path.key}")
        except FileNotFoundError:
            now = None
        if now is None:
            raise Replaced("was removed since it was listed")
        if _object(now) != about:
            raise Replaced("was replaced or changed since it was listed")
        if failure is not None:
            raise failure
        return require_range(data, size)

    def _client(self, path: RemotePath) -> Any:
        if path.bucket not in self._clients:
            self._clients[path.bucket] = self._connect(f"hdfs://{path.bucket}", _CONFIG)
        return self._clients[path.bucket]


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turn the library's errors into `Again` and `Refused`, without anything of the request or the service's text."""
    failure: Exception
    try:
        yield
        return
    except (FileNotFoundError, Again, Refused):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        failure = _failed(error)
    raise failure


def _failed(error: BaseException) -> Exception:
    """Return a failure by the kind of the library's error: most are RuntimeErrors whose text begins with it."""
    if isinstance(error, OSError) and not isinstance(error, PermissionError):
        return Again(f"no answer ({type(error).__name__})")
    found = _KIND.match(str(error)) if isinstance(error, RuntimeError) else None
    kind = (found[1] or found[2]) if found else type(error).__name__
    words = f"the service answered {kind}"
    return Refused(words) if kind in _REFUSALS else Again(words)


def _object(row: Any) -> RemoteObject:
    if row.isdir:
        return RemoteObject(0, "", 0)
    return RemoteObject(row.length, f"{row.length}-{row.modification_time}", row.modification_time * 1_000_000)
