"""What kernels are compiled for and how they are cached; a bounds-checked build checks bounds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cleaner.kernels.target import TARGET, host_has_baseline

# of bytes(range(256)) * 60, by google-crc32c: long enough for all three lanes
CRC = 0x8A8645F2

REPORT = """
import json, sys
from cleaner.kernels.announce import before_compiling
before_compiling(lambda kept_in: print("compiling", file=sys.stderr))
from cleaner.kernels.crc32c import HAS_INSTRUCTION
from cleaner.kernels.checksums import crc32c
from cleaner.kernels.compile import kernel_statistics
checksum = crc32c(bytes(range(256)) * 60)
done = kernel_statistics()
print(json.dumps([checksum, HAS_INSTRUCTION, done.compiled, done.saved, done.loaded, done.cpu_name, str(done.kept_in)]))
"""


class Report(NamedTuple):
    """The output of a process that computed one checksum."""

    checksum: int
    instruction: str
    compiled: int
    saved: int
    loaded: int
    cpu_name: str
    kept_in: str
    output: str


def checksum_in_a_process(
    cache: Path, *, before: str = "", prefix: tuple[str, ...] = (), where: Path | None = None, **environment: str
) -> Report:
    """Compute a checksum in a new process, with the kernels of `cache` and no other place; `before` runs first."""
    hidden = {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [*prefix, sys.executable, "-c", before + REPORT]
    done = subprocess.run(
        command,
        env=inherited | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Report._make([*json.loads(done.stdout.splitlines()[-1]), done.stderr])


def cache_files(cache: Path, suffix: str) -> list[Path]:
    """Return the files of the one directory below `cache`."""
    return sorted(cache.glob(f"kernels-*/*{suffix}"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report]:
    """Give a cache that one process has filled, for copies, and what that process said."""
    cache = tmp_path_factory.mktemp("compiled")
    return cache, checksum_in_a_process(cache)


@pytest.fixture
def cache(compiled: tuple[Path, Report], tmp_path: Path) -> Path:
    """Give a cache of the test's own, filled."""
    return shutil.copytree(compiled[0], tmp_path / "cache")


@pytest.fixture
def first(compiled: tuple[Path, Report], cache: Path) -> Report:
    """Give what the process said that filled the cache."""
    whole, report = compiled
    return report._replace(kept_in=str(cache / Path(report.kept_in).relative_to(whole)))


NEEDS_BASELINE = pytest.mark.skipif(not host_has_baseline(), reason="this processor lacks some of the baseline")


@NEEDS_BASELINE
def test_second_process_loads_what_the_first_compiled(cache: Path, first: Report) -> None:
    """For the baseline, on any machine; numba counts compiled and loaded kernels."""
    second = checksum_in_a_process(cache)
    assert (first.checksum, second.checksum) == (CRC, CRC)
    assert first.cpu_name in ("nehalem", "generic")
    assert first.instruction in ("x86", "arm")
    assert first.compiled == first.saved > 0
    assert (second.compiled, second.loaded > 0, second.kept_in) == (0, True, first.kept_in)
    assert (first.output, second.output) == ("compiling\n", "")


@NEEDS_BASELINE
def test_cache_is_the_same_for_an_installation_elsewhere(cache: Path, first: Report, tmp_path: Path) -> None:
    """Kernels compiled in an image's build stage are found wherever the package is installed later."""
    package = Path(__file__).parents[3] / "cleaner"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cleaner").symlink_to(package)
    elsewhere = f"import sys; sys.path.insert(0, {str(tmp_path / 'other')!r}); import cleaner.kernels\n"
    elsewhere += f"assert cleaner.kernels.__path__[0].startswith({str(tmp_path)!r})\n"
    second = checksum_in_a_process(cache, before=elsewhere)
    assert (second.compiled, second.kept_in) == (0, first.kept_in)


@NEEDS_BASELINE
def test_target_named_by_the_operator_has_code_of_its_own(cache: Path, first: Report) -> None:
    """NUMBA_CPU_NAME is respected, and code for one target is never loaded for another."""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    theirs = checksum_in_a_process(cache, **plain)
    assert (theirs.cpu_name, theirs.instruction, theirs.checksum) == ("generic", "", CRC)
    assert theirs.compiled > 0
    assert theirs.kept_in != first.kept_in
    assert checksum_in_a_process(cache, **plain).compiled == 0
    assert checksum_in_a_process(cache).compiled == 0


