"""What can be asked, who is named, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cleaner.base.json_values import from_json
from cleaner.base.model import TopicPartition
from cleaner.daemon.control.verbs import MAX_ANSWER_BYTES, Reply, answer
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.daemon.steering import ReloadResult
from cleaner.errors import NoSpaceError
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.snapshots import log, snapshot

UID = 1001


@pytest.fixture
def steering() -> FakeSteering:
    return FakeSteering(sample_daemons.with_problems())


def never(error: Exception) -> None:
    raise error


def reply(steering: FakeSteering, request: object) -> Reply:
    line = request if isinstance(request, bytes) else json.dumps(request).encode()
    return answer(line, steering, UID, never)


def ask(steering: FakeSteering, do: str, **fields: Any) -> dict[str, Any]:
    """Return the answer to a request."""
    values: dict[str, Any] = json.loads(reply(steering, {"v": 1, "do": do, **fields}).line)
    return values


def refusal(steering: FakeSteering, do: str, **fields: Any) -> tuple[str, str]:
    """Return code and error of a request that is refused."""
    values = ask(steering, do, **fields)
    assert values["ok"] is False
    return values["code"], values["error"]


@pytest.mark.parametrize(
    ("request_", "call"),
    [
        ({"do": "now", "partition": "orders-0"}, ("request", TopicPartition("orders", 0), UID)),
        ({"do": "cancel", "job": 7}, ("cancel", 7, UID)),
        ({"do": "pause"}, ("pause", None, UID)),
        ({"do": "pause", "scope": "orders"}, ("pause", "orders", UID)),
        ({"do": "pause", "scope": "orders-1"}, ("pause", "orders-1", UID)),
        ({"do": "resume", "scope": "invoices"}, ("resume", "invoices", UID)),
        ({"do": "release", "partition": "ledger-2"}, ("release", TopicPartition("ledger", 2), UID)),
        ({"do": "throttle", "bytes_per_second": 1.5e6}, ("throttle", 1.5e6, None, UID)),
        ({"do": "throttle", "bytes_per_second": None}, ("throttle", None, None, UID)),
        (
            {"do": "throttle", "bytes_per_second": 5, "log_dir": "/mnt/disk2/kafka"},
            ("throttle", 5.0, "/mnt/disk2/kafka", UID),
        ),
        ({"do": "reload"}, ("reload", UID)),
    ],
)
def test_wish_reaches_the_daemon_with_who_has_it(
    steering: FakeSteering, request_: dict[str, Any], call: tuple[object, ...]
) -> None:
    """Each verb is one call, with the uid of the asker."""
    values = json.loads(reply(steering, {"v": 1, **request_}).line)
    assert (values["ok"], steering.calls) == (True, [call])


def test_answers_have_the_outcome(steering: FakeSteering) -> None:
    """The job, who is asked to stop, the pauses left, what a reload changed."""
    job = ask(steering, "now", partition="orders-0")["job"]
    assert (job["id"], job["state"], job["asked_by"]) == (8, "queued", UID)
    assert ask(steering, "cancel", job=8)["job"]["state"] == "cancelled"
    assert ask(steering, "pause")["stopping"] == ["orders-1"]
    assert ask(steering, "resume")["pauses"] == ["invoices"]
    steering.reloaded = ReloadResult(("a=b: no",), ("c",), ("d",), ("e",))
    assert ask(steering, "reload") == {
        "v": 1,
        "ok": True,
        "errors": ["a=b: no"],
        "changed": ["c"],
        "needs_restart": ["d"],
        "warnings": ["e"],
    }


def test_status_has_everything_except_long_lists_unless_asked_for(steering: FakeSteering) -> None:
    """Totals by topic and settings only on request; the logs are counted by what holds them."""
    values = ask(steering, "status", topics=True, config=True)
    assert from_json(ServiceSnapshot, values["snapshot"]) == steering.shown
    assert values["log_count"] == 10
    assert values["standings"]["quarantined"] == 2
    assert (values["standings"]["not_compacted"], values["standings"]["unreadable"]) == (1, 1)
    brief = from_json(ServiceSnapshot, ask(steering, "status", logs=0)["snapshot"])
    assert (brief.logs, brief.topics, brief.config.values) == ((), {}, ())
    assert brief.quarantine == steering.shown.quarantine


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"logs": 2}, ["orders-1", "invoices-0"]),
        ({"of": ["orders"]}, ["orders-0", "orders-1"]),
        ({"of": ["orders-1", "audit-0", "nothing-0"]}, ["audit-0", "orders-1"]),
        ({"of": ["orders"], "logs": 1}, ["orders-1"]),
        ({"of": []}, []),
    ],
)
def test_status_of_some_logs(steering: FakeSteering, fields: dict[str, Any], names: list[str]) -> None:
    """The dirtiest, those of a topic, those named."""
    found = from_json(ServiceSnapshot, ask(steering, "status", **fields)["snapshot"])
    assert [str(view.partition) for view in found.logs] == names


def test_jobs_lists_all_or_one(steering: FakeSteering) -> None:
    """A missing one is refused, so that no one waits for it forever."""
    assert [job["id"] for job in ask(steering, "jobs")["jobs"]] == [7, 6, 5]
    assert [job["id"] for job in ask(steering, "jobs", job=6)["jobs"]] == [6]
    assert refusal(steering, "jobs", job=99) == ("refused", "there is no job 99, or it ended long ago")


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        ({"v": 2, "do": "jobs"}, "version", "version 2"),
        ({"do": "jobs"}, "version", "version None"),
        ({"v": True, "do": "jobs"}, "version", "version True"),
        ({"v": 1}, "bad_request", "unknown verb None; known: cancel, "),
        ({"v": 1, "do": "explode"}, "bad_request", "unknown verb 'explode'"),
        ({"v": 1, "do": ["now"]}, "bad_request", "unknown verb"),
        ({"v": 1, "do": "now"}, "bad_request", "partition is missing"),
        ({"v": 1, "do": "now", "partition": "orders"}, "bad_request", "partition: 'orders' is not a topic"),
        ({"v": 1, "do": "now", "partition": "../etc-0"}, "bad_request", "partition: '../etc-0'"),
        ({"v": 1, "do": "now", "partition": 5}, "bad_request", "partition: no text"),
        ({"v": 1, "do": "cancel", "job": "7"}, "bad_request", "job: no whole number"),
        ({"v": 1, "do": "cancel", "job": -1}, "bad_request", "job: no whole number"),
        ({"v": 1, "do": "cancel", "job": 10**30}, "bad_request", "job: no whole number"),
        ({"v": 1, "do": "pause", "scope": "a\nb"}, "bad_request", "scope: 'a\\nb' is no name"),
        ({"v": 1, "do": "pause", "scope": ""}, "bad_request", "scope: '' is no name"),
        ({"v": 1, "do": "pause", "topic": "orders"}, "bad_request", "unknown fields: topic"),
        ({"v": 1, "do": "throttle"}, "bad_request", "bytes_per_second is missing"),
        ({"v": 1, "do": "throttle", "bytes_per_second": 0}, "bad_request", "above 0"),
        ({"v": 1, "do": "throttle", "bytes_per_second": True}, "bad_request", "above 0"),
        ({"v": 1, "do": "throttle", "bytes_per_second": 1, "logdir": "/a"}, "bad_request", "unknown fields: logdir"),
        ({"v": 1, "do": "status", "logs": "some"}, "bad_request", "logs: no whole number"),
        ({"v": 1, "do": "status", "of": "orders"}, "bad_request", "of: no list"),
        ({"v": 1, "do": "status", "topics": 1}, "bad_request", "topics: neither"),
    ],
)
def test_request_that_makes_no_sense_does_nothing(
    steering: FakeSteering, request_: dict[str, Any], code: str, words: str
) -> None:
    """Says what is wrong, and the connection may go on."""
    before = steering.shown
    found = reply(steering, request_)
    values = json.loads(found.line)
    assert (values["ok"], values["code"], found.is_last) == (False, code, False)
    assert words in values["error"]
    assert (steering.calls, steering.shown) == ([], before)


@pytest.mark.parametrize(
    "line",
    [b"", b"\0\xff", b"[1]", b'{"v": 1, "do": "jobs"', b"[" * 60_000, b'{"v": NaN}', b'{"v": ' + b"9" * 60_000 + b"}"],
    ids=["empty", "bytes", "list", "half", "deep", "nan", "digits"],
)
def test_line_that_is_no_request_ends_the_connection(steering: FakeSteering, line: bytes) -> None:
    """What follows it may be anything."""
    found = reply(steering, line)
    assert found.is_last
    assert json.loads(found.line)["code"] == "bad_request"


def test_refused_request_has_the_daemons_words(steering: FakeSteering) -> None:
    """As is an error of the state directory's disk."""
    assert refusal(steering, "release", partition="orders-0") == ("refused", "orders-0 is not in quarantine")
    steering.error = NoSpaceError("/var/lib/cleaner", 4096)
    assert refusal(steering, "release", partition="orders-0")[0] == "failed"


def test_internal_error_goes_to_the_log_and_not_to_the_client(steering: FakeSteering) -> None:
    """No message or traceback leaves the daemon; the next request is answered."""
    steering.error = RuntimeError("secret")
    told: list[Exception] = []
    line = answer(b'{"v": 1, "do": "jobs"}', steering, UID, told.append).line
    assert "RuntimeError" in line.decode()
    assert "secret" not in line.decode()
    assert told == [steering.error]


def test_answer_is_one_line_of_ascii_whatever_names_hold() -> None:
    """Nothing in a name can end the line or reach a terminal."""
    line = reply(FakeSteering(sample_daemons.hostile()), {"v": 1, "do": "status"}).line
    assert line.isascii()
    assert line.index(b"\n") == len(line) - 1
    assert all(byte >= 32 for byte in line[:-1])


def test_answer_that_is_too_long_says_so() -> None:
    """The asker can ask for less."""
    logs = [log("orders", number, why="x" * (MAX_ANSWER_BYTES // 4)) for number in range(4)]
    steering = FakeSteering(snapshot(logs))
    assert refusal(steering, "status")[0] == "failed"
    assert ask(steering, "status", logs=1)["ok"] is True
