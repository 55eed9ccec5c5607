"""Retention and cleaning in any order lose nothing that Kafka would keep: R-550, R-901, R-903, R-910 to R-913."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.retention_pass import RetentionPass
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import LOCK
from tests.reference.batches import read_batches, read_records
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.manual_clock import START_MS, ManualClock

TP = TopicPartition("topic", 0)
FS = FileSystem()


class Segment(NamedTuple):
    """A segment on disk, as this test reads it: plainly, and from its batches alone."""

    base_offset: int
    size: int
    largest_ms: int
    records: list[tuple[int, bytes | None, bytes | None]]


def read(directory: Path) -> list[Segment]:
    """Read all segments of a partition."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        batches = read_batches(data)
        largest = max((batch.max_timestamp for batch in batches), default=-1)
        largest = largest if largest >= 0 else path.stat().st_mtime_ns // 1_000_000
        records = [(record.offset, record.key, record.value) for batch in batches for record in read_records(batch)]
        found.append(Segment(int(path.name[:20]), len(data), largest, records))
    return found


def kafkas_start(segments: list[Segment], start: int, topic: TopicConfig, watermark: int, now_ms: int) -> int:
    """Say where Kafka would let the log begin, were it not for the active segment: R-901, word for word."""
    left = list(segments)
    while len(left) > 1 and left[1].base_offset <= min(start, watermark):
        left.pop(0)
    excess = sum(segment.size for segment in left) - topic.retention_bytes if topic.retention_bytes >= 0 else -1
    while len(left) > 1 and left[1].base_offset <= watermark and excess - left[0].size >= 0:
        excess -= left.pop(0).size
    while len(left) > 1 and left[1].base_offset <= watermark and 0 <= topic.retention_ms < now_ms - left[0].largest_ms:
        left.pop(0)
    return max(start, left[0].base_offset)


@contextlib.contextmanager
def no_lock() -> Iterator[Callable[[], None]]:
    """Take no lock: no other process is here."""
    yield lambda: None


class Bench:
    """A log dir with one log, and what must hold for it."""

    def __init__(self, root: Path, log: LogBuilder, topic: TopicConfig, watermark: int) -> None:
        self.root = write_log_dir(root, log, high_watermarks={TP: watermark})
        (root / LOCK).touch()
        self.directory = root / str(TP)
        self.topic = topic
        self.watermark = watermark
        self.clock = ManualClock()
        self.all = [record for segment in read(self.directory) for record in segment.records]
        self.start = 0
        self.cleaned_to = 0
        self.retention = self.restarted()

    def restarted(self) -> RetentionPass:
        """Make a pass that remembers nothing."""
        return RetentionPass(
            FS,
            self.clock,
            take=lambda logs: [log.partition for log in logs],
            give_back=lambda _: None,
            report=self._check_report,
            check_done=lambda: None,
        )

    def _check_report(self, report: object) -> None:
        assert not getattr(report, "error", ""), report

    def retain(self) -> None:
        """Make a pass; the log begins where Kafka would let it."""
        expected = kafkas_start(read(self.directory), self.start, self.topic, self.watermark, self.clock.now_ms())
        looked = LogStatus(
            TP, str(self.root), self.directory, topic=self.topic, is_policy_trusted=True, has_segments_to_delete=True
        )
        self.retention.run(LogDir(FS, self.root), [looked], no_lock)
        self.start = expected
        assert read(self.directory)[0].base_offset == expected

    def remove(self) -> None:
        """Let the delay pass, and remove the expired files."""
        self.clock.move_on(self.topic.file_delete_delay_ms / 1000)
        self.retention.remove_due(LogDir(FS, self.root), no_lock)

    def clean(self) -> None:
        """Run a round."""
        given = {"cleanup.policy": "compact,delete", "delete.retention.ms": "100000000000"}
        report = cleaner.clean(self.root, str(TP), given, now_ms=self.clock.now_ms())
        self.cleaned_to = max(self.cleaned_to, report.end_offset, self.start)

    def check(self) -> None:
        """Nothing is there twice or anew, and of what may be read only superseded clean records are gone."""
        found = [record for segment in read(self.directory) for record in segment.records]
        assert found == sorted(found, key=lambda record: record[0])
        assert set(found) <= set(self.all)
        latest = {key: offset for offset, key, _ in self.all if offset < self.cleaned_to}
        for offset, key, value in self.all:
            if offset >= self.start and (offset >= self.cleaned_to or latest[key] == offset):
                assert (offset, key, value) in found, f"offset {offset} is lost"


SEGMENTS = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), min_size=1, max_size=6), st.integers(0, 9)),
    min_size=2,
    max_size=7,
)
STEPS = st.lists(st.sampled_from(("retain", "clean", "remove", "restart", "wait")), min_size=1, max_size=8)


@settings(max_examples=60)
@given(
    segments=SEGMENTS,
    steps=STEPS,
    retention_ms=st.sampled_from((-1, 0, 3_000, 10_000)),
    retention_bytes=st.sampled_from((-1, 0, 300, 900)),
    watermark_percent=st.sampled_from((100, 100, 60)),
)
def test_retention_and_cleaning_in_any_order_keep_what_kafka_would(
    segments: list[tuple[list[tuple[str, bool]], int]],
    steps: list[str],
    retention_ms: int,
    retention_bytes: int,
    watermark_percent: int,
) -> None:
    """A log begins where Kafka's passes let it; from there on only cleaning takes records, superseded ones."""
    log = LogBuilder()
    for number, (records, age_s) in enumerate(segments):
        if number:
            log.roll()
        for key, is_kept in records:
            log.append((key, f"v{log.next_offset}" if is_kept else None), timestamp_ms=START_MS - 1_000 * age_s)
    topic = TopicConfig(
        cleanup_policy=frozenset(("compact", "delete")), retention_ms=retention_ms, retention_bytes=retention_bytes
    )
    root = Path(tempfile.mkdtemp())
    try:
        bench = Bench(root / "logs", log, topic, log.next_offset * watermark_percent // 100)
        for step in steps:
            if step == "wait":
                bench.clock.move_on(2)
            elif step == "restart":
                bench.retention = bench.restarted()
            else:
                getattr(bench, step)()
            bench.check()
    finally:
        shutil.rmtree(root)
