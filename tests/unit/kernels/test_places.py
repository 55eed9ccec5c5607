"""Which directories compiled kernels are loaded from, and kept in."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest

from cleaner.kernels import places as module
from cleaner.kernels.places import cache_key, cache_places, find_cache_places, make_place
from cleaner.kernels.target import Target

TARGET = Target("x86_64-unknown-linux-gnu", "nehalem", "+crc32", "x86")
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


def made_place(name: str) -> Path:
    """Find the place to write to and make it, as a process does that has something to keep."""
    directory = find_cache_places(name).writable
    assert directory is not None
    make_place(directory)
    return directory


def test_cache_is_closed_to_writers(places: dict[str, Path]) -> None:
    """Everyone may read, only the owner may write."""
    directory = made_place("kernels-1")
    assert directory.parent == places["NUMBA_CACHE_DIR"]
    assert directory.stat().st_mode & 0o777 == 0o755
    assert directory.name == "kernels-1"


@pytest.mark.parametrize("missing", range(1, 4))
def test_cache_uses_the_first_available_place(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """numba's own variable, systemd's, XDG's, the home directory."""
    for name in VARIABLES[:missing]:
        monkeypatch.delenv(name)
    directory = made_place("kernels-1")
    assert places[VARIABLES[missing]] in directory.parents


def test_kernels_of_the_installation_come_first(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Read before all others where an installer made the directory, and made nowhere else."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "installed"))
    assert made_place("kernels-1").parent == places["NUMBA_CACHE_DIR"]
    installed = tmp_path / "installed" / "kernels"
    installed.mkdir(parents=True, mode=0o755)
    assert find_cache_places("kernels-1").writable == installed / "kernels-1"
    (installed / "kernels-1").mkdir(mode=0o755)
    installed.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="kernels"):
        assert find_cache_places("kernels-1").writable == places["NUMBA_CACHE_DIR"] / "kernels-1"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o720, 0o702])
def test_cache_others_can_write_to_is_not_used(places: dict[str, Path], mode: int) -> None:
    """A user who can write there can run code as us; the next place is used."""
    first = made_place("kernels-1")
    first.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"others may write to {first}"):
        second = find_cache_places("kernels-1").writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_behind_a_link_is_not_used(places: dict[str, Path], tmp_path: Path) -> None:
    """A link may be changed later."""
    first = made_place("kernels-1")
    elsewhere = tmp_path / "elsewhere"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    with pytest.warns(RuntimeWarning, match=f"{first} is a link"):
        second = find_cache_places("kernels-1").writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_with_a_file_others_can_write_to_is_not_used(places: dict[str, Path]) -> None:
    """The directory is safe, but its code is not."""
    first = made_place("kernels-1")
    entry = first / "crc32c.crc32c_range-0123456789abcdef.kernel"
    entry.write_bytes(b"")
    entry.chmod(0o664)
    with pytest.warns(RuntimeWarning, match=f"others may write to {entry}"):
        second = find_cache_places("kernels-1").writable
    assert second is not None
    assert second.parent == places["CACHE_DIRECTORY"]


