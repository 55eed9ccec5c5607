"""`cleaner gaps`: what it says of directories of every kind, and that it changes nothing in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import cleaner
from cleaner import GapReason, GapReport
from cleaner.app.gaps_log_dir import BARE, ELSEWHERE, IN_USE, NO_START, TIERED
from cleaner.cli.main import main
from cleaner.errors import UsageError
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log
from tests.support.batch_builder import Producer, Record
from tests.support.batch_reader import split_batches
from tests.support.log_builder import CLEAN_SHUTDOWN, LogBuilder, write_log_dir

FIRST = "00000000000000000000.log"
COMPACT = {"cleanup.policy": "compact"}
DELETE = {"cleanup.policy": "delete"}

Capture = pytest.CaptureFixture[str]


def log_of(*segments: int) -> LogBuilder:
    """Return a log with so many batches of one record in each segment."""
    log = LogBuilder()
    for number, batches in enumerate(segments):
        if number:
            log.roll()
        for _ in range(batches):
            log.append((b"k%d" % (log.next_offset % 3), b"v"))
    return log


def account(log_dir: Path, policy: dict[str, str] | None = None, partition: str | None = "topic-0") -> GapReport:
    """Return the account of the only partition."""
    (report,) = cleaner.gaps(log_dir, partition, policy)
    assert isinstance(report, GapReport), report
    return report


def reasons(report: GapReport) -> dict[str, list[tuple[int, int]]]:
    """Return the listed ranges by reason."""
    return {gap.reason.name.lower(): [(each.first, each.last) for each in gap.listed] for gap in report.gaps}


def cut_batch(path: Path, number: int) -> None:
    """Take one batch out of a file."""
    batches = split_batches(path.read_bytes())
    path.write_bytes(b"".join(batches[:number] + batches[number + 1 :]))


def run(capsys: Capture, *arguments: str | Path) -> tuple[int, str, str]:
    """Run the command; returns its exit code and what it has printed."""
    code = main(["gaps", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


# ---- what is lost ------------------------------------------------------------------------------------------------


def test_hole_in_a_log_that_is_never_compacted_is_a_loss(tmp_path: Path, capsys: Capture) -> None:
    """A batch that is cut out, and a segment that is gone; the largest range comes first."""
    log_dir = write_log_dir(tmp_path, log_of(4, 5, 2))
    cut_batch(log_dir / "topic-0" / FIRST, 1)
    (log_dir / "topic-0" / "00000000000000000004.log").unlink()
    found = contents(log_dir)

    code, out, err = run(capsys, log_dir, "--set", "topic:cleanup.policy=delete")

    assert (code, err, contents(log_dir)) == (1, "", found)
    assert out.splitlines() == [
        "topic-0: offsets 0-10, 5 with a record; 6 missing, 6 LOST",
        "  lost         6: 4-8, 1",
        "               gone, and no rule explains it",
    ]


def test_same_hole_in_a_compacted_log_proves_nothing(tmp_path: Path) -> None:
    """An interrupted round leaves it, and a leader that has cleaned farther."""
    log_dir = write_log_dir(tmp_path, log_of(4, 5, 2))
    (log_dir / "topic-0" / "00000000000000000004.log").unlink()
    report = account(log_dir, COMPACT)
    assert reasons(report) == {"unexplained": [(4, 8)]}
    assert report.notes == (ELSEWHERE,)
    assert not report.is_complete


@pytest.mark.parametrize(("cleaned", "expected"), [(4, "unexplained"), (9, "compacted")])
def test_checkpoint_says_which_holes_are_of_a_round(tmp_path: Path, cleaned: int, expected: str) -> None:
    """Below it a lost segment cannot be told from a cleaned one."""
    log = log_of(4, 5, 2)
    log_dir = write_log_dir(tmp_path, log, cleaner_offsets={log.topic_partition: cleaned})
    (log_dir / "topic-0" / "00000000000000000004.log").unlink()
    assert reasons(account(log_dir, COMPACT)) == {expected: [(4, 8)]}


def test_hole_across_the_checkpoint_is_two(tmp_path: Path) -> None:
    """The round has had no part in what lies above its end."""
    log = log_of(4, 5, 2)
    log_dir = write_log_dir(tmp_path, log, cleaner_offsets={log.topic_partition: 6})
    (log_dir / "topic-0" / "00000000000000000004.log").unlink()
    assert reasons(account(log_dir, COMPACT)) == {"compacted": [(4, 5)], "unexplained": [(6, 8)]}


@pytest.mark.parametrize("trace", ["sparse", "horizon"])
def test_trace_of_cleaning_behind_a_hole_explains_it(tmp_path: Path, trace: str) -> None:
    """Whatever the checkpoint says, and the present policy: a round begins at the log's start."""
    log = log_of(4)
    log.skip(3)
    if trace == "sparse":
        log.append(Record(b"k", b"v", 7), last_offset=8)
    else:
        log.append(Record(b"k", None, 7), delete_horizon_ms=NOW)
    end = log.next_offset
    log.roll()
    log.append((b"k", b"v"))
    log.skip(2)
    log.append((b"k", b"v"))
    report = account(write_log_dir(tmp_path, log), DELETE)
    holes = {"sparse": [(4, 6), (7, 8)], "horizon": [(4, 6)]}[trace]
    assert reasons(report) == {"unexplained": [(end + 1, end + 2)], "compacted": holes}
    assert report.traces_end_offset == end


