"""Damage: an error that says how to go on, or batches that are skipped, and reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import ReadBuffer
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.spark.source.damage import Damage, sound_chunks
from cleaner.storage.fs.file_system import FileSystem
from cleaner.verification.check.batches import BatchChecker
from cleaner.verification.check.log_file import CheckLaneMemory, LogFileReader
from tests.fuzz.change_records import sealed
from tests.support.batch_builder import Producer, data_batch, legacy_batch
from tests.support.batch_builder import Record as Rec
from tests.support.log_builder import START_MS, LogBuilder, offset_checkpoint, write_log_dir
from tests.unit.spark_source.reading import offsets_of, rows_of

pytest.importorskip("pyarrow", reason="needs the extra `spark`")


def a_log_dir(path: Path) -> Path:
    """Write ten batches of two records in two segments and return the first segment's `.log`."""
    log = LogBuilder(index_interval_bytes=0)
    for number in range(10):
        if number == 6:
            log.roll()
        log.append((f"k{number}", "v" * 40), ("l", "w"))
    return write_log_dir(path, log) / "topic-0" / f"{0:020d}.log"


def batch_size(log: Path) -> int:
    """Return the bytes of the first batch; all are equally long."""
    return int.from_bytes(log.read_bytes()[8:12], "big") + 12


def change(log: Path, position: int, data: bytes) -> None:
    """Overwrite some bytes."""
    content = bytearray(log.read_bytes())
    content[position : position + len(data)] = data
    log.write_bytes(content)


WAYS = {
    "a flipped bit in a value": (-8, b"\xff"),
    "a length that is negative": (8, b"\xff\xff\xff\xff"),
    "a length beyond the file": (8, b"\x7f\0\0\0"),
    "an unknown magic": (16, b"\x09"),
    "an offset that goes back": (0, bytes(8)),
    "a hole of zeros": (0, bytes(61)),
}


@pytest.mark.parametrize("way", WAYS)
def test_damaged_batch_is_an_error_or_is_skipped_alone(tmp_path: Path, way: str) -> None:
    """Whatever is wrong with the third batch, the others are read; the report says where it was."""
    log = a_log_dir(tmp_path)
    size = batch_size(log)
    at, data = WAYS[way]
    change(log, 2 * size + (at if at >= 0 else size + at), data)
    with pytest.raises(CorruptBatchError, match=rf"{log}: at byte {2 * size}: .*; badBatches=skip reads on after it"):
        rows_of(tmp_path)
    others = [offset for offset in range(20) if offset not in (4, 5)]
    assert offsets_of(tmp_path, badBatches="skip") == others
    rows = rows_of(tmp_path, badBatches="report")
    reported = [row for row in rows if row["badBatch"] is not None]
    assert [row["offset"] for row in rows if row["badBatch"] is None] == others
    assert [(row["topic"], row["partition"], row["offset"], row["key"]) for row in reported] == [
        ("topic", 0, None, None)
    ]
    assert (reported[0]["badBatch"]["file"], reported[0]["badBatch"]["position"]) == (str(log), 2 * size)
    assert rows.index(reported[0]) == 4


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_batch_of_invalid_records_is_skipped_alone(tmp_path: Path, codec: str) -> None:
    """Its checksum is right, so the damage is found when it is unpacked or its records are read."""
    log = LogBuilder()
    log.append(("a", "1"), codec=codec)
    log.append_raw(data_batch([Rec(b"b", b"2")], 1, codec=codec, payload=b"\x7f" * 9, overrides={"count": 1}))
    log.append(("c", "3"), codec=codec)
    write_log_dir(tmp_path, log)
    with pytest.raises(CorruptBatchError, match="badBatches=skip"):
        rows_of(tmp_path)
    assert offsets_of(tmp_path, badBatches="skip") == [0, 2]
    rows = rows_of(tmp_path, badBatches="report")
    assert [row["offset"] for row in rows if row["badBatch"] is None] == [0, 2]
    assert len(rows) == 3
    assert offsets_of(tmp_path, badBatches="skip", latestPerKey="true") == [0, 2]
    assert len([row for row in rows_of(tmp_path, badBatches="report", latestPerKey="true") if row["badBatch"]]) == 1


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_batch_of_invalid_records_is_skipped_alone(tmp_path: Path, magic: int) -> None:
    """It is read to find its base offset, wanted or not; the damage is reported once."""
    log = LogBuilder()
    log.append(("a", "1"), magic=magic)
    entry = legacy_batch([Rec(b"b", b"2")], 1, magic, timestamp_ms=START_MS)
    at = 18 if magic == 0 else 26
    log.append_raw(sealed(entry[:at] + (1000).to_bytes(4, "big") + entry[at + 4 :]))
    log.append(("c", "3"), magic=magic)
    write_log_dir(tmp_path, log)
    assert offsets_of(tmp_path, badBatches="skip") == [0, 2]
    assert len([row for row in rows_of(tmp_path, badBatches="report") if row["badBatch"]]) == 1
    assert offsets_of(tmp_path, badBatches="skip", latestPerKey="true") == [0, 2]


