"""What a round leaves of a log in which nothing is dirty (`cleaner.quiet.cleaning`)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.reference.batches import Batch, read_batches
from tests.simulation.found import Found, Wrong, checkpoints_of


class QuietLog(NamedTuple):
    """
    A log before or after such a round.

    Attributes:
        name: the topic's.
        end: its line in the cleaner's checkpoint.
        found: its content.
        files: of each `.log` its inode and bytes, and those of its indexes.
    """

    name: str
    end: int
    found: Found
    files: dict[str, tuple[int, bytes, list[bytes]]]

    @staticmethod
    def of(log_dir: Path, name: str) -> QuietLog:
        """Read a topic's log."""
        directory = log_dir / f"{name}-0"
        files = {path.name: (path.stat().st_ino, path.read_bytes(), _indexes(path)) for path in directory.glob("*.log")}
        end = checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint", 0)
        return QuietLog(name, end, Found.of(directory), files)

    def judge(self, after: QuietLog, due_ms: int, *, is_whole: bool) -> None:
        """Judge what a round at `due_ms` or later has left of this log; `is_whole`: it was given once."""
        if after.end != self.end:
            raise Wrong(f"{self.name}: nothing was dirty, and the checkpoint moves from {self.end} to {after.end}")
        ends = [*sorted(int(name[:20]) for name in self.files)[1:], self.found.end + 1]
        # A segment that reaches into what is dirty is not clean.
        clean_end = max((end for end in ends if end <= self.end), default=0)
        last_marker = {producer: offset for offset, producer, _ in after.found.markers}
        last_data = {producer: offset for offset, producer in after.found.in_transactions}
        for offset, horizon in after.found.horizons.items():
            if offset >= clean_end or horizon is None or horizon >= due_ms:
                continue
            record = after.found.records.get(offset)
            if record is not None:
                raise Wrong(f"{self.name}: the tombstone at {offset} might go at {horizon}, and is there at {due_ms}")
            producer = next(producer for at, producer, _ in after.found.markers if at == offset)
            if offset < max(last_marker[producer], last_data.get(producer, 0)):
                raise Wrong(f"{self.name}: the marker at {offset} might go at {horizon}, and is there at {due_ms}")
        for offset in self._markers_alone(clean_end):
            if after.found.horizons.get(offset, 0) is None:
                raise Wrong(f"{self.name}: the marker at {offset} has lost its data, and never gets a horizon")
        for name, (inode, data, indexes) in self.files.items():
            now_inode, now, now_indexes = after.files.get(name, (0, b"", []))
            if is_whole and (now, now_indexes) == (data, indexes) and now_inode != inode:
                raise Wrong(f"{self.name}: {name} was written again, and is the same")
            if not _may_change(read_batches(data)) and now != data:
                raise Wrong(f"{self.name}: {name} has nothing whose time may come, and was changed")

    def _markers_alone(self, end: int) -> list[int]:
        """Return the markers below an offset without data between them and the one before of their producers."""
        last: dict[int, int] = {}
        alone = []
        for offset, producer, _ in sorted(self.found.markers):
            begin = last.get(producer, -1)
            last[producer] = offset
            if offset < end and not any(
                begin < at < offset for at, mine in self.found.in_transactions if mine == producer
            ):
                alone.append(offset)
        return alone


def _indexes(log: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(log.parent.glob(f"{log.stem}.*index"))]


def _may_change(batches: list[Batch]) -> bool:
    """Tell whether a segment has batches with a horizon, without records, or of a transaction."""
    return any(
        batch.delete_horizon is not None or not batch.count or batch.transactional or batch.control for batch in batches
    )
