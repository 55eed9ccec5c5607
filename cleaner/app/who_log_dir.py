"""`plan --who`: whose bytes the partitions of a log dir hold, topic by topic; locks and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cleaner.app.inspect_log import PlanTarget, inspect_log
from cleaner.app.options import CallContext, HighWatermark
from cleaner.app.plan_log_dir import DirState
from cleaner.app.reports import Refusal
from cleaner.app.session import Session, as_cleaner_errors, attempt, choose_partitions, open_session, parse_names
from cleaner.app.trust import policy_words
from cleaner.app.who_names import NAMED_BY, name_producers, namer_of, shown
from cleaner.base.model import TopicPartition
from cleaner.cleaning.estimate.entries import AGES
from cleaner.cleaning.estimate.shares import DEAD, KINDS, RECORDS, VALUES, Kind, Row
from cleaner.cleaning.estimate.unseen_keys import Floats
from cleaner.cleaning.estimate.who import (
    AGE,
    KEY,
    OTHER,
    PREFIX,
    PRODUCER,
    DamagedCell,
    Whose,
    WhoTarget,
    whose_bytes,
)
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.policy.cleanable import range_of_round
from cleaner.policy.key_prefixes import choose_prefixes
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.read.summary import ListedFiles, look_again, may_pass
from cleaner.settings.sources import Sources
from cleaner.storage.log_dir import CachedLogDir
from cleaner.storage.segment.segment import Segment

MOST_SAMPLE_BYTES, LEAST_SAMPLE_BYTES, SAMPLE_BYTES = 64 << 20, 4 << 20, 4 << 30
TOP = 10
_MOST_NAMES = 4096  # of each partition
_NO_ROW = Row(np.zeros(VALUES), 0, np.zeros(2))
TOPIC, PARTITION = "topic", "partition"


@dataclass(frozen=True)
class WhoRow:
    """
    Who holds how many bytes of a topic's `.log` files.

    Attributes:
        topic: the topic.
        by: what `name` is a name of: topic, partition, prefix, key, producer, age; of coordinators' topics also group,
            consumed_topic, transactional_id, and no prefix.
        name: the name. Bytes that are not UTF-8 are escaped. In brackets: what has no name.
        records, bytes: estimated, unless `is_exact`.
        share: `bytes` as a part of the topic's.
        least_bytes, most_bytes: the range of `bytes`.
        live_bytes: a round keeps them.
        superseded_bytes: a round now would remove them.
        tombstone_bytes: last records of their keys without a value, or that lose it for their age: they go when
            their delete horizon has passed.
        aborted_bytes: of aborted transactions.
        marker_bytes: transaction markers, and batches that are kept without records.
        waiting_bytes: beyond what a round may clean now.
        unreadable_bytes: damaged.
        dead_bytes: superseded, tombstone and aborted bytes.
        least_dead_bytes, most_dead_bytes: the range of `dead_bytes`.
        is_exact: everything was read.
    """

    topic: str
    by: str
    name: str
    records: int
    bytes: int
    share: float
    least_bytes: int
    most_bytes: int
    live_bytes: int
    superseded_bytes: int
    tombstone_bytes: int
    aborted_bytes: int
    marker_bytes: int
    waiting_bytes: int
    unreadable_bytes: int
    dead_bytes: int
    least_dead_bytes: int
    most_dead_bytes: int
    is_exact: bool


@dataclass(frozen=True)
class WhoReport:
    """
    Who holds a topic's bytes.

    Attributes:
        topic, policy: the topic and its `cleanup.policy`.
        bytes, sampled_bytes: of its `.log` files, and how many were read.
        rows: the first is of the topic, then partitions, then names, the largest first; `(other)` is the rest.
        waits: why bytes wait, by partition.
        damage: what could not be read.
        in_use: another process has the log dir.
    """

    topic: str
    policy: str
    bytes: int
    sampled_bytes: int
    rows: tuple[WhoRow, ...]
    waits: Mapping[str, str] = field(default_factory=dict)
    damage: tuple[DamagedCell, ...] = ()
    in_use: str = ""

    def by(self, what: str) -> list[WhoRow]:
        """Return the rows of one kind of name."""
        return [row for row in self.rows if row.by == what]


def who_log_dir(
    log_dir: Path,
    sources: Sources,
    context: CallContext,
    *,
    partitions: Sequence[str] | None = None,
    high_watermark: HighWatermark = "checkpoint",
    sample_bytes: int | None = None,
    top: int = TOP,
) -> Iterator[WhoReport | Refusal]:
    """
    Read partitions, or samples of them, and say whose bytes they hold, topic by topic.

    Args:
        log_dir: the directory.
        sources: where settings come from.
        context: the caller's file system, clock, progress, stop check and warnings.
        partitions: names; None: all of them.
        high_watermark: records below it count as replicated.
        sample_bytes: how much of each partition to read; None: 64 MiB, less if there are more than 64.
        top: how many names of each kind.
    Raises:
        UsageError: no such directory or partition.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound.
        ConfigError: a bad setting of the process.
    """
    named = None if partitions is None else parse_names(partitions)
    with as_cleaner_errors(log_dir), open_session(log_dir, sources, context, mode=None) as session:
        chosen = choose_partitions(session, named)
        if sample_bytes is None:
            sample_bytes = min(MOST_SAMPLE_BYTES, max(LEAST_SAMPLE_BYTES, SAMPLE_BYTES // max(1, len(chosen))))
        work = _Work(session, high_watermark, sample_bytes, top)
        of_topics: dict[str, list[tuple[TopicPartition, Path]]] = {}
        for each, place in chosen.items():
            of_topics.setdefault(each.topic, []).append((each, place))
        for topic, places in of_topics.items():
            merged = _Merged(topic)
            for each, place in places:
                session.check_done()
                outcome = attempt(each, place, lambda each=each, place=place: work.read(each, place))  # type: ignore[misc]
                if isinstance(outcome, Refusal):
                    yield outcome
                else:
                    merged.add(str(each), *outcome)
            if merged.partitions:
                yield work.report(merged)


@dataclass
class _Merged:
    """The sums of a topic's partitions."""

    topic: str
    partitions: dict[str, Whose] = field(default_factory=dict)
    policy: str = ""
    waits: dict[str, str] = field(default_factory=dict)
    names: dict[str, dict[bytes, Row]] = field(default_factory=dict)

    def add(self, partition: str, found: Whose, policy: str, wait: str) -> None:
        """Add a partition."""
        self.partitions[partition] = found
        self.policy = policy
        if found.total.values[Kind.WAITING]:
            self.waits[partition] = wait
        for by, rows in found.names.items():
            of_topic = self.names.setdefault(by, {})
            for place, (name, row) in enumerate(sorted(rows, key=lambda pair: -pair[1].values[:KINDS].sum())):
                kept = name if place < _MOST_NAMES else OTHER
                of_topic[kept] = added(of_topic.get(kept, _NO_ROW), row)


