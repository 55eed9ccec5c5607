"""Many followers of one log in its writer's process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cleaner
from cleaner import Log, LogManager, Record
from cleaner.errors import LogTruncatedError
from cleaner.log import broadcast
from cleaner.log.follow import Follower
from cleaner.storage.fs.file_system import File, FileSystem

pytestmark = pytest.mark.kernels
WAIT_SECONDS = 30.0


class CountedFile(File):
    """Counts what is read of logs."""

    reads = 0

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Count it."""
        CountedFile.reads += self.path.suffix == ".log"
        return super().read_into(buffer, position)


class CountingFileSystem(FileSystem):
    """Counts the reads of the files it opens."""

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open it."""
        found = super().open(path, write=write)
        return CountedFile(found.path, found.handle)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log of small segments."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False, fs=CountingFileSystem()) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact", "segment.bytes": 20_000})
        yield manager.log("t")
    assert not threads()


def threads() -> list[threading.Thread]:
    """Return the threads that read for many followers."""
    return [thread for thread in threading.enumerate() if thread.name == "cleaner-broadcast"]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, up to a limit."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def read_up_to(follower: Follower, offset: int) -> list[int | None]:
    """Return the offsets of the records below an offset, as a loop in a thread gets them."""
    found: list[int | None] = []
    while follower.next_offset < offset:
        found += [record.offset for record in follower.poll(1.0, max_records=7)]
    return found


async def read_all_up_to(followers: list[Follower], offset: int) -> list[list[int | None]]:
    """The same for many in one event loop."""

    async def read(follower: Follower) -> list[int | None]:
        found: list[int | None] = []
        async for record in follower:
            found.append(record.offset)
            if follower.next_offset >= offset:
                break
        return found

    return await asyncio.gather(*map(read, followers))


def test_followers_all_get_every_record_once_and_in_order(log: Log) -> None:
    """In threads and in an event loop, from the beginning and from the middle, while segments roll and are cleaned."""
    count = 200
    log.append([Record(b"k%d" % (number % 50), b"v" * 100) for number in range(100)])
    log.flush()
    begins = [0, 0, 50, 100, 100, 100]
    with ThreadPoolExecutor(len(begins) + 1) as pool:
        followers = [log.follow(begin) for begin in begins]
        tasks = [log.follow(begin) for begin in begins]
        read = [pool.submit(read_up_to, each, count) for each in followers]
        read_in_loop = pool.submit(lambda: asyncio.run(read_all_up_to(tasks, count)))
        for number in range(100, count):
            log.append(Record(b"k%d" % (number % 50 if number < count - 1 else 50), b"v" * 100)).durable.result()
            if number == 150:
                log.roll()
                cleaner.clean(log.directory.parent, "t-0")
        found = [each.result(WAIT_SECONDS) for each in read] + read_in_loop.result(WAIT_SECONDS)
    for follower in followers + tasks:
        follower.close()
    for begin, offsets in zip(begins + begins, found, strict=True):
        assert offsets == sorted(set(offsets), key=lambda offset: offset or 0)
        # A round may have removed records that a follower had not read, if their keys have newer records.
        assert set(offsets) <= set(range(begin, count))
        assert set(offsets) >= set(range(max(begin, 150), count))


def test_records_are_read_once_for_many_followers(log: Log) -> None:
    """The reads of the file do not grow with the followers."""
    followers = [log.follow(0) for _ in range(30)]
    log.append(Record(b"k", b"first")).durable.result()
    for follower in followers:
        assert len(follower.poll(WAIT_SECONDS)) == 1
    before = CountedFile.reads
    for number in range(10):
        log.append(Record(b"k", b"%d" % number)).durable.result()
        for follower in followers:
            assert [record.value for record in follower.poll(WAIT_SECONDS)] == [b"%d" % number]
    assert CountedFile.reads - before < 100
    for follower in followers:
        follower.close()


def test_follower_that_is_slow_loses_nothing_and_holds_nothing(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kept records are bounded; it reads the rest by itself, and then with the others again."""
    monkeypatch.setattr(broadcast, "MAX_KEPT_BYTES", 4_000)
    slow, *others = [log.follow(0) for _ in range(4)]
    for number in range(60):
        log.append(Record(b"%d" % number, b"v" * 400)).durable.result()
        for follower in others:
            assert [record.offset for record in follower.poll(WAIT_SECONDS)] == [number]
    (shared,) = log.reader._broadcasts.values()
    assert sum(kept.size for kept in shared._kept) <= 4_000
    assert read_up_to(slow, 60) == list(range(60))
    log.append(Record(b"k", b"v")).durable.result()
    for follower in (slow, *others):
        assert [record.offset for record in follower.poll(WAIT_SECONDS)] == [60]
        follower.close()


