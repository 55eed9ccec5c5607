"""
The state of every partition: idle, in progress, aborted, or paused n times.

    idle          no worker has it; only these may be picked
    in progress   one worker has it, for a round or for a retention pass (R-433)
    aborted       a pause was requested and the worker has not noticed yet; it checks at every buffer (R-431)
    paused(n)     n pauses are outstanding; the last resume makes it idle

One table has all transitions, including the count of pauses; a transition that is not in it is illegal and raises. A
partition is in `PartitionStates` only while it is not idle, as in Kafka's `inProgress` map.

Source: rules R-430 to R-434; `LogCleanerManager.java`.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from cleaner.base.model import TopicPartition

# Enough to see how a few partitions got into their states, and little memory for a daemon.
HISTORY_LENGTH = 256


class Phase(enum.Enum):
    """A partition's phase; the values are shown to the operator."""

    IDLE = "idle"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class Event(enum.Enum):
    """What can happen to a partition."""

    BEGIN = "begin"
    ABORT_AND_PAUSE = "abort and pause"
    RESUME = "resume"
    DONE = "finish"


class StateChange(NamedTuple):
    """The result of an event: the next phase, and the change in the number of outstanding pauses."""

    phase: Phase
    pauses: int = 0


# `_after` turns "paused" without outstanding pauses into "idle", so two lines are enough for pauses of any depth.
TRANSITIONS: Mapping[tuple[Phase, Event], StateChange] = MappingProxyType(
    {
        (Phase.IDLE, Event.BEGIN): StateChange(Phase.IN_PROGRESS),
        (Phase.IDLE, Event.ABORT_AND_PAUSE): StateChange(Phase.PAUSED, +1),
        (Phase.IN_PROGRESS, Event.ABORT_AND_PAUSE): StateChange(Phase.ABORTED),
        (Phase.IN_PROGRESS, Event.DONE): StateChange(Phase.IDLE),
        (Phase.ABORTED, Event.DONE): StateChange(Phase.PAUSED, +1),
        (Phase.PAUSED, Event.ABORT_AND_PAUSE): StateChange(Phase.PAUSED, +1),
        (Phase.PAUSED, Event.RESUME): StateChange(Phase.PAUSED, -1),
    }
)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """
    One partition's state.

    Attributes:
        phase: see the module's docstring.
        pauses: outstanding pauses; above 0 exactly when paused.
        holder: the worker's name, for the operator; None unless in progress or aborted.
    """

    phase: Phase = Phase.IDLE
    pauses: int = 0
    holder: str | None = None

    def __str__(self) -> str:
        if self.holder is not None:
            return f"{self.phase.value} ({self.holder})"
        return f"{self.phase.value}({self.pauses})" if self.pauses else self.phase.value


IDLE = PartitionState()


class Transition(NamedTuple):
    """An event that happened."""

    partition: TopicPartition
    event: Event
    before: PartitionState
    after: PartitionState

    def __str__(self) -> str:
        return f"{self.before} -> {self.event.value} -> {self.after}"


class InvalidTransitionError(Exception):
    """
    An event that a partition's state does not allow: an internal error, not one in data or settings.

    It is not a `CleanerError`, which would be shown without a traceback. Code that passes on an operator's request
    calls `allows` first.

    Args:
        partition: the partition.
        event: the event.
        state: the partition's state.
        reason: why that is not allowed.
        history: the partition's last transitions, oldest first.
    """

    def __init__(
        self, partition: TopicPartition, event: Event, state: PartitionState, reason: str, history: list[Transition]
    ) -> None:
        self.partition = partition
        self.event = event
        self.state = state
        self.history = history
        before = "; before: " + ", ".join(map(str, history)) if history else ""
        super().__init__(f"{partition} cannot {event.value}: it is {state}, {reason}{before}")


