"""
`serve --compacted`: each key once, as of the start, and the served directory as it was.

The judge knows what was written and decides by itself which records a cleaning leaves: below the first transaction that
is open at the high watermark the last record of each key that is not aborted, and everything from there on.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cleaner import LogManager, Record
from cleaner.app import serve_compacted
from cleaner.base.model import TopicPartition
from cleaner.errors import UsageError
from cleaner.serve.catalog import Catalog
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.integration.log_dirs import contents, flip_bit
from tests.property.test_serve_beside_cleaner import TOPIC, Written, written_log
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.served import running, serving
from tests.support.wire_client import WireClient, records_of

# A lag that would keep everything: the last values are wanted as of the start, not as of yesterday.
SETTINGS = {"log.cleanup.policy": "compact", "log.cleaner.min.compaction.lag.ms": str(10**15)}
SETTINGS |= {"log.cleaner.dedupe.buffer.size": "480"}  # not enough for one round


def expected(known: Written, start: int, high_watermark: int, *, committed: bool) -> list[int]:
    """Return the offsets of the records that must be read."""
    is_open = [offset for offset, _, end in known.records if end > high_watermark and offset < high_watermark]
    stable = min(is_open, default=high_watermark)
    last = {key: offset for offset, key, _ in known.records if start <= offset < stable and offset not in known.aborted}
    rest = () if committed else (each for each in known.all if stable <= each < high_watermark)
    return sorted({*last.values(), *rest})


def consumed(client: WireClient, start: int, end: int, *, committed: bool, chance: random.Random) -> list[int]:
    """Return the offsets of the records that a consumer gets."""
    offset, found = start, []
    while True:
        limit = chance.choice((1, 200, 1 << 20))
        answer = client.fetch("topic", offset, isolation_level=int(committed), one={"partition_max_bytes": limit})
        assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, end, start)
        records, after = records_of(answer, offset, committed=committed)
        found += [at for at, _ in records]
        if after == offset:
            return found
        offset = after


def run_world(root: Path, seed: int) -> None:
    """Serve a log of a seed, compacted, and judge it."""
    chance = random.Random(seed)
    log, known = written_log(chance)
    root.mkdir()
    high_watermark = chance.choice(known.ends[len(known.ends) // 2 :])
    start = chance.choice((0, 0, chance.choice(known.ends[: len(known.ends) // 3])))
    write_log_dir(root, log, high_watermarks={TOPIC: high_watermark}, log_start_offsets={TOPIC: start})
    before = contents(root)
    warnings: list[str] = []
    with serving(root, settings=SETTINGS, compacted=True, warn=warnings.append) as port, WireClient(port) as client:
        assert not warnings
        for committed in (False, True):
            found = consumed(client, start, high_watermark, committed=committed, chance=chance)
            assert found == expected(known, start, high_watermark, committed=committed)
    assert contents(root) == before, "the directory was changed"


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.slow)])
def test_each_key_once(tmp_path: Path, first: int) -> None:
    """Of committed records and of all, from the log start to the high watermark; nothing is left in the scratch."""
    for seed in range(first, first + (60 if first else 3)):
        run_world(tmp_path / str(seed), seed)


def test_copies_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """Not those of a living one; and a copy ends with its own process."""
    root, scratch = tmp_path / "log-dir", tmp_path / "scratch"
    scratch.mkdir()
    write_log_dir(root, written_log(random.Random(1))[0])
    command = [sys.executable, "-m", "cleaner", "serve", str(root), "--listen", "127.0.0.1:0", "--compacted"]
    command += ["--scratch", str(scratch), "--set", "topic:cleanup.policy=compact"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline()
        (left,) = scratch.iterdir()
        with serving(root, settings=SETTINGS, compacted=True, scratch=scratch):
            assert left.exists()
        killed.kill()
    with serving(root, settings=SETTINGS, compacted=True, scratch=scratch):
        assert not left.exists()
    assert list(scratch.iterdir()) == []


def _without_line(kind: OffsetKind) -> Callable[[Any], Any]:
    def spoil(put: Any) -> Any:
        return lambda log_dir, found, *more: None if found is kind else put(log_dir, found, *more)

    return spoil


def _at_segments(find: Any) -> Any:
    return lambda held, offset: find(held, offset)._replace(position=0)


DEFECTS: dict[str, tuple[object, str, Callable[[Any], Any]]] = {
    "the active segment stays as it is": (serve_compacted, "_roll", lambda _: lambda *_: None),
    "the high watermark is not taken over": (LogDir, "put", _without_line(OffsetKind.HIGH_WATERMARK)),
    "the log start is not taken over": (LogDir, "put", _without_line(OffsetKind.LOG_START)),
    "the lag of the topic counts": (serve_compacted, "_LAG", lambda _: "max.compaction.lag.ms"),
    "one round, whatever is left": (serve_compacted, "_ROUNDS", lambda _: 1),
    "a segment is cleaned as a whole or not at all": (serve_compacted, "_place_of", lambda old: _at_segments(old)),
    "the served files are the old ones": (Catalog, "serve_instead", lambda _: lambda *_: None),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_planted_defect_is_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one of the first seeds."""
    where, what, spoil = DEFECTS[name]
    monkeypatch.setattr(where, what, spoil(getattr(where, what)))
    for seed in range(20):
        try:
            run_world(tmp_path / str(seed), seed)
        except AssertionError:
            return
    pytest.fail("no seed finds it")


