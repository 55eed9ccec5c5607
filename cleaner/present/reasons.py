"""Why a log waits, for people: a word for a label, a tone for its colour, and whether anybody has to do something."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cleaner.daemon.snapshot import LogView
from cleaner.policy.cleaning_status import Reason
from cleaner.present.text import duration


class Tone(enum.Enum):
    """How something is to be taken; the values are classes of the page."""

    WORK = "work"
    DUE = "due"
    GOOD = "good"
    HELD = "held"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True)
class Label:
    """
    What the page says of a reason.

    Attributes:
        word: on a label.
        tone: see `Tone`.
        meaning: what it means when many logs share it.
    """

    word: str
    tone: Tone
    meaning: str


SAID: Mapping[Reason, Label] = {
    Reason.IN_PROGRESS: Label("being worked on", Tone.WORK, "a worker has them"),
    Reason.ABORTED: Label("stopping", Tone.WORK, "their worker was asked to stop"),
    Reason.RETENTION: Label("expiring", Tone.WORK, "their expired segments are being removed"),
    Reason.TO_BE_LOOKED_AT: Label("just worked on", Tone.WORK, "were just given back, and are looked at again"),
    Reason.REQUESTED: Label("asked for", Tone.DUE, "asked for, and wait for a worker"),
    Reason.OVERDUE: Label("overdue", Tone.DUE, "over max.compaction.lag.ms, and wait for a worker"),
    Reason.OVER_RATIO: Label("due", Tone.DUE, "dirty enough, and wait for a worker"),
    Reason.CHECKPOINT_RESET: Label("checkpoint reset", Tone.DUE, "their cleaner checkpoint lies outside of the log"),
    Reason.UNFINISHED_SWAP: Label("unfinished swap", Tone.DUE, "somebody stopped in the middle of a swap"),
    Reason.UNDER_RATIO: Label("clean enough", Tone.GOOD, "not dirtier than min.cleanable.dirty.ratio yet"),
    Reason.NOTHING_TO_CLEAN: Label("nothing to clean", Tone.GOOD, "no dirty section that could be cleaned"),
    Reason.WINDOW_CLOSED: Label("window closed", Tone.HELD, "due, and wait for the next window of cleaner.windows"),
    Reason.RETRY_LATER: Label("tried again later", Tone.HELD, "failed last time, and are tried again"),
    Reason.LOG_DIR_LOCKED: Label("log dir in use", Tone.HELD, "another process has their log dir"),
    Reason.LOG_DIR_BUSY: Label("log dir busy", Tone.HELD, "enough workers are in their log dir"),
    Reason.PAUSED: Label("paused", Tone.HELD, "an operator has paused them"),
    Reason.ALL_PAUSED: Label("all paused", Tone.HELD, "an operator has paused everything"),
    Reason.DISABLED: Label("disabled", Tone.HELD, "log.cleaner.enable is false"),
    Reason.QUARANTINED: Label("quarantined", Tone.BAD, "set aside after an error, until somebody releases them"),
    Reason.LOG_DIR_OFFLINE: Label("disk offline", Tone.BAD, "their log dir's disk has failed"),
    Reason.LOG_DIR_NEEDS_RECOVERY: Label("needs recovery", Tone.BAD, "their log dir was not shut down cleanly"),
    Reason.NOT_COMPACTED: Label("not compacted", Tone.QUIET, "their cleanup.policy is without compact"),
}
UNREADABLE = Label("cannot be read", Tone.BAD, "could not be looked at")

# What a label beside it says already.
_TOLD = re.compile(r"(next|number \d+ in the queue|in progress|nothing to clean|quarantined|paused)[:,] ")
_MS = re.compile(r"\b([0-9]{4,19}) ms\b")


_SAID_OF_STANDING = {reason.value: said for reason, said in SAID.items()} | {"unreadable": UNREADABLE}


def said_of(view: LogView) -> Label:
    """Return what to say of a log."""
    return said_of_standing(view.standing)


def said_of_standing(standing: str) -> Label:
    """Return what to say of logs that stand alike (`LogView.standing`)."""
    return _SAID_OF_STANDING[standing]


def why(view: LogView) -> str:
    """Return the log's own line without what its label says, its milliseconds in words."""
    line = view.error or _TOLD.sub("", view.why, count=1) if view.verdict else view.error or view.why
    return _MS.sub(lambda match: duration(int(match[1]) / 1000), line)
