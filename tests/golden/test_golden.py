"""Every scenario, every round: what we leave is what Kafka left, or nothing changed where it must be refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner.errors import CleanerError, CorruptLogError
from tests.golden.comparison import contents, differences
from tests.golden.scenario import Step, steps
from tests.reference.batches import read_batches

CLEANED = [step for step in steps() if step.kind in ("byte-identical", "logically-identical")]
RECOVERED = [step for step in steps() if step.kind == "recovery"]
REFUSED = [step for step in steps() if step.kind == "refuse"]
STOPPED = [step for step in steps() if step.kind == "stop"]
COUNTERS = ("map_messages_read", "messages_read", "bytes_read", "messages_written", "invalid_messages")


def modification_times_ms(directory: Path, names: list[str]) -> dict[str, int]:
    """Return the times of a directory's files, in milliseconds."""
    return {name: (directory / name).stat().st_mtime_ns // 1_000_000 for name in names if (directory / name).exists()}


def test_scenarios_cover_every_kind() -> None:
    """The archives are there: an empty list would pass every test below."""
    counts = [len(kind) for kind in (CLEANED, RECOVERED, REFUSED, STOPPED)]
    assert all(count >= least for count, least in zip(counts, (190, 19, 50, 25), strict=True)), counts


def test_scenarios_tell_the_releases_apart() -> None:
    """Some inputs have different results by release; otherwise no test shows that the version matters."""
    outputs: dict[tuple[str, str], set[str]] = {}
    for step in steps():
        outputs.setdefault((step.scenario, step.input), set()).add(f"{step.kind} {step.output}")
    assert sum(len(found) > 1 for found in outputs.values()) >= 15


@pytest.mark.parametrize("step", CLEANED, ids=str)
def test_clean_on_golden_input_leaves_kafkas_files(step: Step, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """Files, checkpoint entries, times and counters after a round are Kafka's."""
    home = unpacked(step.scenario)
    work = step.prepare(home, tmp_path / "logs")
    source = contents(work)
    report = cleaner.clean(work, step.partition, step.settings, now_ms=step.now_ms, retention=step.retention)

    batches = {b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)}
    assert (
        differences(
            contents(home / step.output),
            contents(work),
            compressed=step.kind == "logically-identical",
            source_batches=batches,
            index_interval_bytes=int(step.settings.get("index.interval.bytes", 4096)),
        )
        == []
    )
    times = dict(step.mtimes_ms[step.output])
    assert modification_times_ms(work / step.partition, list(times)) == times
    assert report.first_dirty_offset == step.expected["first_dirty"]
    assert report.end_offset == step.expected["end_offset"]
    counted = step.expected.get("stats") or dict.fromkeys(COUNTERS, 0)
    assert {name: getattr(report, name) for name in COUNTERS} == {name: counted[name] for name in COUNTERS}


@pytest.mark.parametrize("step", STOPPED, ids=str)
def test_clean_stops_where_kafkas_cleaner_stops(step: Step, unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """Its round fails, and so does ours: the groups before are swapped, or nothing is, and the checkpoint stays."""
    home = unpacked(step.scenario)
    work = step.prepare(home, tmp_path / "logs")
    before = contents(work)
    with pytest.raises(CleanerError) as caught:
        cleaner.clean(work, step.partition, step.settings, now_ms=step.now_ms)

    assert step.partition in str(caught.value)
    after = contents(work)
    assert after == before or differences(contents(home / step.output), after) == []


@pytest.mark.parametrize("step", RECOVERED, ids=str)
def test_recover_on_interrupted_directory_leaves_what_kafkas_loader_leaves(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """A killed process's directory, recovered, has the files that Kafka's load and clean stop leave."""
    home = unpacked(step.scenario)
    work = step.prepare(home, tmp_path / "logs")
    cleaner.recover(work, settings=step.settings, now_ms=step.now_ms, allow_truncate=True)

    assert differences(contents(home / step.output), contents(work)) == []


@pytest.mark.parametrize("step", REFUSED, ids=str)
def test_clean_on_damaged_directory_names_the_damage_and_changes_nothing(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """A damaged directory is refused with file, position and reason, and not changed, times included."""
    work = step.prepare(unpacked(step.scenario), tmp_path / "logs")
    before = contents(work)
    times = modification_times_ms(work, list(before))
    with pytest.raises(CorruptLogError) as caught:
        cleaner.clean(work, step.partition, step.settings, now_ms=step.now_ms)

    assert caught.value.path.exists()
    assert caught.value.position >= 0
    assert caught.value.reason
    assert contents(work) == before
    assert modification_times_ms(work, list(before)) == times
