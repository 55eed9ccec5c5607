"""`cleaner export --format iceberg`: its snapshots through kills and power cuts, what it refuses, and other readers."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

import cleaner
from cleaner.app.options import CallContext
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import CleanerError, CorruptCheckpointError, UnknownTopicError, UsageError
from cleaner.exporting import iceberg
from cleaner.exporting.manifest import ExportedTable
from cleaner.exporting.topic import ExportOptions, export_topic
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from tests.integration.log_dirs import contents, flip_bit, keyed_log
from tests.integration.test_export_command import Stopped, StoppingFiles
from tests.reference.table import changes
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.iceberg import State, states_in
from tests.support.log_builder import LogBuilder, write_log_dir

SEED = 7
STATES_PER_POINT = 3


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"), keyed_log("other-0"))


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """One partition goes on, from the other keys are gone."""
    later = LogBuilder(TopicPartition("topic", 1), base_offset=77)
    later.append(("k2", "new"), ("k9", "new"))
    return write_log_dir(tmp_path / "changed", keyed_log(segments=5), later)


def exported(log_dir: Path, target: Path, fs: FileSystem | None = None, topic: str = "topic") -> ExportedTable:
    """Export a topic to a table."""
    made = export_topic(log_dir, topic, target, ExportOptions("iceberg"), CallContext(fs=fs or FileSystem()))
    assert isinstance(made, ExportedTable)
    return made


def test_exports_are_snapshots(
    log_dir: Path, changed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Numbers and what is said; a second export of the same changes nothing, a third puts and deletes in one commit."""
    target, before = tmp_path / "out", contents(log_dir)
    command = ["export", str(log_dir), "topic", "--to", str(target), "--format", "iceberg", "--as-root"]
    assert main(command) == 0
    assert "export 1 in" in (said := capsys.readouterr().out)
    assert said.endswith("  since there was none before: 10 upserts, 0 deletes\n")
    first = contents(target)
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("  since export 1: 0 upserts, 0 deletes\n")
    assert contents(target) == first
    assert contents(log_dir) == before

    (old,) = states_in(target)
    made = cleaner.export(changed, "topic", target, form="iceberg")
    assert isinstance(made, ExportedTable)
    assert (made.number, made.since, made.rows, made.upserts, made.deletes) == (2, 1, 7, 7, 4)
    assert made.partitions == ((0, 120), (1, 79))
    *others, new = states_in(target)
    assert others == [old]
    assert new.parent == old.snapshot
    assert new.summary["cleaner.next-offsets"] == "0:120 1:79"
    assert sorted(new.tables[1]) == [b"k2", b"k9"]
    assert main(command) == 0
    assert [state.tables for state in states_in(target)] == [new.tables, old.tables]


def test_pyiceberg_reads_what_parquet_exports_hold(log_dir: Path, tmp_path: Path) -> None:
    """All columns, null headers as null; through its own files, and without ours."""
    log = LogBuilder()
    log.append((b"\xff\x00", b"\xfe"), ("", ""), ("gone", None))
    log_dir = write_log_dir(tmp_path / "one", log)
    exported(log_dir, tmp_path / "out")
    cleaner.export(log_dir, "topic", tmp_path / "parquet")
    wanted = pq.ParquetFile(tmp_path / "parquet" / "000001" / "table-00000.parquet").read()
    table = StaticTable.from_metadata(str(tmp_path / "out"))
    rows = table.scan().to_arrow()
    assert rows.column_names == wanted.column_names
    assert rows.select([0, 1, 2, 3, 4]).to_pylist() == wanted.select([0, 1, 2, 3, 4]).to_pylist()
    assert [state.tables[0][b""].headers for state in states_in(tmp_path / "out")] == [()]
    assert [name for name in rows.column_names if table.schema().find_field(name).required] == [
        "key",
        "value",
        "offset",
        "partition",
    ]


