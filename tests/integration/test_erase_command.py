"""`cleaner erase`: nothing of the keys is left anywhere, and nothing else is changed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cleaning.recopy.erasure import ErasingSurvivors
from cleaner.errors import CleanerError, CorruptBatchError, NotCleanlyShutDownError, UsageError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LockMode, LogDirLock
from tests.integration.log_dirs import NOW, Run, contents, flip_bit, locked_elsewhere
from tests.support.batch_builder import Producer, Record, data_batch, empty_batch
from tests.support.batch_reader import batch_info, split_batches
from tests.support.growing_log import GrowingLog
from tests.support.log_builder import LogBuilder, write_log_dir

FIRST = "00000000000000000000.log"
SECRET = b"forget-me"
COMPACT = ("--set", "topic:cleanup.policy=compact")
UNIQUE = "0123456789abcdef" * 2


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The list of keys."""
    path = tmp_path / "keys"
    path.write_bytes(SECRET + b"\nnobody\n")
    return path


def personal_log(name: str = "topic-0", *, codecs: tuple[str, ...] = ("none", "lz4", "gzip", "zstd")) -> LogBuilder:
    """A log with the secret key in every segment: compressed, in batches of its own, aborted, open and at the end."""
    log = LogBuilder(TopicPartition.parse(name))
    for codec in codecs:
        log.append((b"other", b"stays " * 20), (SECRET, b"goes " + SECRET * 3), (b"third", b"stays"), codec=codec)
        log.append((SECRET, b"goes alone"), codec=codec)
        log.roll()
    aborted, undecided = Producer(7, 0, 0, transactional=True), Producer(8, 0, 0, transactional=True)
    log.append((SECRET, b"goes, aborted"), (b"other", b"aborted"), producer=aborted)
    log.end_transaction(7, 0, commit=False)
    log.append((SECRET, b"goes, undecided"), producer=undecided)
    log.append((b"other", b"stays, too"))
    log.append((SECRET, b"goes, though it is the last"))
    return log


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir with the secret key in two topics."""
    return write_log_dir(tmp_path / "logs", personal_log(), personal_log("other-0"))


def secrets_in(*directories: Path) -> list[str]:
    """Return the files that hold the secret, by the proof's own search."""
    proof = cleaner.prove_erased(directories, [SECRET], mentions="off")
    return sorted({str(Path(each.path).relative_to(directories[0].parent)) for each in proof.found})


def test_no_place_has_the_records_any_more(log_dir: Path, tmp_path: Path, keys: Path, run: Run) -> None:
    """Segments, left-overs of swaps and deletions, renamed directories, kept and cut bytes; not another topic."""
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    topic = log_dir / "topic-0"
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    segment = sorted(topic.glob("*.log"))[-1]
    for name in (
        f"{FIRST}.deleted",
        "00000000000000000004.log.deleted",
        f"{FIRST}.cleaned",
    ):
        shutil.copy(segment, topic / name)
    for name in (f"topic-0.{UNIQUE}-stray", f"topic-0.{UNIQUE}-delete", f"topic-0.{UNIQUE}-future"):
        shutil.copytree(kept / "topic-0" / "000001", log_dir / name)
    (cut / "topic-0").mkdir(parents=True)
    shutil.copy(segment, cut / "topic-0" / f"{FIRST}.100-200")
    (cut / "topic-0" / f"{FIRST}.300-400").write_bytes(b"torn " + SECRET)
    others = contents(log_dir / "other-0")
    assert len(secrets_in(log_dir, kept, cut)) > 10
    before = contents(tmp_path)

    arguments = ("erase", log_dir, "topic", "--keys", keys, "--kept", kept, "--cut", cut)
    assert run(*arguments, "--dry-run")[0] == 0
    assert contents(tmp_path) == before
    code, out, _ = run(*arguments)
    assert code == 0
    assert out.splitlines()[-1].endswith(" erased")
    assert [name for name in secrets_in(log_dir, kept, cut) if "other-0" not in name] == []
    assert contents(log_dir / "other-0") == others
    code, out, _ = run(*arguments)
    assert code == 0
    assert out.splitlines()[-1] == "0 records of 0 files erased"

    assert run("undo", kept)[0] == 0
    assert {Path(name).parts[1] for name in secrets_in(log_dir)} == {"other-0"}
    assert not [each for each in cleaner.check(log_dir).findings if each.is_damage]