class PartitionStates:
    """
    The states of all partitions; a partition without an entry is idle.

    Not thread-safe: its owner holds one lock from picking a log to `begin`; otherwise two workers could get one log.
    The caller also waits for an aborted partition to become paused (R-430).
    """

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}
        self._history: deque[Transition] = deque(maxlen=HISTORY_LENGTH)

    @property
    def not_idle(self) -> Mapping[TopicPartition, PartitionState]:
        """Return the partitions that are not idle; a live view."""
        return MappingProxyType(self._states)

    def of(self, partition: TopicPartition) -> PartitionState:
        """Return a partition's state."""
        return self._states.get(partition, IDLE)

    def allows(self, partition: TopicPartition, event: Event) -> bool:
        """Tell whether an event is legal now."""
        return (self.of(partition).phase, event) in TRANSITIONS

    def is_aborted(self, partition: TopicPartition) -> bool:
        """Tell whether its worker should stop; workers call this before each buffer (R-431)."""
        return self.of(partition).phase is Phase.ABORTED

    def begin(self, partition: TopicPartition, holder: str) -> None:
        """
        Give an idle partition to a worker, for a round or a retention pass.

        Args:
            holder: the worker's name; the same name must give the partition back.
        Raises:
            InvalidTransitionError: another worker has it already, or it is paused.
        """
        self._apply(partition, Event.BEGIN, holder)

    def abort_and_pause(self, partition: TopicPartition) -> PartitionState:
        """
        Pause a partition, or pause it once more; a worker that has it is asked to stop (R-430).

        Returns:
            The new state. If that is aborted, the partition is paused only when its worker has given it back.
        Raises:
            InvalidTransitionError: it is already aborted: the first caller is still waiting.
        """
        return self._apply(partition, Event.ABORT_AND_PAUSE)

    def pause_if_idle(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Pause the idle ones and return them; a retention pass does this to have logs to itself (R-433)."""
        free = [partition for partition in partitions if partition not in self._states]
        for partition in free:
            self._apply(partition, Event.ABORT_AND_PAUSE)
        return free

    def resume(self, partition: TopicPartition) -> PartitionState:
        """
        Take one pause back (R-430); the last one makes the partition idle.

        Raises:
            InvalidTransitionError: it is not paused, or its worker has not yet stopped.
        """
        return self._apply(partition, Event.RESUME)

    def done_cleaning(self, partition: TopicPartition, holder: str) -> bool:
        """
        Take a partition back after a round, however it ended.

        Returns:
            Whether the checkpoint is to be written: not after an abort (R-432).
        Raises:
            InvalidTransitionError: no worker, or another one, has it.
        """
        was_aborted = self.is_aborted(partition)
        self._apply(partition, Event.DONE, holder)
        return not was_aborted

    def history(self, partition: TopicPartition) -> list[Transition]:
        """Return a partition's remembered transitions, oldest first."""
        return [transition for transition in self._history if transition.partition == partition]

    def _apply(self, partition: TopicPartition, event: Event, holder: str | None = None) -> PartitionState:
        before = self.of(partition)
        step = TRANSITIONS.get((before.phase, event))
        if step is None:
            raise self._invalid(partition, event, "which only allows to " + " or ".join(_allowed_words(before.phase)))
        if event is Event.DONE and holder != before.holder:
            raise self._invalid(partition, event, f"and not for {holder} to give back")
        after = _after(before, step, holder if event is Event.BEGIN else before.holder)
        if after == IDLE:
            del self._states[partition]
        else:
            self._states[partition] = after
        self._history.append(Transition(partition, event, before, after))
        return after

    def _invalid(self, partition: TopicPartition, event: Event, reason: str) -> InvalidTransitionError:
        return InvalidTransitionError(partition, event, self.of(partition), reason, self.history(partition))


def _after(before: PartitionState, step: StateChange, holder: str | None) -> PartitionState:
    pauses = before.pauses + step.pauses
    if step.phase is Phase.IDLE or (step.phase is Phase.PAUSED and pauses == 0):
        return IDLE
    return PartitionState(step.phase, pauses, None if step.phase is Phase.PAUSED else holder)


def _allowed_words(phase: Phase) -> list[str]:
    return [event.value for event in Event if (phase, event) in TRANSITIONS]
