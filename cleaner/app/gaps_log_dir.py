"""`gaps`: which offsets of the partitions of a log dir have no record, and why; locks and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import (
    SettingsLike,
    as_cleaner_errors,
    attempt,
    choose_partitions,
    open_session,
    parse_names,
)
from cleaner.app.trust import is_trusted, origin_of_policy, policy_words
from cleaner.base.model import TopicPartition
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.errors import UsageError
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.read.summary import look_again, may_pass, moves_soon
from cleaner.settings import ResolvedTopic, SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import real_path
from cleaner.storage.log_dir import CachedLogDir, LogDir
from cleaner.storage.segment import names
from cleaner.storage.which_dir import is_partition_dir
from cleaner.verification.check.log_dirs import is_in_use
from cleaner.verification.gaps.batches import GapChecker
from cleaner.verification.gaps.reasons import BAD_REASONS, GapReason
from cleaner.verification.gaps.scan import GapLane, LogFacts, ScannedGaps, scan_gaps
from cleaner.verification.gaps.tally import OffsetRange

_OF_LOG_DIR = (
    names.META_PROPERTIES,
    names.CLEANER_CHECKPOINT,
    names.RECOVERY_POINT_CHECKPOINT,
    names.HIGH_WATERMARK_CHECKPOINT,
)

NO_START = (
    "no file records where the log begins; segments that were removed by hand at its beginning would look the same"
)
NO_POLICY = "the topic's policy is not known ({origin}); --set {topic}:cleanup.policy=... says what it is"
ELSEWHERE = (
    "a round that ended before it wrote its checkpoint, and a replica that was filled by a leader which had cleaned "
    "farther, can leave such holes, too"
)
BARE = "there are no checkpoints beside the partition, so nothing says up to where it was cleaned"
BY_TRACES = "batches show that it was cleaned up to {traces}, beyond {checkpoint}"
NO_END = "the log ends at {end}; checkpoints and snapshots say that it had come to {reached}"
LATE_START = "the first segment begins at {start}; other files say that the log begins at {begins_at}"
TIERED = "the log dir has tiered storage, which may hold the offsets below the first segment"
UNDER_WAY = "a round says in the checkpoint what it removed when it ends: read it again then"
IN_USE = "in use while read: the account is that of a moment"


@dataclass(frozen=True)
class GapTotal:
    """
    The offsets of one reason.

    Attributes:
        reason: why they have no record.
        meaning: the same in words.
        offsets: how many there are.
        ranges: in how many ranges.
        listed: the ranges with the most offsets, at most `tally.MAX_RANGES`, in the order of their offsets.
    """

    reason: GapReason
    meaning: str
    offsets: int
    ranges: int
    listed: tuple[OffsetRange, ...]


@dataclass(frozen=True)
class GapDamage:
    """
    Damage that was read past.

    Attributes:
        kind: as of a finding of `check`.
        path: the file.
        position: byte position in the file; None if it concerns the whole file.
        offset: of the batch, as its header says; None if it is unknown.
        reason: in words.
        is_damage: False for the torn end of a log that was not closed in order.
    """

    kind: str
    path: str
    position: int | None
    offset: int | None
    reason: str
    is_damage: bool


@dataclass(frozen=True)
class GapReport:
    """
    The account of one partition: `records` and the offsets of all `gaps` add up to `end_offset`, from 0 on.

    Attributes:
        partition: as its directory is named.
        policy, policy_origin, policy_trusted: `cleanup.policy`, who says so, and whether that is meant for this topic.
        log_start_offset, log_end_offset: of what is there.
        end_offset: the end of the account: above the log's end if other files say that the log had come farther.
        checkpoint_offset: the line in `cleaner-offset-checkpoint`; None without one.
        traces_end_offset: the end of the last batch above that line that only cleaning can have left; None without one.
        segments, bytes: of the `.log` files read.
        records: offsets that have a record for readers.
        gaps: the other offsets, by reason.
        damage: what could not be read; at most a thousand.
        total_damage: how much there is.
        notes: what the directory cannot tell, in words.
        in_use: another process could write to it while it was read.
    """

    partition: str
    policy: str
    policy_origin: str
    policy_trusted: bool
    log_start_offset: int
    log_end_offset: int
    end_offset: int
    checkpoint_offset: int | None
    traces_end_offset: int | None
    segments: int
    bytes: int
    records: int
    gaps: tuple[GapTotal, ...]
    damage: tuple[GapDamage, ...] = ()
    total_damage: int = 0
    notes: tuple[str, ...] = ()
    in_use: bool = False

    JSON_PROPERTIES = ("missing", "is_complete")

    @property
    def missing(self) -> int:
        """How many offsets have no record for some reader, those below the log's start not counted."""
        return sum(gap.offsets for gap in self.gaps if gap.reason is not GapReason.RETENTION)

    @property
    def is_complete(self) -> bool:
        """Tell whether every missing offset is explained, and nothing is damaged."""
        return not any(gap.reason in BAD_REASONS for gap in self.gaps) and not any(
            each.is_damage for each in self.damage
        )

    def offsets_of(self, reason: GapReason) -> int:
        """Return how many offsets are missing for a reason."""
        return sum(gap.offsets for gap in self.gaps if gap.reason is reason)


