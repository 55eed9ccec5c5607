"""Key indexes on a disk that forgets: whatever a power cut leaves of them, later rounds remove what they must."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from cleaner.cleaning.round import unread
from cleaner.policy.unread import FileIdentity
from cleaner.storage.fs.file_system import FileSystem
from tests.golden.comparison import contents
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.growing_log import GrowingLog

SEED = 20_29
STATES_PER_POINT = 2


def _size_alone(fs: FileSystem, path: Path) -> FileIdentity:
    """Return an identity that a copy has, too: otherwise no index would count after the restart."""
    try:
        return FileIdentity(size=fs.stat(path).st_size)
    except FileNotFoundError:
        return FileIdentity()


def test_power_cut_while_indexes_are_written_costs_reads_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each change of a round that writes two indexes: the next round with them leaves what one without leaves."""
    monkeypatch.setattr(unread, "_file_identity", _size_alone)
    (tmp_path / "before").mkdir()
    log = GrowingLog(tmp_path / "before")
    log.append([*log.segment(0), ("gone", None)], log.segment(100))
    log.clean(index=False)
    log.append(log.segment(200), [("k5", "again")], log.segment(300))
    fs = ForgetfulFileSystem(tmp_path / "before")
    assert log.clean(fs=fs, max_dirty_bytes=1).index_bytes_written > 0
    unread_segments, crashed = set(), tmp_path / "crashed"
    crashed.mkdir()
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            for name in ("with", "without"):
                shutil.rmtree(crashed / name, ignore_errors=True)
                state.write_to(crashed / name)
                # Indexes are kept under the path of their log dir, which is another one here.
                for of_log_dir in list((crashed / name).glob("index/*logs")):
                    of_log_dir.rename(of_log_dir.with_name(quote(str(crashed / name / "logs"), safe="")))
            results = []
            for name in ("with", "without"):
                mine = GrowingLog.__new__(GrowingLog)
                vars(mine).update(vars(log), log_dir=crashed / name / "logs", index_dir=crashed / name / "index")
                report = mine.clean(index=name == "with", rounds="all", recover=True)
                results.append((contents(mine.log_dir), report.removed))
                unread_segments.add(report.segments_unread)
            assert results[0] == results[1], state.note
    assert unread_segments == {0, 1}
