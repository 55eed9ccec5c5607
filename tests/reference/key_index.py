"""Key indexes in plain form: sets of digests' first bits."""

from __future__ import annotations

from collections.abc import Iterable

_STORED_BITS = 32


def first_bits(digests: Iterable[int], bucket_bits: int) -> set[int]:
    """Return what an index of that many bucket bits knows of some digests of 64 bits."""
    return {digest >> (64 - bucket_bits - _STORED_BITS) for digest in digests}


def may_have_common(index: Iterable[int], dirty: Iterable[int], bucket_bits: int) -> bool:
    """Tell what an index must answer for the digests of a dirty section."""
    return not first_bits(index, bucket_bits).isdisjoint(first_bits(dirty, bucket_bits))
