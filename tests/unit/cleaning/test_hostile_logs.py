"""Logs with bytes changed under right checksums: a round cleans them or refuses them by name."""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cleaner.errors import CleanerError, CorruptBatchError
from tests.support.batch_builder import Producer, Record
from tests.support.batch_reader import split_batches
from tests.support.codecs import crc32c
from tests.support.log_builder import LogBuilder
from tests.unit.cleaning.logs import SETTINGS, clean, files_of, newest, records_in, segment_files

pytestmark = pytest.mark.kernels


def seed_log() -> LogBuilder:
    """Build a log of every kind of batch, all of it dirty, in one segment; the next is active."""
    log = LogBuilder(index_interval_bytes=1 << 20)
    log.append(("a", "v1"), ("b", None), ("c", "v"), producer=Producer(1, 0, 0))
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        log.append(("a", f"packed with {codec}"), ("d", "value " * 30), codec=codec)
    log.append(("a", "v2"), producer=Producer(2, 0, 0, True))
    log.append(("b", "v2"), producer=Producer(3, 0, 0, True), codec="gzip")
    log.end_transaction(2, 0, commit=True)
    log.end_transaction(3, 0, commit=False)
    log.append(Record(b"e", b"v", headers=((b"h", b"x"), (b"h\xff", None))), append_time_ms=log.timestamp_ms + 5)
    log.append(("f", "v"), ("g", None), magic=1, codec="gzip")
    log.append(("f", "v"), ("g", "w"), magic=0)
    log.append(("a", "last"), ("h", None), delete_horizon_ms=5)
    log.roll()
    log.append(("end", "v"))
    return log


BATCHES = split_batches(seed_log().files()[f"{0:020d}.log"])


def with_right_checksum(batch: bytes) -> bytes:
    """Correct length and checksum, for any magic."""
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    if batch[16] < 2:
        return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the log once; every example copies it."""
    return seed_log().write(tmp_path_factory.mktemp("pristine"))


def test_batch_that_reaches_into_the_active_segment_is_refused(tmp_path: Path) -> None:
    """Else its last offset would be the map's end, and the active segment would be cleaned into the one before."""
    log = LogBuilder()
    log.append(("a", "0"))
    log.roll()
    log.append(("a", "1"))
    log.append(("b", "1"))
    log.roll()
    log.append(("a", "2"))
    directory = log.write(tmp_path)
    path = directory / f"{1:020d}.log"
    first, last = split_batches(path.read_bytes())
    path.write_bytes(first + with_right_checksum(last[:23] + struct.pack(">i", 128) + last[27:]))
    before = files_of(directory)

    with pytest.raises(CorruptBatchError, match=rf"at byte {len(first)}: its offset lies beyond the segment's end, 3"):
        clean(directory, settings={**SETTINGS, "internal.segment.bytes": str(len(first))})
    assert files_of(directory) == before


def test_batch_of_the_clean_section_that_reaches_into_the_next_segment_is_refused(tmp_path: Path) -> None:
    """What the map knows of its last offset is about another record: the round would drop it, and Kafka keeps it."""
    log = LogBuilder()
    log.append(("a", "1"))
    log.append(("b", "1"))
    log.roll()
    log.append(("c", "1"), ("c", "2"))
    log.roll()
    log.append(("end", "v"))
    directory = log.write(tmp_path)
    path = directory / f"{0:020d}.log"
    first, last = split_batches(path.read_bytes())
    # Record and batch get offset 2, where the next segment begins.
    path.write_bytes(first + with_right_checksum(struct.pack(">q", 2) + last[8:]))
    before = files_of(directory)

    with pytest.raises(CorruptBatchError, match=rf"at byte {len(first)}: its offset lies beyond the segment's end, 2"):
        clean(directory, checkpoint=2)
    assert files_of(directory) == before


def clean_changed(pristine: Path, log: bytes) -> None:
    """Clean a copy of the log with other bytes in its first segment, and judge the result."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / pristine.name
        shutil.copytree(pristine, directory)
        (directory / f"{0:020d}.log").write_bytes(log)
        before = segment_files(files_of(directory))
        try:
            clean(directory)
        except CleanerError as error:
            assert str(directory) in str(error)
            assert segment_files(files_of(directory)) == before
        else:
            records_in(directory)
            assert not list(directory.glob("*.cleaned")) + list(directory.glob("*.swap"))


changes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=250, **COMMON)
@example(which=6, changed=[(477, 1)], grow=5)
@given(which=st.integers(0, len(BATCHES) - 1), changed=changes, grow=st.sampled_from([-3, 0, 0, 0, 5]))
def test_log_with_changed_bytes_is_cleaned_or_refused(
    pristine: Path, which: int, changed: list[tuple[int, int]], grow: int
) -> None:
    """Any bytes except framing and checksum, of any batch; if refused, nothing was changed."""
    batch = bytearray(BATCHES[which])
    for position, value in changed:
        batch[16 + position % (len(batch) - 16)] = value
    body = bytes(batch[:grow]) if grow < 0 else bytes(batch) + bytes(grow)
    clean_changed(pristine, b"".join([*BATCHES[:which], with_right_checksum(body), *BATCHES[which + 1 :]]))


@settings(max_examples=100, **COMMON)
@given(order=st.lists(st.integers(0, len(BATCHES) - 1), max_size=12))
def test_log_of_batches_in_any_order_is_cleaned_or_refused(pristine: Path, order: list[int]) -> None:
    """Lost, repeated, out of order."""
    clean_changed(pristine, b"".join(BATCHES[i] for i in order))


@settings(max_examples=100, **COMMON)
@given(position=st.integers(0, 10**6), data=st.binary(min_size=1, max_size=30))
def test_log_with_bytes_written_over_is_cleaned_or_refused(pristine: Path, position: int, data: bytes) -> None:
    """Without correcting any checksum."""
    log = bytearray(b"".join(BATCHES))
    at = position % len(log)
    log[at : at + len(data)] = data[: len(log) - at]
    clean_changed(pristine, bytes(log))


def test_unchanged_log_is_cleaned(pristine: Path, tmp_path: Path) -> None:
    """The log all others are made of is sound."""
    directory = tmp_path / pristine.name
    shutil.copytree(pristine, directory)
    before = records_in(directory)
    clean(directory)
    after = newest(records_in(directory))
    assert after[b"a"] == newest(before)[b"a"]
    assert after[b"b"][1] is None
