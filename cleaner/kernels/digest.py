"""
The 16-byte digest of a key: two words under a secret, of a round or of the directory of key indexes.

A public hash would let a producer delete other producers' records: anyone can build keys that collide in it. The first
word also selects the slot, so that no one can build keys that crowd one place of the map.

Keys of up to SHORT_BYTES, nearly all there are, have two independent multilinear hashes (Lemire and Kaser, "Strongly
universal string hashing is fast", 2013): the upper 64 of the 128 bits of

    a + b * size + c[0] * word[0] + c[1] * word[1] + ...

where a, b and c are secret numbers of 128 bits, and the words are the key's bytes, padded with zeros. Two keys that are
chosen without knowing the secret have one word in common with a chance of 2**-64, and the digest with 2**-128, whatever
they are: for random numbers that is proven, and these are made of 128 random bits by SHAKE-256. The first word is then
mixed by a function that can be undone, so that regular keys get no regular slots.

A longer key has SipHash-1-3 under the secret, and the low half of MurmurHash3 x64 128 (equal to `mmh3`): it is public,
and only makes collisions by chance impossible.
"""

from __future__ import annotations

from numba import uint64

from cleaner.kernels.compile import inlined_jit
from cleaner.kernels.memory import load_u64_le, multiply_high, rotate_left

SHORT_BYTES = 32

# The words of a secret: SipHash's key; then for each of the two words of a short key's digest the numbers a, b and c,
# the lower half of each first.
_SIP_KEY = 0
_FIRST = 2
_NUMBERS = 2 + SHORT_BYTES // 8
_SECOND = _FIRST + 2 * _NUMBERS
SECRET_WORDS = _SECOND + 2 * _NUMBERS

_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


@inlined_jit
def _tail(data, at, count):
    """Return the last `count` (0 to 7) bytes as a little-endian word; the buffer's padding allows the wide load."""
    if count == 0:
        return uint64(0)
    return load_u64_le(data, at) & ((uint64(1) << uint64(8 * count)) - uint64(1))


@inlined_jit
def _mix(word):
    word ^= word >> uint64(33)
    word *= uint64(0xFF51AFD7ED558CCD)
    word ^= word >> uint64(33)
    word *= uint64(0xC4CEB9FE1A85EC53)
    return word ^ (word >> uint64(33))


@inlined_jit
def murmur3_low(data, start, size):
    """Return the low 64 bits of MurmurHash3 x64 128, seed 0, of `data[start:start + size]`."""
    c1, c2 = uint64(_C1), uint64(_C2)
    h1 = uint64(0)
    h2 = uint64(0)
    at = start
    end = start + (size & -16)
    while at < end:
        k1 = rotate_left(load_u64_le(data, at) * c1, uint64(31)) * c2
        h1 = (rotate_left(h1 ^ k1, uint64(27)) + h2) * uint64(5) + uint64(0x52DCE729)
        k2 = rotate_left(load_u64_le(data, at + 8) * c2, uint64(33)) * c1
        h2 = (rotate_left(h2 ^ k2, uint64(31)) + h1) * uint64(5) + uint64(0x38495AB5)
        at += 16
    left = size & 15
    if left > 8:
        h2 ^= rotate_left(_tail(data, at + 8, left - 8) * c2, uint64(33)) * c1
    if left >= 8:
        h1 ^= rotate_left(load_u64_le(data, at) * c1, uint64(31)) * c2
    elif left > 0:
        h1 ^= rotate_left(_tail(data, at, left) * c1, uint64(31)) * c2
    h1 ^= uint64(size)
    h2 ^= uint64(size)
    h1 += h2
    h2 += h1
    h1 = _mix(h1)
    return h1 + _mix(h2)


@inlined_jit
def sip_round(v0, v1, v2, v3):
    """Do one round on the four words of SipHash's state."""
    v0 += v1
    v1 = rotate_left(v1, uint64(13)) ^ v0
    v0 = rotate_left(v0, uint64(32))
    v2 += v3
    v3 = rotate_left(v3, uint64(16)) ^ v2
    v0 += v3
    v3 = rotate_left(v3, uint64(21)) ^ v0
    v2 += v1
    v1 = rotate_left(v1, uint64(17)) ^ v2
    v2 = rotate_left(v2, uint64(32))
    return v0, v1, v2, v3


@inlined_jit
def siphash13(data, start, size, key0, key1):
    """Return SipHash-1-3 (64 bits) of `data[start:start + size]` under the 128-bit key (key0, key1)."""
    v0 = key0 ^ uint64(0x736F6D6570736575)
    v1 = key1 ^ uint64(0x646F72616E646F6D)
    v2 = key0 ^ uint64(0x6C7967656E657261)
    v3 = key1 ^ uint64(0x7465646279746573)
    at = start
    end = start + (size & -8)
    while at < end:
        word = load_u64_le(data, at)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        at += 8
    word = (uint64(size & 255) << uint64(56)) | _tail(data, at, size & 7)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3 ^ word)
    v0 ^= word
    v2 ^= uint64(255)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@inlined_jit
def _add_product(low, high, secret, at, word):
    """Add the product of `word` and a number of the secret to a sum of 128 bits."""
    factor = secret[at]
    product = factor * word
    low += product
    carry = uint64(low < product)
    return low, high + carry + multiply_high(factor, word) + secret[at + uint64(1)] * word


@inlined_jit
def _short_digest(data, start, size, secret):
    """Return the two words of a key of up to SHORT_BYTES bytes."""
    first, second, two = uint64(_FIRST), uint64(_SECOND), uint64(2)
    low_1, high_1 = _add_product(secret[first], secret[first + uint64(1)], secret, first + two, uint64(size))
    low_2, high_2 = _add_product(secret[second], secret[second + uint64(1)], secret, second + two, uint64(size))
    at, end = start, start + size
    while at < end:
        word = load_u64_le(data, at) if end - at >= 8 else _tail(data, at, end - at)
        first += two
        second += two
        low_1, high_1 = _add_product(low_1, high_1, secret, first + two, word)
        low_2, high_2 = _add_product(low_2, high_2, secret, second + two, word)
        at += 8
    return _mix(high_1), high_2


@inlined_jit
def digest_key(data, start, size, secret):
    """
    Return the two words of the digest of the key `data[start:start + size]`.

    Args:
        data: uint8 array with 8 readable bytes after the key.
        secret: uint64, SECRET_WORDS random words.
    """
    if size <= SHORT_BYTES:
        return _short_digest(data, start, size, secret)
    sip = siphash13(data, start, size, secret[uint64(_SIP_KEY)], secret[uint64(_SIP_KEY + 1)])
    return sip, murmur3_low(data, start, size)
