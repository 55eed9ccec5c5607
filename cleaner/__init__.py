"""
A stand-alone cleaner for Kafka-format log directories.

The front door for libraries: `clean`, `plan` and `recover` do what the commands of the same name do, and are loaded
when first used, so that `import cleaner` costs nothing.

    report = cleaner.clean("/var/lib/kafka", "prices-0", {"cleanup.policy": "compact"})
    report.end_offset, report.bytes_written
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleaner.api import CleanReport, PlanEntry, RecoverReport, Removed, clean, plan, recover
    from cleaner.errors import CleanerError

__version__ = "0.1.0"
__all__ = ["CleanReport", "CleanerError", "PlanEntry", "RecoverReport", "Removed", "clean", "plan", "recover"]


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module("cleaner.errors" if name == "CleanerError" else "cleaner.api"), name)
