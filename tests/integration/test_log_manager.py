"""`LogManager` on real files: opened, written to, closed in order or not, opened again."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions, check_all
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.base.clock import Clock
from cleaner.base.model import TopicPartition
from cleaner.cleaning.round import warm_up
from cleaner.errors import (
    ConfigError,
    CorruptBatchError,
    CorruptIndexError,
    ForkedError,
    LogClosedError,
    LogDirLockedError,
    LogWriteError,
    OutOfThreadsError,
    TruncationRefusedError,
    UnknownTopicError,
    UnsupportedPlatformError,
    UsageError,
)
from cleaner.log import interrupted, partitions
from cleaner.log.flusher import LogFlusher
from cleaner.log.manager import LogManager
from cleaner.log.reader import open_reader
from cleaner.log.record import Record
from cleaner.log.transactional_ids import FILE_NAME as TRANSACTIONAL_IDS
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import LogDir, OffsetKind
from cleaner.storage.segment.names import CLEAN_SHUTDOWN, CLEANER_CHECKPOINT
from tests.forked import killed_beside_its_fork
from tests.scratch import scratch_directory
from tests.support.manual_clock import ManualClock
from tests.support.metadata_builder import topic_record, write_segment
from tests.support.no_threads import start_no_more_threads

WAIT_SECONDS = 20.0
QUICK = {
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.cleaner.backoff.ms": "100",
    "cleaner.pipeline.threads": "1",
}
PRICES = TopicPartition("prices", 0)
_OF_A_SEGMENT = (".log", ".index", ".timeindex")


def _manager(
    root: Path, settings: Mapping[str, str] | None = None, *, cleaner: bool = False, clock: Clock | None = None
) -> LogManager:
    return LogManager(root, {**QUICK, **(settings or {})}, create=True, cleaner=cleaner, clock=clock)


def _put(manager: LogManager, count: int, topic: str = "prices", keys: int = 10) -> None:
    log = manager.log(topic)
    for number in range(count):
        log.append([Record(f"k{number % keys}".encode(), f"value {number}".encode())])


def _active_base(root: Path) -> int:
    return list_segments(FileSystem(), root / "prices-0")[-1].base_offset


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_batch_that_unpacks_to_more_than_the_settings_allow_is_not_unpacked(tmp_path: Path) -> None:
    """Damage, or an attack; the limit is the cleaner's. A reader in another process sets its own limit."""
    settings = {"compression.type": "zstd", "cleaner.max.decompressed.batch.bytes": "50000"}
    with _manager(tmp_path, settings) as manager:
        manager.create_topic("prices")
        log = manager.log("prices")
        log.append([Record(b"k", b"v" * 10_000, timestamp_ms=1)] * 4)
        log.flush()
        assert len(list(log.read(0))) == 4
        log.append([Record(b"k", b"v" * 10_000, timestamp_ms=2)] * 6)
        log.flush()
        for attempt in (lambda: list(log.read(4)), lambda: log.offset_for_time(2), lambda: log.latest().to_dict()):
            with pytest.raises(CorruptBatchError):
                attempt()
    with open_reader(tmp_path, "prices") as reader:
        assert len(list(reader.read(0))) == 10
    limited = open_reader(tmp_path, "prices", max_decompressed_batch_bytes=50_000)
    with limited as reader, pytest.raises(CorruptBatchError):
        list(reader.read(4))


