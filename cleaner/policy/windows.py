"""
The hours in which rounds may start: `cleaner.windows=22:00-06:00,12:00-13:00`.

A window is open while the local time of its time zone is in it, from its start inclusive to its end exclusive. So when
summer time begins, a window within the skipped hour does not open that day; when it ends, the repeated hour counts
twice, and a window that ended within it opens a second time.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from cleaner.base.clock import LAST_CALENDAR_MS
from cleaner.errors import ConfigError, shortened

WINDOWS_KEY = "cleaner.windows"
ZONE_KEY = "cleaner.windows.time.zone"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
MINUTES_A_DAY = 24 * 60
# A window opens and ends every day; a zone may skip a day (Samoa did), and today's window may be over.
DAYS_AHEAD = 4

_WINDOW = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)\Z", re.ASCII)
_ALLOWED = "windows are HH:MM-HH:MM, comma between them, 00:00 to 24:00"


@dataclass(frozen=True)
class Windows:
    """
    Windows and their time zone. Create them with `parse`, or with `Windows()` for always.

    Attributes:
        edges: minutes of the day at which it opens, closes, opens and so on, ascending, from midnight on; empty for
            always. A window over midnight is split there.
        zone: the time zone.
    """

    edges: tuple[int, ...] = ()
    zone: tzinfo = UTC

    @staticmethod
    def parse(text: str, zone: tzinfo = UTC) -> Windows:
        """
        Parse the setting; an empty text means always.

        Windows may overlap or touch; one whose end is before its start continues past midnight.

        Raises:
            ConfigError: another syntax, an invalid time of day, or an end equal to the start.
        """
        if not text.strip():
            return Windows((), zone)
        pieces: list[tuple[int, int]] = []
        for word in text.split(","):
            start, end = _read_window(word.strip(), text)
            pieces += [(start, end)] if start < end else [(start, MINUTES_A_DAY), (0, end)]
        return Windows(_join(pieces), zone)

    def is_open(self, now_ms: int) -> bool:
        """Tell whether a round may start."""
        if not self.edges:
            return True
        wall = _at(now_ms).astimezone(self.zone)
        return bisect_right(self.edges, wall.hour * 60 + wall.minute) % 2 == 1

    def next_opening_ms(self, now_ms: int) -> int | None:
        """Return when it next opens after being closed, later than now; None: it is never closed."""
        # The state can change only at a candidate, and not at each of them.
        was_open = self.is_open(now_ms)
        for candidate_ms in sorted(ms for ms in self._candidates(now_ms) if ms > now_ms):
            is_open = self.is_open(candidate_ms)
            if is_open and not was_open:
                return candidate_ms
            was_open = is_open
        return None

    def _candidates(self, now_ms: int) -> set[int]:
        """Return all times of the next days at which the clock shows an edge, or jumps near one."""
        today = _at(now_ms).astimezone(self.zone).date()
        candidates: set[int] = set()
        for day in range(-1, DAYS_AHEAD + 1):
            for edge in self.edges:
                candidates |= _moments(today + timedelta(days=day), edge, self.zone)
        return candidates


def time_zone(name: str) -> tzinfo:
    """
    Return a zone by its name in the system's time zone database (`Europe/Berlin`); `UTC` works without one.

    Raises:
        ConfigError: the zone does not exist, or this machine has no database.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # slow to load, and rarely needed

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        reason = "no such time zone in this machine's database; names are like Europe/Berlin, or UTC"
        raise ConfigError(ZONE_KEY, name, reason) from error


def _read_window(word: str, text: str) -> tuple[int, int]:
    """Return start and end in minutes of the day."""
    match = _WINDOW.match(word)
    if match is None:
        raise ConfigError(WINDOWS_KEY, text, f"{shortened(repr(word))} is not a window: {_ALLOWED}")
    hours_and_minutes = [int(number) for number in match.groups()]
    start = hours_and_minutes[0] * 60 + hours_and_minutes[1]
    end = hours_and_minutes[2] * 60 + hours_and_minutes[3]
    if max(hours_and_minutes[1], hours_and_minutes[3]) > 59 or start >= MINUTES_A_DAY or end > MINUTES_A_DAY:
        raise ConfigError(WINDOWS_KEY, text, f"{shortened(repr(word))} has no such time of day: {_ALLOWED}")
    if start == end:
        raise ConfigError(WINDOWS_KEY, text, f"{shortened(repr(word))} has no length; the whole day is 00:00-24:00")
    return start, end


def _join(pieces: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Return the edges of the union."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(pieces):
        if start == end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(edge for piece in joined for edge in piece)


def _moments(day: date, edge: int, zone: tzinfo) -> set[int]:
    """Return when the clock shows a minute of a day; if it shows it twice or never, also when the clock jumps."""
    wall = datetime.combine(day + timedelta(days=edge // MINUTES_A_DAY), time(edge // 60 % 24, edge % 60), zone)
    moments = {_ms(wall.replace(fold=0)), _ms(wall.replace(fold=1))}
    if len(moments) == 2:
        moments.add(_clock_shift(min(moments), max(moments), zone))
    return moments


def _clock_shift(before_ms: int, after_ms: int, zone: tzinfo) -> int:
    """Return the first time with the UTC offset of `after_ms`, between two times with different UTC offsets."""
    after = _at(after_ms).astimezone(zone).utcoffset()
    while after_ms - before_ms > 1:
        middle_ms = (before_ms + after_ms) // 2
        if _at(middle_ms).astimezone(zone).utcoffset() == after:
            after_ms = middle_ms
        else:
            before_ms = middle_ms
    return after_ms


def _at(moment_ms: int) -> datetime:
    return EPOCH + max(0, min(moment_ms, LAST_CALENDAR_MS)) * MILLISECOND


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // MILLISECOND
