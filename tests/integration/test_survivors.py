"""docs/survivors.md: its commands, what is said, who refuses such a topic, and rounds that only time makes due."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cli.advice import advice
from cleaner.errors import ConfigError, PolicyRefusedError, UsageError
from tests.integration.log_dirs import NOW, Run, contents, offsets, record_offsets
from tests.reference.batches import Rec, read_batches, read_records
from tests.support.batch_builder import Record, legacy_batch
from tests.support.log_builder import HIGH_WATERMARKS, LogBuilder, offset_checkpoint, write_log_dir

PAGE = Path(__file__).resolve().parents[2] / "docs" / "survivors.md"
PARTITION = "prices-0"
COMPACT = {"cleanup.policy": "compact"}
BY_VERSION = COMPACT | {"cleaner.survivor": "header:version"}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def versioned(key: bytes, value: bytes | None, version: bytes | None, time_ms: int) -> Record:
    """Return a record with a version."""
    headers = () if version is None else ((b"version", version),)
    return Record(key, value, None, time_ms, headers)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Of `a` the old state comes last, of `b` a state without a version; all of it is below the active segment."""
    log = LogBuilder(TopicPartition.parse(PARTITION))
    log.append(versioned(b"a", b"new", b"12", NOW - DAY_MS), versioned(b"b", b"first", b"1", NOW - HOUR_MS))
    log.roll()
    log.append(versioned(b"a", b"old", b"7", NOW - 2 * DAY_MS), versioned(b"b", b"unnumbered", None, NOW - HOUR_MS))
    log.roll()
    (tmp_path / "logs").mkdir()
    return write_log_dir(tmp_path / "logs", log)


def records(log_dir: Path) -> list[Rec]:
    """Return the partition's records."""
    return [
        record
        for path in sorted((log_dir / PARTITION).glob("*.log"))
        for batch in read_batches(path.read_bytes())
        for record in read_records(batch)
    ]


def values(log_dir: Path) -> dict[int, bytes | None]:
    """Return the value at each offset."""
    return {record.offset: record.value for record in records(log_dir)}


def commands() -> list[str]:
    """Return the commands of the page."""
    return re.findall(r"^ {4}(cleaner .*)$", PAGE.read_text(), re.MULTILINE)


def test_commands_of_the_page_do_what_it_says_and_take_it_back(log_dir: Path, tmp_path: Path, run: Run) -> None:
    """plan names the rule, clean keeps the greater version, undo brings every file back; then all expires."""
    plan, clean, undo, expire = (
        shlex.split(each.replace("$LOG_DIR", str(log_dir)).replace("$KEPT", str(tmp_path / "kept")))[1:]
        for each in commands()
    )
    before = contents(log_dir)
    code, _, said = run(*plan)
    assert code == 0
    assert "of each key the record with the greatest number in its header 'version' stays, not the last one" in said
    assert contents(log_dir) == before
    code, _, said = run(*clean)
    assert code == 0
    assert "2 last records went, which Kafka would keep" in said
    assert values(log_dir) == {0: b"new", 1: b"first"}
    assert run(*undo)[0] == 0
    assert contents(log_dir) == before
    code, _, said = run(*expire, "--now", str(NOW + 40 * DAY_MS))
    assert code == 0
    assert "cleaner.record.ttl.ms=2592000000 (30 d): 2 records became tombstones, which Kafka would keep" in said
    assert values(log_dir) == {2: None, 3: None}


def test_json_names_the_rules_and_says_nothing_of_other_topics(log_dir: Path, run: Run) -> None:
    """survivor, outranked_records, record_ttl_ms and expired_records, of plan and clean."""
    sets = f"{log_dir} --format json --set cleanup.policy=compact {PARTITION} --now {NOW}".split()
    own = f"--set prices:cleaner.survivor=timestamp --set prices:cleaner.record.ttl.ms={HOUR_MS}".split()
    plain = json.loads(run("plan", *sets)[1])
    assert (plain["survivor"], plain["record_ttl_ms"]) == ("", None)
    planned = json.loads(run("plan", *sets, *own)[1])
    assert (planned["survivor"], planned["record_ttl_ms"]) == ("timestamp", HOUR_MS)
    found = json.loads(run("clean", *sets, *own)[1])
    assert (found["survivor"], found["outranked_records"]) == ("timestamp", 1)
    assert (found["record_ttl_ms"], found["expired_records"]) == (HOUR_MS, 2)
    assert values(log_dir) == {0: None, 3: None}


