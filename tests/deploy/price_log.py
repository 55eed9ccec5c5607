"""A small log dir that Kafka wrote, and what Kafka's own cleaner made of it: what a deployed cleaner is tried on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.golden.archive import DATA, unpack
from tests.golden.scenario import steps

PARTITION = "latest-product-price-0"
CHECKPOINT = "cleaner-offset-checkpoint"
# Version, number of lines, and the partition's first dirty offset.
CLEAN_CHECKPOINT = "0\n1\nlatest-product-price 0 6\n"


def lay_out(log_dir: Path) -> None:
    """Make the log dir as the broker left it, with its topic's settings beside it."""
    step = next(step for step in steps() if step.scenario == "latest-product-price")
    unpacked = unpack(DATA / "latest-product-price.tar.xz", log_dir.with_name(log_dir.name + ".unpacked"))
    step.prepare(unpacked, log_dir)
    lines = [f"{PARTITION[:-2]}.{key}={step.settings[key]}\n" for key in ("cleanup.policy", "internal.segment.bytes")]
    (log_dir / "cleaner-topics.properties").write_text("".join(lines))
    shutil.rmtree(unpacked)


def cleaned_segments(scratch: Path) -> Mapping[str, bytes]:
    """Return the segments that Kafka's cleaner left, by file name."""
    unpacked = unpack(DATA / "latest-product-price.tar.xz", scratch)
    return {path.name: path.read_bytes() for path in (unpacked / "after-1" / PARTITION).glob("*.log")}
