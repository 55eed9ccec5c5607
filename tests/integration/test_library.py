"""The library: the same as the commands, in frozen values and named errors."""

from __future__ import annotations

import dataclasses
import errno
import subprocess
import sys
from pathlib import Path

import pytest

import cleaner
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions, SetOption, Sources
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import CleanReport, Refusal
from cleaner.errors import (
    CleaningAborted,
    ConfigError,
    CorruptBatchError,
    LogDirLockedError,
    LogDirOfflineError,
    NotCleanlyShutDownError,
    PolicyRefusedError,
    UsageError,
)
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log, offsets, record_offsets
from tests.support.log_builder import write_log_dir

COMPACT = {"cleanup.policy": "compact"}


def test_clean_returns_a_frozen_report(tmp_path: Path) -> None:
    """Settings of the topic and of the broker may be mixed, and win over everything else."""
    write_log_dir(tmp_path, keyed_log())
    report = cleaner.clean(tmp_path, "topic-0", COMPACT | {"log.cleaner.dedupe.buffer.size": "2400"}, now_ms=NOW)
    assert (report.partition, report.end_offset, report.removed.superseded) == ("topic-0", 60, 55)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.end_offset = 0  # type: ignore[misc]


def test_settings_of_the_call_win_over_those_in_the_log_dir(tmp_path: Path) -> None:
    """They count as `--set` for this topic."""
    write_log_dir(tmp_path, keyed_log())
    (tmp_path / "cleaner-topics.properties").write_text("topic.cleanup.policy=compact\n")
    with pytest.raises(PolicyRefusedError):
        cleaner.clean(tmp_path, "topic-0", {"cleanup.policy": "delete"}, now_ms=NOW)
    assert cleaner.clean(tmp_path, "topic-0", now_ms=NOW).end_offset == 60


def test_errors_of_clean_have_names_and_leave_no_trace(tmp_path: Path) -> None:
    """Each raises its own CleanerError, and no file changes."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    with pytest.raises(PolicyRefusedError):
        cleaner.clean(tmp_path, "topic-0")
    with pytest.raises(ConfigError):
        cleaner.clean(tmp_path, "topic-0", {"segment.bytes": "many"})
    with pytest.raises(UsageError):
        cleaner.clean(tmp_path, "topic-9", COMPACT)
    with LogDirLock(FileSystem(), tmp_path), pytest.raises(LogDirLockedError):
        cleaner.clean(tmp_path, "topic-0", COMPACT)
    assert contents(tmp_path) == before
    assert issubclass(PolicyRefusedError, cleaner.CleanerError)


def test_damage_is_raised_with_file_and_position(tmp_path: Path) -> None:
    """The last batch of the first segment has a flipped bit."""
    write_log_dir(tmp_path, keyed_log())
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    flip_bit(path)
    with pytest.raises(CorruptBatchError) as raised:
        cleaner.clean(tmp_path, "topic-0", COMPACT, now_ms=NOW)
    assert (raised.value.path.name, raised.value.position) == (path.name, path.stat().st_size * 19 // 20)


def test_clean_without_marker_needs_recover(tmp_path: Path) -> None:
    """With `recover=True` the log is recovered, cleaned, and the log dir still has no marker."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    with pytest.raises(NotCleanlyShutDownError):
        cleaner.clean(tmp_path, "topic-0", COMPACT, now_ms=NOW)
    assert cleaner.clean(tmp_path, "topic-0", COMPACT, now_ms=NOW, recover=True).end_offset == 60
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


class StopAfter:
    """Asks to stop at the n-th check."""

    def __init__(self, questions: int) -> None:
        self.questions = questions

    def __call__(self) -> None:
        self.questions -= 1
        if self.questions < 0:
            raise CleaningAborted("stopped by the test")


def test_stop_at_any_question_leaves_old_or_new_groups_and_can_be_resumed(tmp_path: Path) -> None:
    """No temporary file is left, the checkpoint does not move, and the next call finishes."""
    settings = COMPACT | {"internal.segment.bytes": "3000"}
    whole = write_log_dir(tmp_path / "whole", keyed_log(segments=4))
    cleaner.clean(whole, "topic-0", settings, now_ms=NOW)
    stops = 0
    while True:
        log_dir = write_log_dir(tmp_path / str(stops), keyed_log(segments=4))
        try:
            cleaner.clean(log_dir, "topic-0", settings, now_ms=NOW, check_done=StopAfter(stops))
            break
        except CleaningAborted:
            stops += 1
        assert offsets(log_dir, "cleaner") == {}
        assert not [name for name in contents(log_dir) if name.endswith((".cleaned", ".swap", ".deleted"))]
        cleaner.clean(log_dir, "topic-0", settings, now_ms=NOW)
        assert record_offsets(log_dir / "topic-0") == record_offsets(whole / "topic-0")
    assert stops > 4


