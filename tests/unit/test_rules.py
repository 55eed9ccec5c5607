"""The rules that comments and tests cite are in docs/rules.md, each once, each with its home in the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "rules.md"
CITED_IN = ("cleaner", "tests", "docs", "tools", "benchmarks")
# `R-401`, and `R-401..R-405` or `R-401 to R-405`, which stand for all rules between the two.
CITATION = re.compile(r"\b([RDC])-(\d+[a-z]?)(?:(?:\.\.| to )\1-(\d+))?\b")
RULE = re.compile(r"^- \*\*([RDC]-\d+)\*\* (.*?)(?=\n- |\n\n|\Z)", re.MULTILINE | re.DOTALL)
HOMES = re.compile(r"In ((?:`[\w./]+`(?:, )?)+)\.$")


def rules() -> list[tuple[str, str]]:
    """Return the rules of the page, number and text, in its order."""
    return [(number, " ".join(text.split())) for number, text in RULE.findall(PAGE.read_text())]


@cache
def sources() -> dict[Path, str]:
    """Return the text of every file that may cite a rule."""
    files = (path for top in CITED_IN for path in sorted((ROOT / top).rglob("*")))
    return {path: path.read_text() for path in files if path.suffix in (".py", ".md", ".java") and path != PAGE}


def citations(text: str, known: set[str]) -> Iterator[str]:
    """Return every rule a text cites; of a range its ends, and all known rules between."""
    for letter, first, last in CITATION.findall(text):
        yield f"{letter}-{first}"
        if last:
            yield f"{letter}-{last}"
            between = range(int(first) + 1, int(last))
            yield from (rule for rule in known if rule[0] == letter and int(rule[2:]) in between)


def test_numbers_of_rules_are_unique() -> None:
    """No number stands for two rules, and none is written in two ways."""
    numbers = [number for number, _ in rules()]
    assert len(numbers) > 200
    assert len(numbers) == len(set(numbers))
    assert [number for number in numbers if not re.fullmatch(r"R-[1-9]\d\d|D-\d\d|C-[1-9]\d*", number)] == []


def test_every_citation_has_a_rule() -> None:
    """What a comment, a message, a test or a document cites can be looked up."""
    known = {number for number, _ in rules()}
    unknown = [
        (str(path.relative_to(ROOT)), rule)
        for path, text in sources().items()
        for rule in citations(text, known)
        if rule not in known
    ]
    assert unknown == []
    assert sorted(set(citations(PAGE.read_text(), known)) - known) == []


def test_every_rule_is_cited_in_its_homes_or_is_not_ours() -> None:
    """Each rule names the files that carry it out, where it is cited; or says why it is not ours."""
    known = {number for number, _ in rules()}
    homeless = []
    for number, text in rules():
        named = HOMES.search(text)
        if named is None:
            if "Not ours: " not in text:
                homeless.append((number, "neither a home nor a reason"))
            continue
        for home in re.findall(r"`([\w./]+)`", named[1]):
            path = ROOT / home if home.startswith("tests/") else ROOT / "cleaner" / home
            if number not in citations(sources().get(path, ""), known):
                citing = [str(at.relative_to(ROOT)) for at, text in sources().items() if number in text]
                homeless.append((number, f"{home} does not cite it; found in {citing}"))
    assert homeless == []


def test_steps_of_crash_safety_are_unique_and_those_of_the_code() -> None:
    """A step (`S1`, `K2`, `E3`) has one meaning; the tables in docstrings have no other."""
    tables = re.findall(
        r"^\| \| step \|.*?\n\n", (ROOT / "docs" / "crash-safety.md").read_text(), re.MULTILINE | re.DOTALL
    )
    steps = [step for table in tables for step in re.findall(r"^\| ([A-Z]\d?) \| ", table, re.MULTILINE)]
    assert len(steps) > 25
    assert len(steps) == len(set(steps))
    drawn = re.compile(r"^    ([A-Z]\d)    \S", re.MULTILINE)
    storage = {path: text for path, text in sources().items() if path.is_relative_to(ROOT / "cleaner" / "storage")}
    cited = {step for text in storage.values() for step in drawn.findall(text)}
    assert {"S1", "H4"} <= cited <= set(steps)
