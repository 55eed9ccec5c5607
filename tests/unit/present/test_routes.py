"""Which path shows what, and how often it is made."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest

from cleaner.base.clock import SystemClock
from cleaner.config.values import CleanerConfig
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.present.http.message import Request, Response
from cleaner.present.http.routes import Routes, status_server
from cleaner.storage.fs.file_system import FileSystem
from tests.support.manual_clock import ManualClock
from tests.support.sample_daemons import HOSTILE_TOPIC, hostile
from tests.support.snapshots import log, snapshot


def get(routes: Routes, path: str, **query: str) -> Response:
    """Ask for a path."""
    return routes(Request("GET", path, query))


@pytest.mark.parametrize(
    ("path", "content_type", "status"),
    [
        ("/", "text/html; charset=utf-8", 200),
        ("/log/orders-0", "text/html; charset=utf-8", 200),
        ("/log/nothing-0", "text/html; charset=utf-8", 404),
        ("/log/", "text/html; charset=utf-8", 404),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", 200),
        ("/livez", "text/plain; charset=utf-8", 200),
        ("/readyz", "text/plain; charset=utf-8", 200),
        ("/healthz", "application/json", 200),
        ("/api/v1/snapshot", "application/json", 200),
        ("/api/v2/snapshot", "text/plain; charset=utf-8", 404),
        ("//", "text/plain; charset=utf-8", 404),
        ("/../etc/passwd", "text/plain; charset=utf-8", 404),
    ],
)
def test_path_shows_what_it_says(path: str, content_type: str, status: int) -> None:
    """Everything else is not there."""
    response = get(Routes(snapshot, clock=ManualClock()), path)
    assert (response.content_type, response.status) == (content_type, status)


def test_scrapes_within_a_second_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, the daemon is asked once a second; pages and probes see it as it is."""
    clock, asked = ManualClock(), []
    routes = Routes(lambda: asked.append(1) or snapshot(), clock=clock)  # type: ignore[func-returns-value]
    first = get(routes, "/metrics")
    clock.move_on(0.9)
    assert get(routes, "/metrics") is first
    assert len(asked) == 1
    clock.move_on(0.2)
    assert get(routes, "/metrics") is not first
    assert len(asked) == 2
    openmetrics = routes(Request("GET", "/metrics", {}, {"accept": "application/openmetrics-text;version=1.0.0"}))
    assert openmetrics.body.endswith(b"# EOF\n")
    for _ in range(3):
        get(routes, "/readyz")
    assert len(asked) == 6


def test_snapshot_is_json_with_a_version() -> None:
    """Programs can tell whether they understand it."""
    routes = Routes(lambda: snapshot((log("orders", 3),)), clock=ManualClock())
    told = json.loads(get(routes, "/api/v1/snapshot").body)
    assert (told["format"], told["format_version"]) == ("cleaner-snapshot", 1)
    assert [view["partition"] for view in told["logs"]] == ["orders-3"]


def test_hostile_topic_is_found_by_the_link_to_it() -> None:
    """What a link says is what the path means, with controls made visible."""
    name = f"{HOSTILE_TOPIC}-0".replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert get(Routes(hostile, clock=ManualClock()), f"/log/{name}").status == 200


def test_no_address_is_no_server() -> None:
    """An empty `cleaner.http.listen` turns HTTP off, and no thread is made."""
    config = dataclasses.replace(CleanerConfig(log_dirs=()), http_listen="")
    before = threading.active_count()
    made = status_server(config, snapshot, fs=FileSystem(), clock=SystemClock(), warn=print, failed=print)
    assert (made, threading.active_count()) == (None, before)


def test_metrics_are_made_once_whatever_format_is_asked_for() -> None:
    """Another version in each request is the same document; one that no header can hold is not repeated."""
    made: list[int] = []

    def count() -> ServiceSnapshot:
        made.append(1)
        return snapshot()

    routes = Routes(count, clock=ManualClock())
    for version in ("1.0.0", "1.0.1", "1.\x0b0.0", "7.0", "1.0.0.0.1"):
        answer = routes(Request("GET", "/metrics", {}, {"accept": f"application/openmetrics-text;version={version}"}))
        assert answer.content_type.isprintable() and "version=1.0.0;" in answer.content_type
    assert len(made) == 1
    answer = routes(Request("GET", "/metrics", {}, {"accept": "application/openmetrics-text;version=x"}))
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert len(made) == 2
