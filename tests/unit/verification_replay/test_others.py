"""Share partitions, transactions, schemas and Connect: rule by rule, what readers make of records in their order."""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode
from itertools import pairwise

import pytest

from cleaner.verification.replay.kinds import REPLAYS, kind_of
from tests.support.coordinator_records import (
    TOPIC_ID,
    ShareBatch,
    offset_commit,
    share_snapshot,
    share_update,
    transaction,
)
from tests.unit.verification_replay.replaying import facts, failures, replayed, told

Pair = tuple[bytes, bytes | None]
TOPIC_WORD = urlsafe_b64encode(TOPIC_ID).decode().rstrip("=")


def batches(*rows: ShareBatch) -> list[dict[str, int]]:
    """Batches of a share partition by their names."""
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return [dict(zip(names, row, strict=True)) for row in rows]


def of_json(key: object, value: object = None) -> Pair:
    """A record of JSON; a key that is a text stays one."""
    named = key.encode() if isinstance(key, str) else json.dumps(key).encode()
    return named, None if value is None else json.dumps(value).encode()


def schema(version: int, number: int, content: str | None, *, deleted: bool = False) -> Pair:
    value = None if content is None else {"subject": "s", "id": number, "schema": content, "deleted": deleted}
    return of_json({"keytype": "SCHEMA", "subject": "s", "version": version, "magic": 1}, value)


def delete_subject(last: int) -> Pair:
    return of_json({"keytype": "DELETE_SUBJECT", "subject": "s", "magic": 0}, {"subject": "s", "version": last})


def config(subject: str | None, level: str) -> Pair:
    return of_json({"keytype": "CONFIG", "subject": subject, "magic": 0}, {"compatibilityLevel": level})


def properties(**found: str) -> dict[str, object]:
    return {"properties": found}


CONNECTOR = of_json("connector-c", properties(database="secret"))
TASKS = [of_json("task-c-0", properties(n="0")), of_json("task-c-1", properties(n="1"))]
COMMIT = of_json("commit-c", {"tasks": 2})


def test_transaction_is_its_last_record() -> None:
    """State, epochs and partitions; those of an empty one do not count; a tombstone removes it."""
    state = replayed(
        "transactions", transaction("a", 1), transaction("a", 4, 3, {"t": [1, 0]}), transaction("b", 0, 0, {"t": [1]})
    )
    found = facts(state)
    assert found["transaction: transaction a"]["state"] == "CompleteCommit"
    assert found["transaction: transaction a"]["producer epoch"] == 3
    assert found["transaction: transaction a"]["partitions"] == ["t-0", "t-1"]
    assert found["transaction: transaction b"]["partitions"] == []
    assert facts(replayed("transactions", transaction("a", 1), transaction("a", None))) == {}
    assert told("transactions", [transaction("a", 1)], [transaction("a", 2)]) == [
        ("transaction", "transaction a", "state", "Ongoing", "PrepareCommit")
    ]


def test_transactions_that_cannot_be_read_are_named() -> None:
    """Unknown types and versions are passed over, other states and damage fail."""
    key = transaction("a", 1)[0]
    state = replayed("transactions", (b"\0\x07", b""), (key, b"\0\x09"), transaction("a", 77), (key, b"\0\0\0"))
    assert dict(state.notes.passed_over) == {"unknown record type 7": 1, "version 9, only 0 to 1 are known": 1}
    assert [offset for offset, _, _ in failures(state)] == [2, 3]


def test_deletion_of_a_subject_marks_what_is_there_by_then() -> None:
    """The same records in another order are another state, though every key has its last value."""
    assert (
        facts(replayed("schemas", schema(1, 1, "A"), delete_subject(1)))["schema: subject s, version 1"]["deleted"]
        is True
    )
    assert told("schemas", [delete_subject(1), schema(1, 1, "A")], [schema(1, 1, "A"), delete_subject(1)]) == [
        ("schema", "subject s, version 1", "deleted", "false", "true")
    ]
    cleared = of_json({"keytype": "CLEAR_SUBJECT", "subject": "s", "magic": 0}, {"subject": "s"})
    state = replayed("schemas", schema(1, 1, "A"), schema(2, 2, "B"), delete_subject(1), cleared)
    assert list(facts(state)) == ["schema: subject s, version 2"]


