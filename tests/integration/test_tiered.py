"""Topics whose older segments a broker has moved away: read whole, or refused in words, whatever lies in the bucket."""

from __future__ import annotations

import json
import pickle
import random
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import any_path, tiered_place
from cleaner.cli.main import main
from cleaner.errors import CleanerError, LogChangedError, LogDirOfflineError, UsageError
from cleaner.log.reader import open_reader
from cleaner.spark.source.filters import Pruning
from cleaner.spark.source.options import read_options
from cleaner.spark.source.plan import plan
from cleaner.spark.source.task import run_task
from cleaner.storage.fs.remote import RemoteFiles, files_for
from cleaner.storage.fs.store import Limits
from tests.support import s3_server as faults
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.s3_server import BUCKET, S3Server, environment, first, s3_server
from tests.support.tiered_uploads import SEGMENT_ID, move, pack_sizes, remove_local

Capture = pytest.CaptureFixture[str]
OTHER_ID = "adh9f8BMS4anaUnD8KWfWg"
TOPIC = TopicPartition("topic", 0)
Isolation = Literal["read_committed", "read_uncommitted"]
BOTH: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")


def fill(
    log: LogBuilder, rolls: set[int], epochs: dict[int, int], end: int, seed: int = 1, lost_from: int = 1 << 60
) -> LogBuilder:
    """Append records and transactions; the same at the same offsets, but others from where they were lost."""
    draw = random.Random(seed)
    while log.next_offset < end:
        offset = log.next_offset
        if offset in rolls and log.base_offsets[-1] != offset:
            log.roll()
        log.leader_epoch = max((epoch for epoch, start in epochs.items() if start <= offset), default=0)
        value = draw.choice(["", "v" * draw.randrange(200)]) + "lost" * (offset >= lost_from)
        match draw.randrange(5):
            case 0:
                log.append((f"k{offset % 5}", value), producer=Producer(7, 0, offset, transactional=True))
                log.end_transaction(7, 0, commit=draw.random() < 0.5)
            case 1:
                log.append((f"k{offset % 5}", value), (f"k{offset % 3}", "two"))
            case _:
                log.append((f"k{offset % 5}", value))
    return log


def starts(log: LogBuilder, every: int) -> set[int]:
    """Return every so manyth batch's first offset, where a log can be rolled."""
    from tests.support.batch_reader import batch_info, split_batches

    data = b"".join(data for name, data in sorted(log.files().items()) if name.endswith(".log"))
    return {batch_info(batch).base_offset for batch in split_batches(data)[every::every]}


def records(place: str, isolation: Isolation) -> list[tuple[int, bytes | None, bytes | None]]:
    """Read a partition as readers do."""
    with open_reader(place, "topic", 0) as reader:
        found = reader.read(reader.log_start_offset, isolation=isolation)
        return [(each.offset or 0, each.key, each.value) for each in found]


def place_of(root: Path, *, with_tail: bool = True) -> str:
    return f"tiered+file://{root / 'bucket'}" + (f"::{root / 'tail'}" if with_tail else "")


def joined(root: Path, log: LogBuilder, *, moved: int, removed: int, **how: Any) -> str:
    """Write a log dir whose first segments are in a bucket; some of them are removed locally. Returns its URL."""
    write_log_dir(root / "whole", log)
    write_log_dir(root / "tail", log, log_start_offsets={TOPIC: 0})
    move(log, root / "bucket", log.base_offsets[:moved], **how)
    remove_local(root / "tail" / "topic-0", log.base_offsets[:removed])
    return place_of(root)


@pytest.fixture
def log() -> LogBuilder:
    shape = fill(LogBuilder(), set(), {}, 60)
    return fill(LogBuilder(index_interval_bytes=100), starts(shape, 8), {0: 0, 3: 20}, 60)


@pytest.mark.parametrize("compressed", [True, False])
def test_joined_topic_is_whole(log: LogBuilder, tmp_path: Path, compressed: bool, capsys: Capture) -> None:
    """Record for record what was written, at both isolation levels; and commands say what they say of the whole log."""
    url = joined(tmp_path, log, moved=4, removed=3, compressed=compressed)

    for isolation in BOTH:
        whole = records(str(tmp_path / "whole"), isolation)
        assert records(url, isolation) == whole
        assert len(whole) > 20
        alone = records(place_of(tmp_path, with_tail=False), isolation)
        assert alone == [each for each in whole if each[0] < log.base_offsets[4]]
    for command in (["plan", "{}", "--now", "1700001000000"], ["check", "{}"], ["gaps", "{}"]):
        found = []
        for place in (str(tmp_path / "whole"), url):
            code = main([word.replace("{}", place) for word in command])
            found.append((code, capsys.readouterr().out))
        assert found[0] == found[1]
        assert found[0][0] == 0
    assert (
        cleaner.export(url, "topic", tmp_path / "a").rows
        == cleaner.export(tmp_path / "whole", "topic", tmp_path / "b").rows
    )


