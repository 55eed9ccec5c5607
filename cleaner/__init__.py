"""
A stand-alone cleaner for Kafka-format log directories, and a library that writes and reads them.

The front door for libraries. `clean`, `plan`, `explain`, `check`, `gaps`, `verify`, `erase`, `prove_erased`, `undo`,
`recover`, `export` and `warm` do what the commands of the same names do, `check_replicas` what `check --replicas`,
`who` what `plan --who` and `replay` what `verify --as` does; `serve_log_dirs` is `serve` for a `with` block;
`LogManager` opens log dirs for writing, `open_reader` a partition for reading. Each is loaded when first used, so that
`import cleaner` costs next to nothing. Errors are in `cleaner.errors`.

    report = cleaner.clean("/var/lib/kafka", "prices-0", {"cleanup.policy": "compact"})
    report.end_offset, report.bytes_written

    with cleaner.LogManager("/var/lib/prices", create=True) as manager:
        manager.create_topic("prices", 1, {"cleanup.policy": "compact"})
        manager.log("prices").append([cleaner.Record(b"p5", b"14")]).durable.result()
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from cleaner.base.concurrency import undisturbed as _undisturbed

if TYPE_CHECKING:
    from cleaner import errors as errors
    from cleaner.app import clean as clean
    from cleaner.app import erase as erase
    from cleaner.app import recover as recover
    from cleaner.app import undo as undo
    from cleaner.app import warm as warm
    from cleaner.app.check_log_dir import CheckReport as CheckReport
    from cleaner.app.erase_reports import ErasedFile as ErasedFile
    from cleaner.app.erase_reports import EraseReport as EraseReport
    from cleaner.app.gaps_log_dir import GapReport as GapReport
    from cleaner.app.options import Sampling as Sampling
    from cleaner.app.plan_report import PlanEntry as PlanEntry
    from cleaner.app.read_only import check as check
    from cleaner.app.read_only import check_replicas as check_replicas
    from cleaner.app.read_only import explain as explain
    from cleaner.app.read_only import gaps as gaps
    from cleaner.app.read_only import plan as plan
    from cleaner.app.read_only import prove_erased as prove_erased
    from cleaner.app.read_only import replay as replay
    from cleaner.app.read_only import verify as verify
    from cleaner.app.read_only import who as who
    from cleaner.app.replay_log_dirs import ReplayReport as ReplayReport
    from cleaner.app.replicas_report import ReplicasReport as ReplicasReport
    from cleaner.app.reports import CleanReport as CleanReport
    from cleaner.app.reports import RecoveredPartition as RecoveredPartition
    from cleaner.app.reports import RecoverReport as RecoverReport
    from cleaner.app.reports import Refusal as Refusal
    from cleaner.app.serve_log_dirs import serve_log_dirs as serve_log_dirs
    from cleaner.app.undo_clean import UndoReport as UndoReport
    from cleaner.app.verify_log_dirs import VerifyReport as VerifyReport
    from cleaner.app.warm_kernels import WarmReport as WarmReport
    from cleaner.app.who_log_dir import WhoReport as WhoReport
    from cleaner.app.who_log_dir import WhoRow as WhoRow
    from cleaner.base.key_views import KeyView as KeyView
    from cleaner.base.key_views import register_key_view as register_key_view
    from cleaner.base.model import Removed as Removed
    from cleaner.base.model import TopicPartition as TopicPartition
    from cleaner.errors import CleanerError as CleanerError
    from cleaner.exporting.manifest import Export as Export
    from cleaner.exporting.manifest import ExportedTable as ExportedTable
    from cleaner.exporting.topic import export as export
    from cleaner.log.columns import Columns as Columns
    from cleaner.log.epochs import EpochEnd as EpochEnd
    from cleaner.log.follow import Follower as Follower
    from cleaner.log.group_offsets import GroupOffsets as GroupOffsets
    from cleaner.log.latest import Latest as Latest
    from cleaner.log.log import Log as Log
    from cleaner.log.log_producer import LogProducer as LogProducer
    from cleaner.log.manager import LogManager as LogManager
    from cleaner.log.manager_producer import ManagerProducer as ManagerProducer
    from cleaner.log.reader import LogReader as LogReader
    from cleaner.log.reader import open_reader as open_reader
    from cleaner.log.record import Appended as Appended
    from cleaner.log.record import ProducerStamp as ProducerStamp
    from cleaner.log.record import Record as Record
    from cleaner.log.record import RecordColumns as RecordColumns
    from cleaner.log.serde import Serde as Serde
    from cleaner.log.table import Table as Table
    from cleaner.log.topic_logs import TopicFollower as TopicFollower
    from cleaner.log.topic_logs import TopicLogs as TopicLogs
    from cleaner.log.topic_logs import TopicRecord as TopicRecord
    from cleaner.log.topics import Topic as Topic
    from cleaner.verification.gaps.reasons import GapReason as GapReason
    from cleaner.verification.proof.erased.certificate import Certificate as Certificate

__version__ = "0.2.0"

_ROOMS = {
    "app": "clean erase recover undo warm",
    "app.read_only": "check check_replicas explain gaps plan prove_erased replay verify who",
    "app.check_log_dir": "CheckReport",
    "app.erase_reports": "EraseReport ErasedFile",
    "app.gaps_log_dir": "GapReport",
    "app.options": "Sampling",
    "app.plan_report": "PlanEntry",
    "app.replay_log_dirs": "ReplayReport",
    "app.replicas_report": "ReplicasReport",
    "app.reports": "CleanReport RecoverReport RecoveredPartition Refusal",
    "app.serve_log_dirs": "serve_log_dirs",
    "app.undo_clean": "UndoReport",
    "app.verify_log_dirs": "VerifyReport",
    "app.warm_kernels": "WarmReport",
    "app.who_log_dir": "WhoReport WhoRow",
    "base.key_views": "KeyView register_key_view",
    "base.model": "Removed TopicPartition",
    "errors": "CleanerError",
    "exporting.manifest": "Export ExportedTable",
    "exporting.topic": "export",
    "log.columns": "Columns",
    "log.epochs": "EpochEnd",
    "log.follow": "Follower",
    "log.group_offsets": "GroupOffsets",
    "log.latest": "Latest",
    "log.log": "Log",
    "log.log_producer": "LogProducer",
    "log.manager": "LogManager",
    "log.manager_producer": "ManagerProducer",
    "log.reader": "LogReader open_reader",
    "log.record": "Appended ProducerStamp Record RecordColumns",
    "log.serde": "Serde",
    "log.table": "Table",
    "log.topic_logs": "TopicFollower TopicLogs TopicRecord",
    "log.topics": "Topic",
    "verification.gaps.reasons": "GapReason",
    "verification.proof.erased.certificate": "Certificate",
}
# What a first call would load besides, in the caller's thread, where an interrupt could leave it in pieces for good.
_CALLED = {
    "Sampling": "cleaning.estimate.estimate cleaning.estimate.packing",
    "check": "app.check_log_dir",
    "check_replicas": "app.replicas",
    "clean": "app.clean_log_dir cleaning.round.round",
    "erase": "app.erase_log_dir",
    "explain": "app.plan_log_dir",
    "export": "exporting.forms exporting.changes spark.source.arrow",
    "gaps": "app.gaps_log_dir",
    "open_reader": "log.table storage.lock.partition_lock",
    "plan": "app.plan_log_dir",
    "prove_erased": "app.erasure_proof",
    "recover": "app.recover_log_dir format.batch storage.segment.index_builder storage.swap.split",
    "replay": "app.replay_log_dirs",
    "undo": "app.undo_clean format.batch storage.segment.index_builder",
    "verify": "app.verify_log_dirs",
    "warm": "cleaning.round.warm_up",
    "who": "app.who_log_dir",
}
_HOME = {name: f"cleaner.{room}" for room, names in _ROOMS.items() for name in names.split()}

__all__ = sorted([*_HOME, "errors"])


@cache
def _room(name: str) -> ModuleType:
    """Load the room of a public name, and what its first call would load, where no interrupt reaches that."""

    def load() -> ModuleType:
        room = import_module(_HOME[name])
        for called in _CALLED.get(name, "").split():
            with suppress(ImportError):  # not on this system, or not installed: the call says so
                import_module(f"cleaner.{called}")
        return room

    return _undisturbed(load)


def __getattr__(name: str) -> object:
    """Load a public name from the room it lives in (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_room(name), name)


def __dir__() -> list[str]:
    """List every public name, loaded or not."""
    return sorted({*globals(), *__all__})
