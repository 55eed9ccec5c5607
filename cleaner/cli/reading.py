"""Reads the partitions of a topic and prints their records, for `cleaner consume`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO, Literal, NamedTuple, Protocol

from cleaner.base.clock import Clock
from cleaner.cli.output import print_failure
from cleaner.cli.stop import StopFlag
from cleaner.errors import CleanerError
from cleaner.log.record import Record
from cleaner.log.stream import Isolation, Until
from cleaner.read.view import LogReach

Print = Callable[[int, Record], bytes]
"""Makes the text of a partition's record."""

Begin = int | Literal["earliest", "latest"]

_LOOK_SECONDS = 0.2  # how often a wait for records asks whether to stop
# Characters that a terminal would obey: control characters except tab and newline, and those of C1 in UTF-8.
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")


class ReadRange(NamedTuple):
    """How far to read."""

    isolation: Isolation
    until: Until


class Following(Protocol):
    """Waits for a partition's next records."""

    def poll(self, timeout_seconds: float | None = 0.0) -> list[Record]:
        """Return some, after waiting for the first."""

    def close(self) -> None:
        """Stop waiting and release it."""


class Readable(LogReach, Protocol):
    """A reader of one partition."""

    def read(self, offset: int, *, isolation: Isolation, until: Until) -> Iterator[Record]:
        """Read up to the log's current end."""

    def follow(self, offset: int, *, isolation: Isolation, until: Until) -> Following:
        """Read, and wait for more."""


class Printer:
    """
    Prints records until it has printed enough.

    Attributes:
        count: how many were printed.

    Args:
        out: to write to. On a terminal control characters are escaped, so that a record cannot control it.
        text_of: makes a record's text.
        most: how many are enough; None: never.
        skips_errors: report a record that has no text, and go on.
    """

    def __init__(self, out: BinaryIO, text_of: Print, most: int | None, *, skips_errors: bool = False) -> None:
        self.count = 0
        self._out = out
        self._text_of = text_of
        self._most = most
        self._skips_errors = skips_errors
        self._is_terminal = out.isatty()

    @property
    def is_done(self) -> bool:
        """Tell whether enough were printed."""
        return self.count == self._most

    def put(self, partition: int, record: Record) -> None:
        """Print a record."""
        self.count += 1
        try:
            text = self._text_of(partition, record)
        except CleanerError as error:
            if not self._skips_errors:
                raise
            print_failure(error)
            return
        self._out.write(_CONTROL.sub(_escaped, text) if self._is_terminal else text)

    def flush(self) -> None:
        """Flush the output."""
        self._out.flush()


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % found[0][-1]


def begin_at(reader: Readable, wanted: Begin, reach: ReadRange) -> int:
    """Return the offset to begin at."""
    match wanted:
        case "earliest":
            return reader.log_start_offset
        case "latest":
            if reach.isolation == "read_committed":
                return reader.last_stable_offset
            return reader.log_end_offset if reach.until == "end" else reader.high_watermark
    return wanted


def read(
    readers: Mapping[int, Readable], offsets: Mapping[int, int], reach: ReadRange, printer: Printer, flag: StopFlag
) -> None:
    """
    Print partitions one after another, each up to its end.

    Args:
        readers, offsets: by partition; where each begins.
    Raises:
        CleaningAborted: asked to stop.
    """
    for number, reader in readers.items():
        for record in reader.read(offsets[number], isolation=reach.isolation, until=reach.until):
            if printer.is_done:
                return
            printer.put(number, record)
            flag.check_done()


def follow(
    readers: Mapping[int, Readable],
    offsets: Mapping[int, int],
    reach: ReadRange,
    printer: Printer,
    flag: StopFlag,
    *,
    clock: Clock,
    timeout_ms: int | None,
) -> None:
    """
    Print partitions as their records come, until enough were printed, nothing came for `timeout_ms`, or asked to stop.

    Args:
        timeout_ms: None: wait forever.
        others: as for `read`.
    """
    followers = {
        number: reader.follow(offsets[number], isolation=reach.isolation, until=reach.until)
        for number, reader in readers.items()
    }
    try:
        came_ns = clock.monotonic_ns()
        patience = 0.0
        while not (flag.is_set or printer.is_done):
            before = printer.count
            for number, follower in followers.items():
                _put_all(number, follower.poll(patience / len(followers)), printer)
            if printer.count > before:
                printer.flush()
                patience, came_ns = 0.0, clock.monotonic_ns()
                continue
            patience = _LOOK_SECONDS
            if timeout_ms is not None:
                left_seconds = timeout_ms / 1e3 - (clock.monotonic_ns() - came_ns) / 1e9
                if left_seconds <= 0:
                    return
                patience = min(patience, left_seconds)
    finally:
        for follower in followers.values():
            follower.close()


def _put_all(number: int, records: Sequence[Record], printer: Printer) -> None:
    for record in records:
        if printer.is_done:
            return
        printer.put(number, record)
