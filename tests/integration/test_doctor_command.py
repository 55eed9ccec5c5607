"""`cleaner doctor` finds each problem, says what to do, and agrees with the commands' refusals; it changes nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cleaner.app.doctor import Answer, Grade
from cleaner.app.doctor_log_dir import examine_log_dir
from cleaner.base.clock import StillClock
from cleaner.base.sizes import human_bytes
from cleaner.cli.main import main
from cleaner.storage.fs.file_system import FileSystem, Space
from cleaner.storage.fs.ownership import Owner, code_closed_to
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import START_MS, write_log_dir
from tests.unit.small_disk import SmallDisk

SEGMENT = Path("orders-0", "00000000000000000000.log")
OF_THE_MACHINE = ("memory", "kernels", "spark", "clock", "owner", "settings")
OF_A_LOG_DIR = ("directories", "access", "lock", "marker", "space", "descriptors", "clock", "file-system")
# Checks whose result depends on the machine.
OF_THE_PLACE = ("kernels", "spark", "file-system", "descriptors")

Doctor = Callable[..., tuple[int, list[dict[str, str]]]]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A sound log dir; the age of its files does not depend on when it was written."""
    return write_log_dir(tmp_path / "logs", keyed_log("orders-0"), keyed_log("orders-1"))


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str]) -> Doctor:
    """Return what runs the command: exit code and answers."""

    def run(*arguments: str | Path) -> tuple[int, list[dict[str, str]]]:
        code = main(["doctor", *map(str, arguments), "--format", "json"])
        answers = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert not [each for each in answers if "internal error of the cleaner" in each["next"]], answers
        return code, answers

    return run


def _traces(root: Path) -> dict[str, tuple[int, int, int, int]]:
    found = [(path, os.lstat(path)) for path in (root, *root.rglob("*"))]
    return {str(path): (about.st_ino, about.st_size, about.st_mtime_ns, about.st_mode) for path, about in found}


def _not_passed(answers: list[dict[str, str]]) -> dict[str, str]:
    return {
        each["check"]: each["result"]
        for each in answers
        if each["result"] != "PASS" and each["check"] not in OF_THE_PLACE
    }


def test_doctor_passes_every_check_and_changes_nothing(logs: Path, doctor: Doctor) -> None:
    """No lock file, no cache, no time of modification."""
    before = _traces(logs.parent)
    code, answers = doctor(logs)
    assert (code, _not_passed(answers)) == (0, {})
    assert tuple(each["check"] for each in answers) == (*OF_THE_MACHINE, *OF_A_LOG_DIR)
    assert [each["log_dir"] for each in answers] == [None] * len(OF_THE_MACHINE) + [str(logs)] * len(OF_A_LOG_DIR)
    assert {(each["format"], each["format_version"]) for each in answers} == {("cleaner-doctor", 1)}
    assert all(each["next"] for each in answers if each["result"] != "PASS")
    assert _traces(logs.parent) == before


def _no_marker(logs: Path) -> None:
    (logs / ".kafka_cleanshutdown").unlink()


def _damaged_checkpoint(logs: Path) -> None:
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\nnonsense\n")


def _foreign_directory(logs: Path) -> None:
    (logs / "backup").mkdir()


def _newer_than_now(logs: Path) -> None:
    (logs / "orders-1").rename(logs / "orders-2")
    later = 4_000_000_000
    for segment in (logs / "orders-2").glob("*.log"):
        os.utime(segment, (later, later))


@pytest.mark.parametrize(
    ("ail", "check", "result", "refused"),
    [
        pytest.param(_no_marker, "marker", "FAIL", 1, id="not-left-in-order"),
        pytest.param(_damaged_checkpoint, "directories", "FAIL", 1, id="damaged-checkpoint"),
        pytest.param(_foreign_directory, "directories", "FAIL", 1, id="foreign-directory"),
        pytest.param(_newer_than_now, "clock", "WARN", 0, id="newer-than-now"),
    ],
)
def test_ailment_of_a_log_dir_is_found_and_fails_where_clean_refuses(
    logs: Path, doctor: Doctor, ail: Callable[[Path], None], check: str, result: str, refused: int
) -> None:
    """It is the only finding, with what to do."""
    ail(logs)
    before = _traces(logs)
    code, answers = doctor(logs)
    assert _not_passed(answers) == {check: result}
    assert (code == 1) == (result == "FAIL")
    assert all(each["next"] for each in answers if each["result"] != "PASS")
    assert _traces(logs) == before
    assert main(["clean", str(logs), "orders-0", "--set", "cleanup.policy=compact"]) == refused


