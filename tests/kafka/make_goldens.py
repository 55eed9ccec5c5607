"""
Makes the goldens that compare releases: `python -m tests.kafka.make_goldens [NAME ...]`.

Each release of `CLEANERS` cleans every input of `tests/golden/release_scenarios.py`; what comes out is packed as
`tests/golden/data/NAME.tar.xz`. A round is listed once for each release: `after-1` is what the newest left, and
`after-1-4.3.1` is there only if that release left something else. See docs/new-kafka.md.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cleaner.policy.kafka_version import KAFKA_VERSIONS
from tests.golden.archive import DATA, pack
from tests.golden.comparison import contents, differences
from tests.golden.release_scenarios import LIMIT, PARTITION, Round, Scenario, scenarios
from tests.kafka.rig import CLEANERS, CLEANING_ROUND, Rig
from tests.scratch import scratch_directory
from tests.support.log_builder import START_MS

RELEASES = {each.name: each.release for each in KAFKA_VERSIONS}
NEWEST_FIRST = CLEANERS[::-1]
BROKER_SETTINGS = {
    "log.cleaner.threads": 1,
    "log.cleaner.dedupe.buffer.size": 134217728,
    "log.cleaner.io.buffer.size": 524288,
    "log.cleaner.io.buffer.load.factor": 0.9,
    "message.max.bytes": 1048588,
    "producer.id.expiration.ms": 86400000,
}
# The first release with a setting. An older one runs the round without it, unless the newest fails for it.
SINCE = {LIMIT: "4.4"}


def times_ms(log_dir: Path) -> dict[str, int]:
    """
    Return the times of a partition's segments and indexes.

    A file with a time of the wall clock, such as an index that was written at a stop, first gets its segment's time, so
    that the archive is the same each time.
    """
    files = sorted((log_dir / str(PARTITION)).iterdir(), key=lambda file: (file.suffix != ".log", file.name))
    suffixes = (".log", ".index", ".timeindex")
    for file in files:
        if file.name.endswith(suffixes) and file.stat().st_mtime_ns // 1_000_000 > START_MS + 10**9:
            log = file.with_suffix(".log")
            time = START_MS * 1_000_000 if file == log else log.stat().st_mtime_ns
            os.utime(file, ns=(time, time))
    return {file.name: file.stat().st_mtime_ns // 1_000_000 for file in files if file.name.endswith(suffixes)}


def ask(kafka: Rig, log_dir: Path, this: Round, scratch: Path) -> dict[str, Any]:
    """Have a release run a round; a log that it does not load is `failed`."""
    known = {key: text for key, text in this.settings.items() if SINCE.get(key, kafka.version) <= kafka.version}
    settings = scratch / "settings"
    settings.write_text("".join(f"{key}={text}\n" for key, text in known.items()))
    arguments = [log_dir, PARTITION, this.now_ms, settings, *(["retention"] if this.retention else [])]
    done = kafka.run(CLEANING_ROUND, *arguments)
    if done.stdout:
        return dict(json.loads(done.stdout))
    reason = next(line for line in done.stderr.splitlines() if line.startswith("Exception in"))
    return {"failed": reason.partition('"main" ')[2]}


def described(got: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round's results under the names that every scenario has."""
    counters = ("map_messages_read", "messages_read", "bytes_read", "messages_written", "bytes_written")
    found = {name: got[name] for name in ("first_dirty", "log_start", "log_end", "high_watermark", "last_stable")}
    found |= {"first_uncleanable": got["upper"], "end_offset": got.get("end", got["first_dirty"])}
    if got["cleaned"]:
        found["stats"] = {name: got[name] for name in counters} | {"invalid_messages": got["invalid_messages"]}
    return found


def rounds_of(scenario: Scenario, home: Path, scratch: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the inputs of a scenario and have them cleaned; returns its rounds and the times of its stages."""
    rounds: list[dict[str, Any]] = []
    stages: dict[str, Any] = {}
    before: Path | None = None
    for number, this in enumerate(scenario.rounds, 1):
        given = home / ("before" if number == 1 else f"before-{number}")
        this.write(given, before)
        stages[given.name] = {"mtimes_ms": times_ms(given)}
        results: dict[str, dict[str, bytes]] = {}
        for version in NEWEST_FIRST:
            kafka = Rig.load(version)
            work = scratch / f"{number}-{version}"
            shutil.copytree(given, work, copy_function=shutil.copy2)
            got = ask(kafka, work, this, scratch)
            failed = str(got.get("failed") or got.get("error") or "").replace(f"{work}/", "")
            if failed and SINCE.keys() & this.settings.keys() and version != CLEANERS[-1]:
                raise ValueError(f"{scenario.name}, round {number}, Kafka {version}: {failed}")
            entry: dict[str, Any] = {"input": given.name, "now_ms": this.now_ms, "kafka_version": RELEASES[version]}
            entry |= {"settings": dict(this.settings), "retention": this.retention}
            rounds.append(entry)
            if this.refused or "failed" in got:
                entry |= {"kind": "refuse", "kafka": f"fails: {failed}" if failed else "cleans it"}
                continue
            files = {name: data for name, data in contents(work).items() if not name.endswith(".cleaned")}
            same = [stage for stage, result in results.items() if not differences(result, files)]
            entry |= described(got) | {"kind": "stop", "kafka": failed} if failed else described(got)
            entry["output"] = same[0] if same else f"after-{number}" + (f"-{RELEASES[version]}" if results else "")
            if not same:
                results[entry["output"]] = files
                target = home / entry["output"]
                for name, data in files.items():
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (target / name).write_bytes(data)
                    shutil.copystat(work / name, target / name)
                stages[target.name] = {"mtimes_ms": times_ms(target)}
                before = target if version == CLEANERS[-1] else before
            if failed and version == CLEANERS[-1] and SINCE.keys() & this.settings.keys():
                break  # older releases do not know what made it fail
    return rounds, stages


def make(scenario: Scenario, archive: Path) -> list[str]:
    """Write a scenario's archive; returns a line for each round."""
    with scratch_directory() as scratch:
        home = scratch / "home"
        home.mkdir()
        rounds, stages = rounds_of(scenario, home, scratch)
        about = {
            "name": scenario.name,
            "description": scenario.description,
            "kind": "logically-identical" if scenario.compressed else "byte-identical",
            "kafka_version": RELEASES[CLEANERS[-1]],
            "made": "Written by tests/golden/release_scenarios.py, cleaned by each release's own cleaner.",
            "partition": str(PARTITION),
            "settings": {"topic": {"cleanup.policy": "compact"}, "broker": BROKER_SETTINGS},
            "rounds": rounds,
            "stages": stages,
        }
        (home / "scenario.json").write_text(json.dumps(about, indent=1) + "\n")
        names = ["scenario.json", *sorted(path.name for path in home.iterdir() if path.is_dir())]
        pack(home, archive, names)
    return [
        f"{scenario.name} {this['input']} {this['kafka_version']}: {this.get('kind', '')} {this.get('kafka', '')}"
        f" {this.get('output', '')} to {this.get('end_offset')} of {this.get('first_uncleanable')}"
        f" {(this.get('stats') or {}).get('messages_written')}"
        for this in rounds
    ]


def main() -> None:
    """Make all, or those that are named."""
    for scenario in scenarios():
        if scenario.name in sys.argv[1:] or not sys.argv[1:]:
            print("\n".join(make(scenario, DATA / f"{scenario.name}.tar.xz")), flush=True)


if __name__ == "__main__":
    main()