@NEEDS_BASELINE
@pytest.mark.parametrize("content", ["cpu_name: generic\ncpu_features: ''", "[1]"])
def test_settings_of_numba_in_the_current_directory_do_not_count(tmp_path: Path, first: Report, content: str) -> None:
    """Another user may have put the file there: neither numba's first look nor those when it compiles heed it."""
    (tmp_path / ".numba_config.yaml").write_text(content)
    theirs = checksum_in_a_process(tmp_path / "empty", where=tmp_path)
    assert theirs[:-2] == first[:-2]
    assert theirs.output == first.output


@pytest.mark.parametrize(
    ("name", "features"),
    [("generic", "+sse4.2"), ("nehalem", "-crc32"), ("nehalem", ""), ("x86-64", "+sse4.2,+crc32")],
)
def test_instruction_is_used_where_the_target_has_it(tmp_path: Path, name: str, features: str) -> None:
    """LLVM ends the process when a target lacks an instruction; SSE4.2 alone does not bring it, in LLVM's words."""
    if not TARGET.triple.startswith("x86_64") or not host_has_baseline():
        pytest.skip("names of x86 processors")
    done = checksum_in_a_process(tmp_path, NUMBA_CPU_NAME=name, NUMBA_CPU_FEATURES=features)
    is_promised = "+crc32" in features
    assert (done.checksum, done.instruction) == (CRC, "x86" if is_promised else "")


SOMEBODY_ELSE = """
import numba
double = numba.njit(lambda x: 2 * x)
assert double(21) == 42
import atexit
atexit.register(lambda: print(double.nopython_signatures, double(0.5), file=sys.stderr))
"""


@NEEDS_BASELINE
def test_numba_in_use_keeps_its_target(cache: Path, first: Report) -> None:
    """A process that used numba before us is not changed; kernels are made for its target and kept apart."""
    theirs = checksum_in_a_process(cache, before=SOMEBODY_ELSE)
    assert theirs.checksum == CRC
    assert theirs.cpu_name not in ("nehalem", "generic")
    assert theirs.compiled > 0
    assert theirs.kept_in != first.kept_in
    assert theirs.output.endswith(" 1.0\n")
    assert checksum_in_a_process(cache, before=SOMEBODY_ELSE).compiled == 0


def no_override() -> tuple[str, ...]:
    """Return what to put before a command so that the modes of files count for root, too."""
    return ("setpriv", "--bounding-set=-dac_override") if os.geteuid() == 0 else ()


def test_complete_cache_that_is_read_only_is_enough(cache: Path, first: Report) -> None:
    """As it is when it was baked into an image; numba's own cache would not take such a directory."""
    Path(first.kept_in).chmod(0o555)
    second = checksum_in_a_process(cache, prefix=no_override())
    assert (second.checksum, second.compiled, second.kept_in) == (CRC, 0, "None")
    assert second.output == ""


def test_what_a_read_only_cache_lacks_goes_to_the_next_place(cache: Path, first: Report, tmp_path: Path) -> None:
    """Without a next place it is compiled at every start, and that is no error."""
    home = tmp_path / "home"
    home.mkdir()
    for path in cache_files(cache, "kernel"):
        path.unlink()
    Path(first.kept_in).chmod(0o555)
    alone = checksum_in_a_process(cache, prefix=no_override())
    assert (alone.checksum, alone.compiled, alone.saved) == (CRC, first.compiled, 0)
    second = checksum_in_a_process(cache, prefix=no_override(), HOME=str(home))
    assert (second.compiled, second.saved) == (first.compiled, first.compiled)
    assert Path(second.kept_in).is_relative_to(home)
    third = checksum_in_a_process(cache, prefix=no_override(), HOME=str(home))
    assert (third.compiled, third.checksum) == (0, CRC)


