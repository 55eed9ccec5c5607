"""Which directories compiled kernels are loaded from, and kept in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cleaner.kernels import cache as cache_module
from cleaner.kernels.cache import find_cache_places

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


def test_cache_is_closed_to_writers_and_named_after_its_sources(places: dict[str, Path]) -> None:
    """Everybody may read, nobody else may write; a changed kernel looks elsewhere."""
    directory = find_cache_places().writable
    assert directory is not None
    assert directory.parent == places["NUMBA_CACHE_DIR"]
    assert directory.stat().st_mode & 0o777 == 0o755
    assert cache_module._cache_key() in directory.name


@pytest.mark.parametrize("missing", range(1, 4))
def test_cache_takes_the_first_place_there_is(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """numba's own variable, systemd's, XDG's, the home directory."""
    for name in VARIABLES[:missing]:
        monkeypatch.delenv(name)
    directory = find_cache_places().writable
    assert directory is not None
    assert places[VARIABLES[missing]] in directory.parents


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
def test_cache_others_can_write_to_is_not_used(places: dict[str, Path], mode: int) -> None:
    """Whoever can write there can run code as us; the next place is taken."""
    first = find_cache_places().writable
    assert first is not None
    first.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"others may write to {first}"):
        second = find_cache_places().writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_behind_a_link_is_not_used(places: dict[str, Path], tmp_path: Path) -> None:
    """A link may be bent elsewhere later."""
    first = find_cache_places().writable
    assert first is not None
    elsewhere = tmp_path / "elsewhere"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    with pytest.warns(RuntimeWarning, match=f"{first} is a link"):
        second = find_cache_places().writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_with_a_file_others_can_write_to_is_not_used(places: dict[str, Path]) -> None:
    """The directory is safe, but its code is not."""
    first = find_cache_places().writable
    assert first is not None
    entry = first / "crc32c.crc32c_range-96.py311.1.nbc"
    entry.write_bytes(b"")
    entry.chmod(0o664)
    with pytest.warns(RuntimeWarning, match=f"others may write to {entry}"):
        second = find_cache_places().writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_of_another_user_is_not_used(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that only its owner can write to: that is neither us nor root. Without any place there is none."""
    for name in VARIABLES[1:]:
        monkeypatch.delenv(name)
    first = find_cache_places().writable
    assert first is not None
    owner = os.geteuid()
    if owner == 0:
        os.chown(first, owner := 4712, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.warns(RuntimeWarning, match=f"{first} belongs to user {owner}"):
        assert find_cache_places() == ((), None)


@pytest.mark.root
def test_cache_of_root_is_used(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Baked into an image by root, used by whoever the image runs as."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    first = find_cache_places().writable
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert find_cache_places().readable == (first,)


def test_cache_that_cannot_be_made_is_passed_over(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in the way, as an unwritable place would be."""
    in_the_way = places["NUMBA_CACHE_DIR"] / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(in_the_way))
    directory = find_cache_places().writable
    assert directory is not None
    assert directory.parent == places["CACHE_DIRECTORY"]
