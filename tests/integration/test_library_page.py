"""docs/library.md: every line of its sessions does what it says."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import cleaner
from cleaner import errors

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_each_line_of_the_page_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one session, from the first to the last."""
    monkeypatch.chdir(tmp_path)
    assert _run_session(PAGE) > 30


def test_each_line_of_the_page_of_tables_answers_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    monkeypatch.chdir(tmp_path)
    assert _run_session(PAGE.with_name("table.md")) > 5


def _run_session(page: Path) -> int:
    """Run the session on a page; returns its number of lines."""
    # A fence is no answer, and a doctest would take it for one.
    session = page.read_text().replace("```", "")
    test = doctest.DocTestParser().get_doctest(session, {}, page.name, str(page), 0)
    told: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert results.failed == 0, "".join(told)
    return len(test.examples)


def test_each_example_on_the_page_is_run() -> None:
    """There is no block of Python but sessions, and no prompt outside of one."""
    text = PAGE.read_text()
    assert set(re.findall(r"^ *```(\w+)", text, re.MULTILINE)) == {"pycon"}
    outside = re.sub(r"```pycon\n.*?```", "", text, flags=re.DOTALL)
    assert ">>>" not in outside


# Methods that a log and its producers use between themselves.
AMONG_THEMSELVES = {
    *("Log.appended_at", "Log.fence", "Log.listen", "LogProducer.end_if_late", "TopicLogs.decoded"),
    *("ManagerProducer.fence", "ManagerProducer.end_if_late"),
}


def _public_names(kind: type) -> set[str]:
    """Return methods, properties and fields of one of our classes."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("cleaner.")]
    names = {name for each in ours for name in (*vars(each), *inspect.get_annotations(each))}
    return {name for name in names if not name.startswith("_")}


def test_each_public_name_of_the_library_is_on_the_page() -> None:
    """Everything exported, and every public member of logs."""
    page = PAGE.read_text()
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", re.sub(r"```.*?```", "", page, flags=re.DOTALL)))))
    exported = {name: getattr(cleaner, name) for name in cleaner.__all__}
    of_logs = {
        name: kind for name, kind in exported.items() if getattr(kind, "__module__", "").startswith("cleaner.log.")
    }
    assert len(of_logs) > 10
    assert sorted(exported.keys() - words) == []
    wanted = {
        f"{name}.{each}" for name, kind in of_logs.items() if isinstance(kind, type) for each in _public_names(kind)
    }
    missing = sorted(name for name in wanted - AMONG_THEMSELVES if name.partition(".")[2] not in words)
    assert missing == []
    assert wanted >= AMONG_THEMSELVES


def test_each_error_of_a_writable_log_is_on_the_page() -> None:
    """In the table, with what to do."""
    rows = " ".join(line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    kinds = [errors.LogWriteError, errors.LogClosedError, errors.TopicError]
    named = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, tuple(kinds))]
    assert len(named) > 12
    assert [kind.__name__ for kind in named if f"`{kind.__name__}`" not in rows] == []
