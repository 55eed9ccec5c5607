"""Files of machine code: whole, or not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.kernels.machine_code import (
    MachineCode,
    list_codes,
    read_code,
    read_constants,
    write_code,
    write_constants,
)

CODE = MachineCode("retain.seal_batch", "entry", ["variable"], ["memcpy"], ["int64", "bool"], bytes(range(256)) * 3)


@pytest.fixture
def _careless_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_versions_of_kernels_are_found_again(tmp_path: Path) -> None:
    """Each in a file of its own, under its kernel's name."""
    other = CODE._replace(parameters=["int64"])
    longer = CODE._replace(kernel="retain.seal_batches")
    for code in (CODE, other, longer):
        write_code(tmp_path, code)
    found = list_codes(tmp_path)
    assert set(found) == {"retain.seal_batch", "retain.seal_batches"}
    assert sorted(map(str, map(read_code, found["retain.seal_batch"]))) == sorted(map(str, (CODE, other)))
    assert [read_code(path) for path in found["retain.seal_batches"]] == [longer]


def test_damaged_file_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    """Cut short or of zeros, as after a power cut, or with any bit changed: it is not run."""
    write_code(tmp_path, CODE)
    write_constants(tmp_path, "retain", {"HEADER_BYTES": 61})
    (code,) = list_codes(tmp_path)["retain.seal_batch"]
    reading: dict[Path, Callable[[], object]] = {
        code: lambda: read_code(code),
        tmp_path / "retain.constants": lambda: read_constants(tmp_path, "retain"),
    }
    for path, read in reading.items():
        sound = path.read_bytes()
        assert read() is not None
        for damaged in (b"", bytes(64), bytes(len(sound)), sound[:-1], sound[:40], sound[:-9] + b"\0" + sound[-8:]):
            path.write_bytes(damaged)
            assert read() is None
        path.unlink()
        assert read() is None


def test_constants_are_the_public_numbers(tmp_path: Path) -> None:
    """All else is asked of the module itself."""
    names = {"A": 1, "B_C": -(2**62), "_D": 4, "E": "text", "F": True, "__name__": "retain", "function": len}
    write_constants(tmp_path, "retain", names)
    assert read_constants(tmp_path, "retain") == {"A": 1, "B_C": -(2**62)}
    assert read_constants(tmp_path, "records") is None


@pytest.mark.usefixtures("_careless_umask")
def test_files_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    """Else the whole directory would not be trusted the next time."""
    write_code(tmp_path, CODE)
    write_constants(tmp_path, "retain", {"A": 1})
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o644}


def test_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    """Not even a part of it."""
    write_code(tmp_path, CODE)
    (path,) = list_codes(tmp_path)["retain.seal_batch"]
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_code(tmp_path, CODE)
    assert list(tmp_path.iterdir()) == [path]
