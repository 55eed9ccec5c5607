"""`cleaner export`: its directory through crashes and damage, what it refuses, and logs in a bucket."""

from __future__ import annotations

import json
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.app.options import CallContext
from cleaner.cli.main import main
from cleaner.errors import CleanerError, CorruptCheckpointError, LogDirLockedError, UnknownTopicError, UsageError
from cleaner.exporting.manifest import Export
from cleaner.exporting.topic import ExportOptions, export_topic
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from tests.integration.log_dirs import contents, flip_bit, keyed_log
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.s3_server import BUCKET, environment, s3_server
from tests.support.tables import changes_in, manifest_of, table_in

Capture = pytest.CaptureFixture[str]
FIRST = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"), keyed_log("other-0"))


def exported(log_dir: Path, target: Path, topic: str = "topic", **options: object) -> Export:
    """Export a topic to files."""
    made = cleaner.export(log_dir, topic, target, **options)
    assert isinstance(made, Export)
    return made


def test_export_of_two_partitions(log_dir: Path, tmp_path: Path, capsys: Capture) -> None:
    """Numbers, files and what is said; nothing of the log dir changes, and a second export replaces the first."""
    before, target = contents(log_dir), tmp_path / "out"
    assert main(["export", str(log_dir), "topic", "--to", str(target), "--as-root"]) == 0
    assert capsys.readouterr().out.startswith("topic: 10 rows of 2 partitions, ")
    about = manifest_of(target)
    assert [each["partition"] for each in about["partitions"]] == [0, 1]
    assert [each["next_offset"] for each in about["partitions"]] == [80, 80]
    assert (about["number"], about["since"], about["partitions"][0]["upserts"]) == (1, None, None)
    assert {key: row.offset for key, row in table_in(target, 1).items()} == {b"k%d" % n: 75 + n for n in range(5)}

    assert main(["export", str(log_dir), "topic", "--to", str(target), "--changes", "--as-root"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "  since export 1: 0 upserts, 0 deletes"
    assert (manifest_of(target)["number"], manifest_of(target)["since"]) == (2, 1)
    assert contents(log_dir) == before


def test_deleted_keys_without_tombstones_are_deletes(tmp_path: Path) -> None:
    """Cleaning has removed the tombstone, and the log start has moved over a key that nobody deleted."""
    target, log = tmp_path / "out", LogBuilder()
    log.append(("a", "1"), ("b", "1"), ("c", "1"))
    exported(write_log_dir(tmp_path / "one", log), target)
    later = LogBuilder(base_offset=2)
    later.append(("c", "1"))
    exported(write_log_dir(tmp_path / "two", later), target, changes=True)
    upserts, deletes = changes_in(target)
    assert set(upserts) <= {b"c"}
    assert deletes == {b"a", b"b"}


def test_log_that_was_cut_and_written_anew(tmp_path: Path) -> None:
    """The same offset has another record: of another key, of another value, with another header."""
    target = tmp_path / "out"
    log, other = LogBuilder(), LogBuilder()
    log.append(("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"))
    other.append(("a", "1"), ("x", "1"), ("c", "2"), ("d", "1"))
    exported(write_log_dir(tmp_path / "one", log), target)
    exported(write_log_dir(tmp_path / "two", other), target, changes=True)
    upserts, deletes = changes_in(target)
    assert sorted(upserts) == [b"c", b"x"]
    assert deletes == {b"b"}


def test_open_and_aborted_transactions_are_not_in_it(tmp_path: Path) -> None:
    """Nor what comes behind an open one."""
    log = LogBuilder()
    log.append(("a", "1"))
    log.append(("a", "aborted"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=False)
    log.append(("b", "committed"), producer=Producer(7, 0, 1, transactional=True))
    log.end_transaction(7, 0, commit=True)
    log.append(("c", "open"), producer=Producer(8, 0, 0, transactional=True))
    log.append(("a", "2"))
    export = exported(write_log_dir(tmp_path / "logs", log), tmp_path / "out")
    assert {key: row.value for key, row in table_in(tmp_path / "out").items()} == {b"a": b"1", b"b": b"committed"}
    assert export.partitions[0].next_offset == 5


class Stopped(BaseException):
    """The process ends here."""


class StoppingFiles(FileSystem):
    """Files of a process that ends before one of its changes."""

    def __init__(self, left: int) -> None:
        self.left = left

    def step(self) -> None:
        """Count a change."""
        self.left -= 1
        if self.left < 0:
            raise Stopped


def _stopping(name: str) -> object:
    real = getattr(FileSystem, name)

    def change(self: StoppingFiles, *args: object, **named: object) -> object:
        self.step()
        return real(self, *args, **named)

    return change


for _name in ("create", "rename", "remove", "make_dir", "remove_dir", "fsync_dir"):
    setattr(StoppingFiles, _name, _stopping(_name))


def test_process_that_ends_anywhere_leaves_a_whole_export(log_dir: Path, tmp_path: Path) -> None:
    """Before each of its changes: the old export, or the new one; the next one removes what is left over."""
    target = tmp_path / "out"
    exported(log_dir, target, form="jsonl")
    old = table_in(target)
    later = keyed_log(segments=4)
    changed = write_log_dir(tmp_path / "changed", later, keyed_log("topic-1"))
    numbers = []
    for left in range(100):
        place = Path(shutil.copytree(target, tmp_path / f"out{left}"))
        try:
            context = CallContext(fs=StoppingFiles(left))
            export_topic(changed, "topic", place, ExportOptions("jsonl", changes=True), context)
            break
        except Stopped:
            numbers.append(manifest_of(place, is_alone=False)["number"])
            assert (table_in(place) == old) is (numbers[-1] == 1)
        made = exported(changed, place, form="jsonl", changes=True)
        assert made.number == numbers[-1] + 1
        assert manifest_of(place)["number"] == made.number  # and nothing else is there
    assert numbers == sorted(numbers)
    assert set(numbers) == {1, 2}


def test_failure_leaves_the_export_before_and_no_files(log_dir: Path, tmp_path: Path) -> None:
    """A damaged log."""
    target = tmp_path / "out"
    exported(log_dir, target)
    flip_bit(log_dir / "topic-1" / FIRST, 90)
    with pytest.raises(CleanerError, match="topic-1"):
        exported(log_dir, target)
    assert manifest_of(target)["number"] == 1


def test_other_files_are_left_alone(log_dir: Path, tmp_path: Path) -> None:
    """Also those in a directory that has a name of ours."""
    target = tmp_path / "out"
    for path in (target / "000001" / "mine", target / "notes"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    assert exported(log_dir, target).number == 2
    assert exported(log_dir, target).number == 3
    assert {path.name for path in target.iterdir()} == {"000001", "000003", "manifest.json", "notes", ".lock"}
    assert (target / "000001" / "mine").read_text() == "x"
    assert (target / "notes").read_text() == "x"


def test_what_an_export_needs_of_the_one_before(log_dir: Path, tmp_path: Path) -> None:
    """Each refusal leaves the export that is there."""
    target = tmp_path / "out"
    exported(log_dir, target)
    with pytest.raises(UsageError, match="holds exports of the topic topic"):
        exported(log_dir, target, "other")
    one = write_log_dir(tmp_path / "one", keyed_log())
    with pytest.raises(UnknownTopicError, match=r"topic-1.: was exported from .* an export without --changes"):
        exported(one, target, changes=True)
    assert manifest_of(target)["number"] == 1
    path = target / "000001" / "table-00001.parquet"
    data = path.read_bytes()
    for change, words in (
        (lambda: path.write_bytes(data[:-1]), "its manifest"),
        (lambda: flip_bit(path, len(data) // 2), "another CRC-32"),
        (path.unlink, "is not there"),
    ):
        path.write_bytes(data)
        change()
        with pytest.raises(CorruptCheckpointError, match=words) as caught:
            exported(log_dir, target, changes=True)
        assert "an export without --changes writes it anew" in str(caught.value)
    exported(log_dir, target)
    assert manifest_of(target)["number"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda about: about.update(version=2), "newer than 1"),
        (lambda about: about.update(number=0), "not the manifest"),
        (lambda about: about["partitions"][0]["table"].update(name="../../secret"), "not a file of an export"),
        (lambda about: about["partitions"][0]["table"].update(rows=-1), "below 0"),
    ],
)
def test_manifest_that_is_not_one(log_dir: Path, tmp_path: Path, change: object, words: str) -> None:
    """It stays, and nothing is removed."""
    target = tmp_path / "out"
    exported(log_dir, target)
    about = json.loads((target / "manifest.json").read_text())
    change(about)  # type: ignore[operator]
    (target / "manifest.json").write_text(json.dumps(about))
    before = contents(target)
    with pytest.raises(CorruptCheckpointError, match=words):
        exported(log_dir, target)
    assert contents(target) == before


def test_second_export_at_the_same_time_is_refused(log_dir: Path, tmp_path: Path) -> None:
    """While the first writes."""
    target = tmp_path / "out"

    def during() -> None:
        with pytest.raises(LogDirLockedError, match="another export into it is at work"):
            exported(log_dir, target)

    assert exported(log_dir, target, check_done=during).number == 1


def test_refusals_of_the_command(
    log_dir: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, and nothing is written."""
    (tmp_path / "file").touch()
    for words, code, said in (
        ([str(log_dir), "topics", "--to", str(tmp_path / "out")], 1, "did you mean topic?"),
        ([str(log_dir), "topic", "--to", str(tmp_path / "file")], 2, "not a directory"),
        ([str(log_dir), "topic", "--to", str(tmp_path / "no" / "out")], 2, "is not there, to make it in"),
        ([str(log_dir), "topic", "--to", str(log_dir / "out")], 2, "where each directory is a partition"),
        ([str(log_dir), "topic", "--to", str(log_dir / "topic-0")], 2, "where each directory is a partition"),
        ([str(log_dir), "topic", "--to", "s3://bucket/out"], 2, "that option needs a path of this machine"),
        ([str(log_dir / "topic-0"), "topic", "--to", str(tmp_path / "out")], 2, "partition"),
        ([str(log_dir), "topic", "--to", str(tmp_path / "out"), "--survivor", "x"], 2, "survivor"),
    ):
        assert main(["export", *words, "--as-root"]) == code, words
        assert said in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert main(["export", str(log_dir), "topic", "--to", str(tmp_path / "out"), "--as-root"]) == 2
    assert "pip install 'kafka-log-cleaner[export]'" in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*/*"))


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_old_table_that_is_none(log_dir: Path, tmp_path: Path, form: str) -> None:
    """Its checksum is that of the manifest: columns, order, types and text are looked at all the same."""
    target = tmp_path / "out"
    exported(log_dir, target, form=form)
    about = json.loads((target / "manifest.json").read_text())
    file = about["partitions"][0]["table"]
    path = target / file["name"]
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    wrong = [data[:-9], b"", data.replace(b"offset", b"0ffset"), b"".join(reversed(lines)) + b"x"]
    for content in wrong:
        path.write_bytes(content)
        file.update(bytes=len(content), crc32=zlib.crc32(content))
        (target / "manifest.json").write_text(json.dumps(about))
        with pytest.raises(CorruptCheckpointError, match="an export without --changes"):
            exported(log_dir, target, changes=True)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(server).items():
            patch.setenv(name, value)
        server.make_bucket()
        server.upload(write_log_dir(tmp_path_factory.mktemp("logs"), keyed_log()), "kafka")
        yield f"s3://{BUCKET}/kafka"


def test_log_dir_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    """The table and the changes are those of the same log dir on a disk."""
    made = exported(Path(write_log_dir(tmp_path / "logs", keyed_log())), tmp_path / "out")
    again = cleaner.export(bucket, "topic", tmp_path / "out", changes=True)
    assert (made.rows, again.rows, again.upserts, again.deletes) == (5, 5, 0, 0)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """In both forms, and compared with the table before."""
    log = LogBuilder()
    log.append((b"\xff\x00", b"\xfe"), ("", ""))
    log_dir = write_log_dir(tmp_path / "logs", log)
    for form in ("jsonl", "parquet", "jsonl"):
        export = exported(log_dir, tmp_path / "out", form=form, changes=True)
        assert {key: row.value for key, row in table_in(tmp_path / "out").items()} == {b"\xff\x00": b"\xfe", b"": b""}
        assert export.upserts == (2 if export.number == 1 else 0)


def test_files_are_closed_when_the_disk_is_full(log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the disk's; the export before is whole."""
    exported(log_dir, tmp_path / "out")
    real = File._write_some

    def full(self: File, data: memoryview, position: int) -> int:
        if "table-00001" in self.path.name:
            raise OSError(28, "No space left on device")
        return real(self, data, position)

    monkeypatch.setattr(File, "_write_some", full)
    with pytest.raises(CleanerError, match="more free space is needed"):
        exported(log_dir, tmp_path / "out")
    monkeypatch.undo()
    assert manifest_of(tmp_path / "out")["number"] == 1
