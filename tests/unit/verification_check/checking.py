"""Log dirs to check, and the results of checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.check_log_dir import CheckOptions, CheckTotals, check_paths
from cleaner.app.options import CallContext
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition
from cleaner.verification.check.repair import RepairedFile
from tests.support.log_builder import START_MS, LogBuilder

NOW_MS = START_MS + 1_000_000


@dataclass
class Checked:
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)
    partitions: list[CheckedPartition] = field(default_factory=list)
    repaired: list[RepairedFile] = field(default_factory=list)
    totals: CheckTotals = field(default_factory=CheckTotals)

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        self.findings += findings

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        self.findings += partition.findings
        self.partitions.append(partition)
        self.repaired += repaired

    @property
    def damages(self) -> list[tuple[str, str, int | None, int | None]]:
        """Kind, file, position and offset of each damage."""
        return [(f.kind.value, f.path.name, f.position, f.offset) for f in self.findings if f.is_damage]

    @property
    def notes(self) -> list[tuple[str, str]]:
        """Kind and file of each note."""
        return [(f.kind.value, f.path.name) for f in self.findings if not f.is_damage]


def check(*paths: Path, fs: FileSystem | None = None, options: CheckOptions | None = None) -> Checked:
    """Check log dirs or partition directories."""
    checked = Checked()
    lent = CallContext.of(fs=fs, now_ms=NOW_MS)
    checked.totals = check_paths(paths, Sources(), lent, options or CheckOptions(), checked)
    return checked


def log_of(count: int, *, codec: str = "none", value: str = "v" * 50, index_interval_bytes: int = 200) -> LogBuilder:
    """Return a log of so many batches of two records, every key once."""
    log = LogBuilder(index_interval_bytes=index_interval_bytes)
    for number in range(count):
        log.append((f"a{number}", value), (f"b{number}", value), codec=codec)
    return log


def positions(log: bytes) -> list[int]:
    """Return where the batches of a `.log` begin, and where the last ends."""
    found = [0]
    while found[-1] < len(log):
        at = found[-1]
        found.append(at + 12 + int.from_bytes(log[at + 8 : at + 12], "big"))
    return found
