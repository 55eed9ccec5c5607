"""
Exports of a topic in a directory, one after the other; the last whole one is the one that the manifest names.

Each has a directory of its own, `000007`. Its files are written and forced to disk there, then the manifest is
replaced, then the export before is removed. What an export that broke off has left is removed by the next.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cleaner.app.options import CallContext
from cleaner.base import arguments
from cleaner.base.concurrency import undisturbed
from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import is_remote
from cleaner.config.forms import given_survivor
from cleaner.errors import LogDirLockedError, UnknownTopicError, UsageError, forget_frames
from cleaner.exporting.manifest import (
    DIRECTORY,
    FILE,
    FORMS,
    ICEBERG,
    MANIFEST,
    Export,
    ExportedPartition,
    ExportedTable,
    last_export,
    manifest_in,
    version_in,
)
from cleaner.format.chunks import BATCH_DTYPE
from cleaner.format.layout import Layout
from cleaner.log.latest import Latest
from cleaner.log.reader import open_reader
from cleaner.log.topics import Topic, Topics
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.new_dir import make_durable_dir
from cleaner.storage.fs.remote import files_for
from cleaner.storage.lock.byte_ranges import TO_THE_END, WRITE, try_lock
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import LOCK
from cleaner.storage.which_dir import place_around, require_log_dir

if TYPE_CHECKING:
    import pyarrow as pa

_REMOTE_MODE = 0o750  # of a new directory, where the log dir has no mode


@dataclass(frozen=True)
class ExportOptions:
    """
    How to export; see `export`.

    Attributes:
        form: one of `FORMS`, or `ICEBERG`.
        changes: also what changed since the export before; Iceberg tables always have it.
        survivor: which record of a key is the last one.
    """

    form: str = "parquet"
    changes: bool = False
    survivor: str = "offset"


def export(
    log_dir: str | PathLike[str],
    topic: str,
    target: str | PathLike[str],
    *,
    form: str = "parquet",
    changes: bool = False,
    survivor: str = "offset",
    check_done: Callable[[], None] | None = None,
    fs: FileSystem | None = None,
) -> Export | ExportedTable:
    """
    Write the latest value of each key of a topic to a directory, as a table. Locks and changes nothing in the log dir.

    Needs the extra `export`, or `iceberg`. Each partition is exported as of a moment of its own, with what is committed
    then.

    Args:
        log_dir: the log dir, which may be in a bucket.
        topic: its name; all its partitions in this log dir.
        target: a directory of exports of this topic; made if it is not there.
        form: `parquet`, `jsonl`, or `iceberg`: a table that each export changes by one snapshot.
        changes: also write what changed since the export that is there: upserts and deletes. If there is none, all rows
            are upserts. Without effect for Iceberg, which always gets just the changes.
        survivor: which record of a key is the last one: the topic's `cleaner.survivor`.
        check_done: called often; raises CleaningAborted to stop.
        fs: the file system.
    Returns:
        The manifest, `target/manifest.json`; for Iceberg what the last snapshot says.
    Raises:
        UsageError: `log_dir` is no log dir; no such survivor rule; pyarrow or pyiceberg is missing; `target` is of
            another topic, or of the other kind.
        UnknownTopicError: there is no such topic, or, with `changes`, a partition that was exported is not there.
        CorruptCheckpointError: the manifest, or with `changes` a file of the export before, is damaged.
        LogDirLockedError: another export into `target` is at work.
        CorruptLogError: damage in the log; the export before stays.
    """
    directory = arguments.path("log_dir", log_dir, may_be_remote=True)
    options = ExportOptions(
        arguments.one_of("form", form, (*FORMS, ICEBERG)),
        arguments.flag("changes", changes),
        survivor,
    )
    name, place = arguments.text("topic", topic), arguments.path("target", target)
    context = CallContext.of(files_for(fs, directory), None, None, check_done)
    return export_topic(directory, name, place, options, context)


def export_topic(
    log_dir: Path, name: str, target: Path, options: ExportOptions, context: CallContext
) -> Export | ExportedTable:
    """Export a topic; see `export`."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise UsageError("export needs pyarrow: pip install 'kafka-log-cleaner[export]'") from None
    if options.form == ICEBERG:
        try:
            undisturbed(lambda: [import_module(name) for name in ("pyiceberg.table", "cleaner.exporting.iceberg")])
        except ImportError:
            raise UsageError("an Iceberg table needs pyiceberg: pip install 'kafka-log-cleaner[iceberg]'") from None
    given_survivor(options.survivor)
    fs = context.fs
    require_log_dir(fs, log_dir)
    topics = Topics(fs, [LogDir(fs, log_dir)], context.clock)
    topic = topics.find(name)
    for sentence in topics.left_out(name):
        context.warn(sentence)
    with _held(fs, target, log_dir) as place:
        is_iceberg = options.form == ICEBERG
        if fs.exists(place / MANIFEST) if is_iceberg else version_in(fs, place):
            raise UsageError(
                f"{place}: holds exports {'with a manifest' if is_iceberg else 'to an Iceberg table'}; give "
                "the other form a directory of its own"
            )
        if is_iceberg:
            return _to_table(log_dir, place, topic, options, context)
        before = last_export(fs, place)
        if before is not None and before.topic != name:
            raise UsageError(f"{place}: holds exports of the topic {before.topic}; give {name} a directory of its own")
        kept = "" if before is None else _directory(before.number)
        _remove_all_but(fs, place, kept)
        number = 1 if before is None else before.number + 1
        while fs.exists(place / _directory(number)):
            number += 1  # other files are in it
        writer = _Writer(log_dir, place, place / _directory(number), before if options.changes else None, options)
        try:
            done = writer.write(topic.partitions, context)
        except BaseException as error:
            forget_frames(error)  # a damaged chunk knows its error
            _remove_all_but(fs, place, kept)
            raise
        since = before.number if options.changes and before is not None else None
        made = Export(name, str(log_dir), options.form, number, context.clock.now_ms(), since, done)
        manifest_in(fs, place).save(made)
        _remove_all_but(fs, place, _directory(number))
        return made


