"""
A stand-alone cleaner for Kafka-format log directories, and a library that writes and reads them.

The front door for libraries. `clean`, `plan`, `explain`, `check`, `verify`, `undo`, `recover` and `warm` do what the
commands of the same names do; `LogManager` opens log dirs for writing, `open_reader` a partition for reading. Each is
loaded when first used, so that `import cleaner` costs nothing. Errors are in `cleaner.errors`.

    report = cleaner.clean("/var/lib/kafka", "prices-0", {"cleanup.policy": "compact"})
    report.end_offset, report.bytes_written

    with cleaner.LogManager("/var/lib/prices", create=True) as manager:
        manager.create_topic("prices", 1, {"cleanup.policy": "compact"})
        manager.log("prices").append([cleaner.Record(b"p5", b"14")]).durable.result()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cleaner import errors
    from cleaner.app import (
        CleanReport,
        PlanEntry,
        RecoveredPartition,
        RecoverReport,
        Refusal,
        Removed,
        Sampling,
        WarmReport,
        check,
        clean,
        explain,
        plan,
        recover,
        undo,
        verify,
        warm,
    )
    from cleaner.app.check_log_dir import CheckReport
    from cleaner.app.undo_clean import UndoReport
    from cleaner.app.verify_log_dirs import VerifyReport
    from cleaner.base.model import TopicPartition
    from cleaner.errors import CleanerError
    from cleaner.log.columns import Columns
    from cleaner.log.epochs import EpochEnd
    from cleaner.log.follow import Follower
    from cleaner.log.latest import Latest
    from cleaner.log.log import Log
    from cleaner.log.log_producer import LogProducer
    from cleaner.log.manager import LogManager
    from cleaner.log.reader import LogReader, open_reader
    from cleaner.log.record import Appended, ProducerStamp, Record, RecordColumns
    from cleaner.log.topics import Topic

__version__ = "0.1.0"

_ROOMS = {
    "cleaner.app": (
        "CleanReport",
        "PlanEntry",
        "RecoverReport",
        "RecoveredPartition",
        "Refusal",
        "Removed",
        "Sampling",
        "WarmReport",
        "check",
        "clean",
        "explain",
        "plan",
        "recover",
        "undo",
        "verify",
        "warm",
    ),
    "cleaner.app.check_log_dir": ("CheckReport",),
    "cleaner.app.undo_clean": ("UndoReport",),
    "cleaner.app.verify_log_dirs": ("VerifyReport",),
    "cleaner.errors": ("CleanerError",),
    "cleaner.log.columns": ("Columns",),
    "cleaner.log.epochs": ("EpochEnd",),
    "cleaner.log.follow": ("Follower",),
    "cleaner.log.latest": ("Latest",),
    "cleaner.log.log": ("Log",),
    "cleaner.log.log_producer": ("LogProducer",),
    "cleaner.log.manager": ("LogManager",),
    "cleaner.log.reader": (
        "LogReader",
        "open_reader",
    ),
    "cleaner.log.record": (
        "Appended",
        "ProducerStamp",
        "Record",
        "RecordColumns",
    ),
    "cleaner.log.topics": ("Topic",),
    "cleaner.base.model": ("TopicPartition",),
}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Appended",
    "CheckReport",
    "CleanReport",
    "CleanerError",
    "Columns",
    "EpochEnd",
    "Follower",
    "Latest",
    "Log",
    "LogManager",
    "LogProducer",
    "LogReader",
    "PlanEntry",
    "ProducerStamp",
    "Record",
    "RecordColumns",
    "RecoverReport",
    "RecoveredPartition",
    "Refusal",
    "Removed",
    "Sampling",
    "Topic",
    "TopicPartition",
    "UndoReport",
    "VerifyReport",
    "WarmReport",
    "check",
    "clean",
    "errors",
    "explain",
    "open_reader",
    "plan",
    "recover",
    "undo",
    "verify",
    "warm",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in (PEP 562)."""
    import importlib

    if name == "errors":
        return importlib.import_module("cleaner.errors")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List every public name, loaded or not."""
    return sorted({*globals(), *__all__})
