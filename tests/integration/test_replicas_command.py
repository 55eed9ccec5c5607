"""`cleaner check --replicas` and `cleaner clean --safe-tombstones`: what they say, refuse, keep, and leave alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cleaner
from cleaner import ReplicasReport
from cleaner.cli.main import main
from cleaner.errors import UncleanableError, UsageError
from tests.integration.log_dirs import NOW, contents, flip_bit, record_offsets
from tests.support.batch_builder import Producer
from tests.support.log_builder import CLEAN_SHUTDOWN, TOPIC_ID, LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact", "--set", "topic:delete.retention.ms=1000")
DAY_MS = 86_400_000

Capture = pytest.CaptureFixture[str]


def log_of(*records: tuple[str, str | None], start: int = 0, end: int | None = None) -> LogBuilder:
    """Return a log with a batch for each record, in a segment for itself, and an active one with another key."""
    log = LogBuilder(base_offset=start)
    for number, record in enumerate(records):
        if number:
            log.roll()
        log.append(record, timestamp_ms=NOW - DAY_MS + log.next_offset)
    log.roll()
    if end is not None:
        log.skip(end - log.next_offset)
    log.append(("other", "value"), timestamp_ms=NOW)
    return log


@pytest.fixture
def behind(tmp_path: Path) -> tuple[Path, Path]:
    """Two replicas: the second ends below a tombstone of the first."""
    first = write_log_dir(tmp_path / "first", log_of(("k", "old"), ("j", None), ("k", None), ("x", "y")))
    log = LogBuilder()
    log.append(("k", "old"), timestamp_ms=NOW - DAY_MS)
    log.append(("j", None), timestamp_ms=NOW - DAY_MS + 1)
    return first, write_log_dir(tmp_path / "second", log)


def run(capsys: Capture, *arguments: str | Path) -> tuple[int, str, str]:
    """Run a command; returns its exit code and what it has printed."""
    code = main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_replica_that_is_behind_agrees_and_bounds_the_safe_offset(
    behind: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    """Nothing is changed, and the file says what was compared."""
    before, safe = contents(tmp_path), tmp_path / "safe.json"
    code, out, err = run(capsys, "check", "--replicas", *behind, "--safe-tombstones", safe, "--now", str(NOW))
    first, second = (directory / "topic-0" for directory in behind)
    assert code == 0
    assert out.splitlines() == [
        "topic-0: 2 replicas agree; 2 keys below offset 2 compared",
        f"  {first}: offsets 0 to 5, high watermark 5, 5 records, 358 B",
        f"  {second}: offsets 0 to 2, high watermark 2, 2 records, 141 B",
        "    it still needs 1 tombstone, from offset 2 on",
        f"  tombstones and markers below offset 2 may go: {second} ends there",
    ]
    assert err == f"  next: cleaner clean LOG_DIR TOPIC-PARTITION --safe-tombstones {safe}\n"
    document = json.loads(safe.read_text())
    safe.unlink()
    assert contents(tmp_path) == before
    assert (document["format"], document["format_version"], document["made_ms"]) == ("cleaner-safe-tombstones", 1, NOW)
    (point,) = document["partitions"]
    assert (point["partition"], point["safe_offset"], point["topic_id"]) == ("topic-0", 2, TOPIC_ID)
    assert [(each["path"], each["log_end_offset"]) for each in point["replicas"]] == [(str(first), 5), (str(second), 2)]


def test_tombstone_that_one_has_not_seen_stays_and_undo_takes_the_round_back(
    behind: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    """The one below goes at its time; the plan, the report and JSON say so."""
    log_dir, safe, kept = behind[0], tmp_path / "safe.json", tmp_path / "kept"
    cleaner.check_replicas(behind, safe_tombstones=safe)
    by_file = ("--safe-tombstones", safe, *COMPACT)
    code, _, err = run(capsys, "clean", log_dir, "topic-0", "--dry-run", *by_file)
    assert (code, "tombstones and markers from offset 2 on stay" in err) == (0, True)
    run(capsys, "clean", log_dir, "topic-0", *by_file, "--now", str(NOW), "--keep-old", tmp_path / "first kept")
    quiet = ("--set", "cleaner.quiet.cleaning=true")
    later = str(NOW + DAY_MS)
    before = contents(log_dir)
    code, out, err = run(
        *(capsys, "clean", log_dir, "topic-0", *by_file, *quiet, "--now", later, "--keep-old", kept),
        *("--format", "json"),
    )
    report = json.loads(out)
    assert (report["safe_offset"], report["held_tombstones"], report["held_markers"]) == (2, 1, 0)
    assert report["removed"]["tombstones"] == 1
    assert "1 tombstones and 0 markers were kept past their delete horizon" in err
    assert record_offsets(log_dir / "topic-0") == [2, 3, 4]
    assert run(capsys, "undo", kept)[0] == 0
    assert contents(log_dir) == before
    run(capsys, "clean", log_dir, "topic-0", *COMPACT, *quiet, "--now", later)
    assert record_offsets(log_dir / "topic-0") == [3, 4]


def test_deleted_key_that_lives_on_is_named_with_the_next_command(tmp_path: Path, capsys: Capture) -> None:
    """The second replica has passed the tombstone; without it, and with its old value."""
    first = write_log_dir(tmp_path / "first", log_of(("k\x1b[1m", "old"), ("a", "b"), ("k\x1b[1m", None)))
    second = write_log_dir(tmp_path / "second", log_of(("k\x1b[1m", "old"), ("a", "b"), end=3))
    code, out, err = run(capsys, "check", "--replicas", first, second)
    assert code == 1
    assert "topic-0: 2 replicas DISAGREE: 1 deleted still alive; 3 keys below offset 4 compared" in out
    assert f"  deleted_still_alive: key k\\x1b[1m, offset 2 in {first}/topic-0\n" in out
    assert f"    not in {second}/topic-0, there at offset 0: deleted in one, and an older value is alive" in out
    assert "below offset 2 may go: a replica has passed this tombstone or marker" in out
    assert "cleaner check --replicas ... --safe-tombstones FILE" in err
    code, out, _ = run(capsys, "check", "--replicas", first / "topic-0", second / "topic-0", "--format", "json")
    found = json.loads(out)
    assert (code, found["format"], found["agrees"]) == (1, "cleaner-replicas", False)
    assert found["total_differences"] == {"deleted_still_alive": 1}
    (difference,) = found["differences"]
    assert (difference["kind"], difference["key_base64"]) == ("deleted_still_alive", "axtbMW0=")


def test_aborted_data_that_is_back_and_lost_markers_are_found(tmp_path: Path) -> None:
    """The abort's marker is gone, so a later commit counts for its records, too."""
    logs = []
    for has_marker in (True, False):
        log = LogBuilder()
        log.append(("k", "aborted"), producer=Producer(7, 0, 0, transactional=True), timestamp_ms=NOW)
        if has_marker:
            log.end_transaction(7, 0, commit=False, timestamp_ms=NOW)
        else:
            log.skip(1)
        log.append(("j", "committed"), producer=Producer(7, 0, 1, transactional=True), timestamp_ms=NOW)
        log.end_transaction(7, 0, commit=True, timestamp_ms=NOW)
        logs.append(write_log_dir(tmp_path / str(has_marker), log))
    (report,) = cleaner.check_replicas(logs)
    assert isinstance(report, ReplicasReport)
    assert [(each.kind.name, each.offset, each.other_offset) for each in report.differences] == [
        ("ABORTED_IS_BACK", 0, None),
        ("MARKER_LOST", 1, 0),
    ]
    assert report.safe.safe_offset == 1


