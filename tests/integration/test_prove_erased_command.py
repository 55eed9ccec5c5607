"""`cleaner prove-erased`: its certificate, what keeps it from proving, and how it is checked."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import cleaner
from cleaner.app import erasure_proof
from cleaner.app.erasure_proof import Wanted, prove_erased
from cleaner.app.options import CallContext
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import CleanerError
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.segment.names import DirKind, partition_dir_name
from tests.golden.comparison import contents
from tests.support.batch_builder import Record, data_batch
from tests.support.codecs import CODEC_IDS
from tests.support.log_builder import LogBuilder, write_log_dir

WANTED = [b"customer-1", b"customer-2"]
LONG = "other" * 48  # cut in the name of a deleted partition's directory


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir without the wanted keys."""
    log = LogBuilder()
    for number in range(3, 9):
        log.append((f"customer-{number}", "v" * 50), codec="lz4")
    return write_log_dir(tmp_path / "logs", log)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The list of keys."""
    path = tmp_path / "keys"
    path.write_bytes(b"\n".join(WANTED) + b"\n")
    return path


def prove(directory: Path, **options: object) -> cleaner.Certificate:
    """Return the certificate of the library's call."""
    wanted = Wanted(**{"keys": WANTED, **options})
    return prove_erased([directory], wanted, CallContext.of(now_ms=1))


def append(log_dir: Path, data: bytes, name: str = "topic-0/00000000000000000000.log") -> None:
    """Append bytes to a file."""
    with (log_dir / name).open("ab") as file:
        file.write(data)


def a_record(key: str, value: str = "v") -> bytes:
    """Return a batch."""
    log = LogBuilder(base_offset=100)
    log.append((key, value))
    return log.files()[f"{100:020d}.log"]


def test_certificate_says_what_was_read(log_dir: Path, keys: Path, tmp_path: Path) -> None:
    """Of every file; nothing in the directory changes, and no key is in the certificate."""
    before = contents(log_dir)
    words = ["prove-erased", "--keys", str(keys), "--salt", str(tmp_path / "salt")]
    assert main([*words, "--certificate", str(tmp_path / "c.json"), str(log_dir)]) == 0
    assert contents(log_dir) == before
    text = (tmp_path / "c.json").read_bytes()
    assert not any(key in text for key in WANTED)
    assert (tmp_path / "salt").stat().st_mode & 0o777 == 0o600
    body = json.loads(text)["body"]
    assert body["result"] == "proven"
    assert [each["path"] for each in body["files"]] == sorted(str(p) for p in log_dir.rglob("*") if p.is_file())
    (log,) = [each for each in body["files"] if each["path"].endswith(".log")]
    assert (log["batches"], log["records"], log["codecs"], log["partition"]) == (6, 6, ["lz4"], "topic-0")
    assert len(body["key_digests"]) == 2
    checked = ["prove-erased", "--check", str(tmp_path / "c.json"), "--salt", str(tmp_path / "salt")]
    assert main([*checked, "--keys", str(keys)]) == 0


