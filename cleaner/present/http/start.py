"""The room's front door: a server made from the settings, for whoever puts the daemon together."""

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
    Make the HTTP server that the settings ask for; bound, not yet serving. None where they ask for none.

    Args:
        config: the settings `cleaner.http.*`.
        snapshot: what the daemon is like; called from several threads, also before it is ready.
        fs: for the web configuration.
        clock: the time.
        warn: told what the operator should know, one line each.
        failed: called with mistakes of the server's own.
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
