"""
`check`: reads everything in log dirs or partition directories, and reports errors in it.

Without `repair` it locks and writes nothing; with `repair` each log dir is locked as for a round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import Session, as_cleaner_errors, attempt, open_session
from cleaner.base.model import TopicPartition
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.config.values import TopicConfig
from cleaner.errors import CorruptCheckpointError, LogDirOfflineError, UsageError, describe
from cleaner.format.key_digests import new_secret
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.read.summary import until_still
from cleaner.settings.resolver import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, once_each, real_path
from cleaner.storage.log_dir import OffsetKind
from cleaner.storage.segment import names
from cleaner.storage.segment.names import parse_partition_dir
from cleaner.storage.which_dir import is_partition_dir, require_log_dir
from cleaner.verification.check.batches import BatchChecker
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.log_dirs import SurveyedLogDir, compare, survey
from cleaner.verification.check.log_file import CheckLaneMemory
from cleaner.verification.check.partition import CheckContext, CheckedPartition, PartitionCheck, Surveyed
from cleaner.verification.check.repair import (
    RepairContext,
    RepairedFile,
    is_repairable,
    repair_partition,
    repairable_files,
)
from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES


class CheckObserver(Protocol):
    """Called with results as they come."""

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        """A log dir's own files were read."""

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        """A partition was read; after a repair, `partition` is the result of checking it again."""


@dataclass(frozen=True)
class CheckOptions:
    """
    What to check.

    Attributes:
        clean_section: also look for keys that occur twice below `cleaner-offset-checkpoint`.
        repair: rebuild files that intact logs determine.
        memory_bytes: for digests of keys.
    """

    clean_section: bool = False
    repair: bool = False
    memory_bytes: int = DEFAULT_MEMORY_BYTES


@dataclass
class CheckTotals:
    """Sums over everything checked: damage, files to repair and notes, all after repairs, and repaired files."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    damages: int = 0
    repairable: int = 0
    notes: int = 0
    repaired: int = 0
    not_repaired: int = 0
    in_use: bool = False


@dataclass(frozen=True)
class CheckReport:
    """
    Everything that a check has found.

    Attributes:
        partitions: those read, in their state after repairs.
        findings: of the log dirs themselves and of all partitions, damage and notes.
        repaired: rebuilt files, and files that could not be rebuilt.
    """

    partitions: tuple[CheckedPartition, ...]
    findings: tuple[Finding, ...]
    repaired: tuple[RepairedFile, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Tell whether nothing is damaged; a note is not damage."""
        return not any(finding.is_damage for finding in self.findings)


class _Collected:
    """Collects the results of a check."""

    def __init__(self) -> None:
        self.partitions: list[CheckedPartition] = []
        self.findings: list[Finding] = []
        self.repaired: list[RepairedFile] = []

    def on_log_dir(self, _path: Path, findings: Sequence[Finding]) -> None:
        self.findings += findings

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        self.partitions.append(partition)
        self.findings += partition.findings
        self.repaired += repaired


def check_all(paths: Sequence[Path], sources: Sources, context: CallContext, options: CheckOptions) -> CheckReport:
    """Like `check_paths`, but return all results together at the end."""
    found = _Collected()
    check_paths(paths, sources, context, options, found)
    return CheckReport(tuple(found.partitions), tuple(found.findings), tuple(found.repaired))


def check_paths(
    paths: Sequence[Path], sources: Sources, context: CallContext, options: CheckOptions, observer: CheckObserver
) -> CheckTotals:
    """
    Check log dirs and partition directories; several log dirs are treated as those of one broker (D-14).

    Args:
        paths: each a log dir or a partition's directory; none: `log.dirs` of the configuration.
        sources: where settings come from.
        context: the caller's file system, clock, progress and stop check.
        options: what to check.
        observer: called with everything that was found.
    Raises:
        UsageError: a path is neither, or is a partition's directory whose name gives no partition.
        ConfigError: a bad setting.
        LogDirLockedError: with `repair`, another process is at work.
    """
    paths = paths_to_check(context.fs, paths, sources)
    log_dirs = [path for path in paths if not _is_named_partition(context.fs, path)]
    for path in log_dirs:
        require_log_dir(context.fs, path)
    work = _Check(sources, context, options, observer)
    surveyed = [work.survey(path) for path in log_dirs]
    across = compare(surveyed)
    for each in surveyed:
        mine = [finding for finding in across if finding.path.is_relative_to(each.log_dir.path)]
        work.check_log_dir(each, mine)
    checked = {directory for each in surveyed for directory in each.listing.current.values()}
    for directory in (real_path(path) for path in paths if path not in log_dirs):
        if directory not in checked:
            work.check_partition_dir(directory)
    return work.totals


