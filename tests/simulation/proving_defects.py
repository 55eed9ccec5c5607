"""Planted defects of `prove-erased`; see `planting.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.format.chunks import COMPRESSION_MASK, TRANSACTIONAL_FLAG, Batches, Mask
from cleaner.kernels.codec_table import ZSTD
from cleaner.storage.segment import names
from cleaner.verification.proof.erased import batch_search, prove, tree, wanted
from tests.simulation.planting import breaks


def _without(real: Any, search: Any, path: Any, chunk: Any, rest: Any, is_left_out: Callable[[Batches], Mask]) -> Any:
    part = replace(chunk, batches=chunk.batches[~is_left_out(chunk.batches)])
    return real(search, path, part, *rest)


@breaks(batch_search.BatchSearch, "search")
def proofs_pass_over_transactions(real: Any, search: Any, path: Any, chunk: Any, *rest: Any) -> Any:
    """Their records may be aborted, and no reader would see them."""
    return _without(
        real,
        search,
        path,
        chunk,
        rest,
        lambda rows: (rows["magic"] == 2) & (rows["attributes"] & TRANSACTIONAL_FLAG != 0),
    )


@breaks(batch_search.BatchSearch, "search")
def proofs_pass_over_a_codec(real: Any, search: Any, path: Any, chunk: Any, *rest: Any) -> Any:
    """As if there were no key in what zstd has packed."""
    return _without(real, search, path, chunk, rest, lambda rows: rows["attributes"] & COMPRESSION_MASK == ZSTD)


@breaks(batch_search.BatchSearch, "search")
def proofs_pass_over_old_formats(real: Any, search: Any, path: Any, chunk: Any, *rest: Any) -> Any:
    """Only batches of magic 2 are searched."""
    return _without(real, search, path, chunk, rest, lambda rows: rows["magic"] < 2)


@breaks(prove, "list_trees")
def proofs_pass_over_deleted_files(real: Any, *args: Any) -> Any:
    """As if they were gone already."""
    found = real(*args)
    found.files = {path: each for path, each in found.files.items() if not names.is_deleted(path.name)}
    return found


@breaks(wanted.WantedKeys, "in_bytes")
def proofs_lose_keys_at_borders(real: Any, keys: Any, data: Any, size: int, spare: int = 0) -> Any:
    """Bytes are searched a window at a time, and nothing is carried over."""
    return real(keys, data, size - spare)


@breaks(tree.Identity, "of")
def proofs_do_not_notice_changes(_real: Any, about: Any) -> Any:
    """Files count as unchanged."""
    return tree.Identity(0, 0, about.st_size, 0, 0)


@breaks(prove.Answer, "doubt")
def proofs_do_not_doubt(_real: Any, *_: Any) -> None:
    """What cannot be searched is not told."""


@breaks(wanted.WantedKeys, "of_records")
def proofs_miss_the_last_key_of_a_block(real: Any, keys: Any, layout: Any) -> Any:
    """One off."""
    found = real(keys, layout)
    return np.concatenate([found[:-1], np.full(len(found[-1:]), -1)])
