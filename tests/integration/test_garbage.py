"""
None of our objects is left to Python's cyclic collector: an operation's objects are freed when it ends.

The collector counts objects, not bytes. Buffers of whole chunks in a circle of references are a dozen objects among
hundreds of thousands, and wait for it through hundreds of rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import shutil
import time
import types
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import cleaner
from cleaner.app.options import Sampling
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.log.reader import open_reader
from cleaner.log.record import Record
from cleaner.log.serde import Serde
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.log_dir import LogDir
from tests.bulk.local_jobs import bulk_clean
from tests.integration.log_dirs import NOW, flip_bit
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.wire_client import WireClient

SETTINGS = {"cleanup.policy": "compact", "log.cleaner.dedupe.buffer.size": "2400"}
_QUICK = {
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.cleaner.backoff.ms": "20",
    "cleaner.pipeline.threads": "1",
}
_WAIT_SECONDS = 60.0
_OPTIONS = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]

Operation = Callable[[Path], object]


def _log() -> LogBuilder:
    """Some segments of batches of all codecs, transactions that are committed, aborted and open among them."""
    log = LogBuilder()
    for segment in range(4):
        if segment:
            log.roll()
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            log.append(*((f"k{n}", f"v{segment}" * 20) for n in range(10)), codec=codec)
        for producer in (7, 8):
            log.append(("t", f"v{segment}"), producer=Producer(producer, 0, segment, transactional=True))
            log.end_transaction(producer, 0, commit=producer == 7)
    log.append(("o", "open"), producer=Producer(9, 0, 0, transactional=True))
    return log


def _prepare(root: Path, *, damage: str | None = None) -> Path:
    """Make a log dir; `damage` flips a bit in a segment of that number or in an index."""
    root.mkdir()
    write_log_dir(root, _log())
    if damage is not None:
        suffix, number = damage.split()
        flip_bit(sorted((root / "topic-0").glob(f"*.{suffix}"))[int(number)])
    return root


def _command(*arguments: str) -> Callable[[Path], int]:
    def run(root: Path) -> int:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            return main([argument.replace("DIR", str(root)) for argument in arguments])

    return run


def _clean(root: Path, **extra: str) -> object:
    try:
        return cleaner.clean(root, "topic-0", SETTINGS | extra, now_ms=NOW)
    except CleanerError as error:
        return type(error)


def _clean_with_threads(root: Path) -> object:
    return _clean(root, **{"cleaner.pipeline.threads": "3"})


def _clean_in_bulk(root: Path) -> object:
    try:
        return bulk_clean(root, "topic-0", dict(SETTINGS), work_dir=root.with_suffix(".work"), now_ms=NOW)
    except CleanerError as error:
        return type(error)


def _estimate(root: Path) -> object:
    try:
        return cleaner.plan(root, SETTINGS, sampling=Sampling(), now_ms=NOW)
    except CleanerError as error:
        return type(error)


def _replicas(root: Path) -> object:
    other = root.with_suffix(".replica")
    if not other.exists():
        shutil.copytree(root, other)
    return cleaner.check_replicas([root, other], settings=SETTINGS)


def _read(root: Path) -> object:
    with open_reader(root, "topic") as log:
        return [len(list(log.read(0, isolation=isolation))) for isolation in ("read_committed", "read_uncommitted")]


def _serve(root: Path) -> object:
    warnings: list[str] = []
    with (
        cleaner.serve_log_dirs(root, SETTINGS, compacted=True, warn=warnings.append) as address,
        WireClient(int(address.rpartition(":")[2])) as client,
    ):
        return [warnings, *(client.fetch("topic", 0, isolation_level=level).error_code for level in (0, 1))]


def _read_damaged(root: Path) -> None:
    with pytest.raises(CleanerError):
        _read(root)


def _read_some(root: Path) -> object:
    with open_reader(root, "topic") as log:
        return next(iter(log.read(0)))


def _follow(root: Path) -> object:
    with open_reader(root, "topic") as log:
        return len(list(log.follow(0, timeout_seconds=0.0)))


def _latest(root: Path) -> object:
    with open_reader(root, "topic") as log, log.latest() as latest:
        return len(list(latest))


def _garbage_of(operation: Callable[[], object]) -> Counter[str]:
    """Return our objects that an operation leaves to the cyclic collector, by type."""
    gc.collect()
    gc.disable()
    try:
        operation()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(name for found in gc.garbage if (name := _ours(found)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _ours(found: object) -> str:
    """Return what to call one of our objects; nothing for others."""
    if isinstance(found, argparse.Action | argparse.ArgumentParser | argparse.HelpFormatter):
        return ""  # parsers of command lines are circles; there is one a process
    match found:
        case types.FrameType(f_code=code) | types.GeneratorType(gi_code=code):
            module, name = code.co_filename.replace("/", "."), code.co_qualname
        case types.FunctionType() | types.MethodType():
            module, name = found.__module__, found.__qualname__
        case _:
            module, name = type(found).__module__, type(found).__qualname__
    return f"{type(found).__name__} {name}" if ".cleaner." in f".{module}." else ""


_OPERATIONS: dict[str, tuple[str | None, Operation]] = {
    "clean": (None, _clean),
    "clean with threads": (None, _clean_with_threads),
    "clean damaged": ("log 1", _clean),
    "clean damaged with threads": ("log 1", _clean_with_threads),
    "clean damaged first": ("log 0", _clean),
    "bulk": (None, _clean_in_bulk),
    "bulk damaged": ("log 1", _clean_in_bulk),
    "command clean": (None, _command("clean", "DIR", "--all", *_OPTIONS)),
    "command clean damaged": ("log 1", _command("clean", "DIR", "--all", *_OPTIONS)),
    "command clean keep": ("log 1", _command("clean", "DIR", "topic-0", "--damaged", "keep", *_OPTIONS)),
    "plan": (None, _command("plan", "DIR", *_OPTIONS)),
    "estimate": (None, _command("plan", "DIR", "--estimate", *_OPTIONS)),
    "estimate damaged": ("log 1", _command("plan", "DIR", "--estimate", *_OPTIONS)),
    "estimate of the library": (None, _estimate),
    "who": (None, _command("plan", "DIR", "--who", *_OPTIONS)),
    "who damaged": ("log 1", _command("plan", "DIR", "--who", *_OPTIONS)),
    "check": (None, _command("check", "DIR", *_OPTIONS)),
    "check damaged": ("log 1", _command("check", "DIR", *_OPTIONS)),
    "replicas": (None, _replicas),
    "replicas damaged": ("log 1", _replicas),
    "gaps": (None, _command("gaps", "DIR", "--set", "topic:cleanup.policy=compact")),
    "gaps damaged": ("log 1", _command("gaps", "DIR", "--set", "topic:cleanup.policy=compact")),
    "export": (None, _command("export", "DIR", "topic", "--to", "DIR.out", "--changes")),
    "export damaged": ("log 1", _command("export", "DIR", "topic", "--to", "DIR.out", "--changes")),
    "erase": (None, _command("erase", "DIR", "topic", "--key-prefix", "key")),
    "erase damaged": ("log 1", _command("erase", "DIR", "topic", "--key-prefix", "key")),
    "prove-erased": (None, _command("prove-erased", "--key-prefix", "key", "DIR")),
    "prove-erased damaged": ("log 1", _command("prove-erased", "--key-prefix", "key", "DIR")),
    "verify": (None, _command("verify", "DIR", "DIR", "topic-0", *_OPTIONS)),
    "verify --as": (None, _command("verify", "--as", "groups", "DIR", "DIR", "topic-0")),
    "verify --as damaged": ("log 1", _command("verify", "--as", "groups", "DIR", "DIR", "topic-0")),
    "dump": (None, _command("dump", "DIR/topic-0/00000000000000000000.log", "--print-data-log")),
    "recover": (None, _command("recover", "DIR", *_OPTIONS)),
    "read": (None, _read),
    "read damaged": ("log 1", _read_damaged),
    "read some": (None, _read_some),
    "follow": (None, _follow),
    "serve": (None, _serve),
    "serve damaged": ("log 1", _serve),
    "latest": (None, _latest),
}


@pytest.mark.parametrize("name", _OPERATIONS)
def test_an_operation_that_has_ended_leaves_nothing_to_the_cyclic_collector(tmp_path: Path, name: str) -> None:
    """Whether it succeeded or failed; the first run may create objects that stay."""
    damage, operation = _OPERATIONS[name]
    operation(_prepare(tmp_path / "first", damage=damage))
    root = _prepare(tmp_path / "second", damage=damage)
    assert _garbage_of(partial(operation, root)) == Counter()


def test_a_manager_at_work_leaves_nothing_to_the_cyclic_collector(tmp_path: Path) -> None:
    """Transactions, stored places, rolling, reading, waiting for more, and rounds of its own cleaner."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    with LogManager(tmp_path, _QUICK, create=True, cleaner=True) as manager:
        manager.create_topic("topic", settings=settings)
        work = partial(_work_with, manager)
        work()
        assert _garbage_of(work) == Counter()


