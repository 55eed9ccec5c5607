"""`verify --recompressed`: batches that were joined hold the records of those before, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner.app.verify_log_dirs import VerifyReport
from cleaner.base.model import TopicPartition
from tests.reference.batches import Rec, read_batches, read_records
from tests.support.batch_builder import Producer, Record, data_batch
from tests.support.log_builder import LogBuilder, write_log_dir

SETTINGS = {"cleanup.policy": "compact"}
NAME = "prices-0"
Change = Callable[[list[Rec]], list[Rec]]


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A log of small batches, some of them superseded, and a copy whose batches were joined."""
    log = LogBuilder(TopicPartition("prices", 0))
    for number in range(60):
        log.append((f"k{number % 25}", f"value {number}"), (f"only {number}", "x" * 20))
        if number == 40:
            log.roll()
    log.roll()
    before, after = write_log_dir(tmp_path / "before", log), tmp_path / "after"
    shutil.copytree(before, after)
    report = cleaner.clean(after, NAME, SETTINGS, high_watermark="end", recompress="none")
    assert (report.batches_packed, report.batches_joined) == (60, 59)
    return before, after


def prove(places: tuple[Path, Path], *, recompressed: bool = True) -> VerifyReport:
    """Prove the copy."""
    return cleaner.verify(*places, NAME, SETTINGS, recompressed=recompressed)


def test_joined_batches_are_proven_if_asked_for(places: tuple[Path, Path]) -> None:
    """Without it they are no result of Kafka's cleaner."""
    assert prove(places).findings == ()
    assert prove(places).repacked == 60
    assert not prove(places, recompressed=False).is_proven


def test_log_that_was_only_packed_is_proven(places: tuple[Path, Path]) -> None:
    """Also if nothing was dirty: all records are there; and not if one is missing."""
    _, after = places
    packed = after.with_name("packed")
    shutil.copytree(after, packed)
    report = cleaner.clean(packed, NAME, SETTINGS, high_watermark="end", recompress="zstd")
    assert (report.batches_packed, report.removed.total) == (1, 0)
    assert prove((after, packed)).findings == ()
    rewrite(packed, lambda records: records[1:])
    assert not prove((after, packed)).is_proven


CHANGES: dict[str, Change] = {
    "a value": lambda records: [*records[:5], records[5]._replace(value=b"other"), *records[6:]],
    "a key": lambda records: [*records[:5], records[5]._replace(key=b"other"), *records[6:]],
    "a timestamp": lambda records: [*records[:5], records[5]._replace(timestamp=0), *records[6:]],
    "an offset": lambda records: [records[0]._replace(offset=records[0].offset + 1), *records[2:]],
    "a record that is missing": lambda records: records[:5] + records[6:],
    "a record that was superseded": lambda records: (
        [records[0], Rec(4, records[0].timestamp, b"k2", b"value 2")]
        + [record for record in records[1:] if record.offset > 4]
    ),
    "records in a gap": lambda records: [*records[:-1], records[-1]._replace(offset=records[-1].offset + 50)],
}


@pytest.mark.parametrize("what", CHANGES)
def test_change_in_a_joined_batch_is_found(places: tuple[Path, Path], what: str) -> None:
    """Each of them, wherever the batch came from."""
    rewrite(places[1], CHANGES[what])
    assert not prove(places).is_proven


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batches_of_several_segments_that_were_joined_are_proven(tmp_path: Path, magic: int) -> None:
    """Of message formats 0 and 1, too, whose batches do not say where they begin."""
    log = LogBuilder(TopicPartition("prices", 0))
    for number in range(3):
        log.append((f"a{number}", "1"), (f"b{number}", "2"), ("c", "3"), codec="gzip", magic=magic)
        log.roll()
    log.append(("end", "value"))
    before, after = write_log_dir(tmp_path / "before", log), tmp_path / "after"
    shutil.copytree(before, after)
    report = cleaner.clean(after, NAME, SETTINGS, recompress="zstd")
    assert report.batches_joined == 2
    assert prove((before, after)).findings == ()
    rewrite(after, lambda records: records[:-2] + records[-1:])
    assert not prove((before, after)).is_proven


def test_log_that_was_cleaned_and_then_only_packed_is_proven(tmp_path: Path) -> None:
    """What is packed keeps the entries of its transaction indexes: its markers have no horizon yet."""
    log = LogBuilder(TopicPartition("prices", 0))
    for number in range(2):
        log.append((f"k{number}", "aborted"), producer=Producer(7, 0, number, transactional=True))
        log.append((f"l{number}", "value"))
        log.end_transaction(7, 0, commit=False)
    log.roll()
    log.append(("end", "value"))
    before, after = write_log_dir(tmp_path / "before", log), tmp_path / "after"
    shutil.copytree(before, after)
    for target, removed in (("zstd", 2), ("lz4", 0)):
        assert cleaner.clean(after, NAME, SETTINGS, recompress=target).removed.total == removed
        assert prove((before, after)).findings == ()


@pytest.mark.parametrize("size", [20, 300_000])
def test_joined_batch_that_a_later_round_left_empty_is_proven(tmp_path: Path, size: int) -> None:
    """The last of the range, by then without its tombstones; and not if one of its records had to stay."""
    log = LogBuilder(TopicPartition("prices", 0))
    for value in ("x" * size, None):
        for number in range(8):
            log.append((f"k{number}" + "y" * (size if value is None else 0), value))
    log.roll()
    log.append(("end", "value"))
    before, after = write_log_dir(tmp_path / "before", log), tmp_path / "after"
    shutil.copytree(before, after)
    settings = {**SETTINGS, "delete.retention.ms": "1000", "cleaner.quiet.cleaning": "true"}
    settings |= {"max.message.bytes": str(1 << 23), "log.cleaner.io.buffer.size": str(1 << 23)}
    now_ms = 1_800_000_000_000
    for at_ms in (now_ms, now_ms + 5000):
        cleaner.clean(after, NAME, settings, now_ms=at_ms, recompress="none" if at_ms == now_ms else "off")
    *_, last = read_batches((after / NAME / "00000000000000000000.log").read_bytes())
    assert (last.base_offset, last.last_offset, read_records(last)) == (8, 15, [])

    def proof(log_before: Path) -> VerifyReport:
        moments = {"since_ms": now_ms, "now_ms": now_ms + 5000, "delete_retention_ms": 1000}
        return cleaner.verify(log_before, after, NAME, settings, recompressed=True, **moments)  # type: ignore[arg-type]

    assert proof(before).findings == ()
    other = LogBuilder(TopicPartition("prices", 0))
    for value in ("x" * size, None):
        for number in range(8):
            stays = value is None and number == 3
            other.append((f"k{number}" + "y" * (size if value is None else 0), "stays" if stays else value))
    other.roll()
    other.append(("end", "value"))
    assert not proof(write_log_dir(tmp_path / "other", other)).is_proven


def rewrite(log_dir: Path, change: Change) -> None:
    """Change the records of the first batch, and nothing else."""
    path = min((log_dir / NAME).glob("*.log"))
    batch, *others = read_batches(path.read_bytes())
    records = [Record(r.key, r.value, r.offset, r.timestamp) for r in change(read_records(batch))]
    last = max(batch.last_offset, records[-1].offset or 0)
    changed = data_batch(records, batch.base_offset, last_offset=last, leader_epoch=batch.leader_epoch)
    path.write_bytes(changed + b"".join(other.raw for other in others))
