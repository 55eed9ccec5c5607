"""Digests of the keys of a log in memory, listed as the engine's first pass lists them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cleaner.cleaning.offset_map import OffsetMap
from cleaner.kernels import offset_map as kernel
from tests.unit.kernels.arrays import padded, scan


@dataclass(frozen=True)
class Digested:
    """What `digest_records` returned and listed."""

    status: int
    digests: npt.NDArray[np.uint64]
    state: npt.NDArray[np.int64]

    @property
    def keyed(self) -> int:
        """Records listed."""
        return int(self.state[kernel.STATE_KEYED])


def digest(
    log: bytes,
    keys: npt.NDArray[np.uint64],
    *,
    first_dirty: int = 0,
    skipped: Sequence[int] = (),
    batch_count: int = 64,
) -> Digested:
    """List the digests of a log's bytes; `skipped` names batches by their place."""
    data = padded(log)
    found = scan(data, len(log), room=batch_count)
    assert found.covered == len(log)
    digests = np.zeros(kernel.DIGEST_WORDS * int(found.rows["count"].sum()), np.uint64)
    skip = np.zeros(len(found.rows), np.uint8)
    skip[list(skipped)] = 1
    state = np.zeros(kernel.STATE_CELLS, np.int64)
    status = kernel.digest_records(data, data, found.rows, skip, first_dirty, keys, digests, state)
    return Digested(int(status), digests, state)


def index(
    offset_map: OffsetMap, log: bytes, *, first_dirty: int = 0, skipped: Sequence[int] = (), batch_count: int = 64
) -> bool:
    """Put the keys of a log's bytes into a map; returns whether it was full."""
    found = digest(log, offset_map.keys, first_dirty=first_dirty, skipped=skipped, batch_count=batch_count)
    assert found.status == kernel.DIGEST_GOOD
    rows = found.digests.reshape(-1, kernel.DIGEST_WORDS)[: found.keyed]
    return offset_map.put(rows) < found.keyed


def slow_short_digest(key: bytes, secret: Sequence[int]) -> tuple[int, int]:
    """Return the digest of a key of up to 32 bytes, with Python's own numbers."""
    numbers = [low | high << 64 for low, high in zip(secret[2::2], secret[3::2], strict=True)]
    words = [1, len(key), *(int.from_bytes(key[at : at + 8], "little") for at in range(0, len(key), 8))]
    first, second = (
        sum(map(operator.mul, words, mine)) % 2**128 >> 64
        for mine in (numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :])
    )
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        first = (first ^ first >> 33) * factor % 2**64
    return first ^ first >> 33, second
