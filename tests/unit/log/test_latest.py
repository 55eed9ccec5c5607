"""The last value of every key, compared with the plain way to find it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import cleaner
from cleaner import Log, LogManager, Record, open_reader
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptLogError, LogTruncatedError
from cleaner.log import latest as module
from cleaner.storage.files.checkpoint import write_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import CLEANER_CHECKPOINT

pytestmark = pytest.mark.kernels


def restored_plainly(log: Log, next_offset: int) -> dict[bytes, bytes]:
    """Return the state at an offset by reading every record: each replaces the one before."""
    found: dict[bytes, bytes] = {}
    for record in log.read(log.log_start_offset, isolation="read_committed"):
        if record.offset is None or record.offset >= next_offset or record.key is None:
            continue
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = record.value
    return found


def write_anything(log: Log, rng: random.Random) -> None:
    """Append records of few keys, tombstones and records without a key among them; some in transactions."""
    producer = log.producer("writer")
    for _ in range(60):
        records = [
            Record(
                rng.choice((b"", None, *(b"k%d" % key for key in range(40)))),
                rng.choice((None, b"", b"v%d" % rng.randrange(1 << 20))),
            )
            for _ in range(rng.randrange(1, 30))
        ]
        kind = rng.random()
        if kind < 0.6:
            log.append(records)
        else:
            producer.begin()
            producer.append(records)
            (producer.commit if kind < 0.8 else producer.abort)()
        if rng.random() < 0.1:
            log.roll()


def write_checkpoint(log_dir: Path, offset: int) -> None:
    """Say how far the log was cleaned, whether or not that is so."""
    write_offset_checkpoint(FileSystem(), log_dir / CLEANER_CHECKPOINT, {TopicPartition("t", 0): offset})


def restored(log_dir: Path) -> tuple[dict[bytes, bytes] | str, int]:
    """Return the state beside the writer, or the error; and how many chunks were read for it."""
    chunks = []
    with open_reader(log_dir, "t") as reader, reader.latest() as latest:
        latest.check_done = lambda: chunks.append(1)
        try:
            return latest.to_dict(), len(chunks)
        except CorruptLogError as error:
            return str(error), len(chunks)


@pytest.mark.parametrize("seed", range(6))
def test_state_is_what_reading_every_record_gives(tmp_path: Path, seed: int) -> None:
    """As a dict, as records and as columns; compressed or not; before and after a round."""
    rng = random.Random(seed)
    settings = {"compression.type": rng.choice(("producer", "zstd", "lz4")), "segment.bytes": "4000"}
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "delete", **settings})
        log = manager.log("t")
        write_anything(log, rng)
        log.flush()
        manager.alter_topic("t", {"cleanup.policy": "compact"})
        for is_cleaned in (False, True):
            with log.latest() as latest:
                expected = restored_plainly(log, latest.next_offset)
                assert latest.to_dict() == expected, is_cleaned
                assert {record.key: record.value for record in latest} == expected
                rows = [
                    row for columns in latest.columns() for row in zip(columns.keys(), columns.values(), strict=True)
                ]
                assert len(rows) == len(expected)
                assert dict(rows) == expected
            if not is_cleaned:
                log.roll()
                manager.upkeep.note_high_watermarks()
                assert cleaner.clean(tmp_path, "t-0").removed.superseded > 0


@pytest.mark.parametrize("seed", range(6))
def test_state_is_the_same_whatever_the_cleaners_checkpoint_says(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clean section has keys more than once, and their tombstones; before and after a round."""
    monkeypatch.setattr(module, "_MOST_DIRTY", float("inf"))
    rng = random.Random(seed)
    settings = {"compression.type": rng.choice(("producer", "zstd", "lz4")), "segment.bytes": "4000"}
    checkpoint = tmp_path / CLEANER_CHECKPOINT
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "delete", **settings})
        log = manager.log("t")
        for is_cleaned in (False, True):
            manager.alter_topic("t", {"cleanup.policy": "delete"})  # records without a key may be written
            write_anything(log, rng)
            log.flush()
            manager.upkeep.note_high_watermarks()
            expected = restored_plainly(log, log.last_stable_offset)
            before = checkpoint.read_bytes() if checkpoint.exists() else b""
            bases = [int(path.stem) for path in (tmp_path / "t-0").glob("*.log")]
            for offset in (*bases, -5, log.log_end_offset - 1, log.log_end_offset + 9):
                write_checkpoint(tmp_path, offset)
                assert restored(tmp_path)[0] == expected
            checkpoint.write_bytes(b"no checkpoint")
            assert restored(tmp_path)[0] == expected
            checkpoint.write_bytes(before)
            if not is_cleaned:
                log.roll()
                manager.upkeep.note_high_watermarks()
                manager.alter_topic("t", {"cleanup.policy": "compact"})
                assert cleaner.clean(tmp_path, "t-0").removed.superseded > 0


def test_clean_section_is_read_once_unless_much_is_dirty(tmp_path: Path) -> None:
    """Counted in chunks: a segment of this size is one."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = manager.log("t")
        for segment in range(5):
            log.append([Record(b"%d" % key, b"v%d" % segment) for key in range(segment, segment + 99)])
            log.roll()
        manager.upkeep.note_high_watermarks()
        expected = restored_plainly(log, log.log_end_offset)
        assert restored(tmp_path) == (expected, 10)
        for clean, chunks in ((5, 5), (4, 4 + 2), (3, 10)):
            write_checkpoint(tmp_path, 99 * clean)
            assert restored(tmp_path) == (expected, chunks)


def test_the_first_damage_is_reported_whatever_is_clean(tmp_path: Path) -> None:
    """In the clean section, in the dirty one, in both."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = manager.log("t")
        for _ in range(5):
            log.append([Record(b"%d" % key, b"v" * 99) for key in range(99)])
            log.roll()
    paths = sorted((tmp_path / "t-0").glob("*.log"))
    for damaged in ([1], [4], [1, 4]):
        sound = [path.read_bytes() for path in paths]
        for number in damaged:
            paths[number].write_bytes(sound[number][:500] + b"!" + sound[number][501:])
        write_checkpoint(tmp_path, 0)
        error, _ = restored(tmp_path)
        assert str(paths[damaged[0]]) in str(error)
        write_checkpoint(tmp_path, 99 * 4)
        assert restored(tmp_path)[0] == error
        for path, data in zip(paths, sound, strict=True):
            path.write_bytes(data)


def test_state_of_a_log_that_was_cut_and_has_grown_again_is_refused_before_its_first_pass(tmp_path: Path) -> None:
    """What is there now, below the end of before, may be of an open transaction."""
    with LogManager(tmp_path, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("prices", 1, {"cleanup.policy": "compact"})
        log = manager.log("prices")
        log.append([Record(b"k", b"1")])
        log.append([Record(b"k", b"2")])
        log.flush()
        with open_reader(tmp_path, "prices") as reader, reader.latest() as state:
            log.truncate_to(1)
            producer = log.producer("writer")
            producer.begin()
            producer.append([Record(b"open", b"v" * 1000)])
            with pytest.raises(LogTruncatedError):
                state.to_dict()
            producer.abort()
