"""
`serve --compacted`: compacted topics as if they had just been cleaned, in copies that last as long as they are served.

Each partition is copied, recovered and cleaned by itself, by the same code as `recover` and `clean`, in a log dir of
its own below a scratch directory. It ends at the high watermark, and an empty segment behind it makes all of it
cleanable, up to the first open transaction: from there on records stay as they are, as in any round. The log dirs that
are served are only read.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions, Rounds, ignore_warning
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import Refusal
from cleaner.app.session import attempt
from cleaner.base.model import TopicPartition
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.errors import LogChangedError, LogDirOfflineError, UsageError
from cleaner.read.directory_view import DirectoryView
from cleaner.read.extent import find_extent
from cleaner.read.held_files import HeldFiles
from cleaner.read.partition_files import PartitionFiles
from cleaner.serve.catalog import Catalog
from cleaner.serve.partition import Partition
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import File, FileSystem, real_path
from cleaner.storage.lock.scratch_dir import scratch_dir
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment.names import LEADER_EPOCHS, LOG, PARTITION_METADATA, segment_file_name
from cleaner.storage.swap.backup import write_range
from cleaner.storage.which_dir import place_around

_LAG = "min.compaction.lag.ms"
_ROUNDS: Rounds = "all"
_PIECE_BYTES = 64 << 20
_ALL = 2**63 - 1
_DIRECTORY_MODE = 0o700
_PREFIX = "cleaner-serve-"


@contextlib.contextmanager
def compacted_copies(
    catalog: Catalog,
    settings: Mapping[Path, SettingsResolver],
    sources: Sources,
    context: CallContext,
    scratch: Path | None,
) -> Iterator[dict[TopicPartition, Path | None]]:
    """
    Make a cleaned copy of each partition of a compacted topic, for the length of a `with` block.

    Args:
        catalog: what is served.
        settings: of each log dir.
        sources: of these settings.
        context: warnings are of partitions that cannot be cleaned.
        scratch: an existing directory for the copies; None: the system's for temporary files.
    Returns:
        The log dir in which each copy is; None: it could not be made.
    Raises:
        UsageError: `scratch` cannot be used; no topic is compacted.
        ConfigError: a bad setting.
        CleaningAborted: raised by `context.check_done`; nothing is left.
    """
    todo = {
        each: sets
        for topic in catalog.topics.values()
        for each in topic.partitions.values()
        if (sets := _sets_of(context.fs, each, settings[each.log_dir])) is not None
    }
    if not todo:
        raise UsageError(
            "--compacted: no topic here is known to be compacted; name those that are: "
            "--set TOPIC:cleanup.policy=compact"
        )
    around = None if scratch is None else place_around(context.fs, scratch)
    if around is not None:
        raise UsageError(f"--scratch {scratch}: inside of {around}; name a directory outside")
    with contextlib.ExitStack() as stack:
        base = Path(tempfile.gettempdir()) if scratch is None else scratch
        try:
            made = stack.enter_context(scratch_dir(context.fs, real_path(base), _PREFIX))
        except LogDirOfflineError as error:
            raise UsageError(f"--scratch {base}: {error.cause.strerror}") from error
        others = tuple(each for each in sources.sets if each.key not in TOPIC_SETTINGS)
        found: dict[TopicPartition, Path | None] = {}
        for each, sets in todo.items():
            place = made / str(len(found))
            own = replace(sources, sets=(*others, *sets))
            done = attempt(each.topic_partition, each.directory, partial(_make_one, each, place, own, context))
            if isinstance(done, Refusal):
                reason = str(done.error).replace(str(place), str(each.log_dir))  # the copy has the same files
                context.warn(f"{each.topic_partition} is not served, because it cannot be cleaned: {reason}")
            found[each.topic_partition] = None if isinstance(done, Refusal) else place
        yield found


def _sets_of(fs: FileSystem, partition: Partition, settings: SettingsResolver) -> list[SetOption] | None:
    """Return the settings of a partition's topic, for its copy; None: it is not compacted."""
    topic = partition.topic_partition.topic
    resolved = settings.topic(topic, read_topic_id(fs, partition.directory / PARTITION_METADATA))
    if not resolved.config.compact:
        return None
    values = {**resolved.values, _LAG: "0"}
    return [SetOption(topic, key, value) for key, value in values.items()]


