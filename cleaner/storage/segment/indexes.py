"""
The three index files of a segment, as numpy arrays in the format on disk.

    .index        8 bytes   i32 offset - base | i32 position in the log                               (R-301)
    .timeindex   12 bytes   i64 timestamp     | i32 offset - base                                     (R-302)
    .txnindex    34 bytes   i16 version = 0   | i64 producer, first, last, last stable offset         (R-303)

Kafka checks almost nothing of this when it loads a log (R-330) and then trusts every entry. Here every index is
checked when it is read: a wrong index would make a cleaner skip records that it must compare. Zeros at the end of an
offset or time index are preallocated room, not entries, and are left out (D-02). Kafka takes them for entries, and
begins a look-up that ends among them at the first batch.

Source: rules R-301 to R-314, R-330 to R-333, R-653; `OffsetIndex.java`, `TimeIndex.java`, `AbortedTxn.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cleaner.base.model import AbortedTxn
from cleaner.errors import CorruptIndexError
from cleaner.kernels.batch_header import MIN_BATCH_BYTES
from cleaner.storage.fs.readable import ReadableFiles, is_zero_from

# Format on disk; never changes.
OFFSET_ENTRY = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TXN_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
if (OFFSET_ENTRY.itemsize, TIME_ENTRY.itemsize, TXN_ENTRY.itemsize) != (8, 12, 34):
    raise AssertionError("an index entry has not the width of R-301 to R-303")

TXN_VERSION = 0

_MIN_LIMIT_BYTES = 1 << 20  # a log may grow while it is inspected
# Six times what a broker makes unless told otherwise (`segment.index.bytes`); of aborted transactions, as many as there
# can be in 1 GiB.
_MAX_LIMIT_BYTES = {OFFSET_ENTRY: 64 << 20, TIME_ENTRY: 64 << 20, TXN_ENTRY: 256 << 20}
_MAX_ROOM_BYTES = 2**31 - 1  # that a broker can make ahead: `segment.index.bytes` is an int32

Entries = npt.NDArray[np.void]
Aborts = npt.NDArray[np.int64]
"""Aborted transactions, one a row; columns as in `AbortedTxn`."""
FIRST_OFFSET, LAST_OFFSET, LAST_STABLE_OFFSET = 1, 2, 3
"""Columns of `Aborts`."""

OnFault = Callable[[CorruptIndexError], None]
"""Called once for every bad entry; an exception it raises ends the check."""

ZEROS = "zeros from here to its end"
ZERO_TAIL = f"{ZEROS}, as a power cut after a clean stop of Kafka up to 4.3 can leave"
"""Of files beside a clean-shutdown marker (D-02)."""
CUTS_ZEROS = "`cleaner recover --trust-no-marker` cuts them off"
"""What to do about either."""


OnZeros = Callable[[int], None]
"""Called with the position of the zeros at the end of an index, if there are any."""


def refuse(error: CorruptIndexError) -> None:
    """Raise the first fault: for callers that use the index."""
    raise error


def pass_over(_position: int) -> None:
    """Do nothing about zeros."""


def read_offset_index(fs: ReadableFiles, path: Path, log_bytes: int, on_zeros: OnZeros = pass_over) -> Entries:
    """
    Read and check an offset index; zeros at its end are left out.

    It may have only zeros: Kafka creates such an index for a swap's new segment without one (R-631), and finds position
    0 in it for every offset.

    Args:
        path: the `.index` file.
        log_bytes: size of the `.log` it belongs to.
        on_zeros: called with the position of zeros that were left out.
    Returns:
        OFFSET_ENTRY rows.
    Raises:
        FileNotFoundError: the file does not exist.
        CorruptIndexError: a partial entry, an entry below the base offset or past the end of the log, or entries that
            do not ascend in both offset and position (the part of R-333 that does not need the log).
    """
    entries = without_zero_tail(read_entries(fs, path, OFFSET_ENTRY, refuse, log_bytes), on_zeros)
    check_offset_entries(entries, path, log_bytes)
    return entries


def check_offset_entries(entries: Entries, path: Path, log_bytes: int, on_fault: OnFault = refuse) -> None:
    """Check the entries of an offset index among themselves; see `read_offset_index`."""
    offsets = entries["relative_offset"].astype(np.int64)
    positions = entries["position"].astype(np.int64)
    size = OFFSET_ENTRY.itemsize
    outside = (positions < 0) | (positions >= log_bytes)
    _report(path, size, offsets < 0, "an offset below the segment's base offset", on_fault)
    _report(path, size, outside, f"a position outside the log's {log_bytes} bytes", on_fault)
    _report(path, size, _falls(offsets, strictly=True), "an offset that is not above the one before", on_fault)
    _report(path, size, _falls(positions, strictly=True), "a position that is not above the one before", on_fault)


def read_time_index(
    fs: ReadableFiles, path: Path, *, log_bytes: int | None = None, on_zeros: OnZeros = pass_over
) -> Entries:
    """
    Read and check a time index; zeros at its end are left out.

    Args:
        log_bytes: as for `read_entries`.
        on_zeros: as for `read_offset_index`.
    Returns:
        TIME_ENTRY rows.
    Raises:
        FileNotFoundError: the file does not exist.
        CorruptIndexError: a partial entry, or timestamps or offsets that go back (R-313, R-332).
    """
    entries = without_zero_tail(read_entries(fs, path, TIME_ENTRY, refuse, log_bytes), on_zeros)
    check_time_entries(entries, path)
    return entries


def check_time_entries(entries: Entries, path: Path, on_fault: OnFault = refuse) -> None:
    """Check the entries of a time index among themselves; see `read_time_index`."""
    offsets = entries["relative_offset"].astype(np.int64)
    timestamps = entries["timestamp"].astype(np.int64)
    size = TIME_ENTRY.itemsize
    _report(path, size, offsets < 0, "an offset below the segment's base offset", on_fault)
    _report(path, size, _falls(offsets, strictly=False), "an offset that goes back", on_fault)
    _report(path, size, _falls(timestamps, strictly=False), "a timestamp that goes back", on_fault)


def read_txn_index(fs: ReadableFiles, path: Path, on_fault: OnFault = refuse, *, log_bytes: int) -> Aborts:
    """
    Read a transaction index; a trailing partial entry is ignored, as Kafka does.

    Args:
        on_fault: as for `read_offset_index`.
        log_bytes: size of the `.log` it belongs to; as for `read_entries`.
    Returns:
        Rows in file order.
    Raises:
        FileNotFoundError: the file does not exist.
        CorruptIndexError: an entry of another version than 0, last offsets that do not ascend, or numbers that no
            marker leaves (R-303). A search ends at the first last stable offset behind its range (`read/aborted.py`),
            so one that is too high would hide all later aborts.
    """
    with fs.open(path) as file:
        length = file.size()
        most = min(length, max_index_bytes(log_bytes, TXN_ENTRY))
        data = file.read(most, 0)
    if length > most:
        on_fault(
            CorruptIndexError(path, most, f"{length} bytes, more than a log of {log_bytes} bytes can have aborted")
        )
    entries = np.frombuffer(data, TXN_ENTRY, count=len(data) // TXN_ENTRY.itemsize)
    size = TXN_ENTRY.itemsize
    _report(path, size, unknown_versions(entries), f"an entry of an unknown version; {TXN_VERSION} is known", on_fault)
    last_offsets = entries["last_offset"].astype(np.int64)
    falls = _falls(last_offsets, strictly=True)
    _report(path, size, falls, "a last offset that is not above the one before", on_fault)
    first_offsets, stable_offsets = entries["first_offset"], entries["last_stable_offset"]
    # The data comes before its marker: at equal offsets the entry is none, such as one of zeros in the first segment.
    is_backward = (first_offsets < 0) | (first_offsets >= last_offsets)
    _report(path, size, is_backward, "a first offset that is not in the log or not below the last one", on_fault)
    beyond = stable_offsets > last_offsets + 1
    _report(path, size, beyond, "a last stable offset beyond its marker", on_fault)
    return np.stack([entries[name].astype(np.int64) for name in AbortedTxn._fields], axis=1)


def unknown_versions(entries: Entries) -> npt.NDArray[np.bool_]:
    """
    Mark the entries of a transaction index whose version is not exactly 0.

    Kafka up to 4.3 looks at the version's first byte alone, and copies such entries; 4.4 does not load the log (R-303).
    """
    unknown: npt.NDArray[np.bool_] = entries["version"] != TXN_VERSION
    return unknown


def offset_entries(relative_offsets: Sequence[int], positions: Sequence[int]) -> Entries:
    """Make OFFSET_ENTRY rows."""
    entries = np.empty(len(positions), OFFSET_ENTRY)
    entries["relative_offset"] = relative_offsets
    entries["position"] = positions
    return entries


def abort_rows(txns: Aborts | Sequence[AbortedTxn]) -> Aborts:
    """Return aborted transactions as rows."""
    return np.asarray(txns, np.int64).reshape(len(txns), len(AbortedTxn._fields))


def txn_index_bytes(txns: Aborts | Sequence[AbortedTxn]) -> bytes:
    """Return the content of a transaction index."""
    entries = np.zeros(len(txns), TXN_ENTRY)
    entries["version"] = TXN_VERSION
    for name, column in zip(AbortedTxn._fields, abort_rows(txns).T, strict=True):
        entries[name] = column
    return entries.tobytes()


def lookup_position(entries: Entries, relative_offset: int) -> int:
    """Return the position of the last entry at or below an offset, 0 without one (R-314)."""
    slot = int(np.searchsorted(entries["relative_offset"].astype(np.int64), relative_offset, side="right"))
    return int(entries["position"][slot - 1]) if slot else 0


class OffsetIndexCheck:
    """
    Checks an offset index against the batches of its log, chunk by chunk (R-333).

    An entry (o, p) is good if a batch begins at p with a base offset of at most o, every earlier batch ends below o,
    and o does not lie beyond the segment's last offset. Every version writes such entries: per batch (its own last
    offset) or, up to 3.9.0 and in 4.0.0, per append (the append's last offset, at the append's first batch).

    Args:
        entries: the result of `read_offset_index`, ascending.
        path: the index file, for error messages.
        base_offset: the segment's.
        on_fault: called with each bad entry.
        slots: each entry's number in the file; None: 0, 1, 2, ...
    """

    def __init__(
        self,
        entries: Entries,
        path: Path,
        base_offset: int,
        on_fault: OnFault = refuse,
        slots: npt.NDArray[np.intp] | None = None,
    ) -> None:
        self._path = path
        self._on_fault = on_fault
        self._slots = np.arange(len(entries)) if slots is None else slots
        self._offsets = entries["relative_offset"].astype(np.int64) + base_offset
        self._positions = entries["position"].astype(np.int64)
        self._next = 0
        self._last_offset = base_offset - 1

    def add(
        self, positions: npt.NDArray[np.int64], base_offsets: npt.NDArray[np.int64], last_offsets: npt.NDArray[np.int64]
    ) -> None:
        """
        Check the entries that point into the next batches of the log, given in file order from position 0 on.

        Raises:
            CorruptIndexError: an entry is not good, unless `on_fault` lets it pass.
        """
        if not len(positions):
            return
        stop = int(np.searchsorted(self._positions, positions[-1], side="right"))
        wanted = slice(self._next, stop)
        rows = np.searchsorted(positions, self._positions[wanted])
        is_wrong = positions[rows] != self._positions[wanted]
        self._refuse(is_wrong, "an entry that points into the middle of a batch")
        offsets = self._offsets[wanted]
        before = np.concatenate(([self._last_offset], last_offsets))[rows]
        early = ~is_wrong & (base_offsets[rows] > offsets)
        self._refuse(early, "an entry whose offset lies before the batch it points at")
        self._refuse(
            ~is_wrong & ~early & (before >= offsets), "an entry whose offset lies before the place it points at"
        )
        self._next = stop
        self._last_offset = int(last_offsets[-1])

    def pass_over(self, end: int) -> None:
        """Skip the entries that point below a position: the batches there cannot be read."""
        self._next = max(self._next, int(np.searchsorted(self._positions, end)))

    def finish(self) -> None:
        """
        Make the checks that need the end of the log.

        Raises:
            CorruptIndexError: an entry points past the last batch, or names an offset beyond the last one, unless
                `on_fault` lets it pass.
        """
        self._refuse(np.ones(len(self._offsets) - self._next, bool), "an entry that points past the last batch")
        beyond = self._offsets[: self._next] > self._last_offset
        self._next = 0
        self._refuse(beyond, f"an offset beyond the segment's last, {self._last_offset}")

    def _refuse(self, bad: npt.NDArray[np.bool_], reason: str) -> None:
        for row in np.flatnonzero(bad).tolist():
            position = int(self._slots[self._next + row]) * OFFSET_ENTRY.itemsize
            self._on_fault(CorruptIndexError(self._path, position, reason))


def max_index_bytes(log_bytes: int, entry: np.dtype[np.void]) -> int:
    """
    Return the largest index of a log that is read, bytes: one entry a batch, one at the end; and within fixed bounds.

    The log's size alone is no bound: a sparse `.log` may have any.
    """
    most = max(_MIN_LIMIT_BYTES // entry.itemsize, log_bytes // MIN_BATCH_BYTES[0] + 2)
    return min(most, _MAX_LIMIT_BYTES[entry] // entry.itemsize) * entry.itemsize


def read_entries(
    fs: ReadableFiles,
    path: Path,
    entry: np.dtype[np.void],
    on_fault: OnFault = refuse,
    log_bytes: int | None = None,
) -> Entries:
    """
    Read the whole entries of an offset or time index, zeros included; a partial entry at the end is a fault.

    Args:
        log_bytes: size of the `.log` it belongs to. Only as many entries are read as the log can have batches: a sparse
            file may have any length. Anything but zeros behind them is a fault.
    """
    with fs.open(path) as file:
        while True:
            size = file.size()
            most = size if log_bytes is None else max_index_bytes(log_bytes, entry)
            data = file.read(min(size, most), 0)
            if len(data) == min(size, most) or size == file.size():
                break  # else a broker trimmed it during the read, as it does at each roll
        is_too_long = size > most and not (size <= _MAX_ROOM_BYTES and is_zero_from(file, most))
    if is_too_long:
        on_fault(CorruptIndexError(path, most, f"{size} bytes, more than the index of a log of {log_bytes} bytes has"))
    whole = len(data) - len(data) % entry.itemsize
    if whole < len(data):
        on_fault(CorruptIndexError(path, whole, f"{len(data)} bytes are not a multiple of {entry.itemsize}"))
    return np.frombuffer(data, entry, whole // entry.itemsize)


def without_zero_tail(entries: Entries, on_zeros: OnZeros = pass_over) -> Entries:
    """
    Return the entries before the zeros at the end of an offset or time index.

    An entry of zeros is real only if it is the only one of a time index: that of a record with timestamp 0.
    """
    zero = np.zeros(1, entries.dtype)
    if not len(entries) or entries[-1] != zero[0] or (len(entries) == 1 and entries.dtype == TIME_ENTRY):
        return entries
    used = np.flatnonzero(entries != zero)
    kept = entries[: int(used[-1]) + 1 if len(used) else 0]
    on_zeros(kept.nbytes)
    return kept


def _falls(values: npt.NDArray[np.int64], *, strictly: bool) -> npt.NDArray[np.bool_]:
    """Mark the values that are below the previous one or, with `strictly`, equal to it."""
    falls = np.zeros(len(values), bool)
    falls[1:] = values[1:] <= values[:-1] if strictly else values[1:] < values[:-1]
    return falls


def _report(path: Path, entry_bytes: int, bad: npt.NDArray[np.bool_], reason: str, on_fault: OnFault) -> None:
    """Report runs of bad entries: a crash may leave a million preallocated zeros behind an index's entries."""
    if not bad.any():
        return  # as nearly always, and thousands of segments have thousands of small indexes
    rows = np.flatnonzero(bad)
    for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        if len(run):
            first, second, end = (int(row) * entry_bytes for row in (run[0], run[0] + 1, run[-1] + 1))
            fault = CorruptIndexError(path, first, reason)
            fault.others = range(second, end, entry_bytes)
            on_fault(fault)
