"""
`verify --as` around the rounds of a service's internal topics, in a log dir that is cut and killed (`serving.py`).

Beside what the service itself commits, coordinators, a registry and a worker write their topics: offsets, generations,
transactional ids, schemas, offsets of sources, each of them now and then a tombstone; consumer, share and streams
groups, and what share groups have read (`replayed_groups.py`). A copy of all logs is kept before a round. After it,
whether it has ended or was broken off, both have to come to one state, and a round that has ended to the state that was
written; where a swap is left, that is told, and the state asked for again once the logs were opened. Then copies are
spoiled: what differs must be told by name, and nothing else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from cleaner.app.options import CallContext
from cleaner.app.replay_log_dirs import AUTO, ReplayReport, replay_log_dirs
from cleaner.app.reports import Refusal
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptBatchError, UncleanableError
from cleaner.format.coordinator_records import CONSUMER_OFFSETS, TRANSACTION_STATE, TransactionRecord, TransactionStatus
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replay.kinds import kind_of, replay
from cleaner.verification.replay.state import Thing
from tests.reference.batches import Batch, read_batches, read_records
from tests.simulation.bench import Bench
from tests.simulation.found import Wrong
from tests.simulation.processes import Process
from tests.simulation.replayed_groups import (
    Facts,
    Members,
    Shared,
    changed,
    facts_of,
    joined,
    left,
    next_shared,
    rebalanced,
    sharing,
    state_of,
)
from tests.support.batch_reader import without_room
from tests.support.coordinator_records import (
    CONSUMER,
    SHARE,
    STREAMS,
    Pair,
    classic_group,
    group_epoch,
    offset_commit,
)

SCHEMAS, SOURCES, SHARE_STATE = "_schemas", "connect-offsets", "__share_group_state"
TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE, SCHEMAS, SOURCES)
_REPLAYED = (*TOPICS, SHARE_STATE)
_PLACES = 2  # of each kind
_TOMBSTONE_SHARE = 0.2
_GROUP_SHARE = 0.2
_LEAVE_SHARE = 0.3
_WAIT_SHARE = 0.2
_ACCIDENT_SHARE = 0.4
_MEMBERS_SHARE = 0.7
_SHARING_SHARE = 0.4
_CHANGES_OF_A_ROUND = 60
_SPOILED_COPIES = 3
_SPOILED = ("cut", "exchanged", "damaged")
_LIMIT_BYTES = 1 << 20

Known = Mapping[Thing, Collection[str]]
"""What the first fact of a thing may be."""


class _Writer(NamedTuple):
    """
    Who writes a kind of records.

    Attributes:
        kind, name: of the thing; `{}`: which one.
        field: the fact that has the number.
        record: makes one, of which thing and with which number.
    """

    topic: str
    kind: str
    name: str
    field: str
    record: Callable[[int, int], Pair]


def _transaction(at: int, number: int) -> Pair:
    status = TransactionStatus.COMPLETE_COMMIT
    record = TransactionRecord(f"other {at}", at, number, 1000, status, frozenset(), number, number)
    return record.key(), record.value()


def _schema(at: int, number: int) -> Pair:
    key = {"keytype": "SCHEMA", "subject": "s", "version": at, "magic": 1}
    return json.dumps(key).encode(), json.dumps({"id": number, "schema": f"{number}"}).encode()


def _source(at: int, number: int) -> Pair:
    return json.dumps(["c", at]).encode(), str(number).encode()


_MOVING = partial(offset_commit, "moving", "t")
_WRITERS = (
    _Writer(CONSUMER_OFFSETS, "offset", "group moving, topic t-{}", "offset", _MOVING),
    _Writer(CONSUMER_OFFSETS, "group", "group old {}", "generation", lambda at, n: classic_group(f"old {at}", n)),
    _Writer(TRANSACTION_STATE, "transaction", "transaction other {}", "producer epoch", _transaction),
    _Writer(SCHEMAS, "schema", "subject s, version {}", "id", _schema),
    _Writer(SOURCES, "source offset", "connector c, partition {}", "offset", _source),
)


class _Written(NamedTuple):
    """A value, None for a tombstone, and its number."""

    value: bytes | None
    number: int


class ReplayedTopics:
    """
    The internal topics of one log dir, and what was written to them.

    Args:
        bench: what all share.
        path: the log dir.
        rng: what is written, and how copies are spoiled.
        of_members: likewise, of share and streams groups and of what share groups read.
    """

    def __init__(self, bench: Bench, path: Path, rng: Random, of_members: Random) -> None:
        self._bench, self._path, self._rng, self._of_members = bench, path, rng, of_members
        self._number = 0
        # By topic, thing and key: what may be there, the latest last.
        self._written = {
            (each, at, each.record(at, 0)[0]): [_Written(None, 0)] for each in _WRITERS for at in range(_PLACES)
        }
        # Likewise the epochs of consumer groups, whose records are written together.
        self._groups: dict[str, list[int | None]] = {f"new {at}": [None] for at in range(_PLACES)}
        self._members = {(kind, f"{kind} {at}"): [Members(None)] for kind in (SHARE, STREAMS) for at in range(_PLACES)}
        # All that was said of share partitions, and how much of it is on disk for sure.
        self._shared: list[list[Shared]] = [[] for _ in range(_PLACES)]
        self._durable_shared = [0] * _PLACES
        # Outside of the disk, which knows nothing of it.
        self._home = bench.world.disk.root.with_name("replayed")
        self._before, self._spoiled = self._home / "before", self._home / "spoiled"
        self._calm: int | None = None  # since when, while a round runs
        shutil.rmtree(self._home, ignore_errors=True)

    # ---- what is written -------------------------------------------------------------------------------------------

    def write(self, manager: LogManager) -> None:
        """Write a record or a tombstone, or a group's, and perhaps wait until it is durable."""
        self._number += 1
        if self._rng.random() < _GROUP_SHARE:
            self._write_group(manager)
        else:
            self._write_record(manager)
        if self._of_members.random() < _MEMBERS_SHARE:
            if self._of_members.random() < _SHARING_SHARE:
                self._write_shared(manager)
            else:
                self._write_members(manager)

    def _write_record(self, manager: LogManager) -> None:
        rng = self._rng
        (writer, at, key), may_be = rng.choice([*self._written.items()])
        value = None if rng.random() < _TOMBSTONE_SHARE else writer.record(at, self._number)[1]
        may_be.append(_Written(value, self._number))
        appended = manager.log(writer.topic).append(Record(key, value))
        if rng.random() < _WAIT_SHARE:
            appended.durable.result()
            del may_be[:-1]

    def _write_group(self, manager: LogManager) -> None:
        rng = self._rng
        name, may_be = rng.choice([*self._groups.items()])
        epoch: int | None = self._number
        if may_be[-1] is None:
            pairs = joined(name, self._number)
        elif rng.random() < _LEAVE_SHARE:
            pairs, epoch = left(name), None
        else:
            pairs = rebalanced(name, self._number)
        may_be.append(epoch)
        appended = manager.log(CONSUMER_OFFSETS).append([Record(*pair) for pair in pairs])
        if rng.random() < _WAIT_SHARE:
            appended.durable.result()
            del may_be[:-1]

    def _write_members(self, manager: LogManager) -> None:
        rng = self._of_members
        (kind, name), may_be = rng.choice([*self._members.items()])
        pairs, now = changed(kind, name, may_be[-1], self._number, rng)
        may_be.append(now)
        appended = manager.log(CONSUMER_OFFSETS).append([Record(*pair) for pair in pairs])
        if rng.random() < _WAIT_SHARE:
            appended.durable.result()
            del may_be[:-1]

    def _write_shared(self, manager: LogManager) -> None:
        rng = self._of_members
        at = rng.randrange(_PLACES)
        said = self._shared[at]
        for _ in range(rng.randrange(1, 4)):
            said.append(next_shared(said, self._number, rng))
            appended = manager.log(SHARE_STATE).append(Record(*said[-1].pair(at)))
        if rng.random() < _WAIT_SHARE:
            appended.durable.result()
            self._durable_shared[at] = len(said)

    def closed(self) -> None:
        """Note that all of it is on disk: the log dir was closed in order."""
        for members in self._members.values():
            del members[:-1]
        self._durable_shared = [len(said) for said in self._shared]
        for may_be in self._written.values():
            del may_be[:-1]
        for epochs in self._groups.values():
            del epochs[:-1]

    def settle(self) -> None:
        """Find out what an accident has left of it; the log dir has just been opened, which completes a swap."""
        if self._calm is not None:
            if self._must_be_the_same(is_over=True):
                self._bench.count("replay: judged after a swap")
            shutil.rmtree(self._home)
        for (writer, at, key), may_be in self._written.items():
            value = _last(self._path, writer.topic, key)
            if value not in [each.value for each in may_be]:
                raise Wrong(f"{writer.name.format(at)} is {value!r}, written were {may_be}")
            may_be[:] = [each for each in may_be if each.value == value][-1:]
        for name, epochs in self._groups.items():
            value = _last(self._path, CONSUMER_OFFSETS, group_epoch(name, None)[0])
            epoch = None if value is None else int.from_bytes(value[2:6], "big")
            if epoch not in epochs:
                raise Wrong(f"group {name} is at epoch {epoch}, written were {epochs}")
            epochs[:] = [epoch]
        for (kind, name), groups in self._members.items():
            value = _last(self._path, CONSUMER_OFFSETS, group_epoch(name, None, kind)[0])
            epoch = None if value is None else int.from_bytes(value[2:6], "big")
            found = [each for each in groups if each.epoch == epoch]
            if not found:
                raise Wrong(f"group {name} is at epoch {epoch}, written were {groups}")
            groups[:] = found[-1:]
        for at, said in enumerate(self._shared):
            pairs = [*_pairs(self._path / str(TopicPartition(SHARE_STATE, 0)), {each.pair(at)[0] for each in said})]
            durable = self._durable_shared[at]
            if len(pairs) < durable or pairs != [each.pair(at) for each in said][: len(pairs)]:
                raise Wrong(f"of share partition {at} there is {pairs}, written was {said}, {durable} durable")
            del said[len(pairs) :]

    # ---- around a round --------------------------------------------------------------------------------------------

    def round_begins(self) -> None:
        """Keep a copy of all logs."""
        self._calm = self._bench.calm()
        shutil.copytree(self._path, self._before)

    def plan_accident(self, process: Process, accidents: Sequence[Callable[[], None]]) -> None:
        """Have one of some accidents come in the round, in some rounds."""
        if self._rng.random() < _ACCIDENT_SHARE:
            process.accidents.append((self._rng.randrange(_CHANGES_OF_A_ROUND), self._rng.choice(accidents)))

    def round_ended(self, known: Known) -> None:
        """
        Judge a round that has come to its end.

        Args:
            known: what the service itself has committed.
        """
        expected: dict[Thing, Facts] = {
            Thing(writer.kind, writer.name.format(at)): {writer.field: [str(may_be[-1].number)]}
            for (writer, at, _), may_be in self._written.items()
            if may_be[-1].value is not None
        }
        for name, epochs in self._groups.items():
            expected |= facts_of(CONSUMER, name, Members(epochs[-1], frozenset("m")))
        for (kind, name), groups in self._members.items():
            expected |= facts_of(kind, name, groups[-1])
        for at, said in enumerate(self._shared):
            if (state := state_of(said)) is not None:
                fields = "firstOffset", "lastOffset", "deliveryState", "deliveryCount"
                listed = [dict(zip(fields, row, strict=True)) for row in state[1]]
                facts = {"start offset": [str(state[0])], "batches": [str(listed)]}
                expected[Thing("share partition", sharing(at))] = facts
        for thing, one_of in known.items():
            expected[thing] = {"state" if thing.kind == "transaction" else thing.kind: one_of}
        if self._must_be_the_same(is_over=True):
            found = dict(self._state())
            for thing in sorted(found.keys() | expected.keys()):
                for field, one_of in expected.get(thing, {"": ()}).items():
                    value = str(found.get(thing, {}).get(field))
                    if value not in one_of:
                        raise Wrong(f"replay: of {thing} {field} is {value}, written was {one_of}")
            for _ in range(_SPOILED_COPIES):
                self._spoil()
            self._spoil_members()
            self._spoil_shared()
            self._bench.count("replay: judged")
        shutil.rmtree(self._home)

    def round_broken_off(self) -> None:
        """Judge what an accident has left of a round, if one was running; nobody has opened the log dir since."""
        if self._calm is not None and self._must_be_the_same(is_over=False):
            self._bench.count("replay: judged after an accident")
        if self._calm is None:
            shutil.rmtree(self._home, ignore_errors=True)

    def _must_be_the_same(self, *, is_over: bool) -> bool:
        """Compare the logs with the copy; False: a call had to fail since, or the opening has to complete a swap."""
        calm, self._calm = self._calm, None
        if calm is None or not self._bench.is_calm_since(calm):
            return False
        for outcome in self._told(self._before, self._path):
            if isinstance(outcome, Refusal):
                is_swap = isinstance(outcome.error, UncleanableError) and outcome.error.path.suffix == names.SWAP
                if is_over or not is_swap:
                    raise outcome.error
                self._calm = calm
            elif not outcome.is_same or outcome.total_failures_before or outcome.passed_over_before:
                told = outcome.differences, outcome.failures_before, outcome.passed_over_before
                raise Wrong(f"replay: a round has changed the state of {outcome.partition}: {told}")
        return self._calm is None

    def _told(self, before: Path, after: Path, partitions: Collection[str] = ()) -> list[ReplayReport | Refusal]:
        context = CallContext(fs=FileSystem(), clock=self._bench.clock)
        sources = Sources(config=self._bench.settings)
        return [*replay_log_dirs(before, after, AUTO, sources, context, [*partitions])]

    def _state(self) -> Iterator[tuple[Thing, Mapping[str, object]]]:
        for topic in _REPLAYED:
            side = LogSide(FileSystem(), self._path / str(TopicPartition(topic, 0)))
            state, _ = replay(kind_of(topic) or "", side, _LIMIT_BYTES, lambda _: None)
            yield from state.things()

    # ---- a copy that is spoiled ------------------------------------------------------------------------------------

    def _spoil(self) -> None:
        """Spoil some record of a copy: the difference must be told, or the damage."""
        how = self._rng.choice(_SPOILED)
        logs = {topic: self._path / str(TopicPartition(topic, 0)) for topic in TOPICS}
        can_be = [
            each for each in self._written if len([*_batches(logs[each[0].topic], each[2])]) > (how == "exchanged")
        ]
        if not can_be:
            return
        writer, at, key = self._rng.choice(can_be)
        partition = logs[writer.topic].name
        shutil.rmtree(self._spoiled, ignore_errors=True)
        shutil.copytree(self._path, self._spoiled)
        damaged = spoil(self._spoiled / partition, key, how)
        assert damaged is not None
        (told,) = self._told(self._path, self._spoiled, [partition])
        self._bench.count(f"replay: {how}")
        if isinstance(told, Refusal):
            if how != "damaged" or not isinstance(told.error, CorruptBatchError) or told.error.path != damaged:
                raise told.error
            return
        if how == "damaged":
            raise Wrong(f"replay: {damaged.name} is damaged, and nothing is said of it: {told.differences}")
        differs = _last(self._path, writer.topic, key) != _last(self._spoiled, writer.topic, key)
        expected = {(writer.kind, writer.name.format(at))} if differs else set()
        if {(each.kind, each.name) for each in told.differences} != expected or told.is_same == differs:
            raise Wrong(f"replay: with one record {how}, {expected} should differ; it says {told.differences}")

    def _spoil_members(self) -> None:
        """Cut out of a copy what a share or streams group wrote last: it is told of that group, and of no other."""
        kind, name = self._of_members.choice([*self._members])
        key = group_epoch(name, None, kind)[0]
        if (told := self._told_without(CONSUMER_OFFSETS, key)) is None:
            return
        differs = _last(self._path, CONSUMER_OFFSETS, key) != _last(self._spoiled, CONSUMER_OFFSETS, key)
        found = {each.name.partition(",")[0] for each in told.differences}
        if found != ({f"group {name}"} if differs else set()) or told.is_same == differs:
            raise Wrong(f"replay: without the last batch of group {name} it says {told.differences}")

    def _spoil_shared(self) -> None:
        """Cut the last record of a share partition out of a copy."""
        at = self._of_members.randrange(_PLACES)
        said = self._shared[at]
        told = self._told_without(SHARE_STATE, said[-1].pair(at)[0]) if said else None
        if told is None:
            return
        differs = state_of(said) != state_of(said[:-1])
        found = {each.name for each in told.differences}
        if found != ({sharing(at)} if differs else set()) or told.is_same == differs:
            raise Wrong(f"replay: without the last of {said} it says {told.differences}")

    def _told_without(self, topic: str, key: bytes) -> ReplayReport | None:
        """Return what is told of a copy without the last batch that has a key; None: there is none."""
        partition = str(TopicPartition(topic, 0))
        shutil.rmtree(self._spoiled, ignore_errors=True)
        shutil.copytree(self._path, self._spoiled)
        if spoil(self._spoiled / partition, key, "cut") is None:
            return None
        (told,) = self._told(self._path, self._spoiled, [partition])
        if isinstance(told, Refusal):
            raise told.error
        self._bench.count(f"replay: cut of {topic}")
        return told