def added(one: Row, other: Row) -> Row:
    """Return the sums of two rows that know nothing of each other."""
    return Row(one.values + other.values, one.seen + other.seen, one.doubts + other.doubts)


class _Work:
    """The work in one log dir."""

    def __init__(self, session: Session, high_watermark: HighWatermark, sample_bytes: int, top: int) -> None:
        self._session, self._high_watermark, self._sample_bytes, self._top = session, high_watermark, sample_bytes, top
        self._state = DirState.of(session)
        # A log dir's checkpoints are read once.
        self._looked_at = Session(
            CachedLogDir(session.context.fs, session.log_dir.path), session.settings, session.context, session.throttle
        )

    def read(self, topic_partition: TopicPartition, directory: Path) -> tuple[Whose, str, str]:
        """Read a partition; returns what it holds, its policy, and what its waiting bytes wait for."""
        fs = self._session.context.fs
        with as_cleaner_errors(directory):
            return look_again(
                fs,
                [directory],
                lambda listed: self._read(topic_partition, directory, listed[0]),
                is_sound=lambda found: not found[0].damage,
                is_doubtful=lambda error: bool(self._state.in_use) and may_pass(error, self._session.context.clock),
            )

    def _read(self, topic_partition: TopicPartition, directory: Path, files: ListedFiles) -> tuple[Whose, str, str]:
        session, state, context = self._looked_at, self._state, self._session.context
        now_ms = context.clock.now_ms()
        topic = session.topic(topic_partition, directory).config
        target = PlanTarget(
            session, topic_partition, directory, topic, now_ms, self._high_watermark, state.use, bool(state.in_use)
        )
        look = inspect_log(target, files)
        segments = [
            Segment(context.fs, directory, seen.base_offset, size=seen.size, mtime_ns=seen.mtime_ns)
            for seen in look.log.segments
        ]
        taken = range_of_round(look.log, look.found, topic, now_ms)
        expire_before_ms = topic.expire_before_ms(now_ms)
        found = whose_bytes(
            WhoTarget(
                segments,
                taken.first_dirty_offset,
                taken.first_uncleanable_offset,
                topic.compact,
                session.settings.cleaner.batch_limit_bytes(topic),
                now_ms,
                survivor_rule_of(topic.survivor),
                None if expire_before_ms is None else Expiry(expire_before_ms, taken.first_uncleanable_offset - 1),
                namer_of(topic_partition.topic),
                NAMED_BY.get(topic_partition.topic, (PREFIX,)),
            ),
            self._sample_bytes,
            self._session.check_done,
            lambda done, total: context.progress(f"{topic_partition} who", done, total),
        )
        return found, policy_words(topic), look.found.bounded_by

    def report(self, merged: _Merged) -> WhoReport:
        """Choose the names that matter."""
        found = merged.partitions.values()
        total = _NO_ROW
        for each in found:
            total = added(total, each.total)
        is_exact = all(each.is_exact for each in found)
        make = _Rows(merged.topic, total, is_exact=is_exact)
        rows = [make.row(TOPIC, merged.topic, total)]
        rows += sorted(
            (make.row(PARTITION, name, each.total, each.is_exact) for name, each in merged.partitions.items()),
            key=lambda row: -row.bytes,
        )
        kinds = [each for each in merged.names if each not in (KEY, PRODUCER, AGE)]
        for by in (*kinds, KEY, PRODUCER, AGE):
            rows += make.rows(by, merged.names.get(by, {}), self._top)
        producers = [row.name for row in rows if row.by == PRODUCER]
        ids = name_producers(self._looked_at, producers)
        return WhoReport(
            topic=merged.topic,
            policy=merged.policy,
            bytes=sum(each.bytes for each in found),
            sampled_bytes=sum(each.sampled_bytes for each in found),
            rows=tuple(_renamed(row, ids) for row in rows),
            waits=merged.waits,
            damage=tuple(damaged for each in found for damaged in each.damage),
            in_use=self._state.in_use,
        )