def _work_with(manager: LogManager) -> None:
    log = manager.log("topic")
    for is_committed in (True, False):
        with contextlib.suppress(_GaveUpError), log.producer(transactional_id="payments").transaction() as transaction:
            transaction.append([Record(b"k", b"v" * 1000)])
            if not is_committed:
                raise _GaveUpError
        log.append([Record(b"k%d" % number, b"v" * 100) for number in range(50)])
        log.roll()
    end = log.log_end_offset
    manager.upkeep.note_all()
    assert manager.cleaner is not None
    manager.cleaner.wake()
    deadline = time.monotonic() + _WAIT_SECONDS
    while LogDir(FileSystem(), manager.log_dirs[0]).cleaner_offsets.get(TopicPartition("topic", 0)) != end:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert list(log.read(log.log_start_offset, isolation="read_committed"))
    with log.follow(0, timeout_seconds=0.0) as follower:
        assert list(follower)
    with log.latest() as latest:
        assert len(list(latest)) == 51
    topic, service = manager.topic("topic", key=Serde.str), manager.producer("service")
    with topic.follow_all(group="group") as follower, service.transaction():
        follower.poll(max_records=3)
        topic.append([("k", b"v")], transaction=service)
        follower.commit(service)
    with contextlib.suppress(_GaveUpError), service.transaction():
        topic.append([("k", b"v")], transaction=service)
        raise _GaveUpError
    log.producer("importer", resume=True).append(Record(b"k", b"v"))


class _GaveUpError(Exception):
    """A transaction is aborted by an exception."""
