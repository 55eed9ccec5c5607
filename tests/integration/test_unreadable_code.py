"""A program that only root may read, as a clone below `/root`: root's commands become the logs' owner all the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from tests.cleaner_run import wait_until
from tests.integration.log_dirs import NOW, keyed_log, offsets
from tests.support.log_builder import write_log_dir

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: a program only root can read is not shown"),
]
THEM = 1001
COMPACT = ("--set", "topic:cleanup.policy=compact", "--now", str(NOW))


@pytest.fixture(scope="module")
def closed_program() -> Iterator[Path]:
    """The program and all packages, in a directory of root's that no other user may enter."""
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(Path(cleaner.__file__).parent, Path(name, "cleaner"))
        Path(name, "packages").symlink_to(sysconfig.get_path("purelib"))
        yield Path(name)


@pytest.fixture
def theirs() -> Iterator[Path]:
    """Another user's log dir, in a directory that everybody may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        log_dir = write_log_dir(Path(name, "logs"), keyed_log())
        for path in (log_dir, *log_dir.rglob("*")):
            os.chown(path, THEM, THEM)
        yield log_dir


def command(closed_program: Path, *words: object) -> tuple[list[str], dict[str, str]]:
    """Return a command line, and the environment, of the program that only root may read."""
    path = os.pathsep.join((str(closed_program), str(closed_program / "packages")))
    # -S: the environment these tests run in is one that everybody may read.
    line = [sys.executable, "-S", "-P", "-m", "cleaner", *map(str, words)]
    return line, {**os.environ, "PYTHONPATH": path}


def run(closed_program: Path, *words: object, stdin: str = "") -> tuple[int, str]:
    """Run a command; returns its exit code and what it said on standard error."""
    line, environment = command(closed_program, *words)
    done = subprocess.run(line, env=environment, input=stdin, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


def test_commands_of_a_program_only_root_may_read_are_done_as_the_owner(closed_program: Path, theirs: Path) -> None:
    """Nothing is loaded too late, and every new file belongs to the owner."""
    kept = theirs.parent / "kept"
    kept.mkdir()
    os.chown(kept, THEM, THEM)
    lines = [
        (("doctor", theirs), ""),
        (("plan", theirs, "--estimate", *COMPACT), ""),
        (("clean", theirs, "--all", "--dry-run", *COMPACT), ""),
        (("clean", theirs, "topic-0", "--keep-old", kept, *COMPACT), ""),
        (("verify", kept, theirs, *COMPACT), ""),
        (("undo", kept), ""),
        (("recover", theirs), ""),
        (("produce", "--log-dir", theirs, "--topic", "topic"), "value\n"),
        (("explain", theirs, "topic-0", *COMPACT), ""),
    ]
    failed = [(words[0], *said) for words, stdin in lines if (said := run(closed_program, *words, stdin=stdin))[0] != 0]
    assert failed == []
    assert {(path.stat().st_uid, path.stat().st_gid) for path in theirs.parent.rglob("*")} == {(THEM, THEM)}


def test_daemon_of_a_program_only_root_may_read_cleans_as_the_owner(closed_program: Path, theirs: Path) -> None:
    """Every module that it loads later is loaded before root is given up."""
    os.chown(theirs.parent, THEM, THEM)
    sets = {"log.dirs": theirs, "cleaner.state.dir": theirs.parent / "state", "cleaner.http.listen": "127.0.0.1:0"}
    sets |= {"topic:cleanup.policy": "compact", "log.cleaner.min.cleanable.ratio": "0.0"}
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    line, environment = command(closed_program, "run", *words)
    with (closed_program / "log").open("wb") as log, subprocess.Popen(line, env=environment, stderr=log) as daemon:
        try:
            wait_until(lambda: daemon.poll() is not None or offsets(theirs, "cleaner") == {"topic-0": 60}, "cleaned")
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0, (closed_program / "log").read_text()
        finally:
            daemon.kill()
    assert offsets(theirs, "cleaner") == {"topic-0": 60}


def test_bulk_of_a_program_only_root_may_read_is_refused(closed_program: Path, theirs: Path) -> None:
    """Spark would start Python again, as the owner: it says what is closed, and changes nothing."""
    work_dir = theirs.parent / "work"
    work_dir.mkdir()
    os.chown(work_dir, THEM, THEM)
    status, said = run(closed_program, "bulk", theirs, "topic-0", "--work-dir", work_dir, *COMPACT)
    assert (status, "Traceback" in said) == (1, False)
    assert f"{closed_program} is not readable for user {THEM}:{THEM}" in said
    assert offsets(theirs, "cleaner") == {}
