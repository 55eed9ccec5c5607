"""
Every way to change one thing in a cleaned log dir, named as the table in `docs/verify.md` names it.

Checksums are made right again: what is asked is whether a change is found that only the content gives away.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.format.checksums import crc32c
from tests.support.batch_builder import Producer, Record, data_batch, empty_batch
from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir

NAME = "topic-0"
NOW_MS = START_MS + 100_000
SETTINGS = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "1000000",
    "index.interval.bytes": "100",
    "internal.segment.bytes": "3000",
}
_FIRST_PART_MS = 10_000


class Change(NamedTuple):
    """One thing changed: what, where, and the file's new content, None for none."""

    what: str
    place: str
    file: str
    data: bytes | None


def cleaned_log_dirs(work: Path) -> tuple[Path, Path]:
    """
    Write a log of many kinds of batches, and clean it once; returns the log dirs before and after.

    Some of it was cleaned before: there are markers without data, with and without a horizon, and empty batches.
    """
    log = LogBuilder(index_interval_bytes=100)
    log.append(("old", "1"), ("old", None), producer=Producer(5, 0, 0))
    log.end_transaction(8, 0, commit=False, delete_horizon_ms=NOW_MS + 500)
    log.end_transaction(9, 0, commit=True)
    for number in range(12):
        log.append(
            (f"a{number}", "v" * 20), (f"b{number % 4}", f"w{number}"), codec="gzip" if number % 5 == 0 else "none"
        )
        if number == 4:
            log.append(("t", None), ("u", "x"))
        if number % 3 == 0:
            log.append((f"p{number % 2}", "y"), (f"q{number}", "y"), producer=Producer(5, 0, 2 + number))
    log.append(("at", "1"), ("at", "2"), append_time_ms=NOW_MS - 500)
    log.roll()
    for number, commits in enumerate((True, False, True, False)):
        log.append(
            (f"x{number % 2}", "1"), (f"y{number}", "2"), producer=Producer(7, 0, 2 * number, transactional=True)
        )
        log.end_transaction(7, 0, commit=commits)
    log.leader_epoch = 3
    log.append(("b0", "last"), ("b1", "last"), ("c", "last"))
    log.append(("gone", "1"), producer=Producer(6, 0, 0))
    log.append(("d", None))
    log.roll()
    log.append(("gone", "2"), ("e", "f"))
    log.append((None, "no key"))
    log.roll()
    log.append(("head", "1"), ("c", "behind"), producer=Producer(5, 0, 40))
    log.append(("h", "2"), producer=Producer(7, 1, 0, transactional=True))
    log.end_transaction(7, 1, commit=False)
    before, after = work / "before", work / "after"
    high = {TopicPartition.parse(NAME): log.next_offset}
    for path in (before, after):
        write_log_dir(path, log, high_watermarks=high, log_start_offsets={})
    report = cleaner.clean(after, NAME, SETTINGS, now_ms=NOW_MS)
    assert report.end_offset == log.base_offsets[-1]
    return before, after


def changes(log_dir: Path) -> Iterator[Change]:
    """Return every change of a log dir."""
    for path in sorted((log_dir / NAME).iterdir()):
        make = _OF_SUFFIX.get(path.suffix) or _OF_NAME.get(path.name)
        if make is not None:
            for what, place, data in make(path.read_bytes()):
                yield Change(what, place, f"{NAME}/{path.name}", data)
    for name in ("cleaner", "replication", "recovery-point", "log-start"):
        yield from _checkpoint(log_dir, f"{name}-offset-checkpoint")


Made = Iterator[tuple[str, str, bytes | None]]

# Field, position, struct format, and what is done to it.
_FIELDS = (
    ("`baseOffset`", 0, ">q"),
    ("`partitionLeaderEpoch`", 12, ">i"),
    ("`lastOffsetDelta`", 23, ">i"),
    ("`baseTimestamp`", 27, ">q"),
    ("`maxTimestamp`", 35, ">q"),
    ("`producerId`", 43, ">q"),
    ("`producerEpoch`", 51, ">h"),
    ("`baseSequence`", 53, ">i"),
    ("`recordsCount`", 57, ">i"),
)
_BITS = (
    ("`attributes`: codec", 0x01),
    ("`attributes`: codec", 0x03),
    ("`attributes`: timestamp type", 0x08),
    ("`attributes`: transactional", 0x10),
    ("`attributes`: control", 0x20),
    ("`attributes`: delete horizon", 0x40),
    ("`attributes`: without a meaning", 0x80),
    ("`attributes`: without a meaning", 0x100),
)