@pytest.mark.parametrize(
    ("holder", "result", "words"),
    [
        pytest.param(
            "import fcntl, sys; f = open(sys.argv[1] + '/.lock', 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 2**63 - 1)",
            "FAIL",
            "a live broker",
            id="broker",
        ),
        pytest.param(
            "import sys; from pathlib import Path; from cleaner.storage.fs.file_system import FileSystem\n"
            "from cleaner.storage.lock.log_dir_lock import *\n"
            "lock = acquire_for_cleaning(FileSystem(), Path(sys.argv[1]))",
            "WARN",
            "another cleaner",
            id="cleaner",
        ),
    ],
)
def test_held_lock_is_reported_with_its_holder(
    logs: Path, doctor: Doctor, holder: str, result: str, words: str
) -> None:
    """A broker has its own cleaner; another process of this cleaner will end."""
    program = f"{holder}\nprint('held', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", program, str(logs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        _, answers = doctor(logs)
        process.communicate()
    assert _not_passed(answers) == {"lock": result}
    assert [words in each["finding"] for each in answers if each["check"] == "lock"] == [True]


def test_settings_fail_as_config_check_says(
    logs: Path, doctor: Doctor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same words, one line each; the log dirs are examined all the same."""
    file = tmp_path / "cleaner.properties"
    file.write_text(f"log.dirs={logs},{tmp_path}/disk2\nlog.cleaner.threads=1\n")
    assert main(["config", "check", "--config", str(file)]) == 78
    said = capfd.readouterr().err.strip().removeprefix("cleaner: ")
    code, answers = doctor("--config", file)
    assert code == 1
    assert [each["finding"] for each in answers if each["check"] == "settings"] == [said]
    assert {each["log_dir"] for each in answers} == {None, str(logs), f"{tmp_path}/disk2"}
    file.write_text(f"log.dirs={logs}\nlog.cleaner.threads=none\ncleaner.lokc=hold\n")
    code, answers = doctor("--config", file)
    assert code == 1
    assert [each["result"] for each in answers if each["check"] == "settings"] == ["FAIL", "FAIL"]


def test_memory_that_settings_cannot_have_fails_as_a_start_does(logs: Path, doctor: Doctor) -> None:
    """With a value that would be enough."""
    code, answers = doctor(logs, "--set", f"log.cleaner.dedupe.buffer.size={1 << 50}", "--set", "log.cleaner.threads=9")
    assert (code, _not_passed(answers)) == (1, {"memory": "FAIL"})
    (memory,) = (each for each in answers if each["check"] == "memory")
    assert "log.cleaner.dedupe.buffer.size" in memory["finding"]


def test_state_directory_is_answered_for_where_it_is_named(logs: Path, doctor: Doctor, tmp_path: Path) -> None:
    """The daemon refuses a directory that other users may write to."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o777)
    _, answers = doctor(logs, "--set", f"cleaner.state.dir={tmp_path}/state")
    assert _not_passed(answers) == {"state": "FAIL"}
    (tmp_path / "state").chmod(0o700)
    assert doctor(logs, "--set", f"cleaner.state.dir={tmp_path}/state")[0] == 0


def test_partition_two_log_dirs_have_fails(logs: Path, doctor: Doctor, tmp_path: Path) -> None:
    """No broker starts on both."""
    other = write_log_dir(tmp_path / "other", keyed_log("orders-0"))
    code, answers = doctor(logs, other)
    assert (code, _not_passed(answers)) == (1, {"directories": "FAIL"})
    assert "orders-0 has a directory in" in answers[-1]["finding"]


def test_doctor_without_a_log_dir_asks_about_the_machine(doctor: Doctor) -> None:
    """Without settings there are no log dirs."""
    code, answers = doctor()
    assert code == 0
    assert {each["check"] for each in answers} <= set(OF_THE_MACHINE)


@pytest.mark.parametrize("place", ["orders-0", "nowhere", "orders-0/00000000000000000000.log"])
def test_directory_that_is_no_log_dir_gets_no_further_checks(logs: Path, doctor: Doctor, place: str) -> None:
    """It is said what it is."""
    code, answers = doctor(logs / place)
    of_it = [(each["check"], each["result"]) for each in answers if each["log_dir"]]
    assert (code, of_it) == (1, [("directories", "FAIL")])


def test_answers_are_lines_that_fit_a_terminal(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 columns, a grade at the start of each answer, what to do below it, sums at the end."""
    monkeypatch.chdir(logs.parent)
    monkeypatch.setenv("COLUMNS", "80")
    _no_marker(logs)
    assert main(["doctor", "logs"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80 and "/" not in line] == []
    assert sum(line.startswith(("PASS", "WARN", "FAIL")) for line in lines) == len(OF_THE_MACHINE + OF_A_LOG_DIR)
    at = next(number for number, line in enumerate(lines) if line.startswith("FAIL  marker"))
    below = " ".join(line.strip() for line in lines[at + 1 : at + 3])
    assert "do: `cleaner recover logs`" in below
    assert lines[-1].startswith("1 FAIL, ")


def test_descriptors_too_few_for_a_round_fail(logs: Path) -> None:
    """And too few for a writer of all its logs are a warning."""
    command = f'ulimit -n 50; exec {sys.executable} -m cleaner doctor "$0" --format json'
    done = subprocess.run(["sh", "-c", command, str(logs)], capture_output=True, text=True, check=False)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    found = {each["check"]: each for each in answers}["descriptors"]
    assert (done.returncode, found["result"]) == (1, "FAIL")
    assert "ulimit -n" in found["next"]


def test_numba_that_cannot_be_imported_is_one_answer_of_all(logs: Path, tmp_path: Path) -> None:
    """A broken installation is what the command is for."""
    (tmp_path / "broken" / "numba").mkdir(parents=True)
    (tmp_path / "broken" / "numba" / "__init__.py").write_text('raise ImportError("Numba needs NumPy 2.2 or less")\n')
    command = [sys.executable, "-m", "cleaner", "doctor", str(logs), "--format", "json"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "broken")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    answers = {each["check"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, answers["kernels"]["result"], set(OF_A_LOG_DIR) <= set(answers)) == (1, "FAIL", True)
    assert "Numba needs NumPy 2.2 or less" in answers["kernels"]["finding"]


def _links_in_a_circle(logs: Path) -> None:
    (logs / "orders-7").symlink_to(logs / "orders-7")


def _no_text(logs: Path) -> None:
    (logs / os.fsdecode(b"\xff\xfe-0")).mkdir()


def _pipe_for_a_lock(logs: Path) -> None:
    os.mkfifo(logs / ".lock")


def _pipe_for_a_segment(logs: Path) -> None:
    (logs / SEGMENT).unlink()
    os.mkfifo(logs / SEGMENT)


def _socket_for_a_checkpoint(logs: Path) -> None:
    (logs / "replication-offset-checkpoint").unlink()
    here = Path.cwd()
    os.chdir(logs)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("replication-offset-checkpoint")
    finally:
        os.chdir(here)


def _directory_for_a_file(logs: Path) -> None:
    (logs / "meta.properties").unlink()
    (logs / "meta.properties").mkdir()


def _garbage(logs: Path) -> None:
    for path in (*logs.rglob("*.timeindex"), *logs.rglob("*.log"), *logs.rglob("*checkpoint")):
        path.write_bytes(b"\xff" * 1001)


def _empty_files(logs: Path) -> None:
    for path in logs.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


@pytest.mark.parametrize(
    "ail",
    [
        _links_in_a_circle,
        _no_text,
        _pipe_for_a_lock,
        _pipe_for_a_segment,
        _socket_for_a_checkpoint,
        _directory_for_a_file,
        _garbage,
        _empty_files,
    ],
)
def test_hostile_log_dir_is_answered_in_words(logs: Path, doctor: Doctor, ail: Callable[[Path], None]) -> None:
    """No traceback, no internal error, no wait, no change."""
    ail(logs)
    before = _traces(logs)
    code, answers = doctor(logs)
    assert code in (0, 1)
    assert [each for each in answers if each["log_dir"]]
    assert _traces(logs) == before


def _about(fs: FileSystem, logs: Path, **more: object) -> dict[str, Answer]:
    answers = examine_log_dir(fs, logs, None, **more)  # type: ignore[arg-type]
    return {answer.check: answer for answer in answers}


def test_room_for_less_than_the_largest_group_is_a_warning_and_none_at_all_fails(logs: Path) -> None:
    """A round briefly needs room for a group's output next to its sources."""
    sizes = [sum(path.stat().st_size for path in sorted(logs.glob(f"orders-{n}/*.log"))[:-1]) for n in (0, 1)]
    assert _about(SmallDisk(1 << 30), logs)["space"].grade is Grade.PASS
    tight = _about(SmallDisk(8 * 65536 + max(sizes) - 1), logs)["space"]
    assert tight.grade is Grade.WARN
    assert f"may need {human_bytes(max(sizes))} until" in tight.finding
    assert _about(SmallDisk(8 * 65536 - 1), logs)["space"].grade is Grade.FAIL


def test_read_only_file_system_fails(logs: Path) -> None:
    """Because it makes a log dir offline for the daemon."""

    class ReadOnly(FileSystem):
        def space(self, path: Path) -> Space:
            return super().space(path)._replace(is_read_only=True)

    assert _about(ReadOnly(), logs)["space"].grade is Grade.FAIL


def test_clock_behind_the_newest_record_is_a_warning(logs: Path) -> None:
    """Whatever the times of the files are."""
    found = _about(FileSystem(), logs, clock=StillClock(START_MS - 86_400_000))
    assert found["clock"].grade is Grade.WARN


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A temporary directory that other users may enter, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def hang() -> Iterator[threading.Event]:
    """An event that is set at the end, so that no thread hangs forever."""
    event = threading.Event()
    yield event
    event.set()


def test_disk_that_hangs_is_not_waited_for_endlessly(logs: Path, hang: threading.Event) -> None:
    """Nor is it used for anything else; the other checks are made."""

    class Hanging(FileSystem):
        def space(self, path: Path) -> Space:
            hang.wait()
            return super().space(path)

    found = _about(Hanging(), logs, patience_seconds=0.5)
    assert list(found) == ["directories", "access", "lock", "marker", "space"]
    assert found["space"].grade is Grade.FAIL
    assert found["space"].finding.startswith("no answer for")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: only root can become somebody else")
def test_root_becomes_the_owner_and_finds_what_that_user_may_not_read(open_directory: Path) -> None:
    """As every command does, before it examines anything."""
    logs = write_log_dir(open_directory / "logs", keyed_log("orders-0"))
    for path in (logs, *logs.rglob("*")):
        os.chown(path, 1001, 1001)
    command = [sys.executable, "-m", "cleaner", "doctor", str(logs), "--format", "json"]

    def ask() -> dict[tuple[str, str | None], dict[str, str]]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return {(each["check"], each["log_dir"]): each for each in map(json.loads, done.stdout.splitlines())}

    well = ask()
    assert "root becomes 1001:1001" in well["owner", None]["finding"]
    # A clone below /root is one that user may not read.
    expected = "PASS" if code_closed_to(Owner(1001, 1001)) is None else "WARN"
    assert well["access", str(logs)]["result"] == expected
    os.chown(logs / SEGMENT, 0, 0)
    (logs / SEGMENT).chmod(0o600)
    ill = ask()["access", str(logs)]
    assert (ill["result"], "user 1001 may not read and replace" in ill["finding"]) == ("FAIL", True)
