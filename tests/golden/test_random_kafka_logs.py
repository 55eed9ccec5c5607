"""Random logs with Kafka's results: our rounds leave the same files, and stop where Kafka stops."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import cleaner
from cleaner.errors import CleanerError
from tests.golden.comparison import contents, differences
from tests.golden.random_rounds import PARTITION, RandomRound, random_rounds
from tests.reference.batches import read_batches
from tests.scratch import scratch_directory


def sound_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Leave out the `.cleaned` files that Kafka leaves behind where it gives up (R-595)."""
    return {name: data for name, data in files.items() if not name.endswith(".cleaned")}


def run(this: RandomRound, work: Path) -> list[str]:
    """Clean one round's input as Kafka did and list what differs."""
    directory = this.prepare(work) / str(PARTITION)
    source = contents(directory)
    stopped = ""
    end_offset = None
    try:
        end_offset = cleaner.clean(work, str(PARTITION), this.settings, now_ms=this.got["now"]).end_offset
    except CleanerError as error:
        stopped = repr(error)
    if "error" in this.got and not stopped:
        # Better than Kafka, which gives up here: the checkpoint moved on.
        return [] if end_offset is not None and end_offset > this.got["first_dirty"] else ["nothing was done"]
    if stopped and "error" not in this.got:
        return [stopped]
    if stopped and contents(directory) == source:
        return []
    # Kafka swaps group by group: where it stopped, the groups before that one are done.
    found = _unlike(this, source, directory)
    if this.got["cleaned"] and end_offset != this.got["end"]:
        found.append(f"end offset {end_offset}, Kafka {this.got['end']}")
    return [f"{stopped} {line}" for line in found]


def _unlike(this: RandomRound, source: Mapping[str, bytes], directory: Path) -> list[str]:
    found = differences(
        sound_files(this.files("out")),
        contents(directory),
        compressed=True,
        source_batches={b.raw for name, data in source.items() if name.endswith(".log") for b in read_batches(data)},
        index_interval_bytes=int(this.settings["index.interval.bytes"]),
    )
    for name, time in this.mtimes_ms("out").items():
        if (directory / name).exists() and (directory / name).stat().st_mtime_ns // 1_000_000 != time:
            found.append(f"{name}: modification time is not {time}")
    return found


def test_clean_on_random_logs_leaves_kafkas_files_in_every_round(random_logs: Path) -> None:
    """Sixty logs of all codecs and magics, about two hundred rounds, each from its own input: no difference."""
    rounds = list(random_rounds(random_logs))
    found: list[str] = []
    for this in rounds:
        with scratch_directory() as work:
            found += [f"{this}: {line}" for line in run(this, work)]

    assert len(rounds) > 150
    assert found == []
