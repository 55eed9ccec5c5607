"""Verdicts on figures, and the layout of tables."""

from __future__ import annotations

import pytest

from benchmarks.tables import AIM_MET, MISSED, MUST_MET, Bounds, table


@pytest.mark.parametrize(
    ("figure", "verdict"), [(5.99, MISSED), (6.0, MUST_MET), (11.99, MUST_MET), (12.0, AIM_MET), (13.0, AIM_MET)]
)
def test_verdict_names_the_bounds_that_a_ratio_meets(figure: float, verdict: str) -> None:
    """A value equal to a bound meets it."""
    assert Bounds(6, 12).verdict(figure) == verdict


@pytest.mark.parametrize(("figure", "verdict"), [(1.51, MISSED), (1.5, MUST_MET), (1.01, MUST_MET), (1.0, AIM_MET)])
def test_verdict_on_an_upper_bound_is_reversed(figure: float, verdict: str) -> None:
    """Of seconds and bytes less is better."""
    assert Bounds(1.5, 1.0, at_most=True).verdict(figure) == verdict


def test_verdict_without_aim_is_one_of_two() -> None:
    """Without an aim even a good figure meets none."""
    assert [Bounds(2).verdict(figure) for figure in (1, 2, 100)] == [MISSED, MUST_MET, MUST_MET]


def test_cells_show_figure_bounds_and_verdict() -> None:
    """Bounds stand as they are written in the code, the figure with two digits."""
    assert Bounds(2, 3.5).cells(2.504, " x") == ["2.50 x", "2 x", "3.5 x", MUST_MET]
    assert Bounds(330, at_most=True).cells(400, " MB") == ["400.00 MB", "330 MB", "", MISSED]


def test_table_has_columns_of_one_width() -> None:
    """Names stand to the left, figures to the right, and the result is Markdown."""
    assert table("Title", ["input", "s"], [["W1", "0.5"], ["a longer one", "12.25"]]) == (
        "Title\n"
        "\n"
        "| input        |     s |\n"
        "| ------------ | ----: |\n"
        "| W1           |   0.5 |\n"
        "| a longer one | 12.25 |\n"
    )
