"""
Lays out the log dirs of the incidents in docs/operations.md: `python -m tools.incidents DIRECTORY`.

They are as the incident leaves them, only smaller; every run makes the same keys and values. As root it mounts a small
disk for the one that is full (`umount DIRECTORY/full` takes it away); otherwise that incident has room enough.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from cleaner import LogManager, RecordColumns

_MADE_MS = 1_700_000_000_000
_BATCH_RECORDS = 500
_DISK_BYTES = 32 << 20
_LEFT_BYTES = 700 << 10  # room for a group of the small topic, not for one of the large topic
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}

Pairs = Iterator[tuple[bytes, bytes | None]]


def lay_out(directory: Path) -> None:
    """Make all five; `directory` must not hold any of them yet."""
    bloated(directory / "bloated")
    full(directory / "full")
    damaged(directory / "damaged")
    restored(directory / "restored")
    unknown(directory / "unknown")


def bloated(log_dir: Path) -> None:
    """A `__consumer_offsets` partition of a broker whose cleaner thread died long ago: commits of 200 groups."""
    _write(log_dir, {"__consumer_offsets": _commits(200_000)})
    _without_settings(log_dir)


def full(disk: Path) -> None:
    """Two compacted topics, a large one and a small one, on a disk that somebody else has filled too."""
    disk.mkdir()
    is_small = os.geteuid() == 0
    if is_small:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "disk", str(disk)], check=True)
    large, small = _updates(1, 40_000, keys=30_000, value_bytes=400), _updates(2, 20_000, keys=50, value_bytes=100)
    _write(disk / "logs", {"profiles": large, "prices": small})
    if is_small:
        about = os.statvfs(disk)
        (disk / "others").write_bytes(bytes(about.f_bavail * about.f_frsize - _LEFT_BYTES))


def damaged(log_dir: Path) -> None:
    """A compacted topic with one flipped bit in the middle of a segment, which any disk may do."""
    orders, carts = _updates(3, 20_000, keys=500, value_bytes=200), _updates(4, 5_000, keys=100, value_bytes=200)
    _write(log_dir, {"orders": orders, "carts": carts})
    segment = sorted((log_dir / "orders-0").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0x10
    segment.write_bytes(content)


def restored(log_dir: Path) -> None:
    """What a backup of partition directories alone brings back; it was taken of a live broker, so an end is torn."""
    whole = log_dir.with_name("restored-whole")
    _write(whole, {"orders": _updates(5, 20_000, keys=500, value_bytes=200)})
    log_dir.mkdir()
    shutil.move(whole / "orders-0", log_dir / "orders-0")
    shutil.rmtree(whole)
    last = max((log_dir / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-1000])


def unknown(log_dir: Path) -> None:
    """Topics nobody remembers the settings of: one was compacted, of the other each record counts."""
    sessions, audit = _updates(6, 20_000, keys=200, value_bytes=200), _updates(7, 10_000, keys=50, value_bytes=200)
    _write(log_dir, {"sessions": sessions, "audit": audit})
    _without_settings(log_dir)


def _write(log_dir: Path, topics: Mapping[str, Pairs]) -> None:
    with LogManager(log_dir, create=True) as manager:
        for topic, pairs in topics.items():
            manager.create_topic(topic, 1, _COMPACTED)
            log = manager.log(topic)
            for keys, values in _batches(pairs):
                log.append(RecordColumns(keys=keys, values=values))


def _batches(pairs: Pairs) -> Iterator[tuple[list[bytes | None], list[bytes | None]]]:
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    for key, value in pairs:
        keys.append(key)
        values.append(value)
        if len(keys) == _BATCH_RECORDS:
            yield keys, values
            keys, values = [], []
    if keys:
        yield keys, values


def _updates(seed: int, count: int, *, keys: int, value_bytes: int) -> Pairs:
    """Yield updates of random keys, now and then a tombstone."""
    chance = random.Random(seed)
    for _ in range(count):
        key = f"key-{chance.randrange(keys):06}".encode()
        yield key, None if chance.random() < 0.01 else chance.randbytes(value_bytes)


def _commits(count: int) -> Pairs:
    """Yield offset commits as a group coordinator writes them (OffsetCommitKey 1, OffsetCommitValue 3)."""
    chance = random.Random(8)
    for number in range(count):
        group, partition = chance.randrange(200), chance.randrange(12)
        key = struct.pack(">h", 1) + _string(f"group-{group:03}") + _string("orders") + struct.pack(">i", partition)
        value = struct.pack(">hqi", 3, number, 0) + _string("") + struct.pack(">q", _MADE_MS + number)
        yield key, value


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _without_settings(log_dir: Path) -> None:
    """Leave a log dir as a broker would: settings of topics are elsewhere."""
    (log_dir / "cleaner-topics.properties").unlink()


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
