"""Why a scan of batches stopped; in a separate file, so that importing these names does not load numba."""

from __future__ import annotations

# Positive values are damage; `format/chunks.py` has a message for each.
SCAN_END = 0  # the rest of the chunk is shorter than the batch that starts there
SCAN_TABLE_FULL = -1
SCAN_TOO_SHORT = 1
SCAN_BAD_MAGIC = 2
SCAN_BAD_CRC = 3
SCAN_BAD_COUNT = 4
SCAN_BAD_LAST_OFFSET = 5
SCAN_BAD_CODEC = 6
SCAN_OUT_OF_ORDER = 7
SCAN_COUNT_ABOVE_OFFSETS = 8
SCAN_COUNT_ABOVE_BYTES = 9

SMALLEST_RECORD_BYTES = 7  # length, attributes, two deltas, null key, null value, no headers
LARGEST_RECORD_BYTES = 2**31 - 1  # the largest length a record, or an entry of magic 0 or 1, can have

# Kinds of batches in a chunk, besides the bits of their attributes.
KIND_LEGACY = 0x100  # magic 0 or 1
KIND_PRODUCER = 0x200  # a batch with a producer id
