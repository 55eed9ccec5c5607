"""
The reasons why a log is next, waits, or is not cleaned: one row for each, with its code and all its words.

All output takes reasons from here: the page, `status`, `explain`, `plan`, labels of metrics, JSON. The module is below
the daemon, because the daemon sends one readable line with each log.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cleaner.errors import ConfigError


class Tone(enum.Enum):
    """How good or bad a reason is; the values are CSS classes of the page."""

    WORK = "work"
    DUE = "due"
    GOOD = "good"
    HELD = "held"
    BAD = "bad"
    QUIET = "quiet"


class Reason(enum.Enum):
    """The reasons, in the order in which the daemon checks them; the values are codes for labels and JSON."""

    IN_PROGRESS = "in_progress"
    ABORTED = "aborted"
    RETENTION = "retention"
    TO_BE_LOOKED_AT = "to_be_looked_at"
    NOT_COMPACTED = "not_compacted"
    QUARANTINED = "quarantined"
    LOG_DIR_OFFLINE = "log_dir_offline"
    LOG_DIR_NEEDS_RECOVERY = "log_dir_needs_recovery"
    PAUSED = "paused"
    ALL_PAUSED = "all_paused"
    DISABLED = "disabled"
    NOTHING_TO_CLEAN = "nothing_to_clean"
    UNDER_RATIO = "under_ratio"
    WINDOW_CLOSED = "window_closed"
    RETRY_LATER = "retry_later"
    LOG_DIR_LOCKED = "log_dir_locked"
    LOG_DIR_BUSY = "log_dir_busy"
    REQUESTED = "requested"
    OVERDUE = "overdue"
    OVER_RATIO = "over_ratio"
    HORIZON_PASSED = "horizon_passed"
    CHECKPOINT_RESET = "checkpoint_reset"
    UNFINISHED_SWAP = "unfinished_swap"
    NO_HIGH_WATERMARK = "no_high_watermark"
    # Of logs that there is nothing to choose about.
    POLICY_NOT_TRUSTED = "policy_not_trusted"
    BAD_SETTING = "bad_setting"
    UNREADABLE = "unreadable"

    @staticmethod
    def of_error(error: Exception) -> Reason:
        """Return why a log is not cleaned that could not be judged because of an error."""
        return Reason.BAD_SETTING if isinstance(error, ConfigError) else Reason.UNREADABLE

    @property
    def words(self) -> ReasonWords:
        """The reason's row."""
        return WORDS[self]

    @property
    def is_due(self) -> bool:
        """Tell whether a log's numbers alone would have Kafka's cleaner consider it (R-421)."""
        return self in _DUE

    @property
    def is_due_and_free(self) -> bool:
        """Tell whether a log with this reason only waits for a worker."""
        return self in _DUE_AND_FREE

    @property
    def is_error(self) -> bool:
        """Tell whether a log with this reason could not be judged because of an error."""
        return self in _ERRORS

    @property
    def is_candidate(self) -> bool:
        """Tell whether Kafka would weigh such a log at all (R-420); one of an offline log dir has left it (R-722)."""
        return self not in _NO_CANDIDATES


# Tuples, which compare by identity: these are asked for every log several times a turn.
_DUE = (Reason.OVERDUE, Reason.OVER_RATIO)
_DUE_AND_FREE = (*_DUE, Reason.HORIZON_PASSED, Reason.REQUESTED, Reason.CHECKPOINT_RESET, Reason.UNFINISHED_SWAP)
_ERRORS = (Reason.BAD_SETTING, Reason.UNREADABLE)
_NO_CANDIDATES = frozenset(
    (
        Reason.IN_PROGRESS,
        Reason.ABORTED,
        Reason.RETENTION,
        Reason.TO_BE_LOOKED_AT,
        Reason.NOT_COMPACTED,
        Reason.QUARANTINED,
        Reason.LOG_DIR_OFFLINE,
        Reason.LOG_DIR_NEEDS_RECOVERY,
        Reason.PAUSED,
        Reason.POLICY_NOT_TRUSTED,
        Reason.BAD_SETTING,
        Reason.UNREADABLE,
    )
)

Commands = tuple[tuple[str, str], ...]
"""Commands that may be typed next, each with what it does."""


@dataclass(frozen=True, slots=True)
class ReasonWords:
    """
    What is said of a reason. `meaning` and `commands` have places for `present/explanations.py` to fill.

    Attributes:
        label: a word or two, for a label or a table.
        tone: see `Tone`.
        many: what it means when many logs share it.
        meaning: one sentence or two, for a reader who does not know the code; empty: made of the log's numbers.
        settings: keys of the settings behind it, the one that decides first.
        commands: what may be typed next where a daemon runs.
        line: for the log's one line, where its numbers do not say it: places for `detail`, `count` and `remaining`.
    """

    label: str
    tone: Tone
    many: str
    meaning: str = ""
    settings: tuple[str, ...] = ()
    commands: Commands = ()
    line: str = ""


