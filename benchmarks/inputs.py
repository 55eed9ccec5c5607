"""The logs that are cleaned for the clock, and what each is held to; written once by Kafka's own log classes."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.tables import Bounds
from tests.kafka.rig import GENERATE_LOG, HERE, Rig, cache_root

PARTITION = "bench-0"


@dataclass(frozen=True)
class Input:
    """
    A log as `tests/kafka/java/GenerateLog.java` writes it.

    Attributes:
        name: what it is called.
        shape: in the generator.
        options: of the generator, by name.
        topic: settings of the topic in the round; by default all cleanable segments become one group.
        warm: how many times faster than Kafka's warm cleaner, with as many threads as there are by default.
        one_thread: the same with `cleaner.pipeline.threads=1`; None: not measured.
        copy: how many times as long as `cp -r`, `sync` and `rm -r` of the source; None: not measured.
    """

    name: str
    shape: str
    warm: Bounds
    options: dict[str, object] = field(default_factory=dict)
    topic: dict[str, str] = field(default_factory=dict)
    one_thread: Bounds | None = None
    copy: Bounds | None = None

    @property
    def scale(self) -> float:
        """Return by what the shape's records and keys are multiplied."""
        return float(str(self.options.get("scale", 1)))

    @property
    def title(self) -> str:
        """Return the name, with the scale if that is not 1."""
        return self.name if self.scale == 1 else f"{self.name} x {self.scale:g}"

    def scaled(self, factor: float) -> Input:
        """Return the same log with so many times the records and keys."""
        return replace(self, options=self.options | {"scale": f"{self.scale * factor:g}"})


W1 = Input("W1", "W1", Bounds(10, 14), one_thread=Bounds(7.5, 9), copy=Bounds(0.75, 0.55, at_most=True))
W2 = Input("W2", "W2", Bounds(2.8, 3.5), one_thread=Bounds(2.4, 3), copy=Bounds(0.5, 0.4, at_most=True))


def _quarter(name: str, warm: Bounds, shape: str = "W1", **options: object) -> Input:
    return Input(
        name, shape, warm, {"scale": "0.25"} | {key.replace("_", "-"): value for key, value in options.items()}
    )


LZ4 = _quarter("W1, lz4", Bounds(5.5, 7), codec="lz4")
ONE_RECORD_A_BATCH = _quarter("W1, one record a batch", Bounds(6, 8), batch_records=1)
TRANSACTIONS = _quarter("W1, transactions", Bounds(7, 9), "transactions")
PARTLY_CLEAN = _quarter("W1, 80 % already clean, all of it rewritten", Bounds(4, 6), clean=0.8)
# Its clean segment is a group of its own, as where segments are as large as the topic has them.
NOTHING_SUPERSEDED = replace(
    _quarter("W1, 80 % already clean, nothing of it superseded", Bounds(8, 12), clean=0.8, new_keys="true"),
    topic={"segment.bytes": "104857600"},
)
INPUTS = (
    W1,
    W2,
    LZ4,
    _quarter("W1, zstd", Bounds(5.5, 7), codec="zstd"),
    _quarter("W1, snappy", Bounds(5.5, 7), codec="snappy"),
    _quarter("W1, gzip", Bounds(3, 3.5), codec="gzip"),
    ONE_RECORD_A_BATCH,
    Input("short keys, 10-byte values", "short", Bounds(3, 6)),
    PARTLY_CLEAN,
    NOTHING_SUPERSEDED,
    TRANSACTIONS,
    _quarter("W1, idempotent", Bounds(7, 9), "idempotent"),
    _quarter("W1, headers", Bounds(7, 9), "headers"),
    _quarter("W1, LogAppendTime", Bounds(3, 6), "logAppendTime"),
)


def generator_stamp() -> str:
    """Return what tells one generator's logs from another's."""
    sources = [HERE / "java" / name for name in ("GenerateLog.java", "Rig.java")]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


def directory_name(log: Input) -> str:
    """Return the name of a log dir in the cache, without the generator's stamp; equal for equal logs."""
    return "-".join([log.shape, *(f"{key}={value}" for key, value in sorted(log.options.items()))])


def generate(kafka: Rig, log: Input, log_dir: Path) -> None:
    """Write a log dir that is not there yet."""
    options = [word for pair in log.options.items() for word in pair]
    kafka.java(GENERATE_LOG, log_dir, log.shape, *options)


def cached(kafka: Rig, log: Input) -> Path:
    """Return the log dir in the cache; writes it the first time, and drops what an older generator wrote."""
    root = cache_root() / "benchmarks"
    root.mkdir(parents=True, exist_ok=True)
    log_dir = root / f"{directory_name(log)}@{generator_stamp()}"
    if not (log_dir / ".kafka_cleanshutdown").exists():
        for old in root.glob(f"{directory_name(log)}@*"):
            shutil.rmtree(old)
        generate(kafka, log, log_dir)
    return log_dir


def size_bytes(log_dir: Path) -> int:
    """Return the bytes of all segments."""
    return sum(segment.stat().st_size for segment in (log_dir / PARTITION).glob("*.log"))
