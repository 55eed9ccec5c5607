"""The options of `clean` and other commands, and the sources of settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cleaner.base import arguments
from cleaner.base.clock import Clock, StillClock, SystemClock
from cleaner.config.forms import parse_recompression
from cleaner.errors import ConfigError, UsageError
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.cleaning.context import RoundContext
    from cleaner.cleaning.round.round import RoundResult
    from cleaner.config.values import CleanerConfig, TopicConfig
    from cleaner.policy.cleanable import Cleanable
    from cleaner.storage.load.loaded_log import LoadedLog

CleanRound = Callable[["LoadedLog", "Cleanable", "TopicConfig", "CleanerConfig", "RoundContext"], "RoundResult"]
"""Cleans one log once: `cleaning.round.round.clean_log`, or an equivalent such as Spark's."""

HighWatermark = int | Literal["checkpoint", "end"]
Rounds = int | Literal["all"]
Progress = Callable[[str, int, int], None]
"""Called with what is worked on (`prices-0 map`), and its bytes done and in total."""


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Report no progress."""


def ignore_warning(_warning: str) -> None:
    """Ignore a warning."""


def never_done() -> None:
    """Never stop."""


@dataclass(frozen=True)
class CallContext:
    """
    The objects that a caller provides for one call.

    Attributes:
        fs: the file system.
        clock: `now_ms` is read once for each partition.
        progress: called with phase, bytes done and total bytes.
        check_done: called before each buffer, by one thread at a time; raises CleaningAborted to stop.
        warn: called with warnings about the log dir and the settings of the process.
    """

    fs: FileSystem = field(default_factory=FileSystem)
    clock: Clock = field(default_factory=SystemClock)
    progress: Progress = no_progress
    check_done: Callable[[], None] = never_done
    warn: Callable[[str], None] = ignore_warning

    @staticmethod
    def of(
        fs: FileSystem | None = None,
        now_ms: int | None = None,
        progress: Progress | None = None,
        check_done: Callable[[], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> CallContext:
        """
        Replace None by the defaults; with `now_ms` the clock stands still.

        Raises:
            UsageError: an argument has the wrong type or value.
        """
        arguments.require_methods("fs", fs, "open", "stat", "list_files")
        for name, value in (("progress", progress), ("check_done", check_done), ("warn", warn)):
            arguments.function(name, value)
        return CallContext(
            fs=fs or FileSystem(),
            clock=SystemClock() if now_ms is None else StillClock(arguments.moment_ms("now_ms", now_ms)),
            progress=progress or no_progress,
            check_done=check_done or never_done,
            warn=warn or ignore_warning,
        )


@dataclass(frozen=True)
class Sampling:
    """
    How `plan` estimates what cleaning would do.

    Attributes:
        most_bytes: how much of each log to read; None: a tenth, at least 256 MiB and at most 4 GiB.
    """

    most_bytes: int | None = None


@dataclass(frozen=True)
class CleanOptions:
    """
    How to clean.

    Attributes:
        high_watermark: records below it count as replicated: the checkpoint's line, the log end, or an offset. Without
            a line in the checkpoint nothing is cleaned.
        recover: recover logs of a log dir without a clean-shutdown marker first, instead of refusing it; next to a live
            writer there is nothing to recover.
        allow_truncate: let that recovery cut more than a torn tail.
        retention: delete expired segments afterwards; not next to a writer, which does so itself.
        verify: re-read each written segment before it replaces the old ones.
        rounds: the most rounds to run, or `all`: until the range is clean.
        keep_tombstones: only give tombstones and transaction markers their horizons; remove none, however long ago the
            horizon passed: a replica that was offline may not have seen them (D-13).
        safe_tombstones: a file of `check --replicas --safe-tombstones`: tombstones and markers at or above a log's safe
            offset stay (D-17); a log that it says nothing about is refused.
        max_dirty_bytes: end a round's map after this many bytes of the dirty section, as a smaller map would.
        max_seconds: end a round's map after this time, seconds since the map began.
        keep_old: a directory outside of all log dirs that keeps the files that rounds replace, for `undo`.
        index_dir: a directory for key indexes, outside of all log dirs; None: `cleaner.index.dir`, if that is set.
        use_index: False reads every segment, and does without that directory.
        damaged: `keep` copies batches with wrong checksums or unreadable records unchanged.
        recompress: `zstd`, `zstd:1` to `zstd:19`, `lz4` or `none` packs the batches that stay, and joins small ones;
            `off` leaves them as Kafka would; None: by `cleaner.recompress`. A partition that is named is packed even if
            nothing in it is dirty.
        clean_round: does each round; None: `clean_log`, in this process.
        side_by_side: returns how many partitions to clean at once, each in its own thread; called again and again.
            None: one after another, in the caller's thread.
    """

    high_watermark: HighWatermark = "checkpoint"
    recover: bool = False
    allow_truncate: bool = False
    retention: bool = False
    verify: bool = True
    rounds: Rounds = 1
    keep_tombstones: bool = False
    safe_tombstones: Path | None = None
    max_dirty_bytes: int | None = None
    max_seconds: float | None = None
    keep_old: Path | None = None
    index_dir: Path | None = None
    use_index: bool = True
    damaged: Literal["refuse", "keep"] = "refuse"
    recompress: str | None = None
    clean_round: CleanRound | None = None
    side_by_side: Callable[[], int] | None = None

    @staticmethod
    def of(values: Mapping[str, Any]) -> CleanOptions:
        """Take the values named like options from a call or a command line; missing ones get their defaults."""
        return CleanOptions(**{name: values[name] for each in fields(CleanOptions) if (name := each.name) in values})

    def checked(self) -> CleanOptions:
        """
        Return the same options if the caller's values are valid.

        Raises:
            UsageError: one of them is not.
        """
        for name in ("recover", "allow_truncate", "retention", "verify", "keep_tombstones", "use_index"):
            arguments.flag(name, getattr(self, name))
        require_high_watermark(self.high_watermark)
        if self.rounds != "all":
            arguments.whole("rounds", self.rounds, 1)
        arguments.one_of("damaged", self.damaged, ("refuse", "keep"))
        require_recompression(self.recompress)
        if self.recompress is not None and self.damaged == "keep":
            raise UsageError("recompress and damaged='keep' exclude each other: a damaged batch cannot be packed")
        if self.max_dirty_bytes is not None:
            arguments.whole("max_dirty_bytes", self.max_dirty_bytes, 1)
        arguments.seconds("max_seconds", self.max_seconds)
        return self


def require_high_watermark(value: object) -> None:
    """Raise UsageError for a value that is neither `checkpoint`, `end` nor an offset."""
    if isinstance(value, str):
        arguments.one_of("high_watermark", value, ("checkpoint", "end"))
    else:
        arguments.whole("high_watermark", value, 0)


def require_recompression(value: object) -> None:
    """Raise UsageError for a value that is neither None nor a way to pack batches."""
    if value is None:
        return
    try:
        parse_recompression(arguments.text("recompress", value))
    except ConfigError as error:
        raise UsageError(f"recompress: {value!r} {error.reason}") from error
