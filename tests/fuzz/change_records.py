"""Batches, entries of indexes and of snapshots changed, with checksums that are right again or not."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from tests.fuzz.change_bytes import Rng, change_bytes, flipped, odd
from tests.support.batch_builder import HEADER, HEADER_BYTES
from tests.support.batch_reader import split_batches
from tests.support.codecs import CODEC_IDS, compress, crc32c, decompress

# Names and widths of a header of magic 2, in bytes, with the position of each.
_MODERN = {
    "baseOffset": (0, 8),
    "length": (8, 4),
    "leaderEpoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "lastOffsetDelta": (23, 4),
    "baseTimestamp": (27, 8),
    "maxTimestamp": (35, 8),
    "producerId": (43, 8),
    "producerEpoch": (51, 2),
    "baseSequence": (53, 4),
    "count": (57, 4),
}
_LEGACY = {
    "offset": (0, 8),
    "size": (8, 4),
    "magic": (16, 1),
    "attributes": (17, 1),
    "timestamp": (18, 8),
    "key": (26, 4),
}
ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34, ".snapshot": 46}


def sealed(batch: bytes) -> bytes:
    """Put length and checksum right, whatever the magic is."""
    if len(batch) < 18:
        return batch
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    if batch[16] < 2:
        return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def change_log(rng: Rng, path: Path) -> str:
    """Change batches, mostly with checksums that are right again."""
    try:
        batches = split_batches(path.read_bytes())
    except (ValueError, struct.error):
        batches = []
    if not batches or rng.random() < 0.15:
        return change_bytes(rng, path)
    at = rng.randrange(len(batches))
    batch, what = batches[at], ""
    kind = rng.random()
    if kind < 0.45:
        what, batch = _change_header(rng, batch)
    elif kind < 0.65:
        changed = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            begin = min(len(changed) - 1, HEADER_BYTES if changed[16] > 1 else 18)
            changed[rng.randrange(begin, len(changed))] = rng.randrange(256)
        what, batch = "bytes of records", sealed(bytes(changed))
    elif kind < 0.75:
        what, batch = _change_packed(rng, batch)
    elif kind < 0.83:
        what, batch = "size", sealed(batch[: -rng.randrange(1, 30)] if rng.random() < 0.5 else batch + rng.randbytes(9))
    else:
        what = rng.choice(("again", "gone", "order", "of elsewhere"))
        other = rng.randrange(len(batches))
        if what == "again":
            batches.insert(other, batch)
        elif what == "order":
            batches[at], batches[other] = batches[other], batches[at]
            batch = batches[at]
        elif what == "of elsewhere":
            siblings = [sibling for sibling in sorted(path.parent.glob("*.log")) if sibling.is_file()]
            batch = batch + rng.choice(siblings).read_bytes()
        else:
            batch = b""
    if what != "again":
        batches[at] = batch
    path.write_bytes(b"".join(batches))
    return f"{path.name}: batch {at}: {what}"


def _change_header(rng: Rng, batch: bytes) -> tuple[str, bytes]:
    fields = _MODERN if batch[16] > 1 else _LEGACY
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(sorted(fields))
        position, width = fields[name]
        value = odd(rng, width)
        if rng.random() < 0.3:
            old = int.from_bytes(batch[position : position + width], "big")
            value = ((old + rng.choice((-1, 1, 2, -2, 100))) % 256**width).to_bytes(width, "big")
        if name == "magic":
            value = bytes((rng.choice((0, 1, 2, 3, 255)),))
        batch = batch[:position] + value + batch[position + width :]
        done.append(f"{name}={int.from_bytes(value, 'big', signed=True)}")
    is_length = done[-1].startswith(("length", "size"))
    if is_length and rng.random() < 0.5:
        return ", ".join(done), batch
    return ", ".join(done), sealed(batch)


def _change_packed(rng: Rng, batch: bytes) -> tuple[str, bytes]:
    """Change a batch's records and pack them again, with any codec."""
    if batch[16] < 2 or len(batch) < HEADER_BYTES:
        return "nothing", batch
    head = list(HEADER.unpack_from(batch))
    names = {number: name for name, number in CODEC_IDS.items()}
    try:
        records = bytearray(decompress(names[head[5] & 7], batch[HEADER_BYTES:]))
    except (KeyError, ValueError, IndexError, struct.error, zlib.error, EOFError, OSError):
        return "nothing", batch
    for _ in range(rng.choice((0, 1, 1, 4))):
        if records:
            records[rng.randrange(len(records))] = rng.randrange(256)
    if rng.random() < 0.2:
        records = records * rng.choice((2, 50, 3000))
    codec = rng.choice(sorted(CODEC_IDS))
    head[5] = head[5] & ~7 | CODEC_IDS[codec]
    packed = compress(codec, bytes(records))
    if rng.random() < 0.3:
        packed = bytes(flipped(rng, bytearray(packed)))
    return f"records, then {codec}", sealed(HEADER.pack(*head) + packed)


def change_entries(rng: Rng, path: Path) -> str:
    """Change an entry of an index or a snapshot; a snapshot's checksum is put right mostly."""
    width, data = ENTRY_BYTES[path.suffix], bytearray(path.read_bytes())
    if not data or rng.random() < 0.2:
        return change_bytes(rng, path)
    at = rng.randrange(len(data))
    size = rng.choice((1, 2, 4, 8))
    what = rng.choice(("number", "number", "number", "entry gone", "entry again", "no entry"))
    row = at // width * width
    if what == "number":
        data[at : at + size] = odd(rng, size)
    elif what == "entry gone":
        del data[row : row + width]
    elif what == "entry again":
        data[row:row] = data[row : row + width]
    else:
        data.clear()
    if path.suffix == ".snapshot" and len(data) >= 10 and rng.random() < 0.8:
        if rng.random() < 0.5:
            struct.pack_into(">i", data, 6, (len(data) - 10) // width)
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    path.write_bytes(data)
    return f"{path.name}: {what} at {at}"
