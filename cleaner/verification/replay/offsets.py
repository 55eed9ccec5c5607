"""Committed offsets, as the group coordinator replays them: pending ones wait for their transaction's marker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cleaner.verification.replay.state import Facts, Thing

_NONE = -1


class CommitKey(NamedTuple):
    """What an offset is committed for."""

    group: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"group {self.group}, topic {self.topic}-{self.partition}"


class Commit(NamedTuple):
    """A committed offset, and the offset of its record."""

    record_offset: int
    facts: Facts


class CommittedOffsets:
    """The offsets of all groups of a partition."""

    def __init__(self) -> None:
        self._offsets: dict[CommitKey, Commit] = {}
        self._pending: dict[int, dict[CommitKey, Commit]] = {}
        self._open: dict[CommitKey, set[int]] = {}

    def commit(self, record_offset: int, producer_id: int, key: CommitKey, value: dict[str, Any]) -> None:
        """Store an offset; that of a producer waits for its marker."""
        facts: Facts = {
            "offset": value["offset"],
            "metadata": value["metadata"],
            "leader epoch": value.get("leaderEpoch", _NONE),
            "commit time": value["commitTimestamp"],
            "expire time": value.get("expireTimestamp", _NONE),
            "topic id": value.get("topicId"),
        }
        commit = Commit(record_offset, facts)
        if producer_id == _NONE:
            self._offsets[key] = commit
        else:
            self._pending.setdefault(producer_id, {})[key] = commit
            self._open.setdefault(key, set()).add(producer_id)

    def delete(self, key: CommitKey) -> None:
        """Remove an offset, at once, and every pending one of its key."""
        self._offsets.pop(key, None)
        for producer_id in self._open.pop(key, ()):
            self._pending.get(producer_id, {}).pop(key, None)

    def end(self, producer_id: int, is_commit: bool) -> None:
        """Apply or forget what a producer's transaction has committed; a marker without pending offsets is ignored."""
        for key, commit in self._pending.pop(producer_id, {}).items():
            others = self._open.get(key, set())
            others.discard(producer_id)
            if not others:
                self._open.pop(key, None)
            existing = self._offsets.get(key)
            # The record that comes later in the log wins, not the later marker: cleaning keeps that one.
            if is_commit and (existing is None or commit.record_offset > existing.record_offset):
                self._offsets[key] = commit

    def committed(self) -> Iterator[tuple[CommitKey, Facts]]:
        """Yield committed offsets, without pending ones."""
        for key, commit in self._offsets.items():
            yield key, commit.facts

    def things(self) -> Iterator[tuple[Thing, Facts]]:
        """Yield committed and pending offsets."""
        for key, commit in self._offsets.items():
            yield Thing("offset", str(key)), commit.facts
        for producer_id, commits in self._pending.items():
            for key, commit in commits.items():
                yield Thing("pending offset", f"{key}, producer {producer_id}"), commit.facts
