"""Where compiled kernels are kept, and that a bounds-checked build checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cleaner.kernels import compile as compile_module
from cleaner.kernels.compile import find_cache_directory

VARIABLES = ("NUMBA_CACHE_DIR", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Point every variable the cache looks at to a directory of its own."""
    found = {}
    for name in VARIABLES:
        found[name] = tmp_path / name.lower()
        found[name].mkdir(mode=0o755)
        monkeypatch.setenv(name, str(found[name]))
    return found


def test_cache_is_private_and_named_after_its_sources(places: dict[str, Path]) -> None:
    """The files are pickles: nobody else may write there; a changed kernel looks elsewhere."""
    directory = find_cache_directory()
    assert directory is not None
    assert directory.parent == places["NUMBA_CACHE_DIR"]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert compile_module._cache_key() in directory.name


@pytest.mark.parametrize("missing", range(1, 4))
def test_cache_takes_the_first_place_there_is(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """numba's own variable, systemd's, XDG's, the home directory."""
    for name in VARIABLES[:missing]:
        monkeypatch.delenv(name)
    directory = find_cache_directory()
    assert directory is not None
    assert places[VARIABLES[missing]] in directory.parents


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
def test_cache_others_can_write_to_is_not_used(places: dict[str, Path], mode: int) -> None:
    """Whoever can write there can run code as us; the next place is taken."""
    first = find_cache_directory()
    assert first is not None
    first.chmod(mode)
    second = find_cache_directory()
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_behind_a_link_is_not_used(places: dict[str, Path], tmp_path: Path) -> None:
    """A link may be bent elsewhere later."""
    first = find_cache_directory()
    assert first is not None
    elsewhere = tmp_path / "elsewhere"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    second = find_cache_directory()
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_of_another_user_is_not_used(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that only its owner can write to: the owner is not us. Without any place there is none."""
    assert find_cache_directory() is not None
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert find_cache_directory() is None


def test_cache_that_cannot_be_made_is_passed_over(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way, as an unwritable place would be."""
    in_the_way = places["NUMBA_CACHE_DIR"] / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(in_the_way))
    directory = find_cache_directory()
    assert directory is not None
    assert directory.parent == places["CACHE_DIRECTORY"]


BEYOND = """
import numpy as np
from cleaner.kernels import memory
array = np.zeros(10, np.uint8)
for call in (
    lambda: memory.load_u64_be(array, 3), lambda: memory.load_u64_le(array, -1), lambda: memory.load_u32_be(array, 7),
    lambda: memory.load_u16_be(array, 9), lambda: memory.store_u64_be(array, 3, 1),
    lambda: memory.store_u32_be(array, -1, 1), lambda: memory.store_u16_be(array, 9, 1),
    lambda: memory.copy_bytes(array, 5, array, 0, 6), lambda: memory.copy_bytes(array, 0, array, 9, 2),
    lambda: memory.copy_bytes(array, 0, array, 5, -1),
):
    try:
        call()
    except IndexError:
        print("refused")
memory.store_u64_be(array, 2, 1)
print(array.tolist(), memory.load_u64_be(array, 2))
"""


def test_bounds_checked_build_refuses_what_lies_outside(tmp_path: Path) -> None:
    """The tests of the kernels are repeated with such a build; so it must notice."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", BEYOND]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    assert said[:10] == ["refused"] * 10
    assert said[10] == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1] 1"
