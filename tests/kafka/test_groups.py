"""
Share groups, streams groups and consumer groups: our replay of `__consumer_offsets` beside Kafka's own coordinator.

One broker is given a log of random records in each of its partitions, some of them in an order that no coordinator
writes: it must fail to load those at which our replay fails, at the same offset, and say of the groups in the others
what our replay says. Another one runs real groups, which join, take records, leave and end; it is stopped, and the log
is cleaned by Kafka and by us: nothing may differ, and whatever is taken out of the log must be told.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import cleaner
from cleaner import LogManager
from cleaner.app.replay_log_dirs import ReplayReport
from cleaner.base.model import TopicPartition
from cleaner.format.coordinator_records import coordinator_partition
from cleaner.storage.fs.file_system import FileSystem
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replay.kinds import REPLAYS, replay
from cleaner.verification.replay.state import Replay, differences
from tests.kafka.broker import OFFSET_CHECKPOINTS, Broker, Client, Outgoing, install_partition, wait_until
from tests.kafka.rig import CLEANING_ROUND, Rig, Unavailable
from tests.kafka.rig import STREAMS as STREAMS_JARS
from tests.reference.batches import read_batches, read_records
from tests.support.coordinator_records import (
    CONSUMER,
    SHARE,
    STREAMS,
    Pair,
    classic_group,
    current,
    group_epoch,
    member,
    offset_commit,
    share_partitions,
    target,
    target_epoch,
    topology,
)
from tests.support.log_builder import LogBuilder, write_log_dir

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GROUPS = "__consumer_offsets"
PARTITION = f"{GROUPS}-0"
SHARE_STATE = "__share_group_state"
INPUT = "readings"
TOPOLOGY = 23
CURRENT_OF = {10: 14, 19: 22}  # the record of a share or streams member, and that of its current assignment
EPOCHS = (11, 17)
PROGRAM = Path(__file__).parent / "streams" / "StreamsStore.java"
SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
PARTITIONS = 48


def state_of(directory: Path, kind: str = "groups") -> Replay:
    """Replay a log."""
    return replay(kind, LogSide(FileSystem(), directory), 1 << 30, lambda _: None)[0]


# ---- random logs ---------------------------------------------------------------------------------------------------


def name_in(partition: int, number: int) -> str:
    """Return the name of a group whose home is a partition."""
    names = (f"g{number}-{tried}" for tried in itertools.count())
    return next(name for name in names if coordinator_partition(name, PARTITIONS) == partition)


def story(kind: str, name: str, numbers: random.Random) -> list[Pair]:
    """Return what a coordinator writes of a group whose members come and go, and which may end."""
    members: set[str] = set()
    pairs = []
    for epoch in range(1, numbers.randrange(2, 6)):
        whose = numbers.choice("mn")
        members ^= {whose}
        if whose not in members:
            pairs += [current(name, whose, 0, None, kind), target(name, whose, None, kind)]
            pairs += [member(name, whose, None, kind)]
        pairs += [group_epoch(name, epoch, kind)]
        if whose in members:
            pairs += [member(name, whose, kind=kind)]
        pairs += [target_epoch(name, epoch, kind)]
        for at, each in enumerate(sorted(members)):
            # What a consumer owns it gives up first: each member has partitions of its own.
            owned = [ord(each) - ord("m")] if kind == CONSUMER else [at]
            pairs += [target(name, each, owned, kind), current(name, each, epoch, owned, kind)]
        pairs += more(kind, name, epoch)
    if numbers.random() < 0.4:
        for each in sorted(members):
            pairs += [current(name, each, 0, None, kind), target(name, each, None, kind)]
            pairs += [member(name, each, None, kind)]
        pairs += [target_epoch(name, None, kind), group_epoch(name, None, kind), *more(kind, name, None)]
    return pairs


def more(kind: str, name: str, epoch: int | None) -> list[Pair]:
    """Return what only share groups have, or streams groups, or consumer groups: offsets."""
    if kind == SHARE:
        return [share_partitions(name, None if epoch is None else [0])]
    return [topology(name, epoch)] if kind == STREAMS else [offset_commit(name, "t", 0, epoch)]


def log_of(partition: int, numbers: random.Random) -> list[Pair]:
    """Return what is in a partition: two groups' records, mixed; most often one is lost, moved, or of another group."""
    names = [name_in(partition, number) for number in range(2)]
    stories = [story(numbers.choice((SHARE, STREAMS, CONSUMER)), name, numbers) for name in names]
    pairs = []
    while any(stories):
        pairs.append(numbers.choice([each for each in stories if each]).pop(0))
    for _ in range(numbers.choice((0, 0, 1, 1, 2))):
        at = numbers.randrange(len(pairs))
        match numbers.randrange(4):
            case 0:
                del pairs[at]
            case 1:
                pairs.insert(numbers.randrange(len(pairs)), pairs.pop(at))
            case 2:
                name = numbers.choice(names)
                pairs.insert(at, numbers.choice([classic_group(name, 1), offset_commit(name, "t", 0, 1)]))
            case _:
                other = story(numbers.choice((SHARE, STREAMS, CONSUMER)), numbers.choice(names), numbers)
                pairs.insert(at, numbers.choice(other))
        if not pairs:
            return [group_epoch(names[0], 1)]
    return pairs


