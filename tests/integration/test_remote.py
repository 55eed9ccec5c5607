"""Log dirs in a bucket: each command says of them what it says of the same directory on a disk, and changes nothing."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.base.remote_path import any_path
from cleaner.cli.main import main
from cleaner.errors import UsageError
from cleaner.log.reader import open_reader
from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import plan
from cleaner.spark.source.task import run_task
from cleaner.storage.fs.remote import RemoteFiles, files_for
from tests.integration.log_dirs import NOW, keyed_log
from tests.support.log_builder import write_log_dir
from tests.support.object_servers import KINDS, environment_of, object_server, url_of
from tests.support.s3_server import BUCKET, KEY_ID, SECRET, S3Server, environment, s3_server

Capture = pytest.CaptureFixture[str]
COMPACT = ("--set", "topic:cleanup.policy=compact")
FIRST = "topic-0/00000000000000000000.log"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started:
        started.make_bucket()
        yield started


@pytest.fixture(scope="module")
def places(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The same log dir on a disk and in the bucket, before and after cleaning."""
    made = tmp_path_factory.mktemp("places")
    for name in ("before", "after"):
        (made / name).mkdir()
        write_log_dir(made / name, keyed_log())
    cleaner.clean(made / "after", "topic-0", {"cleanup.policy": "compact"}, now_ms=NOW)
    for name in ("before", "after"):
        server.upload(made / name, f"kafka/{name}")
    (made / "keys").write_text("k0\n")
    return {"disk": str(made), "bucket": f"s3://{BUCKET}/kafka"}


