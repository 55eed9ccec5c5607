"""The states of a partition: R-430 to R-434, and what Kafka's own tests of them assert."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cleaner.base.model import TopicPartition
from cleaner.policy.states import (
    IDLE,
    TRANSITIONS,
    Event,
    InvalidTransitionError,
    PartitionState,
    PartitionStates,
    Phase,
)
from tests.support.invariants import check_state, check_states

PRICES = TopicPartition("prices", 0)
ORDERS = TopicPartition("orders", 3)
IN_PROGRESS = PartitionState(Phase.IN_PROGRESS, holder="worker 1")
ABORTED = PartitionState(Phase.ABORTED, holder="worker 1")


def paused(pauses: int) -> PartitionState:
    """Paused so many times."""
    return PartitionState(Phase.PAUSED, pauses)


def reach(state: PartitionState) -> PartitionStates:
    """Bring a partition into a state by legal steps."""
    states = PartitionStates()
    if state.holder is not None:
        states.begin(PRICES, state.holder)
    if state.phase is Phase.ABORTED:
        states.abort_and_pause(PRICES)
    for _ in range(state.pauses):
        states.abort_and_pause(PRICES)
    assert states.of(PRICES) == state
    return states


CALLS: dict[str, tuple[Event, Callable[[PartitionStates], object]]] = {
    "begin": (Event.BEGIN, lambda states: states.begin(PRICES, "worker 1")),
    "abort_and_pause": (Event.ABORT_AND_PAUSE, lambda states: states.abort_and_pause(PRICES)),
    "resume": (Event.RESUME, lambda states: states.resume(PRICES)),
    "done_cleaning": (Event.DONE, lambda states: states.done_cleaning(PRICES, "worker 1")),
}
# Rule R-430 as a table; None: an error.
OUTCOMES: list[tuple[PartitionState, str, PartitionState | None]] = [
    (IDLE, "begin", IN_PROGRESS),
    (IDLE, "abort_and_pause", paused(1)),
    (IDLE, "resume", None),
    (IDLE, "done_cleaning", None),
    (IN_PROGRESS, "begin", None),
    (IN_PROGRESS, "abort_and_pause", ABORTED),
    (IN_PROGRESS, "resume", None),
    (IN_PROGRESS, "done_cleaning", IDLE),
    (ABORTED, "begin", None),
    (ABORTED, "abort_and_pause", None),
    (ABORTED, "resume", None),
    (ABORTED, "done_cleaning", paused(1)),
    (paused(1), "begin", None),
    (paused(1), "abort_and_pause", paused(2)),
    (paused(1), "resume", IDLE),
    (paused(1), "done_cleaning", None),
    (paused(3), "begin", None),
    (paused(3), "abort_and_pause", paused(4)),
    (paused(3), "resume", paused(2)),
    (paused(3), "done_cleaning", None),
]


@pytest.mark.parametrize(("before", "call", "after"), OUTCOMES, ids=[f"{s}-{c}" for s, c, _ in OUTCOMES])
def test_each_event_in_each_state_has_its_outcome(
    before: PartitionState, call: str, after: PartitionState | None
) -> None:
    """R-430, R-432: testDoneCleaning; an illegal event changes nothing."""
    states = reach(before)
    event, act = CALLS[call]
    assert states.allows(PRICES, event) is (after is not None)
    if after is None:
        with pytest.raises(InvalidTransitionError):
            act(states)
    else:
        act(states)
    check_states(states)
    assert states.of(PRICES) == (before if after is None else after)


def test_table_has_a_row_for_every_phase_and_no_more() -> None:
    """Each phase can be left, and each can be reached."""
    assert {phase for phase, _ in TRANSITIONS} == set(Phase)
    assert {step.phase for step in TRANSITIONS.values()} == set(Phase)
    assert len(TRANSITIONS) == 7


@pytest.mark.parametrize(("state", "writes"), [(IN_PROGRESS, True), (ABORTED, False)])
def test_checkpoint_is_written_unless_the_round_was_aborted(state: PartitionState, writes: bool) -> None:
    """R-432."""
    assert reach(state).done_cleaning(PRICES, "worker 1") is writes


def test_worker_must_stop_only_when_aborted() -> None:
    """R-431."""
    asked = {state.phase: reach(state).is_aborted(PRICES) for state in (IDLE, IN_PROGRESS, ABORTED, paused(1))}
    assert asked == {Phase.IDLE: False, Phase.IN_PROGRESS: False, Phase.ABORTED: True, Phase.PAUSED: False}


def test_truncation_during_a_retention_pass_nests() -> None:
    """R-433, R-434: testConcurrentLogCleanupAndLogTruncation; the second resume frees the log, not the first."""
    states = PartitionStates()
    assert states.pause_if_idle([PRICES]) == [PRICES]
    states.abort_and_pause(PRICES)
    states.resume(PRICES)
    assert states.of(PRICES) == paused(1)
    states.resume(PRICES)
    assert states.of(PRICES) == IDLE
    assert not states.not_idle


def test_topic_deletion_during_a_retention_pass_leaves_no_state() -> None:
    """R-430: testConcurrentLogCleanupAndTopicDeletion; abort is abort-and-pause, then resume."""
    states = PartitionStates()
    states.pause_if_idle([PRICES])
    states.abort_and_pause(PRICES)
    states.resume(PRICES)
    states.resume(PRICES)
    assert not states.not_idle


def test_only_idle_logs_are_paused_for_retention() -> None:
    """R-433: those in another state are not resumed by the pass either, since it does not get them."""
    states = PartitionStates()
    states.begin(PRICES, "worker 1")
    assert states.pause_if_idle([PRICES, ORDERS]) == [ORDERS]
    assert states.of(PRICES) == IN_PROGRESS


def test_log_is_not_given_back_by_another_worker() -> None:
    """A worker that was taken for dead must not end its successor's round."""
    states = reach(IN_PROGRESS)
    with pytest.raises(InvalidTransitionError, match="not for worker 2 to give back"):
        states.done_cleaning(PRICES, "worker 2")
    assert states.of(PRICES) == IN_PROGRESS


