"""Started as root, each command becomes the owner of all directories it works in, by what they say, or refuses."""

from __future__ import annotations

import codecs
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner.cleaning.round.warm_up
from cleaner.cli.main import main
from cleaner.storage.fs import ownership
from cleaner.storage.fs.ownership import LOADED_LATE, Owner
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED FOR WANT OF ROOT: whom it becomes is not shown here"),
]
COMPACT = ("--set", "topic:cleanup.policy=compact")
THEM = Owner(1001, 1001)
WAIT = "cleaner.log.dirs.wait=true"


class _Became(BaseException):
    """Instead of changing the user for all later tests."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Log dirs of root's and of another user's, and what was kept of the latter."""

    def become(owner: Owner) -> None:
        raise _Became(owner)

    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        for directory in ("own", "theirs"):
            write_log_dir(path / directory, keyed_log())
        assert main(["clean", str(path / "theirs"), "topic-0", "--keep-old", str(path / "kept"), *COMPACT]) == 0
        for directory in ("theirs", "kept"):
            for each in (path / directory, *(path / directory).rglob("*")):
                os.chown(each, *THEM)
        (path / "config").write_text(f"log.dirs={path}/missing,{path}/theirs\ncleaner.state.dir={path}/state\n{WAIT}\n")
        monkeypatch.setattr(ownership, "become", become)
        monkeypatch.setattr(cleaner.cleaning.round.warm_up, "warm_up", lambda: None)
        yield path


COMMANDS = {
    "clean": "clean theirs topic-0",
    "clean --all": "clean theirs --all",
    "clean --dry-run": "clean theirs --all --dry-run",
    "clean --keep-old": "clean theirs topic-0 --keep-old kept",
    "clean --keep-old to be made": "clean theirs topic-0 --keep-old theirs-to-be/kept",
    "recover": "recover theirs",
    "recover --save-cut": "recover theirs --save-cut kept",
    "recover --trust-no-marker": "recover theirs --trust-no-marker",
    "check": "check theirs",
    "check of several": "check missing theirs",
    "check of a partition": "check theirs/topic-0 --repair",
    "check of what is configured": "check --config config",
    "check --replicas": "check --replicas theirs kept",
    "gaps": "gaps theirs",
    "gaps of a partition": "gaps theirs/topic-0",
    "export": "export theirs topic --to kept",
    "serve": "serve theirs --listen 127.0.0.1:0",
    "verify": "verify kept theirs",
    "undo": "undo kept",
    "run": "run --config config",
    "run with one that is missing": "run --set log.dirs=missing,theirs --set cleaner.state.dir=state --set " + WAIT,
    "plan": "plan theirs",
    "who": "plan theirs --who",
    "explain": "explain theirs topic-0",
    "consume": "consume --log-dir theirs --topic topic --from-beginning",
    "produce": "produce --log-dir theirs --topic topic",
    "topics": "topics --log-dir theirs list",
    "topics in a directory to be made": "topics --log-dir theirs/new create --topic t",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_command_becomes_the_owner_of_its_directories(
    place: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it does anything in them."""
    monkeypatch.chdir(place)
    before = {path: path.lstat() for path in place.rglob("*")}
    with pytest.raises(_Became) as became:
        main(command.split())
    assert became.value.args == (THEM,)
    after = {path: path.lstat() for path in place.rglob("*")}
    assert {path: about.st_mtime_ns for path, about in after.items()} == {
        path: about.st_mtime_ns for path, about in before.items()
    }


REFUSED = {
    "clean": "clean own topic-0 --keep-old kept",
    "recover": "recover own --save-cut kept",
    "check": "check own theirs",
    "verify": "verify own theirs",
    "run": "run --set log.dirs=own,theirs --set cleaner.state.dir=state",
}


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED)
def test_command_for_directories_of_several_owners_is_refused(
    place: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One process is one user, and root does not work in another user's directory unless asked to."""
    monkeypatch.chdir(place)
    assert main(command.split()) == 1
    assert "directories of different owners" in capsys.readouterr().err


@pytest.mark.parametrize("mode", [0o1777, 0o775], ids=oct)
def test_undo_believes_no_manifest_in_another_users_directory(place: Path, mode: int) -> None:
    """It names a directory of root's own that its owner may write to: by that, root would stay root."""
    bait = place / "bait"
    bait.mkdir()
    bait.chmod(mode)
    (manifest,) = place.glob("kept/*/manifest.json")
    manifest.write_text(manifest.read_text().replace(str(place / "theirs"), str(bait)))
    with pytest.raises(_Became) as became:
        main(["undo", str(place / "kept")])
    assert became.value.args == (THEM,)


def test_undo_from_roots_own_directory_into_another_users_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log dir that a manifest names is asked whose it is."""
    for path in (place / "kept", *(place / "kept").rglob("*")):
        os.chown(path, 0, 0)
    assert main(["undo", str(place / "kept")]) == 1
    assert "directories of different owners" in capsys.readouterr().err


def test_root_that_is_to_stay_root_stays(place: Path) -> None:
    """`--as-root` is for the operator to say."""
    assert main(["plan", str(place / "theirs"), "--as-root"]) == 0
    assert main(["undo", str(place / "kept"), "--as-root"]) == 0


def test_root_cleans_no_directory_that_others_may_write_to(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what to change, and nothing is touched."""
    (place / "own").chmod(0o775)
    os.chown(place / "own", 0, 1001)
    assert main(["clean", str(place / "own"), "topic-0", *COMPACT]) == 1
    assert f"others may write to {place / 'own'}; chown it" in capsys.readouterr().err
    assert not (place / "own" / ".lock").exists()


def test_encodings_named_in_the_code_are_loaded_before_root_is_given_up() -> None:
    """Python looks for one when it is first used, and says it knows none if it cannot read its own library."""
    sources = "".join(path.read_text() for path in Path(cleaner.__file__).parent.rglob("*.py"))
    named = set(re.findall(r"""(?:encode\(|decode\(|encoding=)"([a-z0-9_-]+)""", sources)) | {"idna"}
    modules = {f"encodings.{codecs.lookup(name).name.replace('-', '_')}" for name in named}
    # As for every Python: loaded at its start, or known without.
    known = {"encodings.ascii", "encodings.iso8859_1", "encodings.utf_8"}
    assert modules - known <= set(LOADED_LATE)


def test_threads_and_pools_are_loaded_before_root_is_given_up() -> None:
    """The door to threads loads some of its names when they are first used, and so does Python's library behind it."""
    code = """
import sys
from cleaner.base import concurrency
from cleaner.storage.fs import ownership
ownership._load_everything()
before = set(sys.modules)
for name in concurrency.__all__:
    getattr(concurrency, name)
print(set(sys.modules) - before)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
