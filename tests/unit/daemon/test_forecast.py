"""How long what is due takes: what is said, and when nothing is."""

from __future__ import annotations

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.status import show_status
from cleaner.daemon.forecast import WINDOW_SECONDS, Meter
from cleaner.daemon.snapshot import Counts, Forecast, WorkerView
from cleaner.policy.reasons import Reason
from cleaner.present.html.page import overview
from tests.support.manual_clock import START_MS
from tests.support.snapshots import MB, log, round_of, snapshot, worker

IDLE = (worker(0), worker(1))
DUE = Counts(logs=9, due=5, due_bytes=400 * MB, work_bytes=1000 * MB, dirty_bytes=400 * MB)


class Day:
    """A meter and the time."""

    def __init__(self, dirty_bytes: int = 400 * MB) -> None:
        self.meter = Meter()
        self.seconds = 0.0
        self.log_dirs = frozenset({"/a"})
        self.charged = 0
        self.dirty = dirty_bytes
        self.look()

    @property
    def now(self) -> tuple[int, int]:
        return START_MS + round(self.seconds * 1000), round(self.seconds * 1e9)

    def look(self, counts: Counts = DUE) -> None:
        """Look at all logs."""
        self.meter.sample(self.log_dirs, with_dirty(counts, self.dirty), IDLE, self.charged, *self.now)

    def clean(self, seconds: float, read_mb: int, dirty_mb: int, written_mb: int = 0) -> None:
        """Clean one log with one worker, and look."""
        self.seconds += seconds
        self.charged += (read_mb + written_mb) * MB
        self.dirty -= dirty_mb * MB
        read = (read_mb - dirty_mb) * MB
        written, mapped = written_mb * MB, dirty_mb * MB
        self.meter.note_round(round_of(seconds=seconds, bytes_read=read, bytes_written=written, map_bytes_read=mapped))
        self.look()

    def foretell(
        self, counts: Counts = DUE, workers: tuple[WorkerView, ...] = IDLE, limit: float | None = None
    ) -> Forecast:
        return self.meter.forecast(with_dirty(counts, self.dirty), workers, self.charged, limit, *self.now)


def with_dirty(counts: Counts, dirty_bytes: int) -> Counts:
    return Counts(
        logs=counts.logs,
        due=counts.due,
        due_bytes=counts.due_bytes,
        work_bytes=counts.work_bytes,
        dirty_bytes=dirty_bytes,
    )


def test_forecast_is_what_is_left_at_the_rate_of_the_workers() -> None:
    """One worker read 100 MB in 10 s; two read the 1000 MB that are left in 50 s."""
    day = Day()
    day.clean(10, read_mb=100, dirty_mb=40)
    found = day.foretell()
    assert (found.due, found.left_bytes, found.bytes_per_second) == (5, 1000 * MB, 20 * MB)
    assert found.seconds == pytest.approx(50)
    assert found.about_seconds == 50


def test_forecast_without_a_rate_promises_nothing() -> None:
    """Nothing was cleaned, it was too long ago, or under another limit."""
    assert day_without_work().foretell() == Forecast(5, 1000 * MB)
    old = Day()
    old.clean(10, 100, 40)
    for _ in range(3):
        old.seconds += WINDOW_SECONDS
        old.look()
    assert old.foretell().seconds is None
    changed = Day()
    changed.clean(10, 100, 40)
    changed.meter.forget()
    assert changed.foretell().seconds is None
    assert Day().foretell(Counts(logs=3)) == Forecast()


def day_without_work() -> Day:
    day = Day()
    day.seconds += 15
    day.look()
    return day


def test_forecast_is_no_faster_than_the_limit() -> None:
    """Which is charged for what is written, too: 5 MB/s read and write make 4 MB/s of reading."""
    day = Day()
    day.clean(10, read_mb=100, dirty_mb=40, written_mb=25)
    found = day.foretell(limit=5 * MB)
    assert found.bytes_per_second == pytest.approx(4 * MB)
    assert found.seconds == pytest.approx(250)


def test_forecast_counts_what_a_round_under_way_has_read() -> None:
    """A log of hundreds of gigabytes is under way for hours."""
    day = Day()
    day.seconds += 20
    at_work = worker(0, TopicPartition("a", 0), since_ms=START_MS, read_bytes=200 * MB)
    found = day.foretell(workers=(at_work, worker(1)))
    assert found.left_bytes == 800 * MB
    assert found.seconds == pytest.approx(800 / 20)


def test_forecast_of_what_arrives_as_fast_is_that_it_grows() -> None:
    """40 MB dirty are cleaned while 50 MB arrive: a promise would be false, whatever the rate."""
    day = Day()
    day.dirty += 100 * MB
    day.clean(10, read_mb=100, dirty_mb=40)
    found = day.foretell()
    assert found.is_growing
    assert found.seconds is None


def test_log_dir_that_comes_into_sight_has_not_arrived() -> None:
    """What is dirty there was so before: it is neither said to grow, nor is there a rate for all of it yet."""
    day = Day()
    day.clean(10, read_mb=100, dirty_mb=40)
    day.dirty += 90_000 * MB
    day.log_dirs = frozenset({"/a", "/b"})
    day.seconds += 15
    day.look()
    assert not day.foretell().is_growing
    day.clean(10, read_mb=100, dirty_mb=40)
    assert day.foretell().seconds == pytest.approx(50)


def test_forecast_allows_for_bytes_that_arrive() -> None:
    """Two workers read 20 MB/s; 2 MB dirty a second are 5 MB/s to read."""
    day = Day()
    day.dirty += 20 * MB
    day.clean(10, read_mb=100, dirty_mb=40)
    assert day.foretell().seconds == pytest.approx(1000 / 15)


@pytest.mark.parametrize(
    ("seconds", "about"),
    [(0.2, 10), (44, 40), (719, 720), (3599, 3600), (5000, 4800), (90_000, 90_000), (91_000, 90_000)],
)
def test_forecast_is_as_exact_as_a_guess_can_be(seconds: float, about: int) -> None:
    """Nobody can foretell seconds of an hour."""
    assert Forecast(1, 1, 1.0, seconds).about_seconds == about


@pytest.mark.parametrize(
    ("forecast", "said", "tile"),
    [
        (Forecast(41, 720 * MB, 1.0 * MB, 719.0), "41, 720.0 MiB to read; empty in about 12 min", "about 12 min"),
        (Forecast(41, 720 * MB), "41, 720.0 MiB to read; the time it takes is not known yet", "?"),
        (Forecast(41, 720 * MB, 1.0, None, True), "41, 720.0 MiB to read; growing: more arrives than", "growing"),
        (Forecast(), None, "-"),
    ],
)
def test_forecast_is_shown_by_status_and_page(
    forecast: Forecast, said: str | None, tile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same numbers; status says nothing where nothing is due."""
    shown = snapshot([log("a", 0)], forecast=forecast)
    show_status(shown, "")
    printed = capsys.readouterr().out
    assert (f"  due         {said}" in printed) if said else ("  due  " not in printed)
    assert max(map(len, printed.splitlines()[:8])) <= 80
    assert f"<dt>Empty in</dt><dd><b>{tile}</b>" in overview(shown, {}).body.decode()


def test_logs_that_something_else_holds_are_in_no_forecast() -> None:
    """Nobody knows when a pause ends."""
    held = [log("a", n, dirty_bytes=900 * MB, reason=reason) for n, reason in enumerate(Reason)]
    counts = snapshot(held).counts
    assert counts.due == sum(reason.is_due_and_free for reason in Reason) + 2
    assert counts.work_bytes > 2 * counts.due_bytes
