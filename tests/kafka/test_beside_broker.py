"""
The commands that only read, next to a real broker under load: on a read-only mount, without a lock, changing nothing.

A producer writes to a compacted topic with small segments, so the broker rolls, cleans, swaps and deletes while a
command reads. The commands see the directory through a read-only mount.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, Client, Outgoing
from tests.kafka.rig import Rig

pytestmark = [pytest.mark.kafka, pytest.mark.root]

TOPIC = "prices"
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "200",
}


@pytest.fixture(scope="module")
def broker(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker with one topic."""
    if os.geteuid() != 0:
        pytest.skip("a read-only mount takes root")
    with Broker(
        cleaning_broker_rig, clients(cleaning_broker_rig), tmp_path_factory.mktemp("beside") / "broker"
    ) as broker:
        broker.create([TOPIC], SETTINGS)
        yield broker


def records(turn: int) -> list[Outgoing]:
    """Return 5 MB of new values of 200 keys."""
    return [Outgoing(f"key-{number % 200}", f"{turn}-{number}-" * 30) for number in range(15_000)]


@contextmanager
def under_load(broker: Broker) -> Iterator[list[int]]:
    """Write to the topic, turn after turn, for as long as the block lasts; gives the turns that are done."""
    turns: list[int] = []
    failures: list[BaseException] = []
    is_over = threading.Event()

    def write() -> None:
        try:
            while not is_over.is_set():
                broker.write(TOPIC, records(len(turns)))
                turns.append(len(turns))
        except BaseException as error:  # noqa: BLE001 - the test that waits for the thread raises it
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield turns
    finally:
        is_over.set()
        writer.join()
    assert failures == []


def look(broker: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that sees the log dir read-only."""
    command = [sys.executable, "-m", "cleaner", *words]
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", script, str(broker.log_dir), *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[2],
    )


LOOKS = (
    ("plan", "{dir}", "--format", "json"),
    ("plan", "{dir}", "--estimate", "--format", "json"),
    ("explain", "{dir}", f"{TOPIC}-0"),
    ("check", "{dir}", "--clean-section"),
    ("dump", f"{{dir}}/{TOPIC}-0/00000000000000000000.log", "--deep-iteration"),
)


def test_commands_look_at_a_busy_log_dir(broker: Broker) -> None:
    """They find nothing wrong with a log that is written, rolled and cleaned; they say that it is in use."""
    with under_load(broker) as turns:
        done = [look(broker, *(word.format(dir=broker.log_dir) for word in words)) for words in (*LOOKS, *LOOKS)]
    assert len(turns) >= 4
    assert [f"{each.stdout}{each.stderr}"[-900:] for each in done if each.returncode] == []
    whole = [each for each in done if "dump" not in each.args]  # a dump tells of gaps, as Kafka's does
    assert [each.stderr for each in whole if each.stderr] == []
    assert all("in use" in each.stdout or "in_use" in each.stdout for each in whole)

    newest = {record.key: record.value for record in broker.read([TOPIC])[TOPIC]}
    expected = {record.key.encode(): (record.value or "").encode() for record in records(turns[-1])}
    assert newest == expected, "the broker has noticed"
    assert [line for line in broker.log.splitlines() if " ERROR " in line] == []