def test_progress_is_shown_for_both_phases(tmp_path: Path) -> None:
    """Bytes done never go back within a phase and end at the total."""
    write_log_dir(tmp_path, keyed_log())
    seen: dict[str, list[tuple[int, int]]] = {}
    cleaner.clean(
        tmp_path,
        "topic-0",
        COMPACT,
        now_ms=NOW,
        progress=lambda phase, done, total: seen.setdefault(phase, []).append((done, total)),
    )
    assert list(seen) == ["topic-0 map", "topic-0 copy"]
    for steps in seen.values():
        assert steps == sorted(steps)
        assert steps[-1][0] == steps[-1][1]


def test_progress_over_partitions_is_shown_in_bytes(tmp_path: Path) -> None:
    """As everywhere: those of the logs that were recovered, of those of all."""
    names = ("topic-0", "topic-1", "topic-2")
    write_log_dir(tmp_path, *map(keyed_log, names), clean_shutdown=False, recovery_points={})
    seen: list[tuple[str, int, int]] = []
    lent = CallContext.of(now_ms=NOW, progress=lambda *step: seen.append(step))
    sizes = [report.bytes_before for report in recover_log_dir(tmp_path, None, Sources(), lent).partitions]
    assert len(sizes) == 3 and min(sizes) > 1000
    assert seen == [(f"{name} recover", sum(sizes[:n]), sum(sizes)) for n, name in enumerate(names)]


def test_plan_lists_frozen_entries(tmp_path: Path) -> None:
    """The same entries as the command's."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("other-0"))
    (tmp_path / "cleaner-topics.properties").write_text("topic.cleanup.policy=compact\n")
    entries = cleaner.plan(tmp_path, now_ms=NOW)
    assert [(e.partition, e.policy, e.is_due) for e in entries] == [
        ("other-0", "delete", False),
        ("topic-0", "compact", True),
    ]
    assert entries[1].policy_origin == "cleaner-topics.properties"


def test_recover_reports_what_was_refused(tmp_path: Path) -> None:
    """A refused partition is no exception: the others are recovered."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), clean_shutdown=False, recovery_points={})
    flip_bit(tmp_path / "topic-1" / "00000000000000000000.log")
    report = cleaner.recover(tmp_path, now_ms=NOW)
    assert [p.partition for p in report.partitions] == ["topic-0"]
    assert [refusal.partition for refusal in report.refused] == ["topic-1"]
    assert (report.has_marker, "a broker will recover" in report.note) == (False, True)
    report = cleaner.recover(tmp_path, now_ms=NOW, allow_truncate=True)
    assert (len(report.partitions), report.has_marker) == (2, True)


@pytest.mark.parametrize(
    "statement", ["import cleaner", "import cleaner.cli.main; cleaner.cli.main.make_parser().format_help()"]
)
def test_import_and_help_load_nothing_heavy(statement: str) -> None:
    """A usage error must not take a second."""
    heavy = "('numpy', 'numba', 'structlog', 'cramjam', 'prometheus_client')"
    code = f"import sys; {statement}; sys.exit(' '.join(m for m in {heavy} if m in sys.modules) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def refusing(tmp_path: Path, error: Exception) -> list[object]:
    """Clean three partitions of which the first one's log raises when it is opened; returns the outcomes."""

    class Disk(FileSystem):
        def open(self, path: Path, *, write: bool = False) -> File:
            if path.parent.name == "topic-0" and path.suffix == ".log":
                raise error
            return super().open(path, write=write)

    write_log_dir(tmp_path, *(keyed_log(f"topic-{n}") for n in range(3)))
    sources = Sources(sets=[SetOption("topic", "cleanup.policy", "compact")])
    return list(clean_log_dir(tmp_path, None, sources, CleanOptions(), CallContext.of(Disk(), NOW)))


def test_unexpected_error_in_one_log_does_not_stop_the_others(tmp_path: Path) -> None:
    """R-452: after any error in one log, the next is taken; the cause is kept for the repair."""
    refused, *reports = refusing(tmp_path, ZeroDivisionError("surprise"))
    assert isinstance(refused, Refusal)
    assert "unexpected ZeroDivisionError: surprise" in str(refused.error)
    assert isinstance(refused.error.__cause__, ZeroDivisionError)
    assert [report.end_offset for report in reports if isinstance(report, CleanReport)] == [60, 60]