def test_closed_in_order_is_opened_without_recovery(tmp_path: Path) -> None:
    """R-106, R-112: it has the marker while no process has it open, and the checkpoints name the logs' ends."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices", 2)
        _put(manager, 20)
        assert not LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    log_dir = LogDir(FileSystem(), tmp_path)
    assert log_dir.high_watermarks == {PRICES: 20, TopicPartition("prices", 1): 0}
    assert log_dir.recovery_points[PRICES] == 20
    with _manager(tmp_path) as manager:
        assert manager.log("prices").log_end_offset == 20
        assert manager.log("prices").leader_epoch == 0


def test_killed_process_loses_nothing_that_was_durable(tmp_path: Path) -> None:
    """R-640: its writes are in the page cache, maybe more than were answered; an epoch begins."""
    script = f"""
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
manager = LogManager({str(tmp_path)!r}, {{"flush.messages": "1"}}, create=True, cleaner=False)
manager.create_topic("prices")
log = manager.log("prices")
while True:
    print(log.append([Record(b"k", b"v" * 100)]).base_offset, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(200)]
        child.send_signal(signal.SIGKILL)
    assert not LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    with _manager(tmp_path) as manager:
        log = manager.log("prices")
        assert log.log_end_offset > seen[-1]
        assert log.leader_epoch == 1
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_only_a_controller_begins_leader_epochs_of_a_topic_in_its_cluster(tmp_path: Path) -> None:
    """However often its writer is killed: a broker would forget them, and a consumer that committed one would wait."""
    with _manager(tmp_path) as manager:
        known = manager.create_topic("prices").topic_id
        manager.create_topic("orders")
    assert known is not None
    write_segment(tmp_path / "__cluster_metadata-0", 0, [[topic_record("prices", known)]])
    for life in range(3):
        (tmp_path / ".kafka_cleanshutdown").unlink()
        with _manager(tmp_path) as manager:
            for topic in ("prices", "orders"):
                manager.log(topic).append([Record(b"k", b"v")]).durable.result()
            assert [manager.log(topic).leader_epoch for topic in ("prices", "orders")] == [0, life + 1]
    with _manager(tmp_path) as manager:
        log = manager.log("prices")
        log.truncate_to(2)  # readers notice a cut by its epoch
        assert log.leader_epoch == 1


def test_log_dir_is_for_one_writer_at_a_time(tmp_path: Path) -> None:
    """In this process as in another."""
    with _manager(tmp_path), pytest.raises(LogDirLockedError, match="writer"):
        _manager(tmp_path)
    _manager(tmp_path).close()


def test_missing_directory_is_created_only_on_request(tmp_path: Path) -> None:
    """A typing mistake makes no log dir."""
    with pytest.raises(UsageError, match="no such directory"):
        LogManager(tmp_path / "data", cleaner=False)
    assert not (tmp_path / "data").exists()
    LogManager(tmp_path / "data", create=True, cleaner=False).close()


def test_writing_off_linux_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes locks that only Linux has; nothing is touched."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UnsupportedPlatformError, match="darwin"):
        LogManager(tmp_path / "data", create=True)
    assert not (tmp_path / "data").exists()


def test_several_log_dirs_share_the_partitions(tmp_path: Path) -> None:
    """Each is locked, marked and noted by itself."""
    roots = [tmp_path / "1", tmp_path / "2"]
    with LogManager(roots, QUICK, create=True, cleaner=False) as manager:
        manager.create_topic("prices", 4)
        for number in range(4):
            manager.log("prices", number).append([Record(b"k", b"v")])
    for root in roots:
        assert LogDir(FileSystem(), root).has_clean_shutdown_marker()
        assert list(LogDir(FileSystem(), root).high_watermarks.values()) == [1, 1]
    with LogManager(roots, QUICK, cleaner=False) as manager:
        assert [log.log_end_offset for log in manager.logs().values()] == [1, 1, 1, 1]


def test_log_that_cannot_be_loaded_keeps_no_other_from_being_served(tmp_path: Path) -> None:
    """R-112: a caller that asks for it gets the error; the log dir gets no marker; once repaired it is recovered."""
    with _manager(tmp_path) as manager:
        for topic in ("prices", "stock"):
            manager.create_topic(topic)
            _put(manager, 5, topic)
    path = tmp_path / "stock-0" / f"{0:020d}.log"
    sound = path.read_bytes()
    path.write_bytes(sound[:100] + b"\xff" + sound[101:])
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    manager = _manager(tmp_path)
    assert list(manager.failed) == [TopicPartition("stock", 0)]
    with pytest.raises(TruncationRefusedError, match=r"stock-0.*on disk up to offset 5"):
        manager.log("stock")
    _put(manager, 1)
    manager.close()
    assert not LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    path.write_bytes(sound)
    with _manager(tmp_path) as manager:
        assert (manager.log("stock").log_end_offset, manager.log("prices").log_end_offset) == (5, 6)
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_time_index_that_cannot_be_closed_leaves_no_marker(tmp_path: Path) -> None:
    """R-310: its last entry lies above the log, so no later one can follow; the other logs are closed in order."""
    clock = ManualClock()
    with _manager(tmp_path, clock=clock) as manager:
        for topic in ("prices", "stock"):
            manager.create_topic(topic)
            _put(manager, 5, topic)
    index = tmp_path / "stock-0" / f"{0:020d}.timeindex"
    index.write_bytes(index.read_bytes()[:-4] + (9999).to_bytes(4, "big"))
    clock.move_on(1)
    manager = _manager(tmp_path, clock=clock)
    for topic in ("prices", "stock"):
        _put(manager, 1, topic)
    with pytest.raises(CorruptIndexError, match="cannot be closed") as caught:
        manager.close()
    assert caught.value.path == index
    assert not LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    assert (tmp_path / "prices-0" / f"{6:020d}.snapshot").exists()
    with _manager(tmp_path, clock=clock) as manager:
        assert manager.log("stock").log_end_offset == 6
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    assert int.from_bytes(index.read_bytes()[-4:], "big") == 5


