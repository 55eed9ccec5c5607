"""
Says which releases of Kafka the table of `cleaner/policy/kafka_version.py` does not know: `make kafka-news`.

It asks Maven, with the machine's settings, and ends with status 1 if there is a new release; see docs/new-kafka.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cleaner.policy.kafka_version import KAFKA_VERSIONS
from tests.kafka.rig import cache_root

ARTIFACT = "org.apache.kafka:kafka-storage"
GET = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"
_VERSION = re.compile(r"<version>\s*(\d+(?:\.\d+)+)\s*</version>")

Release = tuple[int, ...]


def as_numbers(release: str) -> Release:
    """Return `4.3.1` as (4, 3, 1)."""
    return tuple(int(part) for part in release.split("."))


def releases_in(metadata: str) -> set[Release]:
    """Return the releases that a repository's `maven-metadata.xml` lists, without candidates."""
    return {as_numbers(version) for version in _VERSION.findall(metadata)}


def unknown(releases: Iterable[Release], known: Iterable[str]) -> list[str]:
    """Return, ascending, the releases newer than the known one of their line, and all of newer lines."""
    compared = {as_numbers(release)[:2]: as_numbers(release) for release in known}
    newest = max(compared)
    news = (each for each in releases if each > compared.get(each[:2], each if each[:2] < newest else newest))
    return [".".join(map(str, each)) for each in sorted(news)]


def ask_maven(repository: Path) -> str:
    """Return what repositories list of the artifact's versions. Raises CalledProcessError: Maven failed."""
    command = ["mvn", "-q", "-B", "-U", f"-Dmaven.repo.local={repository}", GET]
    subprocess.run([*command, f"-Dartifact={ARTIFACT}:LATEST:pom", "-Dtransitive=false"], check=True, timeout=600)
    group, artifact = ARTIFACT.split(":")
    about = repository.joinpath(*group.split("."), artifact)
    return "".join(path.read_text() for path in about.glob("maven-metadata-*.xml"))


def main() -> int:
    """Print what is new."""
    found = releases_in(ask_maven(cache_root() / "news"))
    if not found:
        print(f"Maven knows no release of {ARTIFACT}", file=sys.stderr)
        return 2
    news = unknown(found, (each.release for each in KAFKA_VERSIONS))
    print(f"{ARTIFACT}: the newest release is {'.'.join(map(str, max(found)))}")
    for release in news:
        print(f"{release} has not been compared: see docs/new-kafka.md")
    return 1 if news else 0


if __name__ == "__main__":
    sys.exit(main())
