"""The hours in which rounds may start, over both changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.errors import ConfigError
from cleaner.policy.windows import Windows, time_zone

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE_MS = 60_000


def ms(text: str) -> int:
    """Return a moment given in ISO form, with its offset from UTC."""
    moment = datetime.fromisoformat(text)
    assert moment.tzinfo is not None
    return int(moment.timestamp()) * 1000


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        pytest.param("", (), id="always"),
        pytest.param("08:00-09:30", (480, 570), id="one"),
        pytest.param("22:00-06:00", (0, 360, 1320, 1440), id="over-midnight"),
        pytest.param("22:00-00:00", (1320, 1440), id="to-midnight"),
        pytest.param("22:00-24:00", (1320, 1440), id="to-midnight-said-otherwise"),
        pytest.param(" 12:00-13:00 , 08:00-09:00 ", (480, 540, 720, 780), id="two-in-any-order"),
        pytest.param("08:00-10:00,09:00-12:00,12:00-13:00", (480, 780), id="overlapping-and-touching"),
        pytest.param("08:00-12:00,09:00-10:00", (480, 720), id="one-in-another"),
        pytest.param("00:00-24:00", (0, 1440), id="whole-day"),
        pytest.param("12:00-11:00,10:00-13:00", (0, 1440), id="joined-to-a-whole-day"),
    ],
)
def test_windows_are_read_and_joined(text: str, edges: tuple[int, ...]) -> None:
    """The edges are those of all windows together."""
    assert Windows.parse(text, BERLIN) == Windows(edges, BERLIN)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("22-06", "'22-06' is not a window"),
        ("22:00-06:00,", "'' is not a window"),
        ("22:00-6:00", "'22:00-6:00' is not a window"),
        ("22:00\u201306:00", "is not a window"),
        ("٢٢:00-06:00", "is not a window"),
        ("24:00-06:00", "has no such time of day"),
        ("22:00-24:01", "has no such time of day"),
        ("22:60-23:00", "has no such time of day"),
        ("06:00-06:00", "has no length; the whole day is 00:00-24:00"),
    ],
)
def test_malformed_window_is_refused_with_its_key(text: str, reason: str) -> None:
    """The message names the setting, its value, what is wrong and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        Windows.parse(text)
    assert refused.value.key == "cleaner.windows"
    assert refused.value.value == text
    assert reason in refused.value.reason


@pytest.mark.parametrize("name", ["Europe/Nowhere", "Europe", "", "../etc/passwd", "/etc/passwd", "\0"])
def test_unknown_time_zone_is_refused_with_its_key(name: str) -> None:
    """Whatever way the database fails to know it."""
    with pytest.raises(ConfigError, match=r"cleaner\.windows\.time\.zone="):
        time_zone(name)


def test_time_zone_is_found_by_name() -> None:
    """UTC needs no database."""
    assert time_zone("Europe/Berlin") == BERLIN
    assert time_zone("UTC") is UTC


