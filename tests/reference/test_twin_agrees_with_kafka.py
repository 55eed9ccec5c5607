"""The twin is right: it makes of Kafka's inputs what Kafka's own cleaner made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.golden.comparison import differences
from tests.golden.random_rounds import RandomRound, random_rounds
from tests.golden.scenario import Step, steps
from tests.reference.batches import read_batches
from tests.reference.log_state import Settings
from tests.reference.round import Result, clean_round

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
COUNTERS = ("map_messages_read", "messages_read", "bytes_read", "messages_written", "bytes_written", "invalid_messages")
CLEANED = [step for step in steps() if step.kind.endswith("identical") and not step.retention]


def twin_settings(settings: Mapping[str, str]) -> Settings:
    """Pick what a round needs out of settings under Kafka's names, with Kafka's defaults."""

    def number(key: str, default: int) -> int:
        return int(settings.get(key, default))

    threads = number("log.cleaner.threads", 1)
    return Settings(
        slots=min(number("log.cleaner.dedupe.buffer.size", 128 << 20) // threads, 2**31 - 1) // 24,
        load_factor=float(settings.get("log.cleaner.io.buffer.load.factor", 0.9)),
        segment_bytes=number("internal.segment.bytes", number("segment.bytes", 1 << 30)),
        segment_index_bytes=number("segment.index.bytes", 10 << 20),
        index_interval_bytes=number("index.interval.bytes", 4096),
        delete_retention_ms=number("delete.retention.ms", 86_400_000),
        min_compaction_lag_ms=number("min.compaction.lag.ms", 0),
        producer_id_expiration_ms=number("producer.id.expiration.ms", 86_400_000),
    )


def segment_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files that a round writes."""
    return {name: data for name, data in files.items() if name.endswith(SEGMENT_FILES)}


def unlike(
    result: Result, expected: Mapping[str, bytes], source: Mapping[str, bytes], got: Mapping[str, int], interval: int
) -> list[str]:
    """List what differs between the twin's result and Kafka's: files, end offset, counters."""
    batches = {b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)}
    wanted = segment_files(expected)
    found = differences(
        wanted,
        segment_files(result.files),
        compressed=True,
        source_batches=batches,
        index_interval_bytes=interval,
    )
    if not result.cleaned:
        return found
    if result.end_offset != got["end"]:
        found.append(f"end offset {result.end_offset}, Kafka {got['end']}")
    plain = all(b.codec == "none" for name, data in wanted.items() if name.endswith(".log") for b in read_batches(data))
    for counter in COUNTERS:
        if getattr(result.stats, counter) != got[counter] and (plain or counter != "bytes_written"):
            found.append(f"{counter} {getattr(result.stats, counter)}, Kafka {got[counter]}")
    return found


def run_random(this: RandomRound) -> list[str]:
    """Run one round of a random log through the twin and list what differs."""
    settings = twin_settings(this.settings)
    result = clean_round(
        this.files("in"),
        this.mtimes_ms("in"),
        settings,
        now_ms=this.got["now"],
        checkpoint=this.got["checkpoint"],
        log_start=this.got["log_start"],
        high_watermark=this.got["high_watermark"],
    )
    found = unlike(result, this.files("out"), this.files("in"), this.got, settings.index_interval_bytes)
    if (result.first_dirty, result.first_uncleanable) != (this.got["first_dirty"], this.got["upper"]):
        found.append(f"range {result.first_dirty}..{result.first_uncleanable}")
    if result.cleaned != this.got["cleaned"] or bool(result.failed) != ("error" in this.got):
        found.append(f"cleaned {result.cleaned} {result.failed}, Kafka {this.got['cleaned']} {this.got.get('error')}")
    times = {name: time for name, time in result.mtimes_ms.items() if name.endswith(".log")}
    if times != this.mtimes_ms("out"):
        found.append(f"times {times}, Kafka {this.mtimes_ms('out')}")
    return found


def test_twin_on_random_logs_leaves_kafkas_files_times_and_counters(random_logs: Path) -> None:
    """Sixty random logs, every round: the twin and Kafka's cleaner agree, also where Kafka gives up half-way."""
    rounds = list(random_rounds(random_logs))
    found = [f"{this}: {line}" for this in rounds for line in run_random(this)]

    assert len(rounds) > 150
    assert found == []


@pytest.mark.parametrize("step", CLEANED, ids=str)
def test_twin_on_scenario_leaves_kafkas_segment_files(step: Step, unpacked: Callable[[str], Path]) -> None:
    """Each golden round without retention: the twin leaves the segment files that Kafka's cleaner left."""
    home = unpacked(step.scenario)
    source = {path.name: path.read_bytes() for path in (home / step.input / step.partition).iterdir()}
    settings = twin_settings(step.settings)
    checkpoint = (home / step.input / "cleaner-offset-checkpoint").read_text().split()
    result = clean_round(
        source,
        step.mtimes_ms[step.input],
        settings,
        now_ms=step.now_ms,
        checkpoint=int(checkpoint[-1]) if len(checkpoint) > 2 else None,
        log_start=step.expected["log_start"],
        high_watermark=step.expected["high_watermark"],
        kafka=step.kafka,
    )
    expected = {path.name: path.read_bytes() for path in (home / step.output / step.partition).iterdir()}
    got = {**step.expected["stats"], "end": step.expected["end_offset"]}

    assert unlike(result, expected, source, got, settings.index_interval_bytes) == []
    assert result.cleaned
    assert result.mtimes_ms == step.mtimes_ms[step.output]
