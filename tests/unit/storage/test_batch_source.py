"""Where batches come from: short ranges by their headers; long ones, and all that may change, with checksums."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.errors import CorruptBatchError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import batch_source
from cleaner.storage.segment.batch_source import batch_headers, checked_batches
from cleaner.storage.segment.segment import Segment
from tests.support.log_builder import LogBuilder


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    """Ten batches, the last one with a flipped bit in its records."""
    log = LogBuilder()
    for number in range(10):
        log.append((f"k{number}", "v"))
    directory = log.write(tmp_path)
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))
    return Segment.open(FileSystem(), directory, 0)


def test_checked_batches_find_a_flipped_bit(segment: Segment) -> None:
    """The default for segments: everything that may be changed is read this way."""
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        segment.next_offset()
    with segment.open_log() as file, pytest.raises(CorruptBatchError, match="CRC-32C"):
        list(checked_batches(file, size=segment.size))


def test_headers_do_not_look_at_records(segment: Segment) -> None:
    """Headers are enough to find the log's end."""
    light = Segment.open(FileSystem(), segment.directory, 0, source=batch_headers)
    assert light.next_offset() == 10


def test_long_stretch_is_read_with_checksums(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some MiB on, the kernels are faster, even including their loading."""
    monkeypatch.setattr(batch_source, "MAX_HEADER_BYTES", segment.size - 1)
    light = Segment.open(FileSystem(), segment.directory, 0, source=batch_headers)
    with pytest.raises(CorruptBatchError, match="CRC-32C"):
        light.next_offset()
    monkeypatch.setattr(batch_source, "MAX_HEADER_BYTES", segment.size)
    assert light.next_offset() == 10