@pytest.mark.parametrize("text", ["", "latest", "header:", "Timestamp", "header"])
def test_other_rules_are_refused_by_name(log_dir: Path, text: str) -> None:
    """As a setting, and where a reader is told."""
    with pytest.raises(ConfigError, match=r"cleaner\.survivor=.*must be offset, timestamp or header:NAME"):
        cleaner.clean(log_dir, PARTITION, COMPACT | {"cleaner.survivor": text or "x"})
    with cleaner.open_reader(log_dir, "prices") as reader, pytest.raises(UsageError, match="survivor is"):
        reader.latest(survivor=text)


def test_checkpoint_does_not_hide_the_greater_number(log_dir: Path) -> None:
    """A round compares the clean section, too; one by offsets has left what was last, and that stays."""
    cleaner.clean(log_dir, PARTITION, BY_VERSION, now_ms=NOW)
    assert offsets(log_dir, "cleaner")[PARTITION] == 4
    report = cleaner.clean(log_dir, PARTITION, BY_VERSION, now_ms=NOW)
    assert (report.first_dirty_offset, report.removed.total, report.outranked_records) == (0, 0, 0)
    assert values(log_dir) == {0: b"new", 1: b"first"}


def test_map_without_room_for_all_keys_is_refused_before_anything_changes(log_dir: Path) -> None:
    """The record that stays might be beyond; the error says how many keys fit."""
    before = contents(log_dir)
    tiny = {"log.cleaner.dedupe.buffer.size": "48", "log.cleaner.io.buffer.load.factor": "1.0"}
    with pytest.raises(PolicyRefusedError, match=r"raise log\.cleaner\.dedupe\.buffer\.size \(it holds 1 keys"):
        cleaner.clean(log_dir, PARTITION, BY_VERSION | tiny, now_ms=NOW)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(offset_checkpoint({TopicPartition.parse(PARTITION): 2}))
    before = contents(log_dir)
    with pytest.raises(PolicyRefusedError) as refusal:
        cleaner.clean(log_dir, PARTITION, BY_VERSION | tiny, now_ms=NOW)
    assert advice(refusal.value).startswith(f"`cleaner plan {log_dir} {PARTITION} --estimate` says which buffer")
    for sampling in (None, cleaner.Sampling()):
        [entry] = cleaner.plan(log_dir, BY_VERSION | tiny, now_ms=NOW, sampling=sampling)
        assert entry.rounds is not None
        assert entry.rounds.keys == (4 if sampling is None else 2)
        assert entry.rounds.one_round_buffer_size == 32 * (entry.rounds.keys + 1)
    with pytest.raises(PolicyRefusedError, match="let a round cover the whole log"):
        cleaner.clean(log_dir, PARTITION, BY_VERSION, now_ms=NOW, max_dirty_bytes=1)
    assert contents(log_dir) == before
    enough = {"log.cleaner.dedupe.buffer.size": str(32 * 3)} | {"log.cleaner.io.buffer.load.factor": "1.0"}
    assert cleaner.clean(log_dir, PARTITION, BY_VERSION | enough, now_ms=NOW).rounds == 1


def test_verify_proves_the_round_by_the_same_settings_only(log_dir: Path, tmp_path: Path) -> None:
    """By Kafka's rule the last records are lost, and those that stay are superseded."""
    before = shutil.copytree(log_dir, tmp_path / "before")
    own = BY_VERSION | {"cleaner.record.ttl.ms": str(12 * HOUR_MS)}
    cleaner.clean(log_dir, PARTITION, own, now_ms=NOW)
    assert values(log_dir) == {0: None, 1: b"first"}
    assert cleaner.verify(before, log_dir, PARTITION, own, now_ms=NOW).is_proven
    for other in (COMPACT, BY_VERSION, COMPACT | {"cleaner.record.ttl.ms": "1"}):
        assert not cleaner.verify(before, log_dir, PARTITION, other, now_ms=NOW).is_proven


def test_readers_are_told_the_rule(log_dir: Path) -> None:
    """`latest` goes by offsets, or by what it is told."""
    with cleaner.open_reader(log_dir, "prices") as reader:
        with reader.latest() as latest:
            assert latest.to_dict() == {b"a": b"old", b"b": b"unnumbered"}
        with reader.latest(survivor="header:version") as latest:
            assert latest.to_dict() == {b"a": b"new", b"b": b"first"}
        with reader.latest(survivor="timestamp") as latest:
            assert latest.to_dict() == {b"a": b"new", b"b": b"unnumbered"}