@pytest.mark.parametrize("regrown", [0, 1, 20], ids=["shorter", "still-shorter", "longer"])
def test_followers_beyond_a_cut_get_an_error_and_others_go_on(log: Log, regrown: int) -> None:
    """A follower that has read cut records must not read on, even if those offsets were written again."""
    woken, untouched = [log.follow(0) for _ in range(4)], [log.follow(0) for _ in range(2)]
    log.append([Record(b"k", b"%d" % number) for number in range(4)])
    log.flush()
    for follower in untouched:
        assert read_up_to(follower, 4) == list(range(4))
    log.append([Record(b"k", b"%d" % number) for number in range(4, 10)])
    log.flush()
    for follower in woken:
        assert read_up_to(follower, 10) == list(range(10))
    log.truncate_to(4)
    for number in range(regrown):
        log.append(Record(b"k", b"new %d" % number)).durable.result()
    for follower in woken:
        with pytest.raises(LogTruncatedError):
            follower.poll(WAIT_SECONDS)
    for follower in untouched:
        assert read_up_to(follower, 4 + regrown) == list(range(4, 4 + regrown))
    for follower in woken + untouched:
        follower.close()


def test_followers_of_committed_records_see_no_others(log: Log) -> None:
    """Aborted records and markers are skipped; another follower reads columns at the same time."""
    committed = [log.follow(0, isolation="read_committed") for _ in range(3)]
    everything = [log.follow(0) for _ in range(2)]
    columns = log.follow(0)
    producer = log.producer("writer")
    for number in range(6):
        producer.begin()
        producer.append(Record(b"k", b"%d" % number))
        (producer.abort if number % 2 else producer.commit)().result()
    end = log.log_end_offset
    for follower in committed:
        values: list[bytes | None] = []
        while follower.next_offset < end - 3:
            values += [record.value for record in follower.poll(0.05)]
        assert values == [b"0", b"2", b"4"]
    for follower in everything:
        assert read_up_to(follower, end - 1) == list(range(0, 2 * 6, 2))
    rows = 0
    while rows < 6:
        found = columns.poll_columns(WAIT_SECONDS)
        rows += 0 if found is None else len(found)
    for follower in (*committed, *everything, columns):
        follower.close()


def test_interrupt_while_the_thread_is_started_lets_no_follower_starve(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has started or not: it neither reads for them nor is waited for."""
    real = threading.Thread.start
    for starts in (False, True):

        def interrupted(thread: threading.Thread, *, starts: bool = starts) -> None:
            if starts:
                real(thread)
            raise KeyboardInterrupt

        first = log.follow(0)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                log.follow(0)
        end = log.append(Record(b"k", b"v")).last_offset
        log.flush()
        assert read_up_to(first, end + 1)[-1] == end
        assert not threads()
        first.close()


def test_thread_is_there_for_several_followers_only(log: Log) -> None:
    """It ends when one follower is left, whether the others were closed or dropped, and with the log."""
    first = log.follow(0)
    assert not threads()
    second, third = log.follow(0), log.follow(0)
    assert len(threads()) == 1
    second.close()
    del third
    log.append(Record(b"k", b"v")).durable.result()
    wait_until(lambda: not threads())
    assert [record.offset for record in first.poll(WAIT_SECONDS)] == [0]
    again = log.follow(0)
    assert len(threads()) == 1
    log.append(Record(b"k", b"v")).durable.result()
    assert read_up_to(first, 2) == [1]
    assert read_up_to(again, 2) == [0, 1]
    log.close()
    assert not threads()
    assert list(again) == []
