"""`serve`: log dirs as a read-only Kafka endpoint; locks and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.errors import ListenError, UsageError
from cleaner.serve.catalog import Catalog
from cleaner.serve.coordinator import Coordinator
from cleaner.serve.describe import Setting
from cleaner.serve.offsets import GroupOffsets
from cleaner.serve.partition import Partition
from cleaner.serve.server import Limits, Server
from cleaner.settings import SettingsResolver
from cleaner.settings.given import DEFAULT
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.segment.names import PARTITION_METADATA
from cleaner.storage.which_dir import require_log_dir

Address = tuple[str, int]
"""Host, an IPv6 address without brackets, and port; as a place to listen, port 0 is any that is free."""


class ServedLogDirs:
    """
    Log dirs that are served from `run` until `stop`. Close it, or use it in a `with` block.

    Args:
        directories: the log dirs, at least one.
        sources: where settings come from; they are only shown to clients.
        context: the caller's file system, clock and warnings.
        listen_at: where to listen: loopback only.
        advertised: the address that clients are told; None: the one under which they came.
        limits: of clients.
    Raises:
        UsageError: not a log dir; the same partition twice; another address than loopback; a missing package.
        ListenError: the address is taken, or not this machine's.
        ConfigError: a bad setting.
        LogDirOfflineError: a directory cannot be read.
    """

    def __init__(
        self,
        directories: Sequence[Path],
        sources: Sources,
        context: CallContext,
        *,
        listen_at: Address,
        advertised: Address | None = None,
        limits: Limits | None = None,
    ) -> None:
        _require_loopback(listen_at)
        for directory in directories:
            require_log_dir(context.fs, directory)
        self._fs = context.fs
        self._stop: Callable[[], None] | None = None
        with contextlib.ExitStack() as attempt:
            catalog = self.catalog = Catalog(context.fs, directories, context.clock, context.warn)
            attempt.callback(catalog.close)
            self._settings = {each.path: SettingsResolver(context.fs, each.path, sources) for each in catalog.log_dirs}
            coordinator = Coordinator(GroupOffsets(context.fs, catalog, context.warn))
            self._server = Server(
                catalog,
                self._settings_of,
                coordinator,
                limits=limits or Limits(),
                advertised=advertised,
                warn=context.warn,
            )
            try:
                self._listener = _listen(*listen_at)
            except OSError as error:
                raise ListenError(f"--listen {_shown(listen_at)}: {error.strerror or error}") from error
            attempt.callback(self._listener.close)
            self._closing = attempt.pop_all()
        self.address: Address = (listen_at[0], self._listener.getsockname()[1])

    def __enter__(self) -> ServedLogDirs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, started: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None]) -> None:
        """
        Serve until stopped.

        Args:
            started: called once with the event loop and the function that stops it, to be called in that loop.
        """

        async def serve() -> None:
            stopped = asyncio.Event()
            started(asyncio.get_running_loop(), stopped.set)
            await self._server.run(self._listener, stopped)

        asyncio.run(serve())

    def close(self) -> None:
        """Close all files and the listening socket; a second call does nothing."""
        self._closing.close()

    @property
    def counts(self) -> tuple[int, int]:
        """How many topics and partitions there are."""
        topics = self.catalog.topics.values()
        return len(topics), sum(len(topic.partitions) for topic in topics)

    def _settings_of(self, partition: Partition) -> list[Setting]:
        topic_id = read_topic_id(self._fs, partition.directory / PARTITION_METADATA)
        resolved = self._settings[partition.log_dir].topic(partition.topic_partition.topic, topic_id)
        found = ((name, resolved.in_force(name)) for name in TOPIC_SETTINGS)
        return [Setting(name, given.text, given.origin == DEFAULT) for name, given in found]


def _require_loopback(address: Address) -> None:
    host = address[0]
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host.lower() == "localhost"
    if not is_loopback:
        raise UsageError(
            f"--listen {_shown(address)}: anyone who reaches this address could read all records; only loopback "
            "addresses are served, such as 127.0.0.1:9092. Others come through a tunnel: ssh -L 9092:127.0.0.1:9092"
        )


def _shown(address: Address) -> str:
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def _listen(host: str, port: int) -> socket.socket:
    """
    Return a listening socket.

    Raises:
        OSError: the address is taken, or not this machine's.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    with contextlib.ExitStack() as attempt:
        listener = attempt.enter_context(socket.socket(family, kind, protocol))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(1024)
        listener.setblocking(False)
        attempt.pop_all()
    return listener
