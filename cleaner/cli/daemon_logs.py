"""
The daemon's logs: structlog to standard error, one line per event, for a person (console) or a program (JSON). Only on
a terminal is an event longer than a line folded into several.

Names and errors may quote directories and files that others write; whatever these contain, an event stays one line and
sends only text to a terminal. Logging never waits for a reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import traceback
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from typing import TextIO, cast

import structlog

from cleaner.base import concurrency
from cleaner.cli.logs import folded
from cleaner.errors import OutOfThreadsError

# Hundreds of events: a reader that is merely slow never leaves so many.
MAX_BYTES = 1 << 20


class BackgroundStream:
    """
    A stream for lines of text, written by its own thread. Thread-safe; only `drain` waits for the reader.

    If a daemon itself wrote to a pipe that no process reads, or to a stopped terminal, it would block with all its
    workers and could not even stop. Here lines that find no room are dropped and counted, and their number is logged
    later.

    Args:
        descriptor: to write to; it stays open.
        lost: makes the line that says how many were dropped.
        max_bytes: the most bytes that may wait to be written.
    """

    def __init__(self, descriptor: int, lost: Callable[[int], str], max_bytes: int = MAX_BYTES) -> None:
        self._descriptor = descriptor
        self._lost = lost
        self._max_bytes = max_bytes
        self._change = concurrency.Condition()
        # All guarded by _change.
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._thread: concurrency.Thread | None = None

    def write(self, text: str) -> int:
        """Queue text, or drop it if too much is waiting; returns its length."""
        data = text.encode("utf-8", "backslashreplace")
        with self._change:
            if self._waiting_bytes + len(data) > self._max_bytes:
                self._left_out += 1
                return len(text)
            self._put(data)
            if self._thread is None:
                thread = concurrency.Thread(target=self._run, name="cleaner-logs", daemon=True)
                with contextlib.suppress(OutOfThreadsError):  # the next line tries again
                    thread.start()
                    self._thread = thread
            self._change.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines are written as soon as they can be."""

    def isatty(self) -> bool:
        """Tell whether a person is likely to read it."""
        return os.isatty(self._descriptor)

    def drain(self, timeout: float) -> bool:
        """Wait until everything is written, at most this many seconds; False: something is not."""
        with self._change:
            return self._change.wait_for(lambda: not self._waiting_bytes, timeout)

    def _put(self, data: bytes) -> None:
        self._lines.append(data)
        self._waiting_bytes += len(data)

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            self._write(line)
            with self._change:
                self._waiting_bytes -= len(line)
                if self._left_out:
                    self._put(self._lost(self._left_out).encode())
                    self._left_out = 0
                self._change.notify_all()

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except OSError:
                return  # the reader has gone; cleaning goes on


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
