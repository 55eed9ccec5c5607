"""
A process that writes to the topics of a log dir through the library, and notes what it was answered.

    python -m tests.soak.writer LOG_DIR NOTES SETTINGS

SETTINGS are JSON: `manager` (settings), `topics` (name: settings), `cleaner` (whether it cleans by itself). It opens
the logs, prints `ready`, and obeys lines on its standard input:

    go {"life": 3, "seed": 7, "rate": 20, "again": {...}}    write; `again`: appends to repeat first
    pause     end all transactions, flush, print `paused`, wait for the next `go`
    rounds    print how many rounds its own cleaner has ended
    roll      as `pause`, and roll all logs; print `rolled`
    end       close in order, exit code 0

SIGTERM closes in order at once. A log that had to be closed is the end: exit code 3; a broken promise: 4.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any

from cleaner.errors import (
    CleanerError,
    InvalidTxnStateError,
    LogClosedError,
    LogDirLockedError,
    LogWriteError,
    ProducerFencedError,
)
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from cleaner.log.record import Appended, ProducerStamp, Record
from tests.simulation.found import ID_HEADER
from tests.soak.notes import Notes, value_of

LOG_CLOSED, PROMISE_BROKEN = 3, 4
NUMBERS_A_LIFE = 10_000_000
_KEYS = "abcdefghijklmnopqrstuvwxyz"
_WEIGHTS = {
    "append": 50,
    "repeat": 10,
    "transact": 14,
    "end": 8,
    "flush": 5,
    "roll": 6,
}
_SHAPES = ((1, 40), (1, 40), (3, 30), (4, 200), (12, 20), (60, 10), (2, 6000))  # records, padding
_OPEN_SECONDS = 90.0
_DURABLE_SECONDS = 240.0  # a stopped cleaner may hold a lock that a roll waits for


class _Ended(Exception):
    """SIGTERM came."""


class Numbers:
    """Numbers for records and transactions of one life."""

    def __init__(self, life: int) -> None:
        self._next = life * NUMBERS_A_LIFE
        self._lock = threading.Lock()

    def take(self, count: int) -> int:
        """Return the first of `count` numbers."""
        with self._lock:
            first, self._next = self._next, self._next + count
        return first


class Client(threading.Thread):
    """One client of one log."""

    def __init__(self, log: Log, number: int, notes: Notes, numbers: Numbers, seed: str, rate: float) -> None:
        super().__init__(name=f"client-{log.topic_partition}-{number}", daemon=True)
        self._log = log
        self._name = f"client-{number}"
        self._partition = str(log.topic_partition)
        self._notes = notes
        self._numbers = numbers
        self._random = Random(seed)
        self._rate = rate
        self._transactional: Any = None
        self._idempotent: Any = None
        self._transaction: int | None = None
        self._asked: bool | None = None
        self.may_run = threading.Event()
        self.is_idle = threading.Event()

    def run(self) -> None:
        """Do one thing after another; a log that had to be closed ends the process."""
        try:
            while True:
                if not self.may_run.is_set():
                    self._end(commit=False)
                    self.is_idle.set()
                    self.may_run.wait()
                time.sleep(self._random.expovariate(self._rate))
                (kind,) = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
                self._try(kind)
        except BaseException:  # noqa: BLE001  the process's end
            traceback.print_exc()
            os._exit(PROMISE_BROKEN)

    def pause(self) -> None:
        """Have it end its transaction and wait; `is_idle` is set then."""
        self.is_idle.clear()
        self.may_run.clear()

    def _try(self, kind: str) -> None:
        try:
            getattr(self, f"_{kind}")()
        except (CleanerError, OSError) as error:
            self._notes.write("error", p=self._partition, what=type(error).__name__, text=f"{kind}: {error}")
            if self._log.is_closed:
                print(f"{self._partition} had to be closed: {error}", file=sys.stderr)
                os._exit(LOG_CLOSED)

    def _append(self) -> None:
        self._send(lambda records: self._log.append(records))

    def _repeat(self) -> None:
        if self._idempotent is None:
            self._idempotent = self._log.producer()
        producer = self._idempotent
        producer_id, epoch = producer.identity
        stamp = ProducerStamp(producer_id, epoch, producer.next_sequence)
        records, appended = self._send(lambda some: producer.append(some, sequence=stamp.base_sequence), stamp=stamp)
        again = producer.append(records, sequence=stamp.base_sequence)
        if not again.is_repeat or again.base_offset != appended.base_offset:
            raise AssertionError(f"{self._partition}: repeated at {again.base_offset}, {appended.base_offset} before")

    def _transact(self) -> None:
        if self._transactional is None:
            self._transactional = self._log.producer(self._name)
        try:
            if self._transaction is None:
                self._transactional.begin()
                self._transaction, self._asked = self._numbers.take(1), None
            self._send(self._transactional.append, transaction=self._transaction)
        except (ProducerFencedError, InvalidTxnStateError):
            self._transaction = self._transactional = None  # it took longer than its timeout

    def _end(self, *, commit: bool | None = None) -> None:
        name = self._transaction
        if name is None:
            return
        commit = self._random.random() < 0.6 if commit is None else commit
        # An end that failed is tried again as it was; it may have been done.
        before = self._asked
        commit = self._asked = commit if before is None else before
        self._notes.write("ask", p=self._partition, x=name, commit=commit)
        try:
            future = self._transactional.commit() if commit else self._transactional.abort()
        except (ProducerFencedError, InvalidTxnStateError):
            self._notes.write("unask", p=self._partition, x=name, commit=before)
            self._transaction = self._transactional = None
            return
        self._notes.write("ended", p=self._partition, x=name, commit=commit)
        self._transaction = None
        if self._random.random() < 0.5:
            future.result(_DURABLE_SECONDS)
            self._notes.write("stable", p=self._partition, x=name)

    def _flush(self) -> None:
        self._notes.write("flushed", p=self._partition, to=self._log.flush())

    def _roll(self) -> None:
        self._log.roll()

    def _send(
        self, append: Any, *, transaction: int | None = None, stamp: ProducerStamp | None = None
    ) -> tuple[list[Record], Appended]:
        count, padding = self._random.choice(_SHAPES)
        count = self._random.randint(1, count)
        keys = "".join(self._random.choices(_KEYS, k=count))
        if self._random.random() < 0.12:
            keys = keys[:-1] + keys[-1].upper()
        first = self._numbers.take(count)
        known = {} if transaction is None else {"x": transaction}
        numbers = {} if stamp is None else {"stamp": list(stamp)}
        self._notes.write("send", p=self._partition, n=first, keys=keys, pad=padding, **known, **numbers)
        records = records_of(first, keys, padding)
        try:
            appended: Appended = append(records)
        except (LogClosedError, LogWriteError):
            raise  # it may be there
        except CleanerError:
            self._notes.write("failed", p=self._partition, n=first)
            raise
        self._notes.write("answer", p=self._partition, n=first, at=appended.base_offset)
        if appended.last_offset - appended.base_offset + 1 != count:
            raise AssertionError(f"{count} records got {appended.base_offset} to {appended.last_offset}")
        if self._random.random() < 0.3:
            appended.durable.result(_DURABLE_SECONDS)
            self._notes.write("durable", p=self._partition, n=first)
        return records, appended


def records_of(first: int, keys: str, padding: int) -> list[Record]:
    """Return the records of an append."""
    return [
        Record(key.lower().encode(), value_of(number, key, padding), ((ID_HEADER, str(number).encode()),))
        for number, key in enumerate(keys, first)
    ]


def open_manager(log_dir: Path, settings: dict[str, Any]) -> LogManager:
    """Open the logs; a cleaner that recovers them at the moment is waited for."""
    until = time.monotonic() + _OPEN_SECONDS
    while True:
        try:
            manager = LogManager(log_dir, settings["manager"], create=True, cleaner=settings["cleaner"])
            break
        except LogDirLockedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    for failure in manager.failed.values():
        raise failure
    for topic, its in settings["topics"].items():
        if topic not in manager.topics():
            manager.create_topic(topic, settings=its)
    return manager


def _repeat_of_last_life(manager: LogManager, again: dict[str, Any]) -> None:
    for name, append in again.items():
        log = manager.log(name.rpartition("-")[0])
        found = log.append(
            records_of(append["n"], append["keys"], append["pad"]), producer=ProducerStamp(*append["stamp"])
        )
        if not found.is_repeat or found.base_offset != append["at"]:
            raise AssertionError(f"{name}: repeated after an opening at {found.base_offset}, not {append['at']}")


class _Writing:
    """The clients, and what is asked of them."""

    def __init__(self, manager: LogManager, notes: Notes) -> None:
        self._manager = manager
        self._notes = notes
        self._clients: list[Client] = []

    def obey(self, line: str) -> bool:
        """Do what a line asks for; False: it was the last."""
        word, _, rest = line.strip().partition(" ")
        if word == "go":
            self._go(json.loads(rest))
        elif word == "pause":
            self.pause()
            print("paused", flush=True)
        elif word == "rounds":
            print(self._rounds(), flush=True)
        elif word == "roll":
            self.pause()
            for log in self._manager.logs().values():
                log.roll()
            print("rolled", flush=True)
        elif word in ("end", ""):
            return False
        return True

    def pause(self) -> None:
        """Bring all clients to rest, and everything to the disk."""
        for client in self._clients:
            client.pause()
        for client in self._clients:
            client.is_idle.wait()
        for log in self._manager.logs().values():
            self._notes.write("flushed", p=str(log.topic_partition), to=log.flush())

    def _go(self, order: dict[str, Any]) -> None:
        if not self._clients:
            _repeat_of_last_life(self._manager, order.get("again", {}))
            numbers, seed, rate = Numbers(order["life"]), order["seed"], order["rate"]
            logs = sorted(self._manager.logs().items(), key=str)
            # Two clients of the first log: their transactions overlap.
            for number, log in enumerate([logs[0][1], *(log for _, log in logs)]):
                self._clients.append(Client(log, number, self._notes, numbers, f"{seed}/{number}", rate))
                self._clients[-1].may_run.set()
                self._clients[-1].start()
        for client in self._clients:
            client.may_run.set()

    def _rounds(self) -> int:
        cleaner = self._manager.cleaner
        totals = [] if cleaner is None else cleaner.snapshot().topics.values()
        return sum(sum(each.rounds.values()) for each in totals)


def main() -> int:
    """Write, as the arguments and the standard input say; returns the exit code."""
    log_dir, notes, settings = Path(sys.argv[1]), Notes(Path(sys.argv[2])), json.loads(sys.argv[3])

    def end(*_: object) -> None:
        raise _Ended

    manager = open_manager(log_dir, settings)
    signal.signal(signal.SIGTERM, end)
    writing = _Writing(manager, notes)
    try:
        print("ready", flush=True)
        for line in sys.stdin:
            if not writing.obey(line):
                break
    except _Ended:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    manager.close()
    os._exit(0)  # clients that are in the middle of something do not matter any more


if __name__ == "__main__":
    sys.exit(main())
