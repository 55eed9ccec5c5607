"""
Compares a log directory with Kafka's result for the same input; every difference becomes one line.

Compressed bytes are ours, so those batches are compared by header and records. Their index is compared with its own
log, entry by entry as R-320 demands, and not with Kafka's bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.reference.batches import Batch, read_batches, read_records
from tests.reference.log_state import Settings
from tests.reference.segment_writer import SegmentWriter
from tests.support.codecs import crc32c

CHECKPOINT = "-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory that counts: not `.lock`, and not what Kafka would still delete."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith(".deleted") and path.name != ".lock"
    }


def checkpoint_entries(text: bytes) -> set[str]:
    """Return the lines of an offset checkpoint; their order means nothing (R-113)."""
    lines = text.decode().splitlines()
    if lines and (lines[0] != "0" or int(lines[1]) != len(lines) - 2):
        return {f"unreadable: {lines}"}
    return set(lines[2:])


def differences(
    expected: Mapping[str, bytes],
    actual: Mapping[str, bytes],
    *,
    compressed: bool = False,
    source_batches: Collection[bytes] = (),
    index_interval_bytes: int = 4096,
) -> list[str]:
    """
    List what differs between two directories' files.

    Args:
        compressed: accept other bytes for compressed batches with equal headers and records.
        source_batches: the batches of the round's input: one of them in `expected` was copied and must be unchanged.
    """
    found = [f"{name}: missing" for name in expected if name not in actual]
    found += [f"{name}: not expected" for name in actual if name not in expected]
    for name in sorted(expected.keys() & actual.keys()):
        want, have = expected[name], actual[name]
        if want == have or name == MARKER:
            continue
        if name.endswith(CHECKPOINT):
            if checkpoint_entries(want) != checkpoint_entries(have):
                found.append(f"{name}: expected {checkpoint_entries(want)}, found {checkpoint_entries(have)}")
        elif compressed and name.endswith(".log"):
            found += [f"{name}: {line}" for line in log_differences(want, have, source_batches)]
        elif compressed and name.endswith((".index", ".timeindex")):
            found += _index_differences(name, expected, actual, index_interval_bytes)
        else:
            found.append(f"{name}: {first_difference(want, have)}")
    return found


def first_difference(want: bytes, have: bytes) -> str:
    """Say where two files part."""
    at = next((i for i, (x, y) in enumerate(zip(want, have, strict=False)) if x != y), min(len(want), len(have)))
    return f"differs at byte {at} (expected {len(want)} bytes, found {len(have)})"


def log_differences(want: bytes, have: bytes, source_batches: Collection[bytes] = ()) -> list[str]:
    """Compare two `.log` files batch by batch, free only in how compressed records are packed."""
    theirs, ours = read_batches(want), read_batches(have)
    found = [] if len(theirs) == len(ours) else [f"expected {len(theirs)} batches, found {len(ours)}"]
    if sum(len(batch.raw) for batch in ours) != len(have):
        found.append("bytes behind the last batch")
    for mine, kafkas in zip(ours, theirs, strict=False):
        if mine.raw == kafkas.raw:
            continue
        where = f"batch at byte {mine.position}"
        if kafkas.raw in source_batches:
            found.append(f"{where}: was to be copied unchanged")
        elif kafkas.magic < 2 or mine.magic < 2 or kafkas.codec == "none":
            found.append(f"{where}: {first_difference(kafkas.raw, mine.raw)}")
        elif _header(kafkas) != _header(mine):
            found.append(f"{where}: expected {_header(kafkas)}, found {_header(mine)}")
        elif read_records(kafkas) != read_records(mine):
            found.append(f"{where}: other records")
        elif crc32c(mine.raw[21:]) != int.from_bytes(mine.raw[17:21], "big"):
            found.append(f"{where}: wrong CRC")
    return found


def _header(batch: Batch) -> dict[str, object]:
    fields = (field.name for field in dataclasses.fields(batch))
    return {name: getattr(batch, name) for name in fields if name not in ("raw", "position")}


def _index_differences(
    name: str, expected: Mapping[str, bytes], actual: Mapping[str, bytes], index_interval_bytes: int
) -> list[str]:
    stem, suffix = name.rsplit(".", 1)
    log = actual.get(f"{stem}.log", b"")
    if log == expected.get(f"{stem}.log"):
        return [f"{name}: {first_difference(expected[name], actual[name])}"]
    writer = SegmentWriter(int(Path(stem).name), Settings(1, index_interval_bytes=index_interval_bytes))
    for batch in read_batches(log):
        writer.append(batch.raw)
    segment = writer.close([], 0)
    want = segment.index if suffix == "index" else segment.time_index
    return [] if want == actual[name] else [f"{name}: does not fit its log: {first_difference(want, actual[name])}"]
