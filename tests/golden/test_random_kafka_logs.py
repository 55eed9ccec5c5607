"""Random logs with Kafka's results: our rounds leave the same files, and stop where Kafka stops."""

from __future__ import annotations

from pathlib import Path

import cleaner
from cleaner.errors import CleanerError
from tests.golden.comparison import differences
from tests.golden.random_rounds import PARTITION, RandomRound, random_rounds
from tests.reference.batches import read_batches

SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")


def segment_files(directory: Path) -> dict[str, bytes]:
    """Return the files of a partition that a round writes."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name.endswith(SEGMENT_FILES)}


def run(this: RandomRound, work: Path) -> list[str]:
    """Clean one round's input as Kafka did and list what differs."""
    directory = this.prepare(work) / str(PARTITION)
    source = segment_files(directory)
    expected = {name: data for name, data in this.files("out").items() if name.endswith(SEGMENT_FILES)}
    try:
        report = cleaner.clean(work, str(PARTITION), this.settings, now_ms=this.got["now"])
    except CleanerError as error:
        if "error" not in this.got:
            return [f"refused: {error!r}"]
        # Kafka swaps group by group: the groups before the one it stopped in are done, or we did nothing at all.
        left = segment_files(directory)
        return [] if left in (source, expected) else [f"stopped, and left other files than Kafka: {error!r}"]
    if "error" in this.got:
        return [] if report.end_offset == this.got["upper"] else ["went on where Kafka stopped, but not to the end"]
    batches = {b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)}
    found = differences(
        expected,
        segment_files(directory),
        compressed=True,
        source_batches=batches,
        index_interval_bytes=int(this.settings["index.interval.bytes"]),
    )
    if this.got["cleaned"] and report.end_offset != this.got["end"]:
        found.append(f"end offset {report.end_offset}, Kafka {this.got['end']}")
    for name, time in this.mtimes_ms("out").items():
        if (directory / name).exists() and (directory / name).stat().st_mtime_ns // 1_000_000 != time:
            found.append(f"{name}: modification time is not {time}")
    return found


def test_clean_on_random_logs_leaves_kafkas_files_in_every_round(random_logs: Path, tmp_path: Path) -> None:
    """Sixty logs of all codecs and magics, about two hundred rounds, each from its own input: no difference."""
    rounds = list(random_rounds(random_logs))
    found = [f"{this}: {line}" for n, this in enumerate(rounds) for line in run(this, tmp_path / str(n))]

    assert len(rounds) > 150
    assert found == []
