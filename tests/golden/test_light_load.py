"""Every golden and random log: a load by headers alone, as `plan` does it, finds what the full load finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cleaner.app import load_partition
from cleaner.app.options import CallContext
from cleaner.app.session import open_session
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, CorruptBatchError, NotCleanlyShutDownError
from cleaner.policy.cleanable import cleanable
from cleaner.settings.sources import Sources
from tests.golden.random_rounds import PARTITION, random_rounds
from tests.golden.scenario import Step, steps
from tests.scratch import scratch_directory

# What only a checksum tells. Such a log is listed by `plan`, and refused by `clean`.
UNSEEN = "the CRC"


def outcome(work: Path, partition: str, settings: Mapping[str, str], now_ms: int, *, read_only: bool) -> object:
    """Return what a plan is made of, or the error."""
    tp = TopicPartition.parse(partition)
    sources = Sources.of_call(tp.topic, settings, None, None)
    try:
        with open_session(work, sources, CallContext.of(now_ms=now_ms), mode=None) as session:
            directory = session.log_dir.listing().current[tp]
            topic = session.topic(tp, directory).config
            log = load_partition.load(
                session, tp, directory, topic, now_ms=now_ms, clean_shutdown=True, read_only=read_only
            )
            found = cleanable(log, session.log_dir.cleaner_offsets.get(tp), topic, now_ms)
    except CleanerError as error:
        return error
    offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark, log.last_stable_offset)
    return offsets, log.active_producers, found, [(s.base_offset, s.size) for s in log.segments]


def assert_equal(light: object, full: object) -> None:
    """The same facts or the same error, except damage that only a checksum shows."""
    if isinstance(full, CorruptBatchError) and full.reason.startswith(UNSEEN):
        return
    if isinstance(full, CleanerError):
        assert repr(light) == repr(full)
    else:
        assert light == full


@pytest.mark.parametrize("step", steps(), ids=str)
def test_light_load_of_a_golden_log_equals_the_full_load(
    step: Step, unpacked: Callable[[str], Path], tmp_path: Path
) -> None:
    """Log end, last stable offset, producers, cleanable range; damaged directories give the same error."""
    work = step.prepare(unpacked(step.scenario), tmp_path / "logs")
    light = outcome(work, step.partition, step.settings, step.now_ms, read_only=True)
    if isinstance(light, NotCleanlyShutDownError):
        assert step.kind in ("recovery", "refuse")
        return
    assert_equal(light, outcome(work, step.partition, step.settings, step.now_ms, read_only=False))


def test_light_load_of_random_logs_equals_the_full_load(random_logs: Path) -> None:
    """All codecs, magics and transactions; the second time without the newest snapshots, so that the tail is read."""
    compared = 0
    for this in random_rounds(random_logs):
        with scratch_directory() as scratch:
            work = this.prepare(scratch / "logs")
            for _ in range(2):
                light, full = (
                    outcome(work, str(PARTITION), this.settings, this.got["now"], read_only=flag)
                    for flag in (True, False)
                )
                assert_equal(light, full)
                compared += not isinstance(full, CleanerError)
                for path in sorted((work / str(PARTITION)).glob("*.snapshot"))[1:]:
                    path.unlink()
    assert compared > 200