def _batch(offset: int, value: bytes = b"v", magic: int = 2) -> bytes:
    return legacy_batch([Rec(b"k", value)], offset, magic) if magic < 2 else data_batch([Rec(b"k", value)], offset)


def _flipped(batch: bytes) -> bytes:
    """Return a batch with a wrong checksum."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def _without_length(batch: bytes) -> bytes:
    return batch[:8] + b"\xff" * 4 + batch[12:]


CRAFTED = {
    "a batch in the value of the first of two damaged ones": [
        *(_batch(0), _flipped(_batch(1, _batch(1, b"inner"))), _flipped(_batch(2)), _batch(3)),
    ],
    "batches of old magics behind a lost length": [
        _batch(0),
        _without_length(_batch(1)),
        _batch(2, magic=1),
        _batch(3),
    ],
    "a batch of another log in a value without a length": [
        *(_batch(0), _without_length(_batch(1, _batch(1 << 40, b"inner") + b"x")), _batch(2)),
    ],
    "a length that leads into a value": [
        *(_batch(0), _flipped(_batch(1))[:11] + b"\x37" + _flipped(_batch(1))[12:], _batch(2, bytes(300)), _batch(3)),
    ],
    "a batch of the same log in a value without a length": [
        *(_batch(0), _without_length(_batch(1, _batch(1, b"inner") + b"x")), _batch(2)),
    ],
}
EXPECTED = ([0, 3], [0, 2, 3], [0, 2], [0, 2, 3], [0, 1, 2])


@pytest.mark.parametrize("batches, expected", list(zip(CRAFTED.values(), EXPECTED, strict=True)), ids=CRAFTED)
def test_reading_and_checking_go_on_at_the_same_batch(
    tmp_path: Path, batches: list[bytes], expected: list[int]
) -> None:
    """Whatever bytes are damaged, Spark reads the batches that a check finds whole."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(batches))
    checked: list[int] = []
    with FileSystem().open(path) as file:
        size = file.size()
        chunks = sound_chunks(file, 0, 0, size, Damage("skip"), ReadBuffer())
        read = [offset for chunk in chunks for offset in chunk.batches["base_offset"].tolist()]
        LogFileReader(
            file,
            size,
            [CheckLaneMemory(WindowBuffer(), BatchChecker(1 << 20))],
            base_offset=0,
            digest_from=NO_OFFSET,
            on_chunk=lambda found: checked.extend(found.chunk.batches["base_offset"][found.good].tolist()),
            on_gap=lambda start, end: None,
            check_done=lambda: None,
        ).run()
    assert (read, checked) == (expected, expected)