def test_logs_that_part_are_compared_up_to_there(tmp_path: Path) -> None:
    """By content, by epoch, and by `leader-epoch-checkpoint` alone; above all watermarks it is fine."""
    first = write_log_dir(tmp_path / "first", log_of(("a", "1"), ("b", "2"), ("c", "3")))
    second = write_log_dir(tmp_path / "second", log_of(("a", "1"), ("b", "other"), ("c", "3")))
    (report,) = cleaner.check_replicas([first, second])
    assert isinstance(report, ReplicasReport)
    assert report.parting is not None
    assert (report.agrees, report.parting.offset, report.end_offset) == (False, 1, 1)
    assert report.safe.safe_offset == 1
    (second / "topic-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 2\n")
    shutil.copy(first / "topic-0" / f"{1:020d}.log", second / "topic-0" / f"{1:020d}.log")
    (report,) = cleaner.check_replicas([first, second])
    assert isinstance(report, ReplicasReport)
    assert report.parting is not None
    assert report.parting.offset == 2
    assert "epoch 4 by one's leader-epoch-checkpoint, 0 in the other" in report.parting.reason
    for log_dir in (first, second):
        (log_dir / "replication-offset-checkpoint").write_text("0\n1\ntopic 0 2\n")
    (report,) = cleaner.check_replicas([first, second])
    assert isinstance(report, ReplicasReport)
    assert report.agrees
    assert any("never committed" in note for note in report.notes)


@pytest.mark.parametrize("bare", [0, 1])
def test_logs_that_part_below_the_end_of_one_without_a_watermark_disagree(tmp_path: Path, bare: int) -> None:
    """All of that log counts as replicated, whatever another's watermark is."""
    places = []
    for number, value in enumerate(("2", "other")):
        log = log_of(("a", "1"), ("b", value), ("c", "3"))
        marks = {} if number == bare else {log.topic_partition: 1}
        places.append(write_log_dir(tmp_path / str(number), log, high_watermarks=marks))
    (report,) = cleaner.check_replicas(places)
    assert isinstance(report, ReplicasReport)
    assert report.parting is not None
    assert (report.agrees, report.parting.offset, report.parting.is_above_high_watermark) == (False, 1, False)