def test_cache_of_another_user_is_not_used(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if only its owner can write there: that is neither us nor root. Without any place there is no cache."""
    for name in VARIABLES[1:]:
        monkeypatch.delenv(name)
    first = made_place("kernels-1")
    owner = os.geteuid()
    if owner == 0:
        os.chown(first, owner := 4712, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.warns(RuntimeWarning, match=f"{first} belongs to user {owner}"):
        assert find_cache_places("kernels-1") == ((), None)


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_cache_below_a_directory_others_can_write_to_is_not_used(places: dict[str, Path], mode: int) -> None:
    """A user who can rename a parent can replace the directory; nothing is created there either."""
    above = places["NUMBA_CACHE_DIR"]
    (above / "own").mkdir(mode=0o755)
    os.environ["NUMBA_CACHE_DIR"] = str(above / "own" / "cache")
    above.chmod(mode)
    with pytest.warns(RuntimeWarning, match=f"others may write to {above}$"):
        found = find_cache_places("kernels-1").writable
    assert found is not None
    assert found.parent == places["CACHE_DIRECTORY"]
    assert list((above / "own").iterdir()) == []


def test_cache_below_a_sticky_directory_is_used(places: dict[str, Path]) -> None:
    """As in `/tmp`: others can add names there, but neither rename nor remove ours."""
    above = places["NUMBA_CACHE_DIR"]
    os.environ["NUMBA_CACHE_DIR"] = str(above / "cache")
    above.chmod(0o1777)
    assert find_cache_places("kernels-1").writable == above / "cache" / "kernels-1"


def test_cache_in_a_sticky_directory_others_can_write_to_is_not_used(places: dict[str, Path]) -> None:
    """The directory of the files itself must be closed: others could create a missing name first."""
    directory = places["NUMBA_CACHE_DIR"] / "kernels-1"
    directory.mkdir()
    directory.chmod(0o1777)
    with pytest.warns(RuntimeWarning, match=f"others may write to {directory}$"):
        found = find_cache_places("kernels-1").writable
    assert found is not None
    assert found.parent == places["CACHE_DIRECTORY"]


@pytest.mark.root
@pytest.mark.parametrize("is_there", [False, True], ids=["to be made", "there"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_cache_of_root_below_another_users_directory_is_not_used(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, variable: str, is_there: bool
) -> None:
    """As under `sudo -E`: in their home directory, with or without a cache that root once left there."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for name in VARIABLES:
        if name != variable:
            monkeypatch.delenv(name)
    if is_there:
        made_place("kernels-1")
    before = sorted(places[variable].rglob("*"))
    os.chown(places[variable], 4711, 4711)
    with pytest.warns(RuntimeWarning, match=f"{places[variable]} belongs to user 4711$"):
        assert find_cache_places("kernels-1") == ((), None)
    assert sorted(places[variable].rglob("*")) == before


def test_cache_is_looked_for_behind_links_on_the_way(places: dict[str, Path], tmp_path: Path) -> None:
    """The current target of a link is checked, and used by its own name."""
    (tmp_path / "link").symlink_to(places["NUMBA_CACHE_DIR"])
    os.environ["NUMBA_CACHE_DIR"] = str(tmp_path / "link")
    assert find_cache_places("kernels-1").writable == places["NUMBA_CACHE_DIR"] / "kernels-1"


def test_cache_is_made_closed_to_others_whatever_the_umask(places: dict[str, Path]) -> None:
    """And the directories above it that were missing."""
    os.environ["NUMBA_CACHE_DIR"] = str(places["NUMBA_CACHE_DIR"] / "a" / "b")
    before = os.umask(0)
    try:
        found = made_place("kernels-1")
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (found, *found.parents[:2])] == [0o755] * 3


@pytest.mark.root
def test_cache_of_root_is_used(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Baked into an image by root, used by any user the image runs as."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    first = made_place("kernels-1")
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert find_cache_places("kernels-1").readable == (first,)


def test_cache_that_cannot_be_made_is_skipped(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is in the way, or the place is not writable."""
    in_the_way = places["NUMBA_CACHE_DIR"] / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(in_the_way))
    directory = made_place("kernels-1")
    assert directory.parent == places["CACHE_DIRECTORY"]


def test_cache_name_depends_on_everything_that_code_depends_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Machine code is run unchanged, so exact versions count."""
    names = {cache_key(TARGET, bounds_checked=False), cache_key(TARGET, bounds_checked=True)}
    for field in Target._fields:
        names.add(cache_key(TARGET._replace(**{field: "other"}), bounds_checked=False))
    for place, name, value in (
        (module.numba, "__version__", "0.0.0"),
        (module.llvmlite, "__version__", "0.0.0"),
        (module.np, "__version__", "0.0.0"),
        (module.sys, "version", "3.0.0"),
        (module.sys, "abiflags", "d"),
        (module, "__file__", str(tmp_path / "places.py")),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(place, name, value)
            names.add(cache_key(TARGET, bounds_checked=False))
    assert len(names) == 2 + len(Target._fields) + 6
    assert cache_key(TARGET, bounds_checked=False) in names


def test_places_are_searched_once(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """And warned about once."""
    monkeypatch.setattr(module, "cache_places", functools.cache(cache_places.__wrapped__))
    first = module.cache_places()
    for place in places.values():
        place.chmod(0o777)
    assert module.cache_places() is first


def test_places_are_found_without_being_made(places: dict[str, Path]) -> None:
    """Existing places are found as when a kernel is stored; missing ones are created only then."""
    before = sorted(path for place in places.values() for path in place.rglob("*"))
    found = find_cache_places("kernels-1")
    assert sorted(path for place in places.values() for path in place.rglob("*")) == before
    assert (found.readable, found.writable) == ((), places["NUMBA_CACHE_DIR"] / "kernels-1")
    made = made_place("kernels-1")
    assert find_cache_places("kernels-1") == ((made,), made)
    places["NUMBA_CACHE_DIR"].chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to"):
        assert find_cache_places("kernels-1").writable != made


def test_place_that_another_user_creates_first_is_not_used(places: dict[str, Path]) -> None:
    """In a directory like `/tmp` any user can create a missing name first."""
    found = find_cache_places("kernels-1").writable
    assert found is not None
    found.mkdir()
    found.chmod(0o777)
    with pytest.raises(PermissionError, match=f"others may write to {found}$"):
        make_place(found)
