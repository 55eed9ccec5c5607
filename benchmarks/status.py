"""
How long it takes to show a daemon with 5,000 logs in 500 topics, asked over HTTP as Prometheus and a browser ask:

    .venv/bin/python -m benchmarks.status [--runs 20]

The daemon is a snapshot: what a scrape waits for when workers hold the interpreter is measured with a daemon at work.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import time

from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.clock import SystemClock
from cleaner.base.listening import Address
from cleaner.present.http.routes import Routes
from cleaner.present.http.server import HttpServer
from tests.support.sample_daemons import with_many_logs

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
SHOWN = {
    "/metrics, text": ("/metrics", "text/plain", Bounds(50, at_most=True)),
    "/metrics, OpenMetrics": ("/metrics", OPENMETRICS, Bounds(50, at_most=True)),
    "/": ("/", "text/html", Bounds(100, 50, at_most=True)),
    "/api/v1/snapshot": ("/api/v1/snapshot", "*/*", Bounds(500, at_most=True)),
}


def ask(port: int, path: str, accept: str) -> tuple[float, int]:
    """Return the milliseconds from connecting to the last byte, and the bytes of the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        began = time.perf_counter()
        connection.request("GET", path, headers={"Accept": accept})
        body = connection.getresponse().read()
        return (time.perf_counter() - began) * 1000, len(body)
    finally:
        connection.close()


def fail(error: Exception) -> None:
    """Let a mistake of the server end the benchmark's thread, loudly."""
    raise error


def status_table(runs: int) -> str:
    """Measure and lay out."""
    described = with_many_logs()
    rows = []
    for name, (path, accept, bounds) in SHOWN.items():
        found = []
        for _ in range(runs):
            # A server each time: it hands out again what it made within the second.
            routes, clock = Routes(lambda: described, clock=SystemClock()), SystemClock()
            with HttpServer(Address("127.0.0.1", 0), routes, warn=print, failed=fail, clock=clock) as server:
                found.append(ask(server.address.port, path, accept))
        times = [milliseconds for milliseconds, _ in found]
        cells = bounds.cells(statistics.median(times), " ms")
        rows.append([name, f"{found[-1][1] / 1000:.0f} kB", f"{min(times):.1f}", *cells])
    return table("Shown, with 5,000 logs in 500 topics", ["path", "size", "least ms", "median", *HELD_TO], rows)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Times what the daemon shows over HTTP.")
    parser.add_argument("--runs", type=int, default=20)
    print(status_table(parser.parse_args().runs))


if __name__ == "__main__":
    main()
