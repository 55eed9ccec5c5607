"""Planted defects of `--recompress`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.app.keep_old import Keeper
from cleaner.cleaning.recopy.recompress import Recompressor
from cleaner.cleaning.round import round as round_module
from cleaner.format.chunks import TRANSACTIONAL_FLAG
from cleaner.kernels import join
from tests.simulation.planting import breaks


def _with_rows(args: tuple[Any, ...], **columns: Any) -> tuple[Any, ...]:
    """Return the arguments of `take_batches` with some columns of its batches changed."""
    data, unpacked, rows, *rest = args
    rows = rows.copy()
    for name, value in columns.items():
        rows[name] = value
    return data, unpacked, rows, *rest


@breaks(join, "take_batches")
def packing_joins_batches_of_producers(real: Any, *args: Any) -> Any:
    """As if nobody knew the bounds of what a producer has sent."""
    rows = args[2]
    flags = rows["attributes"] & ~TRANSACTIONAL_FLAG
    return real(*_with_rows(args, producer_id=-1, producer_epoch=-1, base_sequence=-1, attributes=flags))


@breaks(join, "take_batches")
def packing_takes_the_first_batch_for_the_base_of_times(real: Any, *args: Any) -> Any:
    """Records of later batches keep their deltas, and so get other timestamps."""
    rows, state = args[2], args[-1]
    base = state[join.RUN_BASE_TIMESTAMP] if state[join.RUN_BATCHES] else (rows["base_timestamp"][:1] or [0])[0]
    return real(*_with_rows(args, base_timestamp=base))


@breaks(join, "take_batches")
def packing_counts_offsets_from_each_batch(real: Any, *args: Any) -> Any:
    """Offsets move down to close the gaps that removed records have left."""
    rows, state = args[2], args[-1]
    if not len(rows):
        return real(*args)
    first = int(state[join.RUN_LAST_OFFSET]) + 1 if state[join.RUN_BATCHES] else int(rows["base_offset"][0])
    lengths = rows["last_offset"] - rows["base_offset"] + 1
    bases = first + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return real(*_with_rows(args, base_offset=bases, last_offset=bases + lengths - 1))


@breaks(join, "seal_run")
def packing_keeps_the_time_of_the_first_batch(real: Any, out: Any, at: Any, end: Any, codec: Any, state: Any) -> Any:
    """The header's largest timestamp is that of the first of the joined batches."""
    state = state.copy()
    state[join.RUN_MAX_TIMESTAMP] = min(state[join.RUN_MAX_TIMESTAMP], state[join.RUN_BASE_TIMESTAMP])
    return real(out, at, end, codec, state)


@breaks(Recompressor, "end")
def packing_loses_what_is_open_at_the_end(real: Any, packer: Any) -> Any:
    """The last run of a segment is not written."""
    packer._run[:] = 0
    return real(packer)


@breaks(Recompressor, "__init__")
def packing_knows_no_limit(real: Any, packer: Any, target: Any, _limit: Any, *rest: Any) -> None:
    """Batches become larger than max.message.bytes."""
    real(packer, target, 1 << 20, *rest)


@breaks(Recompressor, "add")
def packing_takes_all_for_unchanged(real: Any, *args: Any, **named: Any) -> Any:
    """Segments stay in place, whatever becomes of their batches."""
    return replace(real(*args, **named), is_equal=True)


@breaks(Recompressor, "_close")
def packing_joins_nothing_across_chunks(real: Any, packer: Any) -> Any:
    """Runs keep their original batches."""
    packer._room = -(1 << 62)
    return real(packer)


@breaks(round_module, "rules_of")
def packing_lets_tombstones_go(real: Any, *args: Any) -> Any:
    """A round that was only asked to pack judges records as any other does."""
    return replace(real(*args), removes_nothing=False)


@breaks(Keeper, "keep")
def packing_keeps_no_old_segments(real: Any, keeper: Any, group: Any) -> Any:
    """What is packed cannot be undone."""
    return real(keeper, group[:0])
