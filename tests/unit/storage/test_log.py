"""A loaded log: R-401, R-402, R-535, and what a swap and a raised start change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder
from tests.unit.storage.logs import load


def segmented(tmp_path: Path, *, log_start_offset: int = 0) -> LoadedLog:
    """Segments at 10, 20, 30, each of ten batches; an abort in each of the first two, at 15 and 25."""
    log = LogBuilder(base_offset=10)
    for base in (10, 20, 30):
        if base > 10:
            log.roll()
        while log.next_offset < base + 10:
            if log.next_offset in (14, 22):
                log.append(("t", "x"), producer=Producer(log.next_offset, 0, 0, True))
            elif log.next_offset in (15, 25):
                log.end_transaction(14 if log.next_offset == 15 else 22, 0, commit=False)
            else:
                log.append(("k", "v"))
    return load(log.write(tmp_path), log_start_offset=log_start_offset)


def bases(segments: Sequence[Segment]) -> list[int]:
    """Base offsets."""
    return [segment.base_offset for segment in segments]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 25, [10, 20], id="below-all"),
        pytest.param(15, 20, [10], id="end-at-a-base"),
        pytest.param(15, 21, [10, 20], id="end-inside"),
        pytest.param(20, 20, [], id="empty"),
        pytest.param(35, 99, [30], id="in-the-last"),
    ],
)
def test_segments_between_takes_the_one_that_holds_the_start(
    tmp_path: Path, start: int, end: int, expected: list[int]
) -> None:
    """R-401: from the greatest base at or below the start."""
    assert bases(segmented(tmp_path).segments_between(start, end)) == expected


def test_segments_between_refuses_a_range_that_goes_back(tmp_path: Path) -> None:
    """R-401: IllegalArgument in Kafka."""
    with pytest.raises(ValueError, match="from 30 to 20"):
        segmented(tmp_path).segments_between(30, 20)


FIRST, SECOND = AbortedTxn(14, 14, 15, 16), AbortedTxn(22, 22, 25, 26)


@pytest.mark.parametrize(
    ("log_start_offset", "start", "end", "expected"),
    [
        pytest.param(10, 10, 40, [FIRST, SECOND], id="all"),
        pytest.param(10, 18, 40, [FIRST, SECOND], id="from-the-segment-that-holds-the-start"),
        pytest.param(10, 20, 40, [SECOND], id="from-a-base"),
        pytest.param(16, 16, 40, [SECOND], id="below-the-log-start"),
        pytest.param(10, 10, 22, [FIRST], id="first-offset-at-the-bound"),
        pytest.param(10, 10, 16, [FIRST], id="stops-once-stable-beyond-the-bound"),
        pytest.param(10, 5, 40, [], id="no-segment-holds-the-start"),
    ],
)
def test_collect_aborted_walks_the_transaction_indexes(
    tmp_path: Path, log_start_offset: int, start: int, end: int, expected: list[AbortedTxn]
) -> None:
    """R-535."""
    log = segmented(tmp_path, log_start_offset=log_start_offset)
    for _ in range(2):  # the second time, the walk knows which segments have none
        assert [AbortedTxn(*row) for row in log.collect_aborted(start, end).tolist()] == expected


def test_short_transaction_index_is_read_once_until_its_segment_is_replaced(tmp_path: Path) -> None:
    """Each segment of a round looks as far ahead as a transaction may reach, so each index is wanted many times."""
    log = segmented(tmp_path)
    first = log.segments[0]
    assert len(log.collect_aborted(10, 40)) == 2
    first.txn_index_path.unlink()
    assert [AbortedTxn(*row) for row in log.collect_aborted(10, 40).tolist()] == [FIRST, SECOND]
    log.replace([first], Segment.open(FileSystem(), log.directory, 10))
    assert [AbortedTxn(*row) for row in log.collect_aborted(10, 40).tolist()] == [SECOND]


def test_replaced_segments_leave_the_list(tmp_path: Path) -> None:
    """A swap replaces two segments by one."""
    log = segmented(tmp_path)
    old = log.segments[:2]
    old[0].log_path.write_bytes(b"")
    log.replace(old, Segment.open(FileSystem(), log.directory, 10))
    assert (log.segments[0].size, bases(log.segments)) == (0, [10, 30])


def test_log_start_never_rises_above_the_high_watermark(tmp_path: Path) -> None:
    """R-913: OffsetOutOfRange in Kafka."""
    log = segmented(tmp_path)
    log.set_high_watermark(20)
    log.raise_log_start(20)
    assert log.log_start_offset == 20
    with pytest.raises(ValueError, match="high watermark"):
        log.raise_log_start(21)


def test_last_stable_offset_is_the_next_batch_where_the_first_of_the_transaction_is_gone(tmp_path: Path) -> None:
    """R-407: Kafka looks up the first unstable offset in the log."""
    log = LogBuilder()
    log.append(("a", "1"))
    log.append(("t", "1"), producer=Producer(7, 0, 0, True))
    directory = log.write(tmp_path)
    first = directory / "00000000000000000000.log"
    sound = first.read_bytes()
    log.append(("b", "1"))
    log.write(tmp_path)
    whole = first.read_bytes()
    half = len(sound) // 2
    first.write_bytes(whole[:half] + whole[len(sound) :])
    assert load(directory).last_stable_offset == 2
