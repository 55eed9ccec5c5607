"""`cleaner recover`: when a log dir gets its clean-shutdown marker, and when it must not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cleaner import recover
from cleaner.cli.main import main
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log, offsets
from tests.support.log_builder import LogBuilder, write_log_dir

MARKER = ".kafka_cleanshutdown"
ACTIVE = "00000000000000000060.log"


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[dict[str, object]], str]:
    code = main(["recover", *map(str, arguments), "--now", str(NOW), "--format", "json"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def unclean(path: Path, *logs: LogBuilder) -> Path:
    """A log dir as a killed broker leaves it: no marker, nothing known to be flushed."""
    return write_log_dir(path, *logs, clean_shutdown=False, recovery_points={})


def logs(directory: Path) -> dict[str, str]:
    return {name: digest for name, digest in contents(directory).items() if name.endswith(".log")}


def tear(path: Path) -> None:
    """Cut a file in the middle of its last batch."""
    path.write_bytes(path.read_bytes()[:-5])


def test_whole_log_dir_recovered_gets_a_marker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All partitions recovered in this run: the marker holds broker epoch -1, recovery points are the log ends."""
    unclean(tmp_path, keyed_log(), keyed_log("topic-1"))
    tear(tmp_path / "topic-0" / ACTIVE)
    code, reports, _ = run(capsys, tmp_path)
    assert code == 0
    assert [(r["partition"], r["log_end_offset"]) for r in reports] == [("topic-0", 79), ("topic-1", 80)]
    assert (tmp_path / MARKER).read_text() == '{"version":0,"brokerEpoch":-1}'
    assert offsets(tmp_path, "recovery-point") == {"topic-0": 79, "topic-1": 80}


def test_named_partitions_leave_no_marker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The other partitions may still be torn; the output says that a broker will recover."""
    unclean(tmp_path, keyed_log(), keyed_log("topic-1"))
    code, reports, err = run(capsys, tmp_path, "topic-0")
    assert (code, [r["partition"] for r in reports]) == (0, ["topic-0"])
    assert "topic-1" in err
    assert "a broker will recover" in err
    assert not (tmp_path / MARKER).exists()


def test_all_partitions_named_get_a_marker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If every partition directory was recovered in this run."""
    unclean(tmp_path, keyed_log(), keyed_log("topic-1"))
    assert run(capsys, tmp_path, "topic-1", "topic-0")[0] == 0
    assert (tmp_path / MARKER).exists()


