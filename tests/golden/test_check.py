"""`check` on everything a broker left: each damage found where it was made, and nothing in what is sound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cleaner.app.check_log_dir import CheckOptions, check_paths
from cleaner.app.options import CallContext
from cleaner.settings.sources import Sources
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition
from cleaner.verification.check.repair import RepairedFile
from tests.golden.archive import DATA

pytestmark = pytest.mark.kernels

# Kind, file and position of what was damaged by hand; every scenario that is not listed is sound.
DAMAGES: dict[str, list[tuple[str, str, int | None]]] = {
    "damaged-bad-crc": [("batch-checksum", "00000000000000000072.log", 425)],
    "damaged-bad-crc-header": [("batch-checksum", "00000000000000000069.log", 839)],
    "damaged-bomb-gzip": [("batch-too-large", "00000000000000000074.log", 0)],
    "damaged-bomb-lz4": [("batch-too-large", "00000000000000000070.log", 0)],
    "damaged-bomb-zstd": [("batch-too-large", "00000000000000000071.log", 0)],
    "damaged-checkpoint-count": [("checkpoint", "cleaner-offset-checkpoint", 2)],
    "damaged-checkpoint-number": [("checkpoint", "replication-offset-checkpoint", 4)],
    "damaged-checkpoint-text": [("checkpoint", "cleaner-offset-checkpoint", 0)],
    "damaged-checkpoint-version": [("checkpoint", "cleaner-offset-checkpoint", 0)],
    "damaged-codec-unknown": [("batch-header", "00000000000000000068.log", 800)],
    "damaged-count-negative": [("batch-header", "00000000000000000070.log", 1096)],
    "damaged-count-too-large": [("batch-header", "00000000000000000067.log", 1208)],
    "damaged-count-too-small": [("batch-records", "00000000000000000073.log", 634)],
    "damaged-foreign-suffix": [("foreign-file", "notes.swap", None)],
    "damaged-index-back": [("time-index", "00000000000000000067.timeindex", 48)],
    "damaged-index-into-batch": [("offset-index", "00000000000000000071.index", 0)],
    "damaged-index-odd-size": [("offset-index", "00000000000000000074.index", 32)],
    "damaged-index-past-end": [("offset-index", "00000000000000000072.index", 32)],
    "damaged-key-length": [("batch-records", "00000000000000000067.log", 882)],
    "damaged-length-huge": [("batch-cut-off", "00000000000000000068.log", 927)],
    "damaged-length-negative": [("batch-length", "00000000000000000075.log", 738)],
    "damaged-length-past-end": [("batch-cut-off", "00000000000000000075.log", 4718)],
    "damaged-length-short": [("batch-length", "00000000000000000070.log", 896)],
    "damaged-magic-negative": [("batch-magic", "00000000000000000069.log", 1067)],
    "damaged-offset-below-segment": [("batch-offsets", "00000000000000000076.log", 0)],
    "damaged-offset-delta": [("batch-header", "00000000000000000070.log", 588)],
    "damaged-offsets-back": [("batch-offsets", "00000000000000000072.log", 864)],
    "damaged-stream-gzip": [("batch-stream", "00000000000000000154.log", 906)],
    "damaged-stream-lz4": [("batch-stream", "00000000000000000094.log", 1652)],
    "damaged-stream-snappy": [("batch-stream", "00000000000000000104.log", 1672)],
    "damaged-stream-zstd": [("batch-stream", "00000000000000000130.log", 1792)],
    "damaged-trailing-garbage": [("batch-magic", "00000000000000000069.log", 4712)],
    "damaged-trailing-zeros": [("batch-length", "00000000000000000067.log", 4807)],
    "damaged-truncated-middle": [("batch-cut-off", "00000000000000000069.log", 4692)],
    "damaged-varint-overlong": [("batch-records", "00000000000000000071.log", 956)],
    "damaged-wrong-magic": [("batch-magic", "00000000000000000071.log", 842)],
    "damaged-zero-hole": [
        ("batch-checksum", "00000000000000000074.log", 547),
        ("batch-length", "00000000000000000074.log", 674),
        ("batch-offsets", "00000000000000000074.log", 926),
    ],
    "snapshot-corrupt": [("snapshot", "00000000000000000500.snapshot", 2)],
    "unclean-bad-middle": [("batch-checksum", "00000000000000000229.log", 3738)],
}
# The same of the scenarios that compare releases, by stage.
DAMAGED_STAGES: dict[str, list[tuple[str, str, int | None]]] = {
    "index-of-earlier-source/after-1-4.3.1": [("offset-index", "00000000000000000000.index", 8)],
    "index-of-earlier-source/after-2-4.3.1": [("offset-index", "00000000000000000005.index", 8)],
    "index-of-earlier-source/before": [("offset-index", "00000000000000000000.index", 8)],
    "index-of-earlier-source/before-2": [("offset-index", "00000000000000000005.index", 8)],
    "index-of-first-dirty/before": [("offset-index", "00000000000000000005.index", 8)],
    "index-of-last-source/before": [("offset-index", "00000000000000000010.index", 8)],
    "index-partial-entry/before": [("offset-index", "00000000000000000005.index", 16)],
    "index-partial-entry/before-2": [("time-index", "00000000000000000005.timeindex", 24)],
    "index-zero-tails/after-1": [("offset-index", "00000000000000000015.index", 16)],
    "index-zero-tails/after-2": [("time-index", "00000000000000000015.timeindex", 24)],
    "index-zero-tails/before": [("offset-index", "00000000000000000015.index", 16)],
    "index-zero-tails/before-2": [("time-index", "00000000000000000015.timeindex", 24)],
    "log-zero-tail/before": [("batch-length", "00000000000000000015.log", 365)],
    "txn-index-version/before": [("transaction-index", "00000000000000000006.txnindex", 0)],
    "txn-index-version/before-2": [("transaction-index", "00000000000000000006.txnindex", 0)],
    "txn-index-version/before-3": [("transaction-index", "00000000000000000006.txnindex", 0)],
}
DAMAGED_STAGES |= {f"{name}/before": found for name, found in DAMAGES.items()}
# Their checkpoint was put there by hand: the clean section was never cleaned.
NEVER_CLEANED = ("index-of-first-dirty", "limit-aborted", "limit-in-clean-section")
SCENARIOS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


@dataclass
class Seen:
    """The result of a check."""

    findings: list[Finding] = field(default_factory=list)

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        self.findings += findings

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        self.findings += partition.findings


def damages(log_dir: Path, *, clean_section: bool) -> list[tuple[str, str, int | None]]:
    seen = Seen()
    check_paths([log_dir], Sources(), CallContext(), CheckOptions(clean_section=clean_section), seen)
    return [(found.kind.value, found.path.name, found.position) for found in seen.findings if found.is_damage]


@pytest.mark.parametrize("name", SCENARIOS)
def test_check_finds_the_damages_of_a_scenario_and_no_others(name: str, unpacked: Callable[[str], Path]) -> None:
    """In every stage, before and after Kafka's rounds; the clean sections hold each key once."""
    stages = sorted(path for path in unpacked(name).iterdir() if path.is_dir())
    assert stages
    for stage in stages:
        expected = DAMAGED_STAGES.get(f"{name}/{stage.name}", [])
        assert damages(stage, clean_section=name not in NEVER_CLEANED) == expected, stage.name
