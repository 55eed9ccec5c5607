"""
A change feed: a service publishes what its products are like, others read along. One of them comes late.

The topic is compacted. So who comes late reads the last state of every product and goes on with what changes: without
asking the service for anything, and without reading all that ever happened.

    python -m examples.change_feed [DIRECTORY]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import cleaner
from cleaner import LogManager, Record

SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}


class Consumer:
    """Keeps a table of products, and the place in the feed up to which it has read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prices: dict[str, int] = {}
        self.next_offset = 0
        self.records_read = 0

    def read(self, records: Iterable[Record]) -> None:
        """Apply changes: a value replaces the product, a tombstone removes it."""
        for record in records:
            product = (record.key or b"").decode()
            if record.value is None:
                self.prices.pop(product, None)
            else:
                self.prices[product] = json.loads(record.value)["price"]
            self.next_offset = (record.offset or 0) + 1
            self.records_read += 1

    def __str__(self) -> str:
        return f"{self.name} has read {self.records_read} records: {self.prices}"


def product(name: str, price: int) -> Record:
    """Say what a product is like now: all of it, not the difference."""
    return Record(name.encode(), json.dumps({"price": price}).encode())


def main(directory: Path) -> tuple[Consumer, Consumer]:
    """Publish, read along, compact, join late; returns both consumers."""
    early, late = Consumer("early"), Consumer("late")

    with LogManager(directory, create=True, cleaner=False) as manager:
        manager.create_topic("products", 1, SETTINGS)
        feed = manager.log("products")
        for price in range(100):
            feed.append([product("tea", price), product("coffee", 2 * price)])
        feed.append([Record(b"coffee", None)])  # no longer sold
        feed.flush()  # readers are shown what no crash takes back
        early.read(feed.read(early.next_offset))
        feed.roll()  # what lies in the active segment is not cleaned

    report = cleaner.clean(directory, "products-0")
    print(f"{report.messages_read} records were looked at, {report.messages_written} are left")

    with LogManager(directory, cleaner=False) as manager:
        feed = manager.log("products")
        feed.append([product("water", 1)])
        feed.flush()
        early.read(feed.read(early.next_offset))
        late.read(feed.read(feed.log_start_offset))

        # Both wait for what comes next; to follow ends here when nothing came for a while.
        feed.append([product("tea", 7)]).durable.result()
        for consumer in (early, late):
            consumer.read(feed.follow(consumer.next_offset, timeout_seconds=0.1))

    print(early)
    print(late)
    return early, late


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "logs")
