"""
Hostile bytes through all kernels of a round: they succeed or report, and touch no memory but their arrays.

Checksums are put right after every change, as anybody can who writes a batch. Run with NUMBA_BOUNDSCHECK=1 a load or
store outside of an array raises IndexError and fails the test; without, the guards around the arrays show stores.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cleaner.format.zstd_frame import kernel_cells
from cleaner.kernels import batches as scan_kernel
from cleaner.kernels import codecs as codec_kernel
from cleaner.kernels import inflate
from cleaner.kernels import offset_map as map_kernel
from cleaner.kernels import records as record_kernel
from cleaner.kernels import repack as repack_kernel
from cleaner.kernels import retain as retain_kernel
from cleaner.kernels.codec_table import GZIP, LZ4, SNAPPY, ZSTD
from cleaner.kernels.digest import SECRET_WORDS
from cleaner.storage.segment.index_builder import WRITTEN_DTYPE
from tests.support.batch_builder import Producer, Record, data_batch, marker_batch, varint
from tests.support.batch_reader import split_batches
from tests.support.codecs import crc32c
from tests.unit.kernels.arrays import Bytes, Guards, Scan, guarded, scan, unpack

pytestmark = pytest.mark.kernels

_SLOTS = 101
_MAX_RECORDS = 100_000
_LATEST_BYTES = 9  # some offsets of the seed log lie beyond their bits
KNOWN_RECORD_STATUSES = {
    value for name, value in vars(record_kernel).items() if name.startswith("RECORD_") and name != "RECORD_GOOD"
}
KNOWN_RETAIN_STATUSES = {value for name, value in vars(retain_kernel).items() if name.startswith("RETAIN_")}
KNOWN_SCAN_STATUSES = {value for name, value in vars(scan_kernel).items() if name.startswith("SCAN_")}

SEED_LOG = b"".join(
    [
        data_batch([Record(b"k1", b"v1"), Record(b"k2", None), Record(None, b"v3")], 0),
        data_batch([Record(b"k1", b"v" * 200, headers=((b"h", b"x"), (b"\xff", None)))], 3, producer=Producer(7, 1, 0)),
        data_batch([Record(b"k%d" % i, b"value") for i in range(70)], 10, codec="lz4"),
        marker_batch(90, 7, 1, commit=True),
        data_batch([Record(b"", b"")], 100, append_time_ms=5, delete_horizon_ms=9, last_offset=110),
        data_batch([Record(b"k%d" % i, b"value") for i in range(0, 70, 2)], 200, codec="snappy"),
    ]
)


def with_right_crc(batch: bytes) -> bytes:
    """Put the checksum of a batch of magic 2 right."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def run_all(log: bytes, first_dirty: int, choices: bytes) -> tuple[int, ...]:
    """Take a log through scan, map, verdicts and output as a round does; returns the statuses on the way."""
    with guarded() as guards:
        data = guards.bytes(log)
        found = scan(data, len(log), -1)
        assert found.status in KNOWN_SCAN_STATUSES
        assert 0 <= found.covered <= len(log)
        rows = found.rows[found.rows["magic"] == 2]
        by_kernel = _unpack(guards, data, rows.copy())
        try:
            unpacked = guards.bytes(bytes(unpack(data, rows).view))
        except ValueError:
            return (found.status, -1)
        for at, records in by_kernel.items():
            assert records == bytes(unpacked[int(rows["body_start"][at]) : int(rows["body_end"][at])])
        table, latest = guards.words(map_kernel.WORDS * _SLOTS), guards.room(_LATEST_BYTES)
        status = _index(guards, data, unpacked, rows, table, latest, first_dirty, choices)
        if int(rows["count"].sum()) > _MAX_RECORDS:
            assert status != map_kernel.DIGEST_GOOD
            return (found.status, status)
        unread = _flags(guards, len(rows), choices, 1)
        verdicts = guards.room(int(rows["count"][unread == 0].sum()))
        judged = _judge(guards, data, unpacked, rows, table, latest, first_dirty, choices, verdicts)
        if judged != map_kernel.DIGEST_GOOD:
            return (found.status, status, judged)
        return (found.status, status, judged, _retain(guards, data, unpacked, rows, verdicts, choices))


