"""Machine code is run where it is certain to be the right one; all else is done by numba, with the same results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cleaner.kernels.baseline import baseline_target
from cleaner.kernels.codecs import LZ4, most_packed_bytes
from cleaner.kernels.linker import is_proven

pytestmark = pytest.mark.skipif(baseline_target() is None, reason="this processor lacks some of the baseline")

# of bytes(range(256)) * 60, by google-crc32c: long enough for all three lanes
CRC = 0x8A8645F2
EXPECTED = [CRC, CRC, LZ4 + most_packed_bytes(9), CRC]

PROGRAM = """
import json, sys
BEFORE
import numpy as np
from cleaner.kernels.checksums import crc32c
from cleaner.kernels.ready import codecs, crc32c as kernel
data = bytes(range(256)) * 60
array = np.frombuffer(data, np.uint8)
results = [crc32c(data), crc32c(bytearray(data)), codecs.LZ4 + codecs.most_packed_bytes(9), CALL]
print(json.dumps([results, "numba" in sys.modules, sys.getrefcount(array)]))
"""
ORDINARY_CALL = "kernel.crc32c_range(array, 0, array.size)"


class Outcome(NamedTuple):
    """What a process says."""

    results: list[int]
    used_numba: bool
    references: int
    said: str


def run(
    cache: Path, *, before: str = "", call: str = ORDINARY_CALL, directory: Path | None = None, **environment: str
) -> Outcome:
    """Compute checksums in a new process, with the kernels of one cache and no other place."""
    hidden = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"}
    inherited = {
        name: value for name, value in os.environ.items() if name not in hidden and not name.startswith("NUMBA_")
    }
    program = PROGRAM.replace("BEFORE", before).replace("CALL", call)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[3])} | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Outcome._make([*json.loads(done.stdout.splitlines()[-1]), done.stderr])


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache that numba has filled: with versions for bytes that can and cannot be written to."""
    cache = tmp_path_factory.mktemp("filled")
    assert run(cache).used_numba
    return cache


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """Give a copy of that cache."""
    return Path(shutil.copytree(filled, tmp_path / "cache"))


def directory_of(cache: Path) -> Path:
    """Return the one directory below a cache."""
    (directory,) = cache.iterdir()
    return directory


def test_kept_machine_code_runs_without_numba(cache: Path) -> None:
    """The same checksums, and no reference to an argument is left over."""
    by_numba = run(cache, before="import numba")
    alone = run(cache)
    assert by_numba.results == alone.results == EXPECTED
    assert (by_numba.used_numba, alone.used_numba) == (True, False)
    assert (by_numba.references, alone.references, alone.said) == (2, 2, "")


def test_other_arguments_are_left_to_numba(cache: Path) -> None:
    """Code for bytes would read words wrongly. What was linked goes on beside it."""
    words = run(cache, call="kernel.crc32c_range(array.view(np.int8), 0, array.size)")
    both = run(cache, call="int(kernel.crc32c_range(array, np.int32(0), array.size)) * (crc32c(data) == " + f"{CRC})")
    for done in (words, both):
        assert (done.results, done.used_numba, done.references) == (EXPECTED, True, 2)
        assert done.said.count("Warning") == done.said.count("RuntimeWarning: compiling kernels") == 1


def test_wrong_number_of_arguments_is_the_error_it_always_was(cache: Path) -> None:
    """numba refuses them."""
    call = "[error for error in [catch()] if error]"
    before = """
def catch():
    try:
        kernel.crc32c_range(array, 0)
    except TypeError as error:
        return type(error).__name__
"""
    done = run(cache, before=before, call=call)
    assert done.results[-1] == ["TypeError"]
    assert done.used_numba


def test_kernel_that_was_never_compiled_is_left_to_numba(cache: Path) -> None:
    """It is found where the module has it."""
    done = run(cache, call="int(kernel._append_zeros_table(3)[5] == 0) or CRC".replace("CRC", str(CRC)))
    assert done == (EXPECTED, True, 2, "")


@pytest.mark.parametrize("suffix", ["code", "constants"])
@pytest.mark.parametrize("left", [None, b"", bytes(64)], ids=["gone", "empty", "zeros"])
def test_damaged_file_is_mended_by_numba(cache: Path, suffix: str, left: bytes | None) -> None:
    """Nothing of it is run; the next process has it again."""
    for path in directory_of(cache).glob(f"crc32c*.{suffix}"):
        path.unlink() if left is None else path.write_bytes(left)
    first = run(cache)
    assert (first.results, first.used_numba, first.said) == (EXPECTED, True, "")
    assert run(cache).used_numba is False


