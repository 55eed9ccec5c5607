"""
The manifest that Aiven's tiered-storage plugin puts beside a moved segment, and the sizes of its chunks.

A segment is three objects, `BASE-ID.log`, `BASE-ID.indexes` and `BASE-ID.rsm-manifest`; the manifest is written last.
The `.log` is the broker's file in chunks of the same size, each compressed by itself, or as it was. The `.indexes` are
the broker's index files one after the other. Everything read here may be damaged or hostile: every number has a bound.

Source: the plugin's `SegmentManifestV1`, `ChunkSizesBinaryCodec`, `ObjectKeyFactory` (1.1.1, and what followed it).
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import cramjam
import numpy as np
import numpy.typing as npt

LIMIT_BYTES = 1 << 20
"""The longest manifest that is read; one of a segment of 1 GiB in chunks of 4 MiB has 2 KiB."""

MAX_CHUNK_BYTES = 64 << 20
"""The longest compressed chunk that is unpacked; it is held in memory."""

_MAX_INT, _MAX_LONG = 2**31 - 1, 2**63 - 1
_MAX_SIZES_BYTES = 4 << 20  # of the packed chunk sizes: a million chunks
_MAX_EPOCHS = 100_000
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


class Extent(NamedTuple):
    """A stretch of the `.indexes`, bytes."""

    position: int
    size: int


@dataclass(frozen=True)
class Manifest:
    """
    What a manifest says.

    Attributes:
        start_offset, end_offset: of the segment, both inclusive.
        leader_epochs: (epoch, its first offset in the segment), ascending.
        size: bytes of the broker's file.
        chunk_bytes: of each chunk before compression; the last may be shorter.
        packed_sizes: the chunks' sizes in the object, as the manifest has them; empty if they are not compressed.
        indexes: where each index is, by the plugin's names.
        key_id: which key encrypts it; None: it is not encrypted.
    """

    start_offset: int
    end_offset: int
    leader_epochs: tuple[tuple[int, int], ...]
    size: int
    chunk_bytes: int
    packed_sizes: str
    indexes: Mapping[str, Extent]
    key_id: str | None


@functools.lru_cache(16)
def chunk_ends(packed_sizes: str, size: int, chunk_bytes: int, object_bytes: int) -> npt.NDArray[np.int64]:
    """
    Return where each compressed chunk ends in the object.

    Args:
        packed_sizes, size, chunk_bytes: as in the manifest.
        object_bytes: the object's size.
    Raises:
        ValueError: the sizes are damaged, or are not those of this object.
    """
    ends = np.cumsum(_chunk_sizes(packed_sizes), dtype=np.int64)
    if len(ends) != -(-size // chunk_bytes):
        raise ValueError(f"the manifest has {len(ends)} chunks of {chunk_bytes} bytes for {size} bytes")
    if ends[-1] != object_bytes:
        raise ValueError(f"the object has {object_bytes} bytes, and its chunks by the manifest {ends[-1]}")
    return ends


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest of at most `LIMIT_BYTES`. Raises ValueError, saying what is wrong."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply for a manifest") from None
    except ValueError as error:  # also text that is no UTF-8, and numbers of thousands of digits
        raise ValueError(f"not JSON ({str(error)[:80]})") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    if found.get("version") != "1":
        raise ValueError(f"its version is {str(found.get('version'))[:20]!r}; version '1' can be read")
    chunks, about = _object(found, "chunkIndex"), _object(found, "remoteLogSegmentMetadata")
    if found.get("compression") not in (True, False):
        raise ValueError("compression is neither true nor false")
    size = _number(chunks, "originalFileSize", _MAX_INT, least=1)
    chunk_bytes = _number(chunks, "originalChunkSize", _MAX_INT, least=1)
    key_id = None if found.get("encryption") is None else _key_id(found["encryption"])
    packed = ""
    if found["compression"] and key_id is None:
        packed = chunks.get("transformedChunks", "")
        if not isinstance(packed, str) or not packed:
            raise ValueError("it is compressed, and the manifest has no chunk index (transformedChunks)")
        if min(chunk_bytes, size) > MAX_CHUNK_BYTES:
            raise ValueError(f"compressed chunks of {chunk_bytes} bytes; up to {MAX_CHUNK_BYTES} are unpacked")
    start = _number(about, "startOffset", _MAX_LONG)
    end = _number(about, "endOffset", _MAX_LONG, least=start)
    indexes = _object(found, "segmentIndexes")
    extents = {
        name: Extent(_number(each, "position", _MAX_INT), _number(each, "size", _MAX_INT))
        for name in _INDEXES
        if indexes.get(name) is not None
        for each in (_object(indexes, name),)
    }
    return Manifest(
        start_offset=start,
        end_offset=end,
        leader_epochs=_leader_epochs(_object(about, "segmentLeaderEpochs")),
        size=size,
        chunk_bytes=chunk_bytes,
        packed_sizes=packed,
        indexes=extents,
        key_id=key_id,
    )


def unpack_chunk(data: bytes, size: int) -> bytes:
    """Unpack a compressed chunk that had `size` bytes. Raises ValueError: it has not."""
    out = bytearray(size)
    try:
        length = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        raise ValueError(f"not a chunk of {size} bytes in zstd ({str(error)[:80]})") from None
    if length != size:
        raise ValueError(f"unpacks to {length} bytes instead of {size}")
    return bytes(out)


def _chunk_sizes(packed: str) -> npt.NDArray[np.int64]:
    """Unpack the sizes: a count, the least size, bytes a size, each size above the least one, and the last in full."""
    try:
        data = base64.b64decode(packed, validate=True)
        out = bytearray(_MAX_SIZES_BYTES)
        data = bytes(out[: cramjam.zstd.decompress_into(data, out)])
    except (binascii.Error, ValueError, cramjam.DecompressionError) as error:
        raise ValueError(f"the manifest's chunk sizes are damaged ({str(error)[:80]})") from None
    count = int.from_bytes(data[:4], "big")
    if count == 1 and len(data) == 8:
        return np.frombuffer(data[4:], ">u4").astype(np.int64)
    width = data[8] if len(data) > 8 else 0
    if count < 2 or width not in (1, 2, 3, 4) or len(data) != 13 + (count - 1) * width:
        raise ValueError("the manifest's chunk sizes are damaged (their count is not that of their bytes)")
    rows = np.frombuffer(data, np.uint8, (count - 1) * width, 9).reshape(-1, width).astype(np.int64)
    above = rows @ (256 ** np.arange(width - 1, -1, -1, dtype=np.int64))
    return np.append(above + int.from_bytes(data[4:8], "big"), int.from_bytes(data[-4:], "big"))


def _object(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"it has no {name}")
    return value


def _number(found: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int:
    value = found.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {str(value)[:30]}, not a number from {least} to {most}")
    return value


def _leader_epochs(found: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    if not 0 < len(found) <= _MAX_EPOCHS or not all(re.fullmatch("[0-9]{1,10}", epoch) for epoch in found):
        raise ValueError("segmentLeaderEpochs are not epochs and their first offsets")
    epochs = sorted((int(epoch), _number(found, epoch, _MAX_LONG)) for epoch in found)
    if any(after <= before for (_, before), (_, after) in pairwise(epochs)):
        raise ValueError("segmentLeaderEpochs do not ascend")
    return tuple(epochs)


def _key_id(encryption: object) -> str:
    """Return the name of the key; what stands beside it is the key of the data, encrypted, and is not shown."""
    data_key = encryption.get("dataKey") if isinstance(encryption, dict) else None
    name = data_key.partition(":")[0] if isinstance(data_key, str) and ":" in data_key else ""
    return name if _KEY_ID.match(name) else "unknown"
