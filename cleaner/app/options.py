"""What a caller may ask of `clean` and `recover`, and where settings are looked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cleaner.base import arguments
from cleaner.base.arguments import Settings
from cleaner.base.clock import Clock, StillClock, SystemClock
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.cleaning.context import RoundContext
    from cleaner.cleaning.round.round import RoundResult
    from cleaner.config.values import CleanerConfig, TopicConfig
    from cleaner.policy.cleanable import Cleanable
    from cleaner.storage.load.loaded_log import LoadedLog

CleanRound = Callable[["LoadedLog", "Cleanable", "TopicConfig", "CleanerConfig", "RoundContext"], "RoundResult"]
"""Cleans one log once: `engine.round.clean_log`, or what does the same elsewhere."""

HighWatermark = int | Literal["checkpoint", "end"]
Rounds = int | Literal["all"]
Progress = Callable[[str, int, int], None]


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Tell nobody."""


def tell_nobody(_warning: str) -> None:
    """Let a warning pass."""


def never_done() -> None:
    """Go on: nobody asks to stop."""


@dataclass(frozen=True)
class SetOption:
    """One `--set [TOPIC:]key=value`; `topic` is None for every topic and for settings of the process."""

    topic: str | None
    key: str
    value: str


@dataclass(frozen=True)
class Sources:
    """
    Where settings come from, beside the log dir itself.

    Attributes:
        config: the keys of `--config FILE`: a `server.properties`, topic settings, or both.
        environment: the keys in `CLEANER_` variables, which win over those of the file.
        sets: `--set`, which win over everything.
        topics_dir: a directory of `<topic>.properties` files; it goes before `cleaner.topics.dir`.
        metadata_dir: the directory of a KRaft metadata log, where it is not in the log dir or in `metadata.log.dir`.
        trust_default_policy: also take a topic for compacted of which only a default says so.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    sets: Sequence[SetOption] = ()
    topics_dir: Path | None = None
    metadata_dir: Path | None = None
    trust_default_policy: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_call(
        topic: str | None,
        settings: Settings | None,
        topics_dir: str | PathLike[str] | None,
        metadata_dir: str | PathLike[str] | None,
    ) -> Sources:
        """
        Make sources of a library call's arguments.

        Settings of a topic are then `--set` for that topic, so that nothing found elsewhere wins; all others, and all
        of them without a topic, are as in a `--config` file.

        Raises:
            UsageError, ConfigError: what is given cannot be taken for settings or paths.
        """
        given = arguments.setting_texts(settings)
        mine = {key: value for key, value in given.items() if topic is not None and key in TOPIC_SETTINGS}
        return Sources(
            config={key: value for key, value in given.items() if key not in mine},
            sets=tuple(SetOption(topic, key, value) for key, value in mine.items()),
            topics_dir=arguments.optional_path("topics_dir", topics_dir),
            metadata_dir=arguments.optional_path("metadata_dir", metadata_dir),
        )


@dataclass(frozen=True)
class CallContext:
    """
    What a caller lends for the time of a call.

    Attributes:
        fs: the door to the file system.
        clock: `now_ms` is read once for each partition.
        progress: told phase, bytes done and bytes in all.
        check_done: asked before each buffer; raises CleaningAborted to stop.
        warn: told what is odd about the log dir and the settings of the process.
    """

    fs: FileSystem = field(default_factory=FileSystem)
    clock: Clock = field(default_factory=SystemClock)
    progress: Progress = no_progress
    check_done: Callable[[], None] = never_done
    warn: Callable[[str], None] = tell_nobody

    @staticmethod
    def of(
        fs: FileSystem | None = None,
        now_ms: int | None = None,
        progress: Progress | None = None,
        check_done: Callable[[], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> CallContext:
        """
        Fill in the usual ones for what is None; `now_ms` makes the clock stand still.

        Raises:
            UsageError: one of them is not what it is to be used as.
        """
        arguments.having("fs", fs, "open", "stat", "list_files")
        for name, value in (("progress", progress), ("check_done", check_done), ("warn", warn)):
            arguments.function(name, value)
        return CallContext(
            fs=fs or FileSystem(),
            clock=SystemClock() if now_ms is None else StillClock(arguments.moment_ms("now_ms", now_ms)),
            progress=progress or no_progress,
            check_done=check_done or never_done,
            warn=warn or tell_nobody,
        )


@dataclass(frozen=True)
class Sampling:
    """
    How `plan` foretells what cleaning would do.

    Attributes:
        most_bytes: how much of each log to read; None: a tenth, at least 256 MiB and at most 4 GiB.
    """

    most_bytes: int | None = None


@dataclass(frozen=True)
class CleanOptions:
    """
    How to clean.

    Attributes:
        high_watermark: up to where records count as replicated: the checkpoint's line, the log end, or an offset.
            Without a line in the checkpoint nothing is cleaned.
        recover: recover logs of a log dir without a clean-shutdown marker first, instead of refusing it; beside a
            writer at work there is nothing to recover.
        allow_truncate: let that recovery cut more than a torn tail.
        retention: delete expired segments afterwards; not beside a writer, which does so itself.
        verify: re-read each written segment before it takes the place of the old ones.
        rounds: at most so many, or `all`: until the range is clean.
        keep_tombstones: only give tombstones and transaction markers their horizons; remove none, however long ago that
            passed: a replica that was away so long has yet to see them (D-13).
        max_dirty_bytes: end a round's map after so many bytes of the dirty section, as a smaller map would.
        max_seconds: end a round's map after so long.
        keep_old: a directory outside of all log dirs that takes what rounds replace, for `undo`.
        damaged: `keep` carries batches with wrong checksums, or records that cannot be read, over as they are.
        clean_round: does each round; None for the engine, in this process.
        side_by_side: says how many partitions may be under way at a time, each in its own thread; asked again and
            again. None: one after the other, in the caller's thread.
    """

    high_watermark: HighWatermark = "checkpoint"
    recover: bool = False
    allow_truncate: bool = False
    retention: bool = False
    verify: bool = True
    rounds: Rounds = 1
    keep_tombstones: bool = False
    max_dirty_bytes: int | None = None
    max_seconds: float | None = None
    keep_old: Path | None = None
    damaged: Literal["refuse", "keep"] = "refuse"
    clean_round: CleanRound | None = None
    side_by_side: Callable[[], int] | None = None

    @staticmethod
    def of(values: Mapping[str, Any]) -> CleanOptions:
        """Take the values named like options, of a call or a command line; the others count as not given."""
        return CleanOptions(**{name: values[name] for each in fields(CleanOptions) if (name := each.name) in values})

    def checked(self) -> CleanOptions:
        """
        Return the same, if a caller's values can be what they are for.

        Raises:
            UsageError: one of them cannot.
        """
        for name in ("recover", "allow_truncate", "retention", "verify", "keep_tombstones"):
            arguments.flag(name, getattr(self, name))
        require_high_watermark(self.high_watermark)
        if self.rounds != "all":
            arguments.whole("rounds", self.rounds, 1)
        arguments.one_of("damaged", self.damaged, ("refuse", "keep"))
        if self.max_dirty_bytes is not None:
            arguments.whole("max_dirty_bytes", self.max_dirty_bytes, 1)
        arguments.seconds("max_seconds", self.max_seconds)
        return self


def require_high_watermark(value: object) -> None:
    """Refuse what is neither `checkpoint`, `end` nor an offset; raises UsageError."""
    if isinstance(value, str):
        arguments.one_of("high_watermark", value, ("checkpoint", "end"))
    else:
        arguments.whole("high_watermark", value, 0)
