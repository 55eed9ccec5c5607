"""
Random logs through Kafka's cleaner and through ours: `python -m tests.kafka.random_logs --count 2000 --seed 1`.

`java/RandomLogs.java` writes a log for each seed and runs rounds of Kafka's own cleaner on it, that of 4.3 or, with
`--kafka 4.4`, of 4.4. Every round is run again by `cleaner.clean` as that release, from the same input, and its
result must equal Kafka's: each file of the partition byte for byte, with the same modification times of the segments.
Only bytes that were compressed again may differ: of those batches header and records are compared, and a batch that
Kafka copied must be copied.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import cleaner
from cleaner.app.check_log_dir import CheckOptions, check_paths
from cleaner.app.options import CallContext
from cleaner.app.verify_log_dirs import VerifyOptions, VerifyReport, verify_log_dirs
from cleaner.base.model import TopicPartition
from cleaner.settings.sources import Sources
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition
from tests.golden.comparison import contents, differences
from tests.kafka.rig import CLEANERS, RANDOM_LOGS, Rig
from tests.reference.batches import read_batches
from tests.scratch import scratch_directory
from tests.support.log_builder import write_log_dir

PARTITION = TopicPartition("t", 0)
CHUNK = 100
SEGMENT_KINDS = (".log", ".index", ".timeindex", ".txnindex")
ALL_KINDS = ("",)
KAFKA = "cleaner.kafka.version"
EQUAL, EQUAL_DECODED, BOTH_STOPPED, WENT_ON, DAMAGE_REFUSED, DIFFERENT = (
    "equal in every byte",
    "equal when decoded",
    "stopped where Kafka's cleaner stopped",
    "finished where Kafka's cleaner failed",
    "refused for a damaged index that Kafka's cleaner trusts",
    "DIFFERENT",
)


class Outcome(NamedTuple):
    """How one round compares; `detail` says where it differs or stopped."""

    kind: str
    detail: str = ""


def make_log_dir(home: Path, number: int, got: Mapping[str, Any], work: Path, *, is_result: bool = False) -> None:
    """Make the log dir that Kafka's round began with, or left: the partition, a marker, and the four checkpoints."""
    stage, checkpoint = ("out", got.get("end")) if is_result else ("in", got["checkpoint"])
    shutil.copytree(home / f"{stage}{number}", work / str(PARTITION), copy_function=shutil.copy2)
    write_log_dir(
        work,
        cleaner_offsets={} if checkpoint is None else {PARTITION: checkpoint},
        high_watermarks={PARTITION: got["high_watermark"]},
        recovery_points={PARTITION: got["log_end"]},
        log_start_offsets={PARTITION: got["log_start"]} if got["log_start"] else {},
    )


def segment_files(directory: Path) -> dict[str, bytes]:
    """Return the files that a round writes."""
    return {name: data for name, data in contents(directory).items() if name.endswith(SEGMENT_KINDS)}


def modified_ms(directory: Path) -> dict[str, int]:
    """Return the times of the segments, which a round hands on (R-591)."""
    return {path.name: path.stat().st_mtime_ns // 10**6 for path in directory.glob("*.log")}


def found_differences(
    source: Mapping[str, bytes], expected: Path, actual: Path, kinds: tuple[str, ...], index_interval_bytes: int
) -> list[str]:
    """List what differs between what two rounds left of one partition, in files of some kinds, beyond recompression."""
    theirs, ours = (
        {name: data for name, data in contents(directory).items() if name.endswith(kinds)}
        for directory in (expected, actual)
    )
    batches = {b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)}
    found = differences(
        theirs, ours, compressed=True, source_batches=batches, index_interval_bytes=index_interval_bytes
    )
    if modified_ms(expected) != modified_ms(actual):
        found.append(f"modified at {modified_ms(expected)} expected, {modified_ms(actual)} found")
    return found