def paths_to_check(fs: FileSystem, paths: Sequence[Path], sources: Sources) -> Sequence[Path]:
    """
    Return the paths to check, each once: those named, or else `log.dirs` of the configuration.

    Raises:
        UsageError: there are neither.
        ConfigError: a bad setting.
    """
    if paths:
        return once_each(paths)
    configured = SettingsResolver(fs, None, sources).cleaner.log_dirs
    if not configured:
        raise UsageError("no directory given, and no log.dirs in --config")
    return once_each(map(Path, configured))


def _is_named_partition(fs: FileSystem, path: Path) -> bool:
    """Tell whether a path is a partition's directory whose name gives the partition."""
    try:
        parse_partition_dir(real_path(path).name)
    except ValueError:
        return False
    return is_partition_dir(fs, path)


@dataclass
class _Check:
    sources: Sources
    context: CallContext
    options: CheckOptions
    observer: CheckObserver
    totals: CheckTotals = field(default_factory=CheckTotals)

    def survey(self, path: Path) -> SurveyedLogDir:
        """Look at a log dir as a whole."""
        with as_cleaner_errors(path):
            return survey(self.context.fs, path)

    def check_log_dir(self, surveyed: SurveyedLogDir, across: Sequence[Finding]) -> None:
        """Check a log dir's partitions."""
        path = surveyed.log_dir.path
        findings = [*surveyed.findings, *across]
        self.observer.on_log_dir(path, findings)
        self._count(findings)
        with self._session(surveyed) as session:
            settings = _Settings(self, path, session)
            for topic_partition, directory in sorted(surveyed.listing.current.items()):
                self._check(surveyed, lambda: self.survey(path), settings, topic_partition, directory)

    def check_partition_dir(self, directory: Path) -> None:
        """Check one partition; its lines in its log dir's files are used, but not checked themselves."""

        def survey_around() -> SurveyedLogDir:
            found = self.survey(directory.parent)
            # A copy outside of any log dir: nothing shows that it needs recovery.
            if found.properties is None and not any(found.offsets.values()):
                found.is_clean = True
            return found

        surveyed = survey_around()
        with self._session(surveyed) as session:
            settings = _Settings(self, surveyed.log_dir.path, session)
            name = parse_partition_dir(directory.name).topic_partition
            self._check(surveyed, survey_around, settings, name, directory)

    @contextlib.contextmanager
    def _session(self, surveyed: SurveyedLogDir) -> Iterator[Session | None]:
        """Open the log dir for a repair; None without `repair`."""
        if not self.options.repair:
            yield None
            return
        with open_session(surveyed.log_dir.path, self.sources, self.context) as session:
            yield session

    def _check(
        self,
        surveyed: SurveyedLogDir,
        survey_again: Callable[[], SurveyedLogDir],
        settings: _Settings,
        topic_partition: TopicPartition,
        directory: Path,
    ) -> None:
        self.context.check_done()
        fs, session, topic = self.context.fs, settings.session, settings.topic(topic_partition, directory)
        here = _facts(surveyed, session, topic_partition, directory)
        context = self._context(settings, topic)
        repaired: list[RepairedFile] = []

        def check() -> CheckedPartition:
            return until_still(directory, lambda: PartitionCheck(context, here).run())

        def work() -> CheckedPartition:
            nonlocal here
            before_ns = fs.stat(directory).st_mtime_ns
            found = check()
            if found.findings and session is None:
                now = survey_again()
                if now.is_in_use != here.is_in_use or fs.stat(directory).st_mtime_ns != before_ns:
                    # A process may have come, and gone, meanwhile: what it was doing is no fault of the log.
                    here = _facts(now, session, topic_partition, directory)
                    found = check()
            if session is not None and any(map(is_repairable, found.findings)):
                with fs.hold(directory):
                    repaired[:] = self._repair(session, topic, topic_partition, here, found)
                found = check()
            return found

        found = attempt(topic_partition, directory, work)
        if not fs.exists(directory):
            finding = Finding(FindingKind.SKIPPED, directory, "it was deleted while it was read", is_damage=False)
            found = CheckedPartition(here.name, directory, 0, 0, 0, here.is_in_use, (finding,))
        if isinstance(found, Refusal):
            finding = Finding(FindingKind.UNREADABLE, directory, describe(found.error))
            found = CheckedPartition(here.name, directory, 0, 0, 0, here.is_in_use, (finding,))
        self.observer.on_partition(found, repaired)
        self._count(found.findings)
        totals = self.totals
        totals.partitions += 1
        totals.repairable += len(repairable_files(found.findings))
        totals.segments += found.segments
        totals.bytes += found.bytes
        totals.repaired += sum(not file.error for file in repaired)
        totals.not_repaired += sum(bool(file.error) for file in repaired)
        totals.in_use |= found.in_use

    def _count(self, findings: Sequence[Finding]) -> None:
        damages = sum(finding.is_damage for finding in findings)
        self.totals.damages += damages
        self.totals.notes += len(findings) - damages

    def _context(self, settings: _Settings, topic: TopicConfig) -> CheckContext:
        context = self.context
        return CheckContext(
            context.fs,
            settings.lanes(topic),
            context.progress,
            context.check_done,
            clean_section=self.options.clean_section,
            memory_bytes=self.options.memory_bytes,
        )

    def _repair(
        self,
        session: Session,
        topic: TopicConfig,
        topic_partition: TopicPartition,
        here: Surveyed,
        found: CheckedPartition,
    ) -> list[RepairedFile]:
        context = RepairContext(
            self.context.fs,
            topic,
            here.log_start_offset,
            now_ms=self.context.clock.now_ms(),
            expiration_ms=session.settings.cleaner.producer_id_expiration_ms,
            keeps_active=session.beside_writer,
            still_held=session.still_held,
        )
        with session.swapping(topic_partition):
            return repair_partition(context, here.directory, found.findings)


