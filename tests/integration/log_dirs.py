"""Small log dirs for the tests of the commands, and a way to see whether one has changed."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.fs.file_system import FileSystem
from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import START_MS, LogBuilder

NOW = START_MS + 1_000_000
KEYS = 5
Run = Callable[..., tuple[int, str, str]]
"""Runs a command; returns its exit code, output and errors."""


def keyed_log(name: str = "topic-0", *, segments: int = 3, records: int = 20) -> LogBuilder:
    """A log of `segments` full segments and an active one; keys repeat every five records."""
    log = LogBuilder(TopicPartition.parse(name))
    for segment in range(segments + 1):
        if segment:
            log.roll()
        for n in range(records):
            log.append((f"k{n % KEYS}", f"v{segment}.{n}"))
    return log


def contents(directory: Path) -> dict[str, str]:
    """Hash every file below a directory, except the lock file."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def offsets(log_dir: Path, name: str) -> dict[str, int]:
    """Read an offset checkpoint by file name."""
    found = read_offset_checkpoint(FileSystem(), log_dir / f"{name}-offset-checkpoint")
    return {str(topic_partition): offset for topic_partition, offset in found.items()}


def record_offsets(directory: Path) -> list[int]:
    """List the offsets of a partition's records; its batches must hold one record each, or none."""
    batches = (
        batch_info(batch) for path in sorted(directory.glob("*.log")) for batch in split_batches(path.read_bytes())
    )
    return [batch.base_offset for batch in batches if batch.record_count]


def flip_bit(path: Path, position: int = -1) -> None:
    """Damage a file by one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


@contextmanager
def locked_elsewhere(log_dir: Path) -> Iterator[None]:
    """Let another process hold a log dir's lock: a process's own lock is not there for itself."""
    program = (
        "import sys; from pathlib import Path; from cleaner.storage.fs.file_system import FileSystem; "
        "from cleaner.storage.lock.log_dir_lock import LockMode, LogDirLock; "
        "lock = LogDirLock(FileSystem(), Path(sys.argv[1]), LockMode.EXCLUSIVE); print('in', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        yield
        other.communicate()
