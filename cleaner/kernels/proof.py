"""
The parts of a proof that read every byte: digests of keys, and comparison of batches and records.

The digest is SipHash-2-4 with a 128-bit result, with a random key for each proof: no one can craft two keys with the
same digest, and by chance two of 10^9 keys collide once in 10^20 proofs. Cleaning uses another digest.
"""

from __future__ import annotations

from numba import int64, uint64

from cleaner.kernels.compile import inlined_jit, jit
from cleaner.kernels.digest import sip_round
from cleaner.kernels.memory import load_u8, load_u64_le
from cleaner.kernels.records import skip_headers

DIGEST_WORDS = 2

# Results of `compare_records` for two records at one offset.
SAME, KEY_DIFFERS, VALUE_DIFFERS, HEADERS_DIFFER, TIMESTAMP_DIFFERS = range(5)


@inlined_jit
def siphash24_wide(data, start, size, key0, key1):
    """Return SipHash-2-4-128 of `data[start:start + size]` under the key (key0, key1), as two words."""
    v0 = key0 ^ uint64(0x736F6D6570736575)
    v1 = key1 ^ uint64(0x646F72616E646F6D) ^ uint64(0xEE)
    v2 = key0 ^ uint64(0x6C7967656E657261)
    v3 = key1 ^ uint64(0x7465646279746573)
    at = start
    end = start + (size & -8)
    while at < end:
        word = load_u64_le(data, at)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3 ^ word)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = uint64(size & 255) << uint64(56)
    for i in range(size & 7):
        word |= load_u8(data, at + i) << uint64(8 * i)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


@jit
def digest_fields(data, starts, sizes, keys, digests):
    """
    Digest parts of an array.

    Args:
        data: uint8 array with all parts.
        starts, sizes: int64 arrays; a size of -1 is null, whose digest is not written.
        keys: uint64, the two words of the key.
        digests: uint64, DIGEST_WORDS a part.
    """
    for i in range(starts.size):
        if sizes[i] >= 0:
            first, second = siphash24_wide(data, starts[i], sizes[i], keys[0], keys[1])
            digests[DIGEST_WORDS * i] = first
            digests[DIGEST_WORDS * i + 1] = second


@inlined_jit
def _are_same(left, left_start, right, right_start, size):
    at = int64(0)
    while size - at >= 8:
        if load_u64_le(left, left_start + at) != load_u64_le(right, right_start + at):
            return False
        at += 8
    while at < size:
        if load_u8(left, left_start + at) != load_u8(right, right_start + at):
            return False
        at += 1
    return True


@jit
def find_same_batches(left, left_rows, right, right_rows, partners, same):
    """
    Tell which batches are the same bytes as their partners.

    Args:
        left, right: uint8 arrays with the batches.
        left_rows, right_rows: rows of BATCH_DTYPE.
        partners: int64, for each left row its right row, or -1.
        same: uint8, for each left row: set to 1 or 0.
    """
    for b in range(partners.size):
        same[b] = 0
        if partners[b] >= 0:
            mine = left_rows[b]
            other = right_rows[partners[b]]
            if mine.size == other.size and _are_same(left, mine.start, right, other.start, mine.size):
                same[b] = 1


@inlined_jit
def _field_is_same(left, left_start, left_size, right, right_start, right_size):
    return left_size == right_size and _are_same(left, left_start, right, right_start, max(left_size, int64(0)))


@jit
def compare_records(
    left,
    left_timestamps,
    left_keys,
    left_key_sizes,
    left_values,
    left_value_sizes,
    left_headers,
    right,
    right_timestamps,
    right_keys,
    right_key_sizes,
    right_values,
    right_value_sizes,
    right_headers,
    partners,
    verdicts,
):
    """
    Compare records with their partners, as `format.layout.Layout` lists both.

    Args:
        partners: int64, for each right record its left one, or -1.
        verdicts: uint8, for each right record: set to SAME or the first difference; SAME without a partner.
    """
    for r in range(partners.size):
        mate = partners[r]
        verdicts[r] = SAME
        if mate < 0:
            continue
        if not _field_is_same(left, left_keys[mate], left_key_sizes[mate], right, right_keys[r], right_key_sizes[r]):
            verdicts[r] = KEY_DIFFERS
        elif not _field_is_same(
            left, left_values[mate], left_value_sizes[mate], right, right_values[r], right_value_sizes[r]
        ):
            verdicts[r] = VALUE_DIFFERS
        elif left_timestamps[mate] != right_timestamps[r]:
            verdicts[r] = TIMESTAMP_DIFFERS
        else:
            left_end, _ = skip_headers(left, left_headers[mate], int64(left.size))
            right_end, _ = skip_headers(right, right_headers[r], int64(right.size))
            size = left_end - left_headers[mate]
            if not _field_is_same(
                left, left_headers[mate], size, right, right_headers[r], right_end - right_headers[r]
            ):
                verdicts[r] = HEADERS_DIFFER
