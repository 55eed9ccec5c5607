"""
Structured logs: an event in a few words, and named values.

A `logging.Logger` gets both as one line; a logger with structlog's methods gets them as they are. Nothing here
configures logging, and without a logger nothing is logged.
"""

from __future__ import annotations

import logging
from typing import Protocol


class Logger(Protocol):
    """Structured logs: an event in a few words, and named values."""

    def info(self, event: str, **values: object) -> object:
        """Log what happened."""

    def warning(self, event: str, **values: object) -> object:
        """Log what the operator should know."""

    def error(self, event: str, **values: object) -> object:
        """Log what the operator should do something about; `exc_info` is the error."""


class _Nobody:
    """Listens to nothing."""

    def info(self, event: str, **values: object) -> None:
        """Pass it over."""

    def warning(self, event: str, **values: object) -> None:
        """Pass it over."""

    def error(self, event: str, **values: object) -> None:
        """Pass it over."""


class _Lines:
    """A logger of the standard library."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def info(self, event: str, **values: object) -> None:
        """Log what happened."""
        self._say(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Log what the operator should know."""
        self._say(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        """Log what the operator should do something about."""
        self._say(logging.ERROR, event, values)

    def _say(self, level: int, event: str, values: dict[str, object]) -> None:
        error = values.pop("exc_info", None)
        exc_info = error if isinstance(error, BaseException) else None
        # What comes from outside (names, messages of errors) is shown with its control characters escaped.
        words = " ".join([event, *(f"{key}={value!r}" for key, value in values.items())])
        self._logger.log(level, "%s", words, exc_info=exc_info)


def logger_of(given: logging.Logger | Logger | None) -> Logger:
    """Return what events are told to."""
    if given is None:
        return _Nobody()
    return _Lines(given) if isinstance(given, logging.Logger) else given