def test_log_dir_with_zeros_behind_its_files_is_opened(tmp_path: Path) -> None:
    """D-02: left beside the marker by a power cut after a stop of Kafka up to 4.3; a close of the log cuts them off."""
    with _manager(tmp_path) as manager:
        for topic in ("prices", "stock"):
            manager.create_topic(topic)
            _put(manager, 5, topic)
    directory = tmp_path / "stock-0"
    sizes = {path: path.stat().st_size for path in directory.glob(f"{0:020d}.*index")}
    for path in (*sizes, tmp_path / "prices-0" / f"{0:020d}.log"):
        with path.open("r+b") as file:
            file.truncate(1 << 20)
    with _manager(tmp_path) as manager:
        assert not manager.failed
        assert {path: path.stat().st_size for path in sizes} == sizes
        for topic in ("prices", "stock"):
            _put(manager, 1, topic)
            assert manager.log(topic).log_end_offset == 6
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    assert check_all([tmp_path], Sources(), CallContext.of(), CheckOptions()).is_sound


def test_damage_of_what_was_on_disk_is_cut_only_when_allowed(tmp_path: Path) -> None:
    """Kafka cuts unasked; here the owner decides about records that were known to be on disk."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        _put(manager, 5)
    path = tmp_path / "prices-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-10])
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    manager = _manager(tmp_path)
    with pytest.raises(TruncationRefusedError):
        manager.log("prices")
    manager.close()
    with LogManager(tmp_path, QUICK, cleaner=False, allow_truncate=True) as manager:
        assert manager.log("prices").log_end_offset == 4


@pytest.mark.parametrize("is_closed", [True, False])
def test_log_start_beyond_the_log_deletes_records_only_when_allowed(tmp_path: Path, *, is_closed: bool) -> None:
    """R-641: Kafka deletes them unasked; one damaged line of a file without a checksum would be enough."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        _put(manager, 5)
    LogDir(FileSystem(), tmp_path).put(OffsetKind.LOG_START, PRICES, 70)
    if not is_closed:
        (tmp_path / CLEAN_SHUTDOWN).unlink()
    manager = _manager(tmp_path)
    with pytest.raises(TruncationRefusedError, match="ends at offset 5, below its start, 70"):
        manager.log("prices")
    manager.close()
    LogDir(FileSystem(), tmp_path).put(OffsetKind.LOG_START, PRICES, 2)
    with _manager(tmp_path) as manager:
        assert (manager.log("prices").log_start_offset, manager.log("prices").log_end_offset) == (2, 5)
    LogDir(FileSystem(), tmp_path).put(OffsetKind.LOG_START, PRICES, 70)
    with LogManager(tmp_path, QUICK, cleaner=False, allow_truncate=True) as manager:
        assert manager.log("prices").log_end_offset == 70


