"""Retention on a disk that forgets: a log begins at its old or its new start, and has no hole from there on."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.retention_pass import RetentionPass
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import LOCK
from tests.support.batch_builder import Producer
from tests.support.batch_reader import batch_info, split_batches
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import START_MS, ManualClock

SEED = 20_28
STATES_PER_POINT = 12
FS = FileSystem()
END = 50
# By time the first three segments of each are removed; `inside` has its own start, in the second one that stays.
TOPICS = {
    TopicPartition("plain", 0): TopicConfig(cleanup_policy=frozenset(("delete",)), retention_ms=2_500),
    TopicPartition("inside", 0): TopicConfig(cleanup_policy=frozenset(("compact", "delete")), retention_ms=2_500),
}
STARTS_BEFORE = {TopicPartition("plain", 0): {0}, TopicPartition("inside", 0): {5}}
STARTS_AFTER = {TopicPartition("plain", 0): 30, TopicPartition("inside", 0): 30}
STEPS = (
    *("start: file", "start: name"),
    *("plain epochs: file", "plain epochs: name", "plain logs: names"),
    *("inside epochs: file", "inside epochs: name", "inside logs: names"),
    *("no start: file", "no start: name"),
)


def _log(partition: TopicPartition) -> LogBuilder:
    """Segments of ten offsets, a second apart; each begins a leader epoch; a producer and a transaction go through."""
    log = LogBuilder(partition, index_interval_bytes=1)
    for segment in range(END // 10):
        if segment:
            log.roll()
        log.leader_epoch = segment
        time = START_MS - 1_000 * (END // 10 - segment)
        for number in range(9):
            log.append((f"k{number}", f"v{segment}"), timestamp_ms=time, producer=Producer(5, 0, 9 * segment + number))
        log.append(("t", f"v{segment}"), timestamp_ms=time)
    return log


def _write(root: Path) -> None:
    inside = TopicPartition("inside", 0)
    write_log_dir(root, *map(_log, TOPICS), log_start_offsets={inside: 5})
    (root / LOCK).touch()


def _run(root: Path, fs: FileSystem, reported: Callable[[], None] = lambda: None) -> RetentionPass:
    """Make a pass over the log dir, and remove the `.deleted` files."""
    clock = ManualClock()
    logs = [
        LogStatus(tp, str(root), root / str(tp), topic=topic, is_policy_trusted=True, has_segments_to_delete=True)
        for tp, topic in TOPICS.items()
    ]
    retention = RetentionPass(
        fs,
        clock,
        take=lambda wanted: [log.partition for log in wanted],
        give_back=lambda _: None,
        report=lambda _: None,
        check_done=lambda: None,
    )

    @contextlib.contextmanager
    def lock() -> Iterator[Callable[[], None]]:
        yield lambda: None

    log_dir = LogDir(fs, root)
    retention.run(log_dir, logs, lock)
    reported()
    clock.move_on(100)
    retention.remove_due(log_dir, lock)
    return retention


def _load(root: Path, partition: TopicPartition) -> LoadedLog:
    starts = read_offset_checkpoint(FS, root / "log-start-offset-checkpoint")
    return load_log(
        FS,
        root / str(partition),
        partition,
        topic=TOPICS[partition],
        log_start_offset=starts.get(partition, 0),
        recovery_point=END,
        high_watermark=END,
        clean_shutdown=True,
        producer_id_expiration_ms=86_400_000,
        now_ms=START_MS,
    )


def _readable(log: LoadedLog) -> list[int]:
    """Return the offsets a reader finds from the log start on."""
    batches = (batch for segment in log.segments for batch in split_batches(segment.log_path.read_bytes()))
    return [info.base_offset for info in map(batch_info, batches) if info.base_offset >= log.log_start_offset]


def _judge(root: Path, *, is_reported: bool) -> set[str]:
    """Load the state after a power cut as a broker would; AssertionError: it did harm. Returns the starts, in words."""
    words = set()
    for partition in TOPICS:
        log = _load(root, partition)
        start = log.log_start_offset
        is_new = start == STARTS_AFTER[partition]
        assert is_new or (start in STARTS_BEFORE[partition] and not is_reported), f"{partition} begins at {start}"
        assert _readable(log) == list(range(start, END)), f"{partition} from {start} on"
        assert sorted(log.active_producers) == [5]
        log.settle(FS, nullcontext)
        log.close(FS, nullcontext)
        assert not list((root / str(partition)).glob("*.deleted"))
        words.add("new" if is_new else "old")
    _run(root, FS)
    # A line that equals the first base offset does no harm.
    assert set(read_offset_checkpoint(FS, root / "log-start-offset-checkpoint").values()) <= {30}
    for partition in TOPICS:
        log = _load(root, partition)
        assert (log.log_start_offset, _readable(log)) == (30, list(range(30, END)))
        assert [segment.base_offset for segment in log.segments] == [30, 40]
    return words


def _sweep(tmp_path: Path, skip_sync: int | None = None) -> set[str]:
    """Make a pass, and judge the states after every power cut."""
    root = tmp_path / "logs"
    _write(root)
    fs = ForgetfulFileSystem(root, skip_sync=skip_sync)
    reported: list[int] = []
    _run(root, fs, lambda: reported.append(len(fs.journal)))
    seen = set()
    for point in fs.crash_points():
        for number, state in enumerate(fs.states_at(point, limit=STATES_PER_POINT, seed=SEED)):
            left = tmp_path / f"left-{point}-{number}"
            state.write_to(left)
            try:
                seen |= _judge(left, is_reported=point >= reported[0])
            except Exception as error:
                raise AssertionError(f"seed {SEED}, {state.note}: {error!r}") from error
    assert len(fs.syncs) == len(STEPS)
    return seen


def test_power_cut_during_retention_leaves_no_hole(tmp_path: Path) -> None:
    """Whatever the disk forgets: the old or the new start, every record from there on, and the next pass finishes."""
    assert _sweep(tmp_path) == {"old", "new"}


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: STEPS[number].replace(": ", "-"))
def test_each_fsync_of_retention_left_out_is_noticed(tmp_path: Path, number: int) -> None:
    """Except the two that the next one repeats, and the last: an extra line does no harm."""
    harmless = ("plain epochs: name", "inside epochs: name", "no start: name")
    if STEPS[number] in harmless:
        _sweep(tmp_path, skip_sync=number)
    else:
        with pytest.raises(AssertionError, match="power cut after change"):
            _sweep(tmp_path, skip_sync=number)


def test_stop_at_any_change_is_finished_by_the_next_pass(tmp_path: Path) -> None:
    """A process that is killed: everything done so far is on disk, in order."""
    _write(tmp_path / "logs")
    fs = ForgetfulFileSystem(tmp_path / "logs")
    _run(tmp_path / "logs", fs)
    for point in itertools.count(fs.start):
        if point > len(fs.journal):
            break
        state = next(fs.states_at(point, limit=1, seed=SEED))
        assert state.note.endswith("nothing")
        state.write_to(tmp_path / f"killed-{point}")
        _judge(tmp_path / f"killed-{point}", is_reported=False)