def test_schemas_settings_and_what_is_passed_over() -> None:
    """Compatibility by subject and for all; an id that is taken; tombstones; no schema is shown."""
    state = replayed(
        "schemas",
        config(None, "FULL"),
        config("s", "NONE"),
        schema(1, 1, "A"),
        schema(2, 1, "B"),
        schema(3, 3, "C"),
        schema(3, 3, None),
        of_json({"keytype": "NOOP", "magic": 0}),
        (b"not json", b""),
        (json.dumps({"keytype": "CONFIG"}).encode(), b"[" * 100_000),
    )
    found = facts(state)
    assert found["compatibility: all subjects"] == {"compatibility": "FULL"}
    assert found["compatibility: subject s"] == {"compatibility": "NONE"}
    assert [name for name in found if name.startswith("schema")] == ["schema: subject s, version 1"]
    assert dict(state.notes.passed_over) == {
        "a schema under an id that its subject has for another": 1,
        "a key that is not a JSON object": 1,
        "a value that is not a JSON object": 1,
    }
    assert told("schemas", [schema(1, 1, "A")], [schema(1, 1, "B")])[0][2] == "schema"
    assert "B" not in str(told("schemas", [schema(1, 1, "A")], [schema(1, 1, "B")])[0][4])


def test_task_configurations_wait_for_their_commit() -> None:
    """With too few the connector is inconsistent; more than it takes may be there."""
    found = facts(replayed("connect", CONNECTOR, *TASKS, COMMIT))
    assert found["connector: connector c"]["tasks"] == 2
    assert found["connector: connector c"]["consistent"] is True
    assert "task: connector c, task 1" in found
    assert (
        facts(replayed("connect", CONNECTOR, TASKS[1], COMMIT, TASKS[0]))["connector: connector c"]["consistent"]
        is False
    )
    one = of_json("commit-c", {"tasks": 1})
    assert facts(replayed("connect", CONNECTOR, *TASKS, one)) == facts(replayed("connect", CONNECTOR, TASKS[0], one))
    assert facts(replayed("connect", *TASKS, COMMIT)) == {}


def test_connector_that_is_removed_takes_its_tasks_along() -> None:
    """A target state of null is the default while there is a connector."""
    paused = of_json("target-state-c", {"state": "PAUSED", "state.v2": "STOPPED"})
    gone, none = of_json("connector-c"), of_json("target-state-c")
    assert facts(replayed("connect", paused, CONNECTOR))["target state: connector c"] == {"target state": "STOPPED"}
    assert facts(replayed("connect", CONNECTOR, paused, none))["target state: connector c"] == {
        "target state": "STARTED"
    }
    assert facts(replayed("connect", CONNECTOR, *TASKS, COMMIT, paused, gone, none)) == {}
    # The same records, the tombstone first: the connector is still there.
    assert told("connect", [CONNECTOR, gone, none], [gone, none, CONNECTOR])[0][:3] == (
        "connector",
        "connector c",
        "tasks",
    )


def test_secrets_of_a_connector_are_compared_and_not_shown() -> None:
    """A property's name is told, its value is not."""
    other = of_json("connector-c", properties(database="hunter2"))
    (found,) = told("connect", [CONNECTOR], [other])
    assert found[:3] == ("connector", "connector c", "property database")
    assert "secret" not in str(found)
    assert "hunter2" not in str(found)


def test_source_offsets_and_states() -> None:
    """Offsets by connector and partition; the tombstone of a connector's state removes those of its tasks."""
    key = ["c", {"file": "a"}]
    assert (
        facts(replayed("connect", of_json(key, {"line": 3})))['source offset: connector c, partition {"file":"a"}'][
            "offset"
        ]
        == '{"line": 3}'
    )
    assert facts(replayed("connect", of_json(key, {"line": 3}), of_json(key))) == {}
    status = [of_json("status-connector-c", {"state": "RUNNING"}), of_json("status-task-c-0", {"state": "FAILED"})]
    assert len(facts(replayed("connect", *status))) == 2
    assert facts(replayed("connect", *status, of_json("status-connector-c"))) == {}


def test_share_partition_is_its_last_snapshot_and_the_updates_behind_it() -> None:
    """An update leaves what it does not say; a snapshot begins anew; a tombstone ends it."""
    snapshot = share_snapshot("g", 0, 5, [(5, 9, 0, 1)], epoch=3, leader=4)
    name = f"share partition: group g, topic id {TOPIC_WORD}, partition 0"
    state = replayed("share-state", snapshot, share_update("g", 0, -1, [(7, 7, 2, 1)]), share_update("g", 0, 6))
    assert facts(state)[name] == {
        "start offset": 6,
        "batches": batches((6, 6, 0, 1), (7, 7, 2, 1), (8, 9, 0, 1)),
        "snapshot epoch": 3,
        "state epoch": 0,
        "leader epoch": 4,
        "highest state epoch": 0,
        "highest leader epoch": 4,
        "delivered": -1,
        "create time": 7,
        "write time": 7,
    }
    again = facts(replayed("share-state", snapshot, share_update("g", 0, 6), share_snapshot("g", 0, 7)))[name]
    assert (again["start offset"], again["batches"], again["highest leader epoch"]) == (7, [], 4)
    assert facts(replayed("share-state", snapshot, share_snapshot("g", 0, None))) == {}
    alone = facts(replayed("share-state", share_update("g", 0, 6, [(6, 6, 2, 1)], leader=2)))[name]
    assert (alone["start offset"], alone["batches"], alone["leader epoch"]) == (6, batches((6, 6, 2, 1)), 2)


