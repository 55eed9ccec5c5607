"""`verify`: proves cleaned logs correct against the logs before cleaning; locks and changes nothing."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.kept_before import is_kept, kept_log, kept_partitions
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import as_cleaner_errors, attempt, parse_names
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import UsageError
from cleaner.policy.kafka_version import AUTO, KAFKA_VERSIONS
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import File, FileSystem, real_path
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment import names
from cleaner.storage.which_dir import Nature, nature_of, require_log_dir
from cleaner.verification.proof.findings import Refutation
from cleaner.verification.proof.key_rows import KeyRows
from cleaner.verification.proof.producers import ProtectedBatches
from cleaner.verification.proof.prove import Prover
from cleaner.verification.proof.rules import ProofRules, ProofVersion
from cleaner.verification.proof.side import LogSide


@dataclass(frozen=True)
class VerifyOptions:
    """
    What the caller knows about the rounds between the two logs.

    Attributes:
        end_offset: the exclusive end of the clean part; None: from the checkpoint next to the log after.
        now_ms: the moment of the last round; None: not known, so records that may have been removed may also remain.
        since_ms: the moment of the first of several rounds; None: there was only one, or its moment is not known.
        delete_retention_ms: None: from the topic's settings.
        memory_bytes: for sorting; the rest goes to a file.
        temp_dir: where that file is made; it is unlinked at once.
    """

    end_offset: int | None = None
    now_ms: int | None = None
    since_ms: int | None = None
    delete_retention_ms: int | None = None
    memory_bytes: int = 1 << 30
    temp_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))


@dataclass(frozen=True)
class VerifyReport:
    """
    The result for one partition.

    Attributes:
        partition: as its directory is named.
        is_proven: nothing is wrong.
        first_dirty_offset, end_offset: the range that the rounds have covered; equal if nothing was cleaned, and then
            both logs must be the same.
        log_start_offset, log_end_offset: of the log after.
        records, keys: of the cleaned range before.
        bytes_before, bytes_after: of batches read.
        findings: the errors, by offset; at most a thousand.
        total_findings: the number of all errors.
        damaged: batches that are damaged in both logs, with the same bytes.
        note: anything else for the operator.
        kafka: the Kafka versions whose rules the log fits, of those asked for; none unless it is proven.
    """

    partition: str
    is_proven: bool
    first_dirty_offset: int
    end_offset: int
    log_start_offset: int
    log_end_offset: int
    records: int
    keys: int
    bytes_before: int
    bytes_after: int
    findings: tuple[Refutation, ...]
    total_findings: int
    damaged: int = 0
    note: str = ""
    kafka: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pair:
    """A partition on both sides."""

    topic_partition: TopicPartition
    before: Path
    after: Path


def verify_log_dirs(
    before: Path,
    after: Path,
    sources: Sources,
    context: CallContext,
    options: VerifyOptions,
    partitions: Sequence[str] = (),
) -> Iterator[VerifyReport | Refusal]:
    """
    Prove partition by partition that the logs in `after` are a possible result of cleaning those in `before`.

    Args:
        before, after: two log dirs, or two directories of one partition, each next to its checkpoints; `before` may
            also be a directory of `clean --keep-old`.
        sources: where topic settings come from; the log dir is that of `after`.
        partitions: names; if empty, all that are in either log dir.
    Raises:
        UsageError: no such directory or partition.
        CorruptCheckpointError, UncleanableError: one of the log dirs as a whole is not sound.
        ConfigError: a bad setting.
    """
    fs = context.fs
    with as_cleaner_errors(after):
        pairs = _pairs(fs, before, after, partitions)
        homes = {path: LogDir(fs, path) for pair in pairs for path in (pair.before.parent, pair.after.parent)}
        settings = {path: SettingsResolver(fs, path, sources) for path in {pair.after.parent for pair in pairs}}
    for pair in pairs:
        work = _Work(context, options, settings[pair.after.parent])
        yield attempt(
            pair.topic_partition,
            pair.after,
            lambda pair=pair, work=work: work.verify(pair, homes),  # type: ignore[misc]
        )


def _pairs(fs: FileSystem, before: Path, after: Path, partitions: Sequence[str]) -> list[_Pair]:
    natures = [nature_of(fs, directory) for directory in (before, after)]
    for directory, nature in zip((before, after), natures, strict=True):
        if nature is not Nature.PARTITION and (nature is not Nature.KEPT or directory is after):
            require_log_dir(fs, directory)
    if Nature.PARTITION in natures:
        if natures != [Nature.PARTITION] * 2:
            raise UsageError(
                f"{before} is {natures[0].value}, {after} is {natures[1].value}: give two log dirs, or two directories "
                "of one partition"
            )
        if partitions:
            raise UsageError("two partition directories and names of partitions; give two log dirs, or no names")
        before, after = real_path(before), real_path(after)
        return [_Pair(_name_of(after) or _name_of(before) or TopicPartition(after.name, 0), before, after)]
    kept = kept_partitions(fs, before) if natures[0] is Nature.KEPT else {}
    sides = [LogDir(fs, path) for path in (before, after)]
    listings = [kept or sides[0].partitions(), sides[1].partitions()]
    if partitions:
        wanted = parse_names(partitions)
    elif kept:
        wanted = sorted(kept)
    else:
        wanted = sorted(listings[0].keys() | listings[1].keys())
    for topic_partition in wanted:
        for side, listing in zip(sides, listings, strict=True):
            if topic_partition not in listing:
                likely = did_you_mean(str(topic_partition), map(str, listing))
                raise UsageError(f"{side.path}: no partition {topic_partition}{likely}")
    return [_Pair(wanted_one, listings[0][wanted_one], listings[1][wanted_one]) for wanted_one in wanted]


def _name_of(directory: Path) -> TopicPartition | None:
    try:
        return TopicPartition.parse(directory.name)
    except ValueError:
        return None


@dataclass(frozen=True)
class _Work:
    """One partition's proof."""

    context: CallContext
    options: VerifyOptions
    settings: SettingsResolver

    def verify(self, pair: _Pair, homes: dict[Path, LogDir]) -> VerifyReport:
        """Prove one partition; `homes` are the log dirs that hold its two sides."""
        fs, options = self.context.fs, self.options
        name = pair.topic_partition
        old_home, new_home = homes[pair.before.parent], homes[pair.after.parent]
        after = LogSide(fs, pair.after, new_home.log_start_offsets.get(name))
        if is_kept(fs, pair.before):
            segments, kept = kept_log(fs, pair.before, after.segments)
            # The newest producer snapshot belongs to the log's end, which rounds do not move.
            before = LogSide(fs, pair.after, after.log_start_offset, segments)
            checkpoint = kept.checkpoint
        else:
            before = LogSide(fs, pair.before, old_home.log_start_offsets.get(name))
            checkpoint = old_home.offsets(OffsetKind.CLEANER).get(name)
        topic_id = read_topic_id(fs, pair.after / names.PARTITION_METADATA)
        topic = self.settings.topic(name.topic, topic_id).config
        first_dirty = _first_dirty(before, checkpoint)
        end = options.end_offset
        if end is None:
            end = new_home.offsets(OffsetKind.CLEANER).get(name, first_dirty)
        # The logs of `--keep-old` have no checkpoints of their own.
        replicated = None if is_kept(fs, pair.before) else old_home.offsets(OffsetKind.HIGH_WATERMARK).get(name)
        rules = self._rules(topic, self.settings.cleaner, first_dirty, end, replicated)
        rows = KeyRows(options.memory_bytes, self._make_file)
        total = before.size + after.size
        done = 0

        def before_step(read_bytes: int) -> None:
            nonlocal done
            self.context.check_done()
            done += read_bytes
            self.context.progress("verify", done, total)

        try:
            prover = Prover(
                before,
                after,
                rules,
                ProtectedBatches(
                    fs, before, rules.now_ms, rules.producer_expiration_ms, is_now_exact=rules.is_now_exact
                ),
                rows,
                limit_bytes=self.settings.cleaner.batch_limit_bytes(topic),
                before_step=before_step,
            )
            proof = prover.prove()
        finally:
            rows.close()
        return VerifyReport(
            partition=str(name),
            is_proven=proof.total_findings == 0,
            first_dirty_offset=first_dirty,
            end_offset=max(end, first_dirty),
            log_start_offset=proof.log_start_offset,
            log_end_offset=proof.log_end_offset,
            records=proof.records,
            keys=proof.keys,
            bytes_before=proof.bytes_before,
            bytes_after=proof.bytes_after,
            findings=proof.findings,
            total_findings=proof.total_findings,
            damaged=proof.damaged,
            note=_ONE_ROUND if rules.is_one_round else "" if rules.has_rounds else _NOTHING_CLEANED,
            kafka=proof.fits,
        )

    def _rules(
        self, topic: TopicConfig, cleaner: CleanerConfig, first_dirty: int, end: int, replicated: int | None
    ) -> ProofRules:
        options = self.options
        now_ms = self.context.clock.now_ms() if options.now_ms is None else options.now_ms
        since_ms = now_ms if options.since_ms is None else options.since_ms
        retention_ms = options.delete_retention_ms
        # Any broker may have cleaned the log: without a named version all of them are tried.
        versions = KAFKA_VERSIONS if cleaner.kafka_version == AUTO else (self.settings.kafka.version,)
        return ProofRules(
            first_dirty_offset=first_dirty,
            end_offset=end,
            since_ms=since_ms,
            now_ms=now_ms,
            is_now_exact=options.now_ms is not None,
            is_one_round=options.now_ms is not None and options.since_ms is None,
            is_end_recorded=options.end_offset is None,
            delete_retention_ms=topic.delete_retention_ms if retention_ms is None else retention_ms,
            producer_expiration_ms=cleaner.producer_id_expiration_ms,
            may_expire="delete" in topic.cleanup_policy,
            high_watermark=replicated,
            versions=tuple(ProofVersion(each.name, each.keeps_empty_range_end) for each in versions),
        )

    def _make_file(self) -> File:
        """Make an unlinked file: it disappears with the process, however that ends."""
        fs, directory = self.context.fs, self.options.temp_dir / f"cleaner-verify-{uuid.uuid4().hex}"
        # While it has a name no other user may reach it: `temp_dir` may be open to all, like `/tmp`.
        fs.make_dir(directory, 0o700)
        try:
            file = fs.create(directory / "rows", like=None)
            fs.remove(directory / "rows")
        finally:
            fs.remove_dir(directory)
        return file


_ONE_ROUND = "this was compared with one round at --now; if there were several, give the first: --since"
_NOTHING_CLEANED = (
    "no checkpoint says that anything was cleaned, so both logs must be equal; if it was, give the end: --end"
)


def _first_dirty(before: LogSide, checkpoint: int | None) -> int:
    """Return where the first round began (R-405)."""
    if checkpoint is None or checkpoint < before.log_start_offset:
        return before.log_start_offset
    return checkpoint
