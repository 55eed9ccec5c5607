"""A simulated week of the scheduler's choices, held to a table by an independent twin: R-405 to R-433."""

from __future__ import annotations

from typing import cast

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import TopicConfig
from cleaner.policy.cleanable import cleanable
from cleaner.policy.due import earliest_dirty_timestamp_ms
from cleaner.policy.reasons import Reason
from cleaner.policy.retry import Retry, RetryDelays, after_failure
from cleaner.policy.selection import Order, Survey, survey
from cleaner.policy.selection_context import DirCondition, LogDirFacts, LogFacts, SelectionContext
from cleaner.policy.states import PartitionStates
from cleaner.policy.windows import Windows
from tests.property.week import (
    HOUR_MS,
    LOG_DIRS,
    MINUTE_MS,
    WINDOWS,
    WINDOWS_FROM_MS,
    ZONE,
    Choice,
    Week,
    WeekLog,
)
from tests.reference.choices import Name, Twin, World
from tests.support.invariants import check_states

FIRST_DELAY_MS = 20 * MINUTE_MS
LONGEST_DELAY_MS = 6 * HOUR_MS


class Product:
    """What a daemon does with the policies, without the daemon."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.states = PartitionStates()
        self.retries: dict[TopicPartition, Retry] = {}
        self.quarantined: dict[TopicPartition, str] = {}
        self.last_round_ms: dict[TopicPartition, int] = {}
        self.workers: dict[TopicPartition, str] = {}
        self.windows = Windows.parse(WINDOWS, ZONE)
        self.facts: dict[TopicPartition, tuple[int, LogFacts]] = {}
        self.reasons: list[list[Reason]] = []

    def choose(self, world: World) -> Name | None:
        queue = self._survey(world).queue
        return queue[0].partition if queue else None

    def look(self, world: World) -> None:
        self.reasons.append([verdict.reason for verdict in self._survey(world).verdicts])

    def begun(self, name: Name, worker: str) -> None:
        self.states.begin(TopicPartition(*name), worker)

    def finished(self, name: Name, worker: str, outcome: str, now_ms: int) -> None:
        partition = TopicPartition(*name)
        assert self.states.done_cleaning(partition, worker) is (outcome != "aborted")
        self.last_round_ms[partition] = now_ms
        self.facts.pop(partition, None)
        if outcome == "done":
            self.retries.pop(partition, None)
        elif outcome == "no room":
            delays = RetryDelays(FIRST_DELAY_MS, LONGEST_DELAY_MS)
            self.retries[partition] = after_failure(self.retries.get(partition), now_ms, outcome, delays)
        elif outcome == "damaged":
            self.quarantined[partition] = outcome

    def paused(self, name: Name) -> None:
        self.states.abort_and_pause(TopicPartition(*name))

    def resumed(self, name: Name) -> None:
        self.states.resume(TopicPartition(*name))

    def released(self, name: Name) -> None:
        self.quarantined.pop(TopicPartition(*name), None)

    def _survey(self, world: World) -> Survey:
        check_states(self.states)
        logs = [self._facts_of(cast(WeekLog, log), world.now_ms) for log in world.logs]
        has_windows = world.now_ms >= WINDOWS_FROM_MS
        opens_at_ms = self.windows.next_opening_ms(world.now_ms) if has_windows else None
        context = SelectionContext(
            world.now_ms,
            states=self.states.not_idle,
            log_dirs={log_dir: self._dir_facts(log_dir, world) for log_dir in LOG_DIRS},
            quarantined=self.quarantined,
            retries=self.retries,
            requested={TopicPartition(*name): number for number, name in enumerate(world.requests)},
            is_enabled=world.is_enabled,
            is_paused=world.is_paused,
            opens_at_ms=None if self.windows.is_open(world.now_ms) else opens_at_ms,
        )
        return survey(logs, context, self.order)

    def _facts_of(self, log: WeekLog, now_ms: int) -> LogFacts:
        known = self.facts.get(log.partition)
        # A minimum lag makes the range a matter of time.
        if known is not None and known[0] == log.version and log.min_lag_ms == 0:
            return known[1]
        topic = TopicConfig(min_compaction_lag_ms=log.min_lag_ms)
        weight = cleanable(log, log.checkpoint, topic, now_ms)
        facts = LogFacts(
            log.partition,
            log.log_dir,
            weight,
            earliest_dirty_timestamp_ms(log, weight.first_dirty_offset),
            log.min_ratio,
            log.max_lag_ms,
            is_compacted=log.is_compacted,
            last_round_ms=self.last_round_ms.get(log.partition),
        )
        self.facts[log.partition] = (log.version, facts)
        return facts

    def _dir_facts(self, log_dir: str, world: World) -> LogDirFacts:
        not_idle = self.states.not_idle.items()
        held = {partition for partition, state in not_idle if state.holder is not None}
        workers = sum(log.log_dir == log_dir and log.partition in held for log in world.logs)
        not_before_ms = world.locked_until_ms.get(log_dir, 0)
        condition = DirCondition.LOCKED if not_before_ms > 0 else DirCondition.ONLINE
        if log_dir in world.offline:
            condition = DirCondition.OFFLINE
        return LogDirFacts(condition, "", not_before_ms, workers, world.max_workers.get(log_dir))


class RecordingTwin(Twin):
    """The twin, with all it has against each log at each step."""

    def __init__(self, order: Order) -> None:
        super().__init__(order.value, FIRST_DELAY_MS, LONGEST_DELAY_MS)
        self.obstacles_found: list[list[set[str]]] = []

    def look(self, world: World) -> None:
        self.obstacles_found.append([self.obstacles(log, world) for log in world.logs])


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_week_of_choices_equals_the_twins_table(order: Order, seed: int) -> None:
    """Every choice is the twin's, and the reason of each waiting log is one that the twin finds too."""
    product, twin = Product(order), RecordingTwin(order)
    table, expected = Week(seed).run(product), Week(seed).run(twin)
    assert len(expected) > 500
    _assert_same_table(table, expected)
    seen: set[Reason] = set()
    for reasons, obstacles in zip(product.reasons, twin.obstacles_found, strict=True):
        for reason, held_by in zip(reasons, obstacles, strict=True):
            assert reason.value in held_by if held_by else reason.is_due_and_free
        seen.update(reasons)
    # The week has known every reason there is but those of log dirs that nobody has left in order, those of logs that
    # have changed hands since the survey, and those of logs that there is nothing to choose about.
    odd = {Reason.LOG_DIR_NEEDS_RECOVERY, Reason.CHECKPOINT_RESET, Reason.UNFINISHED_SWAP}
    odd.add(Reason.HORIZON_PASSED)  # only with cleaner.quiet.cleaning
    moved = {Reason.RETENTION, Reason.TO_BE_LOOKED_AT}
    not_chosen_from = {Reason.NO_HIGH_WATERMARK, Reason.POLICY_NOT_TRUSTED, Reason.BAD_SETTING, Reason.UNREADABLE}
    assert set(Reason) - seen == odd | moved | not_chosen_from


def _assert_same_table(table: list[Choice], expected: list[Choice]) -> None:
    for line, (found, wanted) in enumerate(zip(table, expected, strict=False)):
        assert found == wanted, f"line {line}"
    assert len(table) == len(expected)