def _directory(number: int) -> str:
    return f"{number:06}"


@contextmanager
def _held(fs: FileSystem, target: Path, log_dir: Path) -> Iterator[Path]:
    """Hold a directory of exports, alone, for a `with` block; it is made if it is not there."""
    place = real_path(target)
    around = place_around(fs, place) or (log_dir if place.is_relative_to(real_path(log_dir)) else None)
    if around is not None:
        raise UsageError(f"{place}: inside of {around}, where each directory is a partition; name one outside")
    if not fs.exists(place.parent):
        raise UsageError(f"{place}: {place.parent} is not there, to make it in")
    mode = _REMOTE_MODE if is_remote(log_dir) else stat.S_IMODE(fs.stat_followed(log_dir).st_mode)
    make_durable_dir(fs, place, mode & 0o777)
    with ExitStack() as stack:
        stack.enter_context(fs.hold(place))
        try:
            file = fs.open(place / LOCK, write=True)
        except FileNotFoundError:
            file = fs.create(place / LOCK, like=place)
        stack.enter_context(file)
        if not try_lock(file, WRITE, 0, TO_THE_END):
            raise LogDirLockedError(f"{place}: another export into it is at work")
        yield place


def _remove_all_but(fs: FileSystem, place: Path, kept: str) -> None:
    """Remove the directories of exports, except one; nothing that is of no export."""
    for directory in (place / name for name in fs.list_dirs(place)):
        if directory.name == kept or not DIRECTORY.fullmatch(directory.name):
            continue
        found = fs.list_dir(directory)
        for name in filter(FILE.fullmatch, found):
            fs.remove(directory / name)
        if all(map(FILE.fullmatch, found)):
            fs.remove_dir(directory)


