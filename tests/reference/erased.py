"""Where a file's bytes hold some keys: every place is tried for a batch, every key is looked for with `in`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

from tests.reference.batches import Batch, Rec, read_batches, read_records
from tests.support.codecs import CODEC_IDS, BadStream, crc32c, decompress

_LEAST = (26, 34, 61)
_SHORTEST_RAW = 4
_CODECS = tuple(CODEC_IDS)


class Place(NamedTuple):
    """A place of a key; as `LeftOver`, with the key itself."""

    level: str
    position: int
    offset: int | None
    key: bytes


def places(data: bytes, keys: Collection[bytes], prefixes: Collection[bytes] = ()) -> set[Place]:
    """Return every place of a key in a file's bytes."""
    found: set[Place] = set()
    raw = bytearray()
    raw_from = at = 0
    while at < len(data):
        size = _size_of_sound(data, at)
        if not size:
            raw.append(data[at])
            at += 1
            continue
        found |= _as_bytes(bytes(raw), raw_from, {*keys, *prefixes})
        found |= _in_batch(data[at : at + size], at, keys, prefixes)
        at += size
        raw, raw_from = bytearray(), at
    return found | _as_bytes(bytes(raw), raw_from, {*keys, *prefixes})


def _as_bytes(data: bytes, start: int, keys: Collection[bytes]) -> set[Place]:
    return {Place("raw", start + at, None, key) for key in keys for at in _occurrences(data, key)}


def _occurrences(data: bytes, key: bytes) -> Iterator[int]:
    at = data.find(key) if len(key) >= _SHORTEST_RAW else -1
    while at >= 0:
        yield at
        at = data.find(key, at + 1)


def _size_of_sound(data: bytes, at: int) -> int:
    """Return the size of a batch with a right checksum at a place; 0 for none."""
    if len(data) - at < 17 or data[at + 16] > 2:
        return 0
    (size,) = struct.unpack_from(">i", data, at + 8)
    size, magic = size + 12, data[at + 16]
    if not _LEAST[magic] <= size <= len(data) - at:
        return 0
    raw = data[at : at + size]
    if magic == 2:
        return size if struct.unpack_from(">I", raw, 17)[0] == crc32c(raw[21:]) else 0
    return size if struct.unpack_from(">I", raw, 12)[0] == zlib.crc32(raw[16:]) else 0


def _in_batch(raw: bytes, at: int, keys: Collection[bytes], prefixes: Collection[bytes]) -> set[Place]:
    found: set[Place] = set()
    texts = {*keys, *prefixes}
    (batch,) = read_batches(raw)
    try:
        records = _records(batch)
    except (ValueError, IndexError, struct.error, BadStream):
        found |= _as_bytes(raw, at, texts)
        if batch.magic == 2 and batch.codec != "none":
            try:
                unpacked = decompress(batch.codec, raw[61:])
            except BadStream:
                return found
            found |= {Place("raw", at, None, key) for key in texts for _ in _occurrences(unpacked, key)}
        return found
    for record in records:
        if not batch.control and record.key is not None:
            for prefix in [each for each in sorted(prefixes) if record.key.startswith(each)][:1]:
                if record.key not in keys:
                    found.add(Place("record", at, record.offset, prefix))
            if record.key in keys:
                found.add(Place("record", at, record.offset, record.key))
        contents = [record.value, *(part for header in record.headers for part in header)]
        for content in contents:
            found |= {
                Place("mention", at, record.offset, key) for key in texts for _ in _occurrences(content or b"", key)
            }
    return found


def _records(batch: Batch) -> list[Rec]:
    if batch.magic == 2:
        if batch.count == 0 and len(batch.raw) > 61:
            raise ValueError("bytes behind no record")
        return read_records(batch)
    if batch.codec == "none" or not _is_nested(batch.raw):
        return [*read_records(batch), Rec(batch.last_offset, -1, _key_of(batch.raw), None)]
    return [Rec(batch.last_offset, -1, *each) for each in _entries(batch.raw)]


def _is_nested(raw: bytes) -> bool:
    inner = decompress(_CODECS[raw[17] & 7], _value_of(raw))
    return any(each.codec != "none" for each in read_batches(inner))


def _entries(raw: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    codec = _CODECS[raw[17] & 7]
    if codec == "none":
        yield _key_of(raw), _value_of(raw)
        return
    yield _key_of(raw), None
    for each in read_batches(decompress(codec, _value_of(raw))):
        yield from _entries(each.raw)


def _key_of(raw: bytes) -> bytes | None:
    at = 26 if raw[16] else 18
    (size,) = struct.unpack_from(">i", raw, at)
    return None if size < 0 else raw[at + 4 : at + 4 + size]


def _value_of(raw: bytes) -> bytes:
    at = (26 if raw[16] else 18) + 4 + len(_key_of(raw) or b"")
    (size,) = struct.unpack_from(">i", raw, at)
    return raw[at + 4 : at + 4 + max(0, size)]