def test_spark_source_reads_a_joined_topic(log: LogBuilder, tmp_path: Path) -> None:
    """Plan and tasks, as Spark ships them."""
    url = joined(tmp_path, log, moved=4, removed=3)
    rows = []
    for path in (str(tmp_path / "whole"), url):
        options = read_options({"path": path})
        tasks = pickle.loads(pickle.dumps(plan(files_for(None, path), options, Pruning())))  # noqa: S301
        batches = [batch for task in tasks for batch in run_task(files_for(None, path), options, task, None)]
        rows.append(sorted((row["offset"], row["value"]) for b in batches for row in b.to_pylist()))
    assert rows[0] == rows[1]
    assert len(rows[0]) > 20


@pytest.mark.parametrize("seed", range(8))
def test_segments_of_several_leaders(seed: int, tmp_path: Path) -> None:
    """
    Three leaders rolled elsewhere and moved what they had; one was deposed, and its last records are none of the log.

    Whatever is removed locally, the topic is what the last leader has.
    """
    draw = random.Random(seed)
    shape = sorted(starts(fill(LogBuilder(), set(), {}, 80, seed), 1))
    change = draw.choice(shape[len(shape) // 3 : len(shape) // 2])

    def rolled() -> set[int]:
        return set(draw.sample(shape, 8))

    old = fill(LogBuilder(), rolled(), {0: 0}, 80, seed, lost_from=change)
    second = fill(LogBuilder(index_interval_bytes=100), rolled(), {0: 0, 1: change}, 80, seed)
    last = fill(LogBuilder(), rolled(), {0: 0, 1: change}, 80, seed)
    write_log_dir(tmp_path / "whole", last)
    write_log_dir(tmp_path / "tail", last, log_start_offsets={TOPIC: 0})
    removed = last.base_offsets[: draw.randrange(1, len(last.base_offsets) - 1)]
    remove_local(tmp_path / "tail" / "topic-0", removed)
    move(old, tmp_path / "bucket", old.base_offsets[:-2], "A" * 22, chunk_bytes=draw.choice([50, 1000]))
    move(second, tmp_path / "bucket", second.base_offsets[:-1], "B" * 22, compressed=bool(draw.randrange(2)))
    if second.base_offsets[-1] <= removed[-1]:
        move(last, tmp_path / "bucket", removed, "C" * 22)

    for isolation in BOTH:
        whole = records(str(tmp_path / "whole"), isolation)
        assert records(place_of(tmp_path), isolation) == whole
        alone = records(place_of(tmp_path, with_tail=False), isolation)
        assert alone == whole[: len(alone)]
        assert alone[-1][0] >= last.base_offsets[len(removed)] - 3


def _change(**changed: object) -> Callable[[Path], None]:
    def change(manifest: Path) -> None:
        found = json.loads(manifest.read_text())
        for name, value in changed.items():
            *above, last = name.split("__")
            inner = found
            for each in above:
                inner = inner[each]
            inner[last] = value
        manifest.write_text(json.dumps(found))

    return change


def _remove(suffix: str) -> Callable[[Path], None]:
    return lambda manifest: manifest.with_suffix(suffix).unlink()


def _write(data: bytes) -> Callable[[Path], None]:
    return lambda manifest: void(manifest.write_bytes(data))


def void(_: object) -> None:
    """Take a result that nobody wants."""


def _flip(suffix: str, at: int) -> Callable[[Path], None]:
    def flip(manifest: Path) -> None:
        path = manifest.with_suffix(suffix)
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(bytes(data))

    return flip


def _shorter(suffix: str) -> Callable[[Path], None]:
    return lambda manifest: void(
        manifest.with_suffix(suffix).write_bytes(manifest.with_suffix(suffix).read_bytes()[:-1])
    )


_HUGE = 2**31 - 1
REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no manifest": (_remove(".rsm-manifest"), "without .rsm-manifest"),
    "no log": (_remove(".log"), "without .log"),
    "no indexes": (_remove(".indexes"), "without .indexes"),
    "encrypted": (
        _change(encryption={"dataKey": "key-7:c2VjcmV0", "aad": "CgsM"}),
        "encrypted by the plugin with key 'key-7'",
    ),
    "encrypted, odd": (_change(encryption=[{}]), "encrypted by the plugin with key 'unknown'"),
    "no chunk index": (_change(chunkIndex={"originalFileSize": 10, "originalChunkSize": 5}), "has no chunk index"),
    "chunk index is text": (_change(chunkIndex="x"), "it has no chunkIndex"),
    "another version": (_change(version="2"), "its version is '2'"),
    "negative": (_change(chunkIndex__originalFileSize=-1), "originalFileSize is -1"),
    "not whole": (_change(chunkIndex__originalChunkSize=1.5), "originalChunkSize is 1.5"),
    "zero": (_change(chunkIndex__originalChunkSize=0), "originalChunkSize is 0"),
    "huge chunks": (
        _change(chunkIndex__originalChunkSize=_HUGE, chunkIndex__originalFileSize=_HUGE),
        "compressed chunks of 2147483647 bytes",
    ),
    "many chunks": (_change(chunkIndex__originalChunkSize=1), "chunks of 1 bytes for"),
    "a bomb of sizes": (
        _change(chunkIndex__transformedChunks=pack_sizes([1] * 5_000_000)),
        "chunk sizes are damaged",
    ),
    "sizes of nothing": (_change(chunkIndex__transformedChunks=pack_sizes([])), "chunk sizes are damaged"),
    "sizes are no base64": (_change(chunkIndex__transformedChunks="!"), "chunk sizes are damaged"),
    "sizes of another": (_change(chunkIndex__transformedChunks=pack_sizes([300, 300])), "the manifest has 2 chunks"),
    "another base": (_change(remoteLogSegmentMetadata__startOffset=1), "of a segment at 1"),
    "end before start": (_change(remoteLogSegmentMetadata__endOffset=-5), "endOffset is -5"),
    "no epochs": (_change(remoteLogSegmentMetadata__segmentLeaderEpochs={}), "are not epochs"),
    "odd epochs": (_change(remoteLogSegmentMetadata__segmentLeaderEpochs={"x": 1}), "are not epochs"),
    "no metadata": (_change(remoteLogSegmentMetadata=None), "it has no remoteLogSegmentMetadata"),
    "indexes behind the end": (
        _change(segmentIndexes__offset={"position": _HUGE, "size": 8}),
        "and by the manifest more",
    ),
    "not JSON": (_write(b"\xff\x00"), "not JSON"),
    "deep": (_write(b"[" * 100_000), "nested too deeply"),
    "long number": (_write(b'{"version": ' + b"9" * 100_000 + b"}"), "not JSON"),
    "long": (_write(b" " * (2 << 20)), "more than 1048576"),
    "an array": (_write(b"[]"), "not a JSON object"),
    "damaged chunk": (_flip(".log", 0), "chunk 0: not a chunk of 300 bytes in zstd"),
    "short log": (_shorter(".log"), "and its chunks by the manifest"),
    "short indexes": (_shorter(".indexes"), "and by the manifest more"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_segment_is_refused(name: str, log: LogBuilder, tmp_path: Path, capsys: Capture) -> None:
    """In one line that names what is wrong, at once; the local log dir alone is still read."""
    url = joined(tmp_path, log, moved=4, removed=3)
    change, words = REFUSED[name]
    (manifest,) = (tmp_path / "bucket").rglob(f"*{log.base_offsets[1]:020d}-*.rsm-manifest")
    change(manifest)
    began = time.process_time()

    code = main(["consume", "--log-dir", url, "--topic", "topic", "--from-beginning"])

    error = capsys.readouterr().err
    assert code == 1
    assert words in error
    assert "Traceback" not in error
    assert "c2VjcmV0" not in error
    assert time.process_time() - began < 3
    assert records(str(tmp_path / "tail"), "read_committed")


def test_what_is_not_needed_may_be_missing(log: LogBuilder, tmp_path: Path) -> None:
    """Uploads that did not end, copies that failed, and what lies below the log start."""
    url = joined(tmp_path, log, moved=4, removed=3)
    whole = records(str(tmp_path / "whole"), "read_committed")
    directory = move(log, tmp_path / "bucket", log.base_offsets[:5], OTHER_ID)
    bases = [f"{base:020d}-{OTHER_ID}" for base in log.base_offsets]
    (directory / f"{bases[4]}.rsm-manifest").unlink()  # being moved now
    (directory / f"{bases[2]}.log").unlink()  # a copy of another leader that is being removed
    (directory / f"{bases[1]}.rsm-manifest").write_text("{")
    (directory / "notes.txt").write_text("not the plugin's")
    assert records(url, "read_committed") == whole

    for path in directory.glob(f"{log.base_offsets[0]:020d}-*"):
        path.unlink()
    with pytest.raises(LogDirOfflineError, match="no usable moved segment has offset 0 to"):
        records(url, "read_committed")
    for start in range(log.base_offsets[1], log.base_offsets[1] + 4):  # also in the middle of a batch
        write_log_dir(tmp_path / "start", LogBuilder(), log_start_offsets={TOPIC: start})
        name = "log-start-offset-checkpoint"
        (tmp_path / "tail" / name).write_bytes((tmp_path / "start" / name).read_bytes())
        assert records(url, "read_committed") == [each for each in whole if each[0] >= start]


def test_one_bad_partition_does_not_stop_the_others(log: LogBuilder, tmp_path: Path, capsys: Capture) -> None:
    """`check` and `plan` name it, and go on."""
    url = joined(tmp_path, log, moved=4, removed=3)
    other = fill(LogBuilder(TopicPartition("other", 0)), set(), {}, 20)
    other.write(tmp_path / "tail")
    (manifest,) = (tmp_path / "bucket").rglob(f"*{log.base_offsets[1]:020d}-*.rsm-manifest")
    manifest.write_text("{")
    for command in ("check", "plan"):
        assert main([command, url, "--format", "json"]) != 0
        found = capsys.readouterr()
        assert "its manifest is damaged" in found.out + found.err
        assert "other-0" in found.out, (command, found)


def test_wrong_log_dirs_are_refused(log: LogBuilder, tmp_path: Path) -> None:
    """One that is behind the bucket, topics of one name, and places without what they should have."""
    url = joined(tmp_path, log, moved=4, removed=3)
    stale = fill(LogBuilder(), {30}, {0: 0, 3: 20}, 34)
    write_log_dir(tmp_path / "stale", stale)
    older = fill(LogBuilder(), {30}, {0: 0}, 60)
    write_log_dir(tmp_path / "older", older)
    bucket = place_of(tmp_path, with_tail=False)
    for place, words in (
        (f"{bucket}::{tmp_path / 'stale'}", "it ends at offset "),
        (f"{bucket}::{tmp_path / 'older'}", "its newest leader epoch is 0"),
        (f"{bucket}::{tmp_path / 'none'}", "no such directory"),
        (f"tiered+file://{tmp_path / 'tail'}", "no directory of moved segments"),
        (f"tiered+file://{tmp_path / 'none'}", "no directory of moved segments"),
    ):
        with pytest.raises(CleanerError, match=re.escape(words)):
            records(place, "read_committed")
    move(log, tmp_path / "bucket", log.base_offsets[:1], topic_id="B" * 22)
    assert records(url, "read_committed") == records(str(tmp_path / "whole"), "read_committed")
    with pytest.raises(LogDirOfflineError, match="several topics had this name"):
        records(bucket, "read_committed")
    (named,) = (tmp_path / "bucket").glob("topic-A*")
    assert records(f"tiered+file://{named}", "read_committed")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("tiered+file://relative/dir", "give the whole path"),
        ("tiered+s3://bucket/x::s3://bucket/y", "belongs the broker's log dir"),
        ("tiered+ftp://bucket/x", "not from ftp://"),
        ("tiered+s3://key:secret@bucket/x", "credentials do not belong in a path"),
    ],
)
def test_wrong_urls_are_refused(url: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        any_path(url)
    assert "secret" not in str(caught.value)


def test_path_survives_being_printed() -> None:
    """Its text leads to the same files, below the log dir too."""
    for text in ("tiered+file:///b/c::/var/kafka-0", "tiered+s3://b/c", "tiered+s3://b::/var/kafka"):
        path = any_path(text) / "topic-0" / "x.log"
        assert any_path(str(path)) == path
        place = tiered_place(any_path(str(path)))
        assert place is not None
        assert place.inside == ("topic-0", "x.log")


def test_nothing_is_changed(log: LogBuilder, tmp_path: Path, capsys: Capture) -> None:
    """Neither in the bucket nor in the broker's log dir."""
    url = joined(tmp_path, log, moved=4, removed=3)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for command in (["clean", url, "topic-0"], ["check", url, "--repair"], ["undo", url]):
        assert main(command) == 2
        assert "a bucket is only read" in capsys.readouterr().err
    for local in (f"{url}/::/topic-0/00000000000000000000.log", f"{url}/::/meta.properties"):
        with pytest.raises(UsageError, match="a bucket is only read"):
            RemoteFiles().remove(any_path(local))
        with pytest.raises(UsageError, match="a bucket is only read"):
            RemoteFiles().open(any_path(local), write=True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


# ---- in a bucket -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as started, pytest.MonkeyPatch.context() as patch:
        started.make_bucket()
        for name, value in environment(started).items():
            patch.setenv(name, value)
        yield started


def test_bucket_that_fails(log: LogBuilder, tmp_path: Path, server: S3Server, capsys: Capture) -> None:
    """Faults that pass are survived, those that stay are named, and an object that is replaced is not mixed."""
    joined(tmp_path, log, moved=4, removed=3)
    server.upload(tmp_path / "bucket", "tiered")
    url = f"tiered+s3://{BUCKET}/tiered::{tmp_path / 'tail'}"
    whole = records(str(tmp_path / "whole"), "read_committed")
    assert records(url, "read_committed") == whole
    assert {method for method, _, _ in server.requests} == {"GET"}
    limits = Limits(attempts=3, pause_seconds=0.001, least_ahead=100, most_ahead=400)
    path = any_path(f"{url}/::/topic-0/{log.base_offsets[0]:020d}.log")
    data = (tmp_path / "whole" / "topic-0" / path.name).read_bytes()
    try:
        for fault in (faults.busy, faults.cut, faults.short, faults.without_range):
            server.faults[:] = [first(2, fault)]
            with RemoteFiles(limits).open(path) as file:
                assert file.read(len(data), 0) == data
        server.faults[:] = [first(99, faults.busy)]
        with pytest.raises(LogDirOfflineError, match=rf"-{SEGMENT_ID}\.rsm-manifest: .*SlowDown"):
            RemoteFiles(limits).list_files(path.parent)
        server.faults[:] = []
        with RemoteFiles(limits).open(path) as file:
            assert file.read(50, 0) == data[:50]
            move(log, tmp_path / "new", log.base_offsets[:4], chunk_bytes=77)
            server.upload(tmp_path / "new", "tiered")
            with pytest.raises(LogChangedError, match="was replaced since it was listed"):
                file.read(len(data), 50)
        assert records(url, "read_committed") == whole
    finally:
        server.faults.clear()


def test_memory_and_requests_are_bounded(log: LogBuilder, tmp_path: Path, server: S3Server) -> None:
    """A chunk that is read in parts is asked for and unpacked once; kept chunks have a bound."""
    joined(tmp_path, log, moved=4, removed=3, chunk_bytes=200)
    server.upload(tmp_path / "bucket", "bounded")
    server.requests.clear()
    records(f"tiered+s3://{BUCKET}/bounded", "read_committed")
    wanted = [each for each in server.reads() if each[0].partition("?")[0].endswith(".log")]
    assert len(wanted) == len(set(wanted))
    assert wanted


def test_commands_of_the_page_run(log: LogBuilder, tmp_path: Path, server: S3Server, capsys: Capture) -> None:
    """docs/buckets.md: each command with a joined log dir as it stands there."""
    joined(tmp_path, log, moved=4, removed=3)
    server.upload(tmp_path / "bucket", "tiered-page")
    page = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text()
    found = re.findall(r"^    cleaner (.*tiered\+s3://.*)$", page, flags=re.MULTILINE)
    assert len(found) >= 4
    for words in map(shlex.split, found):
        words = [
            word.replace("s3://backups/tiered", f"s3://{BUCKET}/tiered-page").replace(
                "/var/lib/kafka", str(tmp_path / "tail")
            )
            for word in words
        ]
        if words[0] == "export":
            words[-1] = str(tmp_path / words[-1])
        assert main(words) == 0, (words, capsys.readouterr().err)
        assert capsys.readouterr().out
