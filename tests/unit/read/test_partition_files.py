"""Listings of names that a crash left, and of a log dir whose lock is not available."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.log.reader import open_reader
from cleaner.read.partition_files import PartitionFiles, find_files
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loader import load_log
from cleaner.storage.lock.byte_ranges import TO_THE_END, WRITE, try_lock
from cleaner.storage.lock.lock_bytes import slot_of
from cleaner.storage.segment.names import GENERATIONS, segment_file_name
from tests.support.log_builder import LogBuilder, write_log_dir

pytestmark = pytest.mark.kernels
FS = FileSystem()
TOPIC = TopicPartition("prices", 0)
SUFFIXES = (".log", ".index", ".timeindex")


def swapped(tmp_path: Path, *, cleaned: bool = False) -> Path:
    """
    A log of the segments 0, 3, 6 and 9, with a swap of the first two decided and nothing renamed behind that.

    Args:
        cleaned: one of its files is not even announced: the swap is void.
    """
    log, new = LogBuilder(TOPIC), LogBuilder(TOPIC)
    for number in range(10):
        log.append((f"k{number % 4}", f"{number}"))
        if number % 3 == 2:
            log.roll()
    new.skip(4)
    new.append(("k0", "4"))
    new.append(("k1", "5"))
    directory = log.write(write_log_dir(tmp_path, log))
    (tmp_path / ".lock").touch()
    for name, data in new.files().items():
        if name.endswith(SUFFIXES):
            is_late = cleaned and name.endswith(".timeindex")
            (directory / f"{name}{'.cleaned' if is_late else '.swap'}").write_bytes(data)
    return directory


def offsets(tmp_path: Path) -> list[int | None]:
    """Read all."""
    with open_reader(tmp_path, *TOPIC) as reader:
        return [record.offset for record in reader.read(0)]


def step(directory: Path, *names: tuple[str, str]) -> None:
    """Rename some files."""
    for old, new in names:
        (directory / old).rename(directory / new)


def after_a_load(directory: Path) -> list[int]:
    """The segments a load leaves."""
    log = load_log(
        FS,
        directory,
        TOPIC,
        topic=TopicConfig(),
        log_start_offset=0,
        recovery_point=10,
        high_watermark=10,
        clean_shutdown=True,
        producer_id_expiration_ms=86_400_000,
        now_ms=0,
    )
    return [segment.base_offset for segment in log.segments]


OLD_AWAY = [(segment_file_name(base, ".log"), segment_file_name(base, ".log", ".deleted")) for base in (0, 3)]
INDEX_AWAY = [
    (segment_file_name(base, suffix), segment_file_name(base, suffix, ".deleted"))
    for base in (0, 3)
    for suffix in (".index", ".timeindex")
]
LOG_IN = [(segment_file_name(0, ".log", ".swap"), segment_file_name(0, ".log"))]


@pytest.mark.parametrize("done", range(5), ids=["decided", "one away", "logs away", "indexes away", "log in place"])
def test_dead_cleaners_swap_is_seen_as_a_load_completes_it(tmp_path: Path, done: int) -> None:
    """Wherever the cleaner died: the new segment in the place of the old ones, with its own indexes."""
    directory = swapped(tmp_path)
    step(directory, *[[], OLD_AWAY[:1], OLD_AWAY, OLD_AWAY + INDEX_AWAY, OLD_AWAY + INDEX_AWAY + LOG_IN][done])
    found = find_files(FS, directory)
    assert found.has_swap
    assert found.places[0].path(".index").name.endswith(".swap")
    assert offsets(tmp_path) == [4, 5, 6, 7, 8, 9]
    assert [place.base_offset for place in found.places] == after_a_load(directory) == [0, 6, 9]


def test_swap_that_was_not_decided_is_not_seen(tmp_path: Path) -> None:
    """One `.cleaned` is left: the old segments count."""
    directory = swapped(tmp_path, cleaned=True)
    assert offsets(tmp_path) == list(range(10))
    assert after_a_load(directory) == [0, 3, 6, 9]


def test_foreign_files_are_ignored(tmp_path: Path) -> None:
    """Names that are no segment's, and what waits to be removed."""
    directory = swapped(tmp_path, cleaned=True)
    for name in ("notes.log", "1.log", segment_file_name(77, ".log", ".deleted")):
        (directory / name).touch()
    assert offsets(tmp_path) == list(range(10))


