"""
Logs made up by hypothesis: a list of small operations, replayed into a `LogBuilder`.

Operations are plain values, so that a failing example prints as a short recipe and shrinks to a shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.config.process_settings import KAFKA_VERSION_NAMES
from tests.support.batch_builder import DELETE_HORIZON, LOG_APPEND_TIME, NO_PRODUCER, Producer, Record
from tests.support.batch_builder import TRANSACTIONAL as TRANSACTIONAL_BIT
from tests.support.codecs import CODEC_IDS
from tests.support.log_builder import START_MS, LogBuilder

PARTITION = TopicPartition("topic", 0)
IDEMPOTENT = (1, 2)
TRANSACTIONAL = (3, 4, 5)
CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000
FIRST_ROUND_MS = START_MS + 3000
UNUSED_BIT = 1 << 9


class Append(NamedTuple):
    """
    A data batch; `producer` 0 is none, 1 and 2 are idempotent, 3 to 5 transactional.

    `first_time_ms` is the first record's timestamp, None a usual one. `horizon_ms` counts from the first round.
    `odd_bits` sets an unused bit in the batch's attributes and in its records', which a rewrite loses.
    """

    records: tuple[tuple[bytes | None, bytes | None], ...]
    codec: str = "none"
    producer: int = 0
    log_append_time: bool = False
    gap_inside: int = 0
    gap_at_end: int = 0
    magic: int = 2
    header: bytes | None = None
    first_time_ms: int | None = None
    horizon_ms: int | None = None
    odd_bits: bool = False


class End(NamedTuple):
    """A transaction's marker, perhaps under a raised epoch (R-547)."""

    producer: int
    commit: bool
    new_epoch: bool


class Empty(NamedTuple):
    """A batch without records."""

    offsets: int
    producer: int


class Gap(NamedTuple):
    """Unused offsets."""

    offsets: int


class Roll(NamedTuple):
    """A new segment; the old one's files were changed that many milliseconds before the log's own times."""

    age_ms: int


Operation = Append | End | Empty | Gap | Roll


class Case(NamedTuple):
    """A log and how three rounds go over it."""

    operations: tuple[Operation, ...]
    settings: dict[str, str]
    # Of each round: how much of the log is replicated by then, in percent, and by how much the clock has advanced.
    replicated_percent: tuple[int, int, int]
    advances_ms: tuple[int, int, int]
    base_offset: int = 0
    # Where the log start offset and the first round's checkpoint lie, in percent of the log; None for no such line.
    start_percent: int | None = None
    checkpoint_percent: int | None = None
    # Whether high watermarks lie at the base offsets of segments: there 4.3 and 4.4 differ.
    replicated_on_bases: bool = False


@dataclass
class _Writer:
    """Replays operations; remembers what producers wrote last."""

    log: LogBuilder
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def producer(self, producer_id: int, records: int) -> Producer:
        if not producer_id:
            return NO_PRODUCER
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + records
        return Producer(producer_id, self.epochs.get(producer_id, 0), sequence, producer_id in TRANSACTIONAL)

    def append(self, operation: Append) -> None:
        producer = operation.producer if operation.magic == 2 else 0
        offset = self.log.next_offset
        placed = []
        for i, (key, value) in enumerate(operation.records):
            headers = ((operation.header, value),) if operation.header is not None and i == 0 else ()
            time = START_MS + offset * 7 % 1000
            if i == 0 and operation.first_time_ms is not None:
                time = operation.first_time_ms
            placed.append(Record(key, value, offset, time, headers, attributes=int(operation.odd_bits)))
            offset += 1 + (operation.gap_inside if i == 0 else 0)
        last = placed[-1].offset or 0
        time = self.log.timestamp_ms + 1
        if operation.magic < 2:
            plain = [record._replace(headers=()) for record in placed]
            codec = "gzip" if operation.codec == "zstd" else operation.codec
            self.log.append(
                *plain,
                magic=operation.magic,
                codec=codec,
                append_time_ms=time if operation.log_append_time and operation.magic else None,
            )
            return
        signed = self.producer(producer, last + operation.gap_at_end - self.log.next_offset + 1)
        horizon = None if operation.horizon_ms is None else FIRST_ROUND_MS + operation.horizon_ms
        attributes = CODEC_IDS[operation.codec] | (LOG_APPEND_TIME if operation.log_append_time else 0) | UNUSED_BIT
        attributes |= (TRANSACTIONAL_BIT if signed.transactional else 0) | (0 if horizon is None else DELETE_HORIZON)
        self.log.append(
            *placed,
            codec=operation.codec,
            producer=signed,
            append_time_ms=time if operation.log_append_time else None,
            last_offset=last + operation.gap_at_end,
            delete_horizon_ms=horizon,
            overrides={"attributes": attributes} if operation.odd_bits else None,
        )

    def apply(self, operation: Operation) -> None:
        log = self.log
        match operation:
            case Append():
                self.append(operation)
            case End(producer, commit, new_epoch):
                if new_epoch:
                    self.epochs[producer] = self.epochs.get(producer, 0) + 1
                    self.sequences[producer] = 0
                log.end_transaction(producer, self.epochs.get(producer, 0), commit=commit)
            case Empty(offsets, producer):
                log.append_empty(offsets, producer=self.producer(producer, offsets))
            case Gap(offsets):
                log.skip(offsets)
            case Roll(age_ms):
                if log.next_offset > log.base_offsets[-1]:
                    log.set_mtime(log.timestamp_ms - age_ms)
                    log.roll()


