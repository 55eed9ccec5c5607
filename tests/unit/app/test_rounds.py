"""The work on one log, by the command and by the daemon, and what the rounds of one call have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import CleanReport
from cleaner.app.undo_clean import undo_clean
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.errors import LogChangedError
from cleaner.log.manager import LogManager
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.held import Hold
from cleaner.storage.lock.partition_lock import partition_lock
from cleaner.storage.segment.generation import Generations
from tests.integration.daemons import daemon, settings_for
from tests.integration.log_dirs import keyed_log, offsets
from tests.support.log_builder import write_log_dir
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import Operation, WatchedFileSystem

RATE = 1000
TP = TopicPartition("topic", 0)
LEFT_OVER = f"{20:020d}.log.cleaned"

Cleans = Callable[[Path, FileSystem], None]
"""Cleans the log dir `logs` below a directory, where state may be kept too."""


def _command(place: Path, fs: FileSystem, names: list[str] | None) -> None:
    sources = Sources.of_call("topic", {"cleanup.policy": "compact"}, None, None)
    list(clean_log_dir(place / "logs", names, sources, CleanOptions(), CallContext(fs=fs)))


def by_name(place: Path, fs: FileSystem) -> None:
    """As `cleaner clean LOG_DIR topic-0`."""
    _command(place, fs, [str(TP)])


def all_due(place: Path, fs: FileSystem) -> None:
    """As `cleaner clean LOG_DIR --all`."""
    _command(place, fs, None)


def by_daemon(place: Path, fs: FileSystem) -> None:
    """As the daemon does."""
    with daemon(settings_for(place / "logs", state_dir=place / "state"), fs) as running:
        running.log.wait("", partition=str(TP))


def test_rate_is_that_of_all_partitions_of_a_call(tmp_path: Path) -> None:
    """Reads of both passes and writes take their time; no partition begins with bytes to spare (R-715)."""
    names = [f"topic-{number}" for number in range(5)]
    write_log_dir(tmp_path, *(keyed_log(name) for name in names))
    config = {
        "cleanup.policy": "compact",
        "log.cleaner.io.max.bytes.per.second": str(RATE),
        "cleaner.pipeline.threads": "1",
    }
    clock = ManualClock()
    outcomes = list(clean_log_dir(tmp_path, names, Sources(config), CleanOptions(), CallContext(clock=clock)))
    reports = [outcome for outcome in outcomes if isinstance(outcome, CleanReport)]
    assert len(reports) == len(names)
    passed = sum(2 * report.bytes_read + report.bytes_written for report in reports)
    assert passed > 10 * RATE
    assert clock.monotonic_ns() / 1e9 == pytest.approx(passed / RATE, rel=0.01)


@pytest.mark.parametrize("cleans", [by_name, all_due, by_daemon])
def test_log_whose_directory_is_exchanged_is_closed_where_it_was_cleaned(tmp_path: Path, cleans: Cleans) -> None:
    """The owner exchanges it as soon as it is no longer held; the recovery point is true only if that is the end."""
    logs = tmp_path / "logs"
    write_log_dir(logs, keyed_log(str(TP)), recovery_points={})  # so the close has something to fsync

    class ExchangedOnRelease(FileSystem):
        def hold(self, directory: Path, *, follow_above: bool = False) -> Hold:
            held = super().hold(directory, follow_above=follow_above)
            return _Exchange(held, directory) if directory.name == str(TP) else held

    cleans(tmp_path, ExchangedOnRelease())
    assert (logs / "aside").exists()
    assert offsets(logs, "recovery-point") == {str(TP): 80}
    assert list((logs / str(TP)).iterdir()) == []


class _Exchange(Hold):
    """A hold of a directory that is exchanged for an empty one right after its release."""

    def __init__(self, held: Hold, directory: Path) -> None:
        self._hold = held
        self._directory = directory

    def release(self) -> None:
        self._hold.release()
        if not (aside := self._directory.with_name("aside")).exists():
            self._directory.rename(aside)
            self._directory.mkdir()


@pytest.mark.parametrize("cleans", [by_name, all_due, by_daemon])
def test_log_that_is_not_cleaned_has_its_checkpoint_corrected_last_and_under_its_lock(
    tmp_path: Path, cleans: Cleans
) -> None:
    """R-405, R-420: a writer that cuts the log waits, or is noticed; files left by a stop have gone before."""
    logs = tmp_path / "logs"
    write_log_dir(logs, keyed_log(str(TP), segments=0), cleaner_offsets={TP: 999})
    (logs / str(TP) / LEFT_OVER).touch()
    seen: list[tuple[bool, bool]] = []

    class Watched(FileSystem):
        def write_atomically(self, path: Path, data: bytes) -> None:
            if path.name == "cleaner-offset-checkpoint":
                seen.append((_is_locked(logs), (logs / str(TP) / LEFT_OVER).exists()))
            super().write_atomically(path, data)

    cleans(tmp_path, Watched())
    assert seen == [(True, False)]
    assert offsets(logs, "cleaner") == {str(TP): 0}


@pytest.mark.parametrize("cleans", [by_name, by_daemon])
@pytest.mark.parametrize("segments", [0, 3], ids=["nothing to clean", "cleaned"])
def test_readers_list_a_log_again_when_its_files_are_settled(tmp_path: Path, cleans: Cleans, segments: int) -> None:
    """Whether or not a round follows, names change: the generation rises, as at a swap."""
    logs = tmp_path / "logs"
    write_log_dir(logs, keyed_log(str(TP), segments=segments), cleaner_offsets={TP: 999})
    (logs / str(TP) / LEFT_OVER).touch()
    with Generations(FileSystem(), logs) as generations:
        before = generations.of(TP)
        cleans(tmp_path, FileSystem())
        assert generations.of(TP) > before


def with_retention(place: Path, fs: FileSystem) -> None:
    """As `cleaner clean LOG_DIR topic-0 --retention`."""
    sources = Sources.of_call("topic", {"cleanup.policy": "compact,delete", "retention.bytes": "1"}, None, None)
    list(clean_log_dir(place / "logs", [str(TP)], sources, CleanOptions(retention=True), CallContext(fs=fs)))


def recover(place: Path, fs: FileSystem) -> None:
    """As `cleaner recover LOG_DIR` on a log that ends in the middle of a batch."""
    (place / "logs" / ".kafka_cleanshutdown").unlink()
    last = max((place / "logs" / str(TP)).glob("*.log"))
    os.truncate(last, last.stat().st_size - 1)
    report = recover_log_dir(place / "logs", None, Sources(), CallContext(fs=fs))
    assert report.partitions[0].bytes_after < report.partitions[0].bytes_before


def undo(place: Path, fs: FileSystem) -> None:
    """As `cleaner undo DIR`, after a round with `--keep-old DIR`."""
    sources = Sources.of_call("topic", {"cleanup.policy": "compact"}, None, None)
    options = CleanOptions(keep_old=place / "kept")
    list(clean_log_dir(place / "logs", [str(TP)], sources, options, CallContext()))
    (place / "logs" / str(TP) / LEFT_OVER).touch()
    list(undo_clean(place / "kept", sources, CallContext(fs=fs)))


def open_to_write(place: Path, fs: FileSystem) -> None:
    """As a program that opens the logs to append, and closes them."""
    LogManager(place / "logs", fs=fs, cleaner=False).close()


@pytest.mark.parametrize("does", [by_name, by_daemon, with_retention, recover, undo, open_to_write])
def test_names_change_under_the_partitions_lock_and_after_its_generation_has_risen(
    tmp_path: Path, does: Cleans
) -> None:
    """Readers of other processes list under the lock, and list again when the number has risen."""
    logs = tmp_path / "logs"
    write_log_dir(logs, keyed_log(str(TP)))
    (logs / str(TP) / LEFT_OVER).touch()
    changes: list[tuple[str, bool]] = []

    class Watched(WatchedFileSystem):
        syncs_really = True

        def before(self, operation: Operation) -> None:
            path, kinds = operation.path, ("rename", "remove", "truncate")
            # What is unfinished, or renamed away, no reader opens.
            is_read = path.parent == logs / str(TP) and path.suffix not in (".cleaned", ".tmp", ".deleted")
            if is_read and operation.kind in kinds:
                changes.append((path.name, _is_locked(logs) and generations.of(TP) > before))

    with Generations(FileSystem(), logs) as generations:
        before = generations.of(TP)
        does(tmp_path, Watched())
        assert generations.of(TP) > before
    assert changes or does is open_to_write
    assert [name for name, is_announced in changes if not is_announced] == []


def _is_locked(log_dir: Path) -> bool:
    with suppress(LogChangedError), partition_lock(FileSystem(), log_dir, TP, SystemClock(), patience_ms=0):
        return False
    return True
