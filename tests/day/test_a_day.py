"""A day in the life of the daemon, with a writer: kills, a full disk, damage, reloads, stops."""

from __future__ import annotations

import os
import time

import pytest

from tests.day.stage import Plan, day
from tests.scratch import scratch_directory


def live_through(plan: Plan) -> None:
    """Let a day happen and judge it; a failure tells the seed and what happened."""
    print(f"seed {plan.seed}")
    with scratch_directory() as root, day(plan, root) as found:
        try:
            found.run()
            found.end()
        except Exception as error:
            log = found.cleaner.log_file.read_text()[-6000:] if found.cleaner.log_file.exists() else ""
            raise AssertionError(f"seed {plan.seed}, after {', '.join(found.told)}: {error}\n{log}") from error


def test_short_day_ends_with_every_log_as_its_writer_knows_it() -> None:
    """Whatever was killed, and when: nothing is lost or left over, the damaged log quarantined, the others clean."""
    live_through(Plan(seed=1, partitions=12, hours=1, steps_a_second=300, max_pause_seconds=0.5))


@pytest.mark.slow
def test_long_day_ends_with_every_log_as_its_writer_knows_it() -> None:
    """The same with 200 partitions, for minutes; `make day` chooses a seed, or is given one."""
    seed = int(os.environ.get("DAY_SEED", time.time()))
    live_through(Plan(seed=seed, partitions=200, hours=8, steps_a_second=500, max_pause_seconds=2.0))
