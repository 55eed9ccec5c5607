"""
Transactions across ranges: the state of producers at the start of each range.

Tasks read ranges in any order, but a batch is judged by the batches before it: was its producer's transaction aborted,
is there data of it without a marker? The transaction indexes list the aborted transactions, so the state at the start
of a range can be *assumed*: the aborted transactions that began before and whose marker comes later. A task starts with
that, and returns the state at the range's end and the markers it read. The driver then follows the ranges in order,
computes the rest of the state, and checks the assumptions. They are right in a log whose indexes fit its batches;
otherwise the job runs again with the computed states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.passes.producer_table import Rows
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.kernels import producer_table as table
from cleaner.kernels import transactions as kernel
from cleaner.spark.clean.plan import Range
from cleaner.storage.segment.indexes import FIRST_OFFSET, LAST_OFFSET, Aborts, abort_rows

Row = tuple[int, ...]
_PRODUCER = 0


@dataclass(frozen=True)
class PassState:
    """
    The state of a pass at some place of the log.

    Attributes:
        known: rows of `CleanedTransactions.known`, by producer.
        pending: aborted transactions that the pass has not reached.
    """

    known: tuple[Row, ...] = ()
    pending: tuple[Row, ...] = ()

    def begin(self) -> CleanedTransactions:
        """Return a pass that starts with this state."""
        rows = np.array(self.known, np.int64).reshape(-1, table.COLUMNS)
        return CleanedTransactions(rows, abort_rows([AbortedTxn(*row) for row in self.pending]))

    @staticmethod
    def of(transactions: CleanedTransactions) -> PassState:
        """Return the current state of a pass."""
        return PassState(_tuples(transactions.known), _tuples(transactions.pending))

    def aborting(self) -> PassState:
        """Return the part of the state that transaction indexes give: producers in an aborted transaction."""
        rows = [_with_state(row, kernel.ABORTED) for row in self.known if row[table.STATE] & kernel.ABORTED]
        return replace(self, known=tuple(rows))

    def add(self, entries: Sequence[Row]) -> PassState:
        """Return the state with more pending aborted transactions."""
        return replace(self, pending=tuple(sorted({*self.pending, *entries}, key=_by_first)))

    def is_like(self, other: PassState, offset: int) -> bool:
        """Tell whether both states take the same batches from `offset` on as aborted."""
        return self._settled(offset) == other._settled(offset)

    def _settled(self, offset: int) -> tuple[frozenset[int], frozenset[Row]]:
        aborting = {row[table.ID] for row in self.known if row[table.STATE] & kernel.ABORTED}
        aborting |= {entry[_PRODUCER] for entry in self.pending if entry[FIRST_OFFSET] <= offset}
        return frozenset(aborting), frozenset(entry for entry in self.pending if entry[FIRST_OFFSET] > offset)


@dataclass(frozen=True)
class PassSummary:
    """
    How one range changes the state of a pass; the task began with only `PassState.aborting`.

    Attributes:
        end: state at the range's end.
        committed, aborted: producers with a commit or an abort marker in the range.
    """

    end: PassState = field(default_factory=PassState)
    committed: frozenset[int] = frozenset()
    aborted: frozenset[int] = frozenset()

    def after(self, before: PassState) -> PassState:
        """Return the state after the range, given the whole state before it."""
        end = {row[table.ID]: row for row in self.end.known}
        for row in before.known:
            producer, state = row[table.ID], row[table.STATE]
            mine = end.get(producer, (producer, 0, *row[2:]))
            kept = state & kernel.COMMITTED if producer not in self.committed else 0
            if producer not in self.aborted and mine[table.STATE] & kernel.ABORTED:
                kept |= state & kernel.HAS_DATA
            end[producer] = _with_state(mine, mine[table.STATE] | kept)
        known = tuple(row for _, row in sorted(end.items()) if row[table.STATE])
        return PassState(known, self.end.pending)


def assume_states(ranges: Sequence[Range], aborts: Sequence[Aborts], first: int) -> list[PassState]:
    """
    Return the assumed state of a pass at the start of each range.

    Args:
        ranges: of the log, in order.
        aborts: for each range the aborted transactions that the pass learns when it reaches the range; may be empty.
        first: number of the range that the pass begins with; before it, the state is empty.
    """
    states = [PassState() for _ in ranges]
    state = PassState()
    for each in ranges[first:]:
        state = state.add(_tuples(aborts[each.number]))
        states[each.number] = state = _advance(state, each.first_offset, ranges[first].first_offset)
    return states


def _advance(state: PassState, offset: int, pass_offset: int) -> PassState:
    """Advance to an offset: transactions begin at their first offset, and end at their marker if the pass read it."""
    aborting = {row[table.ID]: row for row in state.known}
    begins = [(entry[FIRST_OFFSET], 0, entry) for entry in state.pending if entry[FIRST_OFFSET] < offset]
    entries = [*(entry for _, _, entry in begins), *((row[0], *row[2:]) for row in state.known)]
    ends = [(entry[LAST_OFFSET], 1, entry) for entry in entries if pass_offset <= entry[LAST_OFFSET] < offset]
    for _, is_end, entry in sorted(begins + ends):
        if is_end:
            aborting.pop(entry[_PRODUCER], None)
        else:
            aborting.setdefault(entry[_PRODUCER], (entry[_PRODUCER], kernel.ABORTED, *entry[1:]))
    pending = tuple(entry for entry in state.pending if entry[FIRST_OFFSET] >= offset)
    return PassState(tuple(row for _, row in sorted(aborting.items())), pending)


def follow(
    ranges: Sequence[Range],
    aborts: Sequence[Aborts],
    assumed: Sequence[PassState],
    summaries: Sequence[PassSummary],
    last_offsets: Sequence[int],
    first: int,
) -> tuple[list[PassState], int]:
    """
    Follow a pass through all ranges, with the tasks' summaries.

    Args:
        ranges, aborts, first: as for `assume_states`.
        assumed: the states that the tasks began with.
        summaries: the tasks' results.
        last_offsets: last offset of each range's first batch.
    Returns:
        The state at the start of each range, and the number of the first range whose assumed state was wrong, so that
        the job must run again; `len(ranges)` if all were right.
    """
    states = [PassState() for _ in ranges]
    state, certain_until = PassState(), len(ranges)
    for each in ranges[first:]:
        number = each.number
        states[number] = state = state.add(_tuples(aborts[number]))
        if number < certain_until and not state.is_like(assumed[number], last_offsets[number]):
            certain_until = number
        state = summaries[number].after(state)
    return states, certain_until


def _tuples(rows: Rows | Aborts) -> tuple[Row, ...]:
    return tuple(sorted(tuple(row) for row in rows.tolist()))


def _with_state(row: Row, state: int) -> Row:
    return (row[table.ID], state, *row[2:])


def _by_first(entry: Row) -> tuple[int, Row]:
    return entry[FIRST_OFFSET], entry
