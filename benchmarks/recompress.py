"""
How much smaller a log becomes with `--recompress`, and how much longer a round takes.

    python -m benchmarks.recompress [RECORDS]

Four logs of JSON records of some 190 bytes, a third as many keys as records, are written by this project's writer:
batches of five records without a compression, with lz4, with lz4 by an idempotent producer, and batches of 500 with
lz4. Each is cleaned as Kafka does, and with each codec, from a copy; the round's own time counts, the shortest of two.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from random import Random

import cleaner
from cleaner.log.manager import LogManager
from cleaner.log.record import Record

LOGS = {
    "5 records a batch, uncompressed": (5, "uncompressed", False),
    "5 records a batch, lz4": (5, "lz4", False),
    "5 records a batch, lz4, idempotent": (5, "lz4", True),
    "500 records a batch, lz4": (500, "lz4", False),
}
TARGETS = (None, "lz4", "zstd", "zstd:9", "zstd:19", "none")
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20)}


def write(log_dir: Path, records: int, batch: int, codec: str, *, is_idempotent: bool) -> None:
    """Write a log."""
    rng = Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 10))) for _ in range(2000)]
    settings = SETTINGS | {"compression.type": codec}
    with LogManager(log_dir, settings, cleaner=False, tasks=False, create=True) as manager:
        manager.create_topic("prices", settings=settings)
        log = manager.log("prices", 0)
        producer = log.producer() if is_idempotent else None
        for first in range(0, records, batch):
            rows = [
                Record(
                    b"user-%07d" % rng.randrange(records // 3),
                    f'{{"id":{n},"name":"{rng.choice(words)}","text":"{" ".join(rng.choices(words, k=20))}"}}'.encode(),
                )
                for n in range(first, first + batch)
            ]
            (producer or log).append(rows)
        log.roll()


def main() -> None:
    """Print a table."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    cleaner.warm()
    with tempfile.TemporaryDirectory() as root:
        for name, (batch, codec, is_idempotent) in LOGS.items():
            source, copy = Path(root, "source"), Path(root, "copy")
            shutil.rmtree(source, ignore_errors=True)
            write(source, records, batch, codec, is_idempotent=is_idempotent)
            print(f"{name}: {sum(path.stat().st_size for path in source.rglob('*.log')) / 1e6:.0f} MB", flush=True)
            usual = 0
            for target in TARGETS:
                seconds = 1e9
                for _ in range(2):
                    shutil.rmtree(copy, ignore_errors=True)
                    shutil.copytree(source, copy)
                    report = cleaner.clean(copy, "prices-0", SETTINGS, recompress=target)
                    seconds = min(seconds, report.map_seconds + report.copy_seconds)
                size = report.bytes_written
                usual = usual or size
                print(
                    f"  {target or 'as Kafka':9} {size / 1e6:6.1f} MB  {size / usual:5.0%}  {seconds:6.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