def test_certificate_goes_to_standard_output(log_dir: Path, keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name for it; without a salt it names no key."""
    append(log_dir, a_record("customer-2"))
    assert main(["prove-erased", "--keys", str(keys), str(log_dir)]) == 1
    body = json.loads(capsys.readouterr().out)["body"]
    assert (body["result"], body["key_digests"], body["found_records"]) == ("found", None, 1)
    (found,) = body["found"]
    assert (found["level"], found["offset"], found["key_line"], found["key_digest"]) == ("record", 100, 2, None)


def test_keys_of_a_json_list_and_of_prefixes(log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any bytes can be given."""
    (tmp_path / "keys").write_text('"customer-\\u0031"\n{"base64": "/wA="}\n')
    words = ["prove-erased", "--keys", str(tmp_path / "keys"), "--keys-format", "json"]
    append(log_dir, b"\xff\x00", "topic-0/notes")
    assert main([*words, str(log_dir)]) == 0  # too short to be looked for among bytes
    assert json.loads(capsys.readouterr().out)["body"]["short_keys"] == 1
    assert main(["prove-erased", "--key-prefix", "customer-", str(log_dir)]) == 1
    body = json.loads(capsys.readouterr().out)["body"]
    assert (body["found_records"], body["found_keys"], body["prefixes"]) == (6, 1, 1)
    assert all(each["is_prefix"] for each in body["found"])


def test_records_of_other_topics_do_not_count(log_dir: Path) -> None:
    """Bytes do, as nothing tells of which topic they are; the name of a deleted directory may be cut, if it is long."""
    append(log_dir, a_record("customer-1"))
    assert prove(log_dir, topics=["topic"]).result == "found"
    assert prove(log_dir, topics=["other"]).result == "proven"
    deleted = log_dir / f"other-0.{'0' * 32}-delete"
    (log_dir / "topic-0").rename(deleted)
    assert prove(log_dir, topics=["other"]).result == "found"
    assert prove(log_dir, topics=["topic", "others"]).result == "proven"
    cut = deleted.rename(log_dir / partition_dir_name(TopicPartition(LONG, 0), DirKind.DELETE, "0" * 32))
    assert not cut.name.startswith(LONG)
    assert prove(log_dir, topics=[LONG]).result == "found"
    assert prove(log_dir, topics=["topic"]).result == "proven"
    append(log_dir, b"customer-1", f"{cut.name}/notes")
    assert prove(log_dir, topics=["topic"]).result == "found"


def test_directory_without_a_file_proves_nothing(
    log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a mount point whose disk is missing; beside another directory, too."""
    (tmp_path / "disk" / "below").mkdir(parents=True)
    for places in ([tmp_path / "disk"], [log_dir, tmp_path / "disk"]):
        certificate = tmp_path / "certificate.json"
        words = ["prove-erased", *map(str, places), "--key-prefix", "zzz", "--certificate", str(certificate)]
        assert main(words) == 2
        assert f"{tmp_path / 'disk'}: no file in it to search; is its disk mounted?" in capsys.readouterr().err
        assert not certificate.exists()
    with pytest.raises(cleaner.CleanerError, match="is its disk mounted"):
        prove(tmp_path / "disk")


def test_topic_that_is_not_there_draws_a_warning(
    log_dir: Path, keys: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It may have been deleted, or its name be another: then no record was looked at, and the result is `proven`."""
    append(log_dir, a_record("customer-1"))
    cut = partition_dir_name(TopicPartition(LONG, 0), DirKind.DELETE, "0" * 32)
    (log_dir / cut).mkdir()
    append(log_dir, b"", f"{cut}/notes")
    words = ["prove-erased", "--keys", str(keys), "--certificate", str(tmp_path / "c"), str(log_dir)]
    assert main([*words, "--topic", LONG, "--topic", "topics"]) == 0
    err = capsys.readouterr().err
    assert "no directory of a partition of the topic topics" in err
    assert LONG not in err


def test_mentions_refute_only_on_request(log_dir: Path) -> None:
    """A key within the value of another record."""
    append(log_dir, a_record("other", "the order of customer-2"))
    noted, refuted, unseen = (prove(log_dir, mentions=each) for each in ("note", "found", "off"))
    assert (noted.result, noted.found_mentions, noted.found_records) == ("proven", 1, 0)
    assert (refuted.result, unseen.result, unseen.found_mentions) == ("found", "proven", 0)


def make_socket(path: Path) -> None:
    """Make a socket; its path may be longer than a socket's may."""
    with socket.socket(socket.AF_UNIX) as each:
        each.bind(os.path.relpath(path))


DOUBTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "bad checksum": (lambda path: append(path, a_record("other")[:-1] + b"x"), "damaged"),
    "cut off": (lambda path: append(path, a_record("other")[:-1]), "damaged"),
    "a cut copy": (lambda path: (path / "cut").write_bytes(a_record("other")[:-1]), "damaged"),
    "archive": (lambda path: (path / "old.tar").write_bytes(b"\x1f\x8b\x08 and so on"), "not_searched"),
    "pipe": (lambda path: os.mkfifo(path / "pipe"), "special_file"),
    "socket": (lambda path: make_socket(path / "s"), "special_file"),
    "link": (lambda path: (path / "link").symlink_to("/etc"), "symlink"),
}


@pytest.mark.parametrize("kind", DOUBTS)
def test_what_cannot_be_searched_keeps_it_from_proving(
    log_dir: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, with its place."""
    monkeypatch.chdir(log_dir.parent)
    make, doubt = DOUBTS[kind]
    make(log_dir)
    certificate = prove(log_dir)
    assert certificate.result == "not_proven"
    assert [each.kind.value for each in certificate.not_searched] == [doubt]


def _tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "inner.gz")


def _zstd_behind_a_skipped_frame(path: Path) -> None:
    path.write_bytes(b"\x50\x2a\x4d\x18\x00\x00\x00\x00" + bytes(cramjam.zstd.compress(b"forgotten")))


def _arrow(path: Path) -> None:
    table = pa.table({"key": [b"forgotten"]})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


ARCHIVES: dict[str, Callable[[Path], object]] = {
    "gzip": lambda path: path.write_bytes(gzip.compress(b"forgotten")),
    "bzip2": lambda path: path.write_bytes(bz2.compress(b"forgotten")),
    "xz": lambda path: path.write_bytes(lzma.compress(b"forgotten")),
    "zip": lambda path: zipfile.ZipFile(path, "w").writestr("inner", b"forgotten"),
    "tar": _tar,
    "zstd": lambda path: path.write_bytes(bytes(cramjam.zstd.compress(b"forgotten"))),
    "zstd behind a skipped frame": _zstd_behind_a_skipped_frame,
    "Parquet": lambda path: pq.write_table(pa.table({"key": [b"forgotten"]}), path),
    "ORC": lambda path: orc.write_table(pa.table({"key": [b"forgotten"]}), path),
    "Arrow": _arrow,
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_file_of_a_packed_form_is_not_called_searched(log_dir: Path, kind: str) -> None:
    """As other programs write them; their names do not matter."""
    ARCHIVES[kind](log_dir / "archive")
    certificate = prove(log_dir)
    assert certificate.result in ("found", "not_proven")
    assert [each.kind.value for each in certificate.not_searched] == ["not_searched"]


@pytest.mark.parametrize("form", ["parquet", "iceberg"])
def test_exported_tables_are_not_called_searched(log_dir: Path, tmp_path: Path, form: str) -> None:
    """Keys are in them, packed: in rows, and of Iceberg also in the lists of files."""
    cleaner.export(log_dir, "topic", tmp_path / "table", form=form)
    packed = {str(each) for end in ("parquet", "avro") for each in (tmp_path / "table").rglob(f"*.{end}")}
    certificate = prove(tmp_path / "table")
    assert certificate.result == "not_proven"
    assert {str(each.path) for each in certificate.not_searched} == packed


def test_link_within_the_directories_hides_nothing(log_dir: Path) -> None:
    """What it leads to is searched."""
    (log_dir / "link").symlink_to(log_dir / "topic-0")
    assert prove(log_dir).is_proven


def test_zeros_behind_the_last_batch_are_no_damage(log_dir: Path) -> None:
    """As brokers preallocate them."""
    append(log_dir, bytes(5000))
    assert prove(log_dir).is_proven


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_record_in_a_batch_that_says_it_is_a_marker_is_found(log_dir: Path, codec: str) -> None:
    """The key of a marker is four bytes, which are the marker's type."""
    control = 0x20 | CODEC_IDS[codec]
    hiding = data_batch([Record(b"customer-1", b"value")], 5, codec=codec, overrides={"attributes": control})
    append(log_dir, hiding)
    assert prove(log_dir).result == "found"


class Busy(FileSystem):
    """Does something when the n-th file is opened."""

    def __init__(self, number: int, act: Callable[[], object]) -> None:
        self.left = number
        self.act = act

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open, after what is to happen."""
        self.left -= 1
        if self.left == 0:
            self.act()
        return super().open(path, write=write)


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda path: append(path, a_record("customer-1")),
    "new": lambda path: (path / "aaa").write_bytes(a_record("customer-1")),
    "gone": lambda path: (path / "topic-0/partition.metadata").unlink(),
    "renamed": lambda path: (path / "topic-0").rename(path / "atopic-0"),
    "exchanged": lambda path: (path / "meta.properties").rename(path / "topic-0/partition.metadata"),
    "same bytes again": lambda path: (path / "meta.properties").write_bytes((path / "meta.properties").read_bytes()),
}


@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("kind", CHANGES)
def test_directory_in_use_is_never_proven(
    log_dir: Path, kind: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever another process does in it, before or after the file is read."""
    monkeypatch.setattr(erasure_proof, "_MORE_SEARCHES", 0)
    fs = Busy(number, lambda: CHANGES[kind](log_dir))
    certificate = prove_erased([log_dir], Wanted(keys=WANTED), CallContext.of(fs, 1))
    assert fs.left <= 0
    assert certificate.result != "proven"
    assert "changed" in {each.kind.value for each in certificate.not_searched}


@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("kind", CHANGES)
def test_directory_that_was_changed_once_is_searched_again(log_dir: Path, kind: str, number: int) -> None:
    """A round that ends meanwhile is in nobody's way; the certificate is of the last search."""
    context = CallContext.of(Busy(number, lambda: CHANGES[kind](log_dir)))
    certificate = prove_erased([log_dir], Wanted(keys=WANTED), context)
    assert certificate.result == ("found" if kind in ("written", "new") else "proven")
    assert len({each.path for each in certificate.files}) == certificate.total_files


def test_files_written_a_moment_ago_are_proven_all_the_same(log_dir: Path) -> None:
    """It waits until a further change would show in the files' times."""
    append(log_dir, a_record("other"))
    assert prove_erased([log_dir], Wanted(keys=WANTED), CallContext()).is_proven


def test_check_of_a_certificate(log_dir: Path, keys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It holds as long as it is unaltered, its files have the same bytes, and it covers the keys."""
    certificate, salt = tmp_path / "c.json", tmp_path / "salt"
    words = ["prove-erased", "--salt", str(salt), "--keys", str(keys)]
    assert main([*words, "--key-prefix", "client/", "--certificate", str(certificate), str(log_dir)]) == 0
    check = [*words, "--check", str(certificate), "--format", "json"]
    keys.write_bytes(b"customer-1\nclient/7\n")
    assert main(check) == 0
    keys.write_bytes(b"customer-1\nclient7\n")
    assert main(check) == 1
    append(log_dir, b"\n", "meta.properties")
    (log_dir / "topic-0/partition.metadata").unlink()
    capsys.readouterr()
    assert main(check) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["total_uncovered"], found["uncovered_lines"], found["holds"]) == (1, [2], False)
    assert [Path(each["path"]).name for each in found["changed"]] == ["meta.properties", "partition.metadata"]
    certificate.write_text(certificate.read_text().replace('"total_batches": 6', '"total_batches": 7'))
    assert main(check) == 1
    assert not json.loads(capsys.readouterr().out)["is_unaltered"]


REFUSED = {
    "no directory": (["--keys", "keys"], "no directory"),
    "no such directory": (["--keys", "keys", "nothing"], "nothing"),
    "nothing to look for": (["logs"], "nothing to look for"),
    "an empty list": (["--keys", "/dev/null", "logs"], "the list of keys is empty"),
    "an empty prefix": (["--key-prefix", "", "logs"], "an empty prefix"),
    "no list": (["--keys", "nothing", "logs"], "nothing"),
    "a bad list": (["--keys", "keys", "--keys-format", "json", "logs"], "line 1"),
    "a file that exists": (["--keys", "keys", "--certificate", "keys", "logs"], "exists"),
    "no place for it": (["--keys", "keys", "--certificate", "nothing/c", "logs"], "no directory nothing"),
    "no salt": (["--keys", "keys", "--salt", "keys", "logs"], "not a salt"),
    "check and directory": (["--check", "c", "logs"], "--check takes"),
    "no certificate": (["--check", "keys"], "not a certificate"),
    "check of nothing": (["--check", "nothing"], "no such file"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_mistakes_are_named(
    log_dir: Path, keys: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read."""
    monkeypatch.chdir(keys.parent)
    words, reason = REFUSED[kind]
    assert main(["prove-erased", *words]) == 2
    output = capsys.readouterr()
    assert reason in output.err
    assert output.out == ""


def test_certificate_is_never_replaced(log_dir: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by one that appears while the directories are searched either; nothing half-written stays."""
    certificate = keys.with_name("c.json")
    monkeypatch.setattr("cleaner.app.evidence_files.require_new", lambda fs, path: path.write_text("another"))
    assert main(["prove-erased", "--keys", str(keys), "--certificate", str(certificate), str(log_dir)]) == 2
    assert certificate.read_text() == "another"
    assert sorted(path.name for path in keys.parent.iterdir()) == ["c.json", "keys", "logs"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"directories": "/tmp"},  # noqa: S108
        {"directories": []},
        {"directories": [5]},
        {"keys": b"key"},
        {"keys": ["key"]},
        {"keys": 5},
        {"keys": []},
        {"prefixes": [""]},
        {"prefixes": [b""]},
        {"topics": "topic"},
        {"mentions": "no"},
        {"salt": "salt"},
        {"progress": 5},
        {"check_done": 5},
        {"fs": 5},
    ],
    ids=str,
)
def test_library_refuses_what_it_cannot_use(log_dir: Path, wrong: dict[str, object]) -> None:
    """With an error that names it."""
    with pytest.raises(CleanerError):
        cleaner.prove_erased(**{"directories": [log_dir], "keys": WANTED, **wrong})


def test_library_returns_the_certificate(log_dir: Path) -> None:
    """And reports progress; a stop is the caller's error."""
    phases: list[tuple[str, int, int]] = []
    found = cleaner.prove_erased([log_dir], WANTED, salt=b"salt", progress=lambda *each: phases.append(each))
    assert found.is_proven
    assert phases[-1][1] == phases[-1][2] == found.total_bytes
    stop = threading.Event()

    def check_done() -> None:
        stop.set()
        raise cleaner.errors.CleaningAborted

    with pytest.raises(cleaner.errors.CleaningAborted):
        cleaner.prove_erased([log_dir], WANTED, check_done=check_done)
    assert stop.is_set()
