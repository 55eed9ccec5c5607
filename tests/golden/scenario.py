"""A scenario: a log directory before a round, what Kafka made of it, and the settings it was given."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden.archive import DATA, first_file

# Steps of these kinds end with a cleaned log.
CLEANED = ("byte-identical", "logically-identical")


@dataclass(frozen=True)
class Step:
    """One round of one scenario, as one release of Kafka ran it; `settings` name the release."""

    scenario: str
    number: int
    kind: str
    kafka: str
    partition: str
    now_ms: int
    retention: bool
    settings: Mapping[str, str]
    input: str
    output: str
    expected: Mapping[str, Any]
    mtimes_ms: Mapping[str, Mapping[str, int]]

    def __str__(self) -> str:
        return f"{self.scenario}-{self.number}" + ("" if self.kafka == "4.3" else f"-{self.kafka}")

    def prepare(self, unpacked: Path, work: Path) -> Path:
        """Copy the round's input to `work` and give its files their times; returns `work`."""
        shutil.copytree(unpacked / self.input, work)
        for name, time in self.mtimes_ms[self.input].items():
            # Damaged and interrupted directories list files of the log dir by themselves, too.
            found = [path for path in (work / self.partition / name, work / name) if path.exists()]
            for path in found[:1]:
                os.utime(path, ns=(time * 1_000_000, time * 1_000_000))
        return work


@functools.cache
def steps() -> tuple[Step, ...]:
    """Return every round of every scenario, by name."""
    return tuple(step for archive in sorted(DATA.glob("*.tar.xz")) for step in _steps(json.loads(first_file(archive))))


def _steps(about: Mapping[str, Any]) -> Iterator[Step]:
    given = {**about["settings"]["broker"], **about["settings"]["topic"]}
    rounds = about["rounds"]
    inputs = list(dict.fromkeys(this["input"] for this in rounds))
    for this in rounds:
        # Settings that change stay changed for the rounds after.
        given = {**given, **(this.get("settings") or {})}
        release = this.get("kafka_version", about["kafka_version"])
        kafka = release.rpartition(".")[0]
        yield Step(
            scenario=about["name"],
            number=inputs.index(this["input"]) + 1,
            kind=this.get("kind", about["kind"]),
            kafka=kafka,
            partition=about["partition"],
            now_ms=this["now_ms"],
            retention=bool(this.get("retention", about.get("retention"))),
            settings={key: str(value) for key, value in given.items()} | {"cleaner.kafka.version": kafka},
            input=this["input"],
            output=this.get("output", this["input"]),
            expected=this,
            mtimes_ms={stage: values.get("mtimes_ms", {}) for stage, values in about["stages"].items()},
        )
