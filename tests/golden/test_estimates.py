"""`plan --estimate` compared with the results of Kafka's own cleaner in every scenario."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.app.options import CallContext, Sampling
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.settings.sources import Sources
from tests.golden.scenario import Step, steps

# An estimate also reads what a full map keeps from the round, and reports a record there that a later round refuses.
REFUSED_LATER = "limit-map-full"
CLEANED = [step for step in steps() if step.kind.endswith("identical") and not step.retention]
CLEANED = [step for step in CLEANED if step.scenario != REFUSED_LATER]


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


@pytest.mark.parametrize("step", CLEANED, ids=str)
def test_estimate_of_a_golden_round_is_what_kafka_freed(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """Within a fifth, or a twentieth of a log that hardly shrinks; a round that needs others after it frees less."""
    home = unpacked(step.scenario)
    work = step.prepare(home, tmp_path / "logs")
    topic = step.partition.rpartition("-")[0]
    sources = Sources.of_call(topic, step.settings, None, None)
    (entry,) = plan_log_dir(
        work, sources, CallContext.of(now_ms=step.now_ms), partitions=[step.partition], sampling=Sampling()
    )
    assert entry.error == ""
    before, after = log_bytes(home / step.input / step.partition), log_bytes(home / step.output / step.partition)
    freed = entry.estimate.bytes_freed if entry.estimate else 0
    if entry.rounds is None or entry.rounds.count <= 1:
        assert freed == pytest.approx(before - after, rel=0.2, abs=0.05 * before + 200)
    else:
        assert freed >= 0.8 * (before - after)