def settings_of(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a round, as the release that ran it."""
    return {**about["settings"], KAFKA: about["got"]["kafka"].rpartition(".")[0]}


def check_round(home: Path, number: int, work: Path) -> Outcome:
    """Run one round with our cleaner and compare."""
    about = json.loads((home / f"round{number}.json").read_text())
    got, interval = about["got"], int(about["settings"]["index.interval.bytes"])
    make_log_dir(home, number, got, work)
    partition = work / str(PARTITION)
    source = contents(partition)
    try:
        report = cleaner.clean(work, str(PARTITION), settings_of(about), now_ms=got["now"])
    except cleaner.CleanerError as error:
        if "error" not in got:
            return Outcome(DAMAGE_REFUSED if about["damaged"] else DIFFERENT, f"we stopped: {error}")
        # Kafka swaps group by group: the groups done before it failed are done here too, or nothing is.
        untouched = segment_files(partition) == segment_files(home / f"in{number}")
        sound = untouched or not found_differences(source, home / f"out{number}", partition, SEGMENT_KINDS, interval)
        unsound = DAMAGE_REFUSED if about["damaged"] else DIFFERENT
        return Outcome(BOTH_STOPPED if sound else unsound, f"Kafka: {got['error']}; we: {error}")
    if "error" in got:
        return Outcome(WENT_ON, f"Kafka: {got['error']}")
    if got["cleaned"] and report.end_offset != got["end"]:
        return Outcome(DIFFERENT, f"clean up to {got['end']} expected, {report.end_offset} found")
    found = found_differences(source, home / f"out{number}", partition, ALL_KINDS, interval)
    if found:
        return Outcome(DIFFERENT, "; ".join(found))
    return Outcome(EQUAL if contents(home / f"out{number}") == contents(partition) else EQUAL_DECODED)


@dataclass
class Checked:
    """What a check calls damage."""

    damages: list[Finding] = field(default_factory=list)

    def on_log_dir(self, path: Path, findings: Any) -> None:
        self.damages += [found for found in findings if found.is_damage]

    def on_partition(self, partition: CheckedPartition, repaired: Any) -> None:
        self.damages += [found for found in partition.findings if found.is_damage]


def check_proof(home: Path, number: int, work: Path) -> str:
    """
    Return the findings of `verify` and `check` on Kafka's round; it must be empty.

    A damaged index that Kafka trusts can hide aborted transactions from it: their records stay, and no index names them
    any more. So neither such a round nor a later one of its log need be proven.
    """
    about, *earlier = (json.loads((home / f"round{at}.json").read_text()) for at in range(number, -1, -1))
    got, settings = about["got"], settings_of(about)
    if "error" in got or not got["cleaned"] or any(one["damaged"] for one in (about, *earlier)):
        return ""
    for name, is_result in (("before", False), ("after", True)):
        make_log_dir(home, number, got, work / name, is_result=is_result)
    sources = Sources.of_call(PARTITION.topic, settings, None, None)
    options = VerifyOptions(now_ms=got["now"])
    (report,) = verify_log_dirs(work / "before", work / "after", sources, CallContext.of(), options)
    if not isinstance(report, VerifyReport):
        return f"verify: {report}"
    if not report.is_proven:
        return f"verify: {report.findings[:3]}"
    checked = Checked()
    check_paths([work / "after"], Sources(), CallContext(), CheckOptions(), checked)
    return f"check: {checked.damages[:3]}" if checked.damages else ""


def check_logs(logs: Path, scratch: Path) -> Iterator[tuple[str, Outcome]]:
    """Check every round of every log; yields the round's name and how it compares."""
    for home in sorted(logs.iterdir()):
        for about in sorted(home.glob("round*.json")):
            number = int(about.stem.removeprefix("round"))
            work = scratch / home.name / str(number)
            yield f"{home.name} round {number}", check_round(home, number, work)
            refuted = check_proof(home, number, scratch / home.name / f"proof{number}")
            if refuted:
                yield f"{home.name} round {number}", Outcome(DIFFERENT, refuted)


def run(kafka: Rig, count: int, seed: int, codecs: str, legacy_share: float) -> tuple[Counter[str], list[str]]:
    """Write, clean and compare `count` logs from `seed` on; returns how often each outcome came, and what differs."""
    outcomes: Counter[str] = Counter()
    differences = []
    for first in range(seed, seed + count, CHUNK):
        with scratch_directory() as scratch:
            logs = scratch / "kafka"
            kafka.java(RANDOM_LOGS, logs, min(CHUNK, seed + count - first), first, codecs, legacy_share)
            for name, outcome in check_logs(logs, scratch / "ours"):
                outcomes[outcome.kind] += 1
                if outcome.kind == DIFFERENT:
                    differences.append(f"{name} ({codecs}, {legacy_share}): {outcome.detail}")
    return outcomes, differences


def main() -> int:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many logs; each has up to four rounds")
    parser.add_argument("--seed", type=int, required=True, help="of the first log; the next ones follow")
    parser.add_argument("--kafka", choices=CLEANERS, default=CLEANERS[0], help="whose cleaner")
    parser.add_argument("--codecs", default="none,gzip,snappy,lz4,zstd")
    parser.add_argument("--legacy", type=float, default=0.15, help="the share of batches of magic 0 and 1")
    options = parser.parse_args()
    outcomes, differences = run(Rig.load(options.kafka), options.count, options.seed, options.codecs, options.legacy)
    print(f"{options.count} random logs from seed {options.seed}, {outcomes.total()} rounds of Kafka {options.kafka}:")
    for kind, count in outcomes.most_common():
        print(f"{count:7}  {kind}")
    print("\n".join(differences))
    return 1 if differences or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