def check_kills(old_dir: Path, new_dir: Path, scratch: Path) -> None:
    """A process that ends before any of its changes leaves the old table or the new one; the next export makes it."""
    target, kept = scratch / "out", scratch / "kept"
    exported(old_dir, target)
    old, seen = states_in(target)[-1].tables, []
    shutil.copytree(target, kept)
    for left in range(200):
        shutil.rmtree(target)
        shutil.copytree(kept, target)
        try:
            exported(new_dir, target, StoppingFiles(left))
            break
        except Stopped:
            for by_hint in (True, False):
                states_in(target, by_hint=by_hint, is_alone=False)
            seen.append(states_in(target, is_alone=False)[-1])
            assert states_in(target, by_hint=True, is_alone=False)[-1].tables in (old, seen[-1].tables)
        made = exported(new_dir, target)
        done = states_in(target)
        assert done == states_in(target, by_hint=True)
        assert made.since == (1 if seen[-1].tables == old else 2)
        assert made.number == 2
        assert exported(new_dir, target).number == 2
        assert states_in(target) == done
        assert seen[-1].tables in (old, done[-1].tables)
        assert done[-1].tables != old
        assert [state.tables for state in done] == [old, done[-1].tables]
    assert {state.tables == old for state in seen} == {True, False}


def test_first_export_that_breaks_off(log_dir: Path, tmp_path: Path) -> None:
    """There is no table, or all of it; the next export removes what is left over."""
    seen = []
    for left in range(100):
        target = tmp_path / f"out{left}"
        try:
            exported(log_dir, target, StoppingFiles(left))
            break
        except Stopped:
            seen.append(any(target.glob("metadata/v1.metadata.json")))
        assert exported(log_dir, target).number == 1
        assert [{number: len(table) for number, table in state.tables.items()} for state in states_in(target)] == [
            {0: 5, 1: 5}
        ]
    assert sorted(seen) == seen
    assert set(seen) == {False, True}


def check_power_cuts(old_dir: Path, new_dir: Path, scratch: Path) -> None:
    """A power cut at any change leaves the old table or the new one, whole, for both kinds of readers."""
    disk = scratch / "disk"
    disk.mkdir()
    target = disk / "out"
    exported(old_dir, target)
    old = states_in(target)[-1].tables
    fs = ForgetfulFileSystem(disk)
    exported(new_dir, target, fs)
    new = states_in(target)[-1].tables
    found: list[State] = []
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            shutil.rmtree(disk)
            state.write_to(disk)
            for by_hint in (True, False):
                found.append(states_in(target, by_hint=by_hint, is_alone=False)[-1])
                assert found[-1].tables in (old, new), state.note
            exported(new_dir, target)
            assert states_in(target)[-1].tables == new, state.note
    assert {each.tables == old for each in found} == {True, False}


CHECKS = (check_kills, check_power_cuts)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_export_that_breaks_off(
    check: Callable[[Path, Path, Path], None], log_dir: Path, changed: Path, tmp_path: Path
) -> None:
    """The old state or the new one."""
    check(log_dir, changed, tmp_path)


def _data_is_not_forced(patch: pytest.MonkeyPatch) -> None:
    real = iceberg._Stream.__init__
    patch.setattr(iceberg._Stream, "__init__", lambda self, file, *, is_new: real(self, file, is_new=False))


def _names_are_not_forced(patch: pytest.MonkeyPatch) -> None:
    real = iceberg._Catalog.commit_table

    def commit(self: iceberg._Catalog, *args: Any) -> Any:
        fs, self._fs = self._fs, _Lax(self._fs)  # type: ignore[assignment]
        try:
            return real(self, *args)
        finally:
            self._fs = fs

    patch.setattr(iceberg._Catalog, "commit_table", commit)


class _Lax:
    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return (lambda _path: None) if name == "fsync_dir" else getattr(self._fs, name)


def _metadata_is_written_in_place(patch: pytest.MonkeyPatch) -> None:
    def write(self: FileSystem, path: Path, data: bytes) -> None:
        self.remove(path)
        with self.create(path, like=path.parent) as file:
            file.write(data, 0)

    patch.setattr(FileSystem, "write_atomically", write)


def _old_files_go_first(patch: pytest.MonkeyPatch) -> None:
    real = iceberg.IcebergTable.remove

    def remove(self: iceberg.IcebergTable, file: Any) -> None:
        real(self, file)
        self._io.delete(file.file_path)

    patch.setattr(iceberg.IcebergTable, "remove", remove)


def _left_overs_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(iceberg, "_OF_DATA", iceberg._OF_METADATA)


