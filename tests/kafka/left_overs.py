"""
States that a stop in the middle of a swap can leave, settled by Kafka's loader and by ours.

`python -m tests.kafka.left_overs --count 5000 --seed 1` draws that many random states.

A state is a log with files of one or two new segments: each of the four files is absent, `.cleaned`, `.swap` or in its
final place; the old segments are present, renamed or gone; producer snapshots and the clean-shutdown marker are present
or not; a transaction is open, aborted, decided behind the high watermark, or there is none. Kafka's loader and cleaner
run on it, then ours on a copy; every file must be the same, including the checkpoints.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.storage.segment.names import SEGMENT_SUFFIXES
from tests.crash.loader_model import load
from tests.golden.archive import pack
from tests.golden.comparison import contents, differences
from tests.kafka.rig import CLEANING_ROUND, Rig
from tests.reference.log_state import Settings
from tests.reference.round import clean_round
from tests.scratch import scratch_directory
from tests.support.batch_builder import Producer
from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.support.segment_builder import SegmentBuilder, offset_name

PARTITION = TopicPartition("t", 0)
NOW_MS = START_MS + 1000
SETTINGS = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "100",
    "segment.index.bytes": "400",
    "min.cleanable.dirty.ratio": "0.0",
    "internal.segment.bytes": "1000",
}
SEGMENTS, STEPS = 6, 6
CHUNK = 500

TRANSACTIONS = ("none", "open-early", "open-late", "aborted", "decided-late", "empty-snapshots")
PLACES = ("absent", ".cleaned", ".swap", "")
GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "first": ((0, 1),),
    "middle": ((2, 3),),
    "last-closed": ((4,),),
    "with-active": ((4, 5),),
    "all-closed": ((0, 1, 2, 3, 4),),
    "two": ((0, 1), (2, 3)),
}
OLD = ("there", "first-renamed", "all-renamed", "first-gone", "all-gone", "logs-gone")
SNAPSHOTS = ("all", "none", "last", "all-but-last", "first-damaged", "last-damaged")
WATERMARKS = ("end", "middle", "none-above-start")


class State(NamedTuple):
    """One state; `places` has one of `PLACES` for each file of each new segment."""

    transactions: str
    group: str
    places: tuple[str, ...]
    old: str
    snapshots: str
    is_marked: bool
    watermark: str
    lost: str
    survivors: str
    start: str


STARTS = ("none", "in-first", "in-second")
LOST = ("nothing", "first-index", "middle-index", "first-timeindex", "active-index", "middle-txnindex")
SURVIVORS = ("all", "no-last", "none")


def state_by_lot(lot: random.Random) -> State:
    """Draw a state; `.swap` is drawn most often, as without it little happens."""
    group = lot.choice(list(GROUPS))
    places = tuple(lot.choices(PLACES, (2, 1, 5, 1), k=4 * len(GROUPS[group])))
    # A new log gets its final name when all old ones have lost theirs.
    old = lot.choice(("all-renamed", "all-gone") if "" in places[::4] else OLD)
    lost = lot.choices(LOST, (6, 1, 1, 1, 1, 1))[0]
    survivors = lot.choices(SURVIVORS, (4, 1, 1))[0]
    snapshots = lot.choices(SNAPSHOTS, (5, 1, 1, 1, 1, 1))[0]
    return State(
        lot.choice(TRANSACTIONS),
        group,
        places,
        old,
        snapshots,
        lot.random() < 0.6,
        lot.choice(WATERMARKS),
        lost,
        survivors,
        lot.choices(STARTS, (4, 1, 1))[0],
    )


def states_without_an_index() -> Iterator[State]:
    """List states in which a new segment, or one of two, has lost its offset index, with the marker."""
    for transactions, group, old in product(TRANSACTIONS, GROUPS, ("there", "all-renamed")):
        places = (".swap", "absent", ".swap", ".swap", *[".swap"] * 4)[: 4 * len(GROUPS[group])]
        yield State(transactions, group, places, old, "all", True, "end", "nothing", "all", "none")


def build(transactions: str) -> LogBuilder:
    """Write the log: idempotent and transactional producers, several batches a segment."""
    log = LogBuilder(
        PARTITION,
        index_interval_bytes=int(SETTINGS["index.interval.bytes"]),
        segment_index_bytes=int(SETTINGS["segment.index.bytes"]),
    )
    sequences: Counter[int] = Counter()

    def append(producer_id: int, *, is_transactional: bool = False) -> None:
        producer = Producer(producer_id, 0, sequences[producer_id], is_transactional)
        sequences[producer_id] += 1
        log.append((f"k{log.next_offset % 7}", f"v{log.next_offset}"), producer=producer)

    for number in range(SEGMENTS):
        if number:
            log.roll()
        for step in range(STEPS):
            append(5)
            if transactions == "none" or step != 1:
                continue
            append(9, is_transactional=True)
            append(10, is_transactional=True)
            log.end_transaction(10, 0, commit=number % 2 == 0)
            is_decided = {"open-early": number > 1, "open-late": number < 3, "decided-late": number in (0, 5)}
            if transactions == "aborted" or is_decided.get(transactions, False):
                log.end_transaction(9, 0, commit=False)
    return log


def new_segment(log: LogBuilder, bases: Sequence[int], survivors: str) -> dict[str, bytes]:
    """Return the files that cleaning a group would leave, near enough: some batches are gone."""
    files = log.files()
    old = [files[offset_name(base) + ".log"] for base in bases]
    batches = [batch for each in old for batch in split_batches(each)]
    kept = {"all": batches[:1] + batches[2::2] + batches[-1:], "no-last": batches[:-9:2], "none": []}[survivors]
    segment = SegmentBuilder(bases[0], log.index_interval_bytes, log.segment_index_bytes)
    for batch in dict.fromkeys(kept):
        segment.append(batch, batch_info(batch))
    for base in bases if survivors == "all" else []:
        segment.txn_index += files.get(offset_name(base) + ".txnindex", b"")
    return segment.files()


def write(state: State, log_dir: Path) -> None:
    """Write a log dir in a state."""
    log = build(state.transactions)
    ends = {"end": log.next_offset, "middle": log.base_offsets[3] + 2, "none-above-start": 0}
    starts = {"in-first": 3, "in-second": log.base_offsets[1] + 3}
    write_log_dir(
        log_dir,
        log,
        high_watermarks={PARTITION: ends[state.watermark]},
        cleaner_offsets={PARTITION: log.base_offsets[1]},
        recovery_points={PARTITION: log.base_offsets[-2]},
        log_start_offsets={PARTITION: starts[state.start]} if state.start != "none" else {},
        clean_shutdown=state.is_marked,
    )
    directory = log_dir / str(PARTITION)
    for path in directory.iterdir():
        if path.name.endswith("partition.metadata"):
            path.unlink()
    _lose_snapshots(state.snapshots, sorted(directory.glob("*.snapshot")))
    if state.transactions == "empty-snapshots":
        for path in directory.glob("*.snapshot"):
            path.write_bytes(bytes.fromhex("0001") + b"\x48\x67\x4b\xc7" + bytes(4))
    groups = [[log.base_offsets[number] for number in group] for group in GROUPS[state.group]]
    _retire(state.old, directory, [base for bases in groups for base in bases])
    for row, bases in enumerate(groups):
        new = new_segment(log, bases, state.survivors)
        for suffix, place in zip(SEGMENT_SUFFIXES, state.places[4 * row : 4 * row + 4], strict=True):
            data = new.get(offset_name(bases[0]) + suffix)
            if place != "absent" and data is not None:
                (directory / (offset_name(bases[0]) + suffix + place)).write_bytes(data)
    _lose(state.lost, directory, log.base_offsets)


def _lose_snapshots(kept: str, paths: list[Path]) -> None:
    gone = {"none": paths, "last": paths[:-1], "all-but-last": paths[-1:]}.get(kept, [])
    for path in gone:
        path.unlink()
    for path in {"first-damaged": paths[:1], "last-damaged": paths[-1:]}.get(kept, []):
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def _retire(old: str, directory: Path, bases: Sequence[int]) -> None:
    for base in bases if old.startswith("all") or old == "logs-gone" else bases[:1]:
        for path in [directory / (offset_name(base) + suffix) for suffix in SEGMENT_SUFFIXES]:
            if not path.exists() or (old == "logs-gone" and path.suffix != ".log"):
                continue
            if old.endswith("renamed"):
                path.rename(path.with_name(path.name + ".deleted"))
            elif old.endswith("gone"):
                path.unlink()


def _lose(lost: str, directory: Path, bases: Sequence[int]) -> None:
    which, _, suffix = lost.rpartition("-")
    if which:
        base = {"first": bases[0], "middle": bases[2], "active": bases[-1]}[which]
        (directory / f"{offset_name(base)}.{suffix}").unlink(missing_ok=True)


class Outcome(NamedTuple):
    """What became of a state: `same`, or how it differs."""

    kind: str
    detail: str = ""


SAME, BOTH_REFUSED, REFUSED, DIFFERENT = "the same", "refused by both", "refused by us", "DIFFERENT"


def settle_ours(log_dir: Path, is_marked: bool) -> tuple[Any, str]:
    """Clean with our cleaner; returns the report, or the error."""
    try:
        return cleaner.clean(
            log_dir,
            str(PARTITION),
            SETTINGS,
            now_ms=NOW_MS,
            recover=not is_marked,
            allow_truncate=True,
        ), ""
    except cleaner.CleanerError as error:
        return None, str(error)


def settle_by_twin(state: State, before: Path, got: dict[str, Any]) -> dict[str, bytes] | None:
    """
    Return the segment files that the slow twins of loader and round leave; None for what they do not know: recoveries.
    """
    directory = before / str(PARTITION)
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    if not state.is_marked or state.lost != "nothing" or state.snapshots.endswith("damaged"):
        return None
    try:
        settled = load(files, {}, int(SETTINGS["segment.index.bytes"]))
    except KeyError:
        return None
    times = {path.name.removesuffix(".swap"): path.stat().st_mtime_ns // 10**6 for path in directory.glob("*.log*")}
    times |= {path.name: path.stat().st_mtime_ns // 10**6 for path in directory.glob("*.log") if path.name not in times}
    settings = Settings(
        slots=(128 << 20) // 24,
        segment_bytes=int(SETTINGS["internal.segment.bytes"]),
        segment_index_bytes=int(SETTINGS["segment.index.bytes"]),
        index_interval_bytes=int(SETTINGS["index.interval.bytes"]),
    )
    result = clean_round(
        settled,
        times,
        settings,
        now_ms=NOW_MS,
        checkpoint=got["checkpoint"],
        log_start=got["log_start"],
        high_watermark=got["high_watermark"],
    )
    return {name: data for name, data in result.files.items() if name.endswith(SEGMENT_SUFFIXES)}


def compare(state: State, before: Path, theirs: Path, ours: Path, got: dict[str, Any]) -> Outcome:
    """Hold what the two have left against each other."""
    report, error = settle_ours(ours, state.is_marked)
    if error:
        kafka_failed = got.get("failed") or got.get("error")
        return Outcome(BOTH_REFUSED if kafka_failed else REFUSED, f"{error} (Kafka: {kafka_failed})")
    if "failed" in got:
        return Outcome(DIFFERENT, f"Kafka failed: {got['failed']}; ours: {report}")
    found = []
    end = got["end"] if got["cleaned"] else got["first_dirty"]
    if report.end_offset != end:
        found.append(f"clean up to {end} expected ({got}), {report.end_offset} found")
    want, have = contents(theirs), contents(ours)
    for files in (want, have):
        files.pop(".kafka_cleanshutdown", None)  # written once all partitions are recovered
    found += differences(want, have)
    twins = settle_by_twin(state, before, got)
    if twins is not None:
        segments = {Path(name).name: data for name, data in want.items() if name.endswith(SEGMENT_SUFFIXES)}
        found += [f"the twin: {line}" for line in differences(segments, twins)]
    return Outcome(DIFFERENT, "; ".join(found)) if found else Outcome(SAME)


def run(kafka: Rig, states: Sequence[State], keep: Path | None = None) -> Iterator[tuple[State, Outcome]]:
    """Settle states by Kafka and by us, many in one process of Java; what differs is kept."""
    for first in range(0, len(states), CHUNK):
        chunk = states[first : first + CHUNK]
        with scratch_directory() as work:
            answers = settle_by_kafka(kafka, chunk, work)
            for number, (state, answer) in enumerate(zip(chunk, answers, strict=True)):
                before, theirs, ours = places = [work / str(number) / who for who in ("in", "kafka", "ours")]
                shutil.copytree(before, ours, copy_function=shutil.copy2)
                outcome = compare(state, before, theirs, ours, answer)
                if keep is not None and outcome.kind in (DIFFERENT, REFUSED):
                    for place in places:
                        shutil.copytree(place, keep / f"{first + number}" / place.name, dirs_exist_ok=True)
                yield state, outcome


def settle_by_kafka(kafka: Rig, states: Sequence[State], work: Path) -> list[dict[str, Any]]:
    """Write each state to `in` and let Kafka settle and clean `kafka`, both below its number; returns what it says."""
    settings = work / "settings"
    settings.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    lines = []
    for number, state in enumerate(states):
        before, theirs = work / str(number) / "in", work / str(number) / "kafka"
        write(state, before)
        shutil.copytree(before, theirs, copy_function=shutil.copy2)
        lines.append(f"{theirs} {PARTITION} {NOW_MS} {settings}\n")
    return [json.loads(line) for line in kafka.java(CLEANING_ROUND, "-", stdin="".join(lines)).splitlines()]


def archive(kafka: Rig, states: Sequence[State], path: Path) -> None:
    """Pack states, and what Kafka makes of them, for tests without Java."""
    with scratch_directory() as work:
        answers = settle_by_kafka(kafka, states, work)
        wanted = ("checkpoint", "log_start", "high_watermark", "first_dirty", "cleaned", "end", "last_stable")
        stated = [{key: answer[key] for key in wanted if key in answer} for answer in answers]
        (work / "settings").unlink()
        (work / "states.json").write_text(
            json.dumps([[state, each] for state, each in zip(states, stated, strict=True)])
        )
        pack(work, path)


def main() -> int:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--keep", type=Path, help="a directory for the log dirs of what differs")
    parser.add_argument("--archive", type=Path, help="pack these states and Kafka's results instead")
    options = parser.parse_args()
    lot = random.Random(options.seed)
    states = [state_by_lot(lot) for _ in range(options.count)]
    if options.archive is not None:
        archive(Rig.load("4.3"), [*states_without_an_index(), *states], options.archive)
        return 0
    outcomes: Counter[str] = Counter()
    for number, (state, outcome) in enumerate(run(Rig.load("4.3"), states, options.keep)):
        outcomes[outcome.kind] += 1
        if outcome.kind in (DIFFERENT, REFUSED):
            print(f"{number} {state}: {outcome.kind}: {outcome.detail}")
    for kind, count in outcomes.most_common():
        print(f"{count:7}  {kind}")
    return 1 if outcomes[DIFFERENT] else 0


if __name__ == "__main__":
    sys.exit(main())