def build(
    operations: Sequence[Operation], settings: dict[str, str], base_offset: int = 0, *, rolls_last: bool = True
) -> LogBuilder:
    """Replay operations into a log with an empty active segment, or without a last roll."""
    log = LogBuilder(
        PARTITION,
        base_offset=base_offset,
        index_interval_bytes=int(settings["index.interval.bytes"]),
        segment_index_bytes=int(settings["segment.index.bytes"]),
    )
    writer = _Writer(log)
    for operation in (*operations, Roll(0)) if rolls_last else operations:
        writer.apply(operation)
    return log


keys = st.one_of(st.none(), st.just(b""), st.sampled_from([b"k%d" % i for i in range(8)]))
keyed = st.sampled_from([b"k%d" % i for i in range(8)])
values = st.one_of(st.none(), st.just(b""), st.sampled_from([b"v", b"value", b"a longer value " * 9]))
appends = st.builds(
    Append,
    records=st.lists(st.tuples(st.one_of(keyed, keyed, keys), values), min_size=1, max_size=6).map(tuple),
    codec=st.sampled_from(CODECS),
    producer=st.sampled_from([0, 0, 0, *IDEMPOTENT, *TRANSACTIONAL]),
    log_append_time=st.sampled_from([False, False, True]),
    gap_inside=st.sampled_from([0, 0, 0, 3]),
    gap_at_end=st.sampled_from([0, 0, 0, 2]),
    magic=st.sampled_from([2, 2, 2, 2, 1, 0]),
    header=st.sampled_from([None, None, b"", b"h\xc3\xa9", b"\xed\xa0\x80", b"\xff"]),
    first_time_ms=st.sampled_from([None, None, None, -1, 0, START_MS - 9 * DAY_MS]),
    horizon_ms=st.sampled_from([None, None, None, None, -1, 0, 1, 2000]),
    odd_bits=st.sampled_from([False, False, False, True]),
)
ends = st.builds(End, producer=st.sampled_from(TRANSACTIONAL), commit=st.booleans(), new_epoch=st.booleans())
rolls = st.builds(Roll, age_ms=st.sampled_from([0, 0, 5000, DAY_MS]))
others = st.one_of(
    st.builds(Empty, offsets=st.integers(1, 3), producer=st.sampled_from([0, *IDEMPOTENT])),
    st.builds(Gap, offsets=st.sampled_from([1, 2, 9, 9, 2**30, 2**31 - 3])),
)


@st.composite
def transactions(draw: st.DrawFn) -> list[Operation]:
    """Draw a transaction's batches, something of others in between, and its end."""
    producer = draw(st.sampled_from(TRANSACTIONAL))
    batches: list[Operation] = [
        batch._replace(producer=producer, magic=2) for batch in draw(st.lists(appends, min_size=1, max_size=3))
    ]
    between = draw(st.lists(st.one_of(appends, rolls), max_size=2))
    end = End(producer, commit=draw(st.booleans()), new_epoch=draw(st.booleans()))
    return [*batches[:1], *between, *batches[1:], end]


single = st.one_of(appends, appends, appends, rolls, others, ends).map(lambda operation: [operation])


@st.composite
def operation_lists(draw: st.DrawFn) -> tuple[Operation, ...]:
    """Draw a log of at least one record; every few operations a segment ends, else there is nothing to clean."""
    operations: list[Operation] = [draw(appends)]
    for parts in draw(
        st.lists(st.lists(st.one_of(single, single, transactions()), min_size=1, max_size=6), max_size=6)
    ):
        operations += [operation for part in parts for operation in part]
        operations.append(draw(rolls))
    return tuple(operations)


settings_values = st.fixed_dictionaries(
    {
        "cleanup.policy": st.just("compact"),
        "index.interval.bytes": st.sampled_from(["0", "60", "500", "4096"]),
        "segment.index.bytes": st.sampled_from(["60", "10485760", "10485760"]),
        "internal.segment.bytes": st.sampled_from(["300", "1500", "1048576"]),
        "delete.retention.ms": st.sampled_from(["0", "1000", str(DAY_MS)]),
        "min.compaction.lag.ms": st.sampled_from(["0", "0", "0", "3000"]),
        "log.cleaner.dedupe.buffer.size": st.sampled_from([str(24 * slots) for slots in (2, 4, 9, 1000, 1000)]),
        "log.cleaner.io.buffer.load.factor": st.sampled_from(["0.9", "1.0", "0.5"]),
        "producer.id.expiration.ms": st.sampled_from(["2000", str(DAY_MS)]),
        # Half of the logs have no limit; records have some 7 to 150 bytes.
        "max.decompressed.message.bytes": st.one_of(
            st.just(str(2**31 - 9)), st.integers(1, 1000).map(str), st.integers(7, 160).map(str)
        ),
        "cleaner.kafka.version": st.sampled_from(KAFKA_VERSION_NAMES),
    }
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw a log, its settings and its three rounds."""
    advances = st.sampled_from([0, 1, 1001, 2500, DAY_MS + 1])
    return Case(
        operations=draw(operation_lists()),
        settings=draw(settings_values),
        replicated_percent=draw(st.tuples(st.integers(30, 100), st.integers(60, 100), st.just(100))),
        advances_ms=draw(st.tuples(advances, advances, advances)),
        base_offset=draw(st.sampled_from([0, 0, 7, 2**31 + 5, 2**40])),
        start_percent=draw(st.one_of(st.none(), st.none(), st.integers(0, 60))),
        checkpoint_percent=draw(st.one_of(st.none(), st.none(), st.integers(0, 120))),
        replicated_on_bases=draw(st.booleans()),
    )


def never_cleaned(case: Case) -> Case:
    """Return the case without checkpoint and with its whole log readable: its first round sees every record."""
    return case._replace(start_percent=None, checkpoint_percent=None)