def test_unknown_topic_and_partition_are_errors_with_their_names(tmp_path: Path) -> None:
    """Of our tree."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        for topic, partition in (("stock", 0), ("prices", 1)):
            with pytest.raises(UnknownTopicError, match=topic):
                manager.log(topic, partition)


def test_closed_manager_takes_nothing_more(tmp_path: Path) -> None:
    """Nor do its logs; closing twice is fine."""
    manager = _manager(tmp_path)
    manager.create_topic("prices")
    log = manager.log("prices")
    manager.close()
    manager.close()
    for call in (
        lambda: manager.log("prices"),
        lambda: manager.create_topic("stock"),
        manager.topics,
        lambda: log.append([Record(b"k", b"v")]),
    ):
        with pytest.raises(LogClosedError):
            call()


def test_threads_that_close_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    """The second one must not release the lock of a directory that the first one still writes to."""
    manager = LogManager(tmp_path, QUICK, create=True)
    manager.create_topic("prices", 8)
    for log in manager.logs().values():
        log.append(Record(b"k", b"v"))
    errors: list[BaseException] = []

    def close() -> None:
        try:
            manager.close()
            assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
        except BaseException as error:  # noqa: BLE001 - reported below
            errors.append(error)

    closing = [threading.Thread(target=close) for _ in range(3)]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(WAIT_SECONDS)
    assert errors == []
    assert not any(thread.is_alive() for thread in closing)


def test_callback_may_close_the_manager(tmp_path: Path) -> None:
    """It runs in one of the threads that the close ends."""
    manager, closed = _manager(tmp_path), threading.Event()
    manager.create_topic("prices")

    def close(_: object) -> None:
        manager.close()
        closed.set()

    manager.log("prices").append(Record(b"k", b"v")).durable.add_done_callback(close)
    assert closed.wait(WAIT_SECONDS)
    manager.close()
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_signal_handler_in_the_middle_of_a_call_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for itself; what it interrupted goes on."""
    refused: list[str] = []
    real = FileSystem.make_dir

    def handle(*_: object) -> None:
        log = manager.log("prices")
        calls = (manager.close, manager.abandon, log.close, log.abandon, lambda: manager.create_topic("more"))
        for call in calls:
            with contextlib.suppress(LogWriteError):
                call()
                refused.append(repr(call))

    def make_dir(self: FileSystem, path: Path, mode: int) -> None:
        real(self, path, mode)
        signal.raise_signal(signal.SIGUSR1)

    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        before = signal.signal(signal.SIGUSR1, handle)
        try:
            monkeypatch.setattr(FileSystem, "make_dir", make_dir)
            manager.create_topic("stock")
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert (refused, manager.topics()) == ([], ["prices", "stock"])
        manager.log("stock").append(Record(b"k", b"v")).durable.result()
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_signal_handler_that_holds_a_lock_does_not_wait_for_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that flushes needs that lock."""
    refused: list[LogWriteError] = []

    def handle(*_: object) -> None:
        for call in (log.flush, appended.durable.result, appended.durable.exception):
            with pytest.raises(LogWriteError) as error:
                call()
            refused.append(error.value)

    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        log = manager.log("prices")
        appended = log.append(Record(b"k", b"v"))
        before = signal.signal(signal.SIGUSR1, handle)
        try:
            log._writer.under_lock(lambda _: signal.raise_signal(signal.SIGUSR1))
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert len(refused) == 3
        appended.durable.result()


def test_signal_handler_may_close_while_a_follower_waits(tmp_path: Path) -> None:
    """The way in which a service ends that does nothing but follow."""
    manager = _manager(tmp_path)
    manager.create_topic("prices")
    log = manager.log("prices")
    log.append(Record(b"k", b"v")).durable.result()
    before = signal.signal(signal.SIGALRM, lambda *_: manager.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        assert [record.value for record in log.follow(0)] == [b"v"]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_logs_are_opened_and_closed_though_there_can_be_no_more_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have used up its threads."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices", 3)

    start_no_more_threads(monkeypatch)
    with pytest.raises(OutOfThreadsError, match="no thread is left"):
        LogManager(tmp_path, cleaner=False)
    with LogManager(tmp_path, {"num.recovery.threads.per.data.dir": 2}, cleaner=False, tasks=False) as manager:
        assert (len(manager.logs()), manager.failed) == (3, {})
        manager.log("prices").append(Record(b"k", b"v")).durable.result(WAIT_SECONDS)
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_forked_child_can_use_nothing_and_harms_nothing(tmp_path: Path) -> None:
    """Not even by leaving the block it was forked in: lock, files and threads are the parent's."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        log = manager.log("prices")
        child = os.fork()
        if child == 0:
            raised = 0
            for call in (lambda: log.append([Record(b"k", b"v")]), lambda: manager.log("prices"), manager.close):
                try:
                    call()
                except ForkedError:
                    raised += 1
            manager.__exit__(None, None, None)
            os._exit(0 if raised == 3 else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert log.append([Record(b"k", b"v")]).base_offset == 0
        with pytest.raises(LogDirLockedError):
            _manager(tmp_path)
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_log_dir_of_a_killed_writer_can_be_opened_though_its_fork_lives(tmp_path: Path) -> None:
    """A forked child's copies of the writer's locks and files keep no process out."""

    def write() -> LogManager:
        manager = _manager(tmp_path)
        manager.create_topic("prices")
        manager.log("prices").append([Record(b"k", b"v")]).durable.result()
        return manager

    with killed_beside_its_fork(write), _manager(tmp_path) as manager:
        log = manager.log("prices")
        log.append([Record(b"k", b"w")]).durable.result()
        with open_reader(tmp_path, "prices") as reader:
            assert log.log_end_offset == reader.high_watermark == 2


def test_topic_can_be_deleted_and_created_again(tmp_path: Path) -> None:
    """Its logs are closed, its checkpoint lines removed, its files later; the new topic begins at 0."""
    clock = ManualClock()
    with _manager(tmp_path, clock=clock) as manager:
        manager.create_topic("prices", settings={"file.delete.delay.ms": "1000"})
        _put(manager, 5)
        log = manager.log("prices")
        log.flush()
        manager.upkeep.note_all()
        manager.delete_topic("prices")
        with pytest.raises(LogClosedError):
            log.append([Record(b"k", b"v")])
        assert manager.topics() == []
        assert LogDir(FileSystem(), tmp_path).high_watermarks == {}
        manager.create_topic("prices")
        assert manager.log("prices").log_end_offset == 0
        waiting = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
        assert len(waiting) == 1
        clock.move_on(1)
        manager.wake()
        _wait_until(lambda: not waiting[0].exists())


@pytest.mark.kernels
@pytest.mark.parametrize("moment", [3, 12, 30])
def test_round_of_a_topic_that_is_made_again_says_nothing_of_the_new_one(tmp_path: Path, moment: int) -> None:
    """The checkpoint knows a log by its name: the old log's line would spare the new one's records from cleaning."""
    settings = {"internal.segment.bytes": "2000", "cleanup.policy": "compact"}
    with LogManager(tmp_path, settings, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("prices")
        log = manager.log("prices")
        for number in range(200):
            log.append([Record(b"k%d" % (number % 5), b"v" * 50)])
        log.roll()
        log.flush()
        manager.upkeep.note_all()
        looks = 0

        def made_again() -> None:
            nonlocal looks
            looks += 1
            if looks == moment:
                manager.delete_topic("prices")
                manager.create_topic("prices")

        context = CallContext(check_done=made_again)
        (report,) = clean_log_dir(tmp_path, ["prices-0"], Sources(config=settings), CleanOptions(), context)
        assert looks > moment
        assert isinstance(report, CleanReport)
        assert LogDir(FileSystem(), tmp_path).cleaner_offsets.get(TopicPartition("prices", 0), 0) == 0


def test_deleted_topic_found_at_the_start_is_removed_later(tmp_path: Path) -> None:
    """R-105: its process may have ended before the delay had."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        manager.delete_topic("prices")
    clock = ManualClock()
    with _manager(tmp_path, clock=clock) as manager:
        (waiting,) = [path for path in tmp_path.iterdir() if path.name.endswith("-delete")]
        clock.move_on(60)
        manager.wake()
        _wait_until(lambda: not waiting.exists())


def test_producer_of_a_deleted_topic_writes_nothing_into_the_one_made_again(tmp_path: Path) -> None:
    """Its transactional ids are a file of the directory, which is the other topic's now."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("prices")
        log = manager.log("prices")
        late = log.producer("payments", transaction_timeout_ms=1)
        late.begin()
        late.append([Record(b"k", b"v")])
        manager.delete_topic("prices")
        manager.create_topic("prices")
        with pytest.raises(LogClosedError):
            late.end_if_late(1 << 60)
        with pytest.raises(LogClosedError):
            log.producer("payments")
        assert not (tmp_path / "prices-0" / TRANSACTIONAL_IDS).exists()


def test_altered_settings_count_at_once(tmp_path: Path) -> None:
    """From the next append on."""
    with _manager(tmp_path, {"segment.bytes": "1000000"}) as manager:
        manager.create_topic("prices")
        _put(manager, 30)
        assert _active_base(tmp_path) == 0
        manager.alter_topic("prices", {"segment.bytes": "500"})
        _put(manager, 30)
        assert _active_base(tmp_path) > 30
        manager.alter_topic("prices", {"segment.bytes": None})
        assert manager.topic_config("prices").segment_bytes == 1_000_000


def test_settings_written_by_another_process_are_applied(tmp_path: Path) -> None:
    """Such as `cleaner topics alter` in another process."""
    clock = ManualClock()  # years before the file was written, so that the file does not look half written
    with LogManager(tmp_path, QUICK, create=True, cleaner=False, tasks=False, clock=clock) as manager:
        manager.create_topic("prices")
        path = tmp_path / "cleaner-topics.properties"
        path.write_text(path.read_text() + "prices.segment.bytes=500\n")
        manager.upkeep.look_at_settings()
        assert manager.topic_config("prices").segment_bytes == 500
        _put(manager, 30)
        assert _active_base(tmp_path) > 0


def test_topic_with_unreadable_settings_gets_no_partitions(tmp_path: Path) -> None:
    """Refused before a directory is made, which nobody could then serve."""
    path = tmp_path / "logs"
    with LogManager(path, create=True, cleaner=False) as manager:
        manager.create_topic("prices", 1)
    (path / "cleaner-topics.properties").write_text("prices.segment.ms=soon\n")
    with LogManager(path, cleaner=False) as manager, pytest.raises(ConfigError, match=r"segment\.ms=soon"):
        manager.add_partitions("prices", 2)
    assert [found.name for found in path.iterdir() if found.is_dir()] == [str(PRICES)]


def test_policy_of_a_topic_is_that_of_the_manager_unless_it_says_otherwise(tmp_path: Path) -> None:
    """And is written to the file, for a cleaner in another process."""
    with _manager(tmp_path, {"cleanup.policy": "compact"}) as manager:
        assert manager.create_topic("a").settings == {"cleanup.policy": "compact"}
        assert manager.create_topic("b", settings={"cleanup.policy": "delete"}).settings == {"cleanup.policy": "delete"}


def test_flush_ms_makes_what_was_appended_durable_by_itself(tmp_path: Path) -> None:
    """Unlike in Kafka, whose scheduler never looks with its default interval."""
    clock = ManualClock()
    with _manager(tmp_path, {"flush.ms": "100"}, clock=clock) as manager:
        manager.create_topic("prices")
        _put(manager, 3)
        assert manager.log("prices").high_watermark == 0
        clock.move_on(0.1)
        manager.wake()
        _wait_until(lambda: manager.log("prices").high_watermark == 3)


def test_checkpoints_follow_what_is_flushed_and_never_more(tmp_path: Path) -> None:
    """R-116, R-117: the high watermark of a log without replicas is the flushed offset."""
    with _manager(tmp_path) as manager:
        manager.create_topic("prices")
        _put(manager, 3)
        manager.log("prices").flush()
        _put(manager, 4)
        manager.upkeep.note_all()
        log_dir = LogDir(FileSystem(), tmp_path)
        assert (log_dir.high_watermarks[PRICES], log_dir.recovery_points[PRICES]) == (3, 3)


def test_interrupt_while_a_log_is_opened_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the log's first force, before anybody else could close the log."""

    def interrupted(*_args: object, **_named: object) -> LogFlusher:
        raise KeyboardInterrupt

    def open_files() -> list[str]:
        found = []
        for entry in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                found.append(entry.readlink())
        return [path.name for path in found if path.is_relative_to(tmp_path) and path.suffix in _OF_A_SEGMENT]

    with _manager(tmp_path) as manager:
        with monkeypatch.context() as patch:
            patch.setattr(partitions, "LogFlusher", interrupted)
            with pytest.raises(KeyboardInterrupt) as kept:  # and with it all frames that the interrupt has left
                manager.create_topic("prices")
            assert open_files() == []
            assert kept.tb is not None
        manager.create_topic("orders")
        assert len(open_files()) == 3


_EVERY_CALL = """
import sys, threading

from cleaner import LogManager, Record
from cleaner.kernels.compile import kernel_statistics

with LogManager(sys.argv[1], create=True, cleaner=False, tasks=False) as manager:
    manager.create_topic("prices", 2)
    modules, kernels = set(sys.modules), kernel_statistics()
    threads = set(threading.enumerate())
    log = manager.log("prices")
    log.append(Record(b"k", b"v", headers=[("h", b"x")])).durable.result()
    durable = log.append([Record(b"k", b"v")] * 3).durable
    durable.add_done_callback(lambda _: None)
    durable.result(1)
    log.flush()
    log.roll()
    list(log.read(0)), log.latest().to_dict(), log.offset_for_time(0)
    with log.follow(0) as follower:
        follower.poll(0.1)
    producer = log.producer("one")
    with producer.transaction():
        producer.append(Record(b"k", b"v"))
    with manager.producer("many").transaction() as transaction:
        transaction.append(log, Record(b"k", b"v"))
    log.offsets("group").commit(1)
    with log.table() as table:
        table.get(b"k")
    log.truncate_to(2)
    manager.delete_topic("prices")
    assert set(threading.enumerate()) <= threads
modules, loaded = set(sys.modules) - modules, kernel_statistics().loaded - kernels.loaded
assert (modules, loaded, kernel_statistics().compiled) == (set(), 0, kernels.compiled), (modules, loaded)
"""


def test_open_manager_loads_nothing_and_starts_no_thread_of_its_own_any_more(tmp_path: Path) -> None:
    """An interrupt in the middle of either would leave it in pieces, and what waits for it waits forever."""
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_CALL, tmp_path / "logs"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("has_threads", [True, False])
def test_what_cannot_be_loaded_is_an_error_of_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_threads: bool
) -> None:
    """No thread may be left at all: the caller loads then."""

    def refused() -> None:
        raise MemoryError("no memory for a kernel")

    monkeypatch.setattr(warm_up, "warm_up", refused)
    if not has_threads:
        start_no_more_threads(monkeypatch)
    interrupted.load_all.cache_clear()
    with pytest.raises(MemoryError, match="no memory for a kernel"):
        _manager(tmp_path)
    monkeypatch.undo()
    _manager(tmp_path).close()


def test_retention_is_the_writers_task(tmp_path: Path) -> None:
    """The active segment goes too (R-913); `.deleted` files go after their delay."""
    clock = ManualClock()
    with _manager(tmp_path, {"file.delete.delay.ms": "1000"}, clock=clock) as manager:
        manager.create_topic("prices", settings={"cleanup.policy": "delete", "retention.ms": "5000"})
        _put(manager, 5)
        clock.move_on(6)
        manager.upkeep.retain()
        log = manager.log("prices")
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
        directory = tmp_path / "prices-0"
        assert any(path.name.endswith(".deleted") for path in directory.iterdir())
        clock.move_on(1)
        manager.wake()
        _wait_until(lambda: not any(path.name.endswith(".deleted") for path in directory.iterdir()))
    with _manager(tmp_path) as manager:
        assert (manager.log("prices").log_start_offset, manager.log("prices").log_end_offset) == (5, 5)


def test_files_that_a_failed_retention_left_go_with_the_next_one(tmp_path: Path) -> None:
    """Nothing need expire for that; files that wait already are not asked for twice."""
    clock = ManualClock()
    with _manager(tmp_path, {"file.delete.delay.ms": "1000"}, clock=clock) as manager:
        manager.create_topic("prices", settings={"cleanup.policy": "delete", "retention.ms": "-1"})
        left = tmp_path / "prices-0" / f"{0:020d}.log.deleted"
        left.touch()
        for _ in range(2):
            manager.upkeep.retain()
        clock.move_on(1)
        manager.wake()
        _wait_until(lambda: not left.exists())


def test_cleaner_in_process_compacts_while_the_writer_runs(tmp_path: Path) -> None:
    """By the protocol of two processes; the last value of every key and the head stay."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    with _manager(tmp_path, cleaner=True) as manager:
        manager.create_topic("prices", settings=settings)
        log = manager.log("prices")
        for _ in range(5):
            _put(manager, 40, keys=4)
            log.roll()
        manager.upkeep.note_all()
        assert manager.cleaner is not None
        manager.cleaner.wake()
        _wait_until(lambda: LogDir(FileSystem(), tmp_path).cleaner_offsets.get(PRICES) == 200)
        _put(manager, 3)
        assert log.log_end_offset == 203
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()
    segments = list_segments(FileSystem(), tmp_path / "prices-0")
    assert sum(segment.size for segment in segments) < 1500
    assert "prices 0 200" in (tmp_path / CLEANER_CHECKPOINT).read_text()


def test_cleaner_in_process_works_while_records_come_and_are_read(tmp_path: Path) -> None:
    """Round after round: no record of the head is missing, and the last value of every key is what was written last."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "4000"}
    often = {"replica.high.watermark.checkpoint.interval.ms": "20", "log.cleaner.backoff.ms": "20"}
    with _manager(tmp_path, often, cleaner=True) as manager:
        manager.create_topic("prices", settings=settings)
        log = manager.log("prices")
        ends: list[int] = []

        def has_cleaned_again() -> bool:
            end = LogDir(FileSystem(), tmp_path).cleaner_offsets.get(PRICES, 0)
            if end > (ends[-1] if ends else 0):
                ends.append(end)
            return len(ends) >= 3

        written: dict[bytes, bytes] = {}
        with log.follow(0, timeout_seconds=WAIT_SECONDS) as follower:
            followed: dict[bytes | None, bytes | None] = {}
            deadline = time.monotonic() + 3 * WAIT_SECONDS  # rounds and appends share what processor there is
            number = 0
            while not has_cleaned_again():
                assert time.monotonic() < deadline
                # A writer that is quicker than rounds on this disk would make each round longer than the one before.
                is_far_ahead = number - (ends[-1] if ends else 0) > 3000
                for _ in range(1 if is_far_ahead else 100):
                    key, value = f"k{number % 7}".encode(), f"value {number}".encode()
                    log.append([Record(key, value)])
                    written[key], number = value, number + 1
                log.flush()
                followed.update((record.key, record.value) for record in follower.poll())
                if is_far_ahead:
                    threading.Event().wait(0.01)
            while follower.next_offset < log.log_end_offset:
                followed.update((record.key, record.value) for record in follower.poll())
        assert followed == written
        with log.latest() as latest:
            assert (latest.to_dict(), latest.next_offset) == (written, number)
        read = [offset for columns in log.columns(0) for offset in columns.offsets.tolist()]
        assert read == sorted(set(read))
        # Rounds go on, but never into the active segment.
        head = list_segments(FileSystem(), tmp_path / "prices-0")[-1].base_offset
        assert set(range(head, number)) <= set(read)
        assert len(read) < number
    assert LogDir(FileSystem(), tmp_path).has_clean_shutdown_marker()


def test_events_go_to_the_logger_given_and_numbers_to_the_registry(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And nowhere else: nothing is configured."""
    counted: dict[str, float] = {}

    class Registry:
        def add(self, name: str, amount: float, **_labels: str) -> None:
            counted[name] = counted.get(name, 0) + amount

        def put(self, name: str, value: float, **_labels: str) -> None:
            counted[name] = value

    before = list(logging.getLogger().handlers), signal.getsignal(signal.SIGTERM)
    logger = logging.getLogger("mine")
    with (
        caplog.at_level(logging.INFO, "mine"),
        LogManager(tmp_path, QUICK, create=True, cleaner=False, registry=Registry(), logger=logger) as manager,
    ):
        manager.create_topic("prices")
        _put(manager, 3)
        manager.log("prices").flush()
    assert any("log dirs are open" in record.message for record in caplog.records)
    assert counted["cleaner_log_flushes_total"] == 1
    assert counted["cleaner_log_open_logs"] == 1
    assert (list(logging.getLogger().handlers), signal.getsignal(signal.SIGTERM)) == before


def test_state_of_a_killed_process_s_cleaner_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next one; not that of a living one."""
    script = f"""
import os, signal
from cleaner import LogManager
manager = LogManager({str(tmp_path / "killed")!r}, create=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with scratch_directory() as temporary:  # its name is short: there is a socket in it
        monkeypatch.setattr(tempfile, "tempdir", str(temporary))
        environment = {**os.environ, "TMPDIR": str(temporary)}
        killed = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        (left,) = temporary.glob("cleaner-*")
        with _manager(tmp_path / "one", cleaner=True):
            (one,) = temporary.glob("cleaner-*")
            assert one != left
            with _manager(tmp_path / "other", cleaner=True):
                assert len(list(temporary.glob("cleaner-*"))) == 2
            assert list(temporary.glob("cleaner-*")) == [one]
        assert list(temporary.glob("cleaner-*")) == []