def test_file_of_another_kernel_is_not_run(cache: Path) -> None:
    """Whatever renamed it."""
    for path in directory_of(cache).glob("crc32c.crc32c_range-*.code"):
        path.rename(path.with_name(path.name.replace("crc32c.crc32c_range", "crc32c._append_zeros")))
    done = run(cache, call=f"int(kernel._append_zeros(kernel._LONG_ONE, np.uint64(0)) == 0) and {CRC}")
    assert done.results == EXPECTED
    assert done.used_numba


@pytest.mark.parametrize(
    "environment",
    [{"NUMBA_BOUNDSCHECK": "1"}, {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}, {"NUMBA_OPT": "2"}],
    ids=str,
)
def test_special_wishes_are_left_to_numba(cache: Path, environment: dict[str, str]) -> None:
    """numba alone knows what they mean, and what is compiled under them is not kept for others."""
    before = set(directory_of(cache).glob("*.code"))
    done = run(cache, **environment)
    assert (done.results, done.used_numba) == (EXPECTED, True)
    assert {path for path in cache.glob("*/*.code") if path.parent in {one.parent for one in before}} == before
    assert len(list(cache.glob("*/*.code"))) == len(before)


def test_settings_file_of_numba_is_left_to_numba(cache: Path, tmp_path: Path) -> None:
    """It reads one in the working directory."""
    (tmp_path / ".numba_config.yaml").write_text("")
    assert run(cache, directory=tmp_path).used_numba


def test_directory_others_can_write_to_is_not_used(cache: Path) -> None:
    """Its files are programs. The warning is given once, though two look there."""
    directory_of(cache).chmod(0o777)
    done = run(cache)
    assert (done.results, done.used_numba) == (EXPECTED, True)
    assert done.said.count("others may write to") == 1


def test_file_others_can_write_to_is_not_used(cache: Path) -> None:
    """Nor the directory around it."""
    path = next(directory_of(cache).glob("*.code"))
    path.chmod(0o666)
    done = run(cache)
    assert (done.results, done.used_numba) == (EXPECTED, True)
    assert f"others may write to {path}" in done.said


def test_processor_below_the_baseline_is_left_to_numba(cache: Path) -> None:
    """Kept code has instructions it lacks."""
    before = "import llvmlite.binding as b; b.get_host_cpu_features = b.FeatureMap"
    done = run(cache, before=before)
    assert (done.results, done.used_numba) == (EXPECTED, True)


@pytest.mark.parametrize(
    "broken",
    [
        "linker.numba_version = lambda: '0.67.1'",
        "linker.numba_directory = lambda: None",
        "linker._RUNTIME = 'core.runtime._gone'",
        "linker._HELPER_PREFIXES = ('NRT_', 'numba_', 'Py')",
        "linker.binding.create_lljit_compiler = None",
        "linker.binding.JITLibraryBuilder.link = lambda *_: None",
    ],
)
def test_linker_that_fails_is_replaced_by_numba(cache: Path, broken: str) -> None:
    """numba may be built otherwise in a later release: that costs time and nothing else."""
    done = run(cache, before=f"from cleaner.kernels import linker\n{broken}")
    assert (done.results, done.used_numba, done.said) == (EXPECTED, True, "")


def test_installed_numba_is_one_of_the_proven() -> None:
    """Else nobody would notice that every command has become slow; the release is to be tried and added."""
    assert is_proven()


def test_unknown_name_is_an_error_of_python() -> None:
    """As of any module."""
    from cleaner.kernels import ready

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ready.nothing  # type: ignore[attr-defined]


CALLED_DIRECTLY = """
from cleaner.kernels.baseline import baseline_target
from cleaner.kernels.codecs import LZ4, most_packed_bytes
from cleaner.kernels.linker import Linker
from cleaner.kernels.machine_code import list_codes, read_code
from cleaner.kernels.places import places_for
(directory,) = places_for(baseline_target(), bounds_checked=False).readable
linker = Linker()
for path in list_codes(directory)["crc32c.crc32c_range"]:
    function = linker.link(read_code(path))
    for arguments in ((), (1, 2, 3), (None, 2, 3)):
        try:
            function(*arguments)
        except TypeError as error:
            print(error)
print("done")
"""


def test_entry_raises_the_exceptions_it_names(cache: Path) -> None:
    """`PyExc_TypeError` is the exception in numba's code and a variable in C's: taken for the other, it is a crash."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", CALLED_DIRECTLY]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    expected = ["expected 3 arguments, got 0", "can't unbox array", "can't unbox array"] * 2 + ["done"]
    assert all(part in line for part, line in zip(expected, done.stdout.splitlines(), strict=True))
