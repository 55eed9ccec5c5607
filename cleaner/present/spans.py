"""
Rounds as spans of OpenTelemetry, sent to a collector over OTLP/HTTP: the extra `otel`, off by default.

A span has the figures of the journal's entry (daemon) or of the report (`clean`), never a byte of a record. The SDK
sends spans from a thread of its own and drops them when the collector does not keep up: whatever is wrong with it, a
round goes on as if there were none.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from cleaner import __version__
from cleaner.base import concurrency
from cleaner.base.json_values import JsonValue
from cleaner.config.forms import OTEL_ENDPOINT_KEY
from cleaner.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

_QUIET_SECONDS = 60.0
_MAX_REASON = 300


def open_spans(endpoint: str, command: str, warn: Callable[[str], None]) -> Spans | None:
    """
    Return what sends spans to a collector; None if `endpoint` is empty, and then nothing is imported.

    Args:
        endpoint: `cleaner.otel.endpoint`.
        command: see `Spans`.
        warn: see `Spans`.
    Raises:
        ConfigError: the extra is not installed.
    """
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        reason = f"needs {error.name}: pip install 'kafka-log-cleaner[otel]'"
        raise ConfigError(OTEL_ENDPOINT_KEY, endpoint, reason) from None
    failures = _Failures()
    return Spans(BatchSpanProcessor(OTLPSpanExporter(endpoint)), command, warn, failures)


class Spans:
    """
    Makes a span of each round. Thread-safe.

    Args:
        processor: takes the spans.
        command: a span of this name has all rounds below it, until `close`; empty: each round is a trace of its own.
        warn: called with one line, at most once a minute, if spans could not be sent.
        failures: what the SDK has logged; None: nothing yet.
    """

    def __init__(
        self, processor: SpanProcessor, command: str, warn: Callable[[str], None], failures: _Failures | None = None
    ) -> None:
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_span_in_context

        self._warn = warn
        self._failures = failures or _Failures()
        self._warned_at = -_QUIET_SECONDS
        ours = {"service.name": "kafka-log-cleaner", "service.version": __version__, "host.name": socket.gethostname()}
        resource = Resource(ours).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("cleaner", __version__)
        self._parent = self._tracer.start_span(command) if command else None
        self._context = None if self._parent is None else set_span_in_context(self._parent)

    def add_round(self, figures: Mapping[str, JsonValue], seconds: float, error: str = "") -> None:
        """
        Send the span of a round that has just ended.

        Args:
            figures: its attributes, `cleaner.` before their names; what is None or empty is left out.
            seconds: how long it took.
            error: why it failed; empty: it did not.
        """
        from opentelemetry.trace import Status, StatusCode

        now_ns = time.time_ns()
        try:
            span = self._tracer.start_span(
                "round", self._context, attributes=dict(_attributes(figures)), start_time=now_ns - int(seconds * 1e9)
            )
            if error:
                span.set_status(Status(StatusCode.ERROR, _text(error)))
            span.end(now_ns)
        except Exception as failure:  # noqa: BLE001 - no fault of a library that only watches stops a round
            self._failures.add(str(failure))
        if time.monotonic() - self._warned_at >= _QUIET_SECONDS:
            self._tell()

    def close(self, seconds: float) -> None:
        """Send what still waits, for so many seconds at most; the rest is dropped."""
        if self._parent is not None:
            self._parent.end()
        closer = concurrency.Thread(target=self._provider.shutdown, name="cleaner-spans", daemon=True)
        closer.start()
        closer.join(seconds)
        if closer.is_alive():
            self._failures.add("the collector does not answer")
        self._tell()
        self._failures.detach()

    def _tell(self) -> None:
        reason = self._failures.take()
        if reason:
            self._warned_at = time.monotonic()
            self._warn(f"spans were not sent ({OTEL_ENDPOINT_KEY}): {reason}")


class _Failures(logging.Handler):
    """Takes what the SDK logs, from any thread: it would go to standard error, in a form of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._hint = self._reason = ""
        self._logger = logging.getLogger("opentelemetry")
        self._logger.addHandler(self)
        self._logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Note a failure; what is only a warning may say why the failure after it came."""
        if record.levelno < logging.ERROR:
            self._hint = record.getMessage()
        else:
            self.add(": ".join(filter(None, (record.getMessage(), self._hint))))

    def add(self, reason: str) -> None:
        """Note why spans are lost."""
        self._reason = " ".join(reason.split())[:_MAX_REASON]

    def take(self) -> str:
        """Return the last reason since the last call; empty if there is none."""
        reason, self._reason = self._reason, ""
        return reason

    def detach(self) -> None:
        """Take nothing any more."""
        self._logger.removeHandler(self)


def _attributes(values: Mapping[str, JsonValue], prefix: str = "cleaner.") -> Iterator[tuple[str, str | int | float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _attributes(value, f"{prefix}{name}.")
        elif isinstance(value, str) and value:
            yield f"{prefix}{name}", _text(value)
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def _text(text: str) -> str:
    """Escape what has no UTF-8: names of files may hold any byte."""
    return text.encode("utf-8", "backslashreplace").decode()