@pytest.mark.parametrize("evidence", ["high watermark", "recovery point", "snapshot"])
def test_log_that_ends_before_what_its_files_say_has_lost_its_end(tmp_path: Path, evidence: str) -> None:
    """Any of them is enough."""
    log = log_of(4, 5)
    line = {log.topic_partition: 9}
    log_dir = write_log_dir(
        tmp_path,
        log,
        high_watermarks=line if evidence == "high watermark" else {},
        recovery_points=line if evidence == "recovery point" else {},
    )
    if evidence != "snapshot":
        (log_dir / "topic-0" / "00000000000000000009.snapshot").unlink()
    (log_dir / "topic-0" / "00000000000000000004.log").unlink()
    report = account(log_dir, COMPACT)
    assert reasons(report) == {"lost": [(4, 8)]}
    assert (report.log_end_offset, report.end_offset) == (4, 9)
    assert report.notes == ("the log ends at 4; checkpoints and snapshots say that it had come to 9",)


def test_log_that_begins_after_what_its_files_say_has_lost_its_beginning(tmp_path: Path) -> None:
    """Retention raises the first epoch's start; nobody did here."""
    log_dir = write_log_dir(tmp_path, log_of(4, 5))
    (log_dir / "topic-0" / FIRST).unlink()
    assert reasons(account(log_dir, COMPACT)) == {"lost": [(0, 3)]}
    # A process that was killed may not have come to that, and tiered storage may have them.
    (log_dir / CLEAN_SHUTDOWN).unlink()
    assert reasons(account(log_dir, COMPACT)) == {"unexplained": [(0, 3)]}
    (log_dir / CLEAN_SHUTDOWN).write_text("{}")
    (log_dir / "remote-log-index-cache").mkdir()
    report = account(log_dir, COMPACT)
    assert reasons(report) == {"unexplained": [(0, 3)]}
    assert TIERED in report.notes


def test_start_that_no_file_records_is_retentions_with_a_note(tmp_path: Path) -> None:
    """Nothing else can be said."""
    log_dir = write_log_dir(tmp_path, log_of(4, 5))
    (log_dir / "topic-0" / FIRST).unlink()
    (log_dir / "topic-0" / "leader-epoch-checkpoint").unlink()
    report = account(log_dir, COMPACT)
    assert reasons(report) == {"retention": [(0, 3)]}
    assert (report.notes, report.missing, report.is_complete) == ((NO_START,), 0, True)


def test_log_start_inside_of_a_batch_cuts_it(tmp_path: Path) -> None:
    """Readers begin there; of a batch that has lost records the records are counted."""
    log = LogBuilder()
    log.append(Record(b"a", b"v", 0), Record(b"b", b"v", 2), Record(b"c", b"v", 5), last_offset=7)
    log.append((b"a", b"v"), (b"b", b"v"))
    for start, records, gone in ((0, 5, 5), (1, 4, 5), (2, 4, 4), (3, 3, 4), (6, 2, 2), (8, 2, 0), (9, 1, 0)):
        log_dir = write_log_dir(tmp_path / str(start), log, log_start_offsets={log.topic_partition: start})
        report = account(log_dir, COMPACT)
        assert (report.records, report.offsets_of(GapReason.COMPACTED)) == (records, gone), start
        assert report.offsets_of(GapReason.RETENTION) == start


# ---- transactions --------------------------------------------------------------------------------------------------


