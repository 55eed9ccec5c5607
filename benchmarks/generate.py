"""
Writes a large uncompressed log without Java: `python -m benchmarks.generate LOG_DIR --gigabytes 1`.

Records have 16-byte keys drawn evenly from a number of keys, and values cut at random from a pool; 64 records make a
batch. All records are equally long, so numpy fills thousands of them at once, at about the speed of the disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Record, data_batch, encode_record
from tests.support.batch_reader import batch_info
from tests.support.log_builder import START_MS, write_log_dir
from tests.support.segment_builder import SegmentBuilder, encode_snapshot, offset_name

# 64 offsets are the most whose deltas take one byte each, which is what makes all records equally long.
BATCH_RECORDS = 64
KEY_BYTES = 16
HEADER_BYTES = 61
CHUNK_BATCHES = 64
SEGMENT_BYTES = 100 << 20
INDEX_BYTES = 10 << 20
# Position and width in the batch header of what differs from batch to batch.
_BASE_OFFSET, _CRC, _AFTER_CRC, _TIMES = (0, 8), (17, 4), 21, (27, 16)
# Behind a record's length (2 bytes), attributes, both deltas (a byte each) and the key's length (1 byte).
_KEY_POSITION = 6

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Shape:
    """
    What a log holds.

    Attributes:
        size_bytes: about, of all segments.
        keys: how many different ones.
        value_bytes: 64 to 8000, so that lengths take two bytes.
        seed: the same seed makes the same log.
    """

    size_bytes: int
    keys: int
    value_bytes: int = 1024
    seed: int = 1


def _template(value_bytes: int) -> tuple[Bytes, int]:
    """Return a batch of empty keys and values, and the length of one record in it."""
    record = Record(bytes(KEY_BYTES), bytes(value_bytes))
    batch = data_batch([record] * BATCH_RECORDS, 0, timestamp_ms=START_MS)
    return np.frombuffer(batch, np.uint8), len(encode_record(record, 0, 0))


def _big_endian(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> Bytes:
    return numbers.astype(numbers.dtype.newbyteorder(">")).view(np.uint8).reshape(len(numbers), -1)


def batches(shape: Shape, topic_seed: int = 0) -> Iterator[Bytes]:
    """Yield batches, CHUNK_BATCHES at a time: uint8, shape (batches, bytes of a batch), offsets from 0 on."""
    random = np.random.default_rng((shape.seed, topic_seed))
    template, record_bytes = _template(shape.value_bytes)
    # Half noise, half text: a codec would find something to do.
    pool = np.where(np.arange(1 << 22) % 64 < 32, random.integers(0, 256, 1 << 22), 97).astype(np.uint8)
    values = np.lib.stride_tricks.sliding_window_view(pool, shape.value_bytes)
    value_position = record_bytes - 1 - shape.value_bytes
    count = max(2, shape.size_bytes // len(template))
    for first in range(0, count, CHUNK_BATCHES):
        chunk = np.tile(template, (min(CHUNK_BATCHES, count - first), 1))
        records = chunk[:, HEADER_BYTES:].reshape(len(chunk), BATCH_RECORDS, record_bytes)
        drawn = random.integers(0, shape.keys, len(chunk) * BATCH_RECORDS, dtype=np.uint64)
        # An odd factor is one-to-one: neighbouring keys lie far apart on disk and in a map.
        spread = (drawn + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        keys = np.concatenate([_big_endian(spread), _big_endian(drawn ^ (spread >> np.uint64(7)))], axis=1)
        records[:, :, _KEY_POSITION : _KEY_POSITION + KEY_BYTES] = keys.reshape(len(chunk), BATCH_RECORDS, KEY_BYTES)
        starts = random.integers(0, len(values), len(drawn))
        records[:, :, value_position:-1] = values[starts].reshape(len(chunk), BATCH_RECORDS, -1)
        numbers = np.arange(first, first + len(chunk), dtype=np.int64)
        chunk[:, slice(_BASE_OFFSET[0], sum(_BASE_OFFSET))] = _big_endian(numbers * BATCH_RECORDS)
        times = _big_endian(START_MS + numbers)
        chunk[:, slice(_TIMES[0], sum(_TIMES))] = np.concatenate([times, times], axis=1)
        for batch in chunk:
            crc = google_crc32c.value(batch[_AFTER_CRC:].tobytes())
            batch[slice(_CRC[0], sum(_CRC))] = np.frombuffer(crc.to_bytes(4, "big"), np.uint8)
        yield chunk


def generate(log_dir: Path, topic_partition: TopicPartition, shape: Shape) -> int:
    """Write a cleanly stopped log dir with one partition and return how many records it holds."""
    directory = log_dir / str(topic_partition)
    directory.mkdir(parents=True)
    segment = SegmentBuilder(0, 4096, INDEX_BYTES)
    next_offset = written = 0
    for chunk in batches(shape):
        for row in chunk:
            # The active segment, which is never cleaned, holds at most the last hundredth.
            is_last = written <= shape.size_bytes * 99 // 100 < written + len(row)
            written += len(row)
            if is_last or len(segment.log) + len(row) > SEGMENT_BYTES:
                _write(directory, segment)
                segment = SegmentBuilder(next_offset, 4096, INDEX_BYTES)
            batch = row.tobytes()
            segment.append(batch, batch_info(batch))
            next_offset += BATCH_RECORDS
    _write(directory, segment)
    (directory / f"{offset_name(next_offset)}.snapshot").write_bytes(encode_snapshot({}))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    ends = {topic_partition: next_offset}
    write_log_dir(log_dir, high_watermarks=ends, recovery_points=ends)
    return next_offset


def _write(directory: Path, segment: SegmentBuilder) -> None:
    for name, data in segment.files().items():
        (directory / name).write_bytes(data)
    if segment.base_offset > 0:
        (directory / f"{offset_name(segment.base_offset)}.snapshot").write_bytes(encode_snapshot({}))


def main() -> None:
    """Write one log as the options say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log_dir", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=1024)
    parser.add_argument("--partition", default="generated-0")
    options = parser.parse_args()
    shape = Shape(int(options.gigabytes * 1e9), options.keys, options.value_bytes)
    records = generate(options.log_dir, TopicPartition.parse(options.partition), shape)
    print(f"{options.log_dir}: {records} records in {options.partition}")


if __name__ == "__main__":
    main()
