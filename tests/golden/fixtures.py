"""Golden archives, each unpacked once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.archive import DATA, RANDOM_LOGS, unpack
from tests.scratch import scratch_directory


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a scenario's name to its unpacked directory, which must not be changed."""
    found: dict[str, Path] = {}

    def unpack_once(name: str) -> Path:
        if name not in found:
            found[name] = unpack(DATA / f"{name}.tar.xz", tmp_path_factory.mktemp(name))
        return found[name]

    return unpack_once


@pytest.fixture(scope="session")
def random_logs() -> Iterator[Path]:
    """Return the directory of the random logs, which must not be changed."""
    with scratch_directory() as directory:
        yield unpack(RANDOM_LOGS, directory)
