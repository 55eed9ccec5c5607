"""
Logs of a command: structlog, to standard error, one line each.

structlog is imported for the first line: it takes a tenth of a second, and most commands log nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from cleaner.cli.fitting import columns, flush_printed, fold

if TYPE_CHECKING:
    import structlog


def _logger() -> structlog.typing.FilteringBoundLogger:
    """Return a logger to standard error; colours only on a terminal."""
    flush_printed()
    import structlog

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
            folded,
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return logger


def folded(_logger: object, _name: str, line: Any) -> str:
    """Fold a written line to the terminal's width."""
    return "\n".join(fold(str(line), columns(sys.stderr), "    "))


def log_warning(warning: str, **context: object) -> None:
    """Log a warning."""
    _logger().warning(warning, **context)


def log_note(note: str, **context: object) -> None:
    """Log a note for the operator."""
    _logger().info(note, **context)