def gaps_log_dir(
    path: Path,
    sources: Sources,
    context: CallContext,
    partitions: Sequence[str] | None = None,
) -> Iterator[GapReport | Refusal]:
    """
    Account for the offsets of partitions, one after the other.

    Args:
        path: a log dir, or the directory of one partition.
        sources: where settings come from.
        context: the caller's file system, progress and stop check.
        partitions: names; None: all of them.
    Raises:
        UsageError: no such directory or partition.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound.
        ConfigError: a bad setting of the process.
    """
    named = None if partitions is None else parse_names(partitions)
    if is_partition_dir(context.fs, path):
        if named is not None:
            raise UsageError(
                f"{path}: the directory of a partition, and names of partitions; give its log dir, or no names"
            )
        directory = real_path(path)
        (topic_partition,) = parse_names([directory.name])
        with as_cleaner_errors(path):
            # What else is beside an archived partition does not matter.
            log_dir = CachedLogDir(context.fs, directory.parent)
            work = _Work(log_dir, SettingsResolver(context.fs, log_dir.path, sources), context, is_named=True)
        yield attempt(topic_partition, directory, lambda: work.report(topic_partition, directory))
        return
    with as_cleaner_errors(path), open_session(path, sources, context, mode=None) as session:
        log_dir = CachedLogDir(context.fs, session.log_dir.path)
        work = _Work(log_dir, session.settings, session.context, is_named=named is not None)
        for each, place in choose_partitions(session, named).items():
            session.check_done()
            yield attempt(each, place, lambda each=each, place=place: work.report(each, place))  # type: ignore[misc]


