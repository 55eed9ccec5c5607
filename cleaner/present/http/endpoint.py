"""What `cleaner serve` shares with the status server: the file with certificate and users, and the page of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from cleaner.app.options import CallContext
from cleaner.base.listening import Address
from cleaner.errors import ConfigError
from cleaner.present.http import health
from cleaner.present.http.exposition import expose
from cleaner.present.http.message import Request, Response
from cleaner.present.http.server import HttpServer
from cleaner.present.http.web_config import WebConfigFile
from cleaner.present.metrics import families as f
from cleaner.present.metrics.metrics import filled, registry
from cleaner.serve.login import Access

Numbers = Callable[[], Mapping[tuple[str, str], int]]
"""Returns `ServedLogDirs.numbers`."""

_LABELLED = {
    "connections": f.SERVE_ACCEPTED,
    "requests": f.SERVE_REQUESTS,
    "refused": f.SERVE_REFUSED,
    "errors": f.SERVE_ERRORS,
    "bytes": f.SERVE_BYTES,
}
_SINGLE = {
    ("internal errors", ""): f.SERVE_FAILURES,
    ("failed logins", ""): f.SERVE_LOGINS,
    ("now", "connections"): f.SERVE_CONNECTIONS,
    ("now", "groups"): f.SERVE_GROUPS,
    ("now", "members"): f.SERVE_MEMBERS,
}


class _Collector(Collector):
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers()
        for kind, family in _LABELLED.items():
            rows = ((name, count) for (found, name), count in sorted(numbers.items()) if found == kind)
            yield filled(family, [((name.replace(" ", "_"),), count) for name, count in rows])
        for key, family in _SINGLE.items():
            yield filled(family, [((), numbers.get(key, 0))])


class MetricsPage:
    """The answers of the page: `/metrics`, and `/livez` and `/readyz` for probes."""

    def __init__(self, numbers: Numbers) -> None:
        self._registry = registry(_Collector(numbers))

    def __call__(self, request: Request) -> Response:
        """Answer."""
        match request.path:
            case "/metrics":
                return Response(*expose(self._registry, request.headers.get("accept", "")))
            case "/livez" | "/readyz":
                return health.live()
        return Response.words(HTTPStatus.NOT_FOUND)


def metrics_server(address: Address, numbers: Numbers, access: Path | None, context: CallContext) -> HttpServer:
    """
    Make the server of the page; bound, but not serving.

    Args:
        address: where.
        numbers: what it shows.
        access: the file of `--access`; None: whoever can connect may see it.
        context: the caller's.
    Raises:
        ListenError: the address is taken, or not of this machine.
        ConfigError: the file cannot be used.
    """
    return HttpServer(
        address,
        MetricsPage(numbers),
        web_config=None if access is None else _open(access, context),
        warn=context.warn,
        failed=lambda error: context.warn(f"a scrape failed: {error}"),
        clock=context.clock,
        option="--metrics ",
    )


def access_of(path: Path, context: CallContext) -> Callable[[], Access]:
    """
    Return what tells who may connect now, by the file of `--access`, of the form of `cleaner.http.web.config.file`.

    Raises:
        ConfigError: it cannot be used; says why.
    """
    file = _open(path, context)

    def current() -> Access:
        now = file.current()
        return Access(now.tls, now.passwords if now.users else None, now.has_users)

    return current


def _open(path: Path, context: CallContext) -> WebConfigFile:
    try:
        return WebConfigFile(context.fs, path, context.warn)
    except ConfigError as error:
        raise ConfigError("--access", error.value, error.reason) from error
