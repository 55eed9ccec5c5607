"""Lookups by key, compared at each step with `latest`, which reads the whole log."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import cleaner
from cleaner import Log, LogManager, Record, Table, errors, open_reader
from cleaner.format.layout import Layout
from cleaner.kernels import table as table_kernel
from cleaner.log import table as table_module
from cleaner.log import table_index, unpacked_batches
from cleaner.state import table_runs
from cleaner.state.table_file import TableFile
from tests.crash.interrupts import FaultyFileSystem
from tests.unit.log.test_latest import write_anything

pytestmark = pytest.mark.kernels

KEYS = (b"", *(b"k%d" % key for key in range(41)))  # the last one is never written


def agrees(log: Log, table: Table) -> None:
    """Make sure that every way to ask gives what `latest` gives."""
    with log.latest() as latest:
        expected = latest.to_dict()
    assert table.get_many(KEYS) == [expected.get(key) for key in KEYS]
    assert [table.get(key) for key in KEYS] == [expected.get(key) for key in KEYS]
    assert dict(table.items()) == expected


def gather(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gather all that is put into an index, in many runs."""
    monkeypatch.setattr(table_index, "MANY_OFFSETS", 1)
    monkeypatch.setattr(table_runs, "RUN_ENTRIES", 5)


def clean(manager: LogManager, log_dir: Path) -> int:
    """Clean beside the writer, all that is on disk; returns how many records were superseded."""
    manager.upkeep.note_high_watermarks()
    return cleaner.clean(log_dir, "t-0").removed.superseded


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_latest(tmp_path: Path, seed: int, gathers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through writes, transactions, rounds, new segments, a new log start, and the tables of several lives."""
    rng = random.Random(seed)
    if gathers:
        gather(monkeypatch)
        # Some batches fit, one after the other.
        monkeypatch.setattr(unpacked_batches, "ROOM_BYTES", 4096)
        monkeypatch.setattr(unpacked_batches, "SHELVES", 8)
    codec = ("producer", "zstd", "lz4", "producer")[seed]
    settings = {"compression.type": codec, "segment.bytes": "4000", "delete.retention.ms": "0"}
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "delete", **settings})
        log = manager.log("t")
        log.append([Record(b"k0", b"first")])
        table = log.table()
        for _ in range(8):
            step = rng.randrange(5)
            if step == 0:
                log.flush()
                log.roll()
                manager.alter_topic("t", {"cleanup.policy": "compact"})
                clean(manager, tmp_path / "logs")
                manager.alter_topic("t", {"cleanup.policy": "delete"})
            elif step == 1:
                producer = log.producer("open")
                producer.begin()
                producer.append([Record(b"k1", b"undecided"), Record(b"k2", None)])
                log.flush()
                agrees(log, table)
                rng.choice((producer.commit, producer.abort))()
            elif step == 2:
                table.close()
                if rng.random() < 0.5:
                    write_anything(log, rng)
                    log.flush()
                table = log.table()
            else:
                if rng.random() < 0.3:
                    log.append([Record(b"k3", os.urandom(3_000))])
                write_anything(log, rng)
            log.flush()
            agrees(log, table)
        table.close()


def test_a_key_is_found_as_soon_as_the_log_says_it_reaches_so_far(manager: LogManager) -> None:
    """Between a flush and its signal, too: a thread that flushes in the background may be held up there."""
    log = manager.log("t")
    log.append([Record(b"k0", b"old")])
    log.flush()
    with log.table() as table:
        assert table.get(b"k0") == b"old"
        log.append([Record(b"k0", b"new")])
        table.refresh()  # so that it does not look again because time has passed
        seen: list[tuple[int, bytes | None]] = []
        # Called before the one that signals.
        log._writer.on_append.insert(0, lambda: seen.append((log.high_watermark, table.get(b"k0"))))
        log.flush()
        del log._writer.on_append[0]
    assert seen == [(2, b"new")]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """A log dir with a compacted topic."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact", "delete.retention.ms": "0"})
        yield manager


def put(log: Log, *pairs: tuple[str, str | None]) -> None:
    """Append and flush."""
    log.append([Record(key.encode(), None if value is None else value.encode()) for key, value in pairs])
    log.flush()


