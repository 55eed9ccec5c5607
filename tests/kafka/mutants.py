"""
Mutants of small logs through Kafka's loader and cleaner and through ours.

`python -m tests.kafka.mutants --count 20000 --seed 1` draws that many. A mutant is a log with one to three things
changed (`tests/fuzz/mutations.py`): fields of batches, records, entries of indexes and snapshots, small files, names;
checksums are repaired or not. Kafka loads and cleans it, then we do, from a copy. The same files must be left, or both
must refuse. Everything else falls into a class of `KNOWN`, with the rule.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import struct
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cleaner
from tests.fuzz.laundering import SoundBatches
from tests.fuzz.mutations import mutate_partition
from tests.fuzz.places import busy_log
from tests.golden.comparison import contents, differences
from tests.kafka import left_overs
from tests.kafka.left_overs import NOW_MS, PARTITION, TRANSACTIONS, build
from tests.kafka.rig import CLEANING_ROUND, Rig
from tests.reference.batches import read_batches
from tests.scratch import scratch_directory
from tests.support.codecs import BadStream
from tests.support.log_builder import LogBuilder, write_log_dir

CHUNK = 250
SETTINGS = {**left_overs.SETTINGS, "log.cleaner.dedupe.buffer.size": str(1 << 20)}  # a small map is made faster
NO_HIGH_WATERMARK = "nothing was cleaned: there is no high watermark"
REBUILT_ABORTS = "a transaction index that contradicts itself was rebuilt in the recovery"
_SNAPSHOT_HEAD_BYTES, _PRODUCER_BYTES, _TIME_AT = 10, 46, 26
SAME, BOTH_REFUSED, REFUSED, WENT_ON, DIFFERENT = "the same", "both refused", "we refused", "we went on", "DIFFERENT"


class Known(NamedTuple):
    """
    A difference that is meant.

    Attributes:
        why: what Kafka does, what we do, and by which rule.
        kind: of the outcome.
        said: found in its detail.
    """

    why: str
    kind: str
    said: str


KNOWN = (
    Known("a damaged batch: Kafka's cleaner checks no checksum; we refuse (D-09)", REFUSED, "CRC-32C? does not match"),
    Known(
        "an index that contradicts its log: Kafka trusts it after a clean stop; we refuse until `check --repair`",
        REFUSED,
        "ours: CorruptIndexError",
    ),
    Known(
        "zeros behind the batches, beside a clean-shutdown marker: Kafka keeps them; we refuse until a recovery (D-02)",
        REFUSED,
        "ours: ZeroTailError",
    ),
    Known(
        "offsets that go back: Kafka leaves a log in which searches fail; we refuse",
        REFUSED,
        "its offset is not above the one before|its offset does not ascend|more records than offsets",
    ),
    Known(
        "a length that cannot be: Kafka's cleaner drops the rest of the segment; we refuse",
        REFUSED,
        "a batch (of -?[0-9]+ bytes )?where [0-9]+ bytes are left",
    ),
    Known(
        "records that do not fit their header, where Kafka's cleaner does not look; we refuse",
        REFUSED,
        "CorruptBatchError",
    ),
    Known(
        "a small file that cannot be read, and that Kafka's loader does not read; we refuse",
        REFUSED,
        "CorruptCheckpointError",
    ),
    Known("a name that is none: Kafka ignores the file; we refuse", REFUSED, "a foreign file"),
    Known("no high watermark: a broker asks its leader; we clean nothing (D-03)", DIFFERENT, NO_HIGH_WATERMARK),
    Known(
        "an abort that ends before it begins: a recovery of Kafka keeps it, and shows its records; we rebuild it",
        DIFFERENT,
        REBUILT_ABORTS,
    ),
    Known(
        "a name with several suffixes: Kafka and we take another number of loads for it",
        DIFFERENT,
        r"^t-0/[^ ]*\.(cleaned|swap|deleted): (missing|not expected)$",
    ),
    Known(
        "a swap file of no segment: Kafka removes it; we leave it under the name without the suffix",
        DIFFERENT,
        r"^t-0/[^ ]*: not expected$",
    ),
    Known(
        "a small file's unfinished successor: whoever rewrites the file takes it away",
        DIFFERENT,
        r"^t-0/[^ ]*\.tmp: (missing|not expected)$",
    ),
    Known(
        "a line of a partition that is not there: ours goes (D-12); the rig keeps it",
        DIFFERENT,
        r"^recovery-point-offset-checkpoint: expected .*, found ",
    ),
    Known(
        "no cleaner checkpoint, and nothing to clean: Kafka writes a first line, we none",
        DIFFERENT,
        "^cleaner-offset-checkpoint: missing$",
    ),
    Known(
        "what our load need not read (an active segment's indexes, a batch above the range): Kafka's loader gives up",
        WENT_ON,
        "^Kafka's loader: ",
    ),
    Known(
        "a packed batch of no records: Kafka's cleaner unpacks it; we need not, and leave it as it is",
        WENT_ON,
        "^Kafka's cleaner: .*(IOException|ZipException|Stream ended)",
    ),
)


class Mutant(NamedTuple):
    """A base log, and the numbers that changed it."""

    base: str
    changes: tuple[int, ...]


class Outcome(NamedTuple):
    """How a mutant compares; `detail` has both answers."""

    kind: str
    detail: str = ""


BASES = ("busy", "busy", "busy", *TRANSACTIONS)


def mutant_by_lot(seed: int) -> Mutant:
    """Draw a mutant; its numbers are its name."""
    lot = random.Random(seed)
    count = lot.choice((1, 1, 1, 1, 2, 3))
    return Mutant(lot.choice(BASES), tuple(lot.randrange(2**31) for _ in range(count)))


def base_log(name: str) -> LogBuilder:
    """Return a log that mutations start from."""
    return busy_log(str(PARTITION)) if name == "busy" else build(name)


def write(mutant: Mutant, log_dir: Path) -> str:
    """Write a mutant; returns what was changed."""
    log = base_log(mutant.base)
    write_log_dir(
        log_dir,
        log,
        high_watermarks={PARTITION: log.next_offset},
        cleaner_offsets={PARTITION: log.base_offsets[1]},
        recovery_points={PARTITION: log.next_offset},
    )
    return "; ".join(mutate_partition(log_dir / str(PARTITION), number) for number in mutant.changes)


def clean_ours(log_dir: Path) -> tuple[Any, str]:
    """Clean with our cleaner; returns the report, or the error."""
    is_marked = (log_dir / ".kafka_cleanshutdown").exists()
    try:
        report = cleaner.clean(
            log_dir, str(PARTITION), SETTINGS, now_ms=NOW_MS, recover=not is_marked, allow_truncate=True
        )
    except cleaner.CleanerError as error:
        return None, f"{type(error).__name__}: {error}"
    return report, ""


def compare(before: Path, theirs: Path, ours: Path, got: dict[str, Any]) -> Outcome:
    """Hold what the two have left against each other."""
    report, error = clean_ours(ours)
    kafka_failed = got.get("failed") or got.get("error") or ""
    if error:
        did = f"cleaned up to {got['end']}" if got.get("cleaned") else "had nothing to clean"
        return Outcome(BOTH_REFUSED if kafka_failed else REFUSED, f"ours: {error}; Kafka: {kafka_failed or did}")
    if laundered := SoundBatches([before]).laundered(ours, may_append=False):
        return Outcome(DIFFERENT, f"sound now, and was not before: {laundered[:3]}")
    if not has_high_watermark(before) and report.end_offset in (0, got.get("first_dirty", report.end_offset)):
        return Outcome(DIFFERENT, NO_HIGH_WATERMARK)
    if kafka_failed:
        who = "loader" if "failed" in got else "cleaner"
        return Outcome(WENT_ON, f"Kafka's {who}: {kafka_failed}; ours: {report}")
    found = []
    end = got["end"] if got["cleaned"] else got["first_dirty"]
    if report.end_offset != end:
        found.append(f"clean up to {end} expected ({got}), {report.end_offset} found")
    want, have = comparable(theirs), comparable(ours)
    source = [batch for name, data in contents(before).items() if name.endswith(".log") for batch in batches_of(data)]
    try:
        found += differences(
            want,
            have,
            compressed=True,
            source_batches=source,
            index_interval_bytes=int(SETTINGS["index.interval.bytes"]),
        )
    except (ValueError, IndexError, struct.error, BadStream) as error:
        found.append(f"cannot be compared: {error!r}")
    if found and not (before / ".kafka_cleanshutdown").exists() and has_backward_abort(before):
        return Outcome(DIFFERENT, REBUILT_ABORTS)
    return Outcome(DIFFERENT, "\n".join(found)) if found else Outcome(SAME)


def has_backward_abort(log_dir: Path) -> bool:
    """Tell whether a transaction index has an entry whose first offset is not in the log or not below its last one."""
    return any(
        not 0 <= first < last
        for path in log_dir.glob("*/*.txnindex")
        for data in [path.read_bytes()]
        for _, _, first, last, _ in struct.iter_unpack(">hqqqq", data[: len(data) // 34 * 34])
    )


def has_high_watermark(log_dir: Path) -> bool:
    """Tell whether the checkpoint of high watermarks has a line of the partition."""
    path = log_dir / "replication-offset-checkpoint"
    return path.exists() and any(
        line.split()[:-1] == [b"t", b"0"] for line in path.read_bytes().splitlines()[2:] if line.strip()
    )


def why(outcome: Outcome) -> str:
    """Return why a difference is meant; empty if it is not."""
    reasons = []
    for line in outcome.detail.split("\n"):
        known = [known.why for known in KNOWN if known.kind == outcome.kind and re.search(known.said, line)]
        if not known:
            return ""
        reasons.append(known[0])
    return "; and ".join(dict.fromkeys(reasons))


def comparable(log_dir: Path) -> dict[str, bytes]:
    """Return the files to compare."""
    found = contents(log_dir)
    found.pop(".kafka_cleanshutdown", None)  # ours is written once all partitions are recovered
    for name, data in found.items():
        if name.endswith("leader-epoch-checkpoint"):
            # Kafka writes the file anew with the same entries, which changes a missing line end only.
            found[name] = data.rstrip()
        elif name.endswith(".txnindex"):
            # Of an entry's version only the first byte is checked: Kafka 4.3 copies the other one; ours is 0.
            found[name] = b"".join(data[at : at + 1] + b"\0" + data[at + 2 : at + 34] for at in range(0, len(data), 34))
        elif name.endswith(".snapshot"):
            found[name] = _without_times(data)
    return found


def _without_times(snapshot: bytes) -> bytes:
    """
    Return a producer snapshot without its entries' times, and without the checksum over them.

    Of a marker Kafka takes the record's time, we its header's: one thing, unless a mutation has changed one of them.
    """
    entries = [
        snapshot[at : at + _PRODUCER_BYTES] for at in range(_SNAPSHOT_HEAD_BYTES, len(snapshot), _PRODUCER_BYTES)
    ]
    return snapshot[:2] + b"".join(entry[:_TIME_AT] + entry[_TIME_AT + 8 :] for entry in entries)


def batches_of(log: bytes) -> list[bytes]:
    """Return the batches up to the first that is none."""
    try:
        return [batch.raw for batch in read_batches(log)]
    except (ValueError, IndexError, struct.error):
        return []


def run(kafka: Rig, seeds: Sequence[int], keep: Path | None = None) -> Iterator[tuple[int, str, Outcome]]:
    """Clean mutants by Kafka and by us, many in one process of Java; yields seed, what was changed, and the outcome."""
    for first in range(0, len(seeds), CHUNK):
        chunk = seeds[first : first + CHUNK]
        with scratch_directory() as work:
            settings = work / "settings"
            settings.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
            lines, said = [], []
            for seed in chunk:
                before, theirs = work / str(seed) / "in", work / str(seed) / "kafka"
                said.append(write(mutant_by_lot(seed), before))
                shutil.copytree(before, theirs, copy_function=shutil.copy2)
                lines.append(f"{theirs} {PARTITION} {NOW_MS} {settings}\n")
            answers = kafka.java(CLEANING_ROUND, "-", stdin="".join(lines)).splitlines()
            for seed, what, answer in zip(chunk, said, answers, strict=True):
                before, theirs, ours = places = [work / str(seed) / who for who in ("in", "kafka", "ours")]
                shutil.copytree(before, ours, copy_function=shutil.copy2)
                outcome = compare(before, theirs, ours, json.loads(answer))
                if keep is not None and outcome.kind not in (SAME, BOTH_REFUSED) and not why(outcome):
                    for place in places:
                        shutil.copytree(place, keep / str(seed) / place.name, dirs_exist_ok=True)
                yield seed, what, outcome


def main() -> int:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--keep", type=Path, help="a directory for the log dirs of what differs")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    unknown = 0
    for seed, what, outcome in run(Rig.load("4.3"), range(options.seed, options.seed + options.count), options.keep):
        reason = why(outcome)
        outcomes[f"{outcome.kind}: {reason}" if reason else outcome.kind] += 1
        if outcome.kind not in (SAME, BOTH_REFUSED) and not reason:
            unknown += 1
            print(f"{seed} ({what}): {outcome.kind}: {outcome.detail}".replace("\n", "; "), flush=True)
        if outcomes.total() % 1000 == 0:
            print(f"{outcomes.total()} mutants, {unknown} unexplained", file=sys.stderr, flush=True)
    print(f"{options.count} mutants from seed {options.seed}:")
    for kind, number in outcomes.most_common():
        print(f"{number:7}  {kind}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