def test_aborted_records_are_hidden_until_they_are_removed(tmp_path: Path) -> None:
    """Markers take offsets, too."""
    log = LogBuilder()
    log.append((b"a", b"1"), (b"b", b"1"), producer=Producer(7, 0, 0, True))
    log.append((b"a", b"2"))
    log.end_transaction(7, 0, commit=False)
    log.append((b"a", b"3"), producer=Producer(7, 0, 2, True))
    log.end_transaction(7, 0, commit=True)
    log.roll()
    log.append((b"z", b"9"))
    log_dir = write_log_dir(tmp_path, log)
    before = account(log_dir, COMPACT)
    assert reasons(before) == {"hidden": [(0, 1)], "markers": [(3, 3), (5, 5)]}
    assert (before.records, before.is_complete) == (3, True)
    cleaner.clean(log_dir, "topic-0", COMPACT, now_ms=NOW)
    # The record of offset 2 is superseded, and lies between the first record and the marker of what was aborted.
    assert reasons(account(log_dir, COMPACT)) == {"aborted": [(0, 2)], "markers": [(3, 3), (5, 5)]}


def test_aborted_data_is_gone_from_the_whole_segment_in_which_a_round_ended(tmp_path: Path) -> None:
    """A map that was full ends within a segment, which is recopied whole; the next one is not touched."""
    log = LogBuilder()
    log.append((b"a", b"1"))
    for producer in (7, 8):
        for number in range(3):
            log.append((b"a", b"2"), producer=Producer(producer, 0, number, True))
        log.end_transaction(producer, 0, commit=False)
        log.append((b"a", b"3"))
        if producer == 7:
            log.roll()
    log_dir = write_log_dir(tmp_path, log, cleaner_offsets={log.topic_partition: 1})
    cut_batch(log_dir / "topic-0" / FIRST, 2)
    cut_batch(log_dir / "topic-0" / "00000000000000000006.log", 1)
    found = reasons(account(log_dir, COMPACT))
    assert (found["aborted"], found["unexplained"], found["hidden"]) == (
        [(2, 2)],
        [(7, 7)],
        [(1, 1), (3, 3), (6, 6), (8, 8)],
    )


# ---- damage --------------------------------------------------------------------------------------------------------


def test_damaged_batch_is_named_and_other_partitions_go_on(tmp_path: Path, capsys: Capture) -> None:
    """Its offsets are unreadable: no less, and no others."""
    log_dir = write_log_dir(tmp_path, log_of(4, 2), keyed_log("users-0"))
    path = log_dir / "topic-0" / FIRST
    flip_bit(path, len(split_batches(path.read_bytes())[0]) + 65)
    code, out, _ = run(capsys, log_dir, "--format", "json", "--set", "cleanup.policy=compact")
    damaged, sound = map(json.loads, out.splitlines())
    assert code == 1
    (found,) = damaged["damage"]
    assert (found["kind"], found["path"], found["offset"]) == ("batch-checksum", str(path), 1)
    assert [(gap["reason"], gap["listed"]) for gap in damaged["gaps"]] == [
        ("unreadable", [{"first": 1, "last": 1, "count": 1}])
    ]
    assert (damaged["is_complete"], sound["is_complete"]) == (False, True)


def test_bytes_that_are_no_batch_hide_what_lies_in_their_place(tmp_path: Path) -> None:
    """Reading goes on behind them."""
    log_dir = write_log_dir(tmp_path, log_of(6, 2))
    path = log_dir / "topic-0" / FIRST
    batches = split_batches(path.read_bytes())
    path.write_bytes(b"".join([*batches[:2], b"\xff" * 150, *batches[4:]]))
    report = account(log_dir, DELETE)
    assert reasons(report) == {"unreadable": [(2, 3)]}
    assert report.records == 6


def test_damage_hides_only_what_lies_next_to_it(tmp_path: Path) -> None:
    """At a segment's end it says nothing of the next one's holes, and two damages in a row are two."""
    log_dir = write_log_dir(tmp_path, log_of(8, 4))
    first, second = (log_dir / "topic-0" / name for name in (FIRST, "00000000000000000008.log"))
    batches = split_batches(first.read_bytes())
    broken = [bytes([*batch[:-2], batch[-2] ^ 1, batch[-1]]) for batch in batches]
    first.write_bytes(b"".join([*batches[:2], b"\xff" * 150, batches[4], broken[5], batches[6], broken[7]]))
    cut_batch(second, 0)
    report = account(log_dir, DELETE)
    assert reasons(report) == {"lost": [(8, 8)], "unreadable": [(2, 3), (5, 5), (7, 7)]}
    assert report.records == 7


