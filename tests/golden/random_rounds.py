"""The rounds of the archived random logs: what each was given and what Kafka reported."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cleaner.base.model import TopicPartition
from tests.support.log_builder import write_log_dir

PARTITION = TopicPartition("t", 0)


@dataclass(frozen=True)
class RandomRound:
    """
    One round on one random log.

    Attributes:
        given: topic and cleaner settings.
        got: what Kafka reported: range, counters, or an error.
    """

    home: Path
    number: int
    given: Mapping[str, Any]
    got: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.home.name} round {self.number}"

    @property
    def settings(self) -> dict[str, str]:
        """Settings under Kafka's names."""
        return {key: str(value) for key, value in self.given["topic"].items()} | {
            "log.cleaner.dedupe.buffer.size": str(self.given["slots"] * 24),
            "log.cleaner.io.buffer.size": str(self.given["buffer"] * 2),
            "log.cleaner.io.buffer.load.factor": str(self.given["load_factor"]),
            "message.max.bytes": str(self.given["message_max"]),
            "producer.id.expiration.ms": str(self.given["producer_id_expiration_ms"]),
        }

    def files(self, stage: str) -> dict[str, bytes]:
        """Return the partition's files `in` or `out` of the round."""
        return {path.name: path.read_bytes() for path in sorted((self.home / f"{stage}{self.number}").iterdir())}

    def mtimes_ms(self, stage: str) -> dict[str, int]:
        """Return the times of the `.log` files `in` or `out` of the round."""
        return dict(self.given[f"{stage}_mtimes_ms"])

    def prepare(self, work: Path) -> Path:
        """Write a log dir as it was before the round; returns it."""
        directory = work / str(PARTITION)
        shutil.copytree(self.home / f"in{self.number}", directory)
        for name, time in self.mtimes_ms("in").items():
            os.utime(directory / name, ns=(time * 1_000_000, time * 1_000_000))
        got = self.got
        return write_log_dir(
            work,
            cleaner_offsets={} if got["checkpoint"] is None else {PARTITION: got["checkpoint"]},
            high_watermarks={PARTITION: got["high_watermark"]},
            recovery_points={PARTITION: got["log_end"]},
            log_start_offsets={PARTITION: got["log_start"]} if got["log_start"] else {},
        )


def random_rounds(directory: Path) -> Iterator[RandomRound]:
    """Return every round below a directory of random logs, by log and number."""
    for home in sorted(directory.iterdir()):
        for path in sorted(home.glob("round*.json")):
            about = json.loads(path.read_text())
            yield RandomRound(home, int(path.stem.removeprefix("round")), about, about["got"])