def _log(data: bytes) -> Made:
    batches = split_batches(data)
    for number, batch in enumerate(batches):
        info = batch_info(batch)
        kind = "marker" if batch[22] & 0x20 else "empty" if not info.record_count else "data"
        place = f"{kind} at {info.base_offset}"

        def put(new: bytes, count: int = 1, at: int = number) -> bytes:
            return b"".join([*batches[:at], new, *batches[at + count :]])

        for name, at, form in _FIELDS:
            (value,) = struct.unpack_from(form, batch, at)
            for step in (1, -1):
                yield name, f"{place} {step:+}", put(_with(batch, at, form, value + step))
        for name, bit in _BITS:
            (value,) = struct.unpack_from(">h", batch, 21)
            yield name, place, put(_with(batch, 21, ">h", value ^ bit))
        yield "`magic`", place, put(_with(batch, 16, ">b", 1))
        yield "`crc`", place, put(batch[:17] + bytes([batch[17] ^ 1]) + batch[18:])
        yield "a batch dropped", place, put(b"")
        if info.record_count and not batch[22] & 7:
            yield "a record's attributes", place, put(_with(batch, 62, ">b", 1))
            yield "a byte of a record", place, put(_with(batch, len(batch) - 2, ">B", batch[-2] ^ 1))
        if number and info.base_offset > batch_info(batches[number - 1]).last_offset + 1:
            first = batch_info(batches[number - 1]).last_offset + 1
            empty = empty_batch(first, info.base_offset - 1, max_timestamp_ms=START_MS)
            yield "a superfluous batch without records", f"at {first}", put(empty + batch)
            extra = data_batch([Record(b"invented", b"v")], first, timestamp_ms=START_MS)
            yield "a superfluous batch with records", f"at {first}", put(extra + batch)


def _with(batch: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(batch)
    bits = 8 * struct.calcsize(form)
    if form != ">B":
        value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def _entries(form: str, names: tuple[str, ...], what: str) -> Callable[[bytes], Made]:
    size = struct.calcsize(form)

    def make(data: bytes) -> Made:
        yield f"{what}: file dropped", "", None
        count = len(data) // size
        for number in range(count):
            is_last = " last" if number == count - 1 else ""
            rest = data[: number * size] + data[(number + 1) * size :]
            yield f"{what}:{is_last} entry dropped", f"entry {number}", rest
            values = struct.unpack_from(form, data, number * size)
            for column, name in enumerate(names):
                for step in (1, -1):
                    changed = [*values]
                    changed[column] += step
                    entry = struct.pack(form, *changed)
                    new = data[: number * size] + entry + data[(number + 1) * size :]
                    yield f"{what}: {name} changed", f"entry {number} {step:+}", new

    return make


def _snapshot(data: bytes) -> Made:
    form = ">qhiqiqiq"
    names = (
        "producer id",
        "epoch",
        "last sequence",
        "last offset",
        "offset delta",
        "timestamp",
        "coordinator epoch",
        "open transaction",
    )
    yield "producer snapshot: file dropped", "", None
    size, head = struct.calcsize(form), 10
    count = (len(data) - head) // size
    for number in range(count):
        at = head + number * size
        values = struct.unpack_from(form, data, at)
        yield (
            "producer snapshot: producer dropped",
            f"entry {number}",
            _sealed(data[head:at] + data[at + size :], count - 1),
        )
        for column, name in enumerate(names):
            changed = [*values]
            changed[column] += 1
            body = data[head:at] + struct.pack(form, *changed) + data[at + size :]
            yield f"producer snapshot: {name} changed", f"entry {number}", _sealed(body, count)


def _sealed(entries: bytes, count: int) -> bytes:
    body = struct.pack(">i", count) + entries
    return struct.pack(">hI", 1, crc32c(body)) + body


def _epochs(data: bytes) -> Made:
    lines = data.decode().splitlines()[2:]

    def text(entries: list[str]) -> bytes:
        return "".join(f"{line}\n" for line in ["0", str(len(entries)), *entries]).encode()

    yield "leader epochs: file dropped", "", None
    for number, line in enumerate(lines):
        epoch, start = map(int, line.split())
        others = lines[:number], lines[number + 1 :]
        yield "leader epochs: entry dropped", line, text([*others[0], *others[1]])
        yield "leader epochs: epoch changed", line, text([*others[0], f"{epoch + 1} {start}", *others[1]])
        yield "leader epochs: offset changed", line, text([*others[0], f"{epoch} {start + 1}", *others[1]])


def _metadata(data: bytes) -> Made:
    yield "topic id: file dropped", "", None
    yield "topic id changed", "", data.replace(b"topic_id: A", b"topic_id: B")


_OF_SUFFIX: dict[str, Callable[[bytes], Made]] = {
    ".log": _log,
    ".index": _entries(">ii", ("offset", "position"), "offset index"),
    ".timeindex": _entries(">qi", ("timestamp", "offset"), "time index"),
    ".txnindex": _entries(
        ">hqqqq", ("version", "producer id", "first offset", "last offset", "last stable offset"), "transaction index"
    ),
    ".snapshot": _snapshot,
}
_OF_NAME = {"leader-epoch-checkpoint": _epochs, "partition.metadata": _metadata}


def _checkpoint(log_dir: Path, name: str) -> Iterator[Change]:
    lines = (log_dir / name).read_text().splitlines()[2:]
    what = f"`{name}`"
    topic, number = NAME.rsplit("-", 1)
    offset = int(lines[0].split()[2]) if lines else 0
    if lines:
        yield Change(f"{what}: line dropped", "", name, b"0\n0\n")
    for step in (1, -1) if lines else (3,):
        text = f"0\n1\n{topic} {number} {offset + step}\n"
        direction = "too far" if step > 0 else "too low"
        yield Change(f"{what}: {direction}", f"{step:+}", name, text.encode())
