"""
Warm rounds of ours and of Kafka's cleaner on copies of the same log, taking turns; medians, ratios and verdicts.

For each input one JVM: its first two rounds warm it up, all later ones count, each followed by one of ours. So Kafka's
rounds grow warmer than the third, never colder.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cleaners import Round, RoundFailed, WarmKafka, clean_ours, copy, copy_plainly
from benchmarks.inputs import Input, cached, size_bytes
from benchmarks.tables import HELD_TO, Bounds, table
from tests.kafka.rig import Rig

WARM_UP_ROUNDS = 2
KAFKA, OURS, ONE_THREAD, COPY = "Kafka", "ours", "one thread", "cp"


@dataclass
class Measured:
    """Seconds of each run on one input, by what ran."""

    log: Input
    size_bytes: int
    rounds: dict[str, list[Round]] = field(default_factory=dict)
    copies: list[float] = field(default_factory=list)

    def add(self, what: str, found: Round) -> None:
        """Note a run; one that did other work than those before is no measurement."""
        runs = self.rounds.setdefault(what, [])
        for other in [run for each in self.rounds.values() for run in each][:1]:
            if (other.messages_read, other.messages_written) != (found.messages_read, found.messages_written):
                raise RoundFailed(f"{self.log.name}: {what} did {found}, others {other}")
        runs.append(found)

    def seconds(self, what: str) -> list[float]:
        """Return the whole seconds of all runs."""
        return self.copies if what == COPY else [run.whole for run in self.rounds.get(what, [])]

    def median(self, what: str) -> float:
        """Return the median of all runs."""
        return statistics.median(self.seconds(what))

    def ratio(self, slow: str, fast: str) -> float:
        """Return how many times as long one takes as another, by their medians."""
        return self.median(slow) / self.median(fast)


def warm_up(log: Input, kafka: WarmKafka, source: Path, scratch: Path) -> None:
    """Let the JVM compile what this log needs, and ours load its kernels."""
    for _ in range(WARM_UP_ROUNDS):
        kafka.clean(copy(source, scratch / "kafka"), log.topic)
    clean_ours(copy(source, scratch / "ours"), topic=log.topic)


def take_turns(measured: Measured, kafka: WarmKafka, source: Path, scratch: Path, runs: int = 1) -> None:
    """One round of Kafka's and one of ours, `runs` times."""
    for _ in range(runs):
        topic = measured.log.topic
        measured.add(KAFKA, kafka.clean(copy(source, scratch / "kafka"), topic))
        measured.add(OURS, clean_ours(copy(source, scratch / "ours"), topic=topic))


def measure(log: Input, kafka: WarmKafka, source: Path, scratch: Path, runs: int) -> Measured:
    """Take turns `runs` times."""
    measured = Measured(log, size_bytes(source))
    warm_up(log, kafka, source, scratch)
    for _ in range(runs):
        take_turns(measured, kafka, source, scratch)
        if log.one_thread:
            measured.add(ONE_THREAD, clean_ours(copy(source, scratch / "ours"), threads=1, topic=log.topic))
        if log.copy:
            measured.copies.append(copy_plainly(source, scratch / "cp"))
    return measured


def measure_all(
    rig: Rig, inputs: list[Input], scratch: Path, runs: int, report: Callable[[str], None]
) -> list[Measured]:
    """Measure input after input, each beside a JVM of its own, and tell of each."""
    found = []
    for log in inputs:
        source = cached(rig, log)
        with WarmKafka(rig) as kafka:
            found.append(measure(log, kafka, source, scratch, runs))
        report(details(found[-1]))
    return found


def details(measured: Measured) -> str:
    """Describe one input's runs in a few lines: medians, the spread, and what the two passes take of them."""
    records = measured.rounds[OURS][0].messages_read
    lines = [f"{measured.log.title}: {measured.size_bytes / 1e6:.0f} MB, {records / 1e6:.2f} million records judged"]
    for what in (KAFKA, OURS, ONE_THREAD, COPY):
        seconds = measured.seconds(what)
        if not seconds:
            continue
        line = f"  {what:12}{statistics.median(seconds):7.2f} s  ({min(seconds):.2f} to {max(seconds):.2f})"
        if what != COPY:
            map_seconds = statistics.median(run.map for run in measured.rounds[what])
            copy_seconds = statistics.median(run.copy for run in measured.rounds[what])
            line += f"  map {map_seconds:.2f}, copy {copy_seconds:.2f}"
        lines.append(line)
    return "\n".join(lines)


def _table(title: str, slow: str, fast: str, rows: list[tuple[Measured, Bounds]], unit: str) -> str:
    cells = [
        [
            each.log.title,
            f"{each.size_bytes / 1e6:.0f}",
            f"{each.median(slow):.2f}",
            f"{each.median(fast):.2f}",
            *bounds.cells(each.ratio(slow, fast), unit),
        ]
        for each, bounds in rows
    ]
    return table(title, ["input", "MB", f"{slow} s", f"{fast} s", "ratio", *HELD_TO], cells)


def tables(found: list[Measured]) -> str:
    """Lay out ratios to Kafka's warm cleaner, with all threads and with one, and to plain copying."""
    warm = [(each, each.log.warm) for each in found]
    one_thread = [(each, each.log.one_thread) for each in found if each.log.one_thread]
    copies = [(each, each.log.copy) for each in found if each.log.copy]
    parts = [_table("Kafka's warm cleaner and ours", KAFKA, OURS, warm, " x")]
    if one_thread:
        parts.append(_table("Ours on one thread (cleaner.pipeline.threads=1)", KAFKA, ONE_THREAD, one_thread, " x"))
    if copies:
        parts.append(_table("Ours and cp -r; sync; rm -r: times as long", OURS, COPY, copies, " x"))
    return "\n".join(parts)