def test_what_is_kept_of_a_partition_that_is_gone(tmp_path: Path, keys: Path, run: Run) -> None:
    """Old segments are refused, unless the log dir has them that they came from; a cut is erased."""
    kept, cut, moved = tmp_path / "kept", tmp_path / "cut", tmp_path / "moved"
    log_dir = write_log_dir(tmp_path / "logs", personal_log(), personal_log("topic-1"))
    assert run("clean", log_dir, "topic-0", "topic-1", "--keep-old", kept, *COMPACT)[0] == 0
    for name in ("topic-1", "topic-9", "other-1"):
        (cut / name).mkdir(parents=True)
        (cut / name / f"{FIRST}.300-400").write_bytes(b"torn " + SECRET)
    shutil.copytree(log_dir, moved, ignore=lambda _, names: {name for name in names if name == "topic-0"})
    shutil.rmtree(log_dir / "topic-1")

    arguments = ("--keys", keys, "--kept", kept, "--cut", cut)
    code, _, err = run("erase", log_dir, "topic", *arguments)
    assert code == 1
    assert "kept/topic-1: its partition is not in the log dir" in "".join(err.split("\n  "))
    assert {Path(name).parts[1] for name in secrets_in(kept, cut)} == {"topic-1", "other-1"}
    assert f"rm -r {kept.resolve()}/topic-1" in "".join(err.split("\n  "))
    assert run("erase", log_dir, "topic-0", *arguments)[0] == 0
    assert run("erase", moved, "topic", *arguments)[0] == 0
    assert secrets_in(kept, cut, log_dir, moved) == [f"cut/other-1/{FIRST}.300-400"]


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("overrides", [{"count": 0}, {"count": 0, "attributes": 0}, {"attributes": 0x20}])
def test_cut_bytes_whose_header_hides_a_record_are_removed(
    log_dir: Path, tmp_path: Path, keys: Path, run: Run, codec: str, overrides: dict[str, int]
) -> None:
    """A batch that says it has no records, and one that says it is a marker; a batch that has none may stay."""
    place = tmp_path / "cut" / "topic-0"
    place.mkdir(parents=True)
    hiding, empty = place / f"{FIRST}.100-200", place / f"{FIRST}.200-300"
    hiding.write_bytes(data_batch([Record(SECRET, b"value")], 5, codec=codec, overrides=overrides))
    empty.write_bytes(empty_batch(5, 6))
    assert run("erase", log_dir, "topic", "--keys", keys, "--cut", tmp_path / "cut")[0] == 0
    assert [path for path in (hiding, empty) if path.exists()] == [empty]


@pytest.mark.parametrize("named", ["topic", "topic-0"])
def test_what_is_kept_of_a_topic_that_is_gone(tmp_path: Path, keys: Path, run: Run, named: str) -> None:
    """All of it: the name is known by what is kept, and is no slip."""
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    log_dir = write_log_dir(tmp_path / "logs", personal_log(), personal_log("other-0"))
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    (cut / "topic-0").mkdir(parents=True)
    (cut / "topic-0" / f"{FIRST}.300-400").write_bytes(b"torn " + SECRET)
    shutil.rmtree(log_dir / "topic-0")
    arguments = ("erase", log_dir, named, "--keys", keys)
    code, _, err = run(*arguments, "--kept", kept, "--cut", cut)
    assert (code, f"rm -r {kept.resolve()}/topic-0" in "".join(err.split("\n  "))) == (1, True)
    assert not [each for each in cut.rglob("*") if each.is_file()]
    shutil.rmtree(kept / "topic-0")
    assert run(*arguments, "--kept", kept, "--cut", cut)[0] == 0
    assert run(*arguments)[0] == UsageError.exit_code


