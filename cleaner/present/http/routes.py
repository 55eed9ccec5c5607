"""The paths of the HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.json_values import described, format_json
from cleaner.base.listening import Address
from cleaner.config.values import CleanerConfig
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.present.html import page
from cleaner.present.html.page_logs import LOG_PATH
from cleaner.present.http import health
from cleaner.present.http.exposition import expose, negotiate
from cleaner.present.http.message import Request, Response
from cleaner.present.http.server import HttpServer
from cleaner.present.http.web_config import WebConfigFile
from cleaner.present.metrics.metrics import DEFAULT_PARTITIONS, SnapshotCollector, registry
from cleaner.storage.fs.file_system import FileSystem

KEPT_NS = 1_000_000_000
"""How long a scrape or a JSON document is reused: however many clients ask, it is made once a second."""


class Routes:
    """
    Answers requests from snapshots; `HttpServer` calls it.

    Args:
        snapshot: returns the daemon's state; called from several threads.
        partition_metrics: see `SnapshotCollector`.
        is_with_kafka_metrics: see `SnapshotCollector`.
        clock: measures how long something is kept.
    """

    def __init__(
        self,
        snapshot: Callable[[], ServiceSnapshot],
        *,
        partition_metrics: int = DEFAULT_PARTITIONS,
        is_with_kafka_metrics: bool = False,
        clock: Clock,
    ) -> None:
        self._snapshot = snapshot
        collector = SnapshotCollector(snapshot, partitions=partition_metrics, is_with_kafka_names=is_with_kafka_metrics)
        self._registry = registry(collector)
        self._clock = clock
        self._lock = concurrency.Lock()  # guards _kept; held while a document is made, so that it is made once
        self._kept: dict[str, tuple[int, Response]] = {}

    def __call__(self, request: Request) -> Response:
        """Answer; the method is GET or HEAD."""
        match request.path:
            case "/":
                return page.overview(self._snapshot(), request.query)
            case "/metrics":
                return self._metrics(request.headers.get("accept", ""))
            case "/livez":
                return health.live()
            case "/readyz":
                return health.ready(self._snapshot())
            case "/healthz":
                return health.healthy(self._snapshot())
            case "/api/v1/snapshot":
                return self._keep("json", self._json)
        if request.path.startswith(LOG_PATH):
            return page.log(self._snapshot(), request.path.removeprefix(LOG_PATH), request.query)
        return Response.words(HTTPStatus.NOT_FOUND)

    def _metrics(self, accept: str) -> Response:
        _, content_type = negotiate(accept)
        return self._keep(content_type, lambda: Response(*expose(self._registry, accept)))

    def _json(self) -> Response:
        return Response(format_json(described("snapshot", self._snapshot())).encode(), "application/json")

    def _keep(self, key: str, make: Callable[[], Response]) -> Response:
        with self._lock:
            now_ns = self._clock.monotonic_ns()
            self._kept = {of: kept for of, kept in self._kept.items() if now_ns - kept[0] < KEPT_NS}
            if key not in self._kept:
                self._kept[key] = (now_ns, make())
            return self._kept[key][1]


def status_server(
    config: CleanerConfig,
    snapshot: Callable[[], ServiceSnapshot],
    *,
    fs: FileSystem,
    clock: Clock,
    warn: Callable[[str], None],
    failed: Callable[[Exception], None],
) -> HttpServer | None:
    """
    Make the HTTP server of the settings; bound, but not serving. None if they ask for none.

    Args:
        config: the settings `cleaner.http.*`.
        snapshot: returns the daemon's state; called from several threads, also before it is ready.
        fs: for the web configuration.
        clock: the time.
        warn: called with warnings for the operator, one line each.
        failed: called with internal errors of the server.
    Raises:
        ConfigError: the web configuration cannot be used.
        ListenError: the address is taken, or not of this machine.
    """
    address = config.http_address
    if address is None:
        return None
    web_config = None
    if config.http_web_config_file:
        web_config = WebConfigFile(fs, Path(config.http_web_config_file), warn)
    routes = Routes(
        snapshot,
        partition_metrics=config.http_partition_metrics,
        is_with_kafka_metrics=config.http_kafka_metrics,
        clock=clock,
    )
    return HttpServer(Address(*address), routes, web_config=web_config, warn=warn, failed=failed, clock=clock)
