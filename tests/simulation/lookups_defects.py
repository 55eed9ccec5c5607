"""Planted defects of tables; see `planting.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cleaner.kernels import table as kernel
from cleaner.log.stream import RecordStream
from cleaner.log.table_index import TableIndex
from cleaner.state.table_file import TableFile
from cleaner.state.table_runs import TableRuns
from tests.simulation.planting import breaks


@breaks(TableIndex, "stream")
def tables_have_aborted_records(_real: Any, index: Any, offset: Any) -> Any:
    """They are read like any other."""
    return RecordStream(index._files, index._view, offset, "read_uncommitted")


@breaks(TableIndex, "_note_end")
def tables_pass_over_a_record(real: Any, index: Any, next_offset: Any, epoch: Any) -> None:
    """The first one behind each step."""
    real(index, next_offset, epoch)
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


@breaks(TableRuns, "groups")
def the_last_records_that_were_gathered_are_not_put(real: Any, runs: Any) -> Any:
    """Those that fill no run."""
    runs._used = 0
    return real(runs)


@breaks(TableRuns, "_write_run")
def a_record_between_two_runs_is_left_out(real: Any, runs: Any) -> None:
    """The last one of each."""
    runs._used = max(0, runs._used - 1)
    real(runs)


@breaks(TableRuns, "groups")
def a_group_of_digests_is_not_put(real: Any, runs: Any) -> Iterator[Any]:
    """One after another."""
    for number, rows in enumerate(real(runs)):
        yield rows[:0] if number % 2 else rows


@breaks(TableRuns, "add")
def gathered_records_have_the_place_of_another(real: Any, runs: Any, keys: Any, offsets: Any, places: Any) -> None:
    """That of the first of their piece."""
    real(runs, keys, offsets, np.full_like(places, places[0]) if len(places) else places)


@breaks(TableFile, "put_gathered")
def a_run_is_put_in_front_of_those_before_it(real: Any, file: Any, gathered: Any) -> None:
    """Where the last record of a key counts by its turn, an older one stays."""
    groups = gathered.groups

    def aged() -> Iterator[Any]:
        for rows in groups():
            rows[2 :: kernel.ENTRY_WORDS] = 1
            yield rows.reshape(-1, kernel.ENTRY_WORDS)[::-1].ravel()

    gathered.groups = aged
    real(file, gathered)


@breaks(TableIndex, "begin")
def numbers_of_files_are_given_again(real: Any, index: Any) -> None:
    """Batches that were unpacked before a cut are found in what was appended since."""
    first = min(index.by_number, default=index._next_number)
    real(index)
    index._next_number = first
