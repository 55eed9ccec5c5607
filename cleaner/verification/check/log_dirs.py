"""
Checks whole log dirs: their checkpoints, ids and directories, and whether several dirs of one broker agree (D-14).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError, LogDirOfflineError, UncleanableError
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.meta_properties import MetaProperties
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.lock_probe import LockHolder, probe
from cleaner.storage.log_dir import NEVER_FOLLOWED, LogDir, LogDirListing, OffsetKind, conflicts_of
from cleaner.storage.segment import names
from cleaner.verification.check.findings import Finding, FindingKind
from cleaner.verification.check.small_files import read_as


@dataclass
class SurveyedLogDir:
    """
    A log dir, as far as it can be read.

    Attributes:
        log_dir: the directory.
        listing: its partitions.
        offsets: its checkpoints; a damaged one is empty.
        properties: `meta.properties`; None without it.
        is_clean: it has its clean-shutdown marker.
        is_in_use: a broker, a writer or a cleaner is using it.
        findings: of this log dir.
    """

    log_dir: LogDir
    listing: LogDirListing = field(default_factory=LogDirListing)
    offsets: dict[OffsetKind, dict[TopicPartition, int]] = field(default_factory=dict)
    properties: MetaProperties | None = None
    is_clean: bool = True
    is_in_use: bool = False
    findings: list[Finding] = field(default_factory=list)

    def offset(self, kind: OffsetKind, topic_partition: TopicPartition) -> int | None:
        """Return the offset in a partition's line of a checkpoint; None without one."""
        return self.offsets[kind].get(topic_partition)


def survey(fs: FileSystem, path: Path) -> SurveyedLogDir:
    """Read the files of a log dir as a whole. Raises LogDirOfflineError: it cannot be listed."""
    log_dir = LogDir(fs, path)
    lock, _ = log_dir.look()
    is_held = lock.has_writer or lock.holder is not LockHolder.NOBODY
    found = SurveyedLogDir(log_dir, is_clean=log_dir.has_clean_shutdown_marker(), is_in_use=is_held)

    def note(error: UncleanableError) -> None:
        found.findings.append(Finding(FindingKind.FOREIGN_DIRECTORY, error.path, error.reason))

    found.listing = log_dir.listing(note)
    for linked in found.listing.linked.values():
        reason = f"{NEVER_FOLLOWED}; name what it leads to"
        found.findings.append(Finding(FindingKind.SKIPPED, linked, reason, is_damage=False))

    def read_properties() -> None:
        found.properties = log_dir.meta_properties()

    found.findings += read_as(FindingKind.META_PROPERTIES, log_dir.path / names.META_PROPERTIES, read_properties)
    for kind in OffsetKind:
        found.offsets[kind] = {}
        path = log_dir.path / kind.value
        found.findings += read_as(FindingKind.CHECKPOINT, path, lambda kind=kind: _fill(found, kind))  # type: ignore[misc]
    return found


def _fill(found: SurveyedLogDir, kind: OffsetKind) -> None:
    found.offsets[kind] = found.log_dir.offsets(kind)


def is_in_use(fs: FileSystem, path: Path) -> bool:
    """Tell whether a process holds the lock of a log dir, without taking the lock."""
    report = probe(fs, path)
    return report.has_writer or report.holder is not LockHolder.NOBODY


def compare(found: Sequence[SurveyedLogDir]) -> list[Finding]:
    """Find contradictions between log dirs of one broker, or within one (D-14, R-105, R-107, R-110, R-442)."""
    return [*_find_doubles(found), *_compare_properties(found), *_compare_topic_ids(found)]


def _find_doubles(found: Sequence[SurveyedLogDir]) -> list[Finding]:
    directories = {each.log_dir.path: each.listing.current.keys() | each.listing.linked.keys() for each in found}
    lines = {each.log_dir.path: each.offsets[OffsetKind.CLEANER].keys() for each in found}
    findings = []
    for conflict in conflicts_of(directories, lines):
        for path in conflict.log_dirs:
            others = " and ".join(str(other) for other in conflict.log_dirs if other != path)
            if conflict.what == "directory":
                place = path / str(conflict.topic_partition)
                reason = f"{others} has a directory of this partition too: a broker does not start"
                findings.append(Finding(FindingKind.PARTITION_TWICE, place, reason))
                continue
            place = path / conflict.what
            reason = f"{conflict.topic_partition} has a line in {others} too: a broker's cleaner would stop"
            if path in conflict.droppable:
                reason += "; the partition is not here, so that this line can go"
            findings.append(Finding(FindingKind.CHECKPOINT_LINE_TWICE, place, reason))
    return findings


def _compare_properties(found: Sequence[SurveyedLogDir]) -> list[Finding]:
    findings: list[Finding] = []
    known = [(each.log_dir.path / names.META_PROPERTIES, each.properties) for each in found if each.properties]
    for place, properties in known[1:]:
        first_place, first = known[0]
        if None not in (first.cluster_id, properties.cluster_id) and first.cluster_id != properties.cluster_id:
            reason = f"cluster.id is {properties.cluster_id}, that of {first_place} is {first.cluster_id}"
            findings.append(Finding(FindingKind.CLUSTER_DIFFERS, place, reason))
        if None not in (first.node_id, properties.node_id) and first.node_id != properties.node_id:
            reason = f"the node is {properties.node_id}, that of {first_place} is {first.node_id}"
            findings.append(Finding(FindingKind.NODE_DIFFERS, place, reason))
    seen: dict[UUID, Path] = {}
    for place, properties in known:
        if properties.directory_id is not None:
            earlier = seen.setdefault(properties.directory_id, place)
            if earlier != place:
                reason = f"directory.id is that of {earlier}: one is a copy of the other"
                findings.append(Finding(FindingKind.DIRECTORY_ID_TWICE, place, reason))
    return findings


def _compare_topic_ids(found: Sequence[SurveyedLogDir]) -> list[Finding]:
    """Find partitions whose topic id differs from the topic's other partitions: a broker sets them aside (R-107)."""
    findings = []
    seen: dict[str, tuple[UUID, Path]] = {}
    for topic, place, topic_id in _topic_ids(found):
        first_id, first_place = seen.setdefault(topic, (topic_id, place))
        if topic_id != first_id:
            reason = f"the topic id is {format_uuid(topic_id)}, that in {first_place} is {format_uuid(first_id)}"
            findings.append(Finding(FindingKind.TOPIC_ID_DIFFERS, place, reason))
    return findings


def _topic_ids(found: Sequence[SurveyedLogDir]) -> Iterable[tuple[str, Path, UUID]]:
    for each in found:
        partitions: Mapping[TopicPartition, Path] = each.listing.current
        for topic_partition, directory in sorted(partitions.items()):
            place = directory / names.PARTITION_METADATA
            try:
                topic_id = read_topic_id(each.log_dir.fs, place)
            except (CorruptCheckpointError, LogDirOfflineError):
                continue  # the partition's check reports it
            if topic_id is not None:
                yield topic_partition.topic, place, topic_id
