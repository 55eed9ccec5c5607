"""`cleaner check`: exit codes, JSON, several log dirs, other processes, and that it leaves no trace."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.open_file import File
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log
from tests.support.log_builder import write_log_dir
from tests.unit.verification_check.checking import check

FIRST = "00000000000000000000"
ACTIVE = "00000000000000000060.log"
Lines = list[dict[str, object]]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, Lines, str]:
    code = main(["check", *map(str, arguments), "--now", str(NOW), "--format", "json"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def kinds(lines: Lines) -> list[object]:
    return [line["kind"] for line in lines if line["what"] == "finding"]


def test_sound_log_dir_is_reported_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; JSON has its format's version, and ends with the sums."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    code, lines, _ = run(capsys, tmp_path)
    assert code == 0
    assert {(line["format"], line["format_version"]) for line in lines} == {("cleaner-check", 1)}
    assert [line["what"] for line in lines] == ["log_dir", "partition", "partition", "end"]
    assert (lines[1]["partition"], lines[1]["log_end_offset"]) == ("topic-0", 80)
    assert (lines[-1]["partitions"], lines[-1]["segments"], lines[-1]["damages"]) == (2, 8, 0)
    assert main(["check", str(tmp_path)]) == 0
    assert "2 partitions, 8 segments" in capsys.readouterr().out


def test_damage_ends_with_1_and_names_file_position_and_offset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In words and as JSON."""
    write_log_dir(tmp_path, keyed_log())
    path = tmp_path / "topic-0" / f"{FIRST}.log"
    flip_bit(path, 70)
    code, lines, _ = run(capsys, tmp_path)
    [finding] = [line for line in lines if line["what"] == "finding"]
    assert code == 1
    assert (finding["kind"], finding["path"], finding["is_damage"]) == ("batch-checksum", str(path), True)
    assert (finding["position"], finding["offset"], finding["partition"]) == (0, 0, "topic-0")
    assert main(["check", str(tmp_path)]) == 1
    assert f"damage  batch-checksum  topic-0/{FIRST}.log at byte 0, offset 0: " in capsys.readouterr().out


def test_partition_directory_is_checked_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also among other files, when nothing around it belongs to Kafka."""
    write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"))
    flip_bit(tmp_path / "logs" / "topic-1" / f"{FIRST}.log", 70)
    assert run(capsys, tmp_path / "logs" / "topic-0")[0] == 0
    copy = shutil.copytree(tmp_path / "logs" / "topic-1", tmp_path / "backup" / "topic-1")
    (tmp_path / "backup" / "not a partition").mkdir()
    code, lines, _ = run(capsys, copy)
    assert (code, kinds(lines)) == (1, ["batch-checksum"])


def test_directory_that_is_named_like_a_segment_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-635: a load looks at files alone; `plan` counts the same segments."""
    write_log_dir(tmp_path, keyed_log())
    (tmp_path / "topic-0" / f"{5:020d}.log").mkdir()
    code, lines, _ = run(capsys, tmp_path)
    assert (code, kinds(lines)) == (0, [])
    (entry,) = cleaner.plan(tmp_path)
    assert lines[-1]["segments"] == entry.segments == 4
    assert lines[-1]["bytes"] == entry.bytes