def failed_loads(log: str) -> dict[int, int]:
    """Return by partition at which offset a coordinator has failed to load it."""
    line = rf"Replaying record .* from {GROUPS}-(\d+) at offset (\d+) with producer.* failed\."
    return {int(partition): int(offset) for partition, offset in re.findall(line, log)}


def groups_of(state: Replay) -> dict[str, dict[str, Any]]:
    """Return the groups of a replayed state as `Broker.groups` tells of them."""
    found: dict[str, dict[str, Any]] = {}
    for thing, facts in state.things():
        name = thing.name.partition(",")[0].removeprefix("group ")
        group = found.setdefault(name, {"members": {}})
        match thing.kind:
            case "group":
                group |= {
                    "type": facts["type"],
                    "epoch": facts.get("epoch"),
                    "target_epoch": facts.get("assignment epoch"),
                }
            case "member":
                group["members"][facts["id"]] = facts.get("epoch")
            case "topology":
                group["topology_epoch"] = facts["epoch"]
    return {name: group for name, group in found.items() if "type" in group}


@pytest.mark.parametrize("seed", (0, 21))
def test_broker_makes_of_random_records_what_the_replay_does(
    seed: int, each_kafka: Rig, clients: Callable[[Rig], Client], tmp_path: Path
) -> None:
    """Of partitions that load, the groups; of the others, the offset of the record at which loading fails."""
    numbers = random.Random(seed)
    broker = Broker(
        each_kafka,
        clients(each_kafka),
        tmp_path / "broker",
        settings=SETTINGS | {"offsets.topic.num.partitions": str(PARTITIONS)},
    )
    with broker:
        broker.create([INPUT], {})
        broker.write(INPUT, [Outgoing("k", "v")])
        broker.share("first", INPUT, 1)
        broker.delete_groups(SHARE, ["first"])
    logs = [LogBuilder(TopicPartition(GROUPS, number)) for number in range(PARTITIONS)]
    for number, log in enumerate(logs):
        for pair in log_of(number, numbers):
            log.append(pair)
    source = write_log_dir(tmp_path / "logs", *logs)
    for number, log in enumerate(logs):
        install_partition(broker, GROUPS, source, log.topic_partition, number)
    states = {number: state_of(source / str(log.topic_partition)) for number, log in enumerate(logs)}
    with broker:
        loaded = rf"(Finished loading of|Failed to load) metadata from {GROUPS}-"
        wait_until(lambda: len(re.findall(loaded, broker.log)) == PARTITIONS, "its groups were not loaded")
        told = broker.groups()
        failed = failed_loads(broker.log)
    fails = {number: state.notes.failures[0].offset for number, state in states.items() if state.notes.failures}
    assert failed == fails
    assert 5 < len(fails) < PARTITIONS - 5
    expected: dict[str, dict[str, Any]] = {}
    for number, state in states.items():
        if number not in fails:
            expected |= groups_of(state)
    assert {kind for group in expected.values() for kind in [group["type"]]} >= {CONSUMER, SHARE, STREAMS}
    for name, group in expected.items():
        if group["type"] == STREAMS and "error" in told[name]:
            # Kafka cannot describe a streams group that lacks some of its records, though it has loaded it.
            assert "UnknownServerException" in told[name]["error"], (name, told[name])
            assert told[name]["type"] == "Streams"
        elif group["type"] != "classic":
            theirs = {field: told[name].get(field) for field in group}
            assert theirs | {"type": theirs["type"].lower()} == group, name
    assert {name for name, row in told.items() if row["type"] != "Classic"} == {
        name for name, group in expected.items() if group["type"] != "classic"
    }


# ---- real groups ---------------------------------------------------------------------------------------------------


