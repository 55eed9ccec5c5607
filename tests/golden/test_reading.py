"""What a broker wrote, and what its cleaner made of it, read by us as Kafka's consumer reads it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.format.control import ControlType, read_control_type
from cleaner.log.reader import LogReader, open_reader
from cleaner.log.record import Record
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import read_txn_index
from tests.golden.random_rounds import PARTITION, random_rounds
from tests.golden.scenario import Step, steps
from tests.reference.batches import Batch, Rec, read_batches, read_records
from tests.scratch import scratch_directory

pytestmark = pytest.mark.kernels

SOUND = [step for step in steps() if step.kind in ("byte-identical", "logically-identical")]


def as_record(rec: Rec) -> Record:
    """Return a record of the reference as ours."""
    headers = tuple((name.decode(), value) for name, value in rec.headers)
    return Record(rec.key, rec.value, headers, rec.timestamp, rec.offset)


def batches_of(directory: Path) -> list[Batch]:
    """Return a log's batches in order."""
    return [batch for log in sorted(directory.glob("*.log")) for batch in read_batches(log.read_bytes())]


def as_consumer(directory: Path, *, committed: bool) -> Iterator[Record]:
    """
    Read a log as Kafka's consumer does: aborts by the offset they begin at, until their marker comes.

    Source: `CompletedFetch.java`, `nextFetchedRecord` and `isBatchAborted`.
    """
    aborts = []
    for index in sorted(directory.glob("*.txnindex")):
        aborts += read_txn_index(FileSystem(), index, log_bytes=1 << 20)[:, :3].tolist()
    aborts.sort(key=lambda abort: abort[1])
    aborted: set[int] = set()
    for batch in batches_of(directory):
        while aborts and aborts[0][1] <= batch.last_offset:
            aborted.add(aborts.pop(0)[0])
        if batch.control:
            if batch.count and read_control_type(memoryview(batch.raw[61:])) is ControlType.ABORT:
                aborted.discard(batch.producer_id)
        elif not (committed and batch.transactional and batch.producer_id in aborted):
            yield from map(as_record, read_records(batch))


def stages(step: Step, unpacked: Callable[[str], Path]) -> list[Path]:
    """Return the log dirs before and after a round."""
    return [unpacked(step.scenario) / name for name in (step.input, step.output)]


@pytest.mark.parametrize("step", SOUND, ids=str)
def test_log_of_a_broker_is_read_as_its_consumer_reads_it(step: Step, unpacked: Callable[[str], Path]) -> None:
    """Same records, offsets, timestamps and headers, in the same order, aborted ones and markers left out."""
    for log_dir in stages(step, unpacked):
        check_log(log_dir, TopicPartition.parse(step.partition))


def test_random_logs_of_kafka_are_read_as_its_consumer_reads_them(random_logs: Path) -> None:
    """All codecs and magics, transactions of several producers at a time; every third round's input (`slow`: all)."""
    assert check_random_logs(random_logs, every=3) > 40


@pytest.mark.slow
def test_random_logs_of_kafka_are_read_as_its_consumer_reads_them_long_form(random_logs: Path) -> None:
    """The same before every round."""
    assert check_random_logs(random_logs, every=1) > 120


def check_random_logs(random_logs: Path, *, every: int) -> int:
    """Read what the rounds began with; returns how many logs it was."""
    sound = [this for this in random_rounds(random_logs) if "error" not in this.got][::every]
    for this in sound:
        with scratch_directory() as work:
            check_log(this.prepare(work), PARTITION)
    return len(sound)


def check_log(log_dir: Path, name: TopicPartition) -> None:
    """Read a log in all ways there are."""
    directory = log_dir / str(name)
    everything = list(as_consumer(directory, committed=False))
    committed = list(as_consumer(directory, committed=True))
    with open_reader(log_dir, *name) as reader:
        start, stable = reader.log_start_offset, reader.last_stable_offset
        assert list(reader.read(start, until="end")) == [r for r in everything if (r.offset or 0) >= start]
        shown = [r for r in committed if start <= (r.offset or 0) < stable]
        assert list(reader.read(start, isolation="read_committed")) == shown
        check_places(reader, [r for r in everything if (r.offset or 0) >= start])
        check_latest(reader, shown)
        check_times(reader, directory, start)


def check_places(reader: LogReader, records: list[Record]) -> None:
    """Begin at some offsets, those between records too, and at some times."""
    offsets = [record.offset or 0 for record in records]
    for offset in range(reader.log_start_offset, reader.log_end_offset + 1, max(1, len(records) // 7)):
        found = list(reader.read(offset, until="end", max_records=3))
        at = bisect_right(offsets, offset - 1)
        assert found == records[at : at + 3]


def check_times(reader: LogReader, directory: Path, start: int) -> None:
    """The first record that is not older, markers too, by walking through all of them."""
    times = sorted({rec.timestamp for batch in batches_of(directory) for rec in read_records(batch)})
    for wanted in times[:: max(1, len(times) // 5)]:
        found = (
            rec.offset
            for batch in batches_of(directory)
            for rec in read_records(batch)
            if rec.timestamp >= wanted and start <= rec.offset < reader.high_watermark
        )
        assert reader.offset_for_time(wanted) == next(found, None)


def check_latest(reader: LogReader, records: list[Record]) -> None:
    """The last value of every key, either way."""
    last = {record.key: record for record in records if record.key is not None}
    kept = [record for record in last.values() if record.value is not None]
    with reader.latest() as latest:
        assert latest.to_dict() == {record.key: record.value for record in kept}
        assert list(latest) == sorted(kept, key=lambda record: record.offset or 0)
        assert latest.next_offset == reader.last_stable_offset
