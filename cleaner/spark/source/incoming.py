"""Splits the rows of Arrow record batches by partition, into the arrays that the encoder takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError
from cleaner.format.encode import RecordArrays, encode_headers
from cleaner.format.layout import Longs
from cleaner.kernels import encode as kernel
from cleaner.log.partitioner import partition_of
from cleaner.spark.source.write_options import WriteOptions

_NO_TIMESTAMP = -1
_MAX_PARTITION = 2**31 - 1


class Group(NamedTuple):
    """Rows of one partition, in their order of arrival."""

    topic_partition: TopicPartition
    columns: RecordArrays


def groups_of(batch: pa.RecordBatch, options: WriteOptions, now_ms: int) -> Iterator[Group]:
    """
    Yield the rows of a batch, partition by partition.

    Args:
        now_ms: the timestamp of rows without one.
    Raises:
        UsageError: a row without a topic, with an invalid partition, or with a timestamp before 1970.
    """
    if not batch.num_rows:
        return
    topics, topic_of = _topics(batch, options)
    partition = _partitions(batch, options)
    pairs, group_of = np.unique(np.stack([topic_of, partition]), axis=1, return_inverse=True)
    group_of = group_of.reshape(-1)
    for number, (topic, of) in enumerate(pairs.T.tolist()):
        rows = batch if pairs.shape[1] == 1 else batch.take(pa.array(np.flatnonzero(group_of == number)))
        yield Group(TopicPartition(topics[topic], of), _columns(rows, now_ms))


def _topics(batch: pa.RecordBatch, options: WriteOptions) -> tuple[Sequence[str], Longs]:
    """Return the topics, and for each row the index of its topic."""
    if "topic" not in batch.schema.names:
        return [options.topic or ""], np.zeros(batch.num_rows, np.int64)
    named = batch.column("topic").dictionary_encode()
    names = named.dictionary.to_pylist()
    indices = named.indices.fill_null(len(names)).to_numpy(zero_copy_only=False).astype(np.int64)
    if named.null_count:
        if options.topic is None:
            raise UsageError("a row without a topic; give topic=NAME for these")
        names.append(options.topic)
    return names, indices


def _partitions(batch: pa.RecordBatch, options: WriteOptions) -> Longs:
    if "partition" in batch.schema.names and batch.column("partition").null_count == 0:
        found: Longs = batch.column("partition").to_numpy(zero_copy_only=False).astype(np.int64)
        if int(found.min()) < 0 or int(found.max()) > _MAX_PARTITION:
            raise UsageError(f"partition {int(found.min())}: they count from 0")
        return found
    given = batch.column("partition").to_pylist() if "partition" in batch.schema.names else [None] * batch.num_rows
    if options.partition_count == 1:
        return np.array([partition or 0 for partition in given], np.int64)
    keys = _binary(batch, "key").to_pylist()
    return np.array([_chosen(key, of, options) for key, of in zip(keys, given, strict=True)], np.int64)


def _chosen(key: bytes | None, partition: int | None, options: WriteOptions) -> int:
    if partition is not None:
        return partition
    if key is None:
        raise UsageError("a row without partition and key; with numPartitions above 1 it needs one of them")
    return partition_of(key, options.partition_count)


def _columns(rows: pa.RecordBatch, now_ms: int) -> RecordArrays:
    keys, key_lengths = _joined(_binary(rows, "key"))
    values, value_lengths = _joined(_binary(rows, "value"))
    headers, header_lengths = _headers(rows)
    return RecordArrays(keys, key_lengths, values, value_lengths, headers, header_lengths, _timestamps(rows, now_ms))


def _binary(rows: pa.RecordBatch, name: str) -> pa.Array:
    if name not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _joined(array: pa.Array) -> tuple[npt.NDArray[np.uint8], Longs]:
    """Return the bytes of an array's values, concatenated, and their lengths, -1 for null."""
    count = len(array)
    lengths = np.full(count, -1, np.int64)
    there = np.ones(count, bool)
    if array.null_count:
        there = array.is_valid().to_numpy(zero_copy_only=False)
        array = array.drop_null()
    if not len(array):
        return np.zeros(0, np.uint8), lengths
    _, ends, data = array.buffers()
    cuts = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    lengths[there] = np.diff(cuts)
    joined = np.frombuffer(data, np.uint8)[cuts[0] : cuts[-1]] if data is not None else np.zeros(0, np.uint8)
    return joined, lengths


def _headers(rows: pa.RecordBatch) -> tuple[npt.NDArray[np.uint8], Longs]:
    lengths = np.full(rows.num_rows, kernel.NO_HEADERS, np.int64)
    if "headers" not in rows.schema.names or rows.column("headers").null_count == rows.num_rows:
        return np.zeros(0, np.uint8), lengths
    encoded = bytearray()
    for row, headers in enumerate(rows.column("headers").to_pylist()):
        if headers:
            own = encode_headers([tuple(header.values()) for header in headers])
            lengths[row] = len(own)
            encoded += own
    return np.frombuffer(bytes(encoded), np.uint8), lengths


def _timestamps(rows: pa.RecordBatch, now_ms: int) -> Longs:
    if "timestamp" not in rows.schema.names:
        return np.full(rows.num_rows, now_ms, np.int64)
    micros = rows.column("timestamp").cast(pa.int64()).fill_null(1000 * now_ms)
    millis: Longs = micros.to_numpy(zero_copy_only=False) // 1000
    if int(millis.min()) < _NO_TIMESTAMP:
        raise UsageError(f"a timestamp of {int(millis.min())} ms: it counts milliseconds since 1970")
    return millis
