"""
Tables as files: Parquet, and lines of JSON as `cleaner consume --format json` prints them.

All tables have the same columns. In deletes only key and partition are not null, so a line of them is a tombstone.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cleaner.errors import CorruptCheckpointError, InputError
from cleaner.exporting.manifest import ExportedFile
from cleaner.log.record import Record
from cleaner.log.record_json import from_json, to_json
from cleaner.spark.source.arrow import ROWS, arrow_schema
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.stream import Stream
from cleaner.storage.swap.backup import crc32_of

COLUMNS = ("key", "value", "offset", "timestamp", "partition", "headers")
SCHEMA = arrow_schema(COLUMNS)

_NEVER_NULL = ("key", "value", "offset")
GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20  # of a row group of Parquet, at most


class _Rows(Protocol):
    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class _Parquet:
    """Collects row groups: parts of tables may be of a few rows."""

    def __init__(self, stream: Stream, _topic: str) -> None:
        self._writer = pq.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True)
        self._held: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        if sum(map(len, self._held)) >= GROUP_ROWS or sum(each.nbytes for each in self._held) >= GROUP_BYTES:
            self._put()

    def _put(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._held, SCHEMA))
        self._held = []

    def close(self) -> None:
        if self._held:
            self._put()
        self._writer.close()


class _Lines:
    def __init__(self, stream: Stream, topic: str) -> None:
        self._stream = stream
        self._topic = topic

    def write(self, batch: pa.RecordBatch) -> None:
        lines = (to_json(self._topic, partition, record) for partition, record in records_of(batch))
        self._stream.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        return


_WRITERS: dict[str, Callable[[Stream, str], _Rows]] = {"parquet": _Parquet, "jsonl": _Lines}


class TableWriter:
    """
    Writes a table to a new file. Close it, or use it in a `with` block; only `finish` makes it whole.

    Args:
        fs: the file system.
        directory, name: the place; the directory is an export's.
        form: one of `FORMS`.
        topic: of which.
    """

    def __init__(self, fs: FileSystem, directory: Path, name: str, form: str, topic: str) -> None:
        self._fs = fs
        self._name = f"{directory.name}/{name}.{form}"
        self._file = fs.create(directory.parent / self._name, like=directory)
        self._stream = Stream(self._file)
        self._count = 0
        try:
            self._rows = _WRITERS[form](self._stream, topic)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        # A writer of Parquet that is dropped writes its end, wherever that is then.
        self._stream.discards = True
        try:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._rows.close()
        finally:
            self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows, of `SCHEMA`."""
        if len(batch):
            self._rows.write(batch)
            self._count += len(batch)

    def finish(self) -> ExportedFile:
        """Force it to disk, and return what the manifest says of it."""
        self._rows.close()
        self._file.fsync()
        return ExportedFile(self._name, self._count, *crc32_of(self._fs, self._file.path))


def records_of(batch: pa.RecordBatch) -> Iterator[tuple[int, Record]]:
    """Return partition and record of each row; a row without a timestamp has None."""
    keys, values, offsets, _, partitions, headers = map(_listed, batch.columns)
    for key, value, offset, time, number, pairs in zip(
        keys, values, offsets, _millis(batch), partitions, headers, strict=True
    ):
        found = tuple((pair["key"], pair["value"]) for pair in pairs or ())
        yield number, Record(key, value, found, time, offset)


def _listed(column: pa.Array) -> list[Any]:
    """Return a column's values; with numpy where it can, which is some times as fast."""
    if column.null_count == len(column):
        return [None] * len(column)
    if column.null_count or pa.types.is_list(column.type):
        return column.to_pylist()  # type: ignore[no-any-return]
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def _millis(batch: pa.RecordBatch) -> list[int | None]:
    micros = _listed(batch.column("timestamp").cast(pa.int64()))
    # Below 0: its producer gave it none.
    return [None if each is None or each < 0 else each // 1000 for each in micros]


def read_table(fs: FileSystem, directory: Path, about: ExportedFile, form: str) -> Iterator[pa.RecordBatch]:
    """
    Yield the rows of a file, ascending by offset.

    Raises:
        CorruptCheckpointError: it is not there, or not what its export has written.
    """
    path = directory / about.name
    damaged = partial(_damaged, path)
    try:
        if (found := crc32_of(fs, path)) != (about.bytes, about.crc32):
            damaged(f"has {found[0]} bytes with another CRC-32 than the {about.bytes} of its manifest")
        file = fs.open(path)
    except FileNotFoundError:
        damaged("is not there")
    count, last = 0, -1
    with file:
        try:
            for batch in _READERS[form](Stream(file)):
                if batch.schema != SCHEMA or any(batch.column(name).null_count for name in _NEVER_NULL):
                    damaged("is not a table of an export")
                if not len(batch):
                    continue
                offsets = np.asarray(batch.column("offset"))
                if offsets[0] <= last or (np.diff(offsets) <= 0).any():
                    damaged("has offsets that do not ascend")
                count, last = count + len(batch), int(offsets[-1])
                yield batch
        except (pa.ArrowException, OSError, InputError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            damaged(f"is damaged ({type(error).__name__})")
    if count != about.rows:
        damaged(f"has {count} rows, its manifest says {about.rows}")


def _damaged(path: Path, reason: str) -> NoReturn:
    raise CorruptCheckpointError(path, 0, f"{reason}; an export without --changes writes it anew") from None


def _read_parquet(stream: Stream) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True) as table:
        yield from table.iter_batches(batch_size=ROWS, use_threads=False)


def _read_lines(stream: Stream) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, object]] = []
    for number, line in enumerate(io.BufferedReader(stream), 1):
        record, partition = from_json(line, number)
        micros = -1000 if record.timestamp_ms is None else record.timestamp_ms * 1000
        headers = [{"key": name, "value": value} for name, value in record.headers] or None
        values = (record.key, record.value, record.offset, micros, partition, headers)
        rows.append(dict(zip(COLUMNS, values, strict=True)))
        if len(rows) == ROWS:
            yield pa.RecordBatch.from_pylist(rows, SCHEMA)
            rows.clear()
    yield pa.RecordBatch.from_pylist(rows, SCHEMA)


_READERS: dict[str, Callable[[Stream], Iterable[pa.RecordBatch]]] = {"parquet": _read_parquet, "jsonl": _read_lines}
