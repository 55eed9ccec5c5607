"""An estimate, from a sample, of what cleaning one log would do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """
    The effect of all rounds together, estimated from samples.

    Attributes:
        sampled_bytes, sample_part: how much was read, and as a part of the bytes that a round recopies.
        records: how many are left, one a key.
        dirty_keys: distinct keys of the dirty section.
        bytes_before, bytes_after, bytes_freed: of the `.log` files that are recopied, and of those that replace them.
        least_bytes_freed, most_bytes_freed: the 95 % range, as far as the sample shows; if it is wide, a larger sample
            is needed. Not a proof: the true number may lie outside.
        extra_disk_bytes: the most room needed at any time besides the old segments, minus what finished groups freed.
        seconds: on this machine with these settings, from rates measured while sampling; may be off by half.
    """

    sampled_bytes: int
    sample_part: float
    records: int
    dirty_keys: int
    bytes_before: int
    bytes_after: int
    bytes_freed: int
    least_bytes_freed: int
    most_bytes_freed: int
    extra_disk_bytes: int
    seconds: float


@dataclass(frozen=True)
class PackingEstimate:
    """
    The effect of packing the batches that stay (`--recompress`), estimated from samples.

    Attributes:
        recompress: how, as given.
        sampled_bytes: how much was packed.
        bytes_before, bytes_after: of the batches that stay, with and without it; more if they grow.
        seconds: so much longer the rounds take, on this machine; may be off by half.
    """

    recompress: str
    sampled_bytes: int
    bytes_before: int
    bytes_after: int
    seconds: float
