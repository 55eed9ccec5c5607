"""
A topic as an Iceberg table in a directory, each export one snapshot of it.

The table is kept as Iceberg's own catalog of directories keeps it, which needs no database:

    metadata/v7.metadata.json      the table as of the seventh export; the highest number is the truth
    metadata/version-hint.text     "7", for readers that do not look for the highest number
    metadata/*.avro                which data files a snapshot has
    data/partition=0/*.parquet     rows of a partition, ascending by offset; ranges of files do not overlap

An export writes data files, then lists of them, all forced to disk; then the new metadata file gets its name, which is
the commit. What an export reached is in the properties of its snapshot, so it is committed with it. A data file stays
as it is if the new table has the same rows in its range of offsets; otherwise those rows go to new files. Two snapshots
are kept, for readers of the one before; other files of ours are removed, as are those of an export that broke off.
"""

from __future__ import annotations

import io
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from cleaner.errors import CleanerError, CorruptCheckpointError, UsageError
from cleaner.exporting.changes import Changes, InOrder
from cleaner.exporting.forms import COLUMNS, GROUP_BYTES, GROUP_ROWS, SCHEMA
from cleaner.exporting.manifest import METADATA_FILE, ExportedTable, version_in
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from cleaner.storage.fs.stream import Stream

_OFFSET, _PARTITION = 3, 5
_HEADER = StructType(NestedField(8, "key", StringType()), NestedField(9, "value", BinaryType()))
# Numbers of columns are in every data file, and never change.
_SCHEMA = Schema(
    NestedField(1, "key", BinaryType(), required=True),
    NestedField(2, "value", BinaryType(), required=True),
    NestedField(_OFFSET, "offset", LongType(), required=True),
    NestedField(4, "timestamp", TimestamptzType()),
    NestedField(_PARTITION, "partition", IntegerType(), required=True),
    NestedField(6, "headers", ListType(7, _HEADER, element_required=False)),
    identifier_field_ids=[1, _PARTITION],
)
_ARROW = schema_to_pyarrow(_SCHEMA)
_SPEC = PartitionSpec(PartitionField(_PARTITION, 1000, IdentityTransform(), "partition"))
_TOPIC, _SOURCE, _REACHED = "cleaner.topic", "cleaner.source", "cleaner.next-offsets"
_PROPERTIES = {"write.metadata.previous-versions-max": "1"}

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Names that exports give: what has none of them is left alone.
_OF_METADATA = re.compile(rf"v[0-9]+\.metadata\.json|(snap-[0-9]+-[0-9]+-)?{_UUID}(-m[0-9]+)?\.avro")
_OF_DATA = re.compile(rf"{_UUID}\.parquet")
HINT = "version-hint.text"
_END = 1 << 63
_YEAR_10000 = 253_402_300_800_000_000  # microseconds since 1970
# pyiceberg cannot read bounds of later ones.
_LATE = {"write.metadata.metrics.column.timestamp": "counts"}
_ANEW = "an export into another directory begins anew"


class _Stream(Stream):
    """A stream that closes its file, and forces a new one to disk before."""

    def __init__(self, file: File, *, is_new: bool) -> None:
        super().__init__(file)
        self._is_new = is_new

    def close(self) -> None:
        if not self.closed:
            super().close()
            with self._file:
                if self._is_new:
                    self._file.fsync()


class _Input(InputFile):
    def __init__(self, location: str, fs: FileSystem, path: Path) -> None:
        super().__init__(location)
        self._fs, self._path = fs, path

    def __len__(self) -> int:
        return self._fs.stat(self._path).st_size

    def exists(self) -> bool:
        return self._fs.exists(self._path)

    def open(self, seekable: bool = True) -> Any:
        return io.BufferedReader(_Stream(self._fs.open(self._path), is_new=False))


class _Output(_Input, OutputFile):
    def to_input_file(self) -> InputFile:
        return _Input(self._location, self._fs, self._path)

    def create(self, overwrite: bool = False) -> Any:
        if not self._fs.exists(self._path.parent):
            above = self._path.parent.parent
            self._fs.make_dir(self._path.parent, stat.S_IMODE(self._fs.stat(above).st_mode), like=above)
        return _Stream(self._fs.create(self._path, like=self._path.parent), is_new=True)


