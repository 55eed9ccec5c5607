"""
Where a load gets a log's batches from: whole and checked, or their headers only.

The kernels are loaded when the first batch is checked: loading them takes longer than inspecting a small log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from cleaner.format.chunks import Chunk, ReadableFile, ReadBuffer
from cleaner.format.headers import HeaderReader

# Headers are walked in Python: this many bytes of the smallest batches take 0.16 s, loading the kernels takes 0.32 s.
MAX_HEADER_BYTES = 4 << 20


class BatchSource(Protocol):
    """Reads the batches of an open `.log`; arguments and errors are those of `SegmentReader`."""

    def __call__(
        self,
        file: ReadableFile,
        *,
        size: int,
        start: int = 0,
        buffer: ReadBuffer | None = None,
        check_order_from: int | None = None,
    ) -> Iterable[Chunk]:
        """Return the chunks from `start` up to `size`."""


def checked_batches(
    file: ReadableFile,
    *,
    size: int,
    start: int = 0,
    buffer: ReadBuffer | None = None,
    check_order_from: int | None = None,
) -> Iterable[Chunk]:
    """Read whole batches and verify their checksums: required for everything that will be changed."""
    from cleaner.format.batch import SegmentReader

    return SegmentReader(file, size=size, start=start, buffer=buffer, check_order_from=check_order_from)


def stoppable(source: BatchSource, check_done: Callable[[], None]) -> BatchSource:
    """Return a source that calls `check_done` for each chunk, which raises to stop."""

    def read(
        file: ReadableFile,
        *,
        size: int,
        start: int = 0,
        buffer: ReadBuffer | None = None,
        check_order_from: int | None = None,
    ) -> Iterator[Chunk]:
        for chunk in source(file, size=size, start=start, buffer=buffer, check_order_from=check_order_from):
            check_done()
            yield chunk

    return read


def batch_headers(
    file: ReadableFile,
    *,
    size: int,
    start: int = 0,
    buffer: ReadBuffer | None = None,
    check_order_from: int | None = None,
) -> Iterable[Chunk]:
    """
    Walk the headers, for an inspection that changes nothing; long ranges are read as by `checked_batches`.

    The chunks hold no records except those of control batches.
    """
    if size - start > MAX_HEADER_BYTES:
        return checked_batches(file, size=size, start=start, buffer=buffer, check_order_from=check_order_from)
    return HeaderReader(file, size=size, start=start, check_order_from=check_order_from)
