"""
Thousands of transactions that are open at once: the time for work on such a log is proportional to their number.

The processor time for four times as many is compared with the first: linear work takes four times as long, quadratic
work sixteen times. The measured work is long enough for a quadratic part to dominate, if there is one.
"""

from __future__ import annotations

import contextlib
import gc
import io
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.log.manager import LogManager
from cleaner.log.reader import open_reader
from cleaner.log.record import ProducerStamp, Record
from cleaner.log.transactional_ids import Identity
from cleaner.read.snapshot import LogSnapshots
from cleaner.spark.source.damage import transactions_reader
from cleaner.storage.fs.file_system import FileSystem
from tests.bulk.local_jobs import bulk_clean
from tests.integration.log_dirs import NOW
from tests.support import batch_builder
from tests.support.batch_builder import Producer, data_batch, marker_batch

FEW = 3000
MAX_TIMES_AS_LONG = 9  # linear work: 4, quadratic: 16
_ATTEMPTS = 3
TOPIC = TopicPartition("topic", 0)
_SETTINGS = ("--set", "cleanup.policy=compact", "--as-root")

Work = Callable[[Path, int], object]


def write_open_log(log_dir: Path, count: int) -> None:
    """Write a log whose transactions are all open at once and aborted in the end: its `.log` files alone."""
    directory = log_dir / str(TOPIC)
    directory.mkdir(parents=True)
    batches = [
        data_batch(
            [batch_builder.Record(b"k%d" % (n % 50), b"v")], n, producer=Producer(n + 1, 0, 0, transactional=True)
        )
        for n in range(count)
    ]
    batches += [marker_batch(count + n, n + 1, 0, commit=False) for n in range(count)]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    (directory / f"{2 * count:020d}.log").write_bytes(data_batch([batch_builder.Record(b"end", b"v")], 2 * count))


def _run(*arguments: str, ends_with: int = 0) -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        code = main(arguments)
    assert code == ends_with, shown.getvalue()


def _recover(root: Path, _: int) -> None:
    copy = root / "recovered"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root / "logs", copy)
    _run("recover", str(copy), "--allow-truncate", *_SETTINGS)


def _recovered(root: Path) -> str:
    if not (root / "recovered").exists():
        _recover(root, 0)
    return str(root / "recovered")


def _plan(root: Path, _: int) -> None:
    _run("plan", _recovered(root), *_SETTINGS[:2])


def _estimate(root: Path, _: int) -> None:
    _run("plan", _recovered(root), "--estimate", "--high-watermark", "end", *_SETTINGS[:2])


def _check(root: Path, _: int) -> None:
    _run("check", _recovered(root), *_SETTINGS[:2])


def _check_bad_markers(root: Path, count: int) -> None:
    directory = root / "bad" / str(TOPIC)
    if not directory.exists():
        directory.mkdir(parents=True)
        bad = [batch_builder.Record(b"?", b"")]
        markers = [data_batch(bad, n, producer=Producer(n + 1, 0, -1, True), control=True) for n in range(count)]
        (directory / f"{0:020d}.log").write_bytes(b"".join(markers))
    _run("check", str(root / "bad"), *_SETTINGS[:2], ends_with=1)


def _clean(root: Path, _: int) -> None:
    copy = root / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_recovered(root), copy)
    _run("clean", str(copy), str(TOPIC), "--high-watermark", "end", *_SETTINGS)


def _verify(root: Path, _: int) -> None:
    if not (root / "copy").exists():
        _clean(root, 0)
    _run("verify", _recovered(root), str(root / "copy"), str(TOPIC), *_SETTINGS[:2])


def _explain(root: Path, _: int) -> None:
    _run("explain", _recovered(root), str(TOPIC), *_SETTINGS[:2])


def _dump(root: Path, _: int) -> None:
    directory = Path(_recovered(root)) / str(TOPIC)
    _run("dump", *(str(path) for path in sorted(directory.iterdir()) if path.suffix in (".txnindex", ".snapshot")))


def _bulk(root: Path, count: int) -> None:
    copy = root / "bulk"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(_recovered(root), copy)
    (copy / "replication-offset-checkpoint").write_text(f"0\n1\n{TOPIC.topic} 0 {2 * count}\n")
    report = bulk_clean(copy, str(TOPIC), {"cleanup.policy": "compact"}, work_dir=root / "work", now_ms=NOW)
    assert report.end_offset == 2 * count


def _read_committed(root: Path, _: int) -> None:
    with open_reader(_recovered(root), TOPIC.topic) as log:
        assert [record.key for record in log.read(0, isolation="read_committed")] == [b"end"]


def _latest(root: Path, _: int) -> None:
    with open_reader(_recovered(root), TOPIC.topic) as log, log.latest() as latest:
        assert list(latest.to_dict()) == [b"end"]


def _decide(root: Path, count: int) -> None:
    log = LogSnapshots(FileSystem()).take(TOPIC, Path(_recovered(root)) / str(TOPIC))
    assert len(log.aborted_within(0, 2 * count, transactions_reader("fail"))) == count


def _write(root: Path, count: int) -> None:
    settings = {"log.flush.interval.messages": "9223372036854775807", "log.cleaner.dedupe.buffer.size": "2097152"}
    shutil.rmtree(root / "written", ignore_errors=True)
    with LogManager(root / "written", settings, create=True, cleaner=False) as manager:
        manager.create_topic(TOPIC.topic)
        log = manager.log(TOPIC.topic)
        for n in range(2 * count):
            log.append([Record(b"k", b"v")], producer=ProducerStamp(n + 1, 0, 0, is_transactional=True))
            assert log.last_stable_offset == 0
        for n in range(count):
            log.fence(Identity(n + 1, 1))


OPERATIONS: dict[str, Work] = {
    work.__name__.strip("_"): work
    for work in (
        *(_recover, _plan, _explain, _estimate, _check, _check_bad_markers, _clean, _bulk, _verify, _dump),
        *(_read_committed, _latest, _decide, _write),
    )
}


def seconds(work: Work, root: Path, count: int) -> float:
    """Return the processor time of the faster of two runs, without that of the cyclic collector."""
    taken = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            began = time.process_time()
            work(root, count)
            taken.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(taken)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A directory with a log for each number of transactions."""
    found = {}
    for count in (FEW, 4 * FEW):
        found[count] = tmp_path_factory.mktemp(str(count))
        write_open_log(found[count] / "logs", count)
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_four_times_as_many_transactions_take_about_four_times_as_long(roots: dict[int, Path], name: str) -> None:
    """For every kind of work; a measurement that a busy machine disturbed is repeated."""
    work = OPERATIONS[name]
    work(roots[FEW], FEW)  # loads what it needs
    ratios = []
    for _ in range(_ATTEMPTS):
        few, many = (seconds(work, roots[count], count) for count in (FEW, 4 * FEW))
        ratios.append(many / few)
        if ratios[-1] < MAX_TIMES_AS_LONG:
            break
    assert min(ratios) < MAX_TIMES_AS_LONG, ratios
