"""`clean --damaged keep`: damaged batches are carried over byte for byte, and the rest is cleaned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cleaning.passes.damage import DamagedBatch, KnownDamage, digest_of
from cleaner.cli.main import main
from cleaner.errors import CorruptLogError
from tests.golden.comparison import differences
from tests.integration.log_dirs import NOW, contents, offsets
from tests.property.rounds import twin_settings
from tests.reference.round import clean_round
from tests.support.batch_builder import Producer
from tests.support.batch_reader import split_batches
from tests.support.codecs import crc32c
from tests.support.log_builder import LogBuilder, write_log_dir

TOPIC = TopicPartition("topic", 0)
SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "100",
    "internal.segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "producer.id.expiration.ms": "86400000",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "log.cleaner.io.buffer.load.factor": "0.9",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def spoil(batch: bytes, how: str) -> bytes:
    """Damage a batch: by a wrong checksum, or by bytes that fit their checksum and are no records."""
    data = bytearray(batch)
    if how == "checksum":
        data[-3] ^= 0x10
        return bytes(data)
    data[61:] = bytes(byte ^ 0xFF for byte in data[61:])
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def write_damaged(root: Path, *, transaction: bool = False) -> dict[str, list[bytes]]:
    """Write a log with two damaged batches in each of three segments; returns them by file."""
    log = LogBuilder(index_interval_bytes=100)
    for segment in range(4):
        if segment:
            log.roll()
        for number in range(20):
            some = [(f"k{(number + i) % 7}", f"v{segment}.{number}" + "." * 40) for i in range(4)]
            log.append(*some, codec=CODECS[number % 5])
        if transaction:
            log.append(("t", "v"), producer=Producer(1, 0, segment, transactional=True))
            log.end_transaction(1, 0, commit=True)
    write_log_dir(root, log, cleaner_offsets={TOPIC: log.base_offsets[1]})
    spoiled: dict[str, list[bytes]] = {}
    for path in sorted((root / "topic-0").glob("*.log"))[:3]:
        batches = split_batches(path.read_bytes())
        for number, how in ((5, "checksum"), (11 + len(spoiled), "records")):
            batches[number] = spoil(batches[number], how)
            spoiled.setdefault(path.name, []).append(batches[number])
        path.write_bytes(b"".join(batches))
    return spoiled


def keep(log_dir: Path, threads: int = 2) -> cleaner.CleanReport:
    """Clean around the damage."""
    settings = {**SETTINGS, "cleaner.pipeline.threads": str(threads)}
    return cleaner.clean(log_dir, "topic-0", settings, now_ms=NOW, damaged="keep")


@pytest.mark.kernels
def test_damaged_batches_are_carried_over_byte_for_byte(tmp_path: Path) -> None:
    """They keep their place in the order of offsets; the report has file, position, offsets and reason of each."""
    spoiled = [batch for batches in write_damaged(tmp_path).values() for batch in batches]
    report = keep(tmp_path)
    paths = sorted((tmp_path / "topic-0").glob("*.log"))
    left = [batch for path in paths for batch in split_batches(path.read_bytes())]

    assert [batch for batch in left if batch in spoiled] == spoiled
    assert [kept.base_offset for kept in report.kept_damage] == [int.from_bytes(batch[:8], "big") for batch in spoiled]
    assert "CRC-32C" in report.kept_damage[0].reason
    assert report.kept_damage[1].reason.startswith("gzip: ")
    assert report.removed.superseded > 100
    assert offsets(tmp_path, "cleaner") == {"topic-0": report.end_offset}


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_result_is_the_twins_on_any_number_of_threads(tmp_path: Path, threads: int) -> None:
    """Every file and counter: the twin knows nothing of lanes, windows or maps."""
    write_damaged(tmp_path)
    directory = tmp_path / "topic-0"
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    times = {path.name: path.stat().st_mtime_ns // 1_000_000 for path in directory.iterdir()}
    checkpoint = offsets(tmp_path, "cleaner")["topic-0"]
    twin = clean_round(before, times, twin_settings(SETTINGS), now_ms=NOW, checkpoint=checkpoint, keep_damaged=True)
    report = keep(tmp_path, threads)

    assert not twin.failed
    after = {path.name: path.read_bytes() for path in directory.iterdir()}
    sources = {batch for name, data in before.items() if name.endswith(".log") for batch in split_batches(data)}
    logs = [{name: data for name, data in files.items() if name.endswith(".log")} for files in (twin.files, after)]
    assert differences(*logs, compressed=True, source_batches=sources, index_interval_bytes=100) == []
    assert (report.messages_read, report.messages_written) == (twin.stats.messages_read, twin.stats.messages_written)
    assert report.map_messages_read == twin.stats.map_messages_read
    assert report.end_offset == twin.end_offset


@pytest.mark.parametrize("interval_bytes", [100, 1 << 20])
def test_damaged_batch_at_the_end_of_a_segment_is_kept(tmp_path: Path, interval_bytes: int) -> None:
    """Behind the last entry of its index, too, where a round looks for the segment's next offset (R-537)."""
    log = LogBuilder(index_interval_bytes=interval_bytes)
    for segment in range(3):
        for number in range(20):
            log.append((f"k{number % 3}", f"v{segment}"), codec=CODECS[number % 5])
        log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log)
    spoiled = []
    for path in sorted((tmp_path / "topic-0").glob("*.log"))[:3]:
        batches = split_batches(path.read_bytes())
        batches[-1] = spoil(batches[-1], "checksum")
        path.write_bytes(b"".join(batches))
        spoiled.append(batches[-1])
    settings = {**SETTINGS, "index.interval.bytes": str(interval_bytes), "internal.segment.bytes": "1500"}
    report = cleaner.clean(tmp_path, "topic-0", settings, now_ms=NOW, damaged="keep")
    left = [batch for path in (tmp_path / "topic-0").glob("*.log") for batch in split_batches(path.read_bytes())]
    assert len(report.kept_damage) == 3
    assert all(batch in left for batch in spoiled)
    assert report.removed.superseded == 60 - 3 - 3


