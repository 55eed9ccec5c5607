"""
Inputs on which releases of Kafka differ, or must not: `tests/kafka/make_goldens.py` has each release clean them.

A scenario is a list of rounds. Each writes its input to its own log dir; a round that goes on from the one before gets
the result of the newest release.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.base.model import TopicPartition
from tests.support.batch_builder import Producer, Record, encode_record, legacy_entry, varint
from tests.support.log_builder import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    START_MS,
    LogBuilder,
    offset_checkpoint,
    write_log_dir,
)

PARTITION = TopicPartition("topic", 0)
NOW_MS = START_MS + 1_000_000
LIMIT = "max.decompressed.message.bytes"
CODECS = ("gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = CODECS[:3]


@dataclass(frozen=True)
class Round:
    """
    One round.

    Attributes:
        write: writes the input to a new directory; its second argument is the result of the round before.
        settings: topic and cleaner settings.
        refused: what we refuse on purpose, although Kafka may clean it.
    """

    write: Callable[[Path, Path | None], object]
    settings: Mapping[str, str] = field(default_factory=dict)
    now_ms: int = NOW_MS
    retention: bool = False
    refused: bool = False


@dataclass(frozen=True)
class Scenario:
    """Rounds that show one thing."""

    name: str
    description: str
    rounds: tuple[Round, ...]
    compressed: bool = False


def record(length: int) -> Record:
    """Return a first record of a batch, with key `k`, whose body (without its length) has `length` bytes."""
    for size in (length - 7, length - 8):  # seven bytes are not the value; eight, if its length takes two
        found = Record(b"k", b"v" * size)
        if len(encode_record(found, 0, 0)) == length + len(varint(length)):
            return found
    raise ValueError(f"no record has {length} bytes")


def legacy_record(magic: int, length: int) -> Record:
    """Return a record whose entry of magic 0 or 1 has `length` bytes behind its size."""
    return Record(b"k", b"v" * (length - len(legacy_entry(0, b"k", b"", magic)) + 12))


def at(
    log: LogBuilder, *, watermark: int | None = None, clean: int | None = None
) -> Callable[[Path, Path | None], object]:
    """Return a function that writes a log with a high watermark (None: the log's end) and a cleaner checkpoint."""

    def write(path: Path, _: Path | None) -> None:
        write_log_dir(
            path,
            log,
            high_watermarks=None if watermark is None else {PARTITION: watermark},
            cleaner_offsets=None if clean is None else {PARTITION: clean},
        )

    return write


def result_with(watermark: int) -> Callable[[Path, Path | None], object]:
    """Return a function that copies the result of the round before and moves the high watermark."""

    def write(path: Path, before: Path | None) -> None:
        assert before is not None
        shutil.copytree(before, path, copy_function=shutil.copy2)
        (path / HIGH_WATERMARKS).write_bytes(offset_checkpoint({PARTITION: watermark}))

    return write


def changed(
    log: LogBuilder, name: str, change: Callable[[bytearray], object], *, clean: int | None = None
) -> Callable[[Path, Path | None], object]:
    """Return a function that writes a log with one of its files changed."""

    def write(path: Path, before: Path | None) -> None:
        at(log, clean=clean)(path, before)
        file = path / str(PARTITION) / name
        data = bytearray(file.read_bytes())
        change(data)
        file.write_bytes(data)

    return write


def segments(*ends: Callable[[LogBuilder], object], interval: int = 4096) -> LogBuilder:
    """Return a log with a segment for each argument: five keys, and behind them what it appends."""
    log = LogBuilder(index_interval_bytes=interval)
    for number, end in enumerate(ends):
        if number:
            log.roll()
        for key in range(5):
            log.append((f"k{key}", f"{number}-{key}"))
        end(log)
    return log


def nothing(_: LogBuilder) -> None:
    """Leave a segment as it is."""


def unkeyed(log: LogBuilder) -> None:
    """Append a batch that a round empties: records without key are invalid."""
    log.append((None, "x"), (None, "y"))


def legacy(magic: int, codec: str) -> Callable[[LogBuilder], object]:
    """Return a function that appends an unkeyed batch of magic 0 or 1."""
    return lambda log: log.append((None, "x"), magic=magic, codec=codec)


def aborted(log: LogBuilder) -> None:
    """Append data of a transaction whose abort follows in the next segment; the producer goes on there."""
    log.append(("k1", "aborted"), producer=Producer(7, 0, 0, transactional=True))


def abort(log: LogBuilder) -> None:
    """Append that abort, and a committed transaction behind it."""
    log.end_transaction(7, 0, commit=False)
    log.append(("k2", "committed"), producer=Producer(7, 0, 1, transactional=True))
    log.end_transaction(7, 0, commit=True)


def past_marker(log: LogBuilder) -> None:
    """Append the marker of a transaction without data, past its horizon; the producer's last data follow later."""
    log.append(("k3", "t"), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=True, delete_horizon_ms=START_MS)


def later_data(log: LogBuilder) -> None:
    """Append newer data of that producer."""
    log.append(("k3", "u"), producer=Producer(7, 0, 1, transactional=True))
    log.end_transaction(7, 0, commit=True)


def watermarks() -> list[Scenario]:
    """R-541, R-546, R-548: the fate of the batch that ends a round."""

    def around(name: str, what: str, log: LogBuilder) -> Scenario:
        end = log.base_offsets[2]
        last = log.base_offsets[1]
        return Scenario(
            f"watermark-{name}",
            f"{what} The watermark is at the round's end, above it, at the log's end, in the batch, and before it.",
            tuple(Round(at(log, watermark=mark)) for mark in (end, end + 1, log.next_offset, end - 1, last)),
        )

    moving = segments(nothing, unkeyed, nothing, nothing)
    behind_gap = LogBuilder()
    for key in range(4):
        behind_gap.append((f"k{key}", "1"))
    unkeyed(behind_gap)
    behind_gap.skip(3)
    behind_gap.roll()
    behind_gap.append(("k0", "2"))
    open_transaction = segments(nothing, unkeyed, lambda log: log.append(("t", "1"), producer=Producer(9, 0, 0, True)))
    lagging = segments(nothing, unkeyed, nothing)
    empty_active = segments(nothing, unkeyed)
    empty_active.roll()
    return [
        around(
            "unkeyed",
            "The batch that ends the range holds records without key only.",
            segments(nothing, unkeyed, nothing),
        ),
        around(
            "empty",
            "The batch that ends the range is empty already.",
            segments(nothing, lambda log: log.append_empty(2), nothing),
        ),
        around(
            "aborted",
            "The batch that ends the range is aborted data; its producer has newer ones.",
            segments(nothing, aborted, abort),
        ),
        around(
            "marker",
            "The batch that ends the range is a marker past its horizon; its producer has newer data.",
            segments(nothing, past_marker, later_data),
        ),
        around(
            "legacy-0",
            "The range ends with an unkeyed record of magic 0.",
            segments(nothing, legacy(0, "none"), nothing),
        ),
        around(
            "legacy-1",
            "The range ends with an unkeyed record of magic 1.",
            segments(nothing, legacy(1, "none"), nothing),
        ),
        around(
            "legacy-gzip",
            "The range ends with a gzip wrapper of magic 1 without any key.",
            segments(nothing, legacy(1, "gzip"), nothing),
        ),
        Scenario(
            "watermark-behind-gap",
            "An offset gap lies between an emptied batch and the round's end.",
            (Round(at(behind_gap, watermark=behind_gap.base_offsets[1])), Round(at(behind_gap))),
        ),
        Scenario(
            "watermark-open-transaction",
            "An open transaction bounds the round, the high watermark is above.",
            (Round(at(open_transaction)),),
        ),
        Scenario(
            "watermark-lag",
            "min.compaction.lag.ms bounds the round, the high watermark is above.",
            (Round(at(lagging), {"min.compaction.lag.ms": str(NOW_MS - START_MS - 12)}),),
        ),
        Scenario(
            "watermark-empty-active",
            "The active segment is empty, so the log's end is the round's end.",
            (Round(at(empty_active)),),
        ),
        Scenario(
            "watermark-moves",
            "An emptied batch is kept at the watermark, and goes in the next round, when the watermark has moved on.",
            (Round(at(moving, watermark=moving.base_offsets[2])), Round(result_with(moving.next_offset))),
        ),
    ]


def producers() -> list[Scenario]:
    """R-541: the order of its cases, which did not change."""

    def two(log: LogBuilder) -> None:
        log.append((None, "not the last"), producer=Producer(5, 0, 0))
        log.append((None, "5's last"), producer=Producer(5, 0, 1))
        log.append((None, "6's last"), producer=Producer(6, 0, 0))

    def aborted_last(log: LogBuilder) -> None:
        log.append(("k1", "a"), producer=Producer(7, 0, 0, transactional=True))
        log.end_transaction(7, 0, commit=False)

    log, of_aborted = segments(nothing, two, nothing), segments(nothing, aborted_last, nothing)
    forgetful = {"producer.id.expiration.ms": "1"}
    return [
        Scenario(
            "producers-last-batch",
            "Emptied batches of two producers end the range: their last ones stay, until they are forgotten.",
            (
                Round(at(log)),
                Round(at(log, watermark=log.base_offsets[2])),
                Round(at(log), forgetful),
                Round(at(log, watermark=log.base_offsets[2]), forgetful),
            ),
        ),
        Scenario(
            "producers-aborted-last-batch",
            "A producer's last batch is aborted data.",
            (Round(at(of_aborted)), Round(at(of_aborted), forgetful)),
        ),
    ]


def indexes() -> list[Scenario]:
    """R-538, R-303, R-310, D-02: damaged indexes, and zeros beside a marker."""

    def into_batch(data: bytearray) -> None:
        data[-4:] = (int.from_bytes(data[-4:], "big") + 13).to_bytes(4, "big")

    def version(high: int, low: int) -> Callable[[bytearray], object]:
        return lambda data: data.__setitem__(slice(0, 2), bytes((high, low)))

    log = segments(nothing, nothing, nothing, nothing, interval=100)
    names = [f"{base:020d}" for base in log.base_offsets]
    transactions = segments(aborted, abort, nothing, nothing)
    index_of_aborts = f"{transactions.base_offsets[1]:020d}.txnindex"
    return [
        Scenario(
            "index-of-earlier-source",
            "An index of a group's first source points into a batch: since 4.4 nobody looks.",
            (
                Round(changed(log, f"{names[0]}.index", into_batch)),
                Round(changed(log, f"{names[1]}.index", into_batch)),
            ),
        ),
        Scenario(
            "index-of-last-source",
            "An index of a group's last source points into a batch.",
            (Round(changed(log, f"{names[2]}.index", into_batch), refused=True),),
        ),
        Scenario(
            "index-of-first-dirty",
            "The map's first offset is looked up in an index that points into a batch.",
            (Round(changed(log, f"{names[1]}.index", into_batch, clean=9), refused=True),),
        ),
        Scenario(
            "index-partial-entry",
            "An index of an inactive segment ends in the middle of an entry.",
            (
                Round(changed(log, f"{names[1]}.index", lambda data: data.extend(b"\0\0\0")), refused=True),
                Round(changed(log, f"{names[1]}.timeindex", lambda data: data.extend(b"\0\0\0")), refused=True),
            ),
        ),
        Scenario(
            "index-zero-tails",
            "Indexes end in zeros beside a clean marker, as a power cut after 4.3.1's stop leaves them.",
            (
                Round(
                    changed(log, f"{names[3]}.index", lambda data: data.extend(bytes(400))),
                    {"segment.index.bytes": "480"},
                ),
                Round(
                    changed(log, f"{names[3]}.timeindex", lambda data: data.extend(bytes(360))),
                    {"segment.index.bytes": "480"},
                ),
            ),
        ),
        Scenario(
            "log-zero-tail",
            "The active segment ends in zeros beside a clean marker: with preallocate, after a power cut.",
            (Round(changed(log, f"{names[3]}.log", lambda data: data.extend(bytes(300))), refused=True),),
        ),
        Scenario(
            "txn-index-kept",
            "Entries of aborted transactions are kept as long as their marker.",
            (Round(at(transactions)),),
        ),
        Scenario(
            "txn-index-version",
            "An entry of the transaction index has another version than 0: 4.4 does not load the log.",
            tuple(
                Round(changed(transactions, index_of_aborts, version(*pair)), refused=True)
                for pair in ((0, 1), (1, 0), (255, 255))
            ),
        ),
    ]


def limits() -> list[Scenario]:
    """R-511, R-560: the longest record of a compressed batch, in the map and while copying."""
    length = 150

    def dirty(codec: str, size: int) -> LogBuilder:
        return segments(nothing, lambda log: log.append(record(size), ("k1", "1"), codec=codec), nothing)

    def of_legacy(magic: int, codec: str, size: int) -> LogBuilder:
        return segments(nothing, lambda log: log.append(legacy_record(magic, size), codec=codec, magic=magic), nothing)

    every = LogBuilder()
    for codec in CODECS:
        every.append(record(length), ("k1", "1"), codec=codec)
    every.append(("long", "v" * 500))
    every.roll()
    every.append(("k1", "2"))
    wrappers = LogBuilder()
    for magic in (0, 1):
        for codec in LEGACY_CODECS:
            wrappers.append(legacy_record(magic, length), codec=codec, magic=magic)
        wrappers.append(Record(b"long", b"v" * 500), magic=magic)
    wrappers.roll()
    wrappers.append(("k1", "2"))

    def long_in_second(log: LogBuilder) -> None:
        log.append(record(length), ("k1", "1"), codec="gzip")

    clean = segments(nothing, nothing, long_in_second, nothing, nothing)

    def long_aborted(log: LogBuilder) -> None:
        log.append(record(400), producer=Producer(7, 0, 0, transactional=True), codec="lz4")

    transactions = segments(nothing, long_aborted, abort, nothing)
    full = LogBuilder()
    for number in range(8):
        full.append((f"k{number}", "1"))
    full.roll()
    full.append(record(length), codec="gzip")
    full.roll()
    full.append(("k1", "2"))
    small = {LIMIT: str(length)}
    return [
        Scenario(
            "limit-equal",
            "A record as long as the limit passes in every codec; an uncompressed one may be longer.",
            (Round(at(every), small),),
            compressed=True,
        ),
        Scenario(
            "limit-exceeded",
            "A record one byte longer than the limit, in each codec: nothing is written.",
            tuple(Round(at(dirty(codec, length + 1)), small) for codec in CODECS),
            compressed=True,
        ),
        Scenario(
            "limit-equal-legacy",
            "Entries of magic 0 and 1 as long as the limit pass in every wrapper.",
            (Round(at(wrappers), small),),
            compressed=True,
        ),
        Scenario(
            "limit-exceeded-legacy",
            "An entry one byte longer than the limit in a wrapper of each magic and codec.",
            tuple(Round(at(of_legacy(magic, codec, length + 1)), small) for magic in (0, 1) for codec in LEGACY_CODECS),
            compressed=True,
        ),
        Scenario(
            "limit-in-clean-section",
            "The long record is in the clean section: the groups before it are swapped, the checkpoint stays.",
            (
                Round(
                    at(clean, clean=clean.base_offsets[3]),
                    {LIMIT: str(length - 1), "internal.segment.bytes": "500"},
                ),
            ),
            compressed=True,
        ),
        Scenario(
            "limit-aborted",
            "Aborted data are not decompressed, neither for the map nor to be dropped.",
            (Round(at(transactions), small), Round(at(transactions, clean=transactions.base_offsets[2]), small)),
            compressed=True,
        ),
        Scenario(
            "limit-map-full",
            "The map is full before the batch with the long record.",
            (Round(at(full), {LIMIT: "100", "log.cleaner.dedupe.buffer.size": str(24 * 8)}),),
            compressed=True,
        ),
    ]


def families() -> list[Scenario]:
    """What the other goldens show for 4.3, repeated for each release on small logs."""
    days = [NOW_MS, NOW_MS + 1000, NOW_MS + 90_000_000]

    def tombstones(log: LogBuilder) -> None:
        log.append(("k1", None), ("k2", None))

    def transaction(log: LogBuilder) -> None:
        log.append(("k1", "a"), ("t", "a"), producer=Producer(11, 0, 0, transactional=True))
        log.append(("k2", "b"), producer=Producer(12, 0, 0, transactional=True))
        log.end_transaction(11, 0, commit=True)
        log.append(("k3", "c"), producer=Producer(12, 0, 1, transactional=True))
        log.end_transaction(12, 0, commit=False)

    def again(path: Path, before: Path | None) -> None:
        """Take the last result, as dirty as if its checkpoint had been lost."""
        assert before is not None
        shutil.copytree(before, path, copy_function=shutil.copy2)
        (path / CLEANER_OFFSETS).write_bytes(offset_checkpoint({}))

    def repeated(log: LogBuilder) -> tuple[Round, ...]:
        return (Round(at(log)), Round(again, now_ms=days[1]), Round(again, now_ms=days[2]))

    compressed = []
    for codec in CODECS:
        log = LogBuilder(index_interval_bytes=100)
        for number in range(3):
            for key in range(0, 24, 6):
                log.append(*((f"k{(key + i) * (number + 1) % 37}", f"{number}" * 40) for i in range(6)), codec=codec)
            log.roll()
        log.append(("k0", "active"))
        compressed.append(
            Scenario(
                f"family-{codec}", f"Batches of {codec}, rewritten, copied and dropped.", repeated(log), compressed=True
            )
        )
    old = LogBuilder()
    for magic, codec in ((0, "none"), (0, "gzip"), (1, "none"), (1, "snappy"), (1, "lz4")):
        old.append(
            *((f"k{i}", f"{magic}{codec}") for i in range(4)), (None, "x"), ("k3", None), magic=magic, codec=codec
        )
        old.roll()
    old.append(("k0", "2"))
    gaps = LogBuilder(index_interval_bytes=60)
    for number in range(12):
        gaps.append((f"k{number % 4}", "v"), ("k9", "w"), last_offset=gaps.next_offset + 3 if number % 3 == 0 else None)
        gaps.skip(number % 5)
        if number % 4 == 3:
            gaps.roll()
    gaps.append(("k0", "active"))
    retention = LogBuilder(timestamp_ms=START_MS - 10_000_000)
    for number in range(4):
        retention.timestamp_ms = START_MS - 10_000_000 + number * 4_000_000
        retention.append(*((f"k{number}-{i}", "v") for i in range(3)), ("k", str(number)))
        retention.roll()
    retention.append(("k", "active"))
    many = segments(
        nothing, *[lambda log: log.append(*((f"m{log.next_offset + i}", "v") for i in range(6)))] * 3, nothing
    )
    return [
        Scenario(
            "family-tombstones",
            "Tombstones get a horizon, stay, and go.",
            repeated(segments(tombstones, nothing, tombstones, nothing)),
        ),
        Scenario(
            "family-transactions",
            "Commits, aborts and their markers, through three rounds.",
            repeated(segments(nothing, transaction, nothing)),
        ),
        *compressed,
        Scenario("family-legacy", "Magic 0 and 1, plain and in wrappers.", repeated(old), compressed=True),
        Scenario("family-offset-gaps", "Gaps in batches and between them.", repeated(gaps)),
        Scenario(
            "family-compact-delete",
            "compact,delete: the round, then retention.",
            (
                Round(
                    at(retention),
                    {"cleanup.policy": "compact,delete", "retention.ms": "8000000", "internal.segment.bytes": "200"},
                    now_ms=START_MS,
                    retention=True,
                ),
            ),
        ),
        Scenario(
            "family-map-full",
            "A map of nine entries: rounds that end before the dirty section does.",
            tuple(
                Round(write, {"log.cleaner.dedupe.buffer.size": str(24 * 11)})
                for write in (at(many), result_with(many.next_offset), result_with(many.next_offset))
            ),
        ),
    ]


def scenarios() -> list[Scenario]:
    """Return all scenarios."""
    return [*watermarks(), *producers(), *indexes(), *limits(), *families()]
