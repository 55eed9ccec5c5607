"""
Finds what is due in a log without anything dirty (`cleaner.quiet.cleaning`, D-16).

Kafka removes tombstones and markers whose time has come only in a round, and a round only comes when there is something
dirty: in a quiet topic they stay forever. A walk by batch headers finds the segments that hold such batches; the round
recopies these alone.

Records that expire (`cleaner.record.ttl.ms`, D-19) are due in the same way: a batch when its newest record does. And a
marker is due at once if a round has removed its data, but the marker came before it in time and has no horizon: nobody
else would give it one.

A horizon stays in a batch after its tombstones have gone. So horizons that a round has dealt with are told from others
by the time of that round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cleaner.config.values import TopicConfig
from cleaner.format.chunks import CONTROL_FLAG, DELETE_HORIZON_FLAG, TRANSACTIONAL_FLAG, Batches
from cleaner.format.headers import HeaderReader
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.unread import NO_HORIZON
from cleaner.storage.load.loaded_log import LoadedLog

_BEFORE_ALL = -(2**63)


class QuietWork(NamedTuple):
    """
    What is due in a clean section.

    Attributes:
        segments: base offsets of the segments to recopy; empty: nothing is due.
        next_ms: the first horizon that is not due yet; NO_HORIZON without one.
    """

    segments: frozenset[int]
    next_ms: int


def find_quiet_work(
    log: LoadedLog,
    cleanable: Cleanable,
    topic: TopicConfig,
    now_ms: int | None,
    settled_ms: int | None = None,
    before_segment: Callable[[], None] = lambda: None,
) -> QuietWork:
    """
    Walk the segments of a log's clean section.

    With a due segment that has transactional batches, all others that have some are recopied, too: whether a marker's
    data has gone is known only to who has seen all of it.

    Args:
        log: loaded.
        cleanable: its range; segments below `first_dirty_offset` count.
        topic: its settings; a batch is due, too, when its newest record expires.
        now_ms: horizons up to it are due; None: none is.
        settled_ms: horizons up to it have had their effect; None: unknown.
        before_segment: called before each; raises to stop.
    Raises:
        CorruptBatchError: a header that cannot be one.
    """
    if now_ms is None:
        return QuietWork(frozenset(), NO_HORIZON)
    due, transactional = set[int](), set[int]()
    settled_ms = _BEFORE_ALL if settled_ms is None else settled_ms
    next_ms, is_transactional_due = NO_HORIZON, False
    last_data = {int(producer_id): int(offset) for producer_id, offset, _ in np.asarray(log.last_records)}
    open_producers = set[int]()
    for segment in log.segments_between(0, cleanable.first_dirty_offset):
        if log.end_of([segment]) > cleanable.first_dirty_offset:
            continue
        before_segment()
        found = _Found(now_ms, settled_ms, last_data, cleanable.first_dirty_offset - 1, topic, open_producers)
        with segment.open_log() as file:
            for chunk in HeaderReader(file, size=segment.size):
                found.add(chunk.batches)
        next_ms = min(next_ms, found.next_ms)
        if found.is_transactional:
            transactional.add(segment.base_offset)
        if found.is_due:
            due.add(segment.base_offset)
            is_transactional_due |= found.is_transactional
    return QuietWork(frozenset(due | transactional if is_transactional_due else due), next_ms)


class _Found:
    """What the batches of one segment say."""

    def __init__(
        self,
        now_ms: int,
        settled_ms: int,
        last_data: dict[int, int],
        last_offset: int,
        topic: TopicConfig,
        open_producers: set[int],
    ) -> None:
        self._record_ttl_ms = topic.expires_after_ms
        self._sets_horizons = now_ms + topic.delete_retention_ms <= NO_HORIZON
        self._open_producers = open_producers
        self.is_due = self.is_transactional = False
        self.next_ms = NO_HORIZON
        self._now_ms, self._settled_ms = now_ms, settled_ms
        self._last_data, self._last_offset = last_data, last_offset

    def add(self, rows: Batches) -> None:
        """Add the next batches."""
        attributes = rows["attributes"]
        is_new = rows["magic"] == 2
        of_transactions = rows[is_new & (attributes & (TRANSACTIONAL_FLAG | CONTROL_FLAG) != 0)]
        if len(of_transactions):
            self.is_transactional = True
            self._follow(of_transactions)
        horizons = rows["base_timestamp"][is_new & (attributes & DELETE_HORIZON_FLAG != 0)]
        if self._record_ttl_ms is not None:
            # Magic 1 has no batch without records, and none of magic 0 has a time.
            has_records = (rows["magic"] == 1) | (is_new & (attributes & CONTROL_FLAG == 0) & (rows["count"] > 0))
            has_records &= rows["max_timestamp"] >= 0
            # A sum beyond 64 bits is no time that comes.
            newest_ms = np.minimum(rows["max_timestamp"][has_records], NO_HORIZON - self._record_ttl_ms)
            horizons = np.concatenate([horizons, newest_ms + self._record_ttl_ms])
        self.is_due |= bool(((horizons > self._settled_ms) & (horizons <= self._now_ms)).any())
        self.next_ms = min(self.next_ms, int(horizons[horizons > self._now_ms].min(initial=NO_HORIZON)))
        for row in rows[is_new & (rows["count"] == 0)]:
            # Kept without records for its producer's sequence, or as the end of what was cleaned.
            last = self._last_data.get(int(row["producer_id"]))
            is_kept = int(row["last_offset"]) in (last, self._last_offset) or (last == -1)
            self.is_due |= not is_kept

    def _follow(self, rows: Batches) -> None:
        """Follow transactions by headers: a marker none of whose data was seen gets its horizon in a round (R-542)."""
        columns = (rows[name].tolist() for name in ("producer_id", "attributes", "count"))
        for producer_id, attributes, count in zip(*columns, strict=True):
            if not attributes & CONTROL_FLAG:
                self._open_producers.add(producer_id)
            elif count and producer_id >= 0:
                is_empty = producer_id not in self._open_producers
                self._open_producers.discard(producer_id)
                self.is_due |= is_empty and not attributes & DELETE_HORIZON_FLAG and self._sets_horizons
