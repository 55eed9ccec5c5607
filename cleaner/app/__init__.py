"""
The cleaner as a library: what the commands of the same names do, for one call.

Everything is given by the caller; nothing is kept between calls; logs and signals are the caller's business. Each
function loads what it needs when it is called: `plan` does not wait for the kernels of `clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cleaner.app.options import (
    CallContext,
    CleanOptions,
    HighWatermark,
    Progress,
    Rounds,
    Sampling,
    Sources,
    require_high_watermark,
)
from cleaner.app.plan_report import PlanEntry
from cleaner.app.reports import CleanReport, RecoveredPartition, RecoverReport, Refusal, Removed
from cleaner.app.warm_kernels import WarmReport
from cleaner.base import arguments
from cleaner.base.arguments import Settings
from cleaner.errors import CleanerError, UsageError
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    # Their rooms load kernels.
    from cleaner.app.check_log_dir import CheckReport
    from cleaner.app.undo_clean import UndoReport
    from cleaner.app.verify_log_dirs import VerifyReport

__all__ = [
    "CleanReport",
    "PlanEntry",
    "RecoverReport",
    "RecoveredPartition",
    "Refusal",
    "Removed",
    "Sampling",
    "WarmReport",
    "check",
    "clean",
    "explain",
    "plan",
    "recover",
    "undo",
    "verify",
    "warm",
]


def clean(
    log_dir: str | PathLike[str],
    partition: str,
    settings: Settings | None = None,
    *,
    now_ms: int | None = None,
    high_watermark: HighWatermark = "checkpoint",
    recover: bool = False,
    allow_truncate: bool = False,
    retention: bool = False,
    verify: bool = True,
    rounds: Rounds = 1,
    keep_tombstones: bool = False,
    keep_old: str | PathLike[str] | None = None,
    damaged: Literal["refuse", "keep"] = "refuse",
    max_dirty_bytes: int | None = None,
    max_seconds: float | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> CleanReport:
    """
    Clean one partition now, whenever anything in it is cleanable.

    The log dir must not be in use and must have been left in order (or use `recover`). Do not call this in a thread
    that has to answer signals: compiled loops hold Python's signal handlers back.

    Args:
        log_dir: the log dir.
        partition: its directory's name, `prices-0`. It counts as named by the operator.
        settings: topic settings of this topic, and settings of the broker, under Kafka's names. They win over
            whatever is found elsewhere; without `cleanup.policy` here or there the topic is not compacted.
        now_ms: the moment of the round, milliseconds since 1970; None: now.
        high_watermark: `checkpoint`, `end` or an offset; see `CleanOptions`.
        recover: recover the log first if the log dir has no clean-shutdown marker.
        allow_truncate: let that recovery cut more than a torn tail.
        retention: delete expired segments afterwards.
        verify: re-read each written segment before it takes the place of the old ones.
        rounds: at most so many, or `all`.
        keep_tombstones: remove no tombstone or marker for its age; see `CleanOptions`.
        keep_old: a directory outside of the log dir that takes the segments that are replaced, for `cleaner undo`.
        damaged: `keep` carries damaged batches over as they are, where that can be done; see `CleanOptions`.
        max_dirty_bytes, max_seconds: end a round's map early, as a smaller map would.
        progress: told phase, bytes done and bytes in all.
        check_done: asked before each buffer; raises CleaningAborted to stop.
        fs: the door to the file system.
        topics_dir: a directory of `<topic>.properties` files.
        metadata_dir: the directory of a KRaft metadata log.
    Returns:
        What was done; `end_offset` is the new cleaner checkpoint.
    Raises:
        CleanerError: one of `cleaner.errors`; a damaged or refused partition is left as it was.
    """
    from cleaner.app.clean_log_dir import clean_log_dir
    from cleaner.app.session import parse_names

    directory = arguments.path("log_dir", log_dir)
    topic = parse_names([arguments.text("partition", partition)])[0].topic
    options = CleanOptions.of(locals() | {"keep_old": arguments.optional_path("keep_old", keep_old)}).checked()
    sources = Sources.of_call(topic, settings, topics_dir, metadata_dir)
    surroundings = CallContext.of(fs, now_ms, progress, check_done)
    for outcome in clean_log_dir(directory, [partition], sources, options, surroundings):
        if isinstance(outcome, CleanReport):
            return outcome
        if isinstance(outcome, Refusal):
            try:
                raise outcome.error
            finally:
                del outcome  # or the error would know this function, and this function the error
    raise CleanerError(f"{partition}: passed over")  # of a named partition there is always one of the two


def plan(
    log_dir: str | PathLike[str],
    settings: Settings | None = None,
    *,
    now_ms: int | None = None,
    high_watermark: HighWatermark = "checkpoint",
    sampling: Sampling | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[PlanEntry]:
    """
    List every partition of a log dir with its policy, its sizes and whether it is due. Locks and changes nothing.

    Args:
        log_dir: the log dir.
        settings: as a `server.properties`: settings of the broker, which topics without settings of their own take.
        now_ms: the moment to judge by; None: now.
        high_watermark: as for `clean`.
        sampling: also foretell what cleaning would do, from samples; None: do not.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        CleanerError: the log dir as a whole cannot be read. What is wrong with one partition is in its entry.
    """
    from cleaner.app.plan_log_dir import plan_log_dir

    directory = arguments.path("log_dir", log_dir)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    lent = CallContext.of(fs, now_ms)
    require_high_watermark(high_watermark)
    if sampling is not None and not isinstance(sampling, Sampling):
        raise UsageError(f"sampling is a {type(sampling).__name__}; a cleaner.Sampling or None is needed")
    if sampling is not None and sampling.most_bytes is not None:
        arguments.whole("sampling.most_bytes", sampling.most_bytes, 1)
    return plan_log_dir(directory, sources, lent, high_watermark=high_watermark, sampling=sampling)


def recover(
    log_dir: str | PathLike[str],
    partitions: Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    allow_truncate: bool = False,
    save_cut: str | PathLike[str] | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> RecoverReport:
    """
    Recover logs as a broker's loader would, and leave a clean-shutdown marker if all of them could be.

    Args:
        log_dir: the log dir.
        partitions: names; None: all of them.
        settings: as for `plan`.
        allow_truncate: let recovery cut more than the torn end of a last segment.
        save_cut: a directory outside of the log dir that takes what is cut.
        now_ms: the moment idle producers are forgotten by; None: now.
        progress: told what is being recovered, how many are done and how many there are.
        check_done: asked before each partition; raises CleaningAborted to stop.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        What was recovered and what refused.
    Raises:
        CleanerError: the log dir as a whole cannot be used. A refused partition is in the report.
    """
    from cleaner.app.recover_log_dir import recover_log_dir

    directory, cuts = arguments.path("log_dir", log_dir), arguments.optional_path("save_cut", save_cut)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    surroundings = CallContext.of(fs, now_ms, progress, check_done)
    named = None if partitions is None else arguments.texts("partitions", partitions)
    return recover_log_dir(
        directory,
        named,
        sources,
        surroundings,
        allow_truncate=arguments.flag("allow_truncate", allow_truncate),
        save_cut=cuts,
    )


def check(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    settings: Settings | None = None,
    *,
    clean_section: bool = False,
    repair: bool = False,
    memory_bytes: int | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> CheckReport:
    """
    Read every byte of log dirs or partition directories, and say what is damaged.

    Args:
        paths: a log dir or a partition's directory, or several; several log dirs are taken for those of one broker.
        settings: as for `plan`.
        clean_section: also look for keys that occur twice below `cleaner-offset-checkpoint`.
        repair: make anew what intact `.log` files determine, under the lock of a cleaning; else nothing is written.
        memory_bytes: for digests of keys, with `clean_section`; None: 256 MiB.
        now_ms: the moment idle producers are forgotten by, with `repair`; None: now.
        progress: told phase, bytes done and bytes in all.
        check_done: asked before each chunk; raises CleaningAborted to stop.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        UsageError: a path is neither a log dir nor a partition's directory.
        LogDirLockedError: with `repair`, another process is at work.
        CleanerError: a log dir as a whole cannot be read. What is wrong with a partition is in the report.
    """
    from cleaner.app.check_log_dir import CheckOptions, check_all
    from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES

    named = [paths] if isinstance(paths, str | PathLike) else paths
    directories = [arguments.path("paths", path) for path in named]
    if not directories:
        raise UsageError("paths is empty; name a log dir, or a partition's directory")
    options = CheckOptions(
        clean_section=arguments.flag("clean_section", clean_section),
        repair=arguments.flag("repair", repair),
        memory_bytes=DEFAULT_MEMORY_BYTES if memory_bytes is None else arguments.whole("memory_bytes", memory_bytes, 1),
    )
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    return check_all(directories, sources, CallContext.of(fs, now_ms, progress, check_done), options)


def verify(
    before: str | PathLike[str],
    after: str | PathLike[str],
    partition: str | None = None,
    settings: Settings | None = None,
    *,
    end_offset: int | None = None,
    now_ms: int | None = None,
    since_ms: int | None = None,
    delete_retention_ms: int | None = None,
    memory_bytes: int = 1 << 30,
    temp_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> VerifyReport:
    """
    Prove that one partition may be what cleaning has made of another. Locks and changes nothing.

    Args:
        before: the log dir as it was, or what `keep_old` of `clean` named.
        after: the log dir now.
        partition: its directory's name, in both; None: `before` and `after` are two directories of one partition.
        settings: as for `clean`.
        end_offset: up to where it was cleaned; None: as `cleaner-offset-checkpoint` says.
        now_ms: the moment of the round, or of the last of several; None: some moment up to now.
        since_ms: the moment of the first of several rounds.
        delete_retention_ms: None: as the topic's settings say.
        memory_bytes: for sorting, 200 bytes a record; more goes to a file.
        temp_dir: where that file is made; None: where the system has temporary files.
        progress: told phase, bytes done and bytes in all.
        check_done: asked again and again; raises CleaningAborted to stop.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        `is_proven`, and what is wrong otherwise.
    Raises:
        CleanerError: one of the two cannot be read.
    """
    import tempfile

    from cleaner.app.session import parse_names
    from cleaner.app.verify_log_dirs import VerifyOptions, verify_log_dirs

    old, new = arguments.path("before", before), arguments.path("after", after)
    name = None if partition is None else arguments.text("partition", partition)
    moments = {"now_ms": now_ms, "since_ms": since_ms}
    options = VerifyOptions(
        end_offset=None if end_offset is None else arguments.whole("end_offset", end_offset, 0),
        **{key: None if value is None else arguments.moment_ms(key, value) for key, value in moments.items()},
        delete_retention_ms=(
            None if delete_retention_ms is None else arguments.whole("delete_retention_ms", delete_retention_ms, 0)
        ),
        memory_bytes=arguments.whole("memory_bytes", memory_bytes, 1),
        temp_dir=arguments.optional_path("temp_dir", temp_dir) or Path(tempfile.gettempdir()),
    )
    sources = Sources.of_call(parse_names([name])[0].topic if name else None, settings, topics_dir, metadata_dir)
    surroundings = CallContext.of(fs, None, progress, check_done)
    outcomes = list(verify_log_dirs(old, new, sources, surroundings, options, [name] if name else []))
    if len(outcomes) != 1:
        raise UsageError(f"{new}: holds {len(outcomes)} partitions; name one of them")
    if isinstance(outcomes[0], Refusal):
        raise outcomes[0].error
    return outcomes[0]


def undo(
    kept_dir: str | PathLike[str],
    settings: Settings | None = None,
    *,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[UndoReport | Refusal]:
    """
    Put back what `clean` has kept with `keep_old`, and the cleaner checkpoint of before.

    Args:
        kept_dir: what `keep_old` named; what was put back is removed from it.
        settings: as for `plan`.
        check_done: asked before each group; raises CleaningAborted to stop.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        For each partition what was put back, or why nothing was: it was appended to or cleaned since.
    Raises:
        CleanerError: nothing is kept there, or the log dir as a whole cannot be used.
    """
    from cleaner.app.undo_clean import undo_clean

    directory = arguments.path("kept_dir", kept_dir)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    return list(undo_clean(directory, sources, CallContext.of(fs, None, None, check_done)))


def explain(
    log_dir: str | PathLike[str],
    partition: str,
    settings: Settings | None = None,
    *,
    now_ms: int | None = None,
    high_watermark: HighWatermark = "checkpoint",
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> PlanEntry:
    """
    Say why one log is, or is not, due for cleaning. Locks and changes nothing.

    The entry is that of `plan`: `why` in one word, `reason` with its figures, `bounds` and `settings` behind it.

    Args:
        log_dir: the log dir.
        partition: its directory's name, `prices-0`.
        settings: as for `plan`.
        now_ms: the moment to judge by; None: now.
        high_watermark: as for `clean`.
        fs: the door to the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        UsageError: the log dir has no such partition.
        CleanerError: the log dir as a whole cannot be read. What is wrong with the partition is in the entry.
    """
    from cleaner.app.plan_log_dir import plan_log_dir

    directory, name = arguments.path("log_dir", log_dir), arguments.text("partition", partition)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    lent = CallContext.of(fs, now_ms)
    require_high_watermark(high_watermark)
    (entry,) = plan_log_dir(directory, sources, lent, partitions=[name], high_watermark=high_watermark, as_if_all=True)
    return entry


def warm() -> WarmReport:
    """
    Compile or load every kernel now: machine code that cleaning, appending and reading run.

    They are compiled when they are first called, once on a machine, and kept where `cleaner warm --help` says; without
    this the first append, the first read and the first cleaning wait for theirs, with a RuntimeWarning. To be called at
    installation, or as a process starts; where all are there it takes some tenths of a second.

    Raises:
        CleanerError: some were compiled and could not be kept: every start would compile them again.
    """
    from cleaner.app.warm_kernels import warm_kernels

    return warm_kernels()
