"""How records of a topic's partitions are printed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import pytest

from cleaner.cli.reading import Printer, ReadRange, begin_at, follow, read
from cleaner.cli.record_text import TextFormat
from cleaner.cli.stop import StopFlag
from cleaner.errors import CleanerError, CleaningAborted
from cleaner.log.record import Record
from tests.support.manual_clock import ManualClock

REACH = ReadRange("read_uncommitted", "end")


class _Reader:
    """A log of one letter an offset, from 10 on; followers find one more each time they are asked, up to `more`."""

    log_start_offset, last_stable_offset, high_watermark = 10, 11, 12

    def __init__(self, letters: str, clock: ManualClock | None = None, more: str = "") -> None:
        self._records = [
            Record(None, letter.encode(), (), 0, 10 + place) for place, letter in enumerate(letters + more)
        ]
        self._end = len(letters)
        self._clock = clock or ManualClock()
        self.closed = 0

    @property
    def log_end_offset(self) -> int:
        return 10 + self._end

    def read(self, offset: int, **_: object) -> Iterator[Record]:
        return iter(self._records[offset - 10 : self._end])

    def follow(self, offset: int, **_: object) -> _Reader:
        self._next = offset - 10
        return self

    def poll(self, timeout_seconds: float | None = 0.0) -> list[Record]:
        found = self._records[self._next : self._end]
        self._next = self._end
        if not found:
            self._clock.move_on(timeout_seconds or 0)
            self._end = min(self._end + 1, len(self._records))
        return found

    def close(self) -> None:
        self.closed += 1


class _Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def _printer(out: io.BytesIO, most: int | None = None, **options: bool) -> Printer:
    return Printer(out, TextFormat.of({"print.partition": "true"}).text, most, **options)


@pytest.mark.parametrize(
    ("wanted", "reach", "offset"),
    [
        ("earliest", REACH, 10),
        ("latest", REACH, 15),
        ("latest", ReadRange("read_uncommitted", "high_watermark"), 12),
        ("latest", ReadRange("read_committed", "end"), 11),
        (13, REACH, 13),
    ],
)
def test_reading_begins_where_it_was_asked_to(wanted: int | str, reach: ReadRange, offset: int) -> None:
    """`latest` is the end of what would be read."""
    assert begin_at(_Reader("abcde"), wanted, reach) == offset  # type: ignore[arg-type]


def test_partitions_are_printed_one_after_the_other() -> None:
    """Each from its own offset."""
    out = io.BytesIO()
    read({0: _Reader("ab"), 2: _Reader("cd")}, {0: 10, 2: 11}, REACH, _printer(out), StopFlag())
    assert out.getvalue() == b"Partition:0\ta\nPartition:0\tb\nPartition:2\td\n"


def test_reading_stops_when_there_were_enough() -> None:
    """In the middle of a partition too."""
    out = io.BytesIO()
    read({0: _Reader("ab"), 1: _Reader("cd")}, {0: 10, 1: 10}, REACH, _printer(out, 3), StopFlag())
    assert out.getvalue().count(b"\n") == 3


def test_reading_is_interrupted_when_asked_to() -> None:
    """It says by what."""
    flag = StopFlag()
    flag.set("SIGINT")
    with pytest.raises(CleaningAborted, match="SIGINT"):
        read({0: _Reader("ab")}, {0: 10}, REACH, _printer(io.BytesIO()), flag)


def test_following_prints_what_comes_until_nothing_did_for_so_long() -> None:
    """Of all partitions; then it lets go of them."""
    out, clock = io.BytesIO(), ManualClock()
    readers = {0: _Reader("a", clock, "bc"), 1: _Reader("", clock, "d")}
    follow(readers, {0: 10, 1: 10}, REACH, _printer(out), StopFlag(), clock=clock, timeout_ms=5000)
    assert sorted(out.getvalue().splitlines()) == [b"Partition:%d\t%s" % each for each in _LETTERS]
    assert 5 <= clock.monotonic_ns() / 1e9 < 7
    assert [reader.closed for reader in readers.values()] == [1, 1]


_LETTERS = [(0, b"a"), (0, b"b"), (0, b"c"), (1, b"d")]


def test_following_stops_when_there_were_enough() -> None:
    """Even if more is there."""
    out = io.BytesIO()
    follow({0: _Reader("abc")}, {0: 10}, REACH, _printer(out, 2), StopFlag(), clock=ManualClock(), timeout_ms=None)
    assert out.getvalue().count(b"\n") == 2


def test_following_ends_without_an_error_when_asked_to() -> None:
    """There is no other end to it."""
    flag = StopFlag()
    flag.set("SIGINT")
    follow({0: _Reader("a")}, {0: 10}, REACH, _printer(io.BytesIO()), flag, clock=ManualClock(), timeout_ms=None)


def test_record_cannot_steer_a_terminal() -> None:
    """What it would obey is escaped there, and nowhere else; tabs and letters beyond ASCII stay."""
    value = "\x1b[2J é\t\x9b1m\x07".encode()
    for out, expected in (
        (_Terminal(), rb"\x1b[2J " + "é\t".encode() + rb"\x9b1m\x07" + b"\n"),
        (io.BytesIO(), value + b"\n"),
    ):
        Printer(out, TextFormat.of({}).text, None).put(0, Record(None, value))
        assert out.getvalue() == expected


def test_record_that_cannot_be_shown_is_passed_over_if_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported, and counts."""
    text = TextFormat.of({"value.deserializer": "LongDeserializer"}).text
    out = io.BytesIO()
    printer = Printer(out, text, None, skips_errors=True)
    printer.put(0, Record(None, b"x", offset=3))
    printer.put(0, Record(None, struct.pack(">q", 7), offset=4))
    assert (out.getvalue(), printer.count) == (b"7\n", 2)
    assert "offset 3" in capsys.readouterr().err
    with pytest.raises(CleanerError, match="offset 3"):
        Printer(out, text, None).put(0, Record(None, b"x", offset=3))
