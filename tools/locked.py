"""
What the product itself needs of requirements.lock: neither Spark nor what only the tests use.

Read by the SBOM, the bundle and the Debian package, so that all three name the same releases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NAME = "kafka-log-cleaner"


@dataclass(frozen=True)
class Locked:
    """
    One package.

    Attributes:
        name, version: as in requirements.lock.
        requires: names of the packages it needs by itself.
        licence: what its metadata says, an SPDX expression if it has one; empty where it says nothing.
    """

    name: str
    version: str
    requires: tuple[str, ...]
    licence: str


def versions() -> dict[str, str]:
    """Return the version of every package in requirements.lock, by its name."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def runtime(requirements: list[str]) -> dict[str, Locked]:
    """
    Return the packages that some requirements lead to, by name.

    Raises:
        ValueError: one is not in requirements.lock, or what is installed here is another release than it names.
    """
    exact = versions()
    found: dict[str, Locked] = {}
    names = sorted(needed(requirements))
    while names:
        name = names.pop()
        if name in found:
            continue
        about = distribution(name)
        if exact.get(name) != about.version:
            raise ValueError(f"{name} {about.version} is installed, requirements.lock has {exact.get(name, 'none')}")
        requires = tuple(sorted(needed(about.requires or [])))
        found[name] = Locked(name, about.version, requires, _licence(about))
        names.extend(requires)
    return dict(sorted(found.items()))


def needed(requirements: list[str]) -> Iterator[str]:
    """Yield the names of requirements that hold here without extras."""
    for each in map(Requirement, requirements):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield canonicalize_name(each.name)


def _licence(about: Distribution) -> str:
    """Return one line: the expression, or the short form that packages had before there were expressions."""
    for field in ("License-Expression", "License"):
        for text in about.metadata.get_all(field) or ():
            if "\n" not in text.strip():
                return str(text.strip())
    kinds = [each for each in about.metadata.get_all("Classifier") or () if each.startswith("License ::")]
    return ", ".join(each.rpartition(" :: ")[2] for each in kinds)