def test_log_without_anything_dirty_expires_and_lets_its_tombstones_go(log_dir: Path) -> None:
    """When a batch's newest record is too old, without `cleaner.quiet.cleaning`; a day later the tombstones go."""
    own = COMPACT | {"cleaner.record.ttl.ms": str(30 * DAY_MS)}

    def clean(days: int) -> cleaner.CleanReport:
        return cleaner.clean(log_dir, PARTITION, own, now_ms=NOW + days * DAY_MS)

    assert clean(0).expired_records == 0
    assert values(log_dir) == {2: b"old", 3: b"unnumbered"}
    early = clean(29)
    assert (early.rounds, early.expired_records) == (0, 0)
    assert early.next_horizon_ms == NOW - HOUR_MS + 30 * DAY_MS
    late = clean(31)
    assert (late.expired_records, late.note) == (2, "nothing dirty: what waited for its time")
    assert values(log_dir) == {2: None, 3: None}
    assert [record.timestamp for record in records(log_dir)] == [NOW - 2 * DAY_MS, NOW - HOUR_MS]
    assert clean(31).rounds == 0 or values(log_dir) == {2: None, 3: None}
    assert clean(33).removed.tombstones == 2
    assert record_offsets(log_dir / PARTITION) == []


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_expire_in_a_log_without_anything_dirty(tmp_path: Path, magic: int, codec: str) -> None:
    """As an old broker has cleaned it: no round has made batches of magic 2 of them. Those of magic 0 have no time."""
    log = LogBuilder(TopicPartition.parse(PARTITION))
    log.append(("a", "1"), ("b", "2"), magic=magic, codec=codec, timestamp_ms=NOW - DAY_MS)
    log.roll()
    log.append(("end", "value"), timestamp_ms=NOW)
    log_dir = write_log_dir(tmp_path, log, cleaner_offsets={log.topic_partition: 2})
    own = COMPACT | {"cleaner.record.ttl.ms": str(30 * DAY_MS)}
    before = contents(log_dir / PARTITION)

    def clean(days: int) -> cleaner.CleanReport:
        return cleaner.clean(log_dir, PARTITION, own, now_ms=NOW + days * DAY_MS)

    assert clean(28).rounds == 0
    assert clean(30).expired_records == (2 if magic else 0)
    if magic:
        assert clean(32).removed.tombstones == 2
        assert record_offsets(log_dir / PARTITION) == [2]
    else:
        assert contents(log_dir / PARTITION) == before


def test_packing_a_log_without_anything_dirty_lets_records_expire_first(log_dir: Path, tmp_path: Path) -> None:
    """What is past its time goes as without `--recompress`, and the rest is packed; `undo` takes back both."""
    own = COMPACT | {"cleaner.record.ttl.ms": str(30 * DAY_MS)}

    def clean(days: int, kept: Path | None = None) -> cleaner.CleanReport:
        now_ms = NOW + days * DAY_MS
        return cleaner.clean(log_dir, PARTITION, own, now_ms=now_ms, recompress="zstd", keep_old=kept)

    clean(0)
    before = shutil.copytree(log_dir, tmp_path / "before")
    report = clean(31, tmp_path / "kept")
    assert (report.expired_records, report.rounds) == (2, 2)
    assert report.note == "nothing dirty: what waited for its time: all batches are packed already"
    assert values(log_dir) == {2: None, 3: None}
    proof = cleaner.verify(before, log_dir, PARTITION, own, now_ms=NOW + 31 * DAY_MS, recompressed=True)
    assert proof.is_proven, proof.findings
    cleaner.undo(tmp_path / "kept", own)
    assert values(log_dir) == {2: b"old", 3: b"unnumbered"}
    clean(31)
    assert clean(33).removed.tombstones == 2
    assert record_offsets(log_dir / PARTITION) == []