def test_log_dir_that_is_named_like_a_partition_is_a_log_dir(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kafka-1`: its contents decide."""
    write_log_dir(tmp_path / "kafka-1", keyed_log())
    assert run(capsys, tmp_path / "kafka-1")[1][0]["what"] == "log_dir"


def test_directories_come_from_the_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of `log.dirs`; without any and without names it is a usage error."""
    for number in range(2):
        write_log_dir(tmp_path / str(number), keyed_log(f"topic-{number}"))
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / '0'},{tmp_path / '1'}\n")
    (tmp_path / "1" / "meta.properties").unlink()
    code, lines, _ = run(capsys, "--config", config)
    assert (code, lines[-1]["partitions"]) == (0, 2)
    assert run(capsys)[0] == 2
    assert run(capsys, tmp_path / "none")[0] == 2


def test_log_dirs_that_contradict_each_other_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D-14: a partition in two, a checkpoint line in two, ids that wrongly differ or are the same."""
    for number in range(2):
        offsets = {TopicPartition("topic", 0): 5}
        write_log_dir(tmp_path / str(number), keyed_log(f"topic-{number}"), keyed_log("both-0"))
        (tmp_path / str(number) / "cleaner-offset-checkpoint").write_text(
            "0\n1\n" + "".join(f"{tp.topic} {tp.partition} {offset}\n" for tp, offset in offsets.items())
        )
    properties = tmp_path / "1" / "meta.properties"
    properties.write_text(properties.read_text().replace("testcluster", "other").replace("node.id=1", "node.id=2"))
    (tmp_path / "1" / "topic-1" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAw")
    code, lines, _ = run(capsys, tmp_path / "0", tmp_path / "1")
    assert code == 1
    assert sorted(map(str, kinds(lines))) == [
        "checkpoint-line-twice",
        "checkpoint-line-twice",
        "cluster-differs",
        "directory-id-twice",
        "node-differs",
        "partition-twice",
        "partition-twice",
        "topic-id-differs",
    ]
    assert "this line can go" in str(lines)


class Untouched(FileSystem):
    """A read-only mount: any change fails."""

    def open(self, path: Path, *, write: bool = False) -> File:
        assert not write
        return super().open(path)

    def _refuse(self, *_: object, **__: object) -> None:
        raise AssertionError("a change")

    create = rename = remove = write_atomically = make_dir = fsync_dir = _refuse  # type: ignore[assignment]


def test_nothing_is_locked_or_written(tmp_path: Path) -> None:
    """Not even a lock file."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    assert check(tmp_path, fs=Untouched()).damages == []
    assert contents(tmp_path) == before
    assert not (tmp_path / ".lock").exists()


def beside_broker(path: Path) -> LogDirLock:
    (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return LogDirLock(FileSystem(), path, LockMode.SHARED, LockRole.WRITER)


def test_torn_end_with_a_writer_is_no_finding(tmp_path: Path) -> None:
    """A writer may be writing it right now; without a writer it is a note, after a clean stop damage."""
    write_log_dir(tmp_path, keyed_log())
    active = tmp_path / "topic-0" / ACTIVE
    active.write_bytes(active.read_bytes()[:-5])
    index = active.with_suffix(".index")
    index.write_bytes(index.read_bytes() + bytes(8000))
    kinds_found = [kind for kind, *_ in check(tmp_path).damages]
    assert (kinds_found[0], set(kinds_found[1:])) == ("batch-cut-off", {"offset-index"})
    with beside_broker(tmp_path):
        beside = check(tmp_path)
    assert (beside.findings, beside.partitions[0].in_use, beside.totals.in_use) == ([], True, True)
    alone = check(tmp_path)
    assert (alone.damages, alone.notes[:1]) == ([], [("torn-end", ACTIVE)])


class Swapping(FileSystem):
    """Another process changes files at the moment one of them is opened."""

    def __init__(self, name: str, change: Callable[[], None]) -> None:
        self._name = name
        self._change: Callable[[], None] | None = change

    def open(self, path: Path, *, write: bool = False) -> File:
        if path.name == self._name and self._change is not None:
            change, self._change = self._change, None
            change()
        return super().open(path, write=write)


def test_segments_that_are_replaced_while_read_are_read_again(tmp_path: Path) -> None:
    """Another cleaner merges two segments into one."""
    write_log_dir(tmp_path, keyed_log())
    directory = tmp_path / "topic-0"
    gone = sorted(directory.glob("00000000000000000020.*"))

    def swap() -> None:
        for path in gone:
            path.unlink()

    with beside_broker(tmp_path):
        checked = check(tmp_path, fs=Swapping("00000000000000000020.log", swap))
    assert checked.findings == []
    assert checked.partitions[0].segments == 3


def test_segment_that_was_replaced_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    """The old log and the new index do not fit, which is no damage."""
    write_log_dir(tmp_path / "logs", keyed_log(records=200))
    directory = tmp_path / "logs" / "topic-0"
    write_log_dir(tmp_path / "new", keyed_log(records=200))
    fresh = tmp_path / "new" / "topic-0"
    log, index = (f"{FIRST}{suffix}" for suffix in (".log", ".index"))
    data = (directory / log).read_bytes()
    (directory / log).write_bytes(data[: len(data) // 2])

    def swap() -> None:
        for name in (index, log):
            (fresh / name).rename(directory / name)

    with beside_broker(tmp_path / "logs"):
        checked = check(tmp_path / "logs", fs=Swapping(f"{FIRST}.timeindex", swap))
    assert checked.findings == []


def test_repair_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Repairs are reported; afterwards nothing is damaged."""
    write_log_dir(tmp_path, keyed_log(records=200))
    index = tmp_path / "topic-0" / f"{FIRST}.index"
    whole = index.read_bytes()
    index.write_bytes(whole[:-3])
    assert run(capsys, tmp_path)[0] == 1
    code, lines, _ = run(capsys, tmp_path, "--repair")
    assert (code, [line["path"] for line in lines if line["what"] == "repair"]) == (0, [str(index)])
    assert index.read_bytes() == whole
    assert run(capsys, tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("meta.properties", b"version=7\n", "meta-properties"),
        ("replication-offset-checkpoint", b"0\n1\n", "checkpoint"),
        ("topic-0/leader-epoch-checkpoint", b"0\n1\n-1 0\n", "leader-epochs"),
        ("topic-0/partition.metadata", b"version: 0\n", "partition-metadata"),
        ("topic-0/00000000000000000020.snapshot", b"\0\1", "snapshot"),
        ("topic-0/20.log", b"", "foreign-file"),
        ("lost+found/x", b"", "foreign-directory"),
    ],
)
def test_each_damaged_small_file_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, kind: str
) -> None:
    """And the rest is read all the same."""
    write_log_dir(tmp_path, keyed_log())
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    code, lines, _ = run(capsys, tmp_path)
    assert (code, kinds(lines), lines[-1]["segments"]) == (1, [kind], 4)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notes.txt", "brokers ignore it"),
        # A broker that stopped in order may have left it.
        ("00000000000000000020.log.deleted", "deleted, and not yet removed; the next start removes it"),
        ("00000000000000000020.log.cleaned", "before a swap; the next load removes what it has written"),
        ("00000000000000000500.snapshot", "the next start removes it"),
    ],
)
def test_files_that_a_broker_passes_over_or_removes_are_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    """Reported, and no reason to fail."""
    write_log_dir(tmp_path, keyed_log())
    source = tmp_path / "topic-0" / "00000000000000000080.snapshot"
    (tmp_path / "topic-0" / name).write_bytes(source.read_bytes())
    code, lines, _ = run(capsys, tmp_path)
    assert code == 0
    [finding] = [line for line in lines if line["what"] == "finding"]
    assert not finding["is_damage"]
    assert str(finding["reason"]).endswith(said)


class Closed(FileSystem):
    """A disk of which this user may not read some files."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self._names = names

    def open(self, path: Path, *, write: bool = False) -> File:
        """Refuse a file that is named, or is in a directory that is."""
        if {path.name, path.parent.name} & set(self._names):
            raise LogDirOfflineError(path, PermissionError(errno.EACCES, "Permission denied", str(path)))
        return super().open(path, write=write)


def test_partition_that_cannot_be_read_stops_no_other_and_nothing_is_concluded_from_it(tmp_path: Path) -> None:
    """Its end is not known, so nothing lies beyond it; the reason is the system's, in words."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), keyed_log("topic-2"))
    report = cleaner.check(tmp_path, fs=Closed("topic-1"))
    assert [each.partition for each in report.partitions] == ["topic-0", "topic-1", "topic-2"]
    assert {each.path.parent.name for each in report.findings} == {"topic-1"}
    assert {(each.kind.value, each.reason) for each in report.findings} == {("unreadable", "Permission denied")}
    report = cleaner.check(tmp_path, fs=Closed(ACTIVE))
    assert {(each.kind.value, each.reason) for each in report.findings} == {("unreadable", "Permission denied")}
    assert {each.path.name for each in report.findings} == {ACTIVE}
