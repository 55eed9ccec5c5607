"""Damaged batches: each one is reported, and reading goes on after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions
from tests.support.batch_builder import Record, data_batch
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.verification_check.checking import check, log_of, positions

pytestmark = pytest.mark.kernels

LOG = "00000000000000000000.log"


def written(path: Path, log: LogBuilder) -> tuple[Path, bytearray, list[int]]:
    """Write a log dir; returns the `.log`, its bytes and where its batches begin."""
    file = write_log_dir(path, log) / str(log.topic_partition) / LOG
    data = bytearray(file.read_bytes())
    return file, data, positions(bytes(data))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_batch_with_a_flipped_bit_is_reported(tmp_path: Path, codec: str) -> None:
    """Also neighbours, and the first and last batch; the log's end stays where it is."""
    log = log_of(40, codec=codec)
    log.roll()
    log.append(("c", "d"))
    file, data, begins = written(tmp_path, log)
    damaged = [0, 7, 8, 9, 23, 39]
    for number in damaged:
        data[begins[number + 1] - 3] ^= 4
    file.write_bytes(data)
    checked = check(tmp_path)
    assert checked.damages == [("batch-checksum", LOG, begins[number], 2 * number) for number in damaged]
    assert checked.totals.damages == len(damaged)
    assert checked.partitions[0].log_end_offset == 81


def test_damages_of_many_kinds_in_one_file_are_all_reported(tmp_path: Path) -> None:
    """Without a reliable length reading goes on at the next whole batch, otherwise at the following batch."""
    log = log_of(40)
    log.roll()
    log.append(("c", "d"))
    file, data, begins = written(tmp_path, log)
    data[begins[3] + 16] = 7  # magic
    data[begins[10] + 8 : begins[10] + 12] = b"\x7f\0\0\0"  # length
    data[begins[15] : begins[17]] = bytes(begins[17] - begins[15])
    data[begins[20] : begins[20] + 8] = (5).to_bytes(8, "big")  # base offset, which no checksum covers
    data[begins[30] + 70] ^= 1
    file.write_bytes(data)
    checked = check(tmp_path)
    assert checked.damages == [
        ("batch-magic", LOG, begins[3], 6),
        ("batch-cut-off", LOG, begins[10], None),
        ("batch-length", LOG, begins[15], None),
        ("batch-offsets", LOG, begins[20], 5),
        ("batch-checksum", LOG, begins[30], 60),
    ]
    reasons = [finding.reason for finding in checked.findings]
    assert f"the next whole batch begins at {begins[11]}" in reasons[1]
    assert f"the next whole batch begins at {begins[17]}" in reasons[2]


def test_several_batches_of_unreadable_records_are_reported(tmp_path: Path) -> None:
    """Their checksums are right: a producer or a broker wrote them so."""
    log = LogBuilder()
    for number in range(12):
        log.append(("k", "v"), ("l", "w"), overrides={"count": 1} if number in (2, 3, 9) else None)
    log.roll()
    log.append(("c", "d"))
    _, _, begins = written(tmp_path, log)
    checked = check(tmp_path)
    assert checked.damages == [("batch-records", LOG, begins[n], 2 * n) for n in (2, 3, 9)]


def test_damage_after_many_windows_and_in_large_batches_is_reported(tmp_path: Path) -> None:
    """A file of several windows, and one batch larger than a window, on several threads."""
    log = log_of(30, value="v" * 100_000)
    log.append(("big", "x" * (3 << 20)))
    log.append(("k", "v"))
    log.roll()
    log.append(("c", "d"))
    file, data, begins = written(tmp_path, log)
    for number in (4, 29, 30):
        data[begins[number + 1] - 9] ^= 1
    data[begins[12] + 16] = 3
    file.write_bytes(data)
    assert check(tmp_path).damages == [
        ("batch-checksum", LOG, begins[4], 8),
        ("batch-magic", LOG, begins[12], 24),
        ("batch-checksum", LOG, begins[29], 58),
        ("batch-checksum", LOG, begins[30], 60),
    ]


def test_nothing_of_a_key_or_value_is_shown(tmp_path: Path) -> None:
    """Not even where a batch should begin and there is a value."""
    log = log_of(4, value="secret" * 20, index_interval_bytes=1 << 20)
    log.roll()
    log.append(("c", "d"))
    file, data, begins = written(tmp_path, log)
    file.write_bytes(data[: begins[2]] + data[begins[2] + 70 :])
    checked = check(tmp_path, options=CheckOptions(clean_section=True))
    assert [kind for kind, *_ in checked.damages] == ["batch-magic"]
    assert checked.findings[0].offset is None
    assert "secr" not in str(checked.findings)


def test_batch_inside_a_value_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    """A record may hold a batch as its value; behind a wrong checksum the length is still to be trusted."""
    inner = data_batch([Record(b"k", b"v")], 0)
    log = LogBuilder()
    log.append((b"a", inner))
    log.append((b"b", b"c"))
    log.roll()
    log.append(("c", "d"))
    file, data, begins = written(tmp_path, log)
    data[begins[1] - 1] ^= 1
    file.write_bytes(data)
    assert check(tmp_path).damages == [("batch-checksum", LOG, 0, 0)]
