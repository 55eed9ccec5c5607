"""docs/security.md: every row names tests that exist; what it says of the lock file is so."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "security.md"
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def locked() -> dict[str, str]:
    """Return the version of each package in the lock file."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    parts = [line.partition("==") for line in lines]
    assert [line for line, (_, pinned, version) in zip(lines, parts, strict=True) if not (pinned and version)] == []
    return {canonicalize_name(name): version for name, _, version in parts}


def test_every_row_names_tests_that_exist() -> None:
    """A row without a test, or with one that is gone, is a promise without proof."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "what stops" not in line]
    rows = [row for row in rows if not set(row) <= set("|- ")]
    assert len(rows) > 35
    assert [row for row in rows if not NAMED.search(row.rpartition(" | ")[2])] == []
    named = NAMED.findall(PAGE.read_text())
    assert len(named) == PAGE.read_text().count("::test_")
    texts = {path: (ROOT / "tests" / path).read_text() for path, _ in named if (ROOT / "tests" / path).exists()}
    assert [name for name in named if not re.search(rf"^def {name[1]}\(", texts.get(name[0], ""), re.MULTILINE)] == []


def test_lock_pins_every_requirement_to_one_version() -> None:
    """What the package and its extras ask for, and what that asks for, to the end."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = about["project"]["optional-dependencies"]
    asked = [*about["project"]["dependencies"], *about["build-system"]["requires"], *chain(*extras.values())]
    versions = locked()
    left = [Requirement(text) for text in asked]
    seen = {canonicalize_name(about["project"]["name"])}
    missing = []
    while left:
        wanted = left.pop()
        name = canonicalize_name(wanted.name)
        if name in seen or (wanted.marker is not None and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        if name not in versions or not wanted.specifier.contains(versions[name]):
            missing.append(str(wanted))
            continue
        left += [Requirement(text) for text in metadata.distribution(name).requires or ()]
    assert missing == []


def test_installed_packages_are_those_of_the_lock() -> None:
    """The tests run with the versions that are promised."""
    installed = {canonicalize_name(each.name): each.version for each in metadata.distributions()}
    versions = locked()
    assert len(installed.keys() & versions.keys()) > 30
    assert [name for name in versions if installed.get(name, versions[name]) != versions[name]] == []
