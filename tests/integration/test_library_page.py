"""docs/library.md: every line of its sessions does what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_each_line_of_the_page_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one session, from the first to the last."""
    monkeypatch.chdir(tmp_path)
    # A fence is no answer, and a doctest would take it for one.
    session = PAGE.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(session, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 30
    told: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert results.failed == 0, "".join(told)