RATIO_SETTINGS = ("min.cleanable.dirty.ratio", "max.compaction.lag.ms")
_QUEUE_SETTINGS = ("log.cleaner.threads", "cleaner.selection", "log.cleaner.io.max.bytes.per.second")
_PROGRESS = ("cleaner status", "how far it is")
_WORKERS = ("cleaner status", "what the workers do")
_EDIT = ("cleaner reload", "after a change of the topic's settings")
_NOW = ("cleaner now {name} --wait", "clean it anyway, and watch")
_DUE_MEANING = "It is due, {by}, and waits for a worker; it is {place}."
_DUE_COMMANDS = (_WORKERS, ("cleaner now {name}", "put it before all others"))

WORDS: Mapping[Reason, ReasonWords] = MappingProxyType(
    {
        Reason.IN_PROGRESS: ReasonWords(
            "being worked on",
            Tone.WORK,
            "a worker has them",
            "A worker has it right now.",
            ("log.cleaner.io.max.bytes.per.second",),
            (_PROGRESS,),
            line="in progress{detail}",
        ),
        Reason.ABORTED: ReasonWords(
            "stopping",
            Tone.WORK,
            "their worker was asked to stop",
            "Its worker was asked to stop, and does so at the next buffer.",
            commands=(_PROGRESS,),
            line="asked to stop{detail}",
        ),
        Reason.RETENTION: ReasonWords(
            "expiring",
            Tone.WORK,
            "their expired segments are being removed",
            "Retention removes its expired segments.",
            ("cleaner.retention.enable",),
            (_PROGRESS,),
            line="its expired segments are being removed",
        ),
        Reason.TO_BE_LOOKED_AT: ReasonWords(
            "just worked on",
            Tone.WORK,
            "their worker has just ended, and they are looked at again",
            "Its worker has just ended. It is looked at again before it can be due.",
            commands=(_PROGRESS,),
            line="was just worked on, and is looked at again",
        ),
        Reason.REQUESTED: ReasonWords(
            "asked for",
            Tone.DUE,
            "asked for, and wait for a worker",
            "An operator asked for it: it comes before all others.",
            commands=(("cleaner jobs", "watch it"),),
        ),
        Reason.OVERDUE: ReasonWords(
            "overdue",
            Tone.DUE,
            "over max.compaction.lag.ms, and wait for a worker",
            _DUE_MEANING,
            _QUEUE_SETTINGS,
            _DUE_COMMANDS,
        ),
        Reason.OVER_RATIO: ReasonWords(
            "due",
            Tone.DUE,
            "dirty enough, and wait for a worker",
            _DUE_MEANING,
            _QUEUE_SETTINGS,
            _DUE_COMMANDS,
        ),
        Reason.HORIZON_PASSED: ReasonWords(
            "horizon passed",
            Tone.DUE,
            "nothing dirty, but tombstones or markers that may go",
            "Nothing in it is dirty, but a delete horizon has passed, or a marker without data has none, or none is "
            "known yet since the start: a worker looks for tombstones and markers that may go; it is {place}.",
            ("cleaner.quiet.cleaning", "delete.retention.ms"),
            (_WORKERS,),
            line="nothing dirty; tombstones or markers may be past their delete horizon, or markers may need one",
        ),
        Reason.CHECKPOINT_RESET: ReasonWords(
            "checkpoint reset",
            Tone.DUE,
            "their cleaner checkpoint is outside of the log",
            "Its line in cleaner-offset-checkpoint is outside of the log; a worker sets it to offset {offset}.",
            commands=(_WORKERS,),
        ),
        Reason.UNFINISHED_SWAP: ReasonWords(
            "unfinished swap",
            Tone.DUE,
            "a swap of theirs was interrupted, or the work before it",
            "A process stopped in the middle of a swap of its segments, or before it; a load of the log settles that.",
            commands=(_WORKERS,),
        ),
        Reason.UNDER_RATIO: ReasonWords(
            "clean enough",
            Tone.GOOD,
            "not dirtier than min.cleanable.dirty.ratio yet",
            settings=RATIO_SETTINGS,
            commands=(_NOW,),
        ),
        Reason.NOTHING_TO_CLEAN: ReasonWords("nothing to clean", Tone.GOOD, "no dirty section that could be cleaned"),
        Reason.WINDOW_CLOSED: ReasonWords(
            "window closed",
            Tone.HELD,
            "due, and wait for the next window of cleaner.windows",
            "It is due, but rounds begin only in windows.{opens}",
            ("cleaner.windows", "cleaner.windows.time.zone"),
            (_NOW,),
            line="outside cleaner.windows{remaining}",
        ),
        Reason.RETRY_LATER: ReasonWords(
            "tried again later",
            Tone.HELD,
            "their last round failed, and they are tried again",
            "Its last round failed in a way that may pass; it is tried again later.",
            ("log.cleaner.backoff.ms", "cleaner.retry.max.ms"),
            (("cleaner now {name} --wait", "try at once"),),
            line="failed, times in a row: {count}{detail}; not tried{remaining}",
        ),
        Reason.LOG_DIR_LOCKED: ReasonWords(
            "log dir in use",
            Tone.HELD,
            "another process has their log dir",
            "Another process holds the log dir's lock: a live broker, a writer or another cleaner.",
            ("cleaner.lock", "log.cleaner.backoff.ms"),
            (("fuser -v {log_dir}/.lock", "who has it open"),),
            line="its log dir is in use by another process{detail}; not tried{remaining}",
        ),
        Reason.LOG_DIR_BUSY: ReasonWords(
            "log dir busy",
            Tone.HELD,
            "their log dir has all its workers",
            "Its log dir already has the most workers that may work there.",
            ("cleaner.log.dir.max.workers",),
            (("cleaner status", "what they do"),),
            line="its log dir is busy, workers there: {count}",
        ),
        Reason.PAUSED: ReasonWords(
            "paused",
            Tone.HELD,
            "an operator has paused them",
            "An operator paused it; `cleaner history` says who.",
            commands=(("cleaner resume {name}", "end a pause"),),
            line="paused, pauses outstanding: {count}",
        ),
        Reason.ALL_PAUSED: ReasonWords(
            "all paused",
            Tone.HELD,
            "an operator has paused everything",
            "An operator paused all cleaning; `cleaner history` says who.",
            commands=(("cleaner resume", "end a pause"),),
            line="the cleaner is paused",
        ),
        Reason.DISABLED: ReasonWords(
            "disabled",
            Tone.HELD,
            "log.cleaner.enable is false",
            "Cleaning is switched off by a setting.",
            ("log.cleaner.enable",),
            (("cleaner reload", "after a change in the daemon's settings"),),
            line="log.cleaner.enable is false",
        ),
        Reason.QUARANTINED: ReasonWords(
            "quarantined",
            Tone.BAD,
            "not cleaned after an error, until they are released",
            "It was quarantined{since} after an error that would occur again{where}; the other logs are cleaned.",
            commands=(
                ("cleaner quarantine", "all logs in quarantine"),
                ("cleaner release {name}", "once the cause is gone"),
            ),
            line="quarantined{detail}",
        ),
        Reason.LOG_DIR_OFFLINE: ReasonWords(
            "disk offline",
            Tone.BAD,
            "their log dir's disk has failed",
            "The disk of its log dir failed. Nothing there is touched until it can be read again.",
            commands=(("dmesg | tail", "the kernel's messages about the disk"), ("cleaner status", "all log dirs")),
            line="its log dir is offline{detail}",
        ),
        Reason.LOG_DIR_NEEDS_RECOVERY: ReasonWords(
            "needs recovery",
            Tone.BAD,
            "their log dir was not shut down cleanly",
            "The log dir was not shut down cleanly: recovery has to come first.",
            ("cleaner.recover",),
            (("cleaner recover {log_dir}", "recover it now"),),
            line="its log dir needs recovery{detail}",
        ),
        Reason.NOT_COMPACTED: ReasonWords(
            "not compacted",
            Tone.QUIET,
            "their cleanup.policy has no compact",
            "Its policy has no compact; retention may apply to it.",
            ("cleanup.policy",),
            (_EDIT,),
            line="cleanup.policy has no compact",
        ),
        Reason.NO_HIGH_WATERMARK: ReasonWords(
            "no high watermark",
            Tone.HELD,
            "none of their records counts as replicated",
            "replication-offset-checkpoint has no line for it, so no record counts as replicated.",
            line="nothing to clean: replication-offset-checkpoint has no line for the partition, so nothing is known "
            "to be replicated; if this log is all there is, use --high-watermark end (or an offset)",
        ),
        Reason.POLICY_NOT_TRUSTED: ReasonWords(
            "policy not trusted",
            Tone.HELD,
            "only a default says that they are compacted",
            "Only a default says that it is compacted, and cleaning cannot be undone: it has to be confirmed.",
            ("cleanup.policy", "cleaner.trust.default.policy"),
            (_EDIT,),
            line="cleanup.policy=compact is known only from {detail}: name the partition, set the topic's own policy, "
            "or use --trust-default-policy",
        ),
        Reason.BAD_SETTING: ReasonWords(
            "bad setting",
            Tone.BAD,
            "a setting of their topic is wrong",
            "A setting of its topic is wrong, so it is not cleaned; the log itself may be in order.",
            line="a setting of its topic is wrong",
        ),
        Reason.UNREADABLE: ReasonWords(
            "cannot be read",
            Tone.BAD,
            "could not be read",
            "The log cannot be read, so it is not cleaned.",
            commands=(("cleaner plan {log_dir}", "what can be seen of it"),),
            line="cannot be read",
        ),
    }
)
