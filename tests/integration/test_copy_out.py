"""`bulk --to`: a compacted copy in a bucket, read back before its manifest; the log dir stays as it is."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

import cleaner
from cleaner.base.remote_path import any_path
from cleaner.cli.bulk import clean_copy
from cleaner.cli.main import main
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError, UsageError
from cleaner.storage.fs import new_copy
from cleaner.storage.fs.open_file import File
from cleaner.storage.fs.store import Limits
from tests.integration.log_dirs import NOW, contents, keyed_log
from tests.support import s3_server as faults
from tests.support.log_builder import CLEAN_SHUTDOWN, write_log_dir
from tests.support.s3_server import BUCKET, S3Server, environment, s3_server

COMPACT = {"cleanup.policy": "compact"}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started, pytest.MonkeyPatch.context() as patch:
        for name, value in environment(started).items():
            patch.setenv(name, value)
        patch.setattr(new_copy, "LIMITS", Limits(attempts=3, pause_seconds=0.01))
        yield started


@pytest.fixture(autouse=True)
def _empty_bucket(server: S3Server) -> None:
    server.faults.clear()
    server.make_bucket()
    server.requests.clear()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("other-0"))


def copied(log_dir: Path, url: str = f"s3://{BUCKET}/copy") -> int:
    """Copy with a round of the engine instead of Spark's; returns the exit code."""
    scratch = log_dir.with_name("scratch")
    words = argparse.Namespace(log_dir=log_dir, to=any_path(url), scratch=scratch, dry_run=False, as_root=True)

    def clean() -> int:
        assert words.log_dir == scratch
        cleaner.clean(scratch, "topic-0", COMPACT, now_ms=NOW)
        return 0

    return clean_copy(words, clean)


def stored(server: S3Server) -> list[str]:
    """Return the objects that were put, in order."""
    return [path.partition("/copy/")[2] for method, path, _ in server.requests if method == "PUT"]


def test_copy_is_what_cleaning_in_place_leaves(log_dir: Path, server: S3Server, capsys: Capture) -> None:
    """It is proven and sound, read where it is; the manifest comes last and names every object."""
    before = contents(log_dir)
    url = f"s3://{BUCKET}/copy"

    assert copied(log_dir) == 0
    assert capsys.readouterr().out.endswith(f"put and read back: {url}/cleaner-copy.json\n")
    assert contents(log_dir) == before
    assert not log_dir.with_name("scratch").exists()
    names = stored(server)
    assert names[-1] == "cleaner-copy.json"
    assert cleaner.verify(log_dir, url, "topic-0", COMPACT, now_ms=NOW).is_proven
    assert cleaner.check(url).is_sound
    with cleaner.open_reader(url, "topic") as reader, reader.latest() as latest:
        assert len(latest.to_dict()) == 5
    cleaner.clean(log_dir, "topic-0", COMPACT, now_ms=NOW)
    here = {path: sha256((log_dir / path).read_bytes()).hexdigest() for path in contents(log_dir)}
    about = json.loads(_get(server, "cleaner-copy.json"))
    assert (about["format"], about["format_version"], about["source"]) == ("cleaner-copy", 1, str(log_dir))
    assert {each["name"]: each["sha256"] for each in about["files"]} == here
    assert sorted(names[:-1]) == sorted(here)


def _get(server: S3Server, name: str) -> bytes:
    from cleaner.storage.fs.remote import RemoteFiles

    return RemoteFiles().read_bytes(any_path(f"s3://{BUCKET}/copy/{name}"))


def test_busy_service_is_asked_again(log_dir: Path, server: S3Server) -> None:
    """Each object is put whole in the end."""
    left = [4]

    def strike(answer: faults.Answer) -> None:
        if answer.method == "PUT" and left[0]:
            left[0] -= 1
            if left[0] % 2:
                faults.busy(answer)

    server.faults[:] = [strike]
    assert copied(log_dir) == 0
    assert len(stored(server)) == len(set(stored(server))) + 2


@pytest.mark.parametrize("kept", [0, 5])
def test_service_that_refuses_leaves_no_manifest(log_dir: Path, server: S3Server, kept: int) -> None:
    """Neither at the first object nor in the middle; the next attempt says that there is something."""
    count = [0]

    def strike(answer: faults.Answer) -> None:
        count[0] += answer.method == "PUT"
        if answer.method == "PUT" and count[0] > kept:
            faults.denied(answer)

    server.faults[:] = [strike]
    with pytest.raises(LogDirOfflineError, match=r"AccessDenied \(HTTP 403\)"):
        copied(log_dir)
    assert "cleaner-copy.json" not in stored(server)
    assert contents(log_dir.with_name("scratch"))
    if kept:
        server.faults.clear()
        with pytest.raises(UsageError, match="there is something already"):
            copied(log_dir)


def test_other_bytes_than_were_put_are_noticed(
    log_dir: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object of the same size: there is no manifest."""
    real = new_copy.NewCopy.put

    def put(self: new_copy.NewCopy, path: object, file: File) -> int:
        size = real(self, path, file)
        if str(path).endswith("00000000000000000060.log"):
            server.put(f"copy/topic-0/{file.path.name}", file.read(size, 0)[::-1])
        return size

    monkeypatch.setattr(new_copy.NewCopy, "put", put)
    with pytest.raises(LogDirOfflineError, match="other bytes than it was given"):
        copied(log_dir)
    assert "cleaner-copy.json" not in stored(server)


def test_log_dir_that_is_written_meanwhile(log_dir: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused, and nothing is put."""
    real = File.copy_from

    def copy_from(self: File, source: File, size: int, position: int) -> int:
        done = real(self, source, size, position)
        with source.path.open("ab") as other:
            other.write(b"x")
        return done

    monkeypatch.setattr(File, "copy_from", copy_from)
    with pytest.raises(LogChangedError, match="has changed while it was copied"):
        copied(log_dir)
    assert stored(server) == []


def test_round_that_is_refused_puts_nothing(log_dir: Path, server: S3Server, capsys: Capture) -> None:
    """The exit code is the round's."""
    (log_dir / CLEAN_SHUTDOWN).unlink()
    with pytest.raises(CleanerError):
        copied(log_dir)
    assert stored(server) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", f"s3://{BUCKET}/copy"], "needs --scratch"),
        (["--to", "copy", "--scratch", "scratch"], "needs --scratch"),
        (["--to", f"gs://{BUCKET}/copy", "--scratch", "scratch"], "copies are written to s3:// only"),
        (["--to", f"s3://{BUCKET}/copy", "--scratch", "logs/x"], "inside of the log dir"),
        (["--to", f"s3://{BUCKET}/copy", "--scratch", "full"], "is not empty"),
        (["--to", f"s3://{BUCKET}/copy", "--scratch", f"s3://{BUCKET}/x"], "that option needs a path of this machine"),
    ],
)
def test_refusals(
    words: list[str], said: str, log_dir: Path, server: S3Server, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written anywhere."""
    monkeypatch.chdir(log_dir.parent)
    (log_dir.parent / "full").mkdir()
    (log_dir.parent / "full" / "x").touch()
    before = contents(log_dir.parent)
    assert main(["bulk", "logs", "topic-0", *words]) == 2
    assert said in capsys.readouterr().err
    assert stored(server) == []
    assert contents(log_dir.parent) == before