def _facts(
    surveyed: SurveyedLogDir, session: Session | None, topic_partition: TopicPartition, directory: Path
) -> Surveyed:
    return Surveyed(
        directory.name,
        directory,
        log_start_offset=surveyed.offset(OffsetKind.LOG_START, topic_partition) or 0,
        recovery_point=surveyed.offset(OffsetKind.RECOVERY_POINT, topic_partition) or 0,
        cleaner_offset=surveyed.offset(OffsetKind.CLEANER, topic_partition),
        is_clean=surveyed.is_clean,
        is_in_use=surveyed.is_in_use if session is None else session.beside_writer,
    )


class _Settings:
    """The settings of one log dir's topics, and the memory to check with."""

    def __init__(self, check: _Check, log_dir: Path, session: Session | None) -> None:
        self.session = session
        self._fs = check.context.fs
        self._resolver = SettingsResolver(self._fs, log_dir, check.sources)
        self._lanes: dict[tuple[int, int], list[CheckLaneMemory]] = {}

    def topic(self, topic_partition: TopicPartition, directory: Path) -> TopicConfig:
        """Return a topic's settings; a topic id that is damaged or cannot be read counts as none, and is told later."""
        topic_id = None
        with contextlib.suppress(CorruptCheckpointError, LogDirOfflineError):
            topic_id = read_topic_id(self._fs, directory / names.PARTITION_METADATA)
        return self._resolver.topic(topic_partition.topic, topic_id).config

    @cached_property
    def _buffers(self) -> list[WindowBuffer]:
        return [WindowBuffer() for _ in range(lanes_for(self._resolver.cleaner.pipeline_threads))]

    def lanes(self, topic: TopicConfig) -> list[CheckLaneMemory]:
        """Return the memory of all lanes, for the topic's largest possible batches and records."""
        record_limit_bytes = topic.max_decompressed_message_bytes if topic.compact else LARGEST_RECORD_BYTES
        limits = self._resolver.cleaner.batch_limit_bytes(topic), record_limit_bytes
        if limits not in self._lanes:
            keys = new_secret()
            self._lanes[limits] = [
                CheckLaneMemory(buffer, BatchChecker(limits[0], keys, limits[1])) for buffer in self._buffers
            ]
        return self._lanes[limits]