def test_torn_end_of_a_log_that_was_not_closed_is_a_note(tmp_path: Path) -> None:
    """Of one that was closed it is damage; either way its offsets are not there."""
    log = log_of(4)
    log_dir = write_log_dir(tmp_path, log, clean_shutdown=False, high_watermarks={}, recovery_points={})
    path = log_dir / "topic-0" / FIRST
    for snapshot in path.parent.glob("*.snapshot"):
        snapshot.unlink()
    path.write_bytes(path.read_bytes()[:-5])
    report = account(log_dir, DELETE)
    assert [(each.kind, each.is_damage) for each in report.damage] == [("torn-end", False)]
    assert (report.is_complete, report.end_offset) == (True, 3)
    (log_dir / CLEAN_SHUTDOWN).write_text("{}")
    assert not account(log_dir, DELETE).is_complete


def test_partition_without_a_segment_is_refused_alone(tmp_path: Path, capsys: Capture) -> None:
    """The others are read."""
    log_dir = write_log_dir(tmp_path, log_of(2), keyed_log("users-0"))
    for path in (log_dir / "topic-0").glob("*"):
        path.unlink()
    code, out, err = run(capsys, log_dir)
    assert code == 1
    assert "topic-0" in err and "no segments" in err
    assert "users-0: offsets 0-" in out


# ---- directories ---------------------------------------------------------------------------------------------------


def test_bare_partition_needs_its_policy(tmp_path: Path, capsys: Capture) -> None:
    """It may lie anywhere, with anything beside it; a `--set` without a topic is then meant for it."""
    log_dir = write_log_dir(tmp_path / "logs", log_of(4, 5, 2))
    archive = tmp_path / "archive"
    shutil.copytree(log_dir / "topic-0", archive / "topic-0")
    (archive / "notes").mkdir()
    (archive / "topic-0" / "00000000000000000004.log").unlink()
    report = account(archive / "topic-0", partition=None)
    assert reasons(report) == {"unexplained": [(4, 8)]}
    assert report.notes[0] == BARE
    assert "--set topic:cleanup.policy=" in report.notes[1]
    code, out, _ = run(capsys, archive / "topic-0", "--set", "cleanup.policy=delete")
    assert code == 1
    assert "5 LOST" in out
    code, out, _ = run(capsys, archive / "topic-0", "--trust-default-policy")
    assert code == 1
    assert "5 LOST" in out


def test_names_beside_a_partitions_directory_are_refused(tmp_path: Path) -> None:
    """One or the other."""
    log_dir = write_log_dir(tmp_path, log_of(4))
    with pytest.raises(UsageError, match="no names"):
        cleaner.gaps(log_dir / "topic-0", "topic-0")


def test_running_process_is_noted_and_its_checkpoints_prove_no_loss(tmp_path: Path) -> None:
    """It writes them at moments of its own."""
    with cleaner.LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("topic", 1, DELETE)
        manager.log("topic").append([cleaner.Record(b"k", b"v")]).durable.result()
        report = account(tmp_path / "logs")
    assert (report.in_use, report.records, report.gaps) == (True, 1, ())
    assert report.notes == (IN_USE,)
    assert not account(tmp_path / "logs").in_use


def test_empty_log_has_no_offsets(tmp_path: Path, capsys: Capture) -> None:
    """Nothing is missing in it."""
    with cleaner.LogManager(tmp_path / "logs", create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("topic", 1, DELETE)
        manager.log("topic")
    assert run(capsys, tmp_path / "logs") == (0, "topic-0: no offsets, 0 with a record; none is missing\n", "")


def test_many_ranges_and_damages_fit_a_screen(tmp_path: Path, capsys: Capture) -> None:
    """The first ones are shown, and how many more there are."""
    log = LogBuilder()
    for _ in range(40):
        log.append((b"k", b"v"))
        log.skip(1)
    log.append((b"k", b"v"))
    log_dir = write_log_dir(tmp_path, log)
    code, out, _ = run(capsys, log_dir, "--set", "topic:cleanup.policy=delete")
    assert code == 1
    assert "  lost         40: 1, 3, 5, 7, 9, and 35 more ranges\n" in out
    path = log_dir / "topic-0" / FIRST
    position = 0
    for batch in split_batches(path.read_bytes())[:15]:
        position += len(batch)
        flip_bit(path, position - 2)
    code, out, _ = run(capsys, log_dir, "--set", "topic:cleanup.policy=delete")
    assert out.count("  damage  batch-checksum") == 10
    assert "  and 5 more: --format json has the first thousand\n" in out
