"""
Rebuilds the files that intact `.log` files determine: the three indexes of a segment, and producer snapshots.

Each file is written under a temporary name, forced to disk and renamed, so that a crash leaves the old or the new file.
Nothing is rebuilt for a segment whose log is damaged: its content would be doubtful.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError
from cleaner.storage.files.producer_snapshot import write_snapshot
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.load_changes import LoadChanges
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.load.loading import Loading
from cleaner.storage.load.rebuild import rebuild_producer_state
from cleaner.storage.load.snapshots import Snapshots
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import txn_index_bytes
from cleaner.storage.segment.segment import Segment, SegmentIndexes
from cleaner.verification.check.findings import BATCH_KINDS, Finding, FindingKind

_INDEX_KINDS = (
    FindingKind.INDEX_MISSING,
    FindingKind.OFFSET_INDEX,
    FindingKind.TIME_INDEX,
    FindingKind.TRANSACTION_INDEX,
)
_NOT_READ = (*BATCH_KINDS, FindingKind.TORN_END, FindingKind.UNREADABLE)


@dataclass(frozen=True)
class RepairedFile:
    """A file that was rebuilt; if not, `error` says why."""

    path: Path
    error: str = ""


@dataclass(frozen=True)
class RepairContext:
    """
    The context of a repair.

    Attributes:
        fs: access to the disk.
        topic: `index_interval_bytes` and `segment_index_bytes` are used.
        log_start_offset: of the log.
        now_ms, expiration_ms: producers idle for longer are forgotten.
        keeps_active: a writer is active, and maintains the active segment and the snapshot at its end itself.
        still_held: called before each file; raises LogDirLockedError when the lock was lost.
    """

    fs: FileSystem
    topic: TopicConfig
    log_start_offset: int
    now_ms: int
    expiration_ms: int
    keeps_active: bool
    still_held: Callable[[], None]


def is_repairable(finding: Finding) -> bool:
    """Tell whether an intact log determines this file."""
    return finding.is_damage and finding.kind in (*_INDEX_KINDS, FindingKind.SNAPSHOT)


def repairable_files(findings: Sequence[Finding]) -> set[Path]:
    """Return the files of a partition that can be rebuilt, without those of a segment whose log is damaged."""
    doubtful = {finding.path for finding in findings if finding.kind in _NOT_READ}
    wanted = {finding.path for finding in findings if is_repairable(finding)}
    return {path for path in wanted if path.with_suffix(names.LOG) not in doubtful}


def repair_partition(context: RepairContext, directory: Path, findings: Sequence[Finding]) -> list[RepairedFile]:
    """Rebuild the damaged files of a partition, as far as its logs are sound; the caller holds its lock."""
    work = _Repair(context, directory, findings)
    return [*work.indexes(), *work.snapshots()]


class _Repair:
    def __init__(self, context: RepairContext, directory: Path, findings: Sequence[Finding]) -> None:
        self._context = context
        self._directory = directory
        self._wanted = dict.fromkeys(finding.path for finding in findings if is_repairable(finding))
        self._doubtful = {finding.path.name for finding in findings if finding.kind in _NOT_READ}
        snapshots = names.offsets_of(context.fs.list_files(directory), names.SNAPSHOT)
        sound = [offset for offset in snapshots if directory / names.snapshot_file_name(offset) not in self._wanted]
        self._loading = Loading(
            fs=context.fs,
            directory=directory,
            topic=context.topic,
            log_start_offset=context.log_start_offset,
            recovery_point=0,
            is_clean=False,
            allow_truncate=False,
            allow_restart=False,
            now_ms=context.now_ms,
            expiration_ms=context.expiration_ms,
            # Kept in memory and never applied: only damaged files may change.
            changes=LoadChanges(directory, Snapshots(context.fs, directory, sound), [], has_epochs=False),
            segments=list_segments(context.fs, directory),
        )

    def indexes(self) -> list[RepairedFile]:
        """Rebuild indexes, segment by segment: the producers of a segment come from earlier segments."""
        done: list[RepairedFile] = []
        for segment in self._loading.segments:
            damaged = [segment.path(suffix) for suffix in names.SEGMENT_SUFFIXES[1:]]
            damaged = [path for path in damaged if path in self._wanted]
            if damaged:
                done += self._attempt(damaged, lambda segment=segment: self._contents(segment))  # type: ignore[misc]
        return done

    def _contents(self, segment: Segment) -> dict[Path, bytes]:
        is_active = segment is self._loading.segments[-1]
        if is_active and self._context.keeps_active:
            raise CleanerError("a writer is at work on the active segment, and sees to its indexes itself")
        if segment.log_path.name in self._doubtful:
            raise CleanerError(f"{segment.log_path.name} is damaged, so this file cannot be derived from it")
        rebuilt = self._loading.rebuild(segment)
        if rebuilt.damage is not None:
            raise rebuilt.damage
        segment.rebuilt = rebuilt.indexes
        return _index_files(segment, rebuilt.indexes)

    def _with_partner(self, paths: Sequence[Path], contents: Mapping[Path, bytes]) -> list[Path]:
        """
        Return the files to write: with an offset index also its time index, and vice versa, if that differs.

        Entries of both are made at the same batches, and the original writer may have used another
        `index.interval.bytes`.
        """
        pairs = {names.INDEX: names.TIME_INDEX, names.TIME_INDEX: names.INDEX}
        partners = {path.with_suffix(pairs[path.suffix]) for path in paths if path.suffix in pairs}.difference(paths)
        fs = self._context.fs
        return [*paths, *(path for path in partners if fs.exists(path) and fs.read_bytes(path) != contents[path])]

    def snapshots(self) -> list[RepairedFile]:
        """Rebuild snapshots, each from the one before and the batches in between."""
        done: list[RepairedFile] = []
        for path in self._wanted:
            if path.name.endswith(names.SNAPSHOT):
                done += self._attempt([path], lambda path=path: self._snapshot(path))  # type: ignore[misc]
        return done

    def _snapshot(self, path: Path) -> dict[Path, bytes]:
        loading, end = self._loading, names.offset_of(path.name)
        if self._context.keeps_active and end > loading.segments[-1].base_offset:
            raise CleanerError("a writer is at work on the log, and writes its newest snapshot itself")
        state = loading.new_producer_state()
        rebuild_producer_state(
            state,
            loading.segments,
            log_start_offset=self._context.log_start_offset,
            end_offset=end,
            was_clean=False,
            buffer=loading.buffer,
        )
        self._context.still_held()
        write_snapshot(self._context.fs, path, state.entries())
        return {}

    def _attempt(self, paths: Sequence[Path], make: Callable[[], dict[Path, bytes]]) -> list[RepairedFile]:
        try:
            contents = make()
            paths = self._with_partner(paths, contents)
            for path in paths:
                if path in contents:
                    self._context.still_held()
                    self._context.fs.write_atomically(path, contents[path])
        except CleanerError as error:
            return [RepairedFile(path, str(error)) for path in paths]
        return [RepairedFile(path) for path in paths]


def _index_files(segment: Segment, indexes: SegmentIndexes) -> dict[Path, bytes]:
    return {
        segment.index_path: indexes.offsets.tobytes(),
        segment.time_index_path: indexes.times.tobytes(),
        segment.txn_index_path: txn_index_bytes(indexes.txns or ()),
    }
