"""Recovery, splitting and retention on a disk that forgets: the next load repairs a power cut in the middle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from cleaner.app.options import CallContext
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from cleaner.storage.remove.retention import delete_oldest
from tests.support.batch_builder import Producer, Record, data_batch
from tests.support.forgetful_fs import ForgetfulFileSystem
from tests.support.log_builder import CLEAN_SHUTDOWN, START_MS, LogBuilder, write_log_dir

SEED = 20_27
STATES_PER_POINT = 12
FAR = 2**31
SOURCES = Sources(config={"index.interval.bytes": "100"})


def _recover(directory: Path, fs: FileSystem, recovery_point: int = 0) -> LoadedLog:
    """Recover a log and stop cleanly."""
    log = load_log(
        fs,
        directory,
        TopicPartition("topic", 0),
        topic=TopicConfig(index_interval_bytes=100),
        log_start_offset=0,
        recovery_point=recovery_point,
        high_watermark=2**62,
        clean_shutdown=False,
        producer_id_expiration_ms=86_400_000,
        now_ms=START_MS,
    )
    log.settle(fs, nullcontext)
    log.close(fs, nullcontext)
    return log


def _built() -> LogBuilder:
    """Segments at 0, 4, 8 and 12, log end 16; a transaction is aborted at 6."""
    log = LogBuilder(index_interval_bytes=100)
    for number in range(16):
        if number in (4, 8, 12):
            log.roll()
        if number == 6:
            log.end_transaction(6, 0, commit=False)
        else:
            producer = Producer(6, 0, 0, True) if number == 3 else Producer(5, 0, number)
            log.append((f"k{number}", "v"), producer=producer)
    return log


def _damaged(root: Path) -> Path:
    """Damage in the second segment; indexes lost, too."""
    directory = _built().write(root)
    path = directory / f"{4:020d}.log"
    data = bytearray(path.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second + 65] ^= 1  # a record's byte, covered by the checksum
    path.write_bytes(data)
    (directory / f"{0:020d}.index").unlink()
    return directory


def _swapping(root: Path) -> Path:
    """A swap of two new segments was decided when the machine stopped."""
    directory = _built().write(root)
    for base in (0, 8):
        for suffix in (".log", ".index", ".timeindex"):
            path = directory / f"{base:020d}{suffix}"
            path.with_name(path.name + ".swap").write_bytes(path.read_bytes())
    (directory / f"{4:020d}.log.swap").write_bytes((directory / f"{4:020d}.log").read_bytes())
    return directory


def _announcing(root: Path) -> Path:
    """A swap was announced in part, and not decided: the old segment stays."""
    directory = _built().write(root)
    log = directory / f"{0:020d}.log"
    log.with_name(log.name + ".swap").write_bytes(b"")
    (directory / f"{0:020d}.timeindex.cleaned").write_bytes(b"")
    return directory


def _overflowing(root: Path) -> Path:
    """One segment with offsets for three."""
    directory = root / "topic-0"
    directory.mkdir(parents=True)
    batches = [data_batch([Record(b"k", b"v" * 99)], offset) for offset in (0, 1, FAR + 2, FAR + 3, 2 * FAR + 9)]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    (directory / f"{0:020d}.index").write_bytes(b"")
    return directory


def _content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.mark.parametrize("write", [_damaged, _swapping, _announcing, _overflowing])
def test_recovery_cut_short_anywhere_ends_where_an_undisturbed_one_does(
    tmp_path: Path, write: Callable[[Path], Path]
) -> None:
    """No state after a power cut loses or brings back a record: another recovery gives the same files."""
    undisturbed = write(tmp_path / "undisturbed")
    _recover(undisturbed, FileSystem(), recovery_point=0)
    wanted = _content(undisturbed)
    root = tmp_path / "watched"
    directory = write(root)
    fs = ForgetfulFileSystem(root)
    _recover(directory, fs)
    assert _content(directory) == wanted
    tried = 0
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            tried += 1
            crashed = tmp_path / "crashed" / str(tried)
            state.write_to(crashed)
            if point == len(fs.journal):
                # The clean-shutdown marker comes next, and then no load checks again: everything must be durable.
                assert _content(crashed / directory.name) == wanted, f"seed {SEED}, at the end: {state.note}"
            _recover(crashed / directory.name, FileSystem())
            assert _content(crashed / directory.name) == wanted, f"seed {SEED}, {state.note}"
    assert tried > 20


def test_retention_cut_short_leaves_one_unbroken_piece(tmp_path: Path) -> None:
    """R-913: an older segment never outlives a younger one, and the log end stays where it was."""
    root = tmp_path / "watched"
    directory = _built().write(root)
    fs = ForgetfulFileSystem(root)
    delete_oldest(fs, _recover(directory, fs), 4)
    seen = set()
    for number, point in enumerate(fs.crash_points()):
        for variant, state in enumerate(fs.states_at(point, limit=STATES_PER_POINT, seed=SEED)):
            crashed = tmp_path / "crashed" / f"{number}-{variant}"
            state.write_to(crashed)
            log = _recover(crashed / directory.name, FileSystem(), recovery_point=16)
            bases = tuple(segment.base_offset for segment in log.segments)
            assert bases in [(0, 4, 8, 12, 16)[first:last] for first in range(5) for last in (4, 5) if first < last], (
                f"seed {SEED}, {state.note}: {bases}"
            )
            assert log.log_end_offset == 16
            seen.add(bases)
    assert {(0, 4, 8, 12), (16,)} <= seen


def _recover_dir(root: Path, zeros: str) -> ForgetfulFileSystem:
    """Run `recover` on a log dir with the marker; zeros are behind the active `.log`, or were cut and not forced."""
    directory = write_log_dir(root, _built()) / "topic-0"
    path = directory / f"{12:020d}.{zeros}"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(480))
    fs = ForgetfulFileSystem(root)
    if zeros != "log":
        with fs.open(path, write=True) as file:  # an earlier stop's
            file.truncate(size)
    report = recover_log_dir(root, None, SOURCES, CallContext.of(fs=fs, now_ms=START_MS))
    assert (report.refused, report.has_marker) == ((), True)
    return fs


@pytest.mark.parametrize("zeros", ["index", "timeindex"])
def test_close_forces_what_an_earlier_stop_has_cut(tmp_path: Path, zeros: str) -> None:
    """R-310, D-02: Kafka up to 4.3 cuts after its last fsync, so the active segment is always forced."""
    root = tmp_path / "watched"
    fs = _recover_dir(root, zeros)
    for state in fs.states_at(len(fs.journal), limit=STATES_PER_POINT, seed=SEED):
        for path, file in state.files:
            assert path.name[:20] != f"{12:020d}" or file.data == (root / path).read_bytes(), state.note


def test_marker_beside_zeros_is_gone_before_their_log_is_recovered(tmp_path: Path) -> None:
    """D-02: a crash never leaves a marker beside half-written indexes; the next `recover` ends where one does."""
    root = tmp_path / "watched"
    fs = _recover_dir(root, "log")
    wanted = _content(root / "topic-0")
    before = {path.name: data for path, data in _start_of(fs)}
    tried = 0
    for point in fs.crash_points():
        for state in fs.states_at(point, limit=STATES_PER_POINT, seed=SEED):
            files = {path.name: file.data for path, file in state.files if path.name[:20].isdigit()}
            is_whole = files in (before, {name: data for name, data in wanted.items() if name[:20].isdigit()})
            assert is_whole or Path(CLEAN_SHUTDOWN) not in dict(state.files), f"seed {SEED}, {state.note}"
            tried += 1
            crashed = tmp_path / "crashed" / str(tried)
            state.write_to(crashed)
            recover_log_dir(crashed, None, SOURCES, CallContext.of(now_ms=START_MS))
            assert _content(crashed / "topic-0") == wanted, f"seed {SEED}, {state.note}"
    assert tried > 20


def _start_of(fs: ForgetfulFileSystem) -> list[tuple[Path, bytes]]:
    """Return the files of the partition as they were at the start."""
    [state] = fs.states_at(fs.start, limit=1, seed=SEED)
    return [(path, file.data) for path, file in state.files if path.name[:20].isdigit()]