class _Files(FileIO):
    """Files of a table, through our file system; none outside of its directory."""

    def __init__(self, fs: FileSystem, place: Path) -> None:
        super().__init__()
        self._fs, self._place = fs, place

    def path(self, location: str) -> Path:
        path = Path(location.removeprefix("file://"))
        if not path.is_relative_to(self._place) or ".." in path.parts:
            raise CorruptCheckpointError(self._place, 0, f"names a file that is not in it, {location}; {_ANEW}")
        return path

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._fs, self.path(location))

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self._fs, self.path(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._fs.remove(self.path(location if isinstance(location, str) else location.location))


class _Catalog(NoopCatalog):
    """The catalog of one directory: a commit is the name of the next metadata file."""

    def __init__(self, fs: FileSystem, place: Path) -> None:
        super().__init__("cleaner")
        self._fs, self._place = fs, place

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the next metadata file; all that it leads to is on disk before."""
        for each in requirements:
            each.validate(table.metadata)
        made = update_table_metadata(table.metadata, updates, metadata_location=table.metadata_location or None)
        path = self._place / "metadata" / f"v{_number(table) + 1}.metadata.json"
        # Names of the files that it leads to come before its own.
        data = self._place / "data"
        for directory in (*(data / name for name in self._fs.list_dirs(data)), data, path.parent, self._place):
            self._fs.fsync_dir(directory)
        self._fs.write_atomically(path, made.model_dump_json(exclude_none=True).encode())
        return CommitTableResponse(metadata=made, **{"metadata-location": f"file://{path}"})


def _number(table: Table) -> int:
    found = METADATA_FILE.fullmatch(table.metadata_location.rpartition("/")[2])
    return int(found[1]) if found else 0


class IcebergTable:
    """
    The table of a directory; made by its first export.

    Args:
        place: the directory, held by the caller.
        topic: of which the table is.
    Raises:
        UsageError: it is the table of another topic, or was moved: Iceberg's files name each other by whole paths.
        CorruptCheckpointError: it is damaged.
    """

    def __init__(self, fs: FileSystem, place: Path, topic: str) -> None:
        self._fs, self._place, self._topic = fs, place, topic
        self._io, catalog = _Files(fs, place), _Catalog(fs, place)
        location = f"file://{place}"
        if found := version_in(fs, place):
            at = f"{location}/metadata/v{found}.metadata.json"
            with self._undamaged():
                metadata: TableMetadata = FromInputFile.table_metadata(self._io.new_input(at))
            of = metadata.properties.get(_TOPIC)
            if of != topic:
                raise UsageError(f"{place}: holds exports of the topic {of}; give {topic} a directory of its own")
            if metadata.location != location:
                raise UsageError(f"{place}: its table was made at {metadata.location} and moved; {_ANEW}")
        else:
            at, properties = "", {**_PROPERTIES, _TOPIC: topic}
            metadata = new_table_metadata(_SCHEMA, _SPEC, UNSORTED_SORT_ORDER, location, properties)
            for name in ("metadata", "data"):
                if not fs.exists(place / name):
                    fs.make_dir(place / name, stat.S_IMODE(fs.stat(place).st_mode), like=place)
        self._table = Table(("cleaner", topic), metadata, at, self._io, catalog)
        self._added: list[DataFile] = []
        self._removed: list[DataFile] = []
        self._files: dict[int, list[DataFile]] = {}
        self._counts = [0, 0]
        with self._undamaged():
            for file in self._data_files(self._table.current_snapshot()):
                self._files.setdefault(file.partition[0], []).append(file)
        self._remove_others()

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        try:
            yield
        except CleanerError:
            raise
        except Exception as error:  # pyiceberg's readers raise all kinds
            reason = f"its table is damaged ({type(error).__name__}); {_ANEW}"
            raise CorruptCheckpointError(self._place, 0, reason) from error

    def _data_files(self, snapshot: Snapshot | None) -> list[DataFile]:
        found = [] if snapshot is None else snapshot.manifests(self._io)
        return [entry.data_file for each in found for entry in each.fetch_manifest_entry(self._io)]

    @property
    def partitions(self) -> list[int]:
        """The partitions that the last export had."""
        return sorted(dict(self._reached()))

    @property
    def source(self) -> str:
        """The log dir that was exported last."""
        return self._noted(_SOURCE)

    def _noted(self, name: str) -> str:
        snapshot = self._table.current_snapshot()
        return "" if snapshot is None or snapshot.summary is None else snapshot.summary[name] or ""

    def _reached(self) -> tuple[tuple[int, int], ...]:
        with self._undamaged():
            pairs = (each.split(":") for each in self._noted(_REACHED).split())
            return tuple((int(number), int(offset)) for number, offset in pairs)

    def replace(self, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
        """Write what the new table of a partition has and the old one has not; rows ascend by offset."""
        old = sorted((_last_offset(each), each.file_path, each) for each in self._files.get(partition, ()))
        new, changes, writer = InOrder(batches), Changes(iter(())), _Writer(self, partition)
        for last, _, file in old:
            rows = self.read(file)
            seen, count = [], 0
            for batch in new.below(last + 1):
                seen.append(batch)
                count += len(batch)
                if count > len(rows):
                    break
            if pa.Table.from_batches(seen, SCHEMA).equals(rows):
                writer.keep(file)
                continue
            self.remove(file)
            changes.go_on(iter(rows.to_batches()))
            for batch in chain(seen, new.below(last + 1)):
                self._counts[0] += len(changes.upserts(batch))
                writer.write(batch)
        for batch in new.below(_END):
            self._counts[0] += len(changes.upserts(batch) if old else batch)
            writer.write(batch)
        writer.flush()
        self._counts[1] += sum(map(len, changes.deletes(partition)))

    def read(self, file: DataFile) -> pa.Table:
        """Return the rows of a data file."""
        with self._undamaged(), self._io.new_input(file.file_path).open() as stream:
            parquet = pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
            return parquet.read(list(COLUMNS), use_threads=False).cast(SCHEMA).combine_chunks()

    def add(self, partition: int, rows: pa.Table) -> None:
        """Write a data file."""
        location = f"{self._table.metadata.location}/data/partition={partition}/{uuid.uuid4()}.parquet"
        with self._io.new_output(location).create() as stream:
            # Not by pyiceberg's writer, which makes empty lists of those that are null.
            pq.write_table(rows.cast(_ARROW), stream, compression="zstd", write_page_checksum=True)
        metadata, times = self._table.metadata, rows.column("timestamp").cast(pa.int64())
        if pc.max(times).as_py() >= _YEAR_10000:
            metadata = metadata.model_copy(update={"properties": {**metadata.properties, **_LATE}})
        self._added.append(parquet_file_to_data_file(self._io, metadata, location))

    def remove(self, file: DataFile) -> None:
        """Leave a data file out of the new table."""
        self._removed.append(file)

    def commit(self, source: str, reached: Iterable[tuple[int, int]]) -> ExportedTable:
        """
        Make what was written the table, if that changes anything.

        Args:
            source: the log dir.
            reached: numbers and next offsets of the partitions, ascending.
        """
        before, offsets = _number(self._table), tuple(reached)
        if not before or self._added or self._removed or offsets != self._reached():
            text = " ".join(f"{number}:{offset}" for number, offset in offsets)
            last = self._table.current_snapshot()
            transaction = self._table.transaction()
            if old := [each.snapshot_id for each in self._table.snapshots() if each != last]:
                ExpireSnapshots(transaction).by_ids(old).commit()
            with transaction.update_snapshot({_SOURCE: source, _REACHED: text}).overwrite() as snapshot:
                for file in self._added:
                    snapshot.append_data_file(file)
                for file in self._removed:
                    snapshot.delete_data_file(file)
            transaction.commit_transaction()
        self._remove_others()
        files, (upserts, deletes) = self._data_files(self._table.current_snapshot()), self._counts
        rows, size = sum(each.record_count for each in files), sum(each.file_size_in_bytes for each in files)
        number = _number(self._table)
        return ExportedTable(self._topic, source, number, before or None, rows, size, upserts, deletes, offsets)

    def _remove_others(self) -> None:
        """Let the hint name the table, and remove files of ours that no kept snapshot has."""
        fs, number, metadata = self._fs, _number(self._table), self._place / "metadata"
        if number and fs.exists(metadata):
            hint = metadata / HINT
            if not fs.exists(hint) or fs.read_bytes(hint) != b"%d" % number:
                fs.write_atomically(hint, b"%d" % number)
        kept = {metadata / f"v{each}.metadata.json" for each in (number - 1, number)}
        with self._undamaged():
            for snapshot in self._table.snapshots():
                names = [snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(self._io))]
                names += [each.file_path for each in self._data_files(snapshot)]
                kept |= set(map(self._io.path, names))
            data = self._place / "data"
            directories = [metadata, *(data / name for name in fs.list_dirs(data))]
        for directory in directories:
            ours = _OF_METADATA if directory == metadata else _OF_DATA
            for path in (directory / name for name in fs.list_dir(directory) if ours.fullmatch(name)):
                if path not in kept:
                    fs.remove(path)


class _Writer:
    """Writes the changed rows of a partition; files of few rows are written together with rows that follow them."""

    def __init__(self, table: IcebergTable, partition: int) -> None:
        self._table, self._partition = table, partition
        self._held: list[pa.RecordBatch] = []
        self._kept: list[DataFile] = []  # those right before what is held

    def keep(self, file: DataFile) -> None:
        self.flush()
        self._kept.append(file)

    def write(self, batch: pa.RecordBatch) -> None:
        if len(batch):
            self._held.append(batch)
        if sum(map(len, self._held)) >= GROUP_ROWS or sum(each.nbytes for each in self._held) >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._held:
            return
        rows = pa.Table.from_batches(self._held, SCHEMA)
        # Each row is written anew at most once for every doubling of its file.
        while self._kept and self._kept[-1].record_count <= len(rows) < GROUP_ROWS and rows.nbytes < GROUP_BYTES:
            rows = pa.concat_tables([self._table.read(self._kept[-1]), rows])
            self._table.remove(self._kept.pop())
        self._table.add(self._partition, rows)
        self._held, self._kept = [], []


def _last_offset(file: DataFile) -> int:
    return int(from_bytes(LongType(), file.upper_bounds[_OFFSET]))
