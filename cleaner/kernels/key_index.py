"""
Compares the keys of an index with the offset map (`state/key_index.py` describes the file).

An index has the first bits of its keys' digests, in ascending order. The map's slots follow the same order, as a
key's first slot is its digest scaled to the number of slots. So both are walked from start to end.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import jit
from cleaner.kernels.memory import multiply_high
from cleaner.kernels.offset_map import WORDS

LOW_BITS = 32  # of a digest that are stored for each key; the bits above them are the bucket's number


@jit
def find_common(table, slots, bucket_bits, first_bucket, counts, lows):
    """
    Tell whether the map has a key of these buckets.

    Args:
        table, slots: the map; at least one slot is free.
        bucket_bits: how many of a digest's first bits number a bucket, 0 to 32.
        first_bucket: number of the first one.
        counts: uint16, the keys of each bucket.
        lows: uint32, the following LOW_BITS bits of each key, ascending in a bucket; as many as `counts` say.
    Returns:
        True if the first `bucket_bits` + LOW_BITS bits of a digest are those of a key in the map.
    """
    spare = uint64(64 - LOW_BITS - bucket_bits)
    at = int64(0)
    for i in range(counts.size):
        bucket = uint64(first_bucket + i) << uint64(LOW_BITS)
        for _ in range(int64(counts[i])):
            prefix = bucket | uint64(lows[at])
            at += 1
            least = prefix << spare
            # One slot, or two: there are far more prefixes than slots.
            slot = int64(multiply_high(least, uint64(slots)))
            last = int64(multiply_high(least | ((uint64(1) << spare) - uint64(1)), uint64(slots)))
            beyond = last - slot
            while True:
                if table[WORDS * slot + 2] == uint64(0):
                    if beyond <= 0:
                        break
                elif table[WORDS * slot] >> spare == prefix:
                    return True
                beyond -= 1
                slot += 1
                if slot == slots:
                    slot = int64(0)
    return False