def test_illegal_event_tells_state_and_history_of_its_partition() -> None:
    """What is needed to find the mistake, and nothing of other partitions."""
    states = PartitionStates()
    states.begin(ORDERS, "worker 2")
    states.abort_and_pause(PRICES)
    states.resume(PRICES)
    states.begin(PRICES, "worker 1")
    with pytest.raises(InvalidTransitionError) as raised:
        states.begin(PRICES, "worker 3")
    assert str(raised.value) == (
        "prices-0 cannot begin: it is in progress (worker 1), which only allows to abort and pause or finish; "
        "before: idle -> abort and pause -> paused(1), paused(1) -> resume -> idle, idle -> begin -> in progress "
        "(worker 1)"
    )
    assert (raised.value.event, raised.value.state) == (Event.BEGIN, IN_PROGRESS)
    assert len(raised.value.history) == 3


@pytest.mark.parametrize(
    "state",
    [
        PartitionState(Phase.PAUSED),
        PartitionState(Phase.PAUSED, -1),
        PartitionState(Phase.PAUSED, 1, "worker 1"),
        PartitionState(Phase.IDLE, 1),
        PartitionState(Phase.IN_PROGRESS),
        PartitionState(Phase.ABORTED, 1, "worker 1"),
    ],
    ids=str,
)
def test_impossible_state_does_not_validate(state: PartitionState) -> None:
    """Pauses go with paused, holders with in progress and aborted."""
    with pytest.raises(AssertionError, match="impossible state"):
        check_state(state)


class Partitions(RuleBasedStateMachine):
    """
    Workers, operators and retention at three partitions, in any order.

    The model knows who holds what and which pauses are outstanding, one by one; it has no phases.
    """

    partitions = st.sampled_from([TopicPartition("t", number) for number in range(3)])
    workers = st.sampled_from(["worker 1", "worker 2"])

    def __init__(self) -> None:
        super().__init__()
        self.states = PartitionStates()
        self.holders: dict[TopicPartition, str] = {}
        self.stops: set[TopicPartition] = set()
        self.pauses: dict[TopicPartition, list[str]] = {}

    @rule(partition=partitions, worker=workers)
    def begin(self, partition: TopicPartition, worker: str) -> None:
        """Take a log that no worker has and no pause holds."""
        if partition in self.holders or self.pauses.get(partition):
            with pytest.raises(InvalidTransitionError):
                self.states.begin(partition, worker)
        else:
            self.states.begin(partition, worker)
            self.holders[partition] = worker

    @rule(partition=partitions)
    def pause(self, partition: TopicPartition) -> None:
        """Pause it, once more perhaps."""
        if partition in self.stops:
            with pytest.raises(InvalidTransitionError):
                self.states.abort_and_pause(partition)
            return
        self.states.abort_and_pause(partition)
        if partition in self.holders:
            self.stops.add(partition)
        else:
            self.pauses.setdefault(partition, []).append("pause")

    @rule(partition=partitions)
    def resume(self, partition: TopicPartition) -> None:
        """Take a pause back."""
        if self.pauses.get(partition):
            self.states.resume(partition)
            self.pauses[partition].pop()
        else:
            with pytest.raises(InvalidTransitionError):
                self.states.resume(partition)

    @rule(partition=partitions, worker=workers)
    def finish(self, partition: TopicPartition, worker: str) -> None:
        """Give a log back by its worker."""
        if self.holders.get(partition) != worker:
            with pytest.raises(InvalidTransitionError):
                self.states.done_cleaning(partition, worker)
            return
        was_stopped = partition in self.stops
        assert self.states.done_cleaning(partition, worker) == (not was_stopped)
        del self.holders[partition]
        if was_stopped:
            self.stops.remove(partition)
            self.pauses.setdefault(partition, []).append("stop")

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """A worker dies; its log is given back for it."""
        partition = data.draw(st.sampled_from(sorted(self.holders)))
        self.finish(partition, self.holders[partition])

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        """One worker at most, every pause counted, idle partitions not entered."""
        check_states(self.states)
        expected: dict[TopicPartition, PartitionState] = {}
        for partition, holder in self.holders.items():
            phase = Phase.ABORTED if partition in self.stops else Phase.IN_PROGRESS
            expected[partition] = PartitionState(phase, holder=holder)
        for partition, pauses in self.pauses.items():
            if pauses:
                assert partition not in expected
                expected[partition] = paused(len(pauses))
        assert dict(self.states.not_idle) == expected


TestPartitions = Partitions.TestCase
