"""Every public call of the library, given values it cannot use: a `CleanerError`, and nothing was written."""

from __future__ import annotations

import array
import inspect
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cleaner
from cleaner import CleanerError, GroupOffsets, Log, LogManager, LogProducer, LogReader, ManagerProducer
from cleaner.base import arguments
from cleaner.errors import ConfigError, UsageError
from cleaner.log.follow import Follower

pytestmark = pytest.mark.kernels

# Used here as type checkers would not have them used.
Record: Any = cleaner.Record
RecordColumns: Any = cleaner.RecordColumns
Sampling: Any = cleaner.Sampling

Values = tuple[object, ...]
THING = object()
INTEGER: Values = ("5", b"5", 1.5, True, [], THING, 2**70, datetime(2026, 1, 1, tzinfo=UTC))
NEEDED_INTEGER: Values = (*INTEGER, None)
TEXT: Values = (5, b"prices", 1.5, [], THING)
NEEDED_TEXT: Values = (*TEXT, None)
PATH: Values = (5, 1.5, b"/tmp", "", "a\0b", "a/\ud800", "b" * 256, THING)
FLAG: Values = ("no", "", 2, 1.0, [], None, THING)
WORD: Values = ("all", 5, None, [], THING)
SECONDS: Values = ("5", True, float("nan"), [], THING)
FUNCTION: Values = (5, "f", [], True)
SETTINGS: Values = (5, "segment.bytes=5", [("a", "b")], {5: "x"}, {"segment.bytes": THING}, {"segment.bytes": b"1"})
MOMENT: Values = ("5", 1.5, True, [], None, THING, datetime(2026, 1, 1))  # the last has no time zone
OBJECT: Values = (5, "x", THING)
WATERMARK: Values = ("start", -1, 1.5, None, [], THING)

RECORDS: Values = (
    None,
    5,
    b"k",
    "k",
    {"key": b"k"},
    THING,
    [],
    (),
    iter(()),
    [None],
    [(b"k", b"v")],
    [Record(b"k", b"v"), {"key": b"k", "value": b"v"}],
    [Record("k", b"v")],
    [Record(b"k", "v")],
    [Record(5, b"v")],
    [Record(b"k", [1, 2])],
    [Record(b"k", b"v", timestamp_ms=-1)],
    [Record(b"k", b"v", timestamp_ms=1.5)],
    [Record(b"k", b"v", timestamp_ms="5")],
    [Record(b"k", b"v", timestamp_ms=True)],
    [Record(b"k", b"v", timestamp_ms=2**63)],
    [Record(b"k", b"v", timestamp_ms=datetime(2026, 1, 1))],
    [Record(b"k", b"v", headers=5)],
    [Record(b"k", b"v", headers=("name",))],
    [Record(b"k", b"v", headers="name")],
    [Record(b"k", b"v", headers=((b"name", b"v"),))],
    [Record(b"k", b"v", headers=(("name", "v"),))],
    [Record(b"k", b"v", headers=(("name", [1, 2]),))],
    [Record(b"k", b"v", headers=(("\ud800", b"v"),))],
    [Record(b"k", b"v", headers={"name": 5})],
    RecordColumns([]),
    RecordColumns([b"v"], [b"k", b"k"]),
    RecordColumns([b"v"], ["k"]),
    RecordColumns(b"v", [b"k"]),
    RecordColumns("v", [b"k"]),
    RecordColumns(5, [b"k"]),
    RecordColumns(None, [b"k"]),
    RecordColumns([b"v"], 5),
    RecordColumns([b"v"], [b"k"], [1.5]),
    RecordColumns([b"v"], [b"k"], "now"),
    RecordColumns([b"v"], [b"k"], -5),
    RecordColumns([b"v"], [b"k"], [1, 2]),
    RecordColumns([b"v"], [b"k"], np.array([[1]])),
    RecordColumns([b"v"], [b"k"], None, [5]),
    RecordColumns([b"v"], [b"k"], None, 5),
    RecordColumns([b"v"], [b"k"], None, []),
)