def test_batches_below_an_offset_that_is_too_high_are_one_gap(tmp_path: Path) -> None:
    """No checksum covers an offset: one flipped bit of it is one report, not one for each batch that follows."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(_batch(offset | 1 << 14 if offset == 1 else offset) for offset in range(50)))
    damage = Damage("report")
    with FileSystem().open(path) as file:
        chunks = sound_chunks(file, 0, 0, file.size(), damage, ReadBuffer())
        assert [offset for chunk in chunks for offset in chunk.batches["base_offset"].tolist()] == [0, 1 | 1 << 14]
    errors = damage.take_unreported()
    assert (len(errors), errors[0].__traceback__) == (1, None)


def test_buffer_is_small_again_after_a_large_batch(tmp_path: Path) -> None:
    """However reading ends, the memory of a large batch is freed."""
    path = tmp_path / f"{0:020d}.log"
    buffer = ReadBuffer(4096)
    for rest in (b"", _flipped(_batch(1))):
        path.write_bytes(_batch(0, bytes(20_000)) + rest)
        with FileSystem().open(path) as file:
            assert len(list(sound_chunks(file, 0, 0, file.size(), Damage("skip"), buffer))) == 1
        assert buffer.capacity == 4096


def test_rest_of_a_segment_without_a_sound_batch_is_skipped(tmp_path: Path) -> None:
    """The next segment is still read."""
    log = a_log_dir(tmp_path)
    size = batch_size(log)
    change(log, 3 * size, bytes(3 * size))
    assert offsets_of(tmp_path, badBatches="skip") == [0, 1, 2, 3, 4, 5, *range(12, 20)]


def test_torn_end_of_the_last_segment_is_the_logs_end(tmp_path: Path) -> None:
    """It was being written, or a crash cut it: that is no damage. Nor are zeros to the end of the file: room."""
    log = a_log_dir(tmp_path)
    last = log.with_name(f"{12:020d}.log")
    whole = last.read_bytes()
    for kept in (1, 11, 30, 70):
        last.write_bytes(whole[: 3 * batch_size(log) + kept])
        assert offsets_of(tmp_path) == list(range(18))
        assert offsets_of(tmp_path, isolationLevel="read_committed") == list(range(18))
    (tmp_path / "replication-offset-checkpoint").write_bytes(offset_checkpoint({TopicPartition("topic", 0): 18}))
    for kept in (0, 11, 30, 70):
        for room in (1, 12, 13, 61, 1000):
            last.write_bytes(whole[: 3 * batch_size(log) + kept] + bytes(max(room, 120 - kept if kept else 1)))
            assert offsets_of(tmp_path) == list(range(18))
    last.write_bytes(whole + bytes(100) + b"\x01")
    with pytest.raises(CorruptBatchError, match=r"badBatches=skip"):
        rows_of(tmp_path)
    assert offsets_of(tmp_path, badBatches="skip") == list(range(20))


@pytest.mark.parametrize("room", [0, 12, 30, 1000])
@pytest.mark.parametrize("row", [1, 3])
def test_damage_in_front_of_room_does_not_pass_for_the_end(tmp_path: Path, room: int, row: int) -> None:
    """In whichever batch that is known to be on disk it is, what follows is read."""
    log = a_log_dir(tmp_path)
    last = log.with_name(f"{12:020d}.log")
    last.with_suffix(".index").unlink()  # by default it has an entry for each 4 KiB
    change(last, (row + 1) * batch_size(log) - 8, b"\xff")
    last.write_bytes(last.read_bytes() + bytes(room))
    for isolation in ("read_uncommitted", "read_committed"):
        with pytest.raises(CorruptBatchError, match=f"{last}: at byte {row * batch_size(log)}"):
            rows_of(tmp_path, isolationLevel=isolation)
        others = [offset for offset in range(20) if offset // 2 != 6 + row]
        assert offsets_of(tmp_path, isolationLevel=isolation, badBatches="skip") == others


def test_transaction_that_damage_cuts_counts_as_aborted(tmp_path: Path) -> None:
    """The damage may be in its marker; later transactions of the producer have their own markers."""
    log = LogBuilder()
    producer = Producer(7, 0, 0, transactional=True)
    log.append(("a", "1"), producer=producer)
    log.end_transaction(7, 0, commit=True)
    log.append(("b", "2"), producer=producer)
    log.append(("x", "9"))
    log.end_transaction(7, 0, commit=True)
    log.append(("c", "3"), producer=producer)
    log.end_transaction(7, 0, commit=True)
    file = write_log_dir(tmp_path, log) / "topic-0" / f"{0:020d}.log"
    committed = {"isolationLevel": "read_committed", "badBatches": "skip"}
    assert offsets_of(tmp_path, **committed) == [0, 2, 3, 5]
    content = file.read_bytes()
    marker = 0
    for _ in range(4):
        marker += int.from_bytes(content[marker + 8 : marker + 12], "big") + 12
    change(file, marker + 62, b"\xff")
    assert offsets_of(tmp_path, **committed) == [0, 3, 5]


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_batch_that_unpacks_to_more_than_is_allowed_is_damage(tmp_path: Path, codec: str) -> None:
    """A small batch may be made to fill the memory of a task; the error names the option that allows more."""
    log = LogBuilder()
    log.append(("a", "small"), codec=codec)
    log.append(("b", "0" * 100_000), codec=codec)
    write_log_dir(tmp_path, log)
    assert offsets_of(tmp_path) == [0, 1]
    assert offsets_of(tmp_path, maxDecompressedBatch="64k", badBatches="skip") == [0]
    with pytest.raises(
        CorruptBatchError, match=r"more than 65536 bytes; maxDecompressedBatch allows more, badBatches="
    ):
        rows_of(tmp_path, maxDecompressedBatch="64k")
