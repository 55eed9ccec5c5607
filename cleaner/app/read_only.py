"""
The cleaner as a library, for one call: what those commands do that lock and change nothing.

The caller gives everything; nothing is kept between calls; the caller handles logs and signals. Each function imports
what it needs when it is called: `plan` does not wait for the kernels of `clean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cleaner.app.options import (
    CallContext,
    HighWatermark,
    Progress,
    Sampling,
    require_high_watermark,
    require_recompression,
)
from cleaner.app.plan_report import PlanEntry
from cleaner.app.reports import Refusal
from cleaner.base import arguments
from cleaner.base.arguments import Settings
from cleaner.errors import UsageError
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    # These modules load kernels.
    from cleaner.app.check_log_dir import CheckReport
    from cleaner.app.gaps_log_dir import GapReport
    from cleaner.app.replay_log_dirs import ReplayReport
    from cleaner.app.replicas_report import ReplicasReport
    from cleaner.app.verify_log_dirs import VerifyReport
    from cleaner.app.who_log_dir import WhoReport
    from cleaner.verification.proof.erased.certificate import Certificate


def plan(
    log_dir: str | PathLike[str],
    settings: Settings | None = None,
    *,
    now_ms: int | None = None,
    high_watermark: HighWatermark = "checkpoint",
    sampling: Sampling | None = None,
    recompress: str | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[PlanEntry]:
    """
    List every partition of a log dir with its policy, its sizes and whether it is due. Locks and changes nothing.

    Args:
        log_dir: the log dir.
        settings: like a `server.properties`: broker settings, which apply to topics without their own settings.
        now_ms: the moment to judge by; None: now.
        high_watermark: as for `clean`.
        sampling: also estimate what cleaning would do, from samples; None: do not.
        recompress: as for `clean`.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        CleanerError: the log dir as a whole cannot be read. An error of one partition is in its entry.
    """
    from cleaner.app.plan_log_dir import plan_log_dir

    directory = arguments.path("log_dir", log_dir, may_be_remote=True)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    context = CallContext.of(files_for(fs, directory), now_ms)
    require_high_watermark(high_watermark)
    if sampling is not None and not isinstance(sampling, Sampling):
        raise UsageError(f"sampling is a {type(sampling).__name__}; a cleaner.Sampling or None is needed")
    if sampling is not None and sampling.most_bytes is not None:
        arguments.whole("sampling.most_bytes", sampling.most_bytes, 1)
    require_recompression(recompress)
    return plan_log_dir(
        directory, sources, context, high_watermark=high_watermark, sampling=sampling, recompress=recompress
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
    Read every byte of log dirs or partition directories, and report damage.

    Args:
        paths: a log dir or a partition's directory, or several; several log dirs are treated as those of one broker.
        settings: as for `plan`.
        clean_section: also look for keys that occur twice below `cleaner-offset-checkpoint`.
        repair: rebuild files that intact `.log` files determine, under the lock for cleaning; otherwise nothing is
            written.
        memory_bytes: for digests of keys, with `clean_section`; None: 256 MiB.
        now_ms: idle producers expire by this moment, with `repair`; None: now.
        progress: called with phase, bytes done and total bytes.
        check_done: called before each chunk; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        UsageError: a path is neither a log dir nor a partition's directory.
        LogDirLockedError: with `repair`, another process is at work.
        CleanerError: a log dir as a whole cannot be read. An error of one partition is in the report.
    """
    from cleaner.app.check_log_dir import CheckOptions, check_all
    from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES

    named = [paths] if isinstance(paths, str | PathLike) else paths
    directories = [arguments.path("paths", path, may_be_remote=not repair) for path in named]
    if not directories:
        raise UsageError("paths is empty; name a log dir or a partition's directory")
    options = CheckOptions(
        clean_section=arguments.flag("clean_section", clean_section),
        repair=arguments.flag("repair", repair),
        memory_bytes=DEFAULT_MEMORY_BYTES if memory_bytes is None else arguments.whole("memory_bytes", memory_bytes, 1),
    )
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    return check_all(
        directories, sources, CallContext.of(files_for(fs, *directories), now_ms, progress, check_done), options
    )


