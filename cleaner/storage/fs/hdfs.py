"""
The requests to HDFS in its own language: `hdfs://NAMENODE:8020/path`, or the name service of `HADOOP_CONF_DIR`.

The library has no time-outs: a name node that accepts a connection and says nothing is waited for without an end. So
each request is made in a thread of its own, which is left behind when nothing comes for `Limits.silence_seconds`. (Its
coroutines could be cancelled, but a client of theirs that is freed while one is answered waits for the interpreter's
lock, which it holds.)

A file is named by its length and its time of change in milliseconds: the library does not tell its number. A read has
no condition, so after each it is asked whether it is still that file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cleaner.base import concurrency
from cleaner.base.remote_path import RemotePath
from cleaner.errors import UsageError
from cleaner.storage.fs.http import require_range
from cleaner.storage.fs.store import Again, Limits, Refused, RemoteObject, Replaced

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
_SILENCE = ("no answer (TimeoutError)",)
_PANIC = "PanicException"  # of the library's own language, and no Exception of Python's
_KIND = re.compile(r".*?\b(\w+Exception)\b|(\w+)\(", re.DOTALL)


class Hdfs:
    """
    See `Store`.

    Args:
        limits: of requests.
    Raises:
        UsageError: the library is missing.
    """

    def __init__(self, limits: Limits) -> None:
        try:
            import hdfs_native
        except ImportError:
            raise UsageError("hdfs:// needs hdfs-native: pip install 'kafka-log-cleaner[remote]'") from None
        self._connect = hdfs_native.Client
        self._silence_seconds = limits.silence_seconds
        self._clients: dict[str, Any] = {}  # by the name node

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the files and directories directly below a path, by name."""
        # Of a file: itself.
        below = f"/{path.key}".rstrip("/") + "/"
        try:
            rows = [*self._each(self._list(path))]
        except FileNotFoundError:
            return {}
        return {row.path.removeprefix(below): _object(row) for row in rows if row.path.startswith(below)}

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of a file from `start`, which are there by its listing."""
        failure: Exception | None = None
        data = b""
        try:
            data = b"".join(self._each(self._read(path, about, start, size)))
        except (Again, Refused) as error:
            failure = error
        except FileNotFoundError:
            pass
        if failure is not None and failure.args == _SILENCE:
            raise failure
        # Also after a failure: the blocks of a file that was replaced are removed.
        try:
            (now,) = self._each(self._ask(path))
        except FileNotFoundError:
            now = None
        if now is None:
            raise Replaced("was removed since it was listed")
        if _object(now) != about:
            raise Replaced("was replaced or changed since it was listed")
        if failure is not None:
            raise failure
        return require_range(data, size)

    def _list(self, path: RemotePath) -> Iterator[Any]:
        yield from self._client(path).list_status(f"/{path.key}")

    def _ask(self, path: RemotePath) -> Iterator[Any]:
        yield self._client(path).get_file_info(f"/{path.key}")

    def _read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> Iterator[bytes]:
        reader = self._client(path).read(f"/{path.key}")
        yield b""
        if len(reader) == about.size:  # beyond the end the library fails without an error
            yield from reader.read_range_stream(start, size)

    def _client(self, path: RemotePath) -> Any:
        if path.bucket not in self._clients:
            self._clients[path.bucket] = self._connect(f"hdfs://{path.bucket}", _CONFIG)
        return self._clients[path.bucket]

    def _each(self, items: Iterator[Any]) -> Iterator[Any]:
        """
        Yield what a request gives, made in another thread.

        Raises:
            Again, Refused: it failed, or was silent; says nothing of the request or of the service's text.
            FileNotFoundError: there is nothing of that name.
        """
        came: concurrency.SimpleQueue[Any] = concurrency.SimpleQueue()

        def run() -> None:
            try:
                for item in items:
                    came.put((item, None))
                came.put((None, StopIteration()))
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises its like
                came.put((None, error))

        concurrency.Thread(target=run, name="cleaner-hdfs", daemon=True).start()
        while True:
            try:
                item, error = came.get(timeout=self._silence_seconds)
            except concurrency.Empty:
                error = Again(*_SILENCE)
            if isinstance(error, StopIteration):
                return
            if error is not None:
                break
            yield item
        if isinstance(error, FileNotFoundError | Again):
            raise error
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise error
        raise _failed(error)


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
