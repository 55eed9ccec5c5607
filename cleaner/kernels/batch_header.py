"""
The fields of a batch's header: the only table of their positions, used by everything that reads or writes headers.

    magic 2 (R-210):        HEADER_FIELDS, then the records
    magic 0 and 1 (R-240):  LEGACY_FIELDS, the timestamp of magic 1 only, then key and value

It is in this package because kernels use its numbers as constants; it does not load numba. `format/chunks.py` exports
it to higher layers. Values on disk never change.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import Final

import numpy as np

# (field, `struct` code), in file order.
HEADER_FIELDS: Final = (
    ("baseOffset", "q"),
    ("length", "i"),
    ("partitionLeaderEpoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("lastOffsetDelta", "i"),
    ("baseTimestamp", "q"),
    ("maxTimestamp", "q"),
    ("producerId", "q"),
    ("producerEpoch", "h"),
    ("baseSequence", "i"),
    ("recordsCount", "i"),
)
LEGACY_FIELDS: Final = (
    ("offset", "q"),
    ("length", "i"),
    ("crc", "I"),
    ("magic", "b"),
    ("attributes", "B"),
    ("timestamp", "q"),
)


def _positions(fields: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
    """Return where each field begins, and where the last one ends."""
    return tuple(accumulate((struct.calcsize(">" + code) for _, code in fields), initial=0))


HEADER: Final = struct.Struct(">" + "".join(code for _, code in HEADER_FIELDS))
LEGACY_HEADER: Final = struct.Struct(">" + "".join(code for _, code in LEGACY_FIELDS))
HEADER_DTYPE: Final = np.dtype([(name, np.dtype(code).newbyteorder(">")) for name, code in HEADER_FIELDS])
HEADER_POSITIONS: Final = _positions(HEADER_FIELDS)
(
    BASE_OFFSET_AT,
    LENGTH_AT,
    LEADER_EPOCH_AT,
    MAGIC_AT,
    CRC_AT,
    ATTRIBUTES_AT,
    LAST_OFFSET_DELTA_AT,
    BASE_TIMESTAMP_AT,
    MAX_TIMESTAMP_AT,
    PRODUCER_ID_AT,
    PRODUCER_EPOCH_AT,
    BASE_SEQUENCE_AT,
    COUNT_AT,
    HEADER_BYTES,
) = HEADER_POSITIONS
_, _, LEGACY_CRC_AT, _, LEGACY_ATTRIBUTES_AT, LEGACY_TIMESTAMP_AT, _LEGACY_HEADER_BYTES = _positions(LEGACY_FIELDS)

ATTRIBUTES_BYTE_AT: Final = ATTRIBUTES_AT + 1  # the low byte, all that is interpreted
LOG_OVERHEAD_BYTES: Final = LEADER_EPOCH_AT  # offset and length, which `length` does not count
HEAD_BYTES: Final = MAGIC_AT + 1  # up to the magic, inclusive: the same for all magics
CRC_FROM: Final = ATTRIBUTES_AT  # the CRC-32C covers the bytes from here to the batch's end
LEGACY_CRC_FROM: Final = LEGACY_CRC_AT + 4
LEGACY_KEY_AT: Final = (LEGACY_TIMESTAMP_AT, _LEGACY_HEADER_BYTES)  # of the key's length, by magic

MAGIC: Final = 2  # the one that brokers write; 0 and 1 are legacy
# Smallest whole batch, by magic: for magic 0 and 1 with the lengths of a null key and a null value.
MIN_BATCH_BYTES: Final = (LEGACY_KEY_AT[0] + 8, LEGACY_KEY_AT[1] + 8, HEADER_BYTES)

# Bits of the attributes.
COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08  # set: log append time
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40


def size_of(head: bytes | memoryview) -> int:
    """Return the size that a batch claims, including offset and length, from its first LOG_OVERHEAD_BYTES bytes."""
    return int.from_bytes(head[LENGTH_AT:LOG_OVERHEAD_BYTES], "big", signed=True) + LOG_OVERHEAD_BYTES


def base_offset_of(head: bytes | memoryview) -> int:
    """Return a batch's base offset; for magic 0 and 1 its last offset."""
    return int.from_bytes(head[BASE_OFFSET_AT:LENGTH_AT], "big", signed=True)


def max_timestamp_of(head: bytes) -> int:
    """Return a batch's largest timestamp (ms); -1 for magic 0, which has none (R-243), or a head that is too short."""
    at = {1: LEGACY_TIMESTAMP_AT, MAGIC: MAX_TIMESTAMP_AT}.get(head[MAGIC_AT] if len(head) > MAGIC_AT else 0, len(head))
    return int.from_bytes(head[at : at + 8], "big", signed=True) if at + 8 <= len(head) else -1