def _make_one(partition: Partition, target: Path, own: Sources, context: CallContext) -> Refusal | None:
    """Make a log dir with a cleaned copy of one partition, or return why that cannot be."""
    fs, quiet, topic_partition = context.fs, replace(context, warn=ignore_warning), partition.topic_partition
    directory = target / str(topic_partition)
    for each in (target, directory):
        fs.make_dir(each, _DIRECTORY_MODE)
    end = _copy(fs, partition.log_dir, topic_partition, directory, context)
    report = recover_log_dir(target, None, own, quiet)
    if report.refused:
        return report.refused[0]
    _roll(fs, directory, max(end, report.partitions[0].log_end_offset))
    options = CleanOptions(rounds=_ROUNDS, use_index=False)
    (outcome,) = clean_log_dir(target, [str(topic_partition)], own, options, quiet)
    return outcome if isinstance(outcome, Refusal) else None


def _roll(fs: FileSystem, directory: Path, log_end_offset: int) -> None:
    """Begin an empty segment, so that the active one becomes cleanable."""
    path = directory / segment_file_name(log_end_offset, LOG)
    if not fs.exists(path):
        fs.create(path, like=directory).close()


def _copy(fs: FileSystem, log_dir: Path, topic_partition: TopicPartition, directory: Path, context: CallContext) -> int:
    """
    Copy what can be read at one moment, without indexes, and what the log dir says of it; returns the high watermark.

    The first open transaction begins a segment of its own: a round ends at the beginning of a segment.
    """
    with closing(PartitionFiles(fs, log_dir, topic_partition, context.clock)) as files:
        with closing(DirectoryView(files)) as view:
            start, stable, end = view.log_start_offset, view.last_stable_offset, view.high_watermark
        listing, held = files.open_all(lambda listing: HeldFiles.hold(files, listing))
        with closing(held):
            stable_at, end_at = _place_of(held, stable), _place_of(held, end)
            for place in listing.places:
                size = end_at.position if place.base_offset == end_at.base_offset else _ALL
                if place.base_offset > end_at.base_offset or (size == 0 and place is not listing.places[0]):
                    break
                source = cast("File", held.open(listing, place).file)
                size = min(size, source.size())
                is_split = place.base_offset == stable_at.base_offset and 0 < stable_at.position < size
                head = stable_at.position if is_split else size
                context.progress(f"{topic_partition} copy", place.base_offset - start, end - start)
                with fs.create(directory / segment_file_name(place.base_offset, LOG), like=directory) as copy:
                    for done in range(0, head, _PIECE_BYTES):
                        context.check_done()
                        copy.copy_from(source, min(_PIECE_BYTES, head - done), done)
                if is_split:
                    target = directory / segment_file_name(stable, LOG)
                    write_range(fs, source, head, size - head, target, like=directory)
            if not held.is_uncut():
                raise LogChangedError(f"{files.directory}: its writer has cut it while it was copied; start again")
    for name in (LEADER_EPOCHS, PARTITION_METADATA):
        with contextlib.suppress(FileNotFoundError):
            fs.write_atomically(directory / name, fs.read_bytes(files.directory / name))
    lines = LogDir(fs, directory.parent)
    lines.put(OffsetKind.HIGH_WATERMARK, topic_partition, end)
    lines.put(OffsetKind.LOG_START, topic_partition, start or None)
    return end


class _Place(NamedTuple):
    base_offset: int
    position: int


def _place_of(held: HeldFiles, offset: int) -> _Place:
    """Return the segment and the position of the first batch from an offset on; behind everything without one."""
    extent = find_extent(held, offset, _ALL, 1, whole_batch=True)
    return _Place(_ALL, 0) if extent is None else _Place(extent.segment.base_offset, extent.position)
