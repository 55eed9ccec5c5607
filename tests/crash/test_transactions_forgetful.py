"""Transactions over partitions and topics, with an offset of a group: whole or not there after any power cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cleaner.base.model import TopicPartition
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from tests.support.forgetful_fs import ForgetfulFileSystem

SEED = 20
SETTINGS = {"num.recovery.threads.per.data.dir": "1", "log.index.size.max.bytes": "4096", "segment.bytes": "1048576"}
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0))
ABORTED = 3
GROUP = "billing"


class Promise(NamedTuple):
    """From this length of the journal on, these transactions are committed."""

    journal_length: int
    numbers: list[int]


def _open(root: Path, fs: ForgetfulFileSystem | None = None) -> LogManager:
    return LogManager(root, SETTINGS, cleaner=False, tasks=False, fs=fs)


def _logs(manager: LogManager) -> list[Log]:
    return [manager.log(*partition) for partition in PARTITIONS]


def _run(root: Path, *, skip_sync: int | None = None) -> tuple[ForgetfulFileSystem, list[Promise]]:
    """Commit some transactions, abort one, leave one open; returns what was promised when."""
    with LogManager(root, SETTINGS, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("orders", 2)
        manager.create_topic("payments")
        manager.log("orders").offsets(GROUP).commit(0)
        manager.producer("service")
    fs = ForgetfulFileSystem(root, skip_sync=skip_sync)
    manager = _open(root, fs)
    promises, numbers = [Promise(0, [])], []
    producer = manager.producer("service")
    for number in range(1, 6):
        producer.begin()
        for log in _logs(manager):
            producer.append(log, Record(b"k", str(number).encode()))
        manager.log("orders").offsets(GROUP).commit(number, transaction=producer)
        if number == ABORTED:
            producer.abort()
        elif number < 5:
            producer.commit()
            numbers.append(number)
            promises.append(Promise(len(fs.journal), list(numbers)))
    manager.abandon()
    return fs, promises


def _found(manager: LogManager) -> tuple[list[list[int]], int | None]:
    """Return the numbers of the transactions in each partition, and the committed offset."""
    found = [[int(record.value or b"") for record in log.read(0, isolation="read_committed")] for log in _logs(manager)]
    return found, manager.log("orders").offsets(GROUP).load()


def _broken(fs: ForgetfulFileSystem, promises: list[Promise], scratch: Path, *, step: int, limit: int) -> Iterator[str]:
    """Open each of some states twice; yield what is wrong with it, or nothing."""
    for place, point in enumerate(fs.crash_points()):
        if place % step:
            continue
        promised = [promise for promise in promises if promise.journal_length <= point][-1].numbers
        for count, state in enumerate(fs.states_at(point, limit=limit, seed=SEED)):
            root = scratch / f"{point}-{count}"
            state.write_to(root)
            answers = []
            for _ in range(2):
                with _open(root) as manager:
                    found, offset = _found(manager)
                    answers.append((found, offset))
                    hanging = [log for log in _logs(manager) if log.last_stable_offset != log.log_end_offset]
                    wrong = (
                        hanging
                        or found.count(found[0]) != len(found)
                        or found[0][: len(promised)] != promised
                        or ABORTED in found[0]
                        or offset != (found[0] or [0])[-1]
                    )
                    if wrong:
                        yield f"point {point}, {promised} promised: {found}, {offset}, {hanging}: {state.note}"
            if answers[0] != answers[1]:
                yield f"point {point}: {answers}: {state.note}"
            yield ""


@pytest.mark.parametrize(("step", "limit"), [(5, 2), pytest.param(1, 12, marks=pytest.mark.slow)])
def test_transaction_is_whole_or_not_there_after_a_power_cut(tmp_path: Path, step: int, limit: int) -> None:
    """In every partition, with its offset, at any step; what was answered as committed is there, and nothing hangs."""
    outcomes = list(_broken(*_run(tmp_path / "watched"), tmp_path / "crashed", step=step, limit=limit))
    assert "".join(outcomes) == ""
    assert len(outcomes) >= 15
