"""Spans of `clean` and of the daemon as a collector gets them, over OTLP/HTTP."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cleaner.cli.main import main
from tests.cleaner_run import cleaner_run, wait_until
from tests.integration.daemons import settings_for
from tests.integration.log_dirs import NOW, keyed_log, offsets
from tests.integration.test_start import loaded_by
from tests.support.log_builder import write_log_dir

COMPACT = ("--set", "a:cleanup.policy=compact", "--set", "b:cleanup.policy=compact", "--now", str(NOW))


@dataclass
class Collector:
    """What was sent: paths, and spans by name; `status` is what it answers."""

    address: str = ""
    status: int = 200
    paths: list[str] = field(default_factory=list)
    spans: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        """Read a request."""
        self.paths.append(path)
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (each for scope in of_resource.scope_spans for each in scope.spans):
                values = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
                self.spans.append((span.name, values, span.status.message))

    def rounds(self) -> list[dict[str, Any]]:
        """Return the attributes of rounds."""
        return [values for name, values, _ in self.spans if name == "round"]


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """Run one on loopback."""
    told = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.take(self.path, self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(told.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        told.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield told
        finally:
            server.shutdown()
            thread.join()


def clean(log_dir: Path, address: str) -> int:
    """Clean two logs."""
    setting = f"cleaner.otel.endpoint={address}"
    return main(["clean", str(log_dir), "a-0", "b-0", *COMPACT, "--format", "json", "--set", setting])


def test_clean_sends_what_it_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A span a partition with the numbers of its JSON; a refused one with the reason; all below the command's."""
    write_log_dir(tmp_path, keyed_log("a-0"), keyed_log("b-0"))
    log = next((tmp_path / "b-0").glob("*0.log"))
    log.write_bytes(log.read_bytes()[:40] + b"\xff" + log.read_bytes()[41:])
    with collector() as told:
        assert clean(tmp_path, told.address) == 1
    report, refused = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert set(told.paths) == {"/v1/traces"}
    assert sorted(name for name, _, _ in told.spans) == ["clean", "round", "round"]
    done, damaged = sorted(told.rounds(), key=lambda each: each["cleaner.partition"])
    figures = {f"cleaner.{name}": value for name, value in report.items() if isinstance(value, int | float | str)}
    assert {name: value for name, value in figures.items() if value != ""}.items() <= done.items()
    assert done["cleaner.removed.superseded"] == report["removed"]["superseded"] > 0
    assert damaged == {"cleaner.partition": "b-0", "cleaner.log_dir": str(tmp_path)}
    assert [message for _, _, message in told.spans if message] == [refused["error"]]


@pytest.mark.parametrize("status", [0, 400, 503])
def test_clean_is_the_same_whatever_the_collector_answers(
    tmp_path: Path, status: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or if nobody listens: a warning, and all is cleaned."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.3")
    write_log_dir(tmp_path, keyed_log("a-0"), keyed_log("b-0"))
    with collector() as told:
        told.status = status
        if status:
            assert clean(tmp_path, told.address) == 0
    if not status:
        assert clean(tmp_path, told.address) == 0
    assert offsets(tmp_path, "cleaner") == {"a-0": 60, "b-0": 60}
    err = capsys.readouterr().err
    assert err.count("spans were not sent") == 1
    assert "Traceback" not in err


def test_bad_address_is_a_bad_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing was touched."""
    write_log_dir(tmp_path, keyed_log("a-0"), keyed_log("b-0"))
    assert clean(tmp_path, "collector:4317") == 78
    assert "cleaner.otel.endpoint" in capsys.readouterr().err
    assert offsets(tmp_path, "cleaner") == {}


def test_daemon_sends_its_rounds_and_the_last_ones_at_its_end(tmp_path: Path) -> None:
    """With what its journal has of them."""
    logs = tmp_path / "logs"
    logs.mkdir()
    write_log_dir(logs, keyed_log("a-0"), keyed_log("a-1"))
    with collector() as told:
        settings = settings_for(logs, state_dir=tmp_path / "unused", cleaner_otel_endpoint=told.address)
        with cleaner_run(tmp_path, settings) as run:
            run.start()
            wait_until(lambda: offsets(logs, "cleaner") == {"a-0": 60, "a-1": 60}, "all is clean")
            assert run.stop() < 10
        lines = (tmp_path / "unused" / "journal.v1.00000001.jsonl").read_text().splitlines()
    journal = [json.loads(line) for line in lines]
    wanted = {each["partition"]: each["details"] for each in journal if each["kind"] == "round"}
    sent = {each["cleaner.partition"]: each for each in told.rounds()}
    assert wanted.keys() == sent.keys() == {"a-0", "a-1"}
    for partition, details in wanted.items():
        numbers = {f"cleaner.{name}": each for name, each in details.items() if isinstance(each, int | float)}
        assert numbers.items() <= sent[partition].items()
        assert sent[partition]["cleaner.result"] == "done"
    assert [each for each in run.events() if "spans" in each["event"]] == []


def test_nothing_of_it_is_loaded_when_it_is_off(tmp_path: Path) -> None:
    """Neither the libraries nor our side of them."""
    write_log_dir(tmp_path, keyed_log("a-0"))
    loaded = loaded_by("clean", tmp_path, "a-0", *COMPACT)
    assert "cleaner.cleaning.round.round" in loaded
    assert not {each for each in loaded if each.startswith("opentelemetry")}
    assert "cleaner.present.spans" not in loaded
