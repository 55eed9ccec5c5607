"""
Records as Arrow record batches: kernels copy keys, values and headers column by column, without a Python object for
each record.

A batch holds records of one partition. It is full at 65 536 rows, the size that Spark handles fastest, or at 64 MiB of
keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.chunks import COMPRESSION_MASK, TIMESTAMP_TYPE_FLAG, TRANSACTIONAL_FLAG, Batches, Bytes
from cleaner.format.layout import Layout, Longs
from cleaner.format.rewrite import java_utf8
from cleaner.kernels import columns as kernel
from cleaner.kernels.codec_table import CODEC_NAMES
from cleaner.spark.source.columns import BAD_BATCH, BATCH_FIELDS, HEADERS, TYPES

ROWS = 1 << 16
_BYTES = 64 << 20

_MAX_MILLIS = (2**63 - 1) // 1000  # Spark counts microseconds; later timestamps are cut to this
_NO_TIMESTAMP_TYPE = -1

_HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_BAD_FIELDS = [pa.field("file", pa.string()), pa.field("position", pa.int64()), pa.field("reason", pa.string())]
_ARROW_TYPES: dict[str, pa.DataType] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    TYPES[HEADERS]: pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS))),
    TYPES[BAD_BATCH]: pa.struct(_BAD_FIELDS),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of the batches, as Spark expects it of these columns."""
    return pa.schema([pa.field(name, _ARROW_TYPES[TYPES[name]]) for name in columns])


class ArrowRows(NamedTuple):
    """
    Some records of one segment.

    Attributes:
        path: the segment's `.log`.
        layout: the records.
        batches: rows of BATCH_DTYPE, in file order: the batches that hold the records, and maybe others.
        skipped: uint8 for each batch; 1 if the layout has none of its records.
    """

    topic_partition: TopicPartition
    path: Path
    layout: Layout
    batches: Batches
    skipped: npt.NDArray[np.uint8]

    def part(self, first: int, end: int) -> ArrowRows:
        """Return the records from `first` up to, not including, `end`."""
        if first == 0 and end == len(self.layout):
            return self
        data, *arrays = vars(self.layout).values()
        return self._replace(layout=Layout(data, *(array[first:end] for array in arrays)))


class _Part:
    """A part of `ArrowRows`; computes arrays only when a column needs them."""

    def __init__(self, rows: ArrowRows) -> None:
        self.rows = rows
        self.layout = rows.layout

    @cached_property
    def _batches(self) -> Batches:
        read: Batches = self.rows.batches[self.rows.skipped == 0]
        return read

    @cached_property
    def _batch_of(self) -> Longs:
        bases = self._batches["base_offset"]
        found: Longs = np.searchsorted(bases, self.layout.offsets, side="right") - 1
        return found

    def of_batch(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Expand one value for each batch to one for each record."""
        if len(values) and (values == values[0]).all():
            return np.broadcast_to(values[0], len(self.layout))
        return values[self._batch_of]

    def field(self, name: str) -> npt.NDArray[Any]:
        """Return a batch's field for each record."""
        return self.of_batch(self._batches[name])

    def timestamp_types(self) -> npt.NDArray[Any]:
        """Return the timestamp type of each record, as Kafka numbers them."""
        types = (self._batches["attributes"] & TIMESTAMP_TYPE_FLAG) // TIMESTAMP_TYPE_FLAG
        types[self._batches["magic"] == 0] = _NO_TIMESTAMP_TYPE
        return self.of_batch(types)


_Fill = Callable[[_Part], npt.NDArray[Any]]


class _Numbers:
    """A column of numbers, copied from one array for each part."""

    def __init__(self, dtype: npt.DTypeLike, fill: _Fill) -> None:
        self._dtype = np.dtype(dtype)
        self._fill = fill
        self.begin()

    def begin(self) -> None:
        self._values = np.empty(ROWS, self._dtype)

    def add(self, part: _Part, row: int) -> None:
        self._values[row : row + len(part.layout)] = self._fill(part)

    def finish(self, count: int, kind: pa.DataType) -> pa.Array:
        values = self._values[:count]
        if kind == pa.bool_():
            return pa.array(values)
        if kind == pa.string():
            return pa.array(CODEC_NAMES).take(pa.array(values))
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])


