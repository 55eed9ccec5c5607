"""
Adapts loggers for structured logs: an event in a few words, and named values.

A `logging.Logger` gets both as one line; a logger with structlog's methods gets them unchanged. Nothing here configures
logging, and without a logger nothing is logged.
"""

from __future__ import annotations

import logging
from typing import Protocol


class Logger(Protocol):
    """Structured logs: an event in a few words, and named values."""

    def info(self, event: str, **values: object) -> object:
        """Log an event."""

    def warning(self, event: str, **values: object) -> object:
        """Log an event that the operator should know."""

    def error(self, event: str, **values: object) -> object:
        """Log an event on which the operator should act; `exc_info` is the error."""


class _NoLogger:
    """Logs nothing."""

    def info(self, event: str, **values: object) -> None:
        """Do nothing."""

    def warning(self, event: str, **values: object) -> None:
        """Do nothing."""

    def error(self, event: str, **values: object) -> None:
        """Do nothing."""


class _Lines:
    """Logs to a logger of the standard library."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **values: object) -> None:
        """Log an event."""
        self._say(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Log an event that the operator should know."""
        self._say(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        """Log an event on which the operator should act."""
        self._say(logging.ERROR, event, values)

    def _say(self, level: int, event: str, values: dict[str, object]) -> None:
        error = values.pop("exc_info", None)
        exc_info = error if isinstance(error, BaseException) else None
        # `repr` escapes control characters in external text (names, messages of errors).
        words = " ".join([event, *(f"{key}={value!r}" for key, value in values.items())])
        self._logger.log(level, "%s", words, exc_info=exc_info)


def logger_of(given: logging.Logger | Logger | None) -> Logger:
    """Return the logger for events."""
    if given is None:
        return _NoLogger()
    return _Lines(given) if isinstance(given, logging.Logger) else given