STAMP = cleaner.ProducerStamp(7, 0, 0, is_transactional=False)
NO_STAMPS: dict[str, Values] = {
    "producer_id": (*NEEDED_INTEGER, -1, -7, 2**63),
    "epoch": (*NEEDED_INTEGER, -1, 2**15),
    "base_sequence": (*NEEDED_INTEGER, -1, -5, 2**31),
    "is_transactional": FLAG,
}

Table = dict[str, dict[str, Values]]

READING: Table = {
    "read": {
        "offset": NEEDED_INTEGER,
        "max_records": (*INTEGER, -1),
        "max_bytes": INTEGER,
        "isolation": WORD,
        "until": WORD,
    },
    "columns": {
        "offset": NEEDED_INTEGER,
        "max_bytes": INTEGER,
        "chunk_bytes": NEEDED_INTEGER,
        "isolation": WORD,
        "until": WORD,
    },
    "follow": {"offset": NEEDED_INTEGER, "isolation": WORD, "until": WORD, "timeout_seconds": SECONDS},
    "latest": {"isolation": WORD, "survivor": WORD},
    "offset_for_time": {"timestamp_ms": MOMENT, "isolation": WORD},
    "end_offset_for_epoch": {"epoch": NEEDED_INTEGER},
    "table": {"directory": PATH},
    "close": {},
}
LOG: Table = {
    **READING,
    "append": {"records": RECORDS, "producer": (5, "p", (1, 2, 3), THING)},  # and NO_STAMPS
    "append_durable": {"records": RECORDS, "producer": (5, "p", (1, 2, 3), THING)},
    "truncate_to": {"offset": NEEDED_INTEGER},
    "producer": {
        "transactional_id": (*TEXT, ""),
        "transaction_timeout_ms": (*NEEDED_INTEGER, 0),
        "resume": FLAG,
    },
    "offsets": {"group": (*NEEDED_TEXT, "", "g" * 2**15, "\ud800")},
    "flush": {},
    "roll": {},
    "end_late_transactions": {},
    "abandon": {},
}
PRODUCER: Table = {
    "append": {"records": RECORDS, "sequence": (*INTEGER, -1, 2**31)},
    "begin": {},
    "commit": {},
    "abort": {},
    "transaction": {},
}
OFFSETS: Table = {
    "load": {},
    "commit": {
        "next_offset": (*NEEDED_INTEGER, -1),
        "metadata": (*NEEDED_TEXT, "m" * 4097, "\ud800"),
        "transaction": (5, "service", THING),
    },
}
SPANNING: Table = {
    "append": {"log": (5, "prices", None, THING), "records": RECORDS},
    "on_commit": {"call": (*FUNCTION, None)},
    "begin": {},
    "commit": {},
    "abort": {},
    "transaction": {},
}
FOLLOWER: Table = {
    "poll": {"timeout_seconds": SECONDS, "max_records": (*INTEGER, -1)},
    "poll_columns": {"timeout_seconds": SECONDS},
    "go_back": {"offset": (*NEEDED_INTEGER, -1)},
    "close": {},
}
MANAGER: Table = {
    "create_topic": {"name": NEEDED_TEXT, "partitions": NEEDED_INTEGER, "settings": SETTINGS, "topic_id": OBJECT},
    "add_partitions": {"name": NEEDED_TEXT, "partitions": NEEDED_INTEGER},
    "alter_topic": {"name": NEEDED_TEXT, "changes": SETTINGS},
    "describe_topic": {"name": NEEDED_TEXT},
    "topic_config": {"name": NEEDED_TEXT},
    "delete_topic": {"name": NEEDED_TEXT},
    "log": {"topic": NEEDED_TEXT, "partition": NEEDED_INTEGER},
    "producer": {"transactional_id": (*NEEDED_TEXT, "", "\ud800"), "transaction_timeout_ms": (*NEEDED_INTEGER, 0)},
    "topic": {"name": NEEDED_TEXT, "key": (5, "str", None, str, THING), "value": (5, "json", None, THING)},
    "topics": {},
    "logs": {},
    "wake": {},
    "close": {},
    "abandon": {},
}
OPENING: dict[str, Values] = {
    "log_dirs": (*PATH, None, [5], []),
    "settings": SETTINGS,
    "create": FLAG,
    "cleaner": FLAG,
    "tasks": FLAG,
    "allow_truncate": FLAG,
    "registry": OBJECT,
    "logger": OBJECT,
    "cluster_id": TEXT,
    "clock": OBJECT,
    "fs": OBJECT,
}
LENT = {"fs": OBJECT, "progress": FUNCTION, "check_done": FUNCTION}
FOUND: dict[str, Values] = {
    "settings": SETTINGS,
    "now_ms": tuple(value for value in MOMENT if value is not None),
    "topics_dir": PATH,
    "metadata_dir": PATH,
}
FUNCTIONS: Table = {
    "open_reader": {
        "log_dir": (*PATH, None),
        "topic": (*NEEDED_TEXT, "../x", ""),
        "partition": (*NEEDED_INTEGER, -1),
        "fs": OBJECT,
        "clock": OBJECT,
        "max_decompressed_batch_bytes": (*NEEDED_INTEGER, 0),
    },
    "clean": {
        "log_dir": (*PATH, None),
        "partition": (*NEEDED_TEXT, "prices"),
        **FOUND,
        **LENT,
        "high_watermark": WATERMARK,
        "recover": FLAG,
        "allow_truncate": FLAG,
        "retention": FLAG,
        "verify": FLAG,
        "rounds": ("some", 0, 1.5, None, True, THING),
        "keep_tombstones": FLAG,
        "safe_tombstones": PATH,
        "keep_old": PATH,
        "index_dir": PATH,
        "damaged": WORD,
        "recompress": (5, "gzip", "zstd:20", "lz4:1", THING),
        "max_dirty_bytes": (*INTEGER, 0),
        "max_seconds": SECONDS,
    },
    "plan": {
        "log_dir": (*PATH, None),
        **FOUND,
        "fs": OBJECT,
        "high_watermark": WATERMARK,
        "sampling": (5, "x", THING, Sampling("5"), Sampling(0)),
        "recompress": (5, "gzip", "zstd:20", "lz4:1", THING),
    },
    "recover": {
        "log_dir": (*PATH, None),
        "partitions": (5, "prices-0", [5], {"prices-0": 1}, THING),
        **FOUND,
        **LENT,
        "allow_truncate": FLAG,
        "save_cut": PATH,
        "trust_marker": FLAG,
    },
    "who": {
        "log_dir": (*PATH, None),
        "partition": (5, ["prices-0"], "prices", THING),
        "sample_bytes": (*INTEGER, 0),
        "top": (*NEEDED_INTEGER, 0),
        "high_watermark": WATERMARK,
        **FOUND,
        **LENT,
    },
    "erase": {
        "log_dir": (*PATH, None),
        "names": (5, "prices", b"prices", [5], [], {"prices": 1}, None, THING),
        "keys": (5, b"p3", "p3", ["p3"], [5], THING),
        "prefixes": (5, b"p3", "p3", ["p3"], [b""], THING),
        "offsets": (5, "0-1", (1,), (1, 0), (-1, 0), ("0", "1"), THING),
        "dry_run": FLAG,
        "punch": FLAG,
        "kept": (5, "kept", [5], THING),
        "cut": (5, "cut", [5], THING),
        "index_dir": PATH,
        "warn": FUNCTION,
        **FOUND,
        **LENT,
    },
    "gaps": {
        "log_dir": (*PATH, None),
        "partition": (5, ["prices-0"], "prices", THING),
        **{name: values for name, values in FOUND.items() if name != "now_ms"},
        **LENT,
    },
    "export": {
        "log_dir": (*PATH, None),
        "topic": NEEDED_TEXT,
        "target": (*PATH, None),
        "form": WORD,
        "changes": FLAG,
        "survivor": WORD,
        "check_done": FUNCTION,
        "fs": OBJECT,
    },
    "check_replicas": {
        "directories": (5, "data", [], ["data"], THING),
        "partitions": (5, "prices-0", [5], {"prices-0": 1}, THING),
        "safe_tombstones": PATH,
        "memory_bytes": (*NEEDED_INTEGER, 0),
        **FOUND,
        **LENT,
    },
    "serve_log_dirs": {
        "log_dirs": (5, [], ["logs", 5], {"logs": 1}, b"logs", "", None, THING),
        "listen": (*NEEDED_TEXT, "", "9092", "a:b", "127.0.0.1:70000"),
        "compacted": FLAG,
        "scratch": PATH,
        "warn": FUNCTION,
        **{name: values for name, values in FOUND.items() if name != "now_ms"},
        "fs": OBJECT,
    },
    "replay": {
        "before": (*PATH, None),
        "after": (*PATH, None),
        "kind": WORD,
        "partitions": (5, "prices-0", [5], {"prices-0": 1}, THING),
        **{name: values for name, values in FOUND.items() if name != "now_ms"},
        **LENT,
    },
}
USUAL: dict[str, dict[str, object]] = {
    "read": {"offset": 0},
    "columns": {"offset": 0},
    "follow": {"offset": 0},
    "append": {"records": [Record(b"k", b"v")]},
    "append_durable": {"records": [Record(b"k", b"v")]},
    "topic": {"name": "prices"},
    "producer": {"transactional_id": "id"},
    "create_topic": {"name": "new"},
    "add_partitions": {"name": "prices", "partitions": 2},
    "alter_topic": {"name": "prices", "changes": {}},
    "log": {"topic": "prices"},
    "offset_for_time": {"timestamp_ms": 0},
    "open_reader": {"topic": "prices"},
    "clean": {"partition": "prices-0"},
    "erase": {"names": ["prices"], "keys": [b"p3"]},
    "export": {"topic": "prices", "target": "exported"},
}
PARTS_OF_A_LOG = ("appended_at", "fence", "listen")  # public for producers of the same log
PARTS_OF_A_PRODUCER = ("end_if_late",)  # "fence" of a manager's, too


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """A log with one record."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("prices", 1, {"cleanup.policy": "compact"})
        manager.log("prices").append(Record(b"p3", b"10", timestamp_ms=1_700_000_000_000))
        manager.log("prices").flush()
        yield manager


def files_below(path: Path) -> dict[str, bytes]:
    """Return every file below a directory with its bytes."""
    return {str(each): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def refuses_all(call: Callable[..., object], usual: dict[str, object], wrong: dict[str, Values]) -> None:
    """Call with each wrong value; every call must raise a CleanerError."""
    for name, values in wrong.items():
        for value in values:
            try:
                call(**{**usual, name: value})
            except CleanerError:
                continue
            except Exception as error:  # noqa: BLE001 - told with what has led to it
                pytest.fail(f"{call.__qualname__}({name}={value!r}) raised {error!r}")
            pytest.fail(f"{call.__qualname__}({name}={value!r}) was taken")


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (LogReader, READING),
        (Log, LOG),
        (LogProducer, PRODUCER),
        (LogManager, MANAGER),
        (Follower, FOLLOWER),
        (GroupOffsets, OFFSETS),
        (ManagerProducer, SPANNING),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_table_has_every_argument_of_a_class(kind: type, table: Table) -> None:
    """A new method or argument must be added to the table of what it refuses."""
    methods = {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in PARTS_OF_A_LOG + PARTS_OF_A_PRODUCER
    }
    arguments_of = {
        name: [each for each in inspect.signature(method).parameters if each != "self"]
        for name, method in methods.items()
    }
    assert {name: sorted(each) for name, each in arguments_of.items()} == {
        name: sorted(row) for name, row in table.items()
    }


@pytest.mark.parametrize("name", [*FUNCTIONS, "LogManager"])
def test_table_has_every_argument_of_a_function(name: str) -> None:
    """The same for functions, and for the opening."""
    row = OPENING if name == "LogManager" else FUNCTIONS[name]
    assert sorted(inspect.signature(getattr(cleaner, name)).parameters) == sorted(row)


def test_log_refuses_what_it_cannot_use(manager: LogManager, tmp_path: Path) -> None:
    """Log, reader, producers and followers; the files stay as they are."""
    log = manager.log("prices")
    producer, writer, follower = log.producer(), log.producer("writer"), log.follow(0)
    before = files_below(tmp_path)
    for thing, table in ((log, LOG), (log.reader, READING), (producer, PRODUCER), (follower, FOLLOWER)):
        for name, wrong in table.items():
            refuses_all(getattr(thing, name), USUAL.get(name, {}), wrong)
    writer.begin()
    refuses_all(writer.append, {}, PRODUCER["append"] | {"sequence": ()})
    writer.abort()
    follower.close()
    assert files_below(tmp_path) == before
    assert log.append(Record(b"p3", b"11")).base_offset == 1


def test_manager_refuses_what_it_cannot_use(manager: LogManager, tmp_path: Path) -> None:
    """Topics, their settings, their logs."""
    before = files_below(tmp_path)
    for name, wrong in MANAGER.items():
        refuses_all(getattr(manager, name), USUAL.get(name, {}), wrong)
    assert files_below(tmp_path) == before
    assert manager.topics() == ["prices"]


def test_producer_of_a_manager_and_offsets_refuse_what_they_cannot_use(manager: LogManager, tmp_path: Path) -> None:
    """Nothing is appended; the topics that they need are there before."""
    log = manager.log("prices")
    producer, place = manager.producer("service"), log.offsets("group")
    place.load()
    producer.begin()
    producer.append(log, Record(b"p3", b"1"))
    before = files_below(tmp_path)
    refuses_all(producer.append, {"records": [Record(b"k", b"v")]}, {"log": SPANNING["append"]["log"]})
    refuses_all(producer.append, {"log": log}, {"records": RECORDS})
    refuses_all(producer.on_commit, {}, SPANNING["on_commit"])
    refuses_all(place.commit, {"next_offset": 1}, OFFSETS["commit"])
    assert files_below(tmp_path) == before
    producer.abort()


@pytest.mark.parametrize("name", [*FUNCTIONS, "LogManager"])
def test_function_refuses_what_it_cannot_use(
    name: str, manager: LogManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands' calls and openings, of a log dir that is closed. Nothing is made, neither there nor where one is."""
    manager.close()
    monkeypatch.chdir(tmp_path)
    before = files_below(tmp_path)
    first = {"LogManager": "log_dirs", "serve_log_dirs": "log_dirs", "replay": "before"}.get(name, "log_dir")
    usual = {first: tmp_path / "logs", **({"after": tmp_path / "logs"} if name == "replay" else USUAL.get(name, {}))}
    if name == "check_replicas":
        usual = {"directories": [tmp_path / "logs", shutil.copytree(tmp_path / "logs", tmp_path / "copy")]}
        before = files_below(tmp_path)
    refuses_all(getattr(cleaner, name), usual, OPENING if name == "LogManager" else FUNCTIONS[name])
    assert files_below(tmp_path) == before


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([Record(b"k", b"v"), Record("k", b"v")], "record 1: its key is a str.*key.encode()"),
        ([Record(b"k", 5)], "record 0: its value is a int"),
        ([Record(b"k", b"v"), (b"k", b"v")], "record 1 is a tuple, not a cleaner.Record"),
        ([Record(b"k", b"v", timestamp_ms=1.5)], "record 0: timestamp_ms is 1.5"),
        ([Record(b"k", b"v"), Record(b"k", b"v", headers={"n": 5})], "record 1: header 'n' is a int"),
        (RecordColumns([b"v", b"v"], [b"k", 5]), "record 1: its key is a int"),
        (RecordColumns([b"v"], [b"k"], None, [["n"]]), "record 0: its headers are"),
    ],
)
def test_refused_record_is_named_with_its_field(manager: LogManager, records: object, words: str) -> None:
    """Its number, from 0 up, and what is wrong with which of its fields."""
    with pytest.raises(UsageError, match=words):
        manager.log("prices").append(records)


