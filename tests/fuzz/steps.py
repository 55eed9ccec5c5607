"""
The steps that run on a mutated place: every command that needs no daemon, and the library's readers and writers.

A step raises only errors that the product raises on purpose; the `READING` ones change nothing on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cleaner.cli.main
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import Refusal
from cleaner.cli.main import main, prepare_streams
from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.log.reader import open_reader
from cleaner.log.record import Record
from cleaner.present.http.web_config import load as load_web_config
from cleaner.settings.sources import Sources
from cleaner.spark.clean.round import BulkCleaner, BulkOptions
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.fs.file_system import FileSystem
from tests.bulk.local_jobs import LocalJobs
from tests.fuzz.places import NOW_MS, TARGET, UNTOUCHED
from tests.support.log_builder import TOPIC_ID
from tests.unit.spark_source.reading import batches_of

NOW = ("--now", str(NOW_MS))

# Declaring all options of all commands takes longer than most of them take for so little.
cleaner.cli.main.make_parser = functools.cache(cleaner.cli.main.make_parser)


@dataclass
class Label:
    """The result of a step: an exit code, and all its output."""

    code: int
    text: str


class _Output(io.TextIOWrapper):
    """Takes what a command prints, as strictly as a terminal's or a file's stream."""

    def __init__(self, errors: str) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors=errors, write_through=True)

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        return buffer.getvalue().decode(errors="replace") if isinstance(buffer, io.BytesIO) else ""


def command(*arguments: str | Path) -> Label:
    """Run a command in this process."""
    out, err = _Output("strict"), _Output("backslashreplace")
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, err
    prepare_streams()
    try:
        code = main([os.fspath(argument) for argument in arguments])
    except SystemExit as ended:  # argparse's way to refuse a command line
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.stdout, sys.stderr = before
    return Label(code, out.text() + err.text())


def library(work: Callable[[], object]) -> Label:
    """Run something of the library; what it raises on purpose is an exit code."""
    try:
        work()
    except CleanerError as error:
        return Label(error.exit_code, repr(error))
    return Label(0, "")


def _topics(place: Path) -> tuple[str | Path, ...]:
    return ("--topics-dir", place / "topics")


# ---- reading ---------------------------------------------------------------------------------------------------------


def _dump(place: Path, *options: str) -> Label:
    files = sorted(str(path) for path in (place / "logs" / TARGET).iterdir())
    files += sorted(str(path) for path in (place / "logs").iterdir() if not path.is_dir())
    return command("dump", *options, *(name for name in files if not name.startswith("-")))


def _read_all(place: Path) -> None:
    with open_reader(place / "logs", "topic") as reader:
        for isolation in ("read_uncommitted", "read_committed"):
            for until in ("high_watermark", "end"):
                with contextlib.suppress(CleanerError):
                    for _ in reader.read(reader.log_start_offset, isolation=isolation, until=until):  # type: ignore[arg-type]
                        pass
        with contextlib.suppress(CleanerError):
            reader.offset_for_time(NOW_MS - 10_000_000)
        with contextlib.suppress(CleanerError):
            reader.end_offset_for_epoch(1)
        with contextlib.suppress(CleanerError), reader.latest() as latest:
            latest.to_dict()
        with reader.follow(reader.log_start_offset, until="end", timeout_seconds=0.0) as follower:
            for _ in follower:
                pass


def _follow_async(place: Path) -> None:
    async def follow() -> None:
        with (
            open_reader(place / "logs", "topic") as reader,
            reader.follow(reader.log_start_offset, until="end", timeout_seconds=0.0) as follower,
        ):
            async for _ in follower:
                pass

    asyncio.run(follow())


def _frames(place: Path, **options: str) -> Callable[[], object]:
    return lambda: batches_of(place / "logs", **options)


READING: dict[str, Callable[[Path], Label]] = {
    "plan": lambda at: command("plan", at / "logs", *NOW, *_topics(at)),
    "plan as json": lambda at: command("plan", at / "logs", *NOW, *_topics(at), "--format", "json"),
    "plan --estimate": lambda at: command("plan", at / "logs", "--estimate", *NOW, *_topics(at)),
    "explain": lambda at: command("explain", at / "logs", TARGET, *NOW, *_topics(at)),
    "clean --dry-run": lambda at: command("clean", at / "logs", "--all", "--dry-run", *NOW, *_topics(at)),
    "check": lambda at: command("check", at / "logs", *NOW, *_topics(at)),
    "check --clean-section": lambda at: command("check", at / "logs", at / "cleaned", "--clean-section", *_topics(at)),
    "check a partition": lambda at: command("check", at / "logs" / TARGET, "--format", "json"),
    "dump": lambda at: _dump(at, "--print-data-log"),
    "dump as json": lambda at: _dump(at, "--deep-iteration", "--format", "json"),
    "dump indexes": lambda at: _dump(at, "--index-sanity-check"),
    "dump and verify indexes": lambda at: _dump(at, "--verify-index-only"),
    "dump transactions": lambda at: _dump(at, "--transaction-log-decoder"),
    "dump metadata": lambda at: _dump(at, "--cluster-metadata-decoder"),
    "dump offsets": lambda at: _dump(at, "--offsets-decoder"),
    "verify": lambda at: command("verify", at / "logs", at / "cleaned", TARGET, UNTOUCHED, *NOW, *_topics(at)),
    "verify states": lambda at: command("verify", "--as", "groups", at / "logs", at / "cleaned", TARGET),
    "verify kept": lambda at: command("verify", at / "kept", at / "cleaned", *NOW, *_topics(at)),
    "topics": lambda at: command("topics", "describe", "--log-dir", at / "logs"),
    "topics as json": lambda at: command("topics", "list", "--log-dir", at / "logs", "--format", "json"),
    "consume": lambda at: command("consume", "--log-dir", at / "logs", "--topic", "topic", "--from-beginning"),
    "consume committed": lambda at: command(
        *("consume", "--log-dir", at / "logs", "--topic", "topic", "--from-beginning", "--format", "json"),
        *("--isolation-level", "read_committed"),
    ),
    "consume --follow": lambda at: command(
        *("consume", "--log-dir", at / "logs", "--topic", "topic", "--from-beginning", "--follow", "--timeout-ms", "1")
    ),
    "config check": lambda at: command("config", "check", "--config", at / "server.properties", *_topics(at)),
    "config show": lambda at: command("config", "show", "--config", at / "server.properties", "--topic", "topic"),
    "config show of metadata": lambda at: command(
        "config", "show", "--metadata-dir", at / "metadata", "--log-dir", at / "logs", "--topic", "topic"
    ),
    "dump metadata log": lambda at: command(
        "dump", "--cluster-metadata-decoder", *sorted((at / "metadata" / "__cluster_metadata-0").iterdir())
    ),
    "web config": lambda at: library(lambda: load_web_config(FileSystem(), at / "web.yml")),
    "doctor": lambda at: command("doctor", at / "logs", "--config", at / "server.properties"),
    "history": lambda at: command("history", "--state-dir", at / "state"),
    "history as json": lambda at: command("history", "--state-dir", at / "state", "--format", "json", "--last", "all"),
    "quarantine": lambda at: command("quarantine", "--state-dir", at / "state"),
    "reader": lambda at: library(lambda: _read_all(at)),
    "async follower": lambda at: library(lambda: _follow_async(at)),
    "frames": lambda at: library(_frames(at)),
    "frames that pass over damage": lambda at: library(
        _frames(at, badBatches="report", isolationLevel="read_committed", includeHeaders="true")
    ),
    "frames of latest records": lambda at: library(_frames(at, badBatches="skip", latestPerKey="true")),
}


# ---- changing --------------------------------------------------------------------------------------------------------


def _clean(place: Path, *options: str | Path) -> Label:
    return command("clean", place / "logs", *options, *NOW, *_topics(place))


def _without_marker(place: Path) -> Path:
    marker = place / "logs" / ".kafka_cleanshutdown"
    if marker.is_file():
        marker.unlink()
    return place / "logs"


def _bulk(place: Path) -> Label:
    work_dir = place / "work"
    cleaner = BulkCleaner(lambda _: LocalJobs(), lambda _config, _log_dir: BulkOptions(work_dir, 2, 1 << 20))
    options = CleanOptions(clean_round=cleaner.clean, side_by_side=cleaner.side_by_side)
    lent, sources = CallContext.of(now_ms=NOW_MS), Sources(topics_dir=place / "topics")
    outcomes: list[str] = []

    def work() -> None:
        for outcome in clean_log_dir(place / "logs", [TARGET, UNTOUCHED], sources, options, lent):
            outcomes.append(
                f"{outcome.partition}: {outcome.error}" if isinstance(outcome, Refusal) else outcome.partition
            )

    done = library(work)
    return Label(done.code or int(any(": " in line for line in outcomes)), "\n".join([*outcomes, done.text]))


def _write(place: Path) -> None:
    with LogManager(place / "logs", {"cleanup.policy": "compact"}, cleaner=False, tasks=False) as manager:
        for name in manager.topics():
            manager.describe_topic(name)
        log = manager.log("topic")
        with contextlib.suppress(CleanerError):
            log.append([Record(b"a", b"by the library"), Record(b"b", None)]).durable.result()
        with contextlib.suppress(CleanerError), log.producer("tx").transaction() as producer:
            producer.append([Record(b"t", b"committed")])
        for _ in log.read(log.log_start_offset, until="end"):
            pass
        with contextlib.suppress(CleanerError):
            log.roll()
        with contextlib.suppress(CleanerError), log.latest() as latest:
            latest.to_dict()
        with contextlib.suppress(CleanerError):
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - 3))


def _produce(place: Path) -> Label:
    lines = place / "lines"
    lines.write_bytes(b"a\tx\nb\ty\n")
    return command("produce", "--log-dir", place / "logs", "--topic", "topic", "--file", lines)


def _hand_over(place: Path) -> Label:
    with contextlib.suppress(CleanerError):  # what is open is aborted, or nothing would be copied
        LogManager(place / "logs", cleaner=False, tasks=False).close()
    with LogManager(place / "brokers", create=True, cleaner=False, tasks=False) as manager:
        for topic in ("topic", "good"):
            manager.create_topic(topic, 1, topic_id=parse_uuid(TOPIC_ID))
    ids = [word for topic in ("topic", "good") for word in ("--topic-id", f"{topic}={TOPIC_ID}")]
    return command("handover", "--from", place / "logs", "--to", place / "brokers", *ids)


CHANGING: dict[str, Callable[[Path], Label]] = {
    "clean": lambda at: _clean(at, TARGET, UNTOUCHED),
    "clean --all": lambda at: _clean(at, "--all"),
    "clean --damaged keep": lambda at: _clean(at, TARGET, "--damaged", "keep", "--high-watermark", "end"),
    "clean --keep-old": lambda at: _clean(at, TARGET, "--keep-old", at / "old", "--rounds", "all", "--retention"),
    "clean --recover": lambda at: command(
        *("clean", _without_marker(at), "--all", "--recover", "--allow-truncate", *NOW, *_topics(at))
    ),
    "bulk": _bulk,
    "recover": lambda at: command("recover", _without_marker(at), *NOW, *_topics(at)),
    "recover --allow-truncate": lambda at: command(
        *("recover", _without_marker(at), "--allow-truncate", "--save-cut", at / "cut", *NOW, *_topics(at))
    ),
    "check --repair": lambda at: command("check", at / "logs", "--repair", *NOW, *_topics(at)),
    "undo": lambda at: command("undo", at / "kept", *_topics(at)),
    "produce": _produce,
    "topics alter": lambda at: command(
        "topics", "alter", "--log-dir", at / "logs", "--topic", "topic", "--partitions", "2"
    ),
    "topics delete": lambda at: command("topics", "delete", "--log-dir", at / "logs", "--topic", "topic"),
    "handover": _hand_over,
    "library": lambda at: library(lambda: _write(at)),
}


def steps() -> Iterator[str]:
    """Give the names of all of them."""
    yield from READING
    yield from CHANGING
