"""What holds a log, said to somebody who has never read the code; the same words whoever tells it."""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.base.sizes import duration


@dataclass(frozen=True)
class Explanation:
    """
    Why a log is where it is.

    Attributes:
        meaning: one sentence or two.
        settings: keys of the settings behind it, the one that decides first.
        commands: what may be typed next, each with what it does.
    """

    meaning: str
    settings: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()


# By what ends the cleanable range (`Cleanable.bounded_by`): what it means, and the settings behind it.
BOUNDS = {
    "active segment": (
        "Only the active segment holds anything new, and it is never cleaned: it waits until whoever writes the log "
        "begins another one.",
        ("segment.ms", "segment.bytes"),
    ),
    "high watermark": (
        "What is new lies above the high watermark: it does not count as replicated yet.",
        (),
    ),
    "last stable offset": (
        "What is new lies behind the first record of an open transaction: whether it counts is not decided yet.",
        (),
    ),
    "min.compaction.lag.ms": ("What is new is younger than the minimum lag.", ("min.compaction.lag.ms",)),
}
NOTHING_DIRTY = ("There is nothing dirty.", ())

BAD_SETTING = "A setting of its topic is wrong, so nothing is done to it; nothing is said of the log itself."
UNREADABLE = "The log cannot be looked at, so nothing is done to it."
ONLY_BY_DEFAULT = "Only a default says that it is compacted, and cleaning cannot be undone: somebody has to confirm it."
NOT_COMPACTED = "Its policy is without compact; retention may apply to it."
NEEDS_RECOVERY = "Whoever wrote the log dir did not stop in order: recovery has to come first."
LOCKED = "Another process holds the log dir's lock: a live broker, a writer or another cleaner."
RATIO_SETTINGS = ("min.cleanable.dirty.ratio", "max.compaction.lag.ms")


def under_ratio(ratio: float, min_ratio: float, overdue_in_ms: int | None) -> str:
    """Say that too little is dirty, and when the log is due whatever its ratio (None: never)."""
    words = f"{ratio:.1%} of what could be recopied is dirty; a round begins above {min_ratio:.1%}."
    if overdue_in_ms is not None:
        words += f" In {duration(overdue_in_ms)} it is due by its age, whatever its ratio."
    return words


def due_by(ratio: float, min_ratio: float, overdue_ms: int) -> str:
    """Say by what a log is due: its age (`overdue_ms` above 0) or its ratio."""
    if overdue_ms:
        return f"it is over max.compaction.lag.ms by {duration(overdue_ms)}"
    return f"{ratio:.1%} of it is dirty, more than {min_ratio:.1%}"