class _Fields:
    """A column of bytes: keys, or values."""

    def __init__(self, name: str) -> None:
        self._starts, self._sizes = f"{name}_starts", f"{name}_sizes"
        self._usual_bytes = 1 << 20
        self.begin()

    def begin(self) -> None:
        self._bytes = GrowingBuffer(self._usual_bytes)
        self._ends = np.zeros(ROWS + 1, np.int32)
        self._is_there = np.zeros(ROWS // 8, np.uint8)
        self._at = self._nulls = 0

    def add(self, part: _Part, row: int) -> None:
        starts, sizes = getattr(part.layout, self._starts), getattr(part.layout, self._sizes)
        self._bytes.ensure(self._at + int(np.maximum(sizes, 0).sum()), keep=self._at)
        at, nulls = kernel.join_fields(
            part.layout.data, starts, sizes, self._bytes.array, self._at, self._ends, self._is_there, row
        )
        self._at = int(at)
        self._nulls += int(nulls)

    def finish(self, count: int, kind: pa.DataType) -> pa.Array:
        self._usual_bytes = max(1 << 16, self._at + self._at // 8)
        return _joined(kind, count, self._is_there, self._nulls, self._ends, self._bytes.array[: self._at])


class _Headers:
    """The column of headers."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._parts: list[pa.Array] = []

    def add(self, part: _Part, _row: int) -> None:
        self._parts.append(_headers(part.layout))

    def finish(self, _count: int, _kind: pa.DataType) -> pa.Array:
        return pa.concat_arrays(self._parts)


def _joined(
    kind: pa.DataType, count: int, is_there: Bytes, nulls: int, ends: npt.NDArray[np.int32], data: Bytes
) -> pa.Array:
    there = pa.py_buffer(is_there) if nulls else None
    return pa.Array.from_buffers(kind, count, [there, pa.py_buffer(ends), pa.py_buffer(data)], nulls)


def _headers(layout: Layout) -> pa.Array:
    """Return the headers of some records; null for a record without headers, as in Spark's own source."""
    count = len(layout)
    counts = np.zeros(count, np.int64)
    total = int(kernel.count_headers(layout.data, layout.header_starts, counts))
    places = np.zeros((4, total), np.int64)
    kernel.find_headers(layout.data, layout.header_starts, places)
    names = _names(layout.data, places[0], places[1])
    values = _copied(pa.binary(), layout.data, places[2], places[3])
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    is_there = np.packbits(counts > 0, bitorder="little")
    pairs = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
    kind = _ARROW_TYPES[TYPES[HEADERS]]
    return pa.Array.from_buffers(kind, count, [pa.py_buffer(is_there), pa.py_buffer(ends)], children=[pairs])


def _copied(kind: pa.DataType, data: Bytes, starts: Longs, sizes: Longs) -> pa.Array:
    target = GrowingBuffer(int(np.maximum(sizes, 0).sum()) + 1)
    ends = np.zeros(len(starts) + 1, np.int32)
    is_there = np.zeros(len(starts) // 8 + 1, np.uint8)
    at, nulls = kernel.join_fields(data, starts, sizes, target.array, 0, ends, is_there, 0)
    return _joined(kind, len(starts), is_there, int(nulls), ends, target.array[: int(at)])


def _names(data: Bytes, starts: Longs, sizes: Longs) -> pa.Array:
    names = _copied(pa.binary(), data, starts, sizes)
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # not valid UTF-8: decode as Java does
        return pa.array([java_utf8(name.as_py()).decode() for name in names], pa.string())


_FILLS: dict[str, tuple[npt.DTypeLike, _Fill]] = {
    "offset": (np.int64, lambda part: part.layout.offsets),
    "timestamp": (np.int64, lambda part: np.clip(part.layout.timestamps_ms, -_MAX_MILLIS, _MAX_MILLIS) * 1000),
    "timestampType": (np.int32, _Part.timestamp_types),
    "compression": (np.int8, lambda part: part.field("attributes") & COMPRESSION_MASK),
    "isTransactional": (np.bool_, lambda part: part.field("attributes") & TRANSACTIONAL_FLAG != 0),
}


def _column(name: str) -> _Numbers | _Fields | _Headers | None:
    """Return the collector of a column; None for columns that are the same in all rows of a batch."""
    if name in ("key", "value"):
        return _Fields(name)
    if name == HEADERS:
        return _Headers()
    if name in _FILLS:
        return _Numbers(*_FILLS[name])
    if name in BATCH_FIELDS:
        field, kind = BATCH_FIELDS[name]
        return _Numbers(np.int64 if kind == "bigint" else np.int32, lambda part: part.field(field))
    return None


class RecordBatches:
    """
    Collects records and yields them in record batches.

    Args:
        columns: names of `columns.TYPES`, in the order wanted.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._schema = arrow_schema(columns)
        self._columns = [_column(name) for name in columns]
        self._has_files = "file" in columns
        self._constants: dict[tuple[str, object], pa.Array] = {}
        self._of: tuple[TopicPartition, Path | None] | None = None
        self._count = self._bytes = 0

    def add(self, rows: ArrowRows) -> Iterator[pa.RecordBatch]:
        """Add records, and yield the batches that are full."""
        of = (rows.topic_partition, rows.path if self._has_files else None)
        if of != self._of:
            yield from self.finish()
            self._of = of
        at, total = 0, len(rows.layout)
        while at < total:
            end = min(total, at + ROWS - self._count)
            self._take(_Part(rows.part(at, end)))
            at = end
            if self._count == ROWS or self._bytes >= _BYTES:
                yield from self.finish()

    def _take(self, part: _Part) -> None:
        for column in self._columns:
            if column is not None:
                column.add(part, self._count)
        self._count += len(part.layout)
        sizes = part.layout.key_sizes, part.layout.value_sizes
        self._bytes += sum(int(np.maximum(each, 0).sum()) for each in sizes)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the last, partial batch."""
        if not self._count or self._of is None:
            return
        count = self._count
        arrays = []
        for field, column in zip(self._schema, self._columns, strict=True):
            if column is None:
                arrays.append(self._constant(field, self._value(field.name), count))
            else:
                arrays.append(column.finish(count, field.type))
                column.begin()
        self._count = self._bytes = 0
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _value(self, name: str) -> object:
        """Return the value that all rows of the batch have in a column."""
        if self._of is None or name == BAD_BATCH:
            return None
        (topic, partition), path = self._of
        return {"topic": topic, "partition": partition, "file": str(path)}[name]

    def _constant(self, field: pa.Field, value: object, count: int) -> pa.Array:
        found = self._constants.get((field.name, value))
        if found is None or len(found) < count:
            found = pa.repeat(pa.scalar(value, field.type), count)
            self._constants = {**self._constants, (field.name, value): found} if len(self._constants) < 16 else {}
        return found[:count]

    def report(self, topic_partition: TopicPartition, damage: CorruptBatchError) -> Iterator[pa.RecordBatch]:
        """Yield the collected records, then a row that reports damage."""
        yield from self.finish()
        fields = {"file": str(damage.path), "position": damage.position, "reason": damage.reason}
        values = {"topic": topic_partition.topic, "partition": topic_partition.partition, BAD_BATCH: fields}
        arrays = [pa.array([values.get(field.name)], field.type) for field in self._schema]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
