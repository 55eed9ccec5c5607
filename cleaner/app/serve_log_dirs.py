"""`serve`: log dirs as a read-only Kafka endpoint; locks and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.app.serve_compacted import compacted_copies
from cleaner.base import arguments, concurrency
from cleaner.base.arguments import Settings
from cleaner.base.closing import Closing
from cleaner.base.listening import Address, listen
from cleaner.config.forms import parse_address
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.errors import CleaningAborted, UsageError
from cleaner.serve.api import Parts, load_apis
from cleaner.serve.catalog import Catalog
from cleaner.serve.coordinator import Coordinator
from cleaner.serve.describe import Describer
from cleaner.serve.login import Access
from cleaner.serve.offsets import GroupOffsets
from cleaner.serve.partition import Partition
from cleaner.serve.reading import Reader
from cleaner.serve.server import Limits, Server
from cleaner.settings import SettingsResolver
from cleaner.settings.given import Given
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, once_each, real_path
from cleaner.storage.fs.remote import RemoteFiles, files_for
from cleaner.storage.fs.store import Limits as BucketLimits
from cleaner.storage.segment.names import PARTITION_METADATA
from cleaner.storage.which_dir import require_log_dir

_BACKLOG = 1024
_ASK_AGAIN_SECONDS = 0.1  # to stop, as it may not have begun
BUCKET_LIMITS = BucketLimits(attempts=3, silence_seconds=8.0)
"""How buckets are read that are served: clients give up a fetch without an answer after 30 seconds, by default."""


class _End:
    """Whether it was told to end; of its own, as the catalog refers to it, and would keep all of the endpoint alive."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.has_come = False
        self._warn = warn

    def say(self, sentence: str) -> None:
        """Warn; not of what fails after the end, as nobody asks for it any more."""
        if not self.has_come:
            self._warn(sentence)

    def check(self) -> None:
        """Raise CleaningAborted after the end, so that no thread waits for a bucket then."""
        if self.has_come:
            raise CleaningAborted("stopped")