class _Rows:
    """Makes the rows of a topic, whose sums are `total`."""

    def __init__(self, topic: str, total: Row, *, is_exact: bool) -> None:
        self._topic, self._total, self._is_exact = topic, total, is_exact
        self._bytes = float(total.values[:KINDS].sum())

    def rows(self, by: str, names: Mapping[bytes, Row], top: int) -> Iterator[WhoRow]:
        """Yield the largest, and the rest as one."""
        sizes = {name: float(row.values[:KINDS].sum()) for name, row in names.items() if name != OTHER}
        if by == AGE:
            chosen = [name for name in AGES if name in sizes] + [name for name in sizes if name not in AGES]
        elif by == PREFIX:
            chosen = choose_prefixes(sizes, self._bytes, top)
        else:
            chosen = sorted(sizes, key=lambda name: (-sizes[name], name))[:top]
        for name in chosen:
            yield self.row(by, shown(self._topic, by, name), names[name])
        rest = self._total.values - sum((names[name].values for name in chosen), np.zeros(VALUES))
        if rest[:KINDS].sum() >= 0.5:
            seen = self._total.seen - sum(names[name].seen for name in chosen)
            doubts = sum((names[name].doubts for name in chosen), self._total.doubts)
            yield self.row(by, OTHER.decode(), Row(np.maximum(0, rest), max(0.0, seen), doubts))

    def row(self, by: str, name: str, row: Row, is_exact: bool | None = None) -> WhoRow:
        """Make a row."""
        values: Floats = row.values
        size, dead = float(values[:KINDS].sum()), float(values[list(DEAD)].sum())
        off, off_dead = map(math.sqrt, row.doubts)
        most = min(self._bytes, size + off)
        return WhoRow(
            topic=self._topic,
            by=by,
            name=name,
            records=round(values[RECORDS]),
            bytes=round(size),
            share=size / max(1.0, self._bytes),
            least_bytes=round(min(size, max(row.seen, size - off))),
            most_bytes=round(most),
            live_bytes=round(values[Kind.LIVE]),
            superseded_bytes=round(values[Kind.SUPERSEDED]),
            tombstone_bytes=round(values[Kind.TOMBSTONES]),
            aborted_bytes=round(values[Kind.ABORTED]),
            marker_bytes=round(values[Kind.MARKERS]),
            waiting_bytes=round(values[Kind.WAITING]),
            unreadable_bytes=round(values[Kind.UNREADABLE]),
            dead_bytes=round(dead),
            least_dead_bytes=round(max(0.0, dead - off_dead)),
            most_dead_bytes=round(min(most, dead + off_dead)),
            is_exact=self._is_exact if is_exact is None else is_exact,
        )


def _renamed(row: WhoRow, ids: Mapping[str, str]) -> WhoRow:
    if row.by == PRODUCER and row.name in ids:
        return replace(row, name=f"{row.name} {ids[row.name]}")
    return row
