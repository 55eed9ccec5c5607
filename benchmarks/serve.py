"""
`cleaner serve` beside Kafka's broker, on the same files and with the same client, each reading in a process of its own:

    .venv/bin/pip install .[bench]
    .venv/bin/python -m benchmarks.serve [--runs 5] [--scratch DIR]

The client is librdkafka with its defaults, called from Python by ten thousand records a call; it reads W2, 525 MB of
records of 1 KB, from the page cache, from the first record's arrival to the last one's. The broker is started on a copy
of the log, and both serve that while they take turns. Without the package `confluent-kafka` it is left out and says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import cleaner
from benchmarks.inputs import PARTITION, W2, cached
from benchmarks.tables import HELD_TO, Bounds, table
from cleaner.base.model import TopicPartition
from tests.kafka.broker import Broker, Client, install_partition
from tests.kafka.rig import VERSIONS, Rig

PACKAGE = "confluent_kafka"
NOT_SLOWER = Bounds(1)
_TOPIC, _, _NUMBER = PARTITION.rpartition("-")
_CLIENT = """
import sys, time
from confluent_kafka import Consumer, TopicPartition
address, topic, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False}
consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
consumer.assign([TopicPartition(topic, 0, 0)])
size, began, last = 0, None, -1
while last < end - 1:
    some = consumer.consume(10_000, timeout=30)
    if not some or any(each.error() for each in some):
        sys.exit("the records do not come")
    began = began or time.perf_counter()
    size += sum(map(len, some))
    last = some[-1].offset()
print(size / (time.perf_counter() - began) / 1e6)
consumer.close()
"""


def _megabytes_a_second(address: str, end_offset: int) -> float:
    command = [sys.executable, "-c", _CLIENT, address, _TOPIC, str(end_offset)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)


def serve_table(rig: Rig, scratch: Path, runs: int) -> str:
    """Take turns, after one that warms up."""
    title = "Reading with librdkafka, MB/s"
    if importlib.util.find_spec(PACKAGE) is None:
        return f"{title}: left out, the package {PACKAGE.replace('_', '-')} is not installed\n"
    source = cached(rig, W2)
    with cleaner.open_reader(source, _TOPIC, int(_NUMBER)) as reader:
        end = reader.high_watermark
    with closing(Client(rig, scratch / "client.log")) as client:
        broker = Broker(rig, client, scratch / "broker")
        with broker:
            broker.create([_TOPIC], {"cleanup.policy": "delete", "retention.ms": "-1"})
        install_partition(broker, _TOPIC, source, TopicPartition(_TOPIC, int(_NUMBER)))
        with broker, cleaner.serve_log_dirs(broker.log_dir) as address:
            turns = [
                (_megabytes_a_second(broker.address, end), _megabytes_a_second(address, end)) for _ in range(runs + 1)
            ]
    theirs, ours = ([turn[which] for turn in turns[1:]] for which in (0, 1))
    spans = [f"{min(each):.0f} to {max(each):.0f}" for each in (theirs, ours)]
    ratio = statistics.median(ours) / statistics.median(theirs)
    medians = [f"{statistics.median(each):.0f}" for each in (theirs, ours)]
    row = [W2.name, medians[0], spans[0], medians[1], spans[1], *NOT_SLOWER.cells(ratio, " x")]
    return table(title, ["log", "broker", "from, to", "ours", "from, to", "ratio", *HELD_TO], [row])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serve", description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))  # noqa: S108
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        print(serve_table(Rig.load(VERSIONS[0]), Path(scratch), options.runs))


if __name__ == "__main__":
    main()
