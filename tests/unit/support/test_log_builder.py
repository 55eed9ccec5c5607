"""Logs made for tests are what a broker leaves: the twin and the golden data agree with the builder."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from tests.golden.archive import DATA, unpack
from tests.reference.batches import read_batches, read_records
from tests.reference.log_state import Settings, load
from tests.reference.segment_writer import SegmentWriter
from tests.support.batch_builder import Producer, Record, varint
from tests.support.batch_reader import batch_info, read_varint, split_batches
from tests.support.codecs import compress, decompress
from tests.support.log_builder import LogBuilder, write_log_dir

MANY = b"".join(f"record {i} of a stream that packs well; ".encode() for i in range(5000))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("data", [b"", b"a", MANY], ids=["empty", "byte", "many-blocks"])
def test_codec_of_tests_round_trips(codec: str, data: bytes) -> None:
    """What the test codecs pack they unpack, over several blocks too."""
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("number", [0, -1, 1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varint_round_trips(number: int) -> None:
    """Zig-zag numbers come back, up to 64 bits (R-221)."""
    assert read_varint(varint(number), 0) == (number, len(varint(number)))


def test_builder_on_kafkas_batches_writes_kafkas_indexes(tmp_path: Path) -> None:
    """Kafka's own batches appended one by one give its index, time index and transaction index (R-320, R-322)."""
    home = unpack(DATA / "transactions.tar.xz", tmp_path)
    kafkas = {path.name: path.read_bytes() for path in (home / "before" / "topic-0").iterdir()}
    logs = sorted(name for name in kafkas if name.endswith(".log"))
    log = LogBuilder(base_offset=int(logs[0][:20]))
    for name in logs:
        if int(name[:20]) not in log.base_offsets:
            log.roll()
        for batch in split_batches(kafkas[name]):
            log.next_offset = batch_info(batch).base_offset
            log.append_raw(batch)
    made = log.files()

    wanted = {name for name in kafkas if name.endswith((".log", ".index", ".timeindex", ".txnindex", ".snapshot"))}
    newest = max(name for name in kafkas if name.endswith(".snapshot"))
    assert {name: kafkas[name] for name in wanted if not name.endswith(".snapshot")} == {
        name: made[name] for name in made if name in wanted and not name.endswith(".snapshot")
    }
    assert len(made[newest]) == len(kafkas[newest])


def test_builder_log_is_read_back_by_the_twin(tmp_path: Path) -> None:
    """Offsets, keys, transactions and the log end come out as they went in."""
    log = LogBuilder(TopicPartition("t", 3), base_offset=10)
    log.append(("a", "1"), ("b", None), codec="zstd")
    log.append(("c", "3"), producer=Producer(5, 1, 0, transactional=True))
    log.skip(5)
    log.append(Record(None, b"x"), magic=1, timestamp_ms=1)
    log.roll()
    log.end_transaction(5, 1, commit=False)
    directory = write_log_dir(tmp_path, log) / "t-3"
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    state = load(files, dict.fromkeys(files, 0), Settings(8), log.timestamp_ms, 0, None)

    records = [r for s in state.segments for b in read_batches(s.log) if not b.control for r in read_records(b)]
    assert [(r.offset, r.key) for r in records] == [(10, b"a"), (11, b"b"), (12, b"c"), (18, None)]
    assert state.log_end == 20
    assert state.segments[1].aborts == [(5, 12, 19, 20)]
    assert state.producers[5].last_data_offset == 12


def test_builder_rolls_before_a_full_index_and_a_full_segment() -> None:
    """A segment takes no more than its index and its size allow (R-311)."""
    log = LogBuilder(index_interval_bytes=0, segment_index_bytes=60, segment_bytes=500)
    for i in range(40):
        log.append((f"k{i}", "v" * 10))
    files = log.files()

    assert all(len(data) <= 500 for name, data in files.items() if name.endswith(".log"))
    assert all(len(data) <= 56 for name, data in files.items() if name.endswith(".index"))
    for name in (name for name in files if name.endswith(".log")):
        writer = SegmentWriter(int(name[:20]), Settings(1, index_interval_bytes=0))
        for batch in split_batches(files[name]):
            writer.append(batch)
        assert writer.close([], 0).index == files[name[:20] + ".index"]


def test_batch_builder_overrides_a_header_field_under_a_right_crc() -> None:
    """A wrong count comes with a right CRC, so that only the count can be refused."""
    log = LogBuilder()
    log.append(("a", "1"), overrides={"count": 7})
    batch = log.files()["00000000000000000000.log"]

    assert struct.unpack_from(">i", batch, 57) == (7,)
    assert batch_info(batch).record_count == 7