# On 29 March 2026 the clocks of Berlin leap from 02:00 to 03:00, on 25 October from 03:00 back to 02:00.
@pytest.mark.parametrize(
    ("text", "now", "is_open", "next_opening", "next_end"),
    [
        pytest.param(
            "22:00-06:00",
            "2026-06-10T21:59+02:00",
            False,
            "2026-06-10T22:00+02:00",
            "2026-06-11T06:00+02:00",
            id="before",
        ),
        pytest.param(
            "22:00-06:00",
            "2026-06-10T22:00+02:00",
            True,
            "2026-06-11T22:00+02:00",
            "2026-06-11T06:00+02:00",
            id="at-its-start",
        ),
        pytest.param(
            "22:00-06:00",
            "2026-06-11T06:00+02:00",
            False,
            "2026-06-11T22:00+02:00",
            "2026-06-12T06:00+02:00",
            id="at-its-end",
        ),
        pytest.param(
            "22:00-06:00",
            "2026-03-28T23:00+01:00",
            True,
            "2026-03-29T22:00+02:00",
            "2026-03-29T06:00+02:00",
            id="an-hour-shorter",
        ),
        pytest.param(
            "22:00-06:00",
            "2026-10-24T23:00+02:00",
            True,
            "2026-10-25T22:00+01:00",
            "2026-10-25T06:00+01:00",
            id="an-hour-longer",
        ),
        pytest.param(
            "02:30-06:00",
            "2026-03-29T00:30+01:00",
            False,
            "2026-03-29T03:00+02:00",
            "2026-03-29T06:00+02:00",
            id="start-leapt-over",
        ),
        pytest.param(
            "22:00-02:30",
            "2026-03-29T00:30+01:00",
            True,
            "2026-03-29T22:00+02:00",
            "2026-03-29T03:00+02:00",
            id="end-leapt-over",
        ),
        pytest.param(
            "02:15-02:45",
            "2026-03-29T00:30+01:00",
            False,
            "2026-03-30T02:15+02:00",
            "2026-03-30T02:45+02:00",
            id="wholly-leapt-over",
        ),
        pytest.param(
            "02:15-02:45",
            "2026-10-25T02:20+02:00",
            True,
            "2026-10-25T02:15+01:00",
            "2026-10-25T02:45+02:00",
            id="twice",
        ),
        pytest.param(
            "02:15-02:45",
            "2026-10-25T02:20+01:00",
            True,
            "2026-10-26T02:15+01:00",
            "2026-10-25T02:45+01:00",
            id="the-second-time",
        ),
        pytest.param(
            "22:00-02:30",
            "2026-10-25T02:45+02:00",
            False,
            "2026-10-25T02:00+01:00",
            "2026-10-25T02:30+01:00",
            id="opens-again-when-the-clock-goes-back",
        ),
        pytest.param(
            "02:30-06:00",
            "2026-10-25T02:45+02:00",
            True,
            "2026-10-25T02:30+01:00",
            "2026-10-25T02:00+01:00",
            id="closes-when-the-clock-goes-back",
        ),
    ],
)
def test_window_follows_the_clock_on_the_wall(
    text: str, now: str, is_open: bool, next_opening: str, next_end: str
) -> None:
    """Also where the clock leaps, or shows an hour twice."""
    windows = Windows.parse(text, BERLIN)
    assert windows.is_open(ms(now)) is is_open
    assert windows.next_opening_ms(ms(now)) == ms(next_opening)
    assert windows.is_open(ms(next_end) - MINUTE_MS) and not windows.is_open(ms(next_end))


@pytest.mark.parametrize("text", ["", "00:00-24:00", "12:00-11:00,10:00-13:00"])
def test_windows_that_never_close_have_no_opening(text: str) -> None:
    """There is nothing to wait for."""
    windows = Windows.parse(text, BERLIN)
    now = ms("2026-10-25T00:30+02:00")
    assert (windows.is_open(now), windows.next_opening_ms(now)) == (True, None)


def test_day_that_a_zone_leaps_over_is_passed() -> None:
    """Samoa had no 30 December 2011: the 29th was followed by the 31st."""
    windows = Windows.parse("12:00-13:00", ZoneInfo("Pacific/Apia"))
    assert windows.next_opening_ms(ms("2011-12-29T13:00-10:00")) == ms("2011-12-31T12:00+14:00")


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"])
# Days around the changes of these zones, and one without.
DAYS = st.sampled_from(
    ["2026-03-08", "2026-03-29", "2026-04-05", "2026-06-10", "2026-10-04", "2026-10-25", "2026-11-01"]
)
TIMES = st.tuples(st.integers(0, 23), st.integers(0, 59))


@given(
    zone=ZONES,
    day=DAYS,
    minutes=st.integers(-720, 1440),
    pairs=st.lists(st.tuples(TIMES, TIMES).filter(lambda pair: pair[0] != pair[1]), min_size=1, max_size=3),
)
def test_next_change_is_the_first_a_minute_by_minute_walk_finds(
    zone: str, day: str, minutes: int, pairs: list[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    """The walk asks the clock on the wall each minute whether a window is open, and of several any will do."""
    windows = Windows.parse(",".join(f"{a:02}:{b:02}-{c:02}:{d:02}" for (a, b), (c, d) in pairs), time_zone(zone))

    def is_open(moment_ms: int) -> bool:
        wall = datetime.fromtimestamp(moment_ms / 1000, ZoneInfo(zone))
        now = (wall.hour, wall.minute)
        return any(start <= now < end if start < end else now >= start or now < end for start, end in pairs)

    start_ms = ms(day + "T00:00+00:00") + minutes * MINUTE_MS
    walk = range(start_ms + MINUTE_MS, start_ms + 49 * 60 * MINUTE_MS, MINUTE_MS)
    changes = [moment for moment in walk if is_open(moment) is not is_open(moment - MINUTE_MS)]
    assert windows.is_open(start_ms) is is_open(start_ms)
    assert windows.next_opening_ms(start_ms) == next((m for m in changes if is_open(m)), None)