def test_other_records_keep_their_bytes_and_the_log_its_end(log_dir: Path, keys: Path, run: Run) -> None:
    """Batches without a record to erase are copied; the last batch, of which nothing stays, holds up the log's end."""
    topic = log_dir / "topic-0"
    logs = sorted(topic.glob("*.log"))
    before = [batch for path in logs for batch in split_batches(path.read_bytes())]
    end = batch_info(before[-1]).last_offset
    assert run("erase", log_dir, "topic-0", "--keys", keys)[0] == 0
    after = [batch for path in logs for batch in split_batches(path.read_bytes())]
    last = batch_info(after[-1])
    assert (last.last_offset, last.record_count) == (end, 0)
    untouched = [batch for batch in before if SECRET not in batch and not batch_info(batch).attributes & 7]
    assert untouched
    assert [batch for batch in after if batch in untouched] == untouched
    with cleaner.open_reader(log_dir, "topic") as reader:
        assert {record.key for record in reader.read(0)} == {b"other", b"third"}


def test_offsets_of_one_partition(log_dir: Path, run: Run) -> None:
    """Also records without one of the keys; of a topic they are refused, and so are those of a renamed directory."""
    shutil.copytree(log_dir / "topic-0", log_dir / f"topic-0.{UNIQUE}-stray")
    code, out, err = run("erase", log_dir, "topic-0", "--offsets", "1-4")
    assert code == 1  # the renamed one
    assert "erase by keys" in err
    assert "4 records" in out
    with cleaner.open_reader(log_dir, "topic") as reader:
        assert [record.offset for record in reader.read(0)][:2] == [0, 5]
    for offsets in ("4-1", "4", "-1-2", "a-b"):
        with pytest.raises(SystemExit, match="2"):
            run("erase", log_dir, "topic-0", "--offsets", offsets)
    assert run("erase", log_dir, "topic-0", "other-0", "--offsets", "1-4")[0] == 2


def test_damage_refuses_its_directory_and_no_other(log_dir: Path, keys: Path, run: Run) -> None:
    """It may hide a record to erase: what to do is said, and nothing in that directory has changed."""
    flip_bit(log_dir / "other-0" / FIRST, 100)
    damaged = contents(log_dir / "other-0")
    code, _, err = run("erase", log_dir, "other", "topic", "--keys", keys)
    assert code == CorruptBatchError.exit_code
    assert f"other-0/{FIRST}: at byte 0" in err
    assert "may hold a record to erase" in err
    assert contents(log_dir / "other-0") == damaged
    assert not [name for name in secrets_in(log_dir) if "topic-0" in name]


@pytest.mark.parametrize("option", ["--kept", "--cut"])
def test_what_is_kept_elsewhere_is_checked_first(log_dir: Path, keys: Path, run: Run, option: str) -> None:
    """A directory that is not there, or in the log dir."""
    before = contents(log_dir)
    assert run("erase", log_dir, "topic", "--keys", keys, option, log_dir.parent / "none")[0] == 2
    code, _, err = run("erase", log_dir, "topic", "--keys", keys, option, log_dir / "other-0")
    assert code == 2
    assert "outside" in err
    assert contents(log_dir) == before


def test_nothing_is_counted_while_a_process_uses_the_log_dir(log_dir: Path, keys: Path, run: Run) -> None:
    """It may replace the files meanwhile."""
    with locked_elsewhere(log_dir):
        code, _, err = run("erase", log_dir, "topic", "--keys", keys, "--dry-run")
    assert (code, ".lock: locked by" in err) == (75, True)


def test_a_log_dir_that_is_open_or_torn_is_refused(log_dir: Path, keys: Path, run: Run) -> None:
    """Another process has it, or nobody has closed it."""
    before = contents(log_dir)
    with LogDirLock(FileSystem(), log_dir, LockMode.EXCLUSIVE):
        assert run("erase", log_dir, "topic", "--keys", keys)[0] == 75
    (log_dir / ".kafka_cleanshutdown").unlink()
    code, _, err = run("erase", log_dir, "topic", "--keys", keys)
    assert code == NotCleanlyShutDownError.exit_code
    assert "cleaner recover" in err
    after = contents(log_dir)
    assert before.pop(".kafka_cleanshutdown")
    assert after == before


