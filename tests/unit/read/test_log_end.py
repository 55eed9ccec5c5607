"""The end a recovery would leave, found by headers: equal to the recovery's own, with nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.format.headers import HeaderReader
from cleaner.read import log_end
from cleaner.read.log_end import RecoveredEnd, recovered_end
from cleaner.read.summary import list_log_files
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loader import load_log
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import START_MS, LogBuilder

FS = FileSystem()


def foreseen(directory: Path, recovery_point: int | None) -> RecoveredEnd:
    return recovered_end(FS, directory, list_log_files(FS, directory).segments, recovery_point)


def recovered_for_real(directory: Path, recovery_point: int) -> tuple[int, int]:
    """Recover for real; returns the log end offset and how many bytes went."""
    log = load_log(
        FS, directory, TopicPartition("topic", 0), topic=TopicConfig(), log_start_offset=0,
        recovery_point=recovery_point, high_watermark=0, clean_shutdown=False, producer_id_expiration_ms=10**9,
        now_ms=START_MS,
    )  # fmt: skip
    return log.log_end_offset, log.truncated_bytes


@pytest.mark.parametrize("recovery_point", [0, 40, 75])
@pytest.mark.parametrize("cut", [0, 1, 30, 100, 10**6])
def test_foreseen_end_of_a_torn_log_is_the_recovery_s(tmp_path: Path, recovery_point: int, cut: int) -> None:
    """Wherever the active segment is torn, behind whatever is there."""
    directory = keyed_log().write(tmp_path)
    active = directory / f"{60:020d}.log"
    data = active.read_bytes()
    active.write_bytes(data[: max(0, len(data) - cut)] + (b"half a batch" if cut == 30 else b""))
    found = foreseen(directory, recovery_point)
    assert (found.log_end_offset, found.cut_bytes) == recovered_for_real(directory, recovery_point)


def test_damage_in_a_segment_that_recovery_reads_cuts_all_behind_it(tmp_path: Path) -> None:
    """Below the recovery point nothing is doubted, as nothing is read there."""
    directory = keyed_log().write(tmp_path)
    path = directory / f"{20:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(bytes(data))
    assert foreseen(directory, 40).log_end_offset == 80
    found = foreseen(directory, 20)
    assert [s.base_offset for s in found.segments] == [0, 20]
    assert 0 < found.segments[-1].size <= len(data) // 2
    assert (found.log_end_offset, found.cut_bytes) == recovered_for_real(directory, 20)


@pytest.mark.parametrize("padding", [0, 8, 1024, 1027])
def test_active_segment_of_a_living_log_is_read_from_its_last_index_entry(
    tmp_path: Path, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's index is padded with zeros while it is written; a wrong entry is not used."""
    log = LogBuilder(index_interval_bytes=100)
    for n in range(100):
        log.append((f"k{n}", "v" * n))
    directory = log.write(tmp_path)
    index = directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes() + bytes(padding))
    starts = []
    reader = HeaderReader

    def watched(file: object, *, size: int, start: int, check_order_from: int) -> object:
        starts.append(start)
        return reader(file, size=size, start=start, check_order_from=check_order_from)  # type: ignore[arg-type]

    monkeypatch.setattr(log_end, "HeaderReader", watched)
    assert foreseen(directory, None).log_end_offset == 100
    assert len(starts) == 1
    assert starts[0] > 0
    entries = bytearray(index.read_bytes())
    entries[len(entries) - padding - 1] ^= 1
    index.write_bytes(bytes(entries))
    assert foreseen(directory, None).log_end_offset == 100
