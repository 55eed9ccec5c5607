"""A clock that was never set: reading works, writing is refused, and everything stays readable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest

from cleaner import LogManager, Record
from cleaner.app import clean
from cleaner.base.clock import LAST_CALENDAR_MS, SystemClock, require_set
from cleaner.cleaning.round import warm_up
from cleaner.errors import ClockError
from cleaner.policy.windows import Windows
from cleaner.present.http.message import Response, format_head
from tests.support.log_builder import LogBuilder, write_log_dir

EARLY_MS = -5000


class EarlyClock(SystemClock):
    """A caller's own clock, before 1970."""

    def now_ms(self) -> int:
        return EARLY_MS


@pytest.fixture
def early_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose clock is before 1970."""
    monkeypatch.setattr(time, "time_ns", lambda: EARLY_MS * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: EARLY_MS / 1000)
    yield


@pytest.mark.usefixtures("early_machine")
def test_system_clock_before_1970_returns_1970() -> None:
    """Waiting and displaying go on from there, and kernels can be loaded."""
    assert SystemClock().now_ms() == 0
    assert len(warm_up._log()) > 0  # gzip would put the clock into a header it does not fit into


@pytest.mark.parametrize("now_ms", [-(2**63), -1, 0])
def test_moment_before_1970_is_refused_as_an_unset_clock(now_ms: int) -> None:
    """The error names the clock."""
    with pytest.raises(ClockError, match="the clock of this machine shows a time before 1970"):
        require_set(now_ms)
    assert require_set(1) == 1


@pytest.mark.parametrize("clock", [EarlyClock(), SystemClock()], ids=["caller's", "machine's"])
def test_clock_before_1970_makes_no_transactional_id_unusable(
    tmp_path: Path, clock: SystemClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer may begin by such a clock; its appends are refused, and all ids are usable with the clock set."""
    with LogManager(tmp_path / "d", {}, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        manager.log("t").producer("other")
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: EARLY_MS * 1_000_000)
        with LogManager(tmp_path / "d", {}, cleaner=False, tasks=False, clock=clock) as manager:
            producer = manager.log("t").producer("tx")
            with pytest.raises(ClockError), producer.transaction():
                producer.append([Record(b"k", b"v")])
            with pytest.raises(ClockError):
                manager.log("t").append([Record(b"k", b"v")])
    with LogManager(tmp_path / "d", {}, cleaner=False, tasks=False) as manager:
        for name in ("tx", "other", "new"):
            producer = manager.log("t").producer(name)
            with producer.transaction():
                producer.append([Record(b"k", name.encode())])
        manager.log("t").flush()
        assert [record.value for record in manager.log("t").read(0)] == [b"tx", b"other", b"new"]


def test_transactional_ids_written_before_1970_are_read(tmp_path: Path) -> None:
    """Files of a release that wrote such a time."""
    with LogManager(tmp_path / "d", {}, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        before = manager.log("t").producer("tx").identity
    path = tmp_path / "d" / "t-0" / "cleaner-transactional-ids"
    head, used, _ = path.read_text().partition('"used_ms": ')
    path.write_text(f"{head}{used}-5000}}}}}}")
    with LogManager(tmp_path / "d", {}, cleaner=False, tasks=False) as manager:
        assert manager.log("t").producer("tx").identity == (before.producer_id, before.epoch + 1)


def test_transaction_that_is_open_when_the_clock_falls_before_1970_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log can be left in order whatever the clock says."""
    with LogManager(tmp_path / "d", {}, create=True, cleaner=False, tasks=False) as manager:
        manager.create_topic("t")
        producer = manager.log("t").producer("tx")
        producer.begin()
        producer.append([Record(b"k", b"v")])
        monkeypatch.setattr(time, "time_ns", lambda: EARLY_MS * 1_000_000)
    monkeypatch.undo()
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    with LogManager(tmp_path / "d", {}, cleaner=False, tasks=False) as manager:
        log = manager.log("t")
        assert list(log.read(0, isolation="read_committed")) == []
        assert log.last_stable_offset == log.log_end_offset == 2


@pytest.mark.parametrize("now_ms", [EARLY_MS, 0])
def test_log_is_not_cleaned_by_a_clock_that_was_not_set(tmp_path: Path, now_ms: int) -> None:
    """Its delete horizons would pass at once when the clock is set; not one byte has changed."""
    log = LogBuilder()
    log.append(("k", "v"), ("k", None))
    log.roll()
    log.append(("q", "z"))
    log_dir = write_log_dir(tmp_path / "d", log)
    before = {path: path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file()}
    with pytest.raises(ClockError):
        clean(log_dir, "topic-0", {"cleanup.policy": "compact"}, now_ms=now_ms)
    after = {path: path.read_bytes() for path in sorted(log_dir.rglob("*")) if path.is_file() and path.name != ".lock"}
    assert after == before


@pytest.mark.parametrize("now_ms", [-(2**63), EARLY_MS, 0, LAST_CALENDAR_MS, 253_402_300_800_000, 2**62, 2**63])
def test_moment_beyond_the_calendar_is_shown_as_its_nearest_end(now_ms: int) -> None:
    """The page can be served and windows judged at any time of the clock."""
    head = format_head(Response(b""), now_ms).decode().splitlines()
    assert head[1] in ("Date: Thu, 01 Jan 1970 00:00:00 GMT", "Date: Fri, 01 Jan 9999 00:00:00 GMT")
    windows = Windows.parse("22:00-06:00", UTC)
    assert windows.is_open(now_ms)
    assert (windows.next_opening_ms(now_ms) or now_ms) >= now_ms
