"""Planted defects of `check --replicas` and `clean --safe-tombstones`; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.app import safe_tombstones
from cleaner.cleaning.recopy import group
from cleaner.verification.proof.key_rows import OFFSET
from cleaner.verification.replicas import compare, keys, rows
from cleaner.verification.replicas.decided import AllMarkers, Decided
from tests.simulation.planting import breaks


@breaks(keys._Judged, "_compare")
def replicas_take_what_is_gone_for_expired(real: Any, judged: Any, best: Any, deletes: Any, *rest: Any) -> None:
    """Whoever does not have a key's last record is taken to have removed it as he may."""
    real(judged, best, np.ones_like(deletes), *rest)


@breaks(keys.RecordsOfKeys, "_last_ones")
def replicas_forget_what_came_later(real: Any, records: Any, taken: Any, end_offset: int) -> Any:
    """Records above the end of the shortest do not count, not even as those that supersede."""
    found = real(records, taken, end_offset)
    return found[found[:, OFFSET].astype(np.int64) < end_offset]


@breaks(rows.ReplicaRows, "_flag_of")
def replicas_show_aborted_records(_: Any, *_args: Any, **_named: Any) -> int:
    """Every record of a transaction counts."""
    return rows.VISIBLE


@breaks(AllMarkers, "next_marker")
def replicas_do_not_ask_each_other_for_markers(_: Any, *_args: Any) -> None:
    """Each replica knows only its own."""


@breaks(compare._SideBySide, "_find_contents")
def replicas_do_not_see_where_logs_part(_: Any, *_args: Any) -> None:
    """The same offset counts as the same record."""


@breaks(keys._Judged, "_note_needed")
def replicas_need_no_tombstones(_: Any, *_args: Any) -> None:
    """Nobody is behind."""


@breaks(Decided, "__init__")
def replicas_end_one_too_late(real: Any, reading: Any, *args: Any) -> None:
    """The end is taken for an offset that is there."""
    real(reading, *args)
    reading.end_offset += 1


@breaks(safe_tombstones.SafeTombstones, "offset_of")
def safe_offset_is_one_too_high(real: Any, *args: Any) -> int:
    """The first tombstone that must stay goes."""
    return int(real(*args)) + 1


@breaks(group, "hold_tombstones")
def safe_offset_holds_no_tombstones(_: Any, *_args: Any) -> int:
    """Only markers."""
    return 0


@breaks(group, "hold_markers")
def safe_offset_holds_no_markers(_: Any, *_args: Any) -> int:
    """Only tombstones."""
    return 0


@breaks(keys.RecordsOfKeys, "judge")
def safe_offset_passes_unseen_tombstones(real: Any, *args: Any) -> Any:
    """What a replica has passed without seeing it does not bound it."""
    return replace(real(*args), lowest_unseen=None)