@pytest.fixture(autouse=True)
def credentials(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    server.requests.clear()


READING = {
    "plan": ["plan", "{}/before", *COMPACT, "--now", str(NOW), "--format", "json"],
    "check": ["check", "{}/after", "--format", "json"],
    "gaps": ["gaps", "{}/after", *COMPACT, "--format", "json"],
    "gaps of a partition": ["gaps", "{}/after/topic-0", *COMPACT],
    "dump": ["dump", "{}/before/" + FIRST, "{}/before/topic-0/00000000000000000000.index", "--print-data-log"],
    "consume": ["consume", "--log-dir", "{}/after", "--topic", "topic", "--from-beginning", "--format", "json"],
    "verify": ["verify", "{}/before", "{}/after", *COMPACT, "--now", str(NOW), "--as-root"],
    "replicas": ["check", "--replicas", "{}/before", "{}/after", *COMPACT, "--as-root"],
}


@pytest.mark.parametrize("name", READING)
def test_command_says_the_same_of_a_bucket(
    name: str, places: dict[str, str], server: S3Server, capsys: Capture
) -> None:
    """Output and exit code are those for the directory on a disk, with the other paths in them."""
    found = []
    for place in (places["disk"], places["bucket"]):
        code = main([word.replace("{}", place) for word in READING[name]])
        out, err = capsys.readouterr()
        found.append((code, out.replace(place, "PLACE"), err.replace(place, "PLACE")))

    assert found[0] == found[1]
    assert found[0][1]
    assert server.requests
    assert {method for method, _, _ in server.requests} == {"GET"}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_other_kinds_of_storage_are_read(
    kind: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    """Of each kind commands say what they say of the disk; two kinds are compared with each other."""
    with object_server(kind) as server:
        for name, value in environment_of(kind, server).items():
            monkeypatch.setenv(name, value)
        for name in ("before", "after"):
            server.upload(Path(places["disk"]) / name, f"kafka/{name}")
        url = f"{url_of(kind, server)}/kafka"
        found = []
        for place in (places["disk"], url):
            code = main([word.replace("{}", place) for word in READING["consume"]])
            out, err = capsys.readouterr()
            found.append((code, out, err))
        assert found[0] == found[1]
        assert cleaner.verify(
            f"{places['bucket']}/before", f"{url}/after", "topic-0", {"cleanup.policy": "compact"}, now_ms=NOW
        ).is_proven
        assert cleaner.export(f"{url}/after", "topic", tmp_path / "out").rows == 5
        assert main(["clean", f"{url}/after", "topic-0"]) == 2
        assert "a bucket is only read" in capsys.readouterr().err


def test_certificate_of_a_bucket_can_be_checked(
    places: dict[str, str], server: S3Server, tmp_path: Path, capsys: Capture
) -> None:
    """It finds the key in the bucket, names objects by their URLs, and notices that one was replaced."""
    target, url = tmp_path / "certificate", f"{places['bucket']}/before"
    keys = f"{places['disk']}/keys"
    assert main(["prove-erased", url, "--keys", keys, "--certificate", str(target)]) == 1
    body = json.loads(target.read_text())["body"]

    assert body["found_records"] > 0
    assert body["total_bytes"] == sum(
        each.stat().st_size for each in (Path(places["disk"]) / "before").rglob("*") if each.is_file()
    )
    assert f"{url}/{FIRST}" in [each["path"] for each in body["files"]]
    capsys.readouterr()
    main(["prove-erased", "--check", str(target), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["changed"] == []
    data = (Path(places["disk"]) / "before" / FIRST).read_bytes()
    server.put(f"kafka/before/{FIRST}", data + b"x")
    try:
        main(["prove-erased", "--check", str(target), "--format", "json"])
        assert [each["path"] for each in json.loads(capsys.readouterr().out)["changed"]] == [f"{url}/{FIRST}"]
    finally:
        server.put(f"kafka/before/{FIRST}", data)


def test_spark_source_reads_a_bucket(places: dict[str, str]) -> None:
    """Plan and tasks, with a pattern and as Spark ships them: the rows of the directory on a disk."""
    rows = []
    for path in (f"{places['disk']}/after", f"{places['bucket']}/after", f"{places['bucket']}/aft*/topic-[0]"):
        options = read_options({"path": path})
        fs = files_for(None, path)
        tasks = pickle.loads(pickle.dumps(plan(fs, options, Pruning())))  # noqa: S301
        batches = [batch for task in tasks for batch in run_task(files_for(None, path), options, task, None)]
        rows.append(
            sorted(
                (row["topic"], row["partition"], row["offset"], row["value"]) for b in batches for row in b.to_pylist()
            )
        )

    assert len(rows[0]) > 10
    assert rows[1] == rows[0]
    assert rows[2] == rows[0]


def test_library_reads_a_bucket(places: dict[str, str]) -> None:
    """As commands do; a log dir on a disk and one in a bucket are compared with each other."""
    before, after = f"{places['disk']}/before", f"{places['bucket']}/after"
    settings = {"cleanup.policy": "compact"}

    assert cleaner.verify(before, after, "topic-0", settings, now_ms=NOW).is_proven
    assert cleaner.check(after).is_sound
    with open_reader(after, "topic", 0) as reader, open_reader(f"{places['disk']}/after", "topic", 0) as other:
        assert [each.offset for each in reader.read(0)] == [each.offset for each in other.read(0)]
    assert [each.partition for each in cleaner.plan(after)] == ["topic-0"]
    assert pickle.loads(pickle.dumps(RemoteFiles())).exists(any_path(after))  # noqa: S301


def test_commands_of_the_page_run(places: dict[str, str], server: S3Server, tmp_path: Path, capsys: Capture) -> None:
    """docs/buckets.md: each command as it stands there, of the log dirs of its names."""
    page = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text()
    found = re.findall(r"^    cleaner (.*s3://.*)$", page.partition("\n## ")[0], flags=re.MULTILINE)
    for words in map(shlex.split, found):
        renamed = {"kafka": "kafka/before", "cleaned": "kafka/after"}
        for old, new in renamed.items():
            words = [re.sub(rf"^s3://backups/{old}(?=/|$)", f"s3://backups/{new}", word) for word in words]
        if words[0] == "export":
            words[-1] = str(tmp_path / words[-1])
        assert main(words) == 0, (words, capsys.readouterr().err)
        assert capsys.readouterr().out
    assert [each.split()[0] for each in found] == [
        *("plan", "check", "gaps", "consume", "dump", "verify", "prove-erased", "export")
    ]


REFUSED = {
    "clean": ["clean", "{}", "topic-0"],
    "erase": ["erase", "{}", "--keys", "/dev/null"],
    "recover": ["recover", "{}"],
    "topics": ["topics", "--log-dir", "{}", "--list"],
    "produce": ["produce", "--log-dir", "{}", "--topic", "topic"],
    "undo": ["undo", "{}"],
    "handover": ["handover", "--from", "{}", "--to", ".", "--topic-id", "topic=MkTRaKkVTk2YVkyKvNMc8w"],
    "repair": ["check", "{}", "--repair"],
    "follow": ["consume", "--log-dir", "{}", "--topic", "topic", "--follow"],
    "config": ["plan", ".", "--config", "{}"],
    "set with =": ["plan", ".", "--topics-dir={}"],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_a_bucket_is_refused(
    name: str, places: dict[str, str], server: S3Server, capsys: Capture
) -> None:
    """In one line that names the bucket and what to do, without a single request."""
    url = f"{places['bucket']}/before"

    assert main([word.replace("{}", url) for word in REFUSED[name]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"cleaner: {url}: ")
    assert "copy the log dir to a disk first" in err
    assert server.requests == []


def test_library_refuses_what_would_change_a_bucket(places: dict[str, str], server: S3Server) -> None:
    """The file system, too, whoever calls it."""
    url = f"{places['bucket']}/before"
    for call in (
        lambda: cleaner.clean(url, "topic-0"),
        lambda: cleaner.check(url, repair=True),
        lambda: cleaner.LogManager(url),
        lambda: RemoteFiles().remove(any_path(f"{url}/{FIRST}")),
        lambda: RemoteFiles().open(any_path(f"{url}/{FIRST}"), write=True),
        lambda: RemoteFiles().write_atomically(any_path(f"{url}/x"), b""),
        lambda: RemoteFiles().hold(any_path(url)),
    ):
        with pytest.raises(UsageError, match="copy the log dir to a disk first"):
            call()
    assert [each for each in server.requests if each[0] != "GET"] == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"s3://{KEY_ID}:{SECRET}@{BUCKET}/kafka", "credentials do not belong in a path"),
        (f"gs://{KEY_ID}:{SECRET}@bucket/kafka", "credentials do not belong in a path"),
        (f"abfs://{KEY_ID}:{SECRET}@bucket/kafka", "credentials do not belong in a path"),
        ("ftp://bucket/kafka", "not from ftp://"),
        ("hdfs:///kafka", "no name node; give hdfs://NAMENODE:8020/PATH"),
        ("abfs://container/kafka", "give abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX"),
        ("s3:///kafka", "no bucket"),
        (f"s3://{BUCKET}/kafka/none", "no such directory"),
        (f"s3://{BUCKET}/kafka", "contains log dirs, but is not one"),
    ],
)
def test_wrong_places_are_named_without_credentials(url: str, words: str, capsys: Capture) -> None:
    """A URL with credentials is not repeated, nor tried."""
    assert main(["plan", url]) == 2
    _, err = capsys.readouterr()
    assert words in err
    assert SECRET not in err
    assert KEY_ID not in err