def test_failing_disk_stops_the_whole_log_dir(tmp_path: Path) -> None:
    """After an I/O error nothing more is tried there, and each partition left out is named."""
    outcomes = refusing(tmp_path, LogDirOfflineError(tmp_path, OSError(errno.EIO, "Input/output error")))
    assert [type(outcome) for outcome in outcomes] == [Refusal] * 3
    assert offsets(tmp_path, "cleaner") == {}


def test_check_reports_damage_and_changes_nothing(tmp_path: Path) -> None:
    """One finding, with its place; a partition's directory is checked alike, and no path at all is refused."""
    write_log_dir(tmp_path, keyed_log())
    assert cleaner.check(tmp_path).is_sound
    path = tmp_path / "topic-0" / "00000000000000000000.log"
    flip_bit(path)
    before = contents(tmp_path)
    report = cleaner.check([tmp_path])
    assert [(one.path.name, one.is_damage) for one in report.findings] == [(path.name, True)]
    assert not report.is_sound
    assert cleaner.check(path.parent).findings == report.findings
    assert contents(tmp_path) == before
    with pytest.raises(UsageError, match="paths is empty"):
        cleaner.check([])


def test_check_repairs_an_index_when_asked(tmp_path: Path) -> None:
    """Files that intact logs determine are rebuilt, and named."""
    write_log_dir(tmp_path, keyed_log())
    index = tmp_path / "topic-0" / "00000000000000000000.timeindex"
    index.write_bytes(b"\x7f" * 12)
    assert not cleaner.check(tmp_path).is_sound
    report = cleaner.check(tmp_path, repair=True)
    assert [file.path.name for file in report.repaired] == [index.name]
    assert report.is_sound
    assert cleaner.check(tmp_path).is_sound


def test_verify_proves_and_refutes(tmp_path: Path) -> None:
    """The result of a round is proven; the log before it is refuted if a checkpoint says that it was cleaned."""
    old, new = tmp_path / "old", tmp_path / "new"
    for log_dir in (old, new):
        write_log_dir(log_dir, keyed_log())
    end = cleaner.clean(new, "topic-0", COMPACT, now_ms=NOW).end_offset
    proven = cleaner.verify(old, new, "topic-0", COMPACT, end_offset=end)
    assert (proven.is_proven, proven.records, proven.findings) == (True, 60, ())
    assert cleaner.verify(old / "topic-0", new / "topic-0", settings=COMPACT, end_offset=end).is_proven
    refuted = cleaner.verify(new, old, "topic-0", COMPACT, end_offset=end)
    assert not refuted.is_proven
    assert "invented" in {one.kind.value for one in refuted.findings}
    with pytest.raises(UsageError):
        cleaner.verify(old, new, "topic-9")


def test_undo_puts_back_and_says_what_it_refuses(tmp_path: Path) -> None:
    """The log is restored; a log that changed since is left alone, with the reason."""
    log_dir, kept = tmp_path / "logs", tmp_path / "kept"
    write_log_dir(log_dir, keyed_log())
    before = record_offsets(log_dir / "topic-0")
    cleaner.clean(log_dir, "topic-0", COMPACT, keep_old=kept, now_ms=NOW)
    assert record_offsets(log_dir / "topic-0") != before
    (undone,) = cleaner.undo(kept)
    assert isinstance(undone, cleaner.UndoReport)
    assert record_offsets(log_dir / "topic-0") == before
    cleaner.clean(log_dir, "topic-0", COMPACT, keep_old=kept, now_ms=NOW)
    flip_bit(log_dir / "topic-0" / "00000000000000000000.log")
    (refused,) = cleaner.undo(kept)
    assert isinstance(refused, cleaner.Refusal)
    with pytest.raises(UsageError, match="no such directory"):
        cleaner.undo(tmp_path / "nowhere")


def test_explain_is_the_plan_of_one_partition(tmp_path: Path) -> None:
    """As `clean --all` would see it; a missing partition is named."""
    write_log_dir(tmp_path, keyed_log())
    entry = cleaner.explain(tmp_path, "topic-0", COMPACT, now_ms=NOW)
    assert [entry] == cleaner.plan(tmp_path, COMPACT, now_ms=NOW)
    with pytest.raises(UsageError, match="topic-9"):
        cleaner.explain(tmp_path, "topic-9")