@pytest.mark.parametrize(
    "left", [lambda _: b"", lambda _: bytes(64), lambda whole: whole[:-1]], ids=["empty", "zeros", "short"]
)
def test_damaged_entry_is_compiled_again_and_mended(cache: Path, first: Report, left: Callable[[bytes], bytes]) -> None:
    """A power cut leaves files empty, of zeros, or short; numba's own cache would fail on them forever."""
    for path in cache_files(cache, "kernel"):
        path.write_bytes(left(path.read_bytes()))
    second = checksum_in_a_process(cache)
    assert (second.checksum, second.compiled, second.saved) == (CRC, first.compiled, first.compiled)
    assert checksum_in_a_process(cache).compiled == 0


def test_file_of_another_kernel_is_not_run(cache: Path, first: Report) -> None:
    """Machine code trusts its caller: a renamed file is compiled again."""
    path, other = cache_files(cache, "kernel")[:2]
    other.replace(path)
    second = checksum_in_a_process(cache)
    assert (second.checksum, second.compiled > 0) == (CRC, True)
    assert checksum_in_a_process(cache).compiled == 0
    assert first.kept_in == second.kept_in


def test_versions_compiled_by_two_processes_at_a_time_are_kept_apart(tmp_path: Path) -> None:
    """By an index, as numba's own cache has it, both may come to lie in one file."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    of_bytes, of_bytearray = REPORT, REPORT.replace("crc32c(bytes(", "crc32c(bytearray(")
    both = [subprocess.Popen([sys.executable, "-c", each], env=environment) for each in (of_bytes, of_bytearray)]
    assert [each.wait() for each in both] == [0, 0]
    third = checksum_in_a_process(tmp_path, before=of_bytearray)
    assert (third.checksum, third.compiled) == (CRC, 0)


def test_entries_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    """Otherwise a user with a group-writable umask would get a warning about his own cache."""
    checksum_in_a_process(tmp_path, before="import os; os.umask(0)\n")
    modes = {path.stat().st_mode & 0o777 for path in cache_files(tmp_path, "")}
    assert modes == {0o644}
    assert checksum_in_a_process(tmp_path).compiled == 0


IN_THE_WAY = """
from cleaner.kernels.places import cache_places
cache_places().writable.write_text("")
"""


def test_kernels_that_cannot_be_stored_are_used(tmp_path: Path) -> None:
    """There is only a warning; the round goes on."""
    done = checksum_in_a_process(tmp_path, before=IN_THE_WAY)
    assert (done.checksum, done.saved) == (CRC, 0)
    assert done.compiled > 0
    assert "are not kept in" in done.output


def test_without_a_place_kernels_are_compiled_at_each_start() -> None:
    """It takes some seconds, the results are right, and one warning says why."""
    done = checksum_in_a_process(Path("/dev/null/nowhere"))
    assert (done.checksum, done.saved, done.kept_in) == (CRC, 0, "None")
    assert done.output.endswith("\ncompiling\n")
    assert done.output.count("are not used: /dev/null is not a directory") == done.output.count("Warning") == 1


@pytest.mark.parametrize("of_the_file", [False, True], ids=["directory", "file"])
def test_cache_that_others_can_write_to_is_not_used(cache: Path, first: Report, of_the_file: bool) -> None:
    """Its files are programs; one warning names what is writable."""
    path = cache_files(cache, "kernel")[0] if of_the_file else Path(first.kept_in)
    path.chmod(0o777)
    done = checksum_in_a_process(cache)
    assert (done.checksum, done.compiled, done.saved, done.loaded) == (CRC, first.compiled, 0, 0)
    assert done.output.count(f"others may write to {path}") == 1


@NEEDS_BASELINE
def test_processor_below_the_baseline_has_code_of_its_own(cache: Path, first: Report) -> None:
    """Code for the baseline has instructions it lacks."""
    lacking = "import llvmlite.binding as binding; binding.get_host_cpu_features = binding.FeatureMap\n"
    theirs = checksum_in_a_process(cache, before=lacking)
    assert (theirs.checksum, theirs.instruction, theirs.loaded) == (CRC, "", 0)
    assert theirs.kept_in != first.kept_in


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


def test_bounds_checked_build_raises_outside_of_an_array(tmp_path: Path) -> None:
    """Kernel tests are repeated with such a build, so it must notice."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", BEYOND]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split("\n")
    assert output[:10] == ["refused"] * 10
    assert output[10] == "[0, 0, 0, 0, 0, 0, 0, 0, 0, 1] 1"