@dataclass
class Story:
    """
    Groups that were run, for the tests to judge.

    Attributes:
        told: what the coordinator said of them before the broker was stopped.
        log_dir: of the stopped broker, cleaned by us.
        before: a copy from before that; `kafka` another, which Kafka has cleaned.
        again: what the coordinator says of what we have left.
    """

    told: dict[str, dict[str, Any]]
    log_dir: Path
    before: Path
    kafka: Path
    again: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def story_of_groups(
    cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], tmp_path_factory: pytest.TempPathFactory
) -> Story:
    """Run groups of both kinds: of each one that has ended, one without members, and one with a member."""
    try:
        jars = Rig.load_tools(STREAMS_JARS)
    except Unavailable as error:
        pytest.skip(f"no Kafka Streams: {error}")
    home = tmp_path_factory.mktemp("groups")
    broker = Broker(cleaning_broker_rig, clients(cleaning_broker_rig), home / "broker", settings=SETTINGS)

    def streams(app: str, last: tuple[str, str]) -> list[str]:
        return jars.command(str(PROGRAM), broker.address, app, "streams", home / app, INPUT, *last)

    with broker, ExitStack() as running:
        broker.create([INPUT], {})
        broker.write(INPUT, [Outgoing(f"key {number}", "x" * 100) for number in range(120)])
        for group, count in (("share-ended", 20), ("share-empty", 40)):
            broker.share(group, INPUT, count)
        broker.share("share-empty", INPUT, 20)
        broker.share("share-live", INPUT, 40, stays=True)
        for app in ("streams-ended", "streams-empty"):
            subprocess.run(streams(app, ("key 119", "x" * 100)), check=True, capture_output=True, timeout=180)
        live = running.enter_context(
            subprocess.Popen(
                streams("streams-live", ("key", "never")), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
        running.callback(live.kill)
        for kind in (SHARE, STREAMS):
            broker.delete_groups(kind, [f"{kind}-ended"])
        wait_until(lambda: broker.groups().get("streams-live", {}).get("state") == "Stable", "a group was not stable")
        told = broker.groups()
        broker.stop()
    with LogManager(broker.log_dir, cleaner=False) as manager:
        manager.log(GROUPS).roll()
    before, kafka = home / "before", home / "kafka"
    shutil.copytree(broker.log_dir, before)
    shutil.copytree(broker.log_dir, kafka)
    settings = home / "settings"
    settings.write_text("cleanup.policy=compact\ndelete.retention.ms=1\n")
    later = 0
    for _ in range(2):  # the second round takes the tombstones
        later += 60_000
        now_ms = int(time.time() * 1000) + later
        for log_dir in (kafka, broker.log_dir):
            remove_checkpoint(log_dir)
        cleaning_broker_rig.java(CLEANING_ROUND, kafka, PARTITION, now_ms, settings)
        cleaner.clean(broker.log_dir, PARTITION, {"delete.retention.ms": "1"}, now_ms=now_ms)
    with broker:
        wait_until(lambda: f"Finished loading of metadata from {PARTITION}" in broker.log, "its groups were not loaded")
        again = broker.groups()
    return Story(told, broker.log_dir, before, kafka, again)


def remove_checkpoint(log_dir: Path) -> None:
    """Have the next round begin at the first offset again."""
    (log_dir / OFFSET_CHECKPOINTS[0]).unlink(missing_ok=True)


def pairs_in(directory: Path) -> list[Pair]:
    """Return all records of a log, as the tests' own reader finds them."""
    return [
        (record.key or b"", record.value)
        for path in sorted(directory.glob("*.log"))
        for batch in read_batches(path.read_bytes())
        if not batch.control
        for record in read_records(batch)
    ]


def replayed(kind: str, pairs: Sequence[Pair]) -> Replay:
    """Replay records."""
    state = REPLAYS[kind]()
    for offset, pair in enumerate(pairs):
        state.record(offset, -1, *pair)
    return state


def group_in(key: bytes) -> str:
    """Return the group that a key names first, whatever the type of the record."""
    return key[4 : 4 + int.from_bytes(key[2:4], "big")].decode()


def test_kinds_of_groups_are_all_there_in_the_end(story_of_groups: Story) -> None:
    """What the story was to bring about."""
    assert {name: row["state"] for name, row in story_of_groups.told.items()} == {
        "share-empty": "Empty",
        "share-live": "Stable",
        "streams-empty": "Empty",
        "streams-live": "Stable",
    }
    assert story_of_groups.told["share-empty"]["start_offsets"][f"{INPUT}-0"] > 0


def test_replay_finds_what_the_coordinator_said_of_groups_and_of_what_they_read(story_of_groups: Story) -> None:
    """Before and after both rounds; the members that live, too."""
    for log_dir in (story_of_groups.before, story_of_groups.kafka, story_of_groups.log_dir):
        found = groups_of(state_of(log_dir / PARTITION))
        assert found.keys() == story_of_groups.told.keys()
        for name, group in found.items():
            theirs = story_of_groups.told[name]
            assert {field: theirs[field] for field in group} | {"type": theirs["type"].lower()} == group
    state = state_of(story_of_groups.log_dir / f"{SHARE_STATE}-0", "share-state")
    starts = {
        thing.name.partition(",")[0].removeprefix("group "): facts["start offset"] for thing, facts in state.things()
    }
    assert starts == {
        name: row["start_offsets"][f"{INPUT}-0"] for name, row in story_of_groups.told.items() if "start_offsets" in row
    }
    assert any(facts["batches"] for _, facts in state.things())


def test_right_cleaning_leaves_the_same_groups(story_of_groups: Story) -> None:
    """By Kafka and by us; most of the records are gone. A broker has the same groups on what we left."""
    for log_dir in (story_of_groups.kafka, story_of_groups.log_dir):
        reports = cleaner.replay(story_of_groups.before, log_dir)
        for report in reports:
            assert isinstance(report, ReplayReport)
            assert (report.is_same, report.total_failures_after, report.passed_over_after) == (True, 0, {})
        assert {report.partition: report.kind for report in reports if isinstance(report, ReplayReport)} == {
            PARTITION: "groups",
            f"{SHARE_STATE}-0": "share-state",
        }
    assert (
        0 < 2 * len(pairs_in(story_of_groups.log_dir / PARTITION)) < len(pairs_in(story_of_groups.before / PARTITION))
    )
    for name, row in story_of_groups.told.items():
        assert story_of_groups.again[name] == row


def test_each_record_that_a_round_has_left_is_missed(story_of_groups: Story) -> None:
    """Whichever is taken out, it is told of its group; no tombstone is there any more."""
    pairs = [each for each in pairs_in(story_of_groups.log_dir / PARTITION) if each[0][1] > 2]
    assert len(pairs) > 15
    whole = replayed("groups", pairs)
    for at, (key, value) in enumerate(pairs):
        assert value is not None
        told = [*differences(whole, replayed("groups", pairs[:at] + pairs[at + 1 :]))]
        assert told, key
        assert {each.name.partition(",")[0] for each in told} == {f"group {group_in(key)}"}


def test_each_last_tombstone_is_missed(story_of_groups: Story) -> None:
    """But that of a topology, which goes with its group."""
    pairs = [each for each in pairs_in(story_of_groups.before / PARTITION) if each[0][1] > 2]
    whole = replayed("groups", pairs)
    last = {key: at for at, (key, _) in enumerate(pairs)}
    tombstones = [at for at in last.values() if pairs[at][1] is None]
    assert len(tombstones) > 8
    for at in tombstones:
        told = [*differences(whole, replayed("groups", pairs[:at] + pairs[at + 1 :]))]
        key = pairs[at][0]
        assert {each.name.partition(",")[0] for each in told} == (
            set() if key[1] == TOPOLOGY else {f"group {group_in(key)}"}
        )


def test_order_of_records_is_missed(story_of_groups: Story) -> None:
    """Tombstones of a member in front of that of its assignment, and an epoch that goes back."""
    pairs = [each for each in pairs_in(story_of_groups.before / PARTITION) if each[0][1] > 2]
    whole = replayed("groups", pairs)
    moved, back = [], []
    for at, (key, value) in enumerate(pairs):
        if value is None and key[1] in CURRENT_OF:
            assignment = bytes([0, CURRENT_OF[key[1]]]) + key[2:]
            first = pairs.index((assignment, None))
            assert first < at
            wrong = [*pairs[:first], pairs[at], *pairs[first:at], *pairs[at + 1 :]]
            told = [*differences(whole, replayed("groups", wrong))]
            assert {(each.kind, each.name.partition(",")[0]) for each in told} >= {("replay", f"group {group_in(key)}")}
            moved.append(key)
    for name in story_of_groups.told:
        epochs = [at for at, (key, _) in enumerate(pairs) if key[1] in EPOCHS and group_in(key) == name]
        *_, before, last = epochs
        wrong = [*pairs]
        wrong[before], wrong[last] = pairs[last], pairs[before]
        told = [*differences(whole, replayed("groups", wrong))]
        assert {(each.name, each.field) for each in told} >= {(f"group {name}", "epoch")}
        back.append(name)
    assert (len(moved) > 3, len(back)) == (True, 4)


def test_share_partition_is_what_was_said_from_its_last_snapshot_on(story_of_groups: Story) -> None:
    """What is in front of it is needed by no one, and each update behind it by someone."""
    pairs = pairs_in(story_of_groups.log_dir / f"{SHARE_STATE}-0")
    whole = replayed("share-state", pairs)
    snapshots = {key[2:]: at for at, (key, value) in enumerate(pairs) if key[1] == 0}
    behind = [(at, pair) for at, pair in enumerate(pairs) if at >= snapshots.get(pair[0][2:], 0)]
    assert 0 < len(behind) < len(pairs)
    assert [*differences(whole, replayed("share-state", [pair for _, pair in behind]))] == []
    updated = {f"group {group_in(key)}" for _, (key, _) in behind if key[1] == 1}
    told = differences(whole, replayed("share-state", [pair for _, pair in behind if pair[0][1] == 0]))
    assert {each.name.partition(",")[0] for each in told} == updated != set()