def test_what_is_below_a_logs_start_or_behind_a_torn_end_does_not_count(tmp_path: Path) -> None:
    """Retention has removed it there; and a log that was not closed in order ends with its last whole batch."""
    first = write_log_dir(tmp_path / "first", log_of(("a", "1"), ("b", "2"), ("c", "3")))
    second = write_log_dir(tmp_path / "second", log_of(("c", "3"), start=2))
    (second / CLEAN_SHUTDOWN).unlink()
    last = max((second / "topic-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-3])
    (report,) = cleaner.check_replicas([first, second])
    assert isinstance(report, ReplicasReport)
    assert (report.agrees, report.end_offset) == (True, 3)
    assert any("was not closed in order" in note for note in report.notes)


def test_damage_refuses_one_partition_and_the_file_leaves_it_out(tmp_path: Path, capsys: Capture) -> None:
    """The other one is compared; `clean` refuses what the file does not have, and says what to do."""
    places = []
    for name in ("first", "second"):
        logs = [log_of(("a", "1"), ("b", "2")), log_of(("c", "3"))]
        logs[1].topic_partition = logs[1].topic_partition._replace(partition=1)
        places.append(write_log_dir(tmp_path / name, *logs))
    flip_bit(places[1] / "topic-1" / f"{0:020d}.log")
    safe = tmp_path / "safe.json"
    code, out, err = run(capsys, "check", "--replicas", *places, "--safe-tombstones", safe)
    assert (code, "topic-0: 2 replicas agree" in out) == (1, True)
    assert "topic-1/00000000000000000000.log: at byte 0: the CRC-32C does not match" in err
    assert [each["partition"] for each in json.loads(safe.read_text())["partitions"]] == ["topic-0"]
    code, _, err = run(capsys, "clean", places[0], "topic-0", "topic-1", "--safe-tombstones", safe, *COMPACT)
    assert code == 1
    assert f"{safe}: no replicas of topic-1 were compared: `cleaner check --replicas` compares them" in err
    assert run(capsys, "clean", places[0], "topic-1", "--dry-run", "--safe-tombstones", safe, *COMPACT)[0] == 1


def test_file_about_another_log_is_refused_and_changes_nothing(behind: tuple[Path, Path], tmp_path: Path) -> None:
    """A topic that was made again, a log that was cut, a file of another kind, and none."""
    safe, settings = tmp_path / "safe.json", {"cleanup.policy": "compact"}
    cleaner.check_replicas(behind, safe_tombstones=safe)
    before = contents(behind[0])
    good = safe.read_text()
    for change, said in (
        ((TOPIC_ID, "BBBBBBBBQACAAAAAAAAAAQ"), "with the topic id BBBBBBBBQACAAAAAAAAAAQ"),
        (('"safe_offset": 2', '"safe_offset": 20'), "ends at 5, below its safe offset 20: it was cut since"),
    ):
        safe.write_text(good.replace(*change))
        with pytest.raises(UncleanableError, match=said):
            cleaner.clean(behind[0], "topic-0", settings, safe_tombstones=safe)
    for text, said in (
        ("{}", "its format is None"),
        ("no", "not a file of"),
        (good.replace(": 2,", ": -2,"), "negative"),
    ):
        safe.write_text(text)
        with pytest.raises(UsageError, match=said):
            cleaner.clean(behind[0], "topic-0", settings, safe_tombstones=safe)
        with pytest.raises(UsageError, match=said):  # it does not replace what is something else
            cleaner.check_replicas(behind, safe_tombstones=safe)
        assert safe.read_text() == text
    with pytest.raises(UsageError, match="no such file; `cleaner check --replicas` writes it"):
        cleaner.clean(behind[0], "topic-0", settings, safe_tombstones=tmp_path / "none")
    assert contents(behind[0]) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name two or more directories"),
        (("first",), "name two or more directories"),
        (("first", "first"), "name two or more directories"),
        (("first", "nowhere"), "no such directory"),
        (("first", "second/topic-0"), "is the directory of a partition|is a log dir, others"),
        (("first/topic-0", "second/topic-0", "--partition", "topic-0"), "and names of partitions"),
        (("first", "second", "--partition", "topi-0"), "did you mean topic-0"),
        (("first", "second", "--repair"), "--repair does not go with --replicas"),
        (("first", "second", "--safe-tombstones", "nowhere/safe"), "there is no directory"),
    ],
)
def test_mistakes_are_named(
    behind: tuple[Path, Path], words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """Before anything is read."""
    import re

    monkeypatch.chdir(behind[0].parent)
    code, out, err = run(capsys, "check", "--replicas", *words)
    assert (code, out) == (2, "")
    assert re.search(said, err), err


def test_options_of_replicas_need_them(behind: tuple[Path, Path], capsys: Capture) -> None:
    """A plain check has no use for them."""
    code, _, err = run(capsys, "check", behind[0], "--safe-tombstones", behind[0].parent / "safe")
    assert (code, "--safe-tombstones goes with --replicas" in err) == (2, True)
