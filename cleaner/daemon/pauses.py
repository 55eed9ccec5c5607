"""What an operator has paused: everything, or whole topics."""

from __future__ import annotations

from collections import Counter

from cleaner.base.model import TopicPartition


class Pauses:
    """
    Pauses of everything and of whole topics, as set by the operator. Pauses of one scope nest.

    A partition's own pauses are in `PartitionStates`. These pauses prevent rounds from beginning. Workers at work on a
    paused log are asked to stop; this needs no state, since the log is not picked again anyway. Not guarded: the
    manager's lock is held.
    """

    def __init__(self) -> None:
        self._all = 0
        self._topics: Counter[str] = Counter()

    @property
    def is_all(self) -> bool:
        """Tell whether everything is paused."""
        return self._all > 0

    @property
    def topics(self) -> dict[str, int]:
        """The paused topics, with the number of outstanding pauses."""
        return {topic: count for topic, count in self._topics.items() if count}

    def covers(self, partition: TopicPartition) -> bool:
        """Tell whether a partition must not be worked on."""
        return self._all > 0 or self._topics[partition.topic] > 0

    def pause(self, topic: str | None) -> None:
        """Pause a topic, or (None) everything, once more."""
        if topic is None:
            self._all += 1
        else:
            self._topics[topic] += 1

    def resume(self, topic: str | None) -> bool:
        """Remove one pause; False if there was none."""
        if topic is None:
            self._all, was_paused = max(0, self._all - 1), self._all > 0
            return was_paused
        if not self._topics[topic]:
            return False
        self._topics[topic] -= 1
        return True

    def words(self) -> list[str]:
        """List what is paused, one line each."""
        lines = [f"all ({self._all})"] if self._all else []
        return lines + [f"{topic} ({count})" for topic, count in sorted(self.topics.items())]