class ServedLogDirs(Closing):
    """
    Log dirs that are served from `run` until `stop`. Close it, or use it in a `with` block.

    Args:
        directories: the log dirs, at least one.
        sources: where settings come from; they are only shown to clients.
        context: the caller's file system, clock and warnings.
        listen_at: where to listen; beyond loopback only with TLS and users.
        advertised: the address that clients are told; None: the one under which they came.
        limits: of clients.
        access: returns who may connect; called for each connection. None: whoever can.
        compacted: serve compacted topics as if they had just been cleaned; see `compacted_copies`.
        scratch: an existing directory for that; None: the system's for temporary files.

    Attributes:
        address: where it listens.
        compacted: how many partitions are served from cleaned copies.
    Raises:
        UsageError: not a log dir; the same partition twice; an address that must not be open; a missing package; with
            `compacted`, no topic is known to be compacted.
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
        listen_at: tuple[str, int],
        advertised: tuple[str, int] | None = None,
        limits: Limits | None = None,
        access: Callable[[], Access] | None = None,
        compacted: bool = False,
        scratch: Path | None = None,
    ) -> None:
        at = Address(*listen_at)
        self._fs = fs = context.fs
        access = access or Access
        if not at.is_loopback:
            _require_guarded(at, access())
            access = partial(_still_guarded, access, context.warn)
        directories = once_each(directories)
        for directory in directories:
            require_log_dir(fs, directory)
        settings = {path: SettingsResolver(fs, path, sources) for path in map(real_path, directories)}
        with contextlib.ExitStack() as attempt:
            listener, self.address = listen(at, _BACKLOG, "--listen ")  # first: copies take long
            self._listener = attempt.enter_context(listener)
            self._end = _End(context.warn)
            self.catalog = Catalog(fs, directories, context.clock, self._end.say)
            attempt.callback(self.catalog.close)
            self.compacted = 0
            if compacted:
                copies = compacted_copies(self.catalog, settings, sources, context, scratch)
                places = attempt.enter_context(copies)
                self.compacted = sum(place is not None for place in places.values())
                self.catalog.serve_instead(places)
            self._coordinator = Coordinator(GroupOffsets(fs, self.catalog))
            describer = Describer(self.catalog, partial(_settings_of, fs, settings))
            self._server = Server(
                self.catalog,
                Parts(load_apis(), Reader(self.catalog), describer, self._coordinator),
                limits=limits or Limits(),
                advertised=advertised,
                access=access,
            )
            self._closing = attempt.pop_all()

    def run(self, started: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None]) -> None:
        """
        Serve until stopped.

        Args:
            started: called once with the event loop and the function that stops it, to be called in that loop.
        """

        async def serve() -> None:
            stopped = asyncio.Event()

            def stop() -> None:
                self._end.has_come = True
                stopped.set()

            started(asyncio.get_running_loop(), stop)
            await self._server.run(self._listener, stopped)

        if isinstance(self._fs, RemoteFiles):
            self._fs.check_done = self._end.check
        asyncio.run(serve())

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Serve in a thread of its own, for the length of a `with` block, which outlasts it even if interrupted."""
        stops: list[Callable[[], object]] = []
        began = concurrency.Latch()

        def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
            stops.append(partial(loop.call_soon_threadsafe, stop))
            began.open()

        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.run(started)
            except BaseException as error:  # noqa: BLE001 - raised by the caller's thread
                errors.append(error)
            finally:
                began.open()

        thread = concurrency.Thread(target=run, name="cleaner-serve", daemon=True)
        interrupt: BaseException | None = None
        try:
            thread.start()
            began.wait()
            if stops:
                yield
        finally:
            while thread.is_alive():
                try:
                    for stop in stops:  # once it has begun, which an interrupt does not wait for
                        with contextlib.suppress(RuntimeError):  # it has ended just now
                            stop()
                    thread.join(_ASK_AGAIN_SECONDS)
                except BaseException as error:  # noqa: BLE001 - raised once it has ended
                    interrupt = error
            try:
                if interrupt is not None:
                    raise interrupt
            finally:
                del interrupt  # or the error and this frame would refer to each other
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Close all files and the listening socket; a second call does nothing."""
        self._closing.close()

    @property
    def counts(self) -> tuple[int, int]:
        """How many topics and partitions there are."""
        topics = self.catalog.topics.values()
        return len(topics), sum(len(topic.partitions) for topic in topics)

    def numbers(self) -> Mapping[tuple[str, str], int]:
        """Return `Server.counts`, and how many connections, groups and members there are now; for any thread."""
        sizes = self._coordinator.sizes
        now = {"connections": len(self._server.connections), "groups": len(sizes), "members": sum(sizes)}
        return {**self._server.counts, **{("now", name): count for name, count in now.items()}}


def _settings_of(fs: FileSystem, settings: Mapping[Path, SettingsResolver], partition: Partition) -> dict[str, Given]:
    topic_id = read_topic_id(fs, partition.directory / PARTITION_METADATA)
    resolved = settings[partition.log_dir].topic(partition.topic_partition.topic, topic_id)
    return {name: resolved.in_force(name) for name in TOPIC_SETTINGS}


def _still_guarded(access: Callable[[], Access], warn: Callable[[str], None]) -> Access:
    """Return who may connect; raises OSError if that has come to be nobody: the file with the users was changed."""
    now = access()
    if now.tls is None or not now.is_guarded:
        warn("a connection is refused: there is no TLS, or there are no users any more")
        raise PermissionError
    return now


def _require_guarded(address: Address, access: Access) -> None:
    if access.tls is None or not access.is_guarded:
        raise UsageError(
            f"--listen {address}: anyone who reaches this address could read all records. Beyond loopback addresses "
            "there must be TLS and users (--access FILE); or listen at 127.0.0.1 and come through a tunnel: "
            "ssh -L 9092:127.0.0.1:9092"
        )


def serve_log_dirs(
    log_dirs: str | PathLike[str] | Sequence[str | PathLike[str]],
    settings: Settings | None = None,
    *,
    listen: str = "127.0.0.1:0",
    compacted: bool = False,
    scratch: str | PathLike[str] | None = None,
    warn: Callable[[str], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> contextlib.AbstractContextManager[str]:
    """
    Serve log dirs to Kafka's clients during a `with` block, read-only, by a thread of this process.

        with cleaner.serve_log_dirs("/backup/kafka") as address:
            consumer = KafkaConsumer("prices", bootstrap_servers=address)

    Args:
        log_dirs: one or more, which may be in buckets; no partition may be in two of them.
        settings: as for `plan`; they are shown to clients, and followed with `compacted`.
        listen: HOST:PORT, loopback only; port 0 is any that is free.
        compacted: serve compacted topics as if they had just been cleaned, from copies below `scratch`.
        scratch: an existing directory for them; None: the system's for temporary files.
        warn: called with one line for whatever cannot be served; from any thread.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        The address, HOST:PORT, when the block is entered.
    Raises:
        CleanerError: it cannot be served; see `ServedLogDirs`.
    """
    single = isinstance(log_dirs, str | PathLike)
    named = [log_dirs] if single else arguments.several("log_dirs", log_dirs)
    directories = [arguments.path("log_dirs", each, may_be_remote=True) for each in named]
    address = parse_address(arguments.text("listen", listen))
    if address is None or not directories:
        raise UsageError("listen: must be HOST:PORT" if directories else "log_dirs: none is named")
    make = partial(
        ServedLogDirs,
        directories,
        Sources.of_call(None, settings, topics_dir, metadata_dir),
        CallContext.of(files_for(fs, *directories, limits=BUCKET_LIMITS), warn=warn),
        listen_at=address,
        compacted=arguments.flag("compacted", compacted),
        scratch=arguments.optional_path("scratch", scratch),
    )

    @contextlib.contextmanager
    def serve() -> Iterator[str]:
        with make() as served, served.in_background():
            yield str(served.address)

    return serve()