def _unpack(guards: Guards, data: Bytes, rows: np.ndarray) -> dict[int, bytes]:
    """Unpack what the kernel can; returns the records of the batches it took."""
    codecs = rows["attributes"] & 7
    wanted = ((codecs == LZ4) | (codecs == SNAPPY) | (codecs == GZIP) | (codecs == ZSTD)) & (rows["count"] > 0)
    work = guards.room(4 * inflate.WORDS).view(np.int32)
    work[:] = inflate.new_work()
    room, done, first, used = guards.room(20_000), {}, 0, 0
    while True:
        index, used = codec_kernel.unpack_batches(
            data, rows, wanted.astype(np.uint8), first, room, room.size, used, 1 << 20, 10_000, work, kernel_cells()
        )
        for at in range(first, index):
            if wanted[at]:
                done[at] = bytes(room[int(rows["body_start"][at]) : int(rows["body_end"][at])])
        if index == len(rows):
            return done
        first = index + 1


def _flags(guards: Guards, count: int, choices: bytes, value: int) -> Bytes:
    flags = guards.room(count)
    flags[:] = [choices[i % len(choices)] % 7 == value for i in range(count)]
    return flags


def _index(
    guards: Guards,
    data: Bytes,
    unpacked: Bytes,
    rows: np.ndarray,
    table: np.ndarray,
    latest: Bytes,
    first_dirty: int,
    choices: bytes,
) -> int:
    state = guards.words(map_kernel.STATE_CELLS).view(np.int64)
    skipped = _flags(guards, len(rows), choices, 0)
    # Lying counts are found before their room is needed: no record takes less than a byte.
    most = min(int(rows["count"][skipped == 0].sum()), data.size + unpacked.size)
    digests = guards.words(map_kernel.DIGEST_WORDS * most)
    status = map_kernel.digest_records(
        data, unpacked, rows, skipped, first_dirty, np.arange(1, 1 + SECRET_WORDS, dtype=np.uint64), digests, state
    )
    keyed = int(state[map_kernel.STATE_KEYED])
    assert 0 <= keyed <= most
    limit = 1 + choices[0] % (_SLOTS - 1)
    done, entries = map_kernel.put_digests(table, _SLOTS, choices[0] & 1, digests, keyed, 0, limit, latest, first_dirty)
    assert (done == keyed and entries <= limit) or (done < keyed and entries == limit)
    if status == map_kernel.DIGEST_BAD_RECORD:
        _check_bad_record(rows, state)
    return int(status)


def _check_bad_record(rows: np.ndarray, state: np.ndarray) -> None:
    assert int(state[map_kernel.STATE_STATUS]) in KNOWN_RECORD_STATUSES
    row = rows[int(state[map_kernel.STATE_BATCH])]
    assert 0 <= state[map_kernel.STATE_RECORD_POSITION] <= row["body_end"] - row["body_start"]


def _judge(
    guards: Guards,
    data: Bytes,
    unpacked: Bytes,
    rows: np.ndarray,
    table: np.ndarray,
    latest: Bytes,
    first_dirty: int,
    choices: bytes,
    verdicts: Bytes,
) -> int:
    state = guards.words(map_kernel.STATE_CELLS).view(np.int64)
    status = map_kernel.judge_records(
        data, unpacked, rows, _flags(guards, len(rows), choices, 1), _flags(guards, len(rows), choices, 2), 2**62, 7,
        True, table, _SLOTS, choices[1] & 1, np.arange(1, 1 + SECRET_WORDS, dtype=np.uint64), latest, first_dirty,
        guards.words(map_kernel.SCRATCH_WORDS), verdicts, state,
    )  # fmt: skip
    if status == map_kernel.DIGEST_BAD_RECORD:
        _check_bad_record(rows, state)
    return int(status)