class _Work:
    """The accounts of one log dir."""

    def __init__(self, log_dir: LogDir, settings: SettingsLike, context: CallContext, *, is_named: bool) -> None:
        self._settings = settings
        self._context = context
        self._is_named = is_named
        self._buffers = [WindowBuffer() for _ in range(lanes_for(settings.cleaner.pipeline_threads))]
        fs = context.fs
        self._look(log_dir)
        self._is_bare = not any(fs.exists(log_dir.path / name) for name in _OF_LOG_DIR)
        self._is_tiered = fs.exists(log_dir.path / names.REMOTE_LOG_INDEX_CACHE)

    def _look(self, log_dir: LogDir) -> None:
        self._log_dir = log_dir
        self._is_in_use = is_in_use(self._context.fs, log_dir.path)
        self._is_clean = log_dir.has_clean_shutdown_marker()

    def report(self, topic_partition: TopicPartition, directory: Path) -> GapReport:
        """Account for one partition."""
        context, settings = self._context, self._settings
        topic_id = read_topic_id(context.fs, directory / names.PARTITION_METADATA)
        resolved = settings.topic(topic_partition.topic, topic_id)
        trusted = is_trusted(resolved, trust_default=settings.trusts_default_policy)
        # With a partition named, a `--set` without a topic is meant for it.
        trusted |= self._is_named and resolved.policy_is_unscoped_set
        is_deleted_only = trusted and not resolved.config.compact
        limit_bytes = settings.cleaner.batch_limit_bytes(resolved.config)
        lanes = [GapLane(buffer, GapChecker(limit_bytes)) for buffer in self._buffers]
        facts = self._facts(topic_partition, directory, is_deleted_only=is_deleted_only)
        looks = 0

        def has_moved() -> bool:
            """Tell whether a round or retention has said since, in a checkpoint, what it removed."""
            nonlocal facts
            before = facts
            self._look(CachedLogDir(context.fs, self._log_dir.path))
            facts = self._facts(topic_partition, directory, is_deleted_only=is_deleted_only)
            return (facts.cleaner_offset, facts.log_start_offset) != (before.cleaner_offset, before.log_start_offset)

        def scan(_: object) -> ScannedGaps:
            nonlocal looks
            looks += 1
            if looks > 1:
                has_moved()
            return scan_gaps(context.fs, facts, lanes, context.progress, context.check_done)

        found = look_again(
            context.fs,
            [directory],
            scan,
            is_sound=lambda found: found.is_sound,
            is_doubtful=lambda error: self._is_in_use and may_pass(error, context.clock),
            has_moved=lambda: moves_soon(has_moved, lambda: self._is_in_use, context.clock),
        )
        return GapReport(
            partition=str(topic_partition),
            policy=policy_words(resolved.config),
            policy_origin=origin_of_policy(resolved),
            policy_trusted=trusted,
            log_start_offset=found.log_start_offset,
            log_end_offset=found.log_end_offset,
            end_offset=found.end_offset,
            checkpoint_offset=facts.cleaner_offset,
            traces_end_offset=found.traces_end or None,
            segments=found.segments,
            bytes=found.bytes,
            records=found.records,
            gaps=tuple(
                GapTotal(reason, reason.value, tally.offsets, tally.ranges, tally.listed())
                for reason, tally in found.tallies.items()
            ),
            damage=tuple(
                GapDamage(
                    each.kind.value, str(each.path), each.position, each.offset, each.reason, is_damage=each.is_damage
                )
                for each in found.findings
            ),
            total_damage=found.total_findings,
            notes=tuple(_notes(topic_partition, resolved, facts, found, is_policy_known=trusted)),
            in_use=facts.is_in_use,
        )

    def _facts(self, topic_partition: TopicPartition, directory: Path, *, is_deleted_only: bool) -> LogFacts:
        log_dir = self._log_dir
        cleaner_offset = log_dir.cleaner_offsets.get(topic_partition)
        return LogFacts(
            str(topic_partition),
            directory,
            log_start_offset=log_dir.log_start_offsets.get(topic_partition),
            cleaner_offset=cleaner_offset,
            reached=max(
                log_dir.high_watermarks.get(topic_partition, 0), log_dir.recovery_points.get(topic_partition, 0)
            ),
            is_clean=self._is_clean,
            is_bare=self._is_bare,
            is_tiered=self._is_tiered,
            is_never_compacted=is_deleted_only and cleaner_offset is None,
            is_in_use=self._is_in_use,
        )


def _notes(
    topic_partition: TopicPartition,
    resolved: ResolvedTopic,
    facts: LogFacts,
    found: ScannedGaps,
    *,
    is_policy_known: bool,
) -> Iterator[str]:
    """Say what the directory cannot tell."""
    is_doubtful = GapReason.UNEXPLAINED in found.tallies
    if is_doubtful and facts.is_bare:
        yield BARE
    elif is_doubtful:
        yield ELSEWHERE
    if is_doubtful and not is_policy_known:
        yield NO_POLICY.format(origin=origin_of_policy(resolved), topic=topic_partition.topic)
    if found.end_offset > found.log_end_offset:
        yield NO_END.format(end=found.log_end_offset, reached=found.end_offset)
    if found.begins_at is not None and found.begins_at < found.log_start_offset:
        yield LATE_START.format(start=found.log_start_offset, begins_at=found.begins_at)
        if facts.is_tiered:
            yield TIERED
    if found.traces_end:
        checkpoint = "the start" if facts.cleaner_offset is None else f"its checkpoint, {facts.cleaner_offset}"
        yield BY_TRACES.format(traces=found.traces_end, checkpoint=checkpoint)
    if found.begins_at is None and GapReason.RETENTION in found.tallies:
        yield NO_START
    if facts.is_in_use:
        yield IN_USE
        if is_doubtful:
            yield UNDER_WAY
