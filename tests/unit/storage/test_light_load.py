"""A load that changes nothing reads headers only, with the same result as a full load."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.config.values import TopicConfig
from cleaner.errors import CleanerError, NotCleanlyShutDownError
from cleaner.policy.cleanable import Cleanable, cleanable
from cleaner.storage.load.loaded_log import LoadedLog
from tests.support.batch_builder import Producer, Record, data_batch
from tests.support.log_builder import START_MS, LogBuilder
from tests.unit.storage.logs import INTERVAL_BYTES, content, load

TOPIC = TopicConfig(index_interval_bytes=INTERVAL_BYTES)


def busy_log() -> LogBuilder:
    """Four segments of every kind of batch, with transactions decided and open, and a gap at the end of each."""
    log = LogBuilder(index_interval_bytes=INTERVAL_BYTES)
    for segment in range(4):
        if segment:
            log.roll()
        log.leader_epoch = segment
        for number in range(6):
            log.append((f"a{number}", "1"), ("b", "2"), codec="gzip", producer=Producer(5, 0, 12 * segment + number))
            log.append((f"c{number}", "1"), producer=Producer(6 + segment, 0, number, True))
        log.append(("legacy", "1"), magic=segment % 2)
        if segment % 2:
            log.end_transaction(6 + segment, 0, commit=segment == 1, coordinator_epoch=2)
        log.append_empty(3, producer=Producer(5, 0, 12 * segment + 6))
    return log


def facts(log: LoadedLog) -> tuple[object, ...]:
    """Return everything on which a plan depends."""
    segments = [(s.base_offset, s.size, s.largest_timestamp(), s.first_batch_timestamp()) for s in log.segments]
    ranges: list[Cleanable] = [cleanable(log, dirty, TOPIC, START_MS + 10**6) for dirty in (None, 20, 60)]
    offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset)
    return offsets, log.active_producers, segments, ranges, log.changes.epochs, log.changes.snapshots.offsets()


def outcome(directory: Path, *, read_only: bool, high_watermark: int, log_start_offset: int) -> tuple[object, ...]:
    """Return the facts, or the error."""
    try:
        log = load(directory, read_only=read_only, high_watermark=high_watermark, log_start_offset=log_start_offset)
        return facts(log)
    except CleanerError as error:
        return type(error), str(error)


@pytest.mark.parametrize("snapshots", [0, 1, 2, 4])
@pytest.mark.parametrize("lost", [(), (".index",), (".timeindex",), (".txnindex",), (".index", ".timeindex")])
def test_read_only_load_equals_the_full_load(snapshots: int, lost: tuple[str, ...], tmp_path: Path) -> None:
    """Log end, high watermark, last stable offset, producers (R-407, R-652), whichever small files are left."""
    directory = busy_log().write(tmp_path)
    for path in sorted(directory.glob("*.snapshot"))[snapshots:]:
        path.unlink()
    for path in directory.iterdir():
        if path.suffix in lost and int(path.name[:20]):
            path.unlink()
    before = content(directory)
    for high_watermark in (0, 30, 57, 2**62):
        for log_start_offset in (0, 33):
            light, full = (
                outcome(directory, read_only=flag, high_watermark=high_watermark, log_start_offset=log_start_offset)
                for flag in (True, False)
            )
            assert light == full
            assert len(full) > 2, "an error"
    assert content(directory) == before


@pytest.mark.parametrize("cut", [1, 10, 17, 61, 70])
def test_read_only_load_refuses_a_torn_end_as_the_full_load_does(cut: int, tmp_path: Path) -> None:
    """The same error at the same position."""
    directory = busy_log().write(tmp_path)
    path = max(directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-cut])
    light, full = (
        outcome(directory, read_only=flag, high_watermark=2**62, log_start_offset=0) for flag in (True, False)
    )
    assert light == full
    assert len(full) == 2


def test_read_only_load_splits_no_segment(tmp_path: Path) -> None:
    """R-614: a full load splits a segment whose offsets reach too far; a read-only load does not change it."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    batches = [data_batch([Record(b"k", b"v")], offset) for offset in (0, 2**31)]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    before = content(directory)
    with pytest.raises(NotCleanlyShutDownError, match="split"):
        load(directory, read_only=True)
    assert content(directory) == before