def spoil(directory: Path, key: bytes, how: str) -> Path | None:
    """
    Spoil the last record of a key: cut it out, exchange it with the one before, or damage it.

    Returns:
        the file with it; None: there is none, or none before it, and nothing is spoiled.
    """
    found = [*_batches(directory, key)]
    if not found or (how == "exchanged" and len(found) == 1):
        return None
    (path, last), old = found[-1], dict[Path, bytes]()
    put = {last.base_offset: b"" if how == "cut" else last.raw[:-1] + bytes([last.raw[-1] ^ 1])}
    if how == "exchanged":
        other = found[-2][1]
        put = {a.base_offset: a.raw[:8] + b.raw[8:] for a, b in ((last, other), (other, last))}  # no checksum covers it
    for each, _ in found[-2:]:
        old[each] = each.read_bytes()
    for each, data in old.items():
        each.write_bytes(b"".join(put.get(batch.base_offset, batch.raw) for batch in read_batches(data)))
    return path


def _batches(directory: Path, key: bytes) -> Iterator[tuple[Path, Batch]]:
    """Yield the batches with a record of a key, which has one of it; all but those of groups have one record."""
    for path in sorted(directory.glob(f"*{names.LOG}")):
        for batch in read_batches(without_room(path.read_bytes())):
            if not batch.control and any(record.key == key for record in read_records(batch)):
                yield path, batch


def _last(log_dir: Path, topic: str, key: bytes) -> bytes | None:
    """Return the last value of a key, as the tests' own reader finds it."""
    found = [batch for _, batch in _batches(log_dir / str(TopicPartition(topic, 0)), key)]
    return [record.value for record in read_records(found[-1]) if record.key == key][-1] if found else None


def _pairs(directory: Path, keys: Collection[bytes | None]) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the records of some keys in order."""
    for path in sorted(directory.glob(f"*{names.LOG}")):
        for batch in read_batches(without_room(path.read_bytes())):
            yield from ((each.key, each.value) for each in read_records(batch) if each.key in keys)