def test_files_that_may_still_have_them_are_named(log_dir: Path, tmp_path: Path, keys: Path, run: Run) -> None:
    """A file that is no log's, a directory, a segment with another name elsewhere: exit code 1, and JSON says so."""
    topic = log_dir / "topic-0"
    (topic / "notes.txt").write_bytes(SECRET)
    (topic / "backup").mkdir()
    (topic / f"{FIRST}.tmp").write_bytes(SECRET)
    os.link(topic / FIRST, tmp_path / "link.log")
    code, out, err = run("erase", log_dir, "topic", "--keys", keys, "--format", "json")
    assert code == 1
    report = json.loads(out)
    assert report["unknown_files"] == [f"{FIRST}.tmp", "backup", "notes.txt"]
    assert report["linked_files"] == [str(topic.resolve() / FIRST)]
    assert report["is_complete"] is False
    assert "notes.txt: not a file of a log" in err
    assert "has another name elsewhere" in err
    assert (topic / "notes.txt").read_bytes() == SECRET


def test_kept_and_cut_files_with_another_name_elsewhere_are_named(
    log_dir: Path, tmp_path: Path, keys: Path, run: Run
) -> None:
    """Under that name the records live on; a kept file that is a segment of the log under a second name is none."""
    kept, cut, topic = tmp_path / "kept", tmp_path / "cut" / "topic-0", log_dir / "topic-0"
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    cut.mkdir(parents=True)
    group = kept / "topic-0" / "000002"
    group.mkdir()
    for path in topic.glob("*.log"):
        os.link(path, group / path.name)
    shutil.copy(topic / FIRST, cut / "0-1")
    # Named twice, a directory's own names must not count as twice as many.
    again = ("--kept", f"{kept}/../kept", "--cut", f"{cut.parent}/")
    arguments = ("erase", log_dir, "topic", "--keys", keys, "--kept", kept, "--cut", cut.parent, *again)
    code, out, _ = run(*arguments, "--dry-run", "--format", "json")
    assert (code, [json.loads(line)["linked_files"] for line in out.splitlines()]) == (0, [[], [], []])
    os.link(kept / "topic-0" / "000001" / FIRST, tmp_path / "link.log")
    os.link(cut / "0-1", tmp_path / "link.cut")
    before = {name: (tmp_path / name).read_bytes() for name in ("link.log", "link.cut")}
    for options in (("--dry-run",), ()):
        code, out, err = run(*arguments, *options, "--format", "json")
        assert code == 1
        linked = {each["place"]: each["linked_files"] for each in map(json.loads, out.splitlines())}
        assert linked == {
            "kept": [str((kept / "topic-0" / "000001" / FIRST).resolve())],
            "cut": [str((cut / "0-1").resolve())],
            "log": [],
        }
        assert err.count("has another name elsewhere") == 2
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert secrets_in(log_dir, kept, cut) == [name for name in secrets_in(log_dir, kept, cut) if "other-0" in name]


def test_batches_without_anything_to_erase_are_unpacked_once(
    log_dir: Path, keys: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the search; the second pass copies them."""
    judged, real = list[int](), ErasingSurvivors.judge

    def counting(self: ErasingSurvivors, path: Path, block: Any, retention: Any, verdicts: Any) -> None:
        judged.append(int((retention.unread == 0).sum()))
        real(self, path, block, retention, verdicts)

    monkeypatch.setattr(ErasingSurvivors, "judge", counting)
    code, out, _ = run("erase", log_dir, "topic", "--keys", keys, "--dry-run", "--format", "json")
    searched, touched = sum(judged), json.loads(out)["batches"]
    assert code == 0 and 0 < touched < searched
    judged.clear()
    assert run("erase", log_dir, "topic", "--keys", keys)[0] == 0
    assert sum(judged) == searched + touched


def test_a_linked_directory_is_not_followed(log_dir: Path, tmp_path: Path, keys: Path, run: Run) -> None:
    """Where it leads to may be anybody's."""
    (log_dir / "topic-0").rename(tmp_path / "elsewhere")
    (log_dir / "topic-0").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path / "elsewhere")
    code, _, err = run("erase", log_dir, "topic", "--keys", keys)
    assert code == 1
    assert "symbolic link" in err
    assert contents(tmp_path / "elsewhere") == before


