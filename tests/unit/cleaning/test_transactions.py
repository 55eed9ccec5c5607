"""The transaction state of a pass: aborted data goes, markers outlive their data (R-530 to R-534)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.passes.transactions import CleanedTransactions
from cleaner.errors import CorruptBatchError
from tests.support.batch_builder import Producer, Record, data_batch, empty_batch, legacy_batch, marker_batch
from tests.unit.cleaning.retaining import only_chunk

pytestmark = pytest.mark.kernels

PATH = Path("some.log")
RECORD = [Record(b"k", b"v")]


def data(offset: int, producer_id: int) -> bytes:
    """Build a transactional batch of one record."""
    return data_batch(RECORD, offset, producer=Producer(producer_id, 0, 0, True))


def abort(offset: int, producer_id: int) -> bytes:
    """Build an abort marker."""
    return marker_batch(offset, producer_id, 0, commit=False)


def commit(offset: int, producer_id: int) -> bytes:
    """Build a commit marker."""
    return marker_batch(offset, producer_id, 0, commit=True)


def entry(producer_id: int, first: int, last: int) -> AbortedTxn:
    """Return an entry of a transaction index."""
    return AbortedTxn(producer_id, first, last, last + 1)


def discardable(log: list[bytes], aborts: list[AbortedTxn]) -> tuple[list[int], list[AbortedTxn]]:
    """Return which of a log's batches may go, and the aborts whose markers stay."""
    state = CleanedTransactions()
    state.add_aborted(aborts)
    return state.discardable(PATH, only_chunk(b"".join(log))).tolist(), retained(state)


def retained(state: CleanedTransactions) -> list[AbortedTxn]:
    """Return the aborts whose markers stay."""
    return [AbortedTxn(*row) for row in state.retained_aborts.tolist()]


@pytest.mark.parametrize(
    ("log", "aborts", "expected", "staying"),
    [
        pytest.param([data_batch(RECORD, 0), data_batch(RECORD, 1)], [], [0, 0], [], id="no-transactions"),
        pytest.param([data(0, 1), commit(1, 1)], [], [0, 0], [], id="committed"),
        pytest.param([commit(1, 1)], [], [1], [], id="commit-marker-without-data"),
        pytest.param([data(0, 1), commit(1, 1), commit(2, 1)], [], [0, 0, 1], [], id="second-commit-marker"),
        pytest.param([data(0, 1), abort(1, 1)], [entry(1, 0, 1)], [1, 0], [entry(1, 0, 1)], id="aborted"),
        pytest.param([abort(1, 1)], [entry(1, 0, 1)], [1], [], id="abort-marker-without-data"),
        pytest.param([abort(1, 1)], [], [1], [], id="abort-marker-without-entry"),
        pytest.param([data(0, 1), abort(1, 1)], [], [0, 1], [], id="data-without-entry-stays"),
        pytest.param(
            [data(0, 1), data(1, 2), abort(2, 1), commit(3, 2)],
            [entry(1, 0, 2)],
            [1, 0, 0, 0],
            [entry(1, 0, 2)],
            id="interleaved",
        ),
        pytest.param(
            [data(0, 1), data_batch(RECORD, 1, producer=Producer(1, 0, 1)), abort(2, 1)],
            [entry(1, 0, 2)],
            [1, 0, 0],
            [entry(1, 0, 2)],
            id="data-outside-of-the-transaction",
        ),
        pytest.param(
            [data(0, 1), abort(1, 1), data(2, 1), commit(3, 1), data(4, 1), abort(5, 1)],
            [entry(1, 0, 1), entry(1, 4, 5)],
            [1, 0, 0, 0, 1, 0],
            [entry(1, 0, 1), entry(1, 4, 5)],
            id="abort-commit-abort",
        ),
        pytest.param(
            [data(0, 1), abort(1, 1)],
            [entry(1, 0, 1), entry(1, 0, 1)],
            [1, 0],
            [entry(1, 0, 1)],
            id="repeated-entry",
        ),
        pytest.param(
            [data(0, 2), data(5, 1), abort(6, 1), abort(7, 2)],
            [entry(1, 5, 6), entry(2, 0, 7)],
            [1, 1, 0, 0],
            [entry(1, 5, 6), entry(2, 0, 7)],
            id="entries-sorted-by-first-offset",
        ),
        pytest.param(
            [empty_batch(0, 1, producer=Producer(1, 0, 0, True)), abort(2, 1)],
            [entry(1, 0, 2)],
            [1, 0],
            [entry(1, 0, 2)],
            id="empty-retained-batch-counts-as-seen",
        ),
        pytest.param(
            [data(0, 1), empty_batch(1, 1, producer=Producer(1, 0, -1, True), control=True), commit(2, 1)],
            [],
            [0, 1, 0],
            [],
            id="control-batch-without-record",
        ),
        pytest.param(
            [legacy_batch([Record(b"k", b"v")], 0, 1), data(1, 1), abort(2, 1)],
            [entry(1, 1, 2)],
            [0, 1, 0],
            [entry(1, 1, 2)],
            id="legacy-beside-transactions",
        ),
        pytest.param(
            [data(0, 1), data(3, 1), abort(4, 1)],
            [entry(1, 2, 4)],
            [0, 1, 0],
            [entry(1, 2, 4)],
            id="entry-begins-after-the-first-data",
        ),
    ],
)
def test_transactions_of_a_log_are_distinguished(
    log: list[bytes], aborts: list[AbortedTxn], expected: list[int], staying: list[AbortedTxn]
) -> None:
    """Which batches may go, and which entries the new transaction index gets, verbatim (R-532, R-533)."""
    assert discardable(log, aborts) == (expected, staying)


def test_marker_of_another_kind_never_goes() -> None:
    """Leader changes and unknown types (R-533)."""
    other = data_batch([Record(b"\0\0\0\2", b"\0\0")], 0, producer=Producer(1, 0, -1, True), control=True)
    unknown = data_batch([Record(b"\0\0\0\x63", b"")], 1, producer=Producer(1, 0, -1, True), control=True)
    assert discardable([other, unknown], [])[0] == [0, 0]


def test_state_is_carried_from_chunk_to_chunk() -> None:
    """A transaction may span segments; its entry may be given again with each of them (R-536)."""
    state = CleanedTransactions()
    found = []
    for batch in (data(0, 1), data(1, 1), abort(2, 1), commit(3, 1)):
        state.add_aborted([entry(1, 0, 2)])
        found += state.discardable(PATH, only_chunk(batch)).tolist()
    assert found == [1, 1, 0, 1]
    assert retained(state) == [entry(1, 0, 2)]
    state.begin_segment()
    assert retained(state) == []


def test_abort_of_an_open_transaction_is_found_by_its_first_offset() -> None:
    """An entry is not used before the log reaches its first offset (R-531)."""
    state = CleanedTransactions()
    state.add_aborted([entry(1, 10, 12)])
    assert state.discardable(PATH, only_chunk(data(5, 1) + commit(6, 1))).tolist() == [0, 0]
    assert state.discardable(PATH, only_chunk(data(10, 1) + abort(12, 1))).tolist() == [1, 0]


@pytest.mark.parametrize("key", [b"\0\0", b"\xff\xff\0\1", None], ids=["short", "negative-version", "null"])
def test_marker_that_cannot_be_read_is_refused(key: bytes | None) -> None:
    """Naming the batch (R-230)."""
    bad = data_batch([Record(key, b"v")], 1, producer=Producer(1, 0, -1, True), control=True)
    with pytest.raises(CorruptBatchError) as raised:
        discardable([data(0, 1), bad], [])
    assert raised.value.position == len(data(0, 1))
