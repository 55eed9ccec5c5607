"""
An application of Kafka Streams restores its store from a changelog that we have cleaned, or erased keys from.

A broker runs two such applications, one in a classic group and one in a streams group (KIP-1071). It is stopped; the
active segments are rolled, `cleaner clean` runs over changelogs and `__consumer_offsets`, and `cleaner erase` over one
of the changelogs. `cleaner verify --as groups` says that both groups are what they were. Then the broker starts again,
and each application with an empty state directory.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cleaner import LogManager
from tests.kafka.broker import Broker, Client, Outgoing
from tests.kafka.rig import STREAMS, Rig, Unavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

INPUT, GROUPS = "readings", "__consumer_offsets"
PROGRAM = Path(__file__).parent / "streams" / "StreamsStore.java"
PROTOCOLS = {"app-classic": "classic", "app-streams": "streams"}
LAST = ("end", "here")
ERASED = [f"sensor-{number}" for number in range(0, 150, 7)]
_PATIENCE_SECONDS = 180


def readings() -> list[Outgoing]:
    """Return records of 150 keys in an order without pattern, each thirteenth a tombstone, and a last one."""
    rows = [
        Outgoing(f"sensor-{i * 2654435761 % 150}", None if i % 13 == 5 else f"{i}-" + "x" * (900 + i % 100))
        for i in range(4000)
    ]
    return [*rows, Outgoing(*LAST)]


def expected() -> dict[str, int]:
    """Return the table that these records make: the length of each key's last value."""
    last = {record.key: record.value for record in readings()}
    return {key: len(value) for key, value in last.items() if value is not None}


def changelog(app: str) -> str:
    """Return the name of an application's changelog."""
    return f"{app}-store-changelog"


@dataclass
class Ran:
    """What an application said: how many records it restored, and what its store holds."""

    restored: int
    rows: dict[str, int]


def run(jars: Rig, broker: Broker, app: str, state_dir: Path) -> Ran:
    """Run an application until its store has the last record."""
    command = jars.command(str(PROGRAM), broker.address, app, PROTOCOLS[app], state_dir, INPUT, *LAST)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *rows = done.stdout.splitlines()
    return Ran(int(first.split()[1]), {key: int(length) for key, length in (row.split("\t") for row in rows)})


def cleaner(*arguments: object) -> str:
    """Run a command of ours; returns what it printed."""
    command = [sys.executable, "-m", "cleaner", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@dataclass
class Story:
    """What happened, for the tests to judge."""

    first: dict[str, Ran]
    logs: list[str]
    reports: list[dict[str, Any]]
    compared: dict[str, Any]
    again: dict[str, Ran]
    listed: str


@pytest.fixture(scope="module")
def story(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run the whole story once with each version of the broker."""
    try:
        jars, tools = Rig.load_tools(STREAMS), Rig.load_tools()
    except Unavailable as error:
        pytest.skip(f"no Kafka Streams: {error}")
    home = tmp_path_factory.mktemp("streams")
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), home / "broker")
    with broker:
        broker.create([INPUT], {})
        broker.write(INPUT, readings())
        first = {app: run(jars, broker, app, home / f"{app}-first") for app in PROTOCOLS}

    with LogManager(broker.log_dir, cleaner=False) as manager:
        for topic in (GROUPS, *map(changelog, PROTOCOLS)):
            manager.log(topic).roll()
    before = home / "before"
    shutil.copytree(broker.log_dir, before)
    logs = [f"{topic}-0" for topic in (GROUPS, *map(changelog, PROTOCOLS))]
    said = cleaner("clean", broker.log_dir, *logs, "--format", "json")
    reports = [json.loads(line) for line in said.splitlines()]
    keys = home / "keys"
    keys.write_text("".join(f"{key}\n" for key in ERASED))
    cleaner("erase", broker.log_dir, changelog("app-streams"), "--keys", keys)
    compared = json.loads(cleaner("verify", "--as", "groups", before, broker.log_dir, "--format", "json"))

    with broker:
        again = {app: run(jars, broker, app, home / f"{app}-again") for app in PROTOCOLS}
        command = "org.apache.kafka.tools.streams.StreamsGroupCommand"
        listed = tools.java(command, "--bootstrap-server", broker.address, "--list")
    return Story(first, logs, reports, compared, again, listed)


def test_store_is_restored_from_a_cleaned_changelog(story: Story) -> None:
    """All of it, from as many records as there are keys and some tombstones."""
    assert story.first["app-classic"].rows == story.first["app-streams"].rows == expected()
    assert story.again["app-classic"].rows == expected()
    assert 0 < story.again["app-classic"].restored < 1000


def test_erased_keys_are_in_no_restored_store(story: Story) -> None:
    """And all others are."""
    left = {key: length for key, length in expected().items() if key not in ERASED}
    assert len(left) < len(expected())
    assert story.again["app-streams"].rows == left


def test_both_kinds_of_groups_are_what_they_were(story: Story) -> None:
    """By our replay of what the round has left, without a record that it does not know; and by Kafka's own tool."""
    assert [report["partition"] for report in story.reports] == story.logs
    compared = story.compared
    assert (compared["is_same"], compared["total_failures_after"], compared["passed_over_after"]) == (True, 0, {})
    assert 0 < compared["records_after"] < compared["records_before"]
    assert compared["things"]["group"] >= len(PROTOCOLS), compared["things"]
    assert "app-streams" in story.listed