def test_threads_leave_the_same_bytes(tmp_path: Path) -> None:
    """One, two and four."""
    write_damaged(tmp_path / "1")
    for threads in (2, 4):
        shutil.copytree(tmp_path / "1", tmp_path / str(threads), copy_function=shutil.copy2)
    for threads in (1, 2, 4):
        keep(tmp_path / str(threads), threads)
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "4")


def test_a_second_round_keeps_them_again(tmp_path: Path) -> None:
    """A batch carried over once is found again and carried over from its new place."""
    spoiled = [batch for batches in write_damaged(tmp_path).values() for batch in batches]
    keep(tmp_path)
    (tmp_path / "cleaner-offset-checkpoint").unlink()
    report = keep(tmp_path)
    assert [kept.base_offset for kept in report.kept_damage] == [int.from_bytes(batch[:8], "big") for batch in spoiled]


def test_refused_without_being_asked_for(tmp_path: Path) -> None:
    """The default stays: nothing is changed, and the error names the place."""
    write_damaged(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(CorruptLogError):
        cleaner.clean(tmp_path, "topic-0", SETTINGS, now_ms=NOW)
    assert contents(tmp_path) == before


def _transactions(root: Path) -> None:
    shutil.rmtree(root / "topic-0")
    write_damaged(root, transaction=True)


def _patched(root: Path, position: int, value: bytes) -> None:
    """Write over the header of the sixth batch of the first segment, whose checksum is wrong already."""
    path = root / "topic-0" / "00000000000000000000.log"
    batches = split_batches(path.read_bytes())
    at = sum(map(len, batches[:5])) + position
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    path.write_bytes(bytes(data))


def _last_offset_of_segment(root: Path) -> None:
    """Damage the last batch of a segment so that its offsets reach into the next one."""
    path = root / "topic-0" / "00000000000000000000.log"
    batches = split_batches(path.read_bytes())
    data = bytearray(batches[-1])
    data[23:27] = (400).to_bytes(4, "big")
    path.write_bytes(b"".join(batches[:-1]) + bytes(data))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_transactions, "the log holds transactions"),
        (lambda root: _patched(root, 8, b"\x7f"), "does not fit its place"),
        (lambda root: _patched(root, 16, b"\x07"), "does not fit its place"),
        (lambda root: _patched(root, 23, b"\x00\x00\x01\x00"), "reaches into the next segment"),
        (lambda root: _patched(root, 0, bytes(8)), "does not fit its place"),
        (_last_offset_of_segment, "reaches into the next segment"),
    ],
    ids=["transactions", "length", "magic", "last-offset", "base-offset", "into-the-next-segment"],
)
def test_refused_where_no_header_can_be_trusted(tmp_path: Path, damage: object, words: str) -> None:
    """Lengths, magic, offsets and possible transactions: nothing is changed."""
    write_damaged(tmp_path)
    assert callable(damage)
    damage(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(CorruptLogError, match=words):
        keep(tmp_path)
    assert contents(tmp_path) == before


def test_command_reports_each_kept_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a batch on standard error, without a byte of it."""
    write_damaged(tmp_path)
    arguments = ["clean", str(tmp_path), "topic-0", "--damaged", "keep", "--set", "topic:cleanup.policy=compact"]
    assert main(arguments) == 0
    err = capsys.readouterr().err
    assert err.count("are kept as they are") == 6
    assert "00000000000000000000.log: at byte" in err


def test_damage_is_known_by_its_very_bytes() -> None:
    """A cleaned segment that is read back may hold a wrong checksum only where the source had those bytes."""
    content = b"a batch with a wrong checksum"
    one = DamagedBatch(Path("0.log"), 7, len(content), 5, 6, "why", 0, digest_of(memoryview(content)))
    known = KnownDamage([one])
    assert known.has(5, memoryview(content))
    assert not known.has(6, memoryview(content))
    assert not known.has(5, memoryview(content[:-1] + b"x"))


def test_verify_proves_what_was_cleaned_around_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Damage that is in both logs, byte for byte, proves and refutes nothing; other damage is reported."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write_damaged(before)
    shutil.copytree(before, after)
    keep(after)
    command = ["verify", str(before), str(after), "--set", "topic:cleanup.policy=compact", "--format", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["damaged"] == 6
    path = after / "topic-0" / "00000000000000000000.log"
    sound = path.read_bytes()
    batches = split_batches(sound)
    for number in range(len(batches)):
        changed = [*batches[:number], spoil(batches[number], "checksum"), *batches[number + 1 :]]
        path.write_bytes(b"".join(changed))
        assert main(command) == 1, number
        path.write_bytes(b"".join(batches[:number] + batches[number + 1 :]))
        assert main(command) == 1, number
