"""A log to scale: every part visible, every offset named, no line too long."""

from __future__ import annotations

import io
import itertools
import random
from dataclasses import replace

import pytest

from cleaner.cli.log_page import parts_of, picture
from cleaner.cli.output import Paint
from cleaner.policy.sections import Sections, shared
from tests.support.snapshots import GB, MB, sections

PLAIN = Paint(io.StringIO())


def test_picture_of_a_log() -> None:
    """As at the head of the file."""
    log = Sections(0, 9064, 3600, 6000, 8000, 8424, 360_000, 600_000, 800_000, 100_000, 200_000)
    assert picture(log, 60, PLAIN) == [
        "========-----##################..~~~~~",
        "|       |    |                 | |    |",
        "|       |    |                 | |    log end offset 9064",
        "|       |    |                 | active segment 8424",
        "|       |    |                 first uncleanable offset 8000",
        "|       |    first dirty offset 6000",
        "|       delete retention point 3600",
        "log start offset 0",
    ]


def test_picture_is_to_scale() -> None:
    """A part twice as large has twice the cells."""
    bar = picture(sections(clean_bytes=300 * MB, dirty_bytes=600 * MB, active_bytes=100 * MB), 200, PLAIN)[0]
    assert bar.count("#") == pytest.approx(0.6 * len(bar), abs=1)
    assert bar.count("=") + bar.count("-") == pytest.approx(0.3 * len(bar), abs=1)
    assert (bar.count("~"), bar.count(".")) == (pytest.approx(0.1 * len(bar), abs=1), 0)


def test_picture_shows_the_smallest_part() -> None:
    """One byte next to terabytes."""
    bar = picture(sections(clean_bytes=4000 * GB, dirty_bytes=1, uncleanable_bytes=1, active_bytes=1), 80, PLAIN)[0]
    assert bar.endswith("#.~")


def test_log_without_anything_clean_has_no_delete_retention_point() -> None:
    """And a pointer less."""
    drawn = "\n".join(picture(sections(clean_bytes=0), 80, PLAIN))
    assert "delete retention point" not in drawn
    assert "log start offset, first dirty offset 0" in drawn


def test_offsets_at_one_place_share_a_line() -> None:
    """With one number where they are equal, with two where they only look so."""
    log = sections(clean_bytes=GB, dirty_bytes=0, uncleanable_bytes=0)
    drawn = picture(log, 120, PLAIN)
    offset = log.active_base_offset
    assert any(f"first dirty offset, first uncleanable offset, active segment {offset}" in line for line in drawn)
    holes = replace(log, first_uncleanable_offset=offset + 5, active_base_offset=offset + 9)
    drawn = picture(holes, 160, PLAIN)
    words = f"first dirty offset {offset}, first uncleanable offset {offset + 5}, active segment {offset + 9}"
    assert any(words in line for line in drawn)


def test_empty_log_has_no_picture() -> None:
    """There is nothing to scale it to."""
    assert picture(sections(0, 0, 0, 0), 80, PLAIN) == []


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_lines_fit_the_terminal(columns: int) -> None:
    """Whatever the log: labels of the largest offsets, parts of any size."""
    rng = random.Random(columns)
    for _ in range(100):
        sizes = [rng.choice((0, 1, rng.randrange(1, 10**6), rng.randrange(1, 10**13))) for _ in range(4)]
        start, share = rng.randrange(10**9), rng.random()
        log = sections(*sizes, log_start_offset=start, retention_part=share)  # type: ignore[misc]
        drawn = picture(log, columns, PLAIN)
        told = "\n".join(drawn)
        for part in parts_of(log):
            assert (part.sign in drawn[0]) == (part.size > 0) if drawn else part.size == 0
            assert not drawn or str(part.end_offset) in told
        # Several offsets at one place are told in a line that may be longer than any terminal.
        assert all(len(line) <= columns for line in drawn if "," not in line and columns >= 80)


def test_terminal_that_is_too_narrow_gets_long_lines_and_no_error() -> None:
    """Better wrapped than left out."""
    assert len(picture(sections(), 5, PLAIN)[0]) == 20


@pytest.mark.parametrize(("width", "seed"), list(itertools.product([20, 79], range(20))))
def test_cells_are_shared_out_wholly(width: int, seed: int) -> None:
    """Their sum is the width; none is lost, nothing that is there has none."""
    rng = random.Random(seed)
    sizes = [rng.choice((0, rng.randrange(1, 10**12))) for _ in range(5)] + [1]
    cells = shared(sizes, width)
    assert sum(cells) == width
    assert [count > 0 for count in cells] == [size > 0 for size in sizes]


def test_bar_has_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none where NO_COLOR asks for none."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[33m" in picture(sections(), 80, Paint(Terminal()))[0]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in picture(sections(), 80, Paint(Terminal()))[0]
    assert "\x1b" not in picture(sections(), 80, PLAIN)[0]