def _retain(guards: Guards, data: Bytes, unpacked: Bytes, rows: np.ndarray, verdicts: Bytes, choices: bytes) -> int:
    retention = _flags(guards, len(rows), choices, 1).view(np.int8) * retain_kernel.BATCH_DROP
    retention += _flags(guards, len(rows), choices, 3).view(np.int8) * retain_kernel.BATCH_KEEP_EVEN_EMPTY
    capacity = 300 * choices[-1]
    out = guards.room(capacity)
    written = np.zeros(len(rows), WRITTEN_DTYPE)
    state = guards.words(retain_kernel.STATE_CELLS).view(np.int64)
    rebuilt_bytes = 100 * choices[-1]
    status = repack_kernel.retain_and_pack(
        data, unpacked, rows, retention, _flags(guards, len(rows), choices, 4), verdicts, 9, out, capacity, written,
        state,
        guards.room(rebuilt_bytes), rebuilt_bytes, guards.words(repack_kernel.REBUILT_CELLS).view(np.int64),
        guards.room(2 * codec_kernel.TABLE_WORDS).view(np.uint16), kernel_cells(),
    )  # fmt: skip
    assert status in KNOWN_RETAIN_STATUSES
    end = int(state[retain_kernel.STATE_OUT])
    assert end <= capacity
    again: Scan = scan(guards.bytes(out[:end].tobytes()), end)
    assert (again.covered, len(again.rows)) == (end, int(state[retain_kernel.STATE_WRITTEN_ROWS]))
    return int(status)


choices = st.binary(min_size=4, max_size=12)
changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)


def test_seed_log_goes_through_all_kernels() -> None:
    """Unchanged it is sound, so that the changed ones get beyond the first check."""
    choice = bytes([97, 97, 97, 255])
    assert run_all(SEED_LOG, 0, choice) == (0, 0, 0, retain_kernel.RETAIN_DONE)
    # Without the packed batch, which supersedes it, the one with a malformed header key is to be rewritten.
    assert run_all(b"".join(split_batches(SEED_LOG)[i] for i in (0, 1, 3)), 0, choice)[:3] == (0, 0, 0)


@settings(max_examples=400)
@given(changes, st.integers(0, 5), st.integers(-1, 220), choices)
def test_changed_bytes_under_right_checksums_do_no_harm(
    changed: list[tuple[int, int]], which: int, first_dirty: int, choice: bytes
) -> None:
    """Any bytes of a sound batch changed: header fields, lengths, keys, packed data."""
    batches = split_batches(SEED_LOG)
    batch = bytearray(batches[which])
    for position, value in changed:
        at = 21 + position % (len(batch) - 21)
        batch[at] = value
    batches[which] = with_right_crc(bytes(batch))
    run_all(b"".join(batches), first_dirty, choice)


@settings(max_examples=300)
@given(st.binary(max_size=120), st.integers(0, 12), st.integers(0, 2**31 - 1), choices)
@example(body=b"", count=1, last_delta=0, choice=b"\x05\x05\x05\xff")
@example(body=varint(20), count=1, last_delta=0, choice=b"\x05\x05\x05\xff")
def test_random_records_under_a_sound_header_do_no_harm(
    body: bytes, count: int, last_delta: int, choice: bytes
) -> None:
    """Anything at all in place of the records."""
    batch = data_batch([], 50, payload=body, overrides={"count": count, "last_offset_delta": last_delta})
    run_all(batch, 0, choice)


pieces = st.one_of(
    st.integers(-3, 200).map(varint),
    st.sampled_from([varint(2**31 - 1), varint(-(2**31)), b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\x00", b"\x02k"]),
    st.binary(max_size=4),
)


@settings(max_examples=300)
@given(st.lists(pieces, max_size=30).map(b"".join), st.integers(1, 3), choices)
def test_records_of_hostile_numbers_do_no_harm(content: bytes, count: int, choice: bytes) -> None:
    """Records put together of lengths and counts that lie, framed as if they were sound."""
    framed = (varint(len(content)) + content) * count
    log = data_batch([], 50, payload=framed, overrides={"count": count, "last_offset_delta": 40})
    run_all(log, 0, choice)


@settings(max_examples=200)
@given(st.binary(max_size=200), choices)
def test_random_bytes_as_a_log_do_no_harm(log: bytes, choice: bytes) -> None:
    """No framing at all."""
    run_all(log, 0, choice)


@settings(max_examples=100)
@given(st.integers(0, len(SEED_LOG)), choices)
def test_log_cut_anywhere_does_no_harm(length: int, choice: bytes) -> None:
    """A chunk ends wherever the buffer did."""
    run_all(SEED_LOG[:length], 0, choice)
