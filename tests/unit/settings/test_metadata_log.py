"""Metadata logs on disk: real ones of a broker, and ones with tails, gaps and damage."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from cleaner.errors import CorruptCheckpointError
from cleaner.settings.metadata_log import find_metadata_log, read_metadata_log
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from tests.golden.archive import unpack
from tests.support.metadata_builder import (
    BEGIN,
    NO_OP,
    TOPIC,
    batch,
    config_record,
    topic_record,
    write_segment,
    write_snapshot,
)

ARCHIVE = Path(__file__).parents[2] / "golden" / "cluster-metadata.tar.xz"
FS = FileSystem()
ID = UUID(int=5)


def _set(key: str, value: str) -> bytes:
    return config_record(TOPIC, "t", key, value)


@pytest.fixture(scope="module")
def kafka_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker's log dir, a copy of its live metadata log, and what Kafka's dump tool prints of it."""
    directory = tmp_path_factory.mktemp("metadata")
    unpack(ARCHIVE, directory)
    return directory


def _expected(kafka_dir: Path) -> tuple[dict[str, UUID], dict[tuple[int, str], dict[str, str]]]:
    """Fold the records as Kafka's own dump tool prints them: topics by name, settings by resource."""
    ids: dict[str, UUID] = {}
    settings: dict[tuple[int, str], dict[str, str]] = {}
    for entry in json.loads((kafka_dir / "records.json").read_text()):
        data = entry["data"]
        if entry["type"] == "TOPIC_RECORD":
            ids[data["name"]] = parse_uuid(data["topicId"])
        elif entry["type"] == "REMOVE_TOPIC_RECORD":
            name = next(name for name, known in ids.items() if known == parse_uuid(data["topicId"]))
            del ids[name]
            settings.pop((2, name), None)
        elif entry["type"] == "CONFIG_RECORD":
            mine = settings.setdefault((data["resourceType"], data["resourceName"]), {})
            mine[data["name"]] = data["value"]
            if data["value"] is None:
                del mine[data["name"]]
    return ids, settings


@pytest.mark.parametrize("copy", ["stopped", "live"])
@pytest.mark.parametrize("snapshots", ["all", "oldest", "none"])
def test_metadata_log_of_a_broker_reads_as_kafka_prints_it(
    kafka_dir: Path, tmp_path: Path, copy: str, snapshots: str
) -> None:
    """From the newest snapshot, an older one, or from the log alone: the same topics and settings as Kafka's."""
    log = tmp_path / "__cluster_metadata-0"
    log.mkdir()
    kept = sorted(p.name for p in (kafka_dir / copy / log.name).glob("*.checkpoint"))
    kept = {"all": kept, "oldest": kept[:1], "none": []}[snapshots]
    for path in (kafka_dir / copy / log.name).iterdir():
        if path.suffix == ".log" or path.name in kept:
            (log / path.name).write_bytes(path.read_bytes())
    reading = read_metadata_log(FS, log)
    ids, settings = _expected(kafka_dir)
    assert reading.warnings == []
    assert ids == reading.image.topic_ids
    assert {(2, name): found for name, found in reading.image.topic_configs.items()} | {
        (4, name): found for name, found in reading.image.broker_configs.items()
    } == {resource: found for resource, found in settings.items() if found}


def test_metadata_log_cut_anywhere_reads_up_to_the_last_whole_batch(kafka_dir: Path, tmp_path: Path) -> None:
    """An unfinished tail is left out with a warning, wherever the last segment ends."""
    source = kafka_dir / "stopped" / "__cluster_metadata-0"
    last = max(source.glob("*.log"))
    (tmp_path / "00000000000000000000.log").write_bytes((source / "00000000000000000000.log").read_bytes())
    data = last.read_bytes()
    ends = []
    for size in range(0, len(data), 37):
        (tmp_path / last.name).write_bytes(data[:size])
        reading = read_metadata_log(FS, tmp_path)
        assert len(reading.warnings) <= 1
        ends.append(reading.end_offset)
    assert ends == sorted(ends)
    assert (ends[0], ends[-1]) == (85, 163)


def test_metadata_log_ending_in_zeros_leaves_them_out(tmp_path: Path) -> None:
    """Zeros behind the last batch are a write that never came; the settings before it count."""
    write_segment(tmp_path, 0, [[topic_record("t", ID), _set("a", "1")]], tail=bytes(500))
    reading = read_metadata_log(FS, tmp_path)
    assert reading.image.topic_configs == {"t": {"a": "1"}}
    assert ["unfinished" in warning for warning in reading.warnings] == [True]


def test_metadata_log_damaged_in_the_middle_is_refused(tmp_path: Path) -> None:
    """Damage with more behind it is no unfinished tail: settings would be missed."""
    path = write_segment(tmp_path, 0, [[_set("a", "1")], [_set("a", "2")]])
    data = bytearray(path.read_bytes())
    data[30] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptCheckpointError, match=r"00\.log: at byte 0: wrong CRC-32C"):
        read_metadata_log(FS, tmp_path)


def test_metadata_log_torn_before_its_last_segment_is_refused(tmp_path: Path) -> None:
    """Only the last segment may be unfinished."""
    write_segment(tmp_path, 0, [[_set("a", "1")]], tail=batch(1, [NO_OP])[:20])
    write_segment(tmp_path, 1, [[_set("a", "2")]])
    with pytest.raises(CorruptCheckpointError, match="ends within a batch"):
        read_metadata_log(FS, tmp_path)