@pytest.mark.slow
def test_beside_a_writer_and_its_cleaner(tmp_path: Path) -> None:
    """Each key once, as of the moment of the copy, while records come and rounds run."""
    chance, written, is_over = random.Random(3), list[tuple[int, bytes]](), threading.Event()
    settings = {"cleanup.policy": "compact", "segment.bytes": "200000", "min.cleanable.dirty.ratio": "0.01"}
    own = {"log.cleaner.dedupe.buffer.size": str(8 << 20), "log.cleaner.backoff.ms": "20"}
    with LogManager(tmp_path, own, create=True, cleaner=True) as manager:
        manager.create_topic("topic", 1, settings)
        log = manager.log("topic")

        def write() -> None:
            while not is_over.is_set():
                keys = [b"k%d" % chance.randrange(500) for _ in range(20)]
                appended = log.append([Record(key, b"v" * chance.randrange(200)) for key in keys])
                written.extend(enumerate(keys, appended.base_offset))

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(5):
                with running(tmp_path, compacted=True) as served, WireClient(served.address.port) as client:
                    end = served.catalog.topics["topic"].partitions[0].reach(committed=True).high_watermark
                    found = consumed(client, 0, end, committed=True, chance=random.Random(1))
                    last = {key: offset for offset, key in list(written) if offset < end}
                    assert found == sorted(last.values())
        finally:
            is_over.set()
            thread.join()


def test_what_cannot_be_cleaned(tmp_path: Path) -> None:
    """A damaged log is left out by name, others are served; topics that are not compacted as they are."""
    scratch, logs = tmp_path / "scratch", tmp_path / "logs"
    scratch.mkdir()
    logs.mkdir()
    builders = {name: LogBuilder(TopicPartition(name, 0)) for name in ("bad", "good", "plain")}
    for log in builders.values():
        log.append(("k", "old"), ("k", "new"))
        log.roll()
        log.append(("k", "last"))
    write_log_dir(logs, *builders.values())
    flip_bit(next(iter(sorted((logs / "bad-0").glob("*.log")))))
    settings = {name: {"cleanup.policy": "compact"} for name in ("bad", "good")}
    warnings: list[str] = []
    with (
        running(logs, sets=settings, compacted=True, scratch=scratch, warn=warnings.append) as served,
        WireClient(served.address.port) as client,
    ):
        assert (served.compacted, served.counts) == (1, (2, 2))
        for name, offsets in (("good", [2]), ("plain", [0, 1, 2])):
            found, offset = [], 0
            while (answer := records_of(client.fetch(name, offset), offset, committed=False))[1] > offset:
                found, offset = found + [at for at, _ in answer[0]], answer[1]
            assert found == offsets
        assert [each.name for each in client.ask("Metadata", 12, topics=None).topics] == ["good", "plain"]
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())
    (warning,) = warnings
    assert warning.startswith("bad-0 is not served, because it cannot be cleaned: ") and f"{logs}/bad-0/" in warning


@pytest.mark.parametrize(("scratch", "policy", "words"), [
    ("logs", "compact", "inside of the log dir"),
    ("nothing", "compact", "No such file"),
    (None, "delete", "no topic here is known to be compacted"),
])  # fmt: skip
def test_mistakes(tmp_path: Path, scratch: str | None, policy: str, words: str) -> None:
    """A place that must not be written to, one that is not there, and nothing to do."""
    logs = tmp_path / "logs"
    logs.mkdir()
    log = LogBuilder(TOPIC)
    log.append(("k", "v"))
    write_log_dir(logs, log)
    place = scratch and tmp_path / scratch
    with pytest.raises(UsageError, match=words), contextlib.ExitStack() as stack:
        settings = {"log.cleanup.policy": policy}
        stack.enter_context(serving(logs, settings=settings, compacted=True, scratch=place))