def test_share_partitions_without_an_update_or_with_another_order_differ() -> None:
    """As after a compaction, which keeps the last update of each partition."""
    snapshot, first, second = share_snapshot("g", 0, 5), *(share_update("g", 0, -1, [(n, n, 2, 1)]) for n in (5, 9))
    name = f"group g, topic id {TOPIC_WORD}, partition 0"
    told_of = [each[:3] for each in told("share-state", [snapshot, first, second], [snapshot, second])]
    assert told_of == [("share partition", name, "batches")]
    assert told("share-state", [snapshot, first, second], [snapshot, second, first]) == []
    assert [each[2] for each in told("share-state", [snapshot, first], [first, snapshot])] == ["batches"]
    state = replayed("share-state", snapshot, (share_update("g", 0, 5)[0], None), (b"\0\x07", None))
    assert failures(state) == [(1, name, "the tombstone of an update")]
    assert dict(state.notes.passed_over) == {"unknown record type 7": 1}


def test_batches_of_a_share_partition_say_the_most_of_each_offset() -> None:
    """The higher delivery count wins, then the higher state, in whatever order they come; told by offset, slowly."""
    numbers = random.Random(3)
    for _ in range(300):
        truth: dict[int, tuple[int, int]] = {}
        steps, start = [share_snapshot("g", 0, 0)], 0
        for _ in range(numbers.randrange(1, 6)):
            said: list[ShareBatch] = []
            for _ in range(numbers.randrange(4)):
                first = numbers.randrange(20)
                said.append((first, first + numbers.randrange(6), numbers.choice((0, 2, 4)), numbers.randrange(1, 4)))
            start = max(start, numbers.randrange(12))
            steps.append(share_update("g", 0, start, said))
            for first, last, delivery_state, count in said:
                for offset in range(first, last + 1):
                    truth[offset] = max(truth.get(offset, (0, 0)), (count, delivery_state))
            truth = {offset: what for offset, what in truth.items() if offset >= start}
        ((_, found),) = replayed("share-state", *steps).things()
        listed = found["batches"]
        assert isinstance(listed, list)
        rows = [[*each.values()] for each in listed if isinstance(each, dict)]
        assert {n: (count, what) for a, b, what, count in rows for n in range(a, b + 1)} == truth
        assert all(a[1] < b[0] and (a[1] + 1 < b[0] or a[2:] != b[2:]) for a, b in pairwise(rows))


@pytest.mark.parametrize("kind", REPLAYS)
def test_no_bytes_whatever_end_a_replay(kind: str) -> None:
    """Every record is applied, passed over, or a failure."""
    numbers = random.Random(5)
    keys = [b"", b"\0", *(bytes([0, number]) for number in range(24)), offset_commit("g", "t", 0, 1)[0], b"[", b'["c"]']
    keys += [
        b"task-c-x",
        b"task-",
        b"commit-c",
        b"connector-c",
        b"tasks-fencing-c",
        b"\xff",
        b'{"keytype":"SCHEMA"}',
        b"{}",
    ]
    keys += [b'{"keytype":["x"]}', b'{"keytype":"DELETE_SUBJECT"}', b"session-key", b"status-topic-", b"[" * 99_999]
    values = [None, b"", b"\0\0", b"{}", b"[]", b"1e999", b'{"tasks":1e3}', b'{"properties":[]}', b'{"version":{}}']
    state = REPLAYS[kind]()
    for offset in range(3000):
        key = numbers.choice([None, *keys]) if numbers.random() < 0.7 else numbers.choice(keys) + numbers.randbytes(9)
        value = numbers.choice([*values, numbers.randbytes(30)])
        state.record(offset, numbers.choice((-1, 5)), key, value)
        state.marker(5, numbers.random() < 0.5)
    assert sum(1 for _ in state.things()) < 3000
    assert state.notes.total_failures + sum(state.notes.passed_over.values()) > 1000


def test_kind_of_a_topic_by_its_usual_name() -> None:
    """Other topics are none's."""
    names = [
        "__consumer_offsets",
        "__share_group_state",
        "__transaction_state",
        "_schemas",
        "connect-offsets",
        "my-connect-configs",
        "prices",
    ]
    assert [kind_of(name) for name in names] == [
        "groups",
        "share-state",
        "transactions",
        "schemas",
        "connect",
        "connect",
        None,
    ]
