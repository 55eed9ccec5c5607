"""
Where a load gets a log's batches from: whole and checked, or their headers only.

The kernels are loaded when the first batch is checked: loading them takes longer than inspecting a small log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, Required, TypedDict, Unpack

from cleaner.format.chunks import Chunk, ReadableFile, ReadBuffer
from cleaner.format.headers import HeaderReader

# Headers are walked in Python: this many bytes of the smallest batches take 0.16 s, loading the kernels takes 0.32 s.
MAX_HEADER_BYTES = 4 << 20


class BatchRange(TypedDict, total=False):
    """Which batches of an open `.log` to read, and how: the arguments of `SegmentReader`."""

    size: Required[int]
    start: int
    buffer: ReadBuffer | None
    check_order_from: int | None


class BatchSource(Protocol):
    """Reads the batches of an open `.log`; raises as `SegmentReader`."""

    def __call__(self, file: ReadableFile, **batches: Unpack[BatchRange]) -> Iterable[Chunk]:
        """Return the chunks from `start` up to `size`."""


def checked_batches(file: ReadableFile, **batches: Unpack[BatchRange]) -> Iterable[Chunk]:
    """Read whole batches and verify their checksums: required for everything that will be changed."""
    from cleaner.format.batch import SegmentReader

    return SegmentReader(file, **batches)


def stoppable(source: BatchSource, check_done: Callable[[], None]) -> BatchSource:
    """Return a source that calls `check_done` for each chunk, which raises to stop."""

    def read(file: ReadableFile, **batches: Unpack[BatchRange]) -> Iterator[Chunk]:
        for chunk in source(file, **batches):
            check_done()
            yield chunk

    return read


def batch_headers(file: ReadableFile, **batches: Unpack[BatchRange]) -> Iterable[Chunk]:
    """
    Walk the headers, for an inspection that changes nothing; long ranges are read as by `checked_batches`.

    The chunks hold no records except those of control batches.
    """
    start = batches.get("start", 0)
    if batches["size"] - start > MAX_HEADER_BYTES:
        return checked_batches(file, **batches)
    return HeaderReader(file, size=batches["size"], start=start, check_order_from=batches.get("check_order_from"))
