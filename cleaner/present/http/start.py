"""Makes the HTTP server from the settings, for the daemon process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cleaner.base.clock import Clock
from cleaner.config.values import CleanerConfig
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.present.http.routes import Routes
from cleaner.present.http.server import Address, HttpServer
from cleaner.present.http.web_config import WebConfigFile
from cleaner.storage.fs.file_system import FileSystem


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
