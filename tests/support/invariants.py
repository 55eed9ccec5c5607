"""The invariants that hold between any two calls of the states of partitions, and of the manager."""

from __future__ import annotations

from cleaner.daemon.manager import CleanerManager
from cleaner.policy.states import IDLE, PartitionState, PartitionStates, Phase


def check_state(state: PartitionState) -> None:
    """Assert that a state is possible."""
    is_held = state.phase in (Phase.IN_PROGRESS, Phase.ABORTED)
    is_possible = (state.pauses > 0) is (state.phase is Phase.PAUSED) and (state.holder is not None) is is_held
    assert is_possible, f"impossible state: {state!r}"


def check_states(states: PartitionStates) -> None:
    """Assert that every state is possible and follows from the last transition, and that none is idle."""
    last = {transition.partition: transition.after for transition in states._history}
    for partition, state in states.not_idle.items():
        check_state(state)
        assert state != IDLE, f"{partition} is idle and entered"
        assert last.get(partition, state) == state, f"{partition} is not what its last transition led to"


def check_manager(manager: CleanerManager) -> None:
    """Assert that the logs held by the states are those that workers have."""
    with manager._change:
        states = manager._choices.states
        check_states(states)
        held = {tp: state.holder for tp, state in states.not_idle.items() if state.holder is not None}
        assert held == {activity.partition: worker for worker, activity in manager._activities.items()}