def _hint_is_not_repaired(patch: pytest.MonkeyPatch) -> None:
    real = iceberg.IcebergTable.commit

    def commit(self: iceberg.IcebergTable, *args: Any) -> Any:
        before = iceberg._number(self._table)
        done = real(self, *args)
        if before > 1 and self._table.metadata.snapshots:
            (self._place / "metadata" / iceberg.HINT).write_text(str(before - 1))
        return done

    patch.setattr(iceberg.IcebergTable, "commit", commit)


def _every_export_commits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(iceberg.IcebergTable, "_reached", lambda _self: ())


def _changed_files_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(iceberg.IcebergTable, "remove", lambda _self, _file: None)


@pytest.mark.parametrize(
    ("check", "defect"),
    [
        (check_power_cuts, _data_is_not_forced),
        (check_power_cuts, _names_are_not_forced),
        (check_power_cuts, _metadata_is_written_in_place),
        (check_kills, _metadata_is_written_in_place),
        (check_kills, _old_files_go_first),
        (check_kills, _left_overs_stay),
        (check_kills, _hint_is_not_repaired),
        (check_kills, _every_export_commits),
        (check_kills, _changed_files_stay),
    ],
    ids=lambda each: each.__name__,
)
def test_planted_defect_is_found(
    check: Callable[[Path, Path, Path], None],
    defect: Callable[[pytest.MonkeyPatch], None],
    log_dir: Path,
    changed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check fails with it; the one above says that it passes without."""
    defect(monkeypatch)
    with pytest.raises((AssertionError, OSError, ValueError, LookupError, CleanerError)):
        check(log_dir, changed, tmp_path)


def test_few_changes_leave_large_files_and_few_small_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without changes stays; small ones are put together, so that their number grows with the logarithm."""
    monkeypatch.setattr(iceberg, "GROUP_ROWS", 64)
    target, log, sizes = tmp_path / "out", LogBuilder(), []
    log.append(*[(f"k{n}", "1") for n in range(200)])
    for number in range(40):
        log.append((f"later{number}", "1"))
        exported(write_log_dir(tmp_path / "logs", log), target)
        sizes.append(sorted(path.stat().st_size for path in target.glob("data/*/*.parquet")))
        assert set(states_in(target)[-1].tables[0]) == {*(b"k%d" % n for n in range(200))} | {
            b"later%d" % n for n in range(number + 1)
        }
        shutil.rmtree(tmp_path / "logs")
    assert max(map(len, sizes)) < 20


def test_what_a_table_needs(
    log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refusal leaves the table that is there."""
    target = tmp_path / "out"
    exported(log_dir, target)
    before = contents(target)
    with pytest.raises(UsageError, match="holds exports of the topic topic"):
        exported(log_dir, target, topic="other")
    with pytest.raises(UsageError, match="holds exports to an Iceberg table"):
        cleaner.export(log_dir, "topic", target)
    with pytest.raises(UnknownTopicError, match=r"topic-1.: was exported from .* an export into another directory"):
        exported(write_log_dir(tmp_path / "one", keyed_log()), target)
    assert contents(target) == before
    cleaner.export(log_dir, "topic", tmp_path / "files")
    with pytest.raises(UsageError, match="holds exports with a manifest"):
        exported(log_dir, tmp_path / "files")
    shutil.copytree(target, tmp_path / "moved")
    with pytest.raises(UsageError, match=r"was made at .*/out and moved"):
        exported(log_dir, tmp_path / "moved")
    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    command = ["export", str(log_dir), "topic", "--to", str(target), "--format", "iceberg", "--as-root"]
    assert main(command) == 2
    assert "pip install 'kafka-log-cleaner[iceberg]'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["*.parquet", "*-m0.avro", "snap-*.avro", "v1.metadata.json"])
def test_damaged_table_is_named(log_dir: Path, tmp_path: Path, kind: str) -> None:
    """Missing, cut off, and of rows with a wrong bit; what to do is said, and nothing is changed."""
    target = tmp_path / "out"
    exported(log_dir, target)
    path = next(target.rglob(kind))
    data = path.read_bytes()
    page = data.find(b"partition") // 2  # in the middle of the first columns
    for change in (
        path.unlink,
        lambda: path.write_bytes(data[: len(data) // 2]),
        lambda: path.write_bytes(b""),
        lambda: flip_bit(path, page) if path.suffix == ".parquet" else path.write_bytes(b"x"),
    ):
        path.write_bytes(data)
        change()
        if kind == "v1.metadata.json" and not path.exists():
            continue  # then there is no table
        with pytest.raises(CorruptCheckpointError, match="an export into another directory begins anew"):
            exported(log_dir, target)
    path.write_bytes(data)
    assert exported(log_dir, target).number == 1
    shutil.rmtree(target / "data")
    with pytest.raises(CorruptCheckpointError, match="an export into another directory begins anew"):
        exported(log_dir, target)


def test_files_outside_are_not_touched(log_dir: Path, tmp_path: Path) -> None:
    """Whatever the table's files say, and other files in its directory stay."""
    target = tmp_path / "out"
    exported(log_dir, target)
    (target / "data" / "notes.parquet").write_text("x")
    (target / "metadata" / "notes.avro").write_text("x")
    exported(write_log_dir(tmp_path / "more", keyed_log(segments=5), keyed_log("topic-1")), target)
    assert (target / "data" / "notes.parquet").exists()
    assert (target / "metadata" / "notes.avro").exists()
    path = target / "metadata" / "v2.metadata.json"
    about = json.loads(path.read_text())
    about["snapshots"][-1]["manifest-list"] = f"file://{target}/../secret"
    path.write_text(json.dumps(about))
    with pytest.raises(CorruptCheckpointError, match="names a file that is not in it"):
        exported(log_dir, target)


def test_full_disk_leaves_the_table(
    log_dir: Path, changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the disk's, for each kind of file."""
    target = tmp_path / "out"
    exported(log_dir, target)
    old = states_in(target)[-1].tables
    real = File._write_some
    for suffix in (".parquet", "-m0.avro", ".json.tmp"):

        def full(self: File, data: memoryview, position: int, end: str = suffix) -> int:
            if self.path.name.endswith(end):
                raise OSError(28, "No space left on device")
            return real(self, data, position)

        with monkeypatch.context() as patch:
            patch.setattr(File, "_write_some", full)
            with pytest.raises(CleanerError, match="more free space is needed"):
                exported(changed, target)
        assert states_in(target, is_alone=False)[-1].tables == old
    exported(changed, target)
    assert changes(old[1], states_in(target)[-1].tables[1])[1] == {b"k0", b"k1", b"k3", b"k4"}


def test_changes_are_counted_over_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that has gone from one file and come to another is an upsert, not a delete."""
    monkeypatch.setattr(iceberg, "GROUP_ROWS", 2)
    log = LogBuilder()
    log.append(("a", "1"), ("b", "1"))
    log.append(("c", "1"), ("d", "1"))
    exported(write_log_dir(tmp_path / "one", log), tmp_path / "out")
    log.append(("a", "2"), ("c", None))
    made = exported(write_log_dir(tmp_path / "two", log), tmp_path / "out")
    assert (made.upserts, made.deletes, made.rows) == (1, 1, 3)


@pytest.mark.parametrize("time_ms", [253_402_300_799_999, 253_402_300_800_000, 1_764_000_000_000_000, 2**63 - 1])
def test_timestamp_in_any_year_is_exported(time_ms: int, tmp_path: Path) -> None:
    """Producers that send microseconds reach the year 57 000; readers get what Parquet exports have."""
    log = LogBuilder()
    log.append(("a", "1"))
    log.append(("b", "1"), timestamp_ms=time_ms)
    log_dir = write_log_dir(tmp_path / "one", log)
    exported(log_dir, tmp_path / "out")
    assert (exported(log_dir, tmp_path / "out").upserts, len(states_in(tmp_path / "out"))) == (0, 1)
    rows = StaticTable.from_metadata(str(tmp_path / "out")).scan(row_filter="timestamp > '2000-01-01T00:00:00+00:00'")
    cleaner.export(log_dir, "topic", tmp_path / "parquet")
    wanted = pq.ParquetFile(tmp_path / "parquet" / "000001" / "table-00000.parquet").read()
    times = [table.column("timestamp").cast("int64").to_pylist() for table in (rows.to_arrow(), wanted)]
    assert times[0] == times[1]