@pytest.mark.parametrize("named", [["topic-0"], []])
def test_zeros_beside_the_marker_are_cut_and_the_marker_stays(
    tmp_path: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """D-02: preallocated room that a power cut has brought back; the other logs were closed in order."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    before, path = contents(tmp_path), tmp_path / "topic-0" / ACTIVE
    path.write_bytes(path.read_bytes() + bytes(4096))
    code, reports, _ = run(capsys, tmp_path, *named)
    assert (code, reports[0]["log_end_offset"]) == (0, 80)
    after = contents(tmp_path)
    assert {name for name in before if after.get(name) != before[name]} <= {MARKER}
    assert MARKER in after


def test_zeros_beside_the_marker_leave_none_when_another_log_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The marker was not true, and a log that cannot be loaded gets no new one."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    (tmp_path / "topic-1" / "leader-epoch-checkpoint").write_text("x\n")
    path = tmp_path / "topic-0" / ACTIVE
    path.write_bytes(path.read_bytes() + bytes(4096))
    code, _, err = run(capsys, tmp_path)
    assert code == 1
    assert "no clean-shutdown marker is written" in err
    assert not (tmp_path / MARKER).exists()


def test_marker_that_is_not_trusted_hides_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also below the recovery point, which the same stop wrote: every segment is read, and cut by the same rules."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    flip_bit(tmp_path / "topic-0" / "00000000000000000020.log")
    before = logs(tmp_path / "topic-0")
    assert run(capsys, tmp_path)[0] == 0
    code, [report, refused], err = run(capsys, tmp_path, "--trust-no-marker")
    assert (code, report["partition"], refused["partition"]) == (1, "topic-1", "topic-0")
    assert "--allow-truncate" in err
    assert logs(tmp_path / "topic-0") == before
    assert not (tmp_path / MARKER).exists()
    # Given again there is no marker, and the recovery points are believed as little.
    kept = tmp_path.with_name("kept")
    code, reports, _ = run(capsys, tmp_path, "--trust-no-marker", "--allow-truncate", "--save-cut", kept)
    assert (code, [r["log_end_offset"] for r in reports]) == (0, [39, 80])
    assert any((kept / "topic-0").iterdir())
    assert (tmp_path / MARKER).exists()


def test_torn_end_beside_a_marker_that_is_not_trusted_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A marker has a log of half a batch refused, since a clean stop leaves none."""
    write_log_dir(tmp_path, keyed_log())
    tear(tmp_path / "topic-0" / ACTIVE)
    assert run(capsys, tmp_path)[0] == 1
    code, [report], _ = run(capsys, tmp_path, "--trust-no-marker")
    assert (code, report["log_end_offset"]) == (0, 79)
    assert offsets(tmp_path, "recovery-point") == {"topic-0": 79}
    assert (tmp_path / MARKER).exists()


def test_marker_that_is_not_trusted_goes_before_the_first_change_and_comes_back_after_the_last_fsync(
    tmp_path: Path,
) -> None:
    """Every segment's log is forced to disk although the recovery point is at the end; the marker is true then."""
    write_log_dir(tmp_path, keyed_log())
    forced: dict[str, bool] = {}

    class Watched(FileSystem):
        def fsync_all(self, directory: Path, names: Sequence[str]) -> None:
            forced.update((name, (tmp_path / MARKER).exists()) for name in names)
            super().fsync_all(directory, names)

    assert recover(tmp_path, trust_marker=False, fs=Watched(), now_ms=NOW).has_marker
    assert {name: forced.get(name) for name in logs(tmp_path / "topic-0")} == dict.fromkeys(
        logs(tmp_path / "topic-0"), False
    )
    assert (tmp_path / MARKER).exists()


def test_named_partitions_leave_no_marker_that_was_not_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is as little true of the others."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    code, _, err = run(capsys, tmp_path, "topic-0", "--trust-no-marker")
    assert code == 0
    assert "topic-1 not recovered in this run" in err
    assert not (tmp_path / MARKER).exists()


def test_refused_partition_leaves_no_marker_and_the_others_are_recovered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damage in an older segment would cut whole segments off: refused and listed, no byte of the log is removed."""
    unclean(tmp_path, keyed_log(), keyed_log("topic-1"))
    flip_bit(tmp_path / "topic-0" / "00000000000000000020.log")
    before = logs(tmp_path / "topic-0")
    code, [report, refused], err = run(capsys, tmp_path)
    assert (code, report["partition"], refused["partition"]) == (1, "topic-1", "topic-0")
    assert "--allow-truncate" in err
    assert logs(tmp_path / "topic-0") == before
    assert not (tmp_path / MARKER).exists()


def test_allow_truncate_cuts_what_a_broker_would_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The damaged batch and everything after it is cut, as Kafka's loader does without asking (R-640)."""
    unclean(tmp_path, keyed_log())
    flip_bit(tmp_path / "topic-0" / "00000000000000000020.log")
    code, [report], _ = run(capsys, tmp_path, "--allow-truncate")
    assert (code, report["log_end_offset"]) == (0, 39)
    assert (tmp_path / MARKER).exists()


def test_directory_that_is_not_ours_to_touch_leaves_no_marker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker would trust a future copy too, and no process has recovered it (D-07)."""
    unclean(tmp_path, keyed_log())
    (tmp_path / "topic-1.0123456789abcdef0123456789abcdef-future").mkdir()
    code, _, err = run(capsys, tmp_path)
    assert code == 0
    assert "-future" in err
    assert not (tmp_path / MARKER).exists()


def test_deleted_directory_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It only waits for its removal."""
    unclean(tmp_path, keyed_log())
    (tmp_path / "topic-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    assert run(capsys, tmp_path)[0] == 0
    assert (tmp_path / MARKER).exists()


def test_log_dir_left_in_order_keeps_its_marker_and_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is nothing to recover: loading and closing changes nothing."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    assert run(capsys, tmp_path, "topic-0")[0] == 0
    assert contents(tmp_path) == before


def test_recovery_shares_the_log_dir_with_no_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recovery writes active segments, so not even a writer that would share with a cleaner may be there."""
    unclean(tmp_path, keyed_log())
    before = contents(tmp_path)
    with LogDirLock(FileSystem(), tmp_path, LockMode.SHARED, LockRole.WRITER):
        assert run(capsys, tmp_path)[0] == 75
    assert contents(tmp_path) == before