@contextmanager
def broker(log_dir: Path) -> Iterator[None]:
    """Lock all bytes of `.lock`, as a JVM does."""
    (log_dir / ".lock").touch()
    with FS.open(log_dir / ".lock", write=True) as file:
        assert try_lock(file, WRITE, 0, TO_THE_END)
        yield


def test_log_of_a_running_broker_is_read_without_its_lock(tmp_path: Path) -> None:
    """The broker holds it as long as it runs, so a reader does not wait."""
    log = LogBuilder(TOPIC)
    log.append(("k", "v"), ("k", "w"))
    write_log_dir(tmp_path, log)
    with broker(tmp_path):
        assert offsets(tmp_path) == [0, 1]


def test_swap_of_a_living_broker_is_waited_for(tmp_path: Path) -> None:
    """Names that are about to change are not taken for what a dead cleaner left."""
    directory = swapped(tmp_path)
    step(directory, *OLD_AWAY, *INDEX_AWAY)

    def finish() -> None:
        step(directory, *LOG_IN)
        step(directory, *[(f"{name}.swap", name) for name in (segment_file_name(0, s) for s in SUFFIXES[1:])])

    with broker(tmp_path), open_reader(tmp_path, *TOPIC) as reader:
        timer = threading.Timer(0.02, finish)
        timer.start()
        assert [record.offset for record in reader.read(0)] == [4, 5, 6, 7, 8, 9]
        timer.join()


def test_swap_in_an_archive_is_seen_as_a_load_completes_it(tmp_path: Path) -> None:
    """There is no lock in an archive; if nothing changes for some time, no process is at work."""
    directory = swapped(tmp_path)
    step(directory, *OLD_AWAY)
    (tmp_path / ".lock").unlink()
    assert offsets(tmp_path) == [4, 5, 6, 7, 8, 9]


def test_log_dir_replaced_by_a_copy_is_read_on(tmp_path: Path) -> None:
    """The copy has the directory's time, as by `cp -a`, and numbers of its own."""
    log, log_dir = LogBuilder(TOPIC), tmp_path / "logs"
    log.append(("k", "v"), ("k", "w"))
    log_dir.mkdir()
    directory = log.write(write_log_dir(log_dir, log))
    (log_dir / GENERATIONS).write_bytes(bytes(8 * (slot_of(TOPIC) + 1)))
    os.utime(directory, (1, 1))
    files = PartitionFiles(FS, log_dir, TOPIC, SystemClock())
    with closing(files), open_reader(log_dir, *TOPIC) as reader:
        assert [record.offset for record in reader.read(0)] == [0, 1]
        assert not files.listing().generation
        shutil.copytree(log_dir, tmp_path / "copy")
        log_dir.rename(tmp_path / "old")
        (tmp_path / "copy").rename(log_dir)
        numbers = bytes(8 * slot_of(TOPIC)) + (7).to_bytes(8, "little")
        (log_dir / GENERATIONS).write_bytes(numbers)
        assert [record.offset for record in reader.read(0)] == [0, 1]
        assert files.listing().generation == files.generation() == 7


def test_segment_of_a_log_made_again_is_not_opened_by_an_old_listing(tmp_path: Path) -> None:
    """Its name is the same, and its records are of another log."""
    directory = swapped(tmp_path)
    with closing(PartitionFiles(FS, tmp_path, TOPIC, SystemClock())) as files:
        listing = files.listing()
        directory.rename(tmp_path / "topic-0.0123456789abcdef0123456789abcdef-delete")
        swapped(tmp_path)
        with pytest.raises(FileNotFoundError):
            files.open(listing, listing.places[-1])
        now = files.listing()
        files.open(now, now.places[-1]).close()
