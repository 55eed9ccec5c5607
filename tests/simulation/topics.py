"""
The topics of a world, each with one partition, and the truth about each.

A topic may be deleted and made again under its name: then it is another log, with another id and a truth of its own.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from cleaner.base.model import TopicPartition
from tests.simulation.disk import Disk
from tests.simulation.found import Wrong, checkpoints_of, topic_id_of
from tests.simulation.oracle import Oracle
from tests.simulation.rot import Rots

MAIN = "log"
SETTINGS: Mapping[str, Mapping[str, str]] = {
    MAIN: {"cleanup.policy": "compact"},
    "expiring": {"cleanup.policy": "compact,delete", "retention.ms": "4000"},
    "bounded": {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "3000"},
    "tiny": {"cleanup.policy": "compact", "internal.segment.bytes": "1100"},
}
"""What each topic's own settings are; a world has some of them, `MAIN` always."""


class Topics:
    """
    The topics of a world, and the truth about each.

    Args:
        log_dir: where they are.
        names: which of `SETTINGS` there are.
        defaults: the settings of writer and cleaners.
        now_ms: returns the wall clock.
    Attributes:
        now: the truth about each topic, by name.
        damaged_checkpoints: see `Rots`.
    """

    def __init__(
        self, log_dir: Path, names: tuple[str, ...], defaults: Mapping[str, str], now_ms: Callable[[], int]
    ) -> None:
        self._log_dir = log_dir
        self._defaults = defaults
        self._now_ms = now_ms
        self._round_counts: list[float] = []  # of the rounds that run
        self._deletions: Counter[str] = Counter()  # that are under way, by name
        self._deletions_begun: Counter[str] = Counter()
        self._known: dict[str, dict[uuid.UUID | None, Oracle]] = {name: {} for name in names}
        self.names = names
        self.damaged_checkpoints: set[str] = set()
        self.now: dict[str, Oracle] = {}
        for name in names:
            self.now[name] = self.remember(name, topic_id_of(self._directory(name)))
            self.now[name].is_made = True

    def remember(self, name: str, topic_id: uuid.UUID | None) -> Oracle:
        """Note a topic that is about to be made, or is there."""
        known = self._known[name]
        oracle = Oracle(
            self._directory(name),
            {**self._defaults, **SETTINGS[name]},
            self._now_ms,
            first=1_000_000 * len(known),
            topic_id=topic_id,
            rots=Rots(self.damaged_checkpoints),
        )
        for count in self._round_counts:
            oracle.rounds_begin(count)
        known[topic_id] = oracle
        return oracle

    @property
    def compacted(self) -> list[str]:
        """The topics that rounds clean."""
        return [name for name in self.names if "compact" in SETTINGS[name]["cleanup.policy"]]

    def settings_of(self, name: str) -> Mapping[str, str]:
        """Return all settings of a topic that are not a default of the product."""
        return {**self._defaults, **SETTINGS[name]}

    @contextlib.contextmanager
    def rounds_run(self, count: float = 1) -> Iterator[None]:
        """Note, during rounds, that they may remove records; `count`: how many of each log there may be."""
        self._round_counts.append(count)
        for oracle in self._all():
            oracle.rounds_begin(count)
        try:
            yield
        finally:
            self._round_counts.remove(count)
            for oracle in self._all():
                oracle.rounds_end()

    @contextlib.contextmanager
    def being_deleted(self, name: str) -> Iterator[None]:
        """
        Note that somebody asks to delete the topic that has a name: when it is his turn, another one may have it.

        What is made meanwhile may go, too; see `being_made`.
        """
        self._deletions[name] += 1
        self._deletions_begun[name] += 1
        for each in self._known[name].values():
            each.is_deleted_soon |= each.is_made and not each.is_deleted
        try:
            yield
        finally:
            self._deletions[name] -= 1

    @contextlib.contextmanager
    def being_made(self, name: str, topic_id: uuid.UUID) -> Iterator[None]:
        """Note that somebody makes a topic, and at the end of a `with` block without an error that it is made."""
        made, begun = self.remember(name, topic_id), self._deletions_begun[name]
        yield
        made.is_made = True
        was_deleted = self._deletions_begun[name] > begun and self.there(name) is not made
        made.is_deleted_soon = was_deleted or self._deletions[name] > 0
        self.now[name] = made

    def _all(self) -> Iterator[Oracle]:
        for known in self._known.values():
            yield from known.values()

    def note_time(self) -> None:
        """Note the wall clock; called before and after each jump."""
        for oracle in self.now.values():
            oracle.note_time()

    def copy(self) -> Topics:
        """Return an independent copy, to judge files that may not be the ones that stay."""
        other = Topics.__new__(Topics)
        other.__dict__ |= self.__dict__
        other._round_counts = []
        other._deletions, other._deletions_begun = Counter(), Counter()
        other._known = {
            name: {topic_id: oracle.copy() for topic_id, oracle in known.items()} for name, known in self._known.items()
        }
        other.now = {
            name: next(other._known[name][topic_id] for topic_id, each in self._known[name].items() if each is oracle)
            for name, oracle in self.now.items()
        }
        return other

    def of_record(self, name: str, number: int) -> Oracle:
        """Return the truth about the topic, of those with a name, to which a record was sent."""
        return next((each for each in self._known[name].values() if number in each.sent), self.now[name])

    def is_remade(self, name: str) -> bool:
        """Tell whether somebody has asked to delete a topic."""
        return any(each.is_deleted_soon for each in self._known[name].values())

    def there(self, name: str) -> Oracle | None:
        """Return the truth about the topic that has a name now; None: it is not there."""
        return self._known[name].get(topic_id_of(self._directory(name)))

    def _directory(self, name: str) -> Path:
        return self._log_dir / str(TopicPartition(name, 0))

    def missing(self) -> list[str]:
        """
        Return the topics that are not there: a power cut or a kill came between their deletion and their return.

        Raises:
            Wrong: one was made, and nobody has asked to delete it.
        """
        missing = [name for name in self.names if not self._directory(name).exists()]
        for name in missing:
            latest = next(each for each in reversed(self._known[name].values()) if each.is_made or each.is_deleted_soon)
            if not latest.is_deleted_soon:
                raise Wrong(f"{name} was made, and is gone")
        return missing

    def judge(self, names: Collection[str], *, only_durable: Collection[str]) -> None:
        """
        Judge some logs when they have been opened.

        Args:
            names: of their topics.
            only_durable: of these only what was durable must have survived.
        Raises:
            Wrong: see `Oracle.judge`; or a deleted topic is back, or a made one is not there.
        """
        for name in names:
            self._find(name)
            self.now[name].judge(checkpoints_of(self._log_dir, name), only_durable=name in only_durable)

    def opens(self) -> None:
        """Note what the checkpoints say: the log dir is about to be opened, and may be recovered."""
        for name in self.names:
            oracle = self.there(name)
            if oracle is not None:
                oracle.opens(checkpoints_of(self._log_dir, name))

    def forget_ends(self) -> None:
        """Note that an operator allows to cut what was on disk, or that a power cut may have taken lines back."""
        for oracle in self._all():
            oracle.known_end = 0

    # ---- damage ----------------------------------------------------------------------------------------------------

    def is_damaged(self, name: str) -> bool:
        """Tell whether a file of a topic, or a checkpoint, was ever damaged."""
        # Of a topic whose making was interrupted nobody has said yet that it is there.
        return bool((self.there(name) or self.now[name]).rots.names)

    def strike(self, disk: Disk, number: int) -> None:
        """Damage a file of one of the topics, or a checkpoint."""
        name = self.names[number % len(self.names)]
        oracle = self.there(name)
        if oracle is not None:
            oracle.rots.strike(disk, self._directory(name), number)

    def repair(self, disk: Disk) -> None:
        """Have the operator put back all that was damaged; a topic that was deleted since has no such files."""
        there = [self.there(name) for name in self.names]
        damage = [(rot.number, oracle, rot) for oracle in self._all() for rot in oracle.rots.damage]
        # The last one first, also of a checkpoint that was damaged for two topics.
        for _, oracle, rot in sorted(damage, key=lambda each: -each[0]):
            oracle.rots.repair(disk, rot, is_there=oracle in there)

    def _find(self, name: str) -> None:
        """Find out which of the topics that had a name is there."""
        known, topic_id = self._known[name], topic_id_of(self._directory(name))
        found = known.get(topic_id)
        if found is None:
            raise Wrong(f"{name} has the id {topic_id}, which nobody gave it")
        if found.is_deleted:
            raise Wrong(f"{name} was deleted, and is back")
        later = list(known.values())
        for each in later[later.index(found) + 1 :]:
            # The order is that in which they were begun: one may be made after a later one is deleted again.
            if each.is_made and not each.is_deleted_soon:
                raise Wrong(f"{name} was made again, and its log from before is there")
        found.is_made, found.is_deleted_soon = True, False
        self.now[name] = found
