"""Compiling the kernels: beforehand by a command, else with a word about it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.cli.main import main
from cleaner.cli.work import announce_compiling
from cleaner.kernels.announce import announce_compiling as about_to_compile
from cleaner.kernels.announce import before_compiling
from tests.support.log_builder import LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")


def run(
    cache: Path, *arguments: str, interpreted: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command, or a program, with the kernels of one cache and no other place for them."""
    hidden = {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"}
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    words = ["-m", "cleaner", *arguments] if interpreted is None else ["-c", interpreted]
    return subprocess.run(
        [sys.executable, *words],
        env=inherited | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


_TELL_LOADED = """\
import sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
import cleaner
cleaner.warm()
print(*(path for path in opened if path.endswith(".kernel")), sep="\\n")
"""


def _announced(kept_in: Path) -> str:
    return f"cleaner: compiling kernels into {kept_in}: about 30 seconds for all\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache with the kernels that `cleaner.warm()` loads, and no others: copies of those other tests use."""
    assert main(["warm"]) == 0
    done = subprocess.run([sys.executable, "-c", _TELL_LOADED], capture_output=True, text=True, check=True)
    directory: Path = tmp_path_factory.mktemp("cache")
    for path in map(Path, done.stdout.splitlines()):
        (directory / path.parent.name).mkdir(exist_ok=True)
        if path.exists():  # it may be in another of the places
            shutil.copy(path, directory / path.parent.name)
    return directory


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Give a log dir with something to clean."""
    log = LogBuilder()
    log.append(("a", "1"), ("a", "2"))
    log.roll()
    log.append(("b", "1"))
    return write_log_dir(tmp_path / "logs", log)


@pytest.fixture
def _nobody_listens() -> Iterator[None]:
    yield
    before_compiling(None)


def test_library_that_has_to_compile_warns_once(tmp_path: Path) -> None:
    """With what to do about it; a second process finds what the first has kept."""
    program = "from cleaner.kernels.checksums import crc32c\nprint(crc32c(b'a' * 99))"
    first = run(tmp_path, interpreted=program)
    assert (first.returncode, first.stderr.count("RuntimeWarning: compiling kernels, up to 30 seconds, once on")) == (
        0,
        1,
    )
    assert "cleaner.warm(), or the command `cleaner warm`, does it beforehand" in first.stderr
    second = run(tmp_path, interpreted=program)
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")


def test_library_without_a_directory_for_kernels_says_what_to_set(tmp_path: Path) -> None:
    """As with a home directory that is read-only: every start would compile."""
    place = tmp_path / "place"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    done = run(place, interpreted="from cleaner.kernels.checksums import crc32c\ncrc32c(b'a' * 99)")
    assert done.returncode == 0
    assert "at every start, because there is no directory to keep them in: let NUMBA_CACHE_DIR name" in done.stderr


def test_warm_as_a_call_compiles_what_is_missing_without_a_warning(cache: Path) -> None:
    """It says how many."""
    (path,) = next(cache.iterdir()).glob("batches.count_good_checksums-*.kernel")
    path.unlink()
    program = "import cleaner\nprint(cleaner.warm().compiled, cleaner.warm().compiled)"
    first = run(cache, interpreted=program)
    assert (first.returncode, first.stderr) == (0, "")
    compiled, again = first.stdout.split()
    assert (int(compiled) > 0, again) == (True, "0")
    assert run(cache, interpreted=program).stdout.split() == ["0", "0"]


@pytest.mark.slow
def test_warm_compiles_all_kernels_within_its_time(tmp_path: Path) -> None:
    """From an empty directory, as `make warm` does once before all tests."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(tmp_path, "warm")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (kept_in,) = tmp_path.iterdir()
    assert (done.returncode, done.stderr) == (0, _announced(kept_in))
    # Of the processor's time: other tests may run at the same time, and make it longer by a third.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 40


def test_warm_compiles_what_is_missing_and_then_finds_everything(cache: Path) -> None:
    """It compiles what is not there, and nothing else; each time it says where all is kept."""
    (path,) = next(cache.iterdir()).glob("batches.count_good_checksums-*.kernel")
    path.unlink()
    done = run(cache, "warm")
    assert (done.returncode, done.stderr) == (0, _announced(next(cache.iterdir())))
    assert " kernels compiled (" in done.stdout
    assert done.stdout.endswith(f"kept in {next(cache.iterdir())}\n")
    done = run(cache, "warm")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("all kernels were compiled already (")
    assert done.stdout.endswith(f"kept in {next(cache.iterdir())}\n")


def test_machine_code_of_all_kernels_counts_no_references(cache: Path) -> None:
    """No kernel calls numba's runtime: with its locked counters rounds took half as long again."""
    kernels = list(cache.glob("kernels-*/*.kernel"))
    assert len(kernels) > 50
    assert [path.name for path in kernels if b"NRT_" in path.read_bytes()] == []


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines on standard error, without the one that every `clean` ends with."""
    return [line for line in done.stderr.splitlines() if not line.startswith("rules of Kafka")]


def test_clean_after_warm_compiles_nothing(cache: Path, log_dir: Path) -> None:
    """So there is nothing to say."""
    done = run(cache, "clean", str(log_dir), "topic-0", *COMPACT)
    assert (done.returncode, complaints(done)) == (0, [])


def test_clean_that_must_compile_says_so_once(cache: Path, log_dir: Path) -> None:
    """On standard error, before it does: how long, how often, and how not to wait."""
    for kernel in ("batches.count_good_checksums", "batches.scan_batches"):
        (path,) = next(cache.iterdir()).glob(f"{kernel}-*.kernel")
        path.unlink()
    done = run(cache, "clean", str(log_dir), "topic-0", *COMPACT)
    assert done.returncode == 0
    assert "topic-0" in done.stdout
    (line,) = complaints(done)
    assert line.startswith("cleaner: compiling kernels, about ")
    assert "once on this machine; `cleaner warm` does it beforehand" in line
    assert run(cache, "warm").stdout.startswith("all kernels were compiled already (")


def test_doctor_shows_whether_kernels_are_kept_and_compiles_none(cache: Path, tmp_path: Path) -> None:
    """It loads kept kernels and stops at the first missing one; nothing is compiled."""
    kept = next(cache.iterdir())
    assert f"PASS  kernels      compiled, kept in {kept}\n" in run(cache, "doctor", "--wide").stdout
    place = tmp_path / "place"
    place.mkdir()
    expected = f"WARN  kernels      not compiled yet; they will be kept in {place / kept.name}"
    assert expected in run(place, "doctor", "--wide").stdout
    assert list(place.iterdir()) == []
    place.chmod(0o777)
    said = run(place, "doctor", "--wide").stdout
    assert (
        "WARN  kernels      compiled at every start, which takes seconds: there is no directory to keep them in" in said
    )
    assert f"others may write to {place}" in said


def test_cache_that_is_not_safe_is_one_line_of_warning(cache: Path, log_dir: Path, tmp_path: Path) -> None:
    """Never passed over in silence; the next place is taken."""
    unsafe = tmp_path / "unsafe" / next(cache.iterdir()).name
    unsafe.mkdir(parents=True)
    unsafe.chmod(0o777)
    done = run(unsafe.parent, "clean", str(log_dir), "topic-0", *COMPACT, CACHE_DIRECTORY=str(cache))
    assert done.returncode == 0
    (line,) = complaints(done)
    assert f"compiled kernels in {unsafe} are not used: others may write to {unsafe}" in line


@pytest.mark.usefixtures("_nobody_listens")
def test_compiling_without_a_directory_is_announced_for_every_start() -> None:
    """Nobody should wait at every start without knowing why; only the first kernel is spoken of."""
    said: list[str] = []
    announce_compiling(said.append)
    about_to_compile(None)
    about_to_compile(None)
    assert len(said) == 1
    assert "at every start, because there is no directory to keep them in" in said[0]


def test_warm_that_keeps_nothing_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An image would be built without the kernels it was to have."""
    import cleaner.cleaning.round.warm_up
    import cleaner.kernels.compile as kernels

    monkeypatch.setattr(cleaner.cleaning.round.warm_up, "warm_up", lambda: None)
    monkeypatch.setattr(kernels, "kernel_statistics", lambda: kernels.KernelStatistics(71, 1, 0, (), None, "x86-64-v2"))
    assert main(["warm"]) == 1
    assert "70 kernels were compiled and could not be kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cache", "said"),
    [
        (Path("/proc/none"), "cannot be kept in /proc/none/kernels-"),
        (Path("/proc/version/none"), "no directory to keep"),
    ],
    ids=["cannot-be-made", "below-a-file"],
)
def test_warm_without_a_place_compiles_nothing(cache: Path, said: str) -> None:
    """It compiled all of them, for minutes, warned at each, and said then that none could be kept."""
    done = run(cache, "warm")
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.splitlines()[-1].endswith("let NUMBA_CACHE_DIR name a directory that only you can write to")
    assert "about 30 seconds" not in done.stderr