def test_metadata_log_with_missing_segment_is_refused(tmp_path: Path) -> None:
    """Offsets that do not follow each other mean that settings are missing."""
    write_segment(tmp_path, 0, [[_set("a", "1")]])
    write_segment(tmp_path, 5, [[_set("a", "2")]])
    with pytest.raises(CorruptCheckpointError, match="offset 5 follows 0"):
        read_metadata_log(FS, tmp_path)


def test_metadata_log_with_wrong_base_offset_is_refused(tmp_path: Path) -> None:
    """The base offset lies outside the checksum, so it is checked against what comes before."""
    path = write_segment(tmp_path, 0, [[_set("a", "1")], [_set("a", "2")]])
    data = path.read_bytes()
    for wrong in (0, 7):
        path.write_bytes(data[: len(data) // 2] + wrong.to_bytes(8, "big") + data[len(data) // 2 + 8 :])
        with pytest.raises(CorruptCheckpointError, match=f"offsets {wrong} to {wrong} instead of 1"):
            read_metadata_log(FS, tmp_path)


def test_metadata_log_with_any_byte_changed_is_read_or_refused(kafka_dir: Path, tmp_path: Path) -> None:
    """One wrong byte is noticed, or changes nothing: it is never taken for other settings, nor another error."""
    source = kafka_dir / "stopped" / "__cluster_metadata-0" / f"{0:020}.log"
    data = source.read_bytes()
    (tmp_path / source.name).write_bytes(data)
    sound = read_metadata_log(FS, tmp_path).image
    refused = 0
    for position in range(0, len(data), 11):
        (tmp_path / source.name).write_bytes(data[:position] + bytes([data[position] ^ 0x81]) + data[position + 1 :])
        try:
            reading = read_metadata_log(FS, tmp_path)
        except CorruptCheckpointError:
            refused += 1
        else:
            assert reading.warnings or reading.image == sound
    assert refused > 400


def test_metadata_log_beginning_after_its_snapshot_is_refused(tmp_path: Path) -> None:
    """Without its snapshot a log that does not begin at 0 says too little."""
    write_snapshot(tmp_path, 3, [_set("a", "1")])
    write_segment(tmp_path, 4, [[_set("a", "2")]])
    with pytest.raises(CorruptCheckpointError, match="records are missing"):
        read_metadata_log(FS, tmp_path)


def test_metadata_log_continues_where_its_snapshot_ends(tmp_path: Path) -> None:
    """Records before the snapshot's end are not applied again."""
    write_segment(tmp_path, 0, [[_set("a", "old")], [_set("b", "old")]])
    write_snapshot(tmp_path, 2, [topic_record("t", ID), _set("a", "new")])
    write_segment(tmp_path, 2, [[_set("c", "1")]])
    reading = read_metadata_log(FS, tmp_path)
    assert reading.image.topic_configs == {"t": {"a": "new", "c": "1"}}
    assert reading.end_offset == 3


def test_snapshot_alone_is_a_metadata_log(tmp_path: Path) -> None:
    """A copy without any segment says what the snapshot says."""
    write_snapshot(tmp_path, 9, [topic_record("t", ID)])
    reading = read_metadata_log(FS, tmp_path)
    assert (reading.image.topic_ids, reading.end_offset) == ({"t": ID}, 9)


def test_snapshot_without_footer_gives_way_to_an_older_one(tmp_path: Path) -> None:
    """A damaged snapshot is left out with a warning as long as the log bridges the gap."""
    write_snapshot(tmp_path, 1, [_set("a", "1")])
    newer = write_snapshot(tmp_path, 2, [_set("a", "2")])
    newer.write_bytes(batch(0, [_set("a", "2")]))
    write_segment(tmp_path, 0, [[_set("a", "1")], [_set("a", "2")], [_set("b", "3")]])
    reading = read_metadata_log(FS, tmp_path)
    assert reading.image.topic_configs == {"t": {"a": "2", "b": "3"}}
    assert ["no footer" in warning for warning in reading.warnings] == [True]


def test_transaction_open_at_the_end_of_the_log_does_not_count(tmp_path: Path) -> None:
    """A metadata transaction without its end is undone."""
    write_segment(tmp_path, 0, [[_set("a", "1")], [BEGIN, _set("a", "2")], [_set("b", "3")]])
    assert read_metadata_log(FS, tmp_path).image.topic_configs == {"t": {"a": "1"}}


def test_large_metadata_log_is_read_in_windows(tmp_path: Path) -> None:
    """Batches that straddle the read-ahead are read whole."""
    values = [[_set(f"key{number}", "x" * 400_000)] for number in range(60)]
    write_segment(tmp_path, 0, values)
    reading = read_metadata_log(FS, tmp_path)
    assert len(reading.image.topic_configs["t"]) == 60
    assert reading.end_offset == 60


def test_find_metadata_log_takes_the_log_or_its_parent(kafka_dir: Path, tmp_path: Path) -> None:
    """The directory itself, under any name if it has snapshots, or the directory it is in."""
    log = kafka_dir / "stopped" / "__cluster_metadata-0"
    assert find_metadata_log(FS, log) == log
    assert find_metadata_log(FS, log.parent) == log
    write_snapshot(tmp_path / "copied", 1, [NO_OP])
    assert find_metadata_log(FS, tmp_path / "copied") == tmp_path / "copied"
    assert find_metadata_log(FS, tmp_path) is None
    assert find_metadata_log(FS, tmp_path / "absent") is None
