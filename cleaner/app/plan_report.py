"""The results of `plan` for each partition: frozen values, printed unchanged by `--format json`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.errors import CleanerError, ConfigError
from cleaner.policy.cleanable import Bound
from cleaner.policy.estimate import Estimate, PackingEstimate
from cleaner.policy.reasons import Reason
from cleaner.policy.rounds_ahead import RoundsAhead
from cleaner.policy.sections import Sections
from cleaner.read.open_transactions import UndecidedTransaction


@dataclass(frozen=True)
class SettingInForce:
    """A setting, its value as text, and where the value comes from."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True)
class PlanEntry:
    """
    One partition as `plan` sees it. Sizes are bytes of `.log` files, moments milliseconds since 1970.

    Attributes:
        partition: as its directory is named.
        policy: `cleanup.policy`, comma-separated; empty for the empty policy.
        policy_origin: where the policy comes from.
        policy_trusted: False if the policy is only a default; such a topic is cleaned only if named.
        segments: how many.
        bytes: of all segments.
        first_dirty_offset, first_uncleanable_offset: the cleanable range; None for a topic that is not compacted.
        clean_bytes: below the first dirty offset.
        dirty_bytes: in the cleanable range.
        uncleanable_bytes: from the end of that range on.
        ratio: dirty bytes as a part of clean and dirty bytes.
        is_due: by its ratio, its age, a delete horizon that has passed, or an interrupted swap. `clean --all` takes due
            partitions; a named one needs only dirty bytes.
        why: in one word, see `Reason`; a reason of the whole log dir goes before the partition's own.
        reason: the same with its numbers, in words.
        error: why the partition cannot be read; empty if it can.
        now_ms: the moment it was judged by.
        log_start_offset, log_end_offset, high_watermark, last_stable_offset: of the log; None where unknown. The last
            stable offset is exact only as far as it matters: transactions in the active segment are not searched.
        bounded_by: which of the bounds ends the range.
        bounds: each of R-406 with its offset.
        checkpoint_offset: the line in `cleaner-offset-checkpoint`; None without one.
        is_checkpoint_reset: that offset lies outside of the log and does not count (R-405).
        undecided: the open transaction that ends the range, if one does.
        lag_ends_ms: when the first segment that is too young for `min.compaction.lag.ms` becomes old enough.
        overdue_ms: by how much it is over `max.compaction.lag.ms`; 0: it is not.
        overdue_at_ms: when it will be overdue; None if nothing dirty has a time, or it already is, or never will be.
        sections: the log to scale.
        rounds: the rounds needed with this dedupe buffer.
        estimate: what cleaning would do, estimated from a sample; None if not asked for, or nothing is dirty.
        recompress: how a round would pack the batches that stay; empty: it leaves them as Kafka would.
        packing: what that would save, estimated from a sample; None if not asked for.
        settings: those the verdict depends on.
        replicas, replicas_origin: how many replicas the topic has, and where that is known from; None: unknown.
        cut_bytes: the bytes a recovery would cut from its end, as far as batch headers tell.
        in_use: the process at work on the log while it was read, in words: the entry was true only for a moment. Empty
            if there was none.
        safe_offset: with `clean --dry-run --safe-tombstones`, the offset from which on tombstones and markers stay.
        survivor: the topic's `cleaner.survivor`; empty if it is `offset`, as with Kafka.
        record_ttl_ms: the topic's `cleaner.record.ttl.ms`; None without one.
        key_view: the topic's `cleaner.key.view`; empty without one.
        merged_keys: keys that are only another writing of a key with a later record: a round removes their records, and
            Kafka's cleaner does not; None if damage hides them, or nothing can be cleaned.
        next_horizon_ms: with `cleaner.quiet.cleaning` or `cleaner.record.ttl.ms`, and nothing dirty: when something
            next may go or expire, after what may already; 2^63 - 1: never; None where it was not looked for.
        warnings: settings that look wrong, and the risk of cleaning this replica apart from the others.
    """

    partition: str
    policy: str = ""
    policy_origin: str = ""
    policy_trusted: bool = False
    segments: int = 0
    bytes: int = 0
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    clean_bytes: int = 0
    dirty_bytes: int = 0
    uncleanable_bytes: int = 0
    ratio: float = 0.0
    is_due: bool = False
    why: Reason = Reason.UNREADABLE
    reason: str = ""
    error: str = ""
    now_ms: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    bounded_by: str = ""
    bounds: tuple[Bound, ...] = ()
    checkpoint_offset: int | None = None
    is_checkpoint_reset: bool = False
    undecided: UndecidedTransaction | None = None
    lag_ends_ms: int | None = None
    overdue_ms: int = 0
    overdue_at_ms: int | None = None
    sections: Sections | None = None
    rounds: RoundsAhead | None = None
    estimate: Estimate | None = None
    recompress: str = ""
    packing: PackingEstimate | None = None
    settings: tuple[SettingInForce, ...] = field(default=())
    replicas: int | None = None
    replicas_origin: str = ""
    cut_bytes: int = 0
    in_use: str = ""
    survivor: str = ""
    record_ttl_ms: int | None = None
    key_view: str = ""
    merged_keys: int | None = None
    warnings: tuple[str, ...] = ()
    safe_offset: int | None = None
    next_horizon_ms: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of a command that looked at it: the same as of one that was refused to clean it."""
        if not self.error:
            return 0
        return ConfigError.exit_code if self.why is Reason.BAD_SETTING else CleanerError.exit_code

    def setting(self, key: str) -> SettingInForce | None:
        """Return a setting by its name; None if it is not among `settings`."""
        return next((setting for setting in self.settings if setting.key == key), None)