def gaps(
    log_dir: str | PathLike[str],
    partition: str | None = None,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[GapReport | Refusal]:
    """
    Account for every offset of partitions: it has a record, or a reason why it has none. Locks and changes nothing.

    Args:
        log_dir: the log dir, or a partition's directory.
        partition: the only one to read, by its directory's name, `prices-0`; None: all of them.
        settings: with a partition as for `clean`, without one as for `plan`. `cleanup.policy` is what matters: in a
            topic that is known to be never compacted a hole is a loss.
        progress: called with phase, bytes done and total bytes.
        check_done: called before each chunk; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        The account of each partition, or why it cannot be read.
    Raises:
        UsageError: there is no such directory or partition.
        CleanerError: the log dir as a whole cannot be read.
    """
    from cleaner.app.gaps_log_dir import gaps_log_dir

    directory, names, sources = _of_one_or_all(
        log_dir, partition, settings, topics_dir, metadata_dir, may_be_remote=True
    )
    context = CallContext.of(files_for(fs, directory), None, progress, check_done)
    return list(gaps_log_dir(directory, sources, context, names))


def who(
    log_dir: str | PathLike[str],
    partition: str | None = None,
    settings: Settings | None = None,
    *,
    sample_bytes: int | None = None,
    top: int = 10,
    now_ms: int | None = None,
    high_watermark: HighWatermark = "checkpoint",
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[WhoReport | Refusal]:
    """
    Say whose bytes a log dir holds, live and dead, from samples; what `plan --who` does. Locks and changes nothing.

    Args:
        log_dir: the log dir.
        partition: the only one to read, by its directory's name, `prices-0`; None: all of them.
        settings: with a partition as for `clean`, without one as for `plan`.
        sample_bytes: how much of each partition to read; None: 64 MiB, less if there are more than 64 partitions. A
            partition that is not larger is read whole, and its figures are exact.
        top: how many names of each kind.
        now_ms: the moment from which ages are counted; None: now.
        high_watermark: as for `clean`.
        progress: called with phase, bytes done and total bytes.
        check_done: called often; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        A report of each topic, and of each partition that cannot be read why.
    Raises:
        UsageError: there is no such directory or partition.
        CleanerError: the log dir as a whole cannot be read.
    """
    from cleaner.app.who_log_dir import who_log_dir

    directory, names, sources = _of_one_or_all(log_dir, partition, settings, topics_dir, metadata_dir)
    require_high_watermark(high_watermark)
    outcomes = who_log_dir(
        directory,
        sources,
        CallContext.of(fs, now_ms, progress, check_done),
        partitions=names,
        high_watermark=high_watermark,
        sample_bytes=None if sample_bytes is None else arguments.whole("sample_bytes", sample_bytes, 1),
        top=arguments.whole("top", top, 1),
    )
    return list(outcomes)


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
    recompressed: bool = False,
    memory_bytes: int = 1 << 30,
    temp_dir: str | PathLike[str] | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> VerifyReport:
    """
    Prove that one partition is a possible result of cleaning another. Locks and changes nothing.

    Args:
        before: the log dir before cleaning, or the directory given to `clean` as `keep_old`.
        after: the log dir now.
        partition: its directory's name, in both; None: `before` and `after` are two directories of one partition.
        settings: as for `clean`.
        end_offset: the end of the cleaned range, exclusive; None: from `cleaner-offset-checkpoint`.
        now_ms: the moment of the round, or of the last of several; None: any moment up to now.
        since_ms: the moment of the first of several rounds.
        delete_retention_ms: None: from the topic's settings.
        recompressed: rounds may have packed batches in another way (`recompress`).
        memory_bytes: for sorting, 200 bytes per record; the rest goes to a file.
        temp_dir: where that file is made; None: the system's directory for temporary files.
        progress: called with phase, bytes done and total bytes.
        check_done: called often; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        `is_proven`, and what is wrong otherwise.
    Raises:
        CleanerError: one of the two cannot be read.
    """
    import tempfile

    from cleaner.app.session import parse_names
    from cleaner.app.verify_log_dirs import VerifyOptions, verify_log_dirs

    old = arguments.path("before", before, may_be_remote=True)
    new = arguments.path("after", after, may_be_remote=True)
    name = None if partition is None else arguments.text("partition", partition)
    moments = {"now_ms": now_ms, "since_ms": since_ms}
    options = VerifyOptions(
        end_offset=None if end_offset is None else arguments.whole("end_offset", end_offset, 0),
        **{key: None if value is None else arguments.moment_ms(key, value) for key, value in moments.items()},
        delete_retention_ms=(
            None if delete_retention_ms is None else arguments.whole("delete_retention_ms", delete_retention_ms, 0)
        ),
        recompressed=arguments.flag("recompressed", recompressed),
        memory_bytes=arguments.whole("memory_bytes", memory_bytes, 1),
        temp_dir=arguments.optional_path("temp_dir", temp_dir) or Path(tempfile.gettempdir()),
    )
    sources = Sources.of_call(parse_names([name])[0].topic if name else None, settings, topics_dir, metadata_dir)
    context = CallContext.of(files_for(fs, old, new), None, progress, check_done)
    outcomes = list(verify_log_dirs(old, new, sources, context, options, [name] if name else []))
    if len(outcomes) != 1:
        raise UsageError(f"{new}: holds {len(outcomes)} partitions; name one of them")
    if isinstance(outcomes[0], Refusal):
        raise outcomes[0].error
    return outcomes[0]


def check_replicas(
    directories: Sequence[str | PathLike[str]],
    partitions: Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    safe_tombstones: str | PathLike[str] | None = None,
    memory_bytes: int = 1 << 30,
    now_ms: int | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[ReplicasReport | Refusal]:
    """
    Compare replicas of partitions that were cleaned at different times. Locks and changes nothing.

    Args:
        directories: log dirs of different brokers or copies of them, or directories of one partition.
        partitions: names; None: all that are in more than one of the directories.
        settings: as for `plan`.
        safe_tombstones: a file to write, for `clean`: below which offset each partition's tombstones may go.
        memory_bytes: for sorting, 200 bytes per record; the rest goes to a file.
        now_ms: the moment that the file names; None: now.
        progress: called with phase, bytes done and total bytes.
        check_done: called often; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        For each partition what the replicas disagree about, or why one of them cannot be read.
    Raises:
        CleanerError: a directory as a whole cannot be read, or there is nothing to compare.
    """
    from cleaner.app.replicas import ReplicaOptions, compare_all

    if not isinstance(directories, Sequence) or isinstance(directories, str | bytes):
        raise UsageError(f"directories is {directories!r}; several are needed")
    return compare_all(
        [arguments.path("directories", each) for each in directories],
        [] if partitions is None else arguments.texts("partitions", partitions),
        Sources.of_call(None, settings, topics_dir, metadata_dir),
        CallContext.of(fs, now_ms, progress, check_done),
        ReplicaOptions(memory_bytes=arguments.whole("memory_bytes", memory_bytes, 1)),
        arguments.optional_path("safe_tombstones", safe_tombstones),
    )


def prove_erased(
    directories: Sequence[str | PathLike[str]],
    keys: Iterable[bytes] = (),
    *,
    prefixes: Iterable[bytes] = (),
    topics: Sequence[str] | None = None,
    mentions: Literal["note", "found", "off"] = "note",
    salt: bytes | None = None,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
) -> Certificate:
    """
    Search every byte of every file of some directories for keys of records. Locks and changes nothing.

    Args:
        directories: log dirs, kept copies, state dirs: anything.
        keys: whole keys of records; all in memory.
        prefixes: every key that begins with one of them is looked for, too.
        topics: the only ones whose records count; None: all.
        mentions: keys within values and headers of other records: `note` lists them, `found` lets them refute, `off`
            does not look for them.
        salt: for the digests by which the certificate names keys; None: it names none.
        progress: called with a file, bytes done and total bytes.
        check_done: called before each chunk; raises CleaningAborted to stop.
        fs: the file system.
    Returns:
        The certificate; `is_proven`, and `document()` for `json.dump`.
    Raises:
        UsageError: there is no such directory, or no file in it, or nothing to look for.
    """
    from cleaner.app.erasure_proof import Wanted
    from cleaner.app.erasure_proof import prove_erased as prove

    if isinstance(directories, str | bytes | PathLike):
        raise UsageError(f"directories is {directories!r}; several are needed: [{directories!r}]")
    places = [arguments.path("directories", each, may_be_remote=True) for each in directories]
    if salt is not None and not isinstance(salt, bytes):
        raise UsageError(f"salt is a {type(salt).__name__}; bytes are needed")
    arguments.one_of("mentions", mentions, ("note", "found", "off"))
    wanted = Wanted(
        keys=arguments.byte_strings("keys", keys),
        prefixes=arguments.byte_strings("prefixes", prefixes),
        topics=None if topics is None else arguments.texts("topics", topics),
        mentions=mentions,
        salt=salt,
    )
    return prove(places, wanted, CallContext.of(files_for(fs, *places), None, progress, check_done))


def replay(
    before: str | PathLike[str],
    after: str | PathLike[str],
    kind: str = "auto",
    partitions: Sequence[str] | None = None,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
    topics_dir: str | PathLike[str] | None = None,
    metadata_dir: str | PathLike[str] | None = None,
) -> list[ReplayReport | Refusal]:
    """
    Compare what the readers of internal topics make of two logs, as `verify --as` does. Locks and changes nothing.

    Args:
        before, after: as for `verify`.
        kind: `groups`, `share-state`, `transactions`, `schemas`, `connect`, or `auto`: each topic by its usual name.
        partitions: names of directories, of topics of any name; None: all of the kind.
        settings: as for `plan`.
        progress: called with phase, bytes done and total bytes.
        check_done: called often; raises CleaningAborted to stop.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Returns:
        For each partition the differences of the two states, or why it cannot be read.
    Raises:
        CleanerError: a directory as a whole cannot be read, or has no such topic.
    """
    from cleaner.app.replay_log_dirs import KINDS, replay_log_dirs

    old, new = arguments.path("before", before), arguments.path("after", after)
    wanted = arguments.one_of("kind", kind, KINDS)
    names = [] if partitions is None else arguments.texts("partitions", partitions)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    context = CallContext.of(fs, None, progress, check_done)
    return list(replay_log_dirs(old, new, wanted, sources, context, names))


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
    Explain why one log is, or is not, due for cleaning. Locks and changes nothing.

    The entry is that of `plan`: `why` is one word, `reason` has the figures, and `bounds` and `settings` explain it.

    Args:
        log_dir: the log dir.
        partition: its directory's name, `prices-0`.
        settings: as for `plan`.
        now_ms: the moment to judge by; None: now.
        high_watermark: as for `clean`.
        fs: the file system.
        topics_dir, metadata_dir: as for `clean`.
    Raises:
        UsageError: the log dir has no such partition.
        CleanerError: the log dir as a whole cannot be read. An error of the partition is in the entry.
    """
    from cleaner.app.plan_log_dir import plan_log_dir

    directory, name = arguments.path("log_dir", log_dir), arguments.text("partition", partition)
    sources = Sources.of_call(None, settings, topics_dir, metadata_dir)
    context = CallContext.of(fs, now_ms)
    require_high_watermark(high_watermark)
    (entry,) = plan_log_dir(
        directory, sources, context, partitions=[name], high_watermark=high_watermark, as_if_all=True
    )
    return entry


def _of_one_or_all(
    log_dir: str | PathLike[str],
    partition: str | None,
    settings: Settings | None,
    topics_dir: str | PathLike[str] | None,
    metadata_dir: str | PathLike[str] | None,
    *,
    may_be_remote: bool = False,
) -> tuple[Path, list[str] | None, Sources]:
    """Return the directory, the only partition by its name (None: all), and where settings come from."""
    from cleaner.app.session import parse_names

    names = None if partition is None else [arguments.text("partition", partition)]
    topic = parse_names(names)[0].topic if names else None
    directory = arguments.path("log_dir", log_dir, may_be_remote=may_be_remote)
    return directory, names, Sources.of_call(topic, settings, topics_dir, metadata_dir)