@pytest.mark.parametrize("room", [64 << 10, 200 << 10])
def test_unpacked_batches_in_a_small_ring(manager: LogManager, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of many sizes, in another order each time: over each other, over the end, and some that are too large."""
    monkeypatch.setattr(unpacked_batches, "ROOM_BYTES", room)
    monkeypatch.setattr(unpacked_batches, "SHELVES", 16)
    rng = random.Random(room)
    manager.alter_topic("t", {"compression.type": "lz4"})
    log = manager.log("t")
    expected: dict[bytes, bytes] = {}
    for batch in range(60):
        size = 40_000 if batch % 20 == 7 else rng.choice((0, 1, 300, 4000))
        records = [Record(b"%d-%d" % (batch, key), rng.randbytes(size // 2) * 2) for key in range(rng.randrange(1, 5))]
        log.append(records)
        expected |= {record.key or b"": record.value or b"" for record in records}
    log.flush()
    keys = list(expected)
    with log.table() as table:
        for _ in range(30):
            some = rng.sample(keys, rng.randrange(1, 40))
            assert table.get_many(some) == [expected[key] for key in some]
            again = rng.choice(some)
            assert [table.get(again) for _ in range(2)] == [expected[again]] * 2
        found = int(table._batches.arguments[3][0])
        assert found > 3 * room  # it went round


def test_batch_that_was_written_over_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one with the same key at the same place has another value."""
    monkeypatch.setattr(unpacked_batches, "ROOM_BYTES", 4096)
    batches = unpacked_batches.UnpackedBatches()
    one, key = np.ones(1, np.int64), np.frombuffer(b"key", np.uint8)

    def found(place: int) -> bytes | None:
        ring, words, shelves, written = batches.arguments
        start, size = table_kernel._find_unpacked(ring, words, shelves, written[0], place, 7, key, 0, 3)
        return None if size < 0 else ring[start : start + size].tobytes()

    for place in range(1, 7):
        data = np.zeros(984, np.uint8)  # with the rows 1024 bytes
        data[:6] = np.frombuffer(b"key%03d" % place, np.uint8)
        batches.add(place, Layout(data, 7 * one, one, 0 * one, 3 * one, 3 * one, 3 * one, 0 * one))
        assert found(place) == b"%03d" % place
    assert [found(place) for place in range(8)] == [None, None, None, b"003", b"004", b"005", b"006", None]


def test_batch_that_is_kept_is_unpacked_once(manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of its keys, one by one or together."""
    manager.alter_topic("t", {"compression.type": "zstd"})
    log = manager.log("t")
    for batch in range(3):
        log.append([Record(b"%d-%d" % (batch, key), b"v" * key) for key in range(50)])
    log.flush()
    unpacked: list[int] = []
    real = table_module._unpack
    monkeypatch.setattr(table_module, "_unpack", lambda *rest: unpacked.append(rest[1]) or real(*rest))
    keys = [b"%d-%d" % (batch, key) for key in range(50) for batch in range(3)]
    with log.table() as table:
        assert table.get_many(keys) == [b"v" * key for key in range(50) for _ in range(3)]
        assert [table.get(key) for key in keys] == [b"v" * key for key in range(50) for _ in range(3)]
    assert len(unpacked) == 3


def test_values_of_any_size(manager: LogManager) -> None:
    """Values that do not fit the first read, nor the buffer; keys whose size takes two bytes."""
    log = manager.log("t")
    sizes = (0, 1, 200, 256, 257, 300, 20_000, 70_000, 200_000)
    pairs = {b"%d" % size * 50: os.urandom(size) for size in sizes}
    log.append([Record(key, value) for key, value in pairs.items()])
    log.flush()
    with log.table() as table:
        assert table.get_many(list(pairs)) == list(pairs.values())
        assert [table.get(key) for key in pairs] == list(pairs.values())
        assert table.get_many([]) == []


def _lose(index: Path) -> None:
    (index / "index").unlink()


def _lose_facts(index: Path) -> None:
    (index / "index.json").unlink()


def _cut(index: Path) -> None:
    os.truncate(index / "index", 4096)


def _tear(index: Path) -> None:
    data = bytearray((index / "index").read_bytes())
    data[: len(data) // 2] = bytes(len(data) // 2)
    (index / "index").write_bytes(data)


def _garble(index: Path) -> None:
    text = (index / "index.json").read_text().replace('"seed": "', '"seed": "x')
    (index / "index.json").write_text(text)


def _another(index: Path) -> None:
    shutil.copytree(index.parent / "u-0", index, dirs_exist_ok=True)


@pytest.mark.parametrize("harm", [_lose, _lose_facts, _cut, _tear, _garble, _another])
def test_a_bad_index_is_made_again(manager: LogManager, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Lost, cut, torn, or of another log with the same keys."""
    manager.create_topic("u", 1)
    log, other = manager.log("t"), manager.log("u")
    for each, name in ((log, "t"), (other, "u")):
        put(each, *((f"k{at}", f"{name}{at}") for at in range(900)))
        each.table().close()
    harm(tmp_path / "logs.tables" / "t-0")
    with log.table() as table:
        assert table.get_many([b"k%d" % at for at in range(900)]) == [b"t%d" % at for at in range(900)]


def test_an_index_in_use_is_not_trusted_after_a_crash(manager: LogManager, tmp_path: Path) -> None:
    """Its pages may be of any moment."""
    log = manager.log("t")
    put(log, ("k0", "old"))
    log.table().close()
    directory = tmp_path / "logs.tables" / "t-0"
    with log.table() as table:
        put(log, ("k0", "new"))
        assert table.get(b"k0") == b"new"
        with pytest.raises(errors.StateDirLockedError):
            log.table()
        crashed = shutil.copytree(directory, tmp_path / "crashed")
        os.truncate(crashed / "index", 4096 * 32)
        (crashed / "index").write_bytes(bytes(4096 * 32))
        (crashed / "index.runs").write_bytes(b"gathered")
        crashed.chmod(0o700)
    with log.table(crashed) as table:
        assert table.get(b"k0") == b"new"
        assert not (crashed / "index.runs").exists()


def test_a_wrong_entry_costs_time_only(manager: LogManager) -> None:
    """An entry that leads to another key's record, as if two keys had one digest."""
    log = manager.log("t")
    put(log, ("a", "1"), ("b", "2"))
    with log.table() as table:
        for _ in range(2):  # the index is made again; then the log is read
            words = table._index.file.words.reshape(-1, 4)
            rows = np.flatnonzero(words[:, 2])
            words[rows, 3] = words[rows[::-1], 3].copy()
            assert [table.get(b"a"), table.get(b"b")] == [b"1", b"2"]


@pytest.mark.parametrize("first_group", ["as it is", "empty"])
def test_gathered_records(
    manager: LogManager, tmp_path: Path, first_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than fill a run; also where the first group of digests says nothing of how many keys there are."""
    monkeypatch.setattr(table_index, "MANY_OFFSETS", 1)
    monkeypatch.setattr(table_runs, "RUN_ENTRIES", 1000)
    if first_group == "empty":
        monkeypatch.setattr(TableFile, "_make_room", lambda *_: None)
    log = manager.log("t")
    for begin in range(0, 30_000, 5000):
        log.append([Record(b"key-%d" % (number % 20_000), b"%d" % number) for number in range(begin, begin + 5000)])
    log.append([Record(b"key-5", None)])
    log.flush()
    with log.table() as table:
        keys = [b"key-%d" % number for number in range(20_001)]
        expected = [b"%d" % (number + 20_000 if number < 10_000 else number) for number in range(20_000)]
        assert table.get_many(keys) == [*expected[:5], None, *expected[6:], None]
        assert len(dict(table.items())) == 19_999
        assert sorted(path.name for path in (tmp_path / "logs.tables/t-0").iterdir()) == ["index", "lock"]


def test_gathering_goes_on_after_any_call_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same table, which had a part of the records."""
    gather(monkeypatch)
    fs, failed = FaultyFileSystem(), 0
    fs.what = lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False, fs=fs) as manager:
        manager.create_topic("t", 1, {"segment.bytes": "4000"})
        log = manager.log("t")
        with log.table() as table:
            for number in range(1, 60):
                put(log, *((f"k{key}", f"{number}-{key}") for key in range(1 + number % 40)))
                fs.calls, fs.fail_at = 0, number
                try:
                    table.get(b"k0")
                except errors.CleanerError:
                    failed += 1
                fs.fail_at = None
                agrees(log, table)
    assert failed > 5


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), errors.LogDirOfflineError("index", OSError(errno.EIO, "bad"))])
@pytest.mark.parametrize("gathers", [False, True])
def test_an_error_while_records_are_put(
    manager: LogManager,
    tmp_path: Path,
    gathers: bool,
    error: BaseException,
    is_reopened: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was put is above the end of the index; it goes, or an offset that was cut is above those that came since."""
    if gathers:
        gather(monkeypatch)
    log = manager.log("t")
    put(log, ("k0", "first"))
    put_them = "put_gathered" if gathers else "put"
    real = getattr(TableFile, put_them)

    def interrupted(file: TableFile, *arguments: object) -> None:
        real(file, *arguments)
        raise error

    with open_reader(tmp_path / "logs", "t") as reader:
        table = reader.table()
        assert table.get(b"k0") == b"first"
        put(log, ("a", ""), ("b", ""), ("c", ""), ("k0", "cut"))
        with monkeypatch.context() as patched:
            patched.setattr(TableFile, put_them, interrupted)
            with pytest.raises(type(error)):
                table.get(b"k0")
        if is_reopened:
            table.close()
        log.truncate_to(1)
        put(log, ("a", 16 * "x"), ("k0", "mid"), ("k0", "last"))  # `mid` is where `cut` was
        if is_reopened:
            table = reader.table()
        assert table.get(b"k0") == b"last"
        table.close()


def test_a_cut_log(manager: LogManager) -> None:
    """What was cut is forgotten, in this process and by an index of an earlier life."""
    log = manager.log("t")
    put(log, ("a", "1"), ("b", "1"))
    with log.table() as table:
        log.append([Record(b"a", b"2")])
        log.flush()
        assert table.get(b"a") == b"2"
        log.truncate_to(2)
        assert table.get(b"a") == b"1"
        put(log, ("c", "3"))
        assert table.get_many([b"a", b"b", b"c"]) == [b"1", b"1", b"3"]
    log.truncate_to(2)
    put(log, ("d", "4"))
    with log.table() as table:
        assert table.get_many([b"a", b"c", b"d"]) == [b"1", None, b"4"]


def test_erased_records(manager: LogManager, tmp_path: Path) -> None:
    """Another process's erasure is seen with the next look at the files."""
    log = manager.log("t")
    put(log, ("a", "1"), ("b", "1"), ("a", "2"))
    log.roll()
    put(log, ("c", "1"))
    manager.close()
    with open_reader(tmp_path / "logs", "t") as reader, reader.table(tmp_path / "own") as table:
        assert table.get_many([b"a", b"b", b"c"]) == [b"2", b"1", b"1"]
        cleaner.erase(tmp_path / "logs", ["t"], keys=[b"a"])
        table.refresh()
        assert table.get_many([b"a", b"b", b"c"]) == [None, b"1", b"1"]


def test_an_erasure_removes_the_index(manager: LogManager, tmp_path: Path) -> None:
    """Also one that a table has open: what is written down when it closes is of no use any more."""
    log = manager.log("t")
    put(log, ("a", "1"), ("b", "1"))
    log.roll()
    put(log, ("c", "1"))
    manager.close()
    directory = tmp_path / "logs.tables" / "t-0"
    with open_reader(tmp_path / "logs", "t") as reader:
        with reader.table():
            assert (directory / "index").exists()
            cleaner.erase(tmp_path / "logs", ["t"], keys=[b"a"])
            assert not (directory / "index").exists()
        with reader.table() as table:
            assert table.get_many([b"a", b"b", b"c"]) == [None, b"1", b"1"]


def test_a_table_beside_the_writer_in_another_process(manager: LogManager, tmp_path: Path) -> None:
    """A reader of the directory sees what is flushed."""
    log = manager.log("t")
    put(log, ("a", "1"))
    with open_reader(tmp_path / "logs", "t") as reader, reader.table(tmp_path / "own") as table:
        for value in range(20):
            put(log, ("a", str(value)))
            if value == 10:
                log.roll()
                assert clean(manager, tmp_path / "logs") == 11
            table.refresh()
            assert table.get(b"a") == b"%d" % value


def test_watch(manager: LogManager) -> None:
    """The value now, and then each later one."""
    log = manager.log("t")
    put(log, ("a", "1"), ("b", "1"))
    with log.table() as table:
        values = table.watch(b"a", timeout_seconds=0.1)
        assert next(values) == b"1"
        put(log, ("b", "2"), ("a", "2"), ("a", None))
        assert list(values) == [b"2", None]


def test_refusals(manager: LogManager, tmp_path: Path) -> None:
    """Keys that are no bytes, a directory in the log dir or open to others, a closed table."""
    log = manager.log("t")
    with pytest.raises(errors.ConfigError, match="must not be inside the log dir"):
        log.table(tmp_path / "logs" / "table")
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(errors.ConfigError, match="others may write"):
        log.table(tmp_path / "open")
    with log.table() as table:
        for wrong in ("a", 5, None):
            with pytest.raises(errors.UsageError, match="keys"):
                table.get(wrong)  # type: ignore[arg-type]
        with pytest.raises(errors.UsageError):
            table.get_many([b"a", "b"])  # type: ignore[list-item]
        for keys in (None, 5, b"ab", {b"a": 1}, [np.int64(3)], np.array([1, 2])):
            with pytest.raises(errors.UsageError, match="keys"):
                table.get_many(keys)  # type: ignore[arg-type]
        assert table.get_many(iter([b"a"])) == [None]  # type: ignore[arg-type]
        assert table.get(b"a") is None
    with pytest.raises(errors.LogClosedError, match="the table is closed"):
        table.get(b"a")
    with log.table() as table:
        manager.close()
        with pytest.raises(errors.LogClosedError):
            table.get(b"a")


def test_a_topic_made_again(manager: LogManager) -> None:
    """The table is of the log it was opened on."""
    log = manager.log("t")
    put(log, ("a", "1"))
    log.table().close()
    manager.delete_topic("t")
    manager.create_topic("t", 1)
    log = manager.log("t")
    put(log, ("b", "2"))
    with log.table() as table:
        assert table.get_many([b"a", b"b"]) == [None, b"2"]
