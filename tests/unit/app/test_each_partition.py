"""Partitions side by side: in order, no more than asked for, and what ends them all."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from cleaner.app.each_partition import side_by_side
from cleaner.app.reports import Refusal
from cleaner.base.model import TopicPartition
from cleaner.errors import CleaningAborted, LogDirOfflineError, WriterWaitingError

TODO = {TopicPartition("t", number): Path(f"t-{number}") for number in range(8)}
PATIENCE_SECONDS = 30.0


def test_outcomes_come_in_order_whichever_ends_first() -> None:
    """The first one ends last."""
    others = threading.Semaphore(0)

    def work(topic_partition: TopicPartition, _directory: Path) -> int:
        if topic_partition.partition:
            others.release()
        else:
            for _ in range(len(TODO) - 1):
                assert others.acquire(timeout=PATIENCE_SECONDS)
        return topic_partition.partition

    assert list(side_by_side(TODO, work, lambda: 2)) == list(range(8))


def test_no_more_are_cleaned_at_once_than_allowed() -> None:
    """As many as that, though."""
    lock, met = threading.Lock(), threading.Barrier(2)
    under_way, most = 0, 0

    def work(_topic_partition: TopicPartition, _directory: Path) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        met.wait(PATIENCE_SECONDS)
        with lock:
            under_way -= 1

    assert list(side_by_side(TODO, work, lambda: 2)) == [None] * 8
    assert most == 2


def test_failed_disk_ends_the_partitions_behind_it() -> None:
    """Those that were not begun are refused."""

    def work(topic_partition: TopicPartition, directory: Path) -> int | Refusal:
        if topic_partition.partition == 2:
            return Refusal(str(topic_partition), LogDirOfflineError(directory, OSError(errno.EIO, "broken")))
        return topic_partition.partition

    outcomes = list(side_by_side(TODO, work, lambda: 1))
    assert outcomes[:2] == [0, 1]
    assert [str(outcome.error) for outcome in outcomes[3:] if isinstance(outcome, Refusal)] == [
        "not begun: the disk failed earlier"
    ] * 5


def test_stop_is_raised_behind_the_outcomes_of_those_under_way() -> None:
    """It says how many were not begun, and stays the kind of stop that it was."""
    met = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def work(topic_partition: TopicPartition, _directory: Path) -> int:
        if topic_partition.partition < 2:
            met.wait()
        if topic_partition.partition == 0:
            raise WriterWaitingError("a writer")
        return topic_partition.partition

    taken: list[object] = []
    with pytest.raises(CleaningAborted) as raised:
        for outcome in side_by_side(TODO, work, lambda: 2):
            taken.append(outcome)
    assert type(raised.value) is WriterWaitingError
    assert taken == list(range(1, 1 + len(taken)))
    left = len(TODO) - 1 - len(taken)
    assert str(raised.value) == "a writer" + (f"; {left} more partitions were not begun" if left else "")
    assert taken
