"""
The records of a block, and its batches without readable records, with their bytes by what a round would do with them.

A batch's bytes are divided among its records by the distances from one key to the next, unpacked, so that all sums add
up to the bytes of the files.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from cleaner.cleaning.estimate.cells import CellBlock
from cleaner.cleaning.estimate.shares import RECORDS, VALUES, Kind
from cleaner.cleaning.estimate.unseen_keys import Counts, Floats
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.format.chunks import control_batches
from cleaner.format.key_digests import NO_OFFSET, Words
from cleaner.format.layout import Layout, lay_out

NO_KEY, ABORTED, MARKERS, UNREADABLE = (
    b"(no key)",
    b"(aborted transactions)",
    b"(markers and empty batches)",
    b"(unreadable)",
)
AGES = (b"under 1 h", b"1 h to 1 d", b"1 d to 7 d", b"7 d to 30 d", b"30 d to 1 y", b"over 1 y", b"no time")
_AGE_LIMITS_MS = np.array([3_600_000, 86_400_000, 604_800_000, 2_592_000_000, 31_536_000_000], np.int64)
_NO_TIME = len(AGES) - 1
# Labels of rows that are of no key; a digest is none of them but for one chance in 2 ** 61.
LABELS = {0: NO_KEY, 1: ABORTED, 2: MARKERS, 3: UNREADABLE}
ABORTED_LABEL, MARKERS_LABEL, UNREADABLE_LABEL = 1, 2, 3
LOST = -(1 << 62)  # of producers and ages


Labels = TypeVar("Labels", Counts, Words)


class Entries(NamedTuple):
    """
    Records, and behind them batches without readable ones: for each its sums (n, VALUES), key, producer and age.

    `layout` has the records.
    """

    sums: Floats
    keys: Words
    producers: Counts
    ages: Counts
    layout: Layout


def entries_of(
    part: CellBlock, digests: Words, stays: Floats | None, kind: Kind, now_ms: int, expiry: Expiry | None = None
) -> Entries:
    """
    List a block's records and batches.

    Args:
        part: the block.
        digests: of its records that have a key, in order.
        stays: for each of these the chance to stay; None: no round takes them.
        kind: what the records are without `stays`: LIVE, or WAITING, which aborted batches then are, too.
        now_ms: the moment from which ages are counted.
        expiry: which records become tombstones for their age, and count as such; None: none does.
    Raises:
        CorruptBatchError: a damaged record.
    """
    path, block, gone = part
    rows, is_control = block.batches, control_batches(block.batches)
    skipped = gone | is_control
    layout = lay_out(path, block, skipped, 0, NO_OFFSET)
    counts = np.where(skipped, 0, rows["count"])
    of_batch, rest = np.repeat(np.arange(len(rows)), counts), np.flatnonzero(counts == 0)
    count, keyed = len(layout), layout.key_sizes >= 0
    sums = np.zeros((count + len(rest), VALUES))
    sizes = divided(rows["size"], rows["body_end"] - rows["body_start"], of_batch, layout.key_starts)
    keys = np.zeros(len(sums), np.uint64)
    keys[:count][keyed] = digests
    is_aborted = ((gone != 0) & ~is_control & (rows["count"] != 0))[rest]
    keys[count:] = np.where(is_aborted, ABORTED_LABEL, MARKERS_LABEL)
    kinds = np.where(is_aborted, Kind.ABORTED, Kind.MARKERS)
    if stays is None:
        sums[:count, kind] = sizes
        if kind is Kind.WAITING:
            kinds[:] = kind
    else:
        chance = np.zeros(count)  # a round removes what has no key
        chance[keyed] = stays
        is_tombstone = layout.value_sizes < 0
        if expiry is not None:
            is_tombstone |= expiry.finds(layout)
        sums[:count, Kind.LIVE] = sizes * chance * ~is_tombstone
        sums[:count, Kind.TOMBSTONES] = sizes * chance * is_tombstone
        sums[:count, Kind.SUPERSEDED] = sizes * (1 - chance)
    sums[np.arange(count, len(sums)), kinds] = rows["size"][rest]
    sums[:count, RECORDS] = 1
    sums[count:, RECORDS] = np.where(is_aborted, np.maximum(0, rows["count"][rest]), 0)
    times = np.concatenate([layout.timestamps_ms, rows["max_timestamp"][rest]])
    ages = np.searchsorted(_AGE_LIMITS_MS, np.maximum(0, now_ms - times), side="right")
    ages[times < 0] = _NO_TIME
    return Entries(sums, keys, rows["producer_id"][np.concatenate([of_batch, rest])], ages, layout)


def divided(sizes: Counts, bodies: Counts, of_batch: Counts, key_starts: Counts) -> Counts:
    """
    Divide batches' bytes among their records, by the distances from one key to the next; the sums are exact.

    Args:
        sizes, bodies: for each batch its bytes, and those of its records, unpacked.
        of_batch, key_starts: for each record its batch, ascending, and where its key begins.
    """
    if not len(of_batch):
        return np.zeros(0, np.int64)
    is_first = np.diff(of_batch, prepend=-1) != 0
    first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    body, size = bodies[of_batch], sizes[of_batch]
    begins = key_starts - key_starts[first]
    # The last record gets what is left: its end, and what is before the first one's key.
    ends = np.append(begins[1:], 0)
    is_last = np.append(is_first[1:], True)
    ends[is_last] = body[is_last]
    shares: Counts = size * ends // body - size * begins // body
    return shares


def grouped(labels: Labels, sums: Floats) -> tuple[Labels, Floats]:
    """Add up the sums of equal labels; returns each label once, with its sums."""
    found, place = np.unique(labels, return_inverse=True)
    added: Floats = np.zeros((len(found), VALUES))
    for column in range(VALUES):
        added[:, column] = np.bincount(place.reshape(-1), sums[:, column], minlength=len(found))
    return found, added


def producer_name(producer_id: int) -> bytes:
    """Return the name of a producer's row."""
    if producer_id == LOST:
        return UNREADABLE
    return b"(no producer id)" if producer_id < 0 else str(producer_id).encode()


def age_name(age: int) -> bytes:
    """Return the name of an age's row."""
    return UNREADABLE if age == LOST else AGES[age]
