"""`verify`: proves cleaned logs correct against the logs before cleaning; locks and changes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.kept_before import is_kept
from cleaner.app.log_pairs import LogPair, homes_of, pairs_of, sides_of
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import as_cleaner_errors, attempt
from cleaner.app.spilled_rows import make_unlinked
from cleaner.base.key_views import key_view_of
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import CorruptLogError
from cleaner.policy.due import watches_time
from cleaner.policy.kafka_version import AUTO, KAFKA_VERSIONS
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.read.summary import look_again, moves_soon
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment import names
from cleaner.verification.check.log_dirs import is_in_use
from cleaner.verification.proof.findings import Refutation
from cleaner.verification.proof.key_rows import COLUMNS, KeyRows
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
        recompressed: rounds may have packed batches in another way, and joined them (`clean --recompress`): records are
            compared, and what else a batch says.
        memory_bytes: for sorting; the rest goes to a file.
        temp_dir: where that file is made; it is unlinked at once.
    """

    end_offset: int | None = None
    now_ms: int | None = None
    since_ms: int | None = None
    delete_retention_ms: int | None = None
    recompressed: bool = False
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
        repacked: batches before that have another codec after, or became part of another batch; only with
            `recompressed` is that no error.
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
    repacked: int = 0
    note: str = ""
    kafka: tuple[str, ...] = ()


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
        pairs = pairs_of(context, before, after, partitions)
        homes = homes_of(fs, pairs)
        settings = {path: SettingsResolver(fs, path, sources) for path in {pair.after.parent for pair in pairs}}
    for pair in pairs:
        work = _Work(context, options, settings[pair.after.parent])
        yield attempt(
            pair.topic_partition,
            pair.after,
            lambda pair=pair, work=work: work.verify_again(pair, homes),  # type: ignore[misc]
        )


@dataclass(frozen=True)
class _Work:
    """One partition's proof."""

    context: CallContext
    options: VerifyOptions
    settings: SettingsResolver

    def verify_again(self, pair: LogPair, homes: dict[Path, LogDir]) -> VerifyReport:
        """Prove one partition; again if a round has changed a log meanwhile, or says a moment later how far it came."""
        fs, places = self.context.fs, (pair.before.parent, pair.after.parent)
        lines: list[int | None] = []

        def read_lines() -> list[int | None]:
            return [homes[place].offsets(OffsetKind.CLEANER).get(pair.topic_partition) for place in places]

        def verify(_: object) -> VerifyReport:
            lines[:] = read_lines()
            return self.verify(pair, homes)

        return look_again(
            fs,
            [pair.before, pair.after],
            verify,
            is_sound=lambda report: report.is_proven,
            has_moved=lambda: moves_soon(
                lambda: read_lines() != lines, lambda: any(is_in_use(fs, place) for place in places), self.context.clock
            ),
        )

    def verify(self, pair: LogPair, homes: dict[Path, LogDir]) -> VerifyReport:
        """Prove one partition; `homes` are the log dirs that hold its two sides."""
        fs, options = self.context.fs, self.options
        name = pair.topic_partition
        old_home, new_home = homes[pair.before.parent], homes[pair.after.parent]
        before, after, checkpoint = sides_of(fs, pair, homes)
        topic_id = read_topic_id(fs, pair.after / names.PARTITION_METADATA)
        topic = self.settings.topic(name.topic, topic_id).config
        view = key_view_of(topic.key_view)
        first_dirty = _first_dirty(before, None if topic.takes_whole_log else checkpoint)
        end = options.end_offset
        if end is None:
            end = new_home.offsets(OffsetKind.CLEANER).get(name, first_dirty)
        # The logs of `--keep-old` have no checkpoints of their own.
        replicated = None if is_kept(fs, pair.before) else old_home.offsets(OffsetKind.HIGH_WATERMARK).get(name)
        rules = self._rules(topic, self.settings.cleaner, first_dirty, end, replicated)
        rows = KeyRows(
            options.memory_bytes,
            lambda: make_unlinked(fs, options.temp_dir, "cleaner-verify"),
            columns=COLUMNS if rules.numbers is None else COLUMNS + 1,
        )
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
                view=view,
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
            repacked=proof.repacked,
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
            recompressed=options.recompressed,
            expires_after_ms=topic.expires_after_ms,
            numbers=survivor_rule_of(topic.survivor).numbers,
            may_be_quiet=first_dirty == end
            and watches_time(
                quiet_cleaning=cleaner.quiet_cleaning,
                expires_after_ms=topic.expires_after_ms,
                takes_whole_log=topic.takes_whole_log,
            ),
        )


_ONE_ROUND = "this was compared with one round at --now; if there were several, give the first: --since"
_NOTHING_CLEANED = (
    "no checkpoint says that anything was cleaned, so both logs must be equal; if it was, give the end: --end"
)


def _first_dirty(before: LogSide, checkpoint: int | None) -> int:
    """Return where the first round began: at the checkpoint, or at the log start if that is not in the log (R-405)."""
    if checkpoint is None or not before.log_start_offset <= checkpoint or _is_above_end(before, checkpoint):
        return before.log_start_offset
    return checkpoint


def _is_above_end(log: LogSide, offset: int) -> bool:
    """Tell whether an offset is above the log's end; not if damage hides where that is."""
    last = log.segments[-1]
    try:
        return offset > last.base_offset and offset > last.next_offset()
    except CorruptLogError:
        return False