@pytest.mark.parametrize("more", [{"settings": {"cleaner.quiet.cleaning": "true"}}, {"recompress": "zstd"}])
def test_checkpoint_within_the_segment_where_the_range_ends_is_no_error(log_dir: Path, more: dict[str, Any]) -> None:
    """Nothing can be cleaned, and nothing fails: the range ends below the checkpoint."""
    partition = TopicPartition.parse(PARTITION)
    (log_dir / "cleaner-offset-checkpoint").write_bytes(offset_checkpoint({partition: 3}))
    (log_dir / HIGH_WATERMARKS).write_bytes(offset_checkpoint({partition: 3}))
    before = contents(log_dir / PARTITION)
    settings = COMPACT | more.pop("settings", {})
    report = cleaner.clean(log_dir, PARTITION, settings, now_ms=NOW + 90 * DAY_MS, **more)
    assert report.rounds == 0
    assert {name: data for name, data in contents(log_dir / PARTITION).items() if name.endswith(".log")} == {
        name: data for name, data in before.items() if name.endswith(".log")
    }


def test_verify_begins_at_the_log_start_if_the_checkpoint_was_above_the_end(log_dir: Path, tmp_path: Path) -> None:
    """As the round did (R-405)."""
    (log_dir / "cleaner-offset-checkpoint").write_bytes(offset_checkpoint({TopicPartition.parse(PARTITION): 99}))
    before = shutil.copytree(log_dir, tmp_path / "before")
    cleaner.clean(log_dir, PARTITION, COMPACT, now_ms=NOW)
    report = cleaner.verify(before, log_dir, PARTITION, COMPACT, now_ms=NOW)
    assert report.is_proven, report.findings
    assert (report.first_dirty_offset, report.end_offset) == (0, 4)


@pytest.mark.parametrize("sampled", [False, True])
def test_estimate_knows_the_rules(tmp_path: Path, sampled: bool) -> None:
    """What is freed is what a round frees: the greatest versions are small here, and half of them expire."""
    log, lot = LogBuilder(TopicPartition.parse(PARTITION), segment_bytes=1 << 20), Random(1)
    for _ in range(1500):
        versions = [lot.randrange(1000) for _ in range(8)]
        log.append(
            *[
                versioned(
                    b"key-%d" % lot.randrange(3000), bytes(1000 - each), b"%d" % each, NOW - lot.choice((0, DAY_MS))
                )
                for each in versions
            ]
        )
    log.roll()
    log.append((b"last", b"v"))
    write_log_dir(tmp_path, log)
    total = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    settings = BY_VERSION | {"cleaner.record.ttl.ms": str(HOUR_MS)}
    freed = []
    for each in (settings, {"cleanup.policy": "compact"}):
        [entry] = cleaner.plan(tmp_path, each, now_ms=NOW, sampling=cleaner.Sampling(total // 3 if sampled else None))
        assert entry.estimate is not None
        freed.append(entry.estimate.bytes_freed)
    report = cleaner.clean(tmp_path, PARTITION, settings, now_ms=NOW)
    truth = report.bytes_read - report.bytes_written
    assert freed[0] == pytest.approx(truth, abs=(0.05 if sampled else 0.01) * total)
    assert abs(freed[1] - truth) > 0.1 * total


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_last_batch_of_an_old_format_may_lose_all_its_records(tmp_path: Path, codec: str) -> None:
    """Its place is kept by an empty batch of format 2; by Kafka's rule the same log is cleaned as ever (R-546)."""
    log = LogBuilder(TopicPartition.parse(PARTITION))
    log.append(versioned(b"k", b"newer", None, NOW), versioned(b"other", b"v", None, NOW))
    log.append_raw(legacy_batch([Record(b"k", b"older", 2 + i, NOW - DAY_MS) for i in range(2)], 2, 1, codec=codec))
    log.roll()
    log_dir, before = tmp_path / "logs", tmp_path / "before"
    log_dir.mkdir()
    write_log_dir(log_dir, log)
    shutil.copytree(log_dir, before)
    by_time = COMPACT | {"cleaner.survivor": "timestamp"}
    report = cleaner.clean(log_dir, PARTITION, by_time, now_ms=NOW)
    assert (report.removed.superseded, report.outranked_records) == (2, 1)
    assert values(log_dir) == {0: b"newer", 1: b"v"}
    [last] = read_batches(next((log_dir / PARTITION).glob("*.log")).read_bytes())[1:]
    assert (last.magic, last.count, last.last_offset) == (2, 0, 3)
    proof = cleaner.verify(before, log_dir, PARTITION, by_time, now_ms=NOW)
    assert proof.is_proven, proof.findings