def test_punched_files_are_overwritten_before_they_are_removed(
    log_dir: Path, tmp_path: Path, keys: Path, run: Run
) -> None:
    """Seen by a descriptor that was opened before; what is linked elsewhere is somebody's, and stays."""
    logs = sorted((log_dir / "topic-0").glob("*.log"))
    os.link(logs[1], tmp_path / "link.log")
    linked = logs[1].read_bytes()
    with logs[0].open("rb") as removed:
        size = logs[0].stat().st_size
        code, out, _ = run("erase", log_dir, "topic", "--keys", keys, "--punch")
        assert code == 1  # for the link
        assert removed.read() == bytes(size)
    assert (tmp_path / "link.log").read_bytes() == linked
    assert " of removed files overwritten" in out


def test_key_indexes_of_changed_segments_go(tmp_path: Path, keys: Path, run: Run) -> None:
    """They are made of keys; those of other segments stay good, and a round believes them."""
    log = GrowingLog(tmp_path)
    log.append(log.segment(0), [*log.segment(100), (SECRET.decode(), "goes")])
    log.clean()
    log.round(200)
    before = log.indexes()
    assert len(before) == 3
    assert run("erase", log.log_dir, "prices", "--keys", keys, "--index-dir", log.index_dir)[0] == 0
    assert log.indexes() == [before[0], before[2]]
    assert log.round(300).segments_unread == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a\n\nb\n", "line 2: an empty line"),
        (b"a\r\n", "line 1: a carriage return"),
        (b"\xef\xbb\xbfa\n", "line 1: a byte-order mark (UTF-8)"),
        ("\ufeffa\r\nb\r\n".encode("utf-16-le"), "line 1: a byte-order mark (UTF-16)"),
        ("\ufeffa\nb\n".encode("utf-16-be"), "line 1: a byte-order mark (UTF-16)"),
    ],
)
def test_lists_with_slips_are_refused(log_dir: Path, keys: Path, run: Run, text: bytes, says: str) -> None:
    """An empty line would be the empty key, and a carriage return or a mark a part of one, which no record has."""
    before = contents(log_dir)
    keys.write_bytes(text)
    code, _, err = run("erase", log_dir, "topic", "--keys", keys)
    assert code == UsageError.exit_code
    assert says in err
    assert contents(log_dir) == before


def test_calls_without_sense_are_refused(log_dir: Path) -> None:
    """Nothing to erase, two kinds at once, no such topic, every key."""
    before = contents(log_dir)
    for arguments in (
        {},
        {"keys": [b"a"], "prefixes": [b"b"]},
        {"prefixes": [b""]},
        {"prefixes": [b"a"], "offsets": (1, 2)},
    ):
        with pytest.raises(UsageError):
            cleaner.erase(log_dir, ["topic"], **arguments)  # type: ignore[arg-type]
    for names in ([], ["topi"], ["topic-1"], ["topic", "nothing"]):
        with pytest.raises(UsageError):
            cleaner.erase(log_dir, names, [SECRET])
    with pytest.raises(CleanerError):
        cleaner.erase(log_dir, "topic", [SECRET])  # a name where names are needed
    assert contents(log_dir) == before


def test_keys_may_come_one_by_one(log_dir: Path) -> None:
    """Of millions of keys, only digests are in memory."""

    def many() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(50_000))
        yield SECRET

    (report,) = cleaner.erase(log_dir, ["topic-0"], many(), now_ms=NOW)
    assert isinstance(report, cleaner.EraseReport)
    assert report.records == 11
    assert report.is_complete


def test_what_is_gone_already_is_forced_to_disk(
    log_dir: Path, tmp_path: Path, run: Run, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure before may have removed it, and could not force that: a power cut would bring it back."""
    kept, cut = tmp_path / "kept", tmp_path / "cut"
    (cut / "topic-0").mkdir(parents=True)
    assert run("clean", log_dir, "topic-0", "--keep-old", kept, *COMPACT)[0] == 0
    arguments = ("erase", log_dir, "topic", "--keys", keys, "--kept", kept, "--cut", cut)
    assert run(*arguments)[0] == 0
    forced = set[Path]()
    fsync_dir = FileSystem.fsync_dir

    def noted(fs: FileSystem, path: Path) -> None:
        forced.add(path)
        fsync_dir(fs, path)

    monkeypatch.setattr(FileSystem, "fsync_dir", noted)
    code, out, _ = run(*arguments)
    assert (code, out.splitlines()[-1]) == (0, "0 records of 0 files erased")
    assert {log_dir / "topic-0", kept / "topic-0" / "000001", cut / "topic-0"} <= forced
