"""Logs of a command: structlog, to standard error, a line each."""

from __future__ import annotations

import sys

import structlog


def configure_logs() -> None:
    """Send logs to standard error; colours only on a terminal."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def log_warning(warning: str, **context: object) -> None:
    """Log what looks wrong."""
    configure_logs()
    structlog.get_logger().warning(warning, **context)


def log_note(note: str, **context: object) -> None:
    """Log what the operator should know."""
    configure_logs()
    structlog.get_logger().info(note, **context)
