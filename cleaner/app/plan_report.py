"""What `plan` gives back for each partition: frozen values, printed as they are by `--format json`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.errors import CleanerError, ConfigError
from cleaner.policy.cleanable import Bound
from cleaner.policy.estimate import Estimate
from cleaner.policy.reasons import Reason
from cleaner.policy.rounds_ahead import RoundsAhead
from cleaner.policy.sections import Sections
from cleaner.read.open_transactions import Undecided


@dataclass(frozen=True)
class SettingInForce:
    """A setting, its value as text, and where that comes from."""

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
        policy_origin: where that comes from.
        policy_trusted: False when only a default says so; such a topic is cleaned only when named.
        segments: how many.
        bytes: of all segments.
        first_dirty_offset, first_uncleanable_offset: the cleanable range; None for a topic that is not compacted.
        clean_bytes: below the first dirty offset.
        dirty_bytes: in the cleanable range.
        uncleanable_bytes: from its end on.
        ratio: dirty bytes as a part of clean and dirty bytes.
        is_due: by its ratio or its age. `clean --all` takes what is due; a named partition needs only dirty bytes.
        why: in one word, see `Reason`; what stands in the way of the whole log dir goes before the partition's own.
        reason: the same with its numbers, in words.
        error: what keeps the partition from being looked at; empty when nothing does.
        now_ms: the moment it was judged by.
        log_start_offset, log_end_offset, high_watermark, last_stable_offset: of the log; None where unknown. A last
            stable offset is only told as far as it can matter: transactions in the active segment are not looked for.
        bounded_by: which of the bounds ends the range.
        bounds: each of R-406 with its offset.
        checkpoint_offset: the line in `cleaner-offset-checkpoint`; None without one.
        is_checkpoint_reset: that line lies outside of the log and does not count (R-405).
        undecided: the open transaction that ends the range, if one does.
        lag_ends_ms: when the first segment that is too young for `min.compaction.lag.ms` is not any more.
        overdue_ms: by how much it is over `max.compaction.lag.ms`; 0: it is not.
        overdue_at_ms: when it will be; None where nothing dirty has a time, or it is already, or never.
        sections: the log to scale.
        rounds: what is ahead with this dedupe buffer.
        estimate: what cleaning would do, foretold from a sample; None where nobody asked, or nothing is dirty.
        settings: those the verdict rests on.
        replicas, replicas_origin: how many replicas the topic has, and who says so; None: nobody does.
        cut_bytes: what a recovery would cut from its end, as far as batch headers tell.
        in_use: who was at work on the log while it was read, in words: what is shown was true for a moment. Empty when
            nobody was.
        warnings: settings that look wrong, and what cleaning this replica apart from the others may mean.
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
    undecided: Undecided | None = None
    lag_ends_ms: int | None = None
    overdue_ms: int = 0
    overdue_at_ms: int | None = None
    sections: Sections | None = None
    rounds: RoundsAhead | None = None
    estimate: Estimate | None = None
    settings: tuple[SettingInForce, ...] = field(default=())
    replicas: int | None = None
    replicas_origin: str = ""
    cut_bytes: int = 0
    in_use: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What a command ends with that has looked at it: as one would that was refused to clean it."""
        if not self.error:
            return 0
        return ConfigError.exit_code if self.why is Reason.BAD_SETTING else CleanerError.exit_code

    def setting(self, key: str) -> SettingInForce | None:
        """Return a setting by its name; None when it is not among those told."""
        return next((setting for setting in self.settings if setting.key == key), None)
