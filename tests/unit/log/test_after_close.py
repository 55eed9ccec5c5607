"""A closed object refuses every call, and opens no file again."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from cleaner import Log, LogManager, LogProducer, LogReader, Record, open_reader
from cleaner.errors import ForkedError, InvalidTxnStateError, LogClosedError, LogDirLockedError
from cleaner.log.latest import Latest

pytestmark = pytest.mark.kernels
RECORD = Record(b"k", b"v")

USUAL: Mapping[str, tuple[object, ...]] = {
    "add_partitions": ("t", 2),
    "alter_topic": ("t", {}),
    "append": (RECORD,),
    "append_durable": (RECORD,),
    "listen": (print,),
    "topic": ("t",),
    "columns": (0,),
    "create_topic": ("new",),
    "delete_topic": ("t",),
    "describe_topic": ("t",),
    "end_offset_for_epoch": (0,),
    "fence": ((1, 1),),
    "follow": (0,),
    "log": ("t",),
    "offset_for_time": (0,),
    "offsets": ("group",),
    "producer": ("id",),
    "read": (0,),
    "topic_config": ("t",),
    "truncate_to": (0,),
}
# Calls that only report, or do nothing after a close.
HARMLESS = {
    LogManager: {"close", "abandon", "wake"},
    Log: {
        "close",
        "abandon",
        "end_offset_for_epoch",
        "end_late_transactions",
        "appended_at",
    },
    LogProducer: {"end_if_late", "transaction"},
    LogReader: {"close"},
    Latest: {"close"},
}


def open_files() -> set[Path]:
    """Return the files that this process has open."""
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return {link.readlink() for link in links if link.is_symlink()}


def refuses_everything(thing: object) -> None:
    """Call every public method."""
    kind = type(thing)
    for name, _ in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in HARMLESS[kind]:
            continue
        with pytest.raises(LogClosedError):
            result = getattr(thing, name)(*(() if kind is Latest else USUAL.get(name, ())))
            if inspect.isgenerator(result):
                list(result)


def test_closed_log_is_refused_everywhere(tmp_path: Path) -> None:
    """Manager, log, producers, readers and upkeep."""
    before = open_files()
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        log.append(RECORD)
        log.flush()
        reader, producer, writer, upkeep = log.reader, log.producer(), log.producer("id"), manager.upkeep
        follower, latest = log.follow(0), log.latest()
        latest.close()
    for thing in (manager, log, reader, producer, writer, latest):
        refuses_everything(thing)
    with pytest.raises(LogDirLockedError):
        upkeep.remove_due()
    upkeep.note_all()
    assert (follower.poll(), list(follower), follower.poll_columns()) == ([], [], None)
    follower.close()
    assert open_files() <= before


# Properties that are valid in a fork too.
TOLD_IN_A_FORK = {"config", "directory", "log_dirs", "next_offset", "topic_partition"}
IN_A_FORK: Mapping[str, tuple[object, ...]] = {
    **USUAL,
    "appended_at": (0, 0, None),
    "end_if_late": (0,),
    "go_back": (0,),
    "poll": (None,),
    "poll_columns": (None,),
}


def taken_in_a_fork(thing: object) -> list[str]:
    """Call every public method and property; returns those that did not raise ForkedError."""
    wrong = []
    for name, member in inspect.getmembers(type(thing)):
        if (name.startswith("_") and name not in ("__next__", "__anext__")) or name in TOLD_IN_A_FORK:
            continue
        try:
            result = getattr(thing, name)
            if not isinstance(member, property):
                result = result(*IN_A_FORK.get(name, ()))
            if inspect.iscoroutine(result):
                asyncio.run(result)
            elif hasattr(result, "__enter__"):
                result.__enter__()
            wrong.append(f"{type(thing).__name__}.{name}")
        except ForkedError:
            pass
        except Exception as error:  # noqa: BLE001 - reported by the parent
            wrong.append(f"{type(thing).__name__}.{name}: {error!r}")
    return wrong


def test_forked_child_is_refused_everywhere(tmp_path: Path) -> None:
    """No call answers with the state at the fork, or waits for a thread that the child does not have."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        appended, under_way = log.append([RECORD] * 3), log.read(0, until="end")
        followers = [log.follow(0, until="end"), log.follow(0, until="end"), log.follow(0)]
        assert len(followers[0].poll(0, 1)) == 1  # two more are buffered
        writer = log.producer("id")
        writer.begin()
        things = [manager, log, log.reader, log.producer(), writer, *followers]
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            wrong = ["not asked to the end"]
            try:
                found = [each for thing in things for each in taken_in_a_fork(thing)]
                for under_lock in (lambda: appended.durable, lambda: next(under_way)):
                    with contextlib.suppress(ForkedError):
                        found.append(f"under way: {under_lock()}")
                with manager, log, followers[0]:  # leaving the block closes nothing of the parent's
                    assert "Log(" in repr(log)
                wrong = found
            finally:
                os.write(tell, repr(wrong).encode())
                os._exit(0)
        os.close(tell)
        assert os.read(told, 1 << 16) == b"[]"
        os.close(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        writer.append(RECORD)
        writer.commit().result()
        assert [follower.poll(10)[-1].value for follower in followers] == [b"v"] * 3
        for follower in followers:
            follower.close()


def test_closed_reader_refuses_and_its_followers_end(tmp_path: Path) -> None:
    """While the writer goes on; iterators under way go on to their end."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        log = manager.log("t")
        log.append([RECORD] * 3)
        log.flush()
        before = open_files()
        reader = open_reader(tmp_path / "logs", "t")
        under_way, follower = reader.read(0), reader.follow(0)
        assert next(under_way).offset == 0
        assert len(follower.poll()) == 3
        waiting = threading.Thread(target=lambda: list(follower))
        waiting.start()
        reader.close()
        waiting.join(30)
        assert not waiting.is_alive()
        assert [record.offset for record in under_way] == [1, 2]
        refuses_everything(reader)
        for name in ("log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset"):
            with pytest.raises(LogClosedError, match="the reader is closed"):
                getattr(reader, name)
        assert follower.poll() == []
        assert open_files() <= before


def test_state_closed_during_iteration_raises(tmp_path: Path) -> None:
    """And not with an error about a closed descriptor."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"segment.bytes": 5_000})
        log = manager.log("t")
        for number in range(100):
            log.append(Record(b"%d" % number, b"v" * 200))
        log.flush()
        latest = log.latest()
        records = iter(latest)
        next(records)
        latest.close()
        with pytest.raises(LogClosedError):
            list(records)


def test_transaction_begun_by_another_thread_is_named_as_such(tmp_path: Path) -> None:
    """Threads that share a producer learn what to do; a thread that begins two learns that it did."""
    with LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        producer = manager.log("t").producer("id")
        other = threading.Thread(target=producer.begin)
        other.start()
        other.join()
        with pytest.raises(InvalidTxnStateError, match=r"open already, begun by another thread: .* an id of its own"):
            producer.begin()
        producer.abort()
        producer.begin()
        with pytest.raises(InvalidTxnStateError, match=r"open already$"):
            producer.begin()
