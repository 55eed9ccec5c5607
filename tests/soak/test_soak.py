"""The short form of `make soak`: real processes on a small ext4, with kills, a power cut and disks that fail."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from tests.crash.loop_image import require_loop_images
from tests.soak.accidents import Plan
from tests.soak.director import soak
from tests.soak.gauges import Gauge, Sample
from tests.soak.notes import Notes
from tests.soak.site import Site, Trouble

_SECONDS = 3.0
_FIRST = ("power_cut", "full_disk", "kill_both")


@pytest.mark.root
def test_short_run_with_kills_and_a_power_cut_finds_every_log_as_it_was_answered(tmp_path: Path) -> None:
    """What was acknowledged is there, readers saw nothing else, and all is cleaned at the end."""
    require_loop_images("ext4")
    told: list[str] = []
    plan = Plan(1, _SECONDS, pause_seconds=0.4, measure_seconds=1.0, calm=False, first=_FIRST, longest_freeze_seconds=1)
    with soak(plan, tmp_path, told.append) as run:
        try:
            run.run()
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(told)) from error
    assert run.accidents.keys() >= set(_FIRST)
    assert run.live.rounds > 0


@pytest.mark.parametrize(
    ("bytes_a_round", "files_a_round", "is_flat"), [(0, 0, True), (4_000, 0, True), (6_000, 0, False), (0, 0.01, False)]
)
def test_growth_above_the_limits_is_not_flat(bytes_a_round: int, files_a_round: float, is_flat: bool) -> None:
    """Five megabytes in a thousand rounds are allowed; neither warm-up nor a step of an allocator counts as growth."""
    gauge = Gauge("a daemon", 1)
    for number in range(100):
        warm_up = -30_000_000 // (number + 1) ** 3
        rounds = number * 20
        step = 2_000_000 * (number > 80)
        size, files = 80_000_000 + warm_up + step + bytes_a_round * rounds, 12 + round(files_a_round * rounds)
        gauge.samples.append(Sample(rounds, size, files, 9))
    growth = gauge.growth()
    assert growth is not None
    assert growth.is_flat() is is_flat


def test_growth_of_a_short_life_is_not_judged() -> None:
    """A process of a few rounds says nothing."""
    assert Gauge("a daemon", 1, [Sample(0, 1, 1, 1)] * 10).growth() is None


@pytest.mark.parametrize(("lies_until", "is_believed"), [(-math.inf, True), (math.inf, False)])
def test_fsyncs_answered_while_a_file_system_breaks_down_are_not_believed(
    tmp_path: Path, lies_until: float, is_believed: bool
) -> None:
    """Its answer may be untrue; before and after, every answer counts."""
    site = Site("live", tmp_path / "log-dir", tmp_path / "live", 1, 1.0)
    notes = Notes(site.root / "writer.notes")
    site.troubles.append(Trouble(time.monotonic(), lies_until=lies_until))
    notes.write("send", p="alpha-0", n=7, keys="a", pad=0)
    notes.write("answer", p="alpha-0", n=7, at=0)
    notes.write("durable", p="alpha-0", n=7)
    site.drain()
    assert site.model.logs["alpha"].sent[7].is_answered
    assert site.model.logs["alpha"].sent[7].is_durable is is_believed
    site.end_all()
