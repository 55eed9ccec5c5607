"""
What packing batches in another way makes of a segment (D-18): a slow twin of `cleaning/recopy/recompress.py`.

It works on whole segments and on records, one batch after the other, and packs with the codec that the caller gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.reference.batches import CODECS, LOG_APPEND_TIME, Batch, read_batches
from tests.support.batch_builder import varint
from tests.support.codecs import crc32c, decompress

Pack = Callable[[bytes], bytes]


def repacked(segment: bytes, codec: str, pack: Pack, limit: int, *, again: bool = False) -> bytes:
    """
    Return what becomes of a segment's bytes.

    Args:
        segment: whole batches.
        codec: the new one.
        pack: packs records with it.
        limit: `max.message.bytes`.
        again: batches that have the codec are packed again, because a level is asked for.
    """
    out, run, records = bytearray(), list[Batch](), b""
    for batch in read_batches(segment):
        if batch.magic < 2 or batch.control or not batch.count:
            out += _close(run, records, codec, pack, limit, again) + batch.raw
            run = []
            continue
        body = decompress(batch.codec, batch.raw[61:])
        if run and _belongs(run, batch):
            longer = records + _moved(body, batch, run[0])
            if 61 + len(longer) <= limit:
                run.append(batch)
                records = longer
                continue
        out += _close(run, records, codec, pack, limit, again)
        run, records = [batch], body
    return bytes(out + _close(run, records, codec, pack, limit, again))


def _is_free(batch: Batch) -> bool:
    """Tell whether nobody needs the bounds of a batch."""
    is_plain = not (batch.raw[21] | batch.raw[22] & 0x80) and not batch.transactional
    return is_plain and (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)


def _belongs(run: list[Batch], batch: Batch) -> bool:
    """Tell whether a batch may be joined with those of a run."""
    first = run[0]
    return (
        _is_free(first)
        and _is_free(batch)
        and first.raw[22] & ~7 == batch.raw[22] & ~7
        and first.leader_epoch == batch.leader_epoch
        and first.delete_horizon == batch.delete_horizon
        and (batch.timestamp_type != LOG_APPEND_TIME or first.max_timestamp == batch.max_timestamp)
        and batch.last_offset - first.base_offset < 2**31
    )


def _moved(body: bytes, batch: Batch, first: Batch) -> bytes:
    """Return a batch's records with deltas from the base of another one."""
    out, at = bytearray(), 0
    for _ in range(batch.count):
        size, at = _varint(body, at)
        end = at + size
        time, after = _varint(body, at + 1)
        offset, after = _varint(body, after)
        time += batch.base_timestamp - first.base_timestamp
        time = (time + 2**63) % 2**64 - 2**63
        record = body[at : at + 1] + varint(time) + varint(offset + batch.base_offset - first.base_offset)
        record += body[after:end]
        out += varint(len(record)) + record
        at = end
    return bytes(out)


def _close(run: list[Batch], records: bytes, codec: str, pack: Pack, limit: int, again: bool) -> bytes:
    """Return a run's one batch, or its batches as they are."""
    if not run:
        return b""
    originals = b"".join(batch.raw for batch in run)
    codecs = {batch.codec for batch in run}
    if len(run) == 1 and codecs == {codec} and (codec == "none" or not again):
        return originals
    packed, used = records, "none"
    if codec != "none" and len(pack(records)) < len(records):
        packed, used = pack(records), codec
    size = 61 + len(packed)
    if codec != "none" and codecs <= {codec, "none"} and size >= len(originals):
        return originals
    if size > max(limit, len(originals)):
        return originals
    header = bytearray(run[0].raw[:61])
    header[22] = header[22] & ~7 | CODECS.index(used)
    struct.pack_into(">i", header, 8, size - 12)
    struct.pack_into(">i", header, 23, run[-1].last_offset - run[0].base_offset)
    struct.pack_into(">q", header, 35, max(batch.max_timestamp for batch in run))
    struct.pack_into(">i", header, 57, sum(batch.count for batch in run))
    struct.pack_into(">I", header, 17, crc32c(bytes(header[21:]) + packed))
    return bytes(header) + packed


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
