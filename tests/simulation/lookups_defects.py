"""Planted defects of tables; see `planting.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cleaner.log.stream import RecordStream
from cleaner.log.table_index import TableIndex
from cleaner.state.table_file import TableFile
from tests.simulation.planting import breaks


@breaks(TableIndex, "stream")
def tables_have_aborted_records(_real: Any, index: Any, offset: Any) -> Any:
    """They are read like any other."""
    return RecordStream(index._files, index._view, offset, "read_uncommitted")


@breaks(TableIndex, "_note_end")
def tables_pass_over_a_record(real: Any, index: Any, stream: Any) -> None:
    """The first one behind each step."""
    real(index, stream)
    index.end_offset += 1


@breaks(TableIndex, "is_fresh")
def tables_never_look_again(_real: Any, index: Any) -> bool:
    """Once they have looked."""
    return bool(index._look_ns)


@breaks(TableIndex, "_facts")
def a_kept_index_ends_too_far(real: Any, index: Any) -> Any:
    """The next table does not read the first records that were appended since."""
    facts = real(index)
    return replace(facts, end_offset=facts.end_offset + 2)


@breaks(TableIndex, "_is_cut")
def tables_do_not_see_a_cut(_real: Any, _index: Any) -> bool:
    """An index of before is taken for one of what was appended since."""
    return False


@breaks(TableFile, "put")
def the_last_record_of_a_piece_is_not_put(real: Any, file: Any, keys: Any, offsets: Any, places: Any) -> None:
    """Of those that are read at once."""
    data, starts, sizes = keys
    real(file, (data, starts[:-1], sizes[:-1]), offsets[:-1], places[:-1])


@breaks(TableFile, "clear")
def an_index_is_not_emptied(real: Any, file: Any) -> None:
    """What was cut stays in it, with offsets above those of what came instead."""
    if not file.slots:
        real(file)
