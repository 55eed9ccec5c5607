"""
The daemon's logs: structlog to standard error, one line per event, for a person (console) or a program (JSON). Only on
a terminal is an event longer than a line folded into several.

Names and errors may quote directories and files that others write; whatever these contain, an event stays one line and
sends only text to a terminal. Logging never waits for a reader (`background_stream.py`).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping, MutableMapping
from typing import TextIO, cast

import structlog

from cleaner.cli.background_stream import BackgroundStream
from cleaner.cli.logs import folded

_STANDARD_ERROR = 2
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def open_logs(form: str) -> BackgroundStream:
    """Return standard error, as the daemon logs to it; `form` as below."""

    def lost(count: int) -> str:
        event = "events lost: standard error was not read"
        return (
            f"{json.dumps({'count': count, 'event': event, 'level': 'warning'})}\n"
            if form == "json"
            else (f"[warning  ] {event} count={count}\n")
        )

    return BackgroundStream(_STANDARD_ERROR, lost)


def configure_logs(form: str, level: str, stream: TextIO | BackgroundStream) -> structlog.typing.FilteringBoundLogger:
    """
    Set up the logs of this process and return the logger.

    Args:
        form: `cleaner.log.format`: `console` or `json`.
        level: `cleaner.log.level`.
        stream: to write to.
    """
    renderer: structlog.typing.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer(ensure_ascii=True)
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_traceback,
            _made_visible,
            renderer,
            *([folded] if form != "json" and stream.isatty() else []),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, stream)),
        cache_logger_on_first_use=True,
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def _with_traceback(_logger: object, _method: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """Add a traceback to the event as one value."""
    error = event.pop("exc_info", None)
    if isinstance(error, BaseException):
        event["traceback"] = "".join(traceback.format_exception(error))
    return event


def _made_visible(_logger: object, _method: str, event: MutableMapping[str, object]) -> Mapping[str, object]:
    """Escape control characters, including line breaks."""
    return {key: _visible(value) for key, value in event.items()}


def _visible(value: object) -> object:
    if isinstance(value, str):
        return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)
    if isinstance(value, Mapping):
        return {_visible(key): _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value
