"""
The cleaner as a library, for one call: what those commands do that change a log dir; the others are in `read_only.py`.

The caller gives everything; nothing is kept between calls; the caller handles logs and signals. Each function imports
what it needs when it is called: `plan` does not wait for the kernels of `clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal

from cleaner.app.options import (
    CallContext,
    CleanOptions,
    HighWatermark,
    Progress,
    Rounds,
)
from cleaner.app.reports import CleanReport, RecoverReport, Refusal
from cleaner.app.warm_kernels import WarmReport, warm_kernels
from cleaner.base import arguments
from cleaner.base.arguments import Settings
from cleaner.errors import CleanerError
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    # These modules load kernels.
    from cleaner.app.erase_reports import EraseReport
    from cleaner.app.undo_clean import UndoReport


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
    safe_tombstones: str | PathLike[str] | None = None,
    keep_old: str | PathLike[str] | None = None,
    index_dir: str | PathLike[str] | None = None,
    damaged: Literal["refuse", "keep"] = "refuse",
    recompress: str | None = None,
    max_dirty_bytes: int | None = None,
    max_seconds: float | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> CleanReport:
    """
    Clean one partition now, if anything in it is cleanable.

    The log dir must not be in use and must have been closed in order (or use `recover`). Do not call this in a thread
    that must handle signals: compiled loops delay Python's signal handlers.

    Args:
        log_dir: the log dir.
        partition: its directory's name, `prices-0`. It counts as named by the operator.
        settings: topic settings of this topic, and settings of the broker, under Kafka's names. They override settings
            found elsewhere; without `cleanup.policy` in either place the topic is not compacted.
        now_ms: the moment of the round, milliseconds since 1970; None: now.
        high_watermark: `checkpoint`, `end` or an offset; see `CleanOptions`.
        recover: recover the log first if the log dir has no clean-shutdown marker.
        allow_truncate: let that recovery cut more than a torn tail.
        retention: delete expired segments afterwards.
        verify: re-read each written segment before it replaces the old ones.
        rounds: the most rounds to run, or `all`.
        keep_tombstones: do not remove tombstones or markers because of their age; see `CleanOptions`.
        safe_tombstones: a file of `check_replicas`: tombstones and markers at or above the log's safe offset stay.
        keep_old: a directory outside of the log dir that keeps the replaced segments, for `cleaner undo`.
        index_dir: a directory outside of the log dir for key indexes, by which later rounds leave segments unread.
        damaged: `keep` copies damaged batches unchanged, if possible; see `CleanOptions`.
        recompress: `zstd`, `zstd:9`, `lz4` or `none` packs the batches that stay; see `CleanOptions`.
        max_dirty_bytes, max_seconds: end a round's map early, as a smaller map would.
        progress: called with phase, bytes done and total bytes.
        check_done: called before each buffer; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir: a directory of `<topic>.properties` files.
        metadata_dir: the directory of a KRaft metadata log.
    Returns:
        What was done; `end_offset` is the new cleaner checkpoint.
    Raises:
        CleanerError: one of `cleaner.errors`; a damaged or refused partition is unchanged.
    """
    from cleaner.app.clean_log_dir import clean_log_dir
    from cleaner.app.session import parse_names

    directory = arguments.path("log_dir", log_dir)
    topic = parse_names([arguments.text("partition", partition)])[0].topic
    paths = {
        "keep_old": arguments.optional_path("keep_old", keep_old),
        "index_dir": arguments.optional_path("index_dir", index_dir),
        "safe_tombstones": arguments.optional_path("safe_tombstones", safe_tombstones),
    }
    options = CleanOptions.of(locals() | paths).checked()
    sources = Sources.of_call(topic, settings, topics_dir, metadata_dir)
    context = CallContext.of(fs, now_ms, progress, check_done)
    for outcome in clean_log_dir(directory, [partition], sources, options, context):
        if isinstance(outcome, CleanReport):
            return outcome
        if isinstance(outcome, Refusal):
            try:
                raise outcome.error
            finally:
                del outcome  # or the error and this frame would refer to each other
    raise CleanerError(f"{partition}: passed over")  # a named partition always has one of the two outcomes


def recover(
    log_dir: str | PathLike[str],
    partitions: Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    allow_truncate: bool = False,
    save_cut: str | PathLike[str] | None = None,
    trust_marker: bool = True,
    now_ms: int | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> RecoverReport:
    """
    Recover logs as a broker's loader would, and leave a clean-shutdown marker if all of them were recovered.

    Args:
        log_dir: the log dir.
        partitions: names; None: all of them.
        settings: as for `plan`.
        allow_truncate: let recovery cut more than the torn end of a last segment.
        save_cut: a directory outside of the log dir that keeps the bytes cut off.
        trust_marker: False recovers as if there were neither a clean-shutdown marker nor a recovery point: every
            segment is read. The marker is removed first, and written again only if all partitions were recovered.
        now_ms: idle producers expire by this moment; None: now.
        progress: called with what is being recovered, bytes done and total bytes.
        check_done: called before each partition; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        The recovered and the refused partitions.
    Raises:
        CleanerError: the log dir as a whole cannot be used. A refused partition is in the report.
    """
    from cleaner.app.recover_log_dir import recover_log_dir

    directory, cuts = arguments.path("log_dir", log_dir), arguments.optional_path("save_cut", save_cut)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    context = CallContext.of(fs, now_ms, progress, check_done)
    named = None if partitions is None else arguments.texts("partitions", partitions)
    return recover_log_dir(
        directory,
        named,
        sources,
        context,
        allow_truncate=arguments.flag("allow_truncate", allow_truncate),
        save_cut=cuts,
        trust_marker=arguments.flag("trust_marker", trust_marker),
    )


def erase(
    log_dir: str | PathLike[str],
    names: Sequence[str],
    keys: Iterable[bytes] = (),
    settings: Settings | None = None,
    *,
    prefixes: Iterable[bytes] = (),
    offsets: tuple[int, int] | None = None,
    dry_run: bool = False,
    punch: bool = False,
    kept: Sequence[str | PathLike[str]] = (),
    cut: Sequence[str | PathLike[str]] = (),
    index_dir: str | PathLike[str] | None = None,
    now_ms: int | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    warn: Callable[[str], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[EraseReport | Refusal]:
    """
    Erase the records of some keys, or of some offsets, from every place of a log dir. It cannot be undone.

    Give keys, or prefixes, or offsets.

    Args:
        log_dir: the log dir; no process may use it.
        names: of topics and partitions; with `offsets` of one partition.
        keys: whole keys of records.
        settings: as for `clean`.
        prefixes: every key that begins with one of them.
        offsets: the first and the last offset, both inclusive.
        dry_run: only count; nothing is written.
        punch: overwrite files before they are removed, and punch holes into them.
        kept: directories that `clean(keep_old=...)` has filled.
        cut: directories that `recover --save-cut` has filled.
        index_dir: of key indexes, if `clean` was given one.
        now_ms: the time by which idle producers are judged.
        progress: called with phase, bytes done and total bytes.
        check_done: called before each buffer; raises CleaningAborted to stop.
        warn: called with warnings.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        For each directory what was erased, or why it was refused.
    Raises:
        CleanerError: the log dir as a whole cannot be worked on, or a name is of no topic.
    """
    from cleaner.app.erase_log_dir import erase_log_dir
    from cleaner.app.erase_reports import EraseOptions, wanted_records

    path = arguments.path("log_dir", log_dir)
    given = arguments.texts("names", names)
    wanted = wanted_records(
        arguments.byte_strings("keys", keys),
        arguments.byte_strings("prefixes", prefixes),
        arguments.offset_range("offsets", offsets),
        given,
    )
    options = EraseOptions(
        dry_run=arguments.flag("dry_run", dry_run),
        punch=arguments.flag("punch", punch),
        kept=tuple(arguments.paths("kept", kept)),
        cut=tuple(arguments.paths("cut", cut)),
        index_dir=arguments.optional_path("index_dir", index_dir),
    )
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    context = CallContext.of(fs, now_ms, progress, check_done, warn)
    return list(erase_log_dir(path, given, wanted, sources, options, context))


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
    Put back the segments that `clean` kept with `keep_old`, and the earlier cleaner checkpoint.

    Args:
        kept_dir: the directory given as `keep_old`; segments put back are removed from it.
        settings: as for `plan`.
        check_done: called before each group; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        For each partition what was put back, or why nothing was, such as later appends or cleaning.
    Raises:
        CleanerError: the directory keeps nothing, or the log dir as a whole cannot be used.
    """
    from cleaner.app.undo_clean import undo_clean

    directory = arguments.path("kept_dir", kept_dir)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    return list(undo_clean(directory, sources, CallContext.of(fs, None, None, check_done)))


def warm() -> WarmReport:
    """
    Compile or load every kernel now: the machine code for cleaning, appending and reading.

    Kernels are compiled at their first call, once per machine, and kept where `cleaner warm --help` says; without this
    call the first append, the first read and the first cleaning wait for theirs, with a RuntimeWarning. Call it at
    installation, or when a process starts; if all are compiled it takes some tenths of a second.

    Raises:
        CleanerError: some were compiled and could not be kept: every start would compile them again.
    """
    return warm_kernels()