class _Writer:
    """
    Writes the files of one export.

    Args:
        log_dir: the log dir.
        place: the directory of exports.
        directory: that of this export, not there yet.
        before: the export to compare with; None: there is none, or changes are not asked for.
        options: how.
    """

    def __init__(
        self, log_dir: Path, place: Path, directory: Path, before: Export | None, options: ExportOptions
    ) -> None:
        self._log_dir = log_dir
        self._place = place
        self._directory = directory
        self._before = before
        self._options = options

    def write(self, partitions: tuple[TopicPartition, ...], context: CallContext) -> tuple[ExportedPartition, ...]:
        """Write and force to disk all files."""
        fs, old = context.fs, {}
        if self._before is not None:
            old = {each.partition: each for each in self._before.partitions}
            _require_all(old, partitions, self._before.source, self._log_dir, "an export without --changes begins anew")
        fs.make_dir(self._directory, stat.S_IMODE(fs.stat(self._place).st_mode), like=self._place)
        done = tuple(self._partition(each, old.get(each.partition), context) for each in partitions)
        fs.fsync_dir(self._directory)
        fs.fsync_dir(self._place)
        return done

    def _partition(
        self, partition: TopicPartition, old: ExportedPartition | None, context: CallContext
    ) -> ExportedPartition:
        from cleaner.exporting.changes import Changes
        from cleaner.exporting.forms import TableWriter, read_table

        fs, options, number = context.fs, self._options, partition.partition
        rows: Iterator[pa.RecordBatch] = iter(())
        if old is not None and self._before is not None:
            rows = read_table(fs, self._place, old.table, self._before.form)
        with ExitStack() as stack:
            names = ("table", "upserts", "deletes") if options.changes else ("table",)
            files = {
                name: stack.enter_context(
                    TableWriter(fs, self._directory, f"{name}-{number:05}", options.form, partition.topic)
                )
                for name in names
            }
            latest = stack.enter_context(_latest(self._log_dir, partition, options, context))
            changes = Changes(rows) if options.changes else None
            for batch in _batches(partition, latest):
                files["table"].write(batch)
                if changes is not None:
                    files["upserts"].write(batch if old is None else changes.upserts(batch))
            if changes is not None:
                for batch in changes.deletes(number):
                    files["deletes"].write(batch)
            finished = {name: file.finish() for name, file in files.items()}
            return ExportedPartition(number, latest.next_offset, **finished)


def _to_table(log_dir: Path, place: Path, topic: Topic, options: ExportOptions, context: CallContext) -> ExportedTable:
    from cleaner.exporting.iceberg import IcebergTable

    table = IcebergTable(context.fs, place, topic.name)
    _require_all(
        table.partitions, topic.partitions, table.source, log_dir, "an export into another directory begins anew"
    )
    reached = []
    for each in topic.partitions:
        with _latest(log_dir, each, options, context) as latest:
            table.replace(each.partition, _batches(each, latest))
            reached.append((each.partition, latest.next_offset))
    return table.commit(str(log_dir), reached)


def _require_all(
    old: Iterable[int], partitions: tuple[TopicPartition, ...], source: str, log_dir: Path, anew: str
) -> None:
    """Raise if a partition that was exported is gone."""
    if lost := sorted(set(old) - {each.partition for each in partitions}):
        raise UnknownTopicError(
            str(TopicPartition(partitions[0].topic, lost[0])),
            f"was exported from {source} and is not in {log_dir}: its keys would count as deleted; {anew}",
        )


@contextmanager
def _latest(log_dir: Path, each: TopicPartition, options: ExportOptions, context: CallContext) -> Iterator[Latest]:
    reader = open_reader(log_dir, each.topic, each.partition, fs=context.fs, clock=context.clock)
    with reader, reader.latest(survivor=options.survivor) as latest:
        latest.check_done = context.check_done
        yield latest


def _batches(partition: TopicPartition, latest: Latest) -> Iterator[pa.RecordBatch]:
    """Yield the last records of all keys that have a value, in offset order."""
    from cleaner.exporting.forms import COLUMNS
    from cleaner.spark.source.arrow import ArrowRows, RecordBatches

    collected = RecordBatches(COLUMNS)
    no_batches, none = np.empty(0, BATCH_DTYPE), np.empty(0, np.uint8)  # no column is of these
    for columns in latest.columns():
        layout = Layout(*(getattr(columns, name) for name in Layout.__dataclass_fields__))
        yield from collected.add(ArrowRows(partition, Path(), layout, no_batches, none))
    yield from collected.finish()
