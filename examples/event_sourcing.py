"""
Event sourcing: what happened is what is kept, and the state is what follows from it.

The topic is kept for ever (`retention.ms=-1`) and not compacted: each event counts. A transfer is two events, or none:
they go into a transaction, and who reads committed records never sees half of it. Any earlier state can be had again.

    python -m examples.event_sourcing [DIRECTORY]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cleaner import Log, LogManager, Record

SETTINGS = {"cleanup.policy": "delete", "retention.ms": "-1", "compression.type": "zstd"}


class Refused(Exception):
    """An order that cannot be carried out; nothing has happened."""


def event(account: str, amount: int) -> Record:
    """Something that has happened to an account."""
    return Record(account.encode(), json.dumps({"amount": amount}).encode())


class Bank:
    """
    Accounts, whose balances are the sum of their events.

    Args:
        events: the log.
    """

    def __init__(self, events: Log) -> None:
        self._events = events
        # Whoever has this id in another process is fenced off from here on, and what it left half done is aborted.
        self._producer = events.producer("bank")
        self.balances = balances_at(events, events.last_stable_offset)

    def deposit(self, account: str, amount: int) -> None:
        """Take money in; it is on disk when this returns."""
        with self._producer.transaction():
            self._producer.append([event(account, amount)])
        self._events.flush()
        self.balances[account] += amount

    def transfer(self, source: str, target: str, amount: int) -> None:
        """Move money. Raises Refused: there is not enough."""
        with self._producer.transaction():
            self._producer.append([event(source, -amount)])
            if self.balances[source] < amount:
                raise Refused(f"{source} has {self.balances[source]}, not {amount}")  # aborts the transaction
            self._producer.append([event(target, amount)])
        self._events.flush()
        self.balances[source] -= amount
        self.balances[target] += amount


def balances_at(events: Log, end_offset: int) -> Counter[str]:
    """Return the balances as they were when the log ended at an offset."""
    balances: Counter[str] = Counter()
    for record in events.read(events.log_start_offset, isolation="read_committed"):
        if record.offset is not None and record.offset >= end_offset:
            break
        balances[(record.key or b"").decode()] += json.loads(record.value or b"")["amount"]
    return balances


def main(directory: Path) -> dict[str, Counter[str]]:
    """Move money about; returns the balances at several times."""
    with LogManager(directory, create=True) as manager:
        manager.create_topic("events", 1, SETTINGS)
        events = manager.log("events")
        bank = Bank(events)
        bank.deposit("alice", 100)
        before = events.last_stable_offset
        bank.transfer("alice", "bob", 30)
        try:
            bank.transfer("bob", "carol", 1000)
        except Refused as refused:
            print(f"refused: {refused}")
        bank.transfer("bob", "carol", 10)

    with LogManager(directory) as manager:
        events = manager.log("events")
        found = {"now": Bank(events).balances, "at first": balances_at(events, before)}
    for when, balances in found.items():
        print(f"{when}: {dict(balances)}")
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "logs")