@pytest.mark.parametrize("field", NO_STAMPS)
def test_refused_producer_stamp_is_named_by_its_field(manager: LogManager, field: str) -> None:
    """Values that do not fit a batch, and those that mean "no producer": such appends would count as repeats."""
    log = manager.log("prices")
    for value in NO_STAMPS[field]:
        end = log.log_end_offset
        with pytest.raises(UsageError, match=f"^{field} is "):
            log.append(Record(b"k", b"v"), producer=STAMP._replace(**{field: value}))
        assert log.log_end_offset == end


def test_producer_stamp_with_the_largest_numbers_is_accepted(manager: LogManager) -> None:
    """Integers of any kind, and every value that Kafka's format can hold."""
    log = manager.log("prices")
    stamp = cleaner.ProducerStamp(2**63 - 1, np.int16(2**15 - 1), 2**31 - 1, is_transactional=False)
    assert not log.append([Record(b"k", b"v")] * 2, producer=stamp).is_repeat
    assert log.append([Record(b"k", b"v")] * 2, producer=stamp).is_repeat
    assert not log.append(Record(b"k", b"v"), producer=stamp._replace(base_sequence=1)).is_repeat


def test_records_in_every_documented_form_are_accepted(manager: LogManager) -> None:
    """A single record, a generator, headers as a dict, times as datetime or numpy, keys in any kind of bytes."""
    log = manager.log("prices")
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone(timedelta(hours=2)))
    moment_ms = int(moment.timestamp() * 1000)
    ints = memoryview(array.array("i", [1, 2]))
    given = [
        Record(b"a", b"1"),
        (Record(b"b%d" % number, b"2") for number in range(2)),
        Record(b"c", b"3", {"n": b"x", "null": None}),
        Record(b"d", b"4", timestamp_ms=moment),
        Record(b"e", b"5", timestamp_ms=np.int64(moment_ms)),
        Record(bytearray(b"f"), memoryview(b"6")),
        Record(b"g", ints, (("n", ints),)),
        RecordColumns([b"7"], [b"h"], moment, [{"n": b"y"}]),
        RecordColumns((b"8",), (b"i",), np.array([moment_ms])),
    ]
    for records in given:
        log.append(records)
    with log.producer("w").transaction() as producer:
        producer.append(Record(b"j", b"9"))
        assert producer.append(Record(b"k", b"9") for _ in range(3)).last_offset == log.log_end_offset - 1
        producer.append(Record(b"l", b"9"))
    found = {record.key: record for record in log.read(1, until="end")}
    assert list(found) == [b"a", b"b0", b"b1", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j", b"k", b"l"]
    assert found[b"c"].headers == (("n", b"x"), ("null", None))
    assert found[b"g"].headers == (("n", bytes(ints)),)
    assert found[b"g"].value == bytes(ints)
    assert found[b"h"].headers == (("n", b"y"),)
    assert [found[key].timestamp_ms for key in (b"d", b"e", b"h", b"i")] == [moment_ms] * 4


def test_settings_and_moments_in_every_documented_form_are_accepted(tmp_path: Path) -> None:
    """Numbers, flags and lists for settings; a datetime with a time zone for milliseconds."""
    with LogManager([tmp_path / "logs"], {"num.partitions": 1, "log.cleaner.enable": True}, create=True) as manager:
        settings: dict[str, Any] = {"segment.bytes": 5_000_000, "preallocate": False, "min.cleanable.dirty.ratio": 0.25}
        manager.create_topic("t", np.int64(1), {**settings, "cleanup.policy": ["compact", "delete"]})
        config = manager.topic_config("t")
        assert (config.segment_bytes, config.min_cleanable_dirty_ratio) == (5_000_000, 0.25)
        assert (config.compact, config.delete) == (True, True)
        manager.alter_topic("t", {"segment.bytes": 6_000_000, "preallocate": None})
        assert manager.topic_config("t").segment_bytes == 6_000_000
        log = manager.log("t")
        moment = datetime(2026, 1, 2, tzinfo=UTC)
        log.append(Record(b"k", b"v", timestamp_ms=int(moment.timestamp() * 1000)))
        log.flush()
        assert log.offset_for_time(moment) == 0
        assert log.offset_for_time(moment + timedelta(seconds=1)) is None
    cleaner.clean(tmp_path / "logs", "t-0", {"delete.retention.ms": 5})
    assert len(cleaner.plan(tmp_path / "logs", {"log.cleaner.threads": 2})) == 1


@pytest.mark.parametrize("value", [b"5", THING, None, {"a": 1}, [5]])
def test_setting_of_a_wrong_kind_is_named(value: object) -> None:
    """By its key, like any other bad setting."""
    with pytest.raises(ConfigError, match=re.escape("segment.bytes")):
        arguments.setting_texts({"segment.bytes": value})
