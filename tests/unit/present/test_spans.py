"""Rounds as spans: what is in them, and that no fault of a collector reaches a round."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from cleaner.config.forms import checked_otel_endpoint
from cleaner.errors import ConfigError
from cleaner.present.spans import Spans, open_spans

FIGURES = {"partition": "prices-0", "bytes_read": 7, "detail": "", "merged_keys": None, "removed": {"superseded": 3}}
SOON = 10.0


class FailingExporter(SpanExporter):
    """Fails each time."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Raise what an exporter should not."""
        raise OSError("the collector burns")


class SilentExporter(SpanExporter):
    """Waits for an answer that does not come, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Wait."""
        self.let_go.wait()
        return SpanExportResult.FAILURE


class FailingProcessor(SimpleSpanProcessor):
    """Fails in the thread that ends a span."""

    def on_end(self, span: ReadableSpan) -> None:
        """Raise what a processor should not."""
        raise ValueError("the processor burns")


def of_rounds(command: str, *rounds: tuple[dict[str, object], float, str]) -> tuple[ReadableSpan, ...]:
    """Return the spans that are sent for rounds."""
    exporter = InMemorySpanExporter()
    warnings: list[str] = []
    spans = Spans(SimpleSpanProcessor(exporter), command, warnings.append)
    for figures, seconds, error in rounds:
        spans.add_round(figures, seconds, error)
    spans.close(SOON)
    assert warnings == []
    return exporter.get_finished_spans()


def test_span_has_the_figures_and_the_length_of_its_round() -> None:
    """Numbers stay numbers, parts of a figure follow a point; what is empty is left out."""
    before_ns = time.time_ns()
    (span,) = of_rounds("", (FIGURES, 2.5, ""))
    assert span.name == "round"
    assert dict(span.attributes) == {
        "cleaner.partition": "prices-0",
        "cleaner.bytes_read": 7,
        "cleaner.removed.superseded": 3,
    }
    assert span.end_time - span.start_time == 2_500_000_000
    assert before_ns <= span.end_time <= time.time_ns()
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None
    assert span.resource.attributes["service.name"] == "kafka-log-cleaner"


def test_failed_round_is_an_error_with_its_reason() -> None:
    """As in the journal."""
    (span,) = of_rounds("", (FIGURES, 0.0, "a batch at byte 7 is damaged"))
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "a batch at byte 7 is damaged")


def test_rounds_of_a_command_are_one_trace() -> None:
    """Below a span with the command's name, which ends last."""
    *rounds, whole = of_rounds("clean", (FIGURES, 0.0, ""), (FIGURES, 0.0, ""))
    assert whole.name == "clean"
    assert {each.parent.span_id for each in rounds} == {whole.context.span_id}
    assert {each.context.trace_id for each in rounds} == {whole.context.trace_id}


def test_name_without_utf8_can_be_sent() -> None:
    """One such name would cost all spans that are sent with it."""
    (span,) = of_rounds("", ({"log_dir": "/data/\udcff"}, 0.0, "/data/\udcff: no"))
    assert span.attributes["cleaner.log_dir"] == "/data/\\udcff"
    assert span.status.description == "/data/\\udcff: no"


def test_service_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every program that uses OpenTelemetry."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "archive")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    (span,) = of_rounds("", (FIGURES, 0.0, ""))
    named = span.resource.attributes
    assert (named["service.name"], named["deployment.environment.name"]) == ("archive", "test")


def test_failing_exporter_is_told_once_and_harms_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Not by a traceback on standard error, which is what the SDK does with it."""
    warnings: list[str] = []
    spans = Spans(BatchSpanProcessor(FailingExporter(), schedule_delay_millis=5), "", warnings.append)
    until = time.monotonic() + SOON
    while not warnings and time.monotonic() < until:
        spans.add_round(FIGURES, 0.0)
        time.sleep(0.01)
    assert len(warnings) == 1
    assert warnings[0].startswith("spans were not sent (cleaner.otel.endpoint): Exception while exporting Span")
    for _ in range(100):
        spans.add_round(FIGURES, 0.0)
    assert len(warnings) == 1
    spans.close(SOON)
    assert "".join(capsys.readouterr()) == ""


def test_failing_library_harms_no_round() -> None:
    """Whatever it raises where the round ends."""
    warnings: list[str] = []
    spans = Spans(FailingProcessor(InMemorySpanExporter()), "", warnings.append)
    spans.add_round(FIGURES, 0.0)
    assert warnings == ["spans were not sent (cleaner.otel.endpoint): the processor burns"]


def test_collector_that_does_not_answer_delays_the_end_by_no_more_than_was_granted() -> None:
    """What it does not take is dropped, and said."""
    exporter, warnings = SilentExporter(), []
    spans = Spans(BatchSpanProcessor(exporter), "", warnings.append)
    spans.add_round(FIGURES, 0.0)
    began = time.monotonic()
    spans.close(0.05)
    took = time.monotonic() - began
    exporter.let_go.set()
    assert took < SOON
    assert warnings == ["spans were not sent (cleaner.otel.endpoint): the collector does not answer"]


def test_nothing_is_made_without_an_address() -> None:
    """The default."""
    assert open_spans("", "clean", print) is None


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'kafka-log-cleaner\[otel\]'"):
        open_spans("http://localhost:4318/v1/traces", "clean", print)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", ""),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://[::1]:4318/", "https://[::1]:4318/v1/traces"),
        ("https://collector/otlp/v1/traces", "https://collector/otlp/v1/traces"),
    ],
)
def test_address_gets_the_path_of_the_protocol(text: str, url: str) -> None:
    """Unless it has one."""
    assert checked_otel_endpoint(text) == url


@pytest.mark.parametrize(
    "text", ["collector:4318", "grpc://collector:4317", "http://", "http://a b", "http://me:secret@collector"]
)
def test_other_addresses_are_refused_without_showing_a_password(text: str) -> None:
    """Settings are shown on the page."""
    with pytest.raises(ConfigError) as refused:
        checked_otel_endpoint(text)
    assert "secret" not in str(refused.value)
