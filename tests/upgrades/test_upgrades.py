"""State of the last release, read by this one; and, in the long form, the other way round."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cleaner_run import REPOSITORY
from tests.integration.conftest import run as run
from tests.integration.log_dirs import Run, contents
from tests.upgrades.world import COMPACT, Release, facts, make, restore, undoes

LAST = "555d87b3"
"""The commit of 0.1.0."""
ARCHIVE = Path(__file__).with_name("0.1.0.tar.xz")


class ThisRelease(Release):
    """Ours, in this process."""

    def __init__(self, run: Run) -> None:
        super().__init__(REPOSITORY)
        self._run = run

    def run(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Run a command to its end."""
        return self._run(*arguments)


def test_changelog_names_the_commit_of_the_last_release() -> None:
    """There is no tag."""
    of_last = (REPOSITORY / "CHANGELOG.md").read_text().partition("\n## 0.1.0")[2]
    assert of_last.splitlines()[2].startswith(f"Commit {LAST};")


EXPECTED = {
    "rounds": ["damaged-0", "prices-0"],
    "held": [("damaged-0", "00000000000000000000.log")],
    "dirty": {"prices-0": 0, "kept-0": 0},
}


@pytest.fixture
def old_world(tmp_path: Path) -> Path:
    """What 0.1.0 left."""
    return restore(ARCHIVE, tmp_path / "world")


def test_state_of_the_last_release_is_read(old_world: Path, run: Run) -> None:
    """Journal, quarantine and checkpoints say what they said; looking changes nothing."""
    before = contents(old_world)
    assert facts(ThisRelease(run), old_world) == EXPECTED
    assert contents(old_world) == before


def test_what_the_last_release_kept_is_put_back(old_world: Path, run: Run) -> None:
    """`undo` of this release, to the byte; and it is a `before` for `verify`."""
    code, _, err = run("verify", old_world / "kept", old_world / "logs", "kept-0", *COMPACT)
    assert code == 0, err
    undoes(ThisRelease(run), old_world)


@pytest.mark.parametrize("name", ["quarantine.json", "manifest.json"])
def test_state_of_a_release_to_come_is_refused(old_world: Path, run: Run, name: str) -> None:
    """A version that is not known is named, and the file stays as it is."""
    (path,) = old_world.rglob(name)
    path.write_text(path.read_text().replace('"version": 1', '"version": 2', 1))
    before = path.read_bytes()
    if name == "manifest.json":
        code, _, err = run("undo", old_world / "kept")
    else:
        code, _, err = run("quarantine", "--state-dir", old_world / "state")
    assert (code, "version 2 is newer than 1, the newest known here" in err) == (1, True), err
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """0.1.0 itself."""
    tree = tmp_path_factory.mktemp("last")
    packed = subprocess.run(["git", "archive", LAST, "cleaner"], cwd=REPOSITORY, capture_output=True, check=False)
    if packed.returncode != 0:
        pytest.skip(f"downgrade NOT TRIED: this clone has no {LAST}")
    subprocess.run(["tar", "x", "-C", tree], input=packed.stdout, check=True)
    return Release(tree)


@pytest.mark.slow
def test_daemon_goes_on_where_the_last_release_stopped(old_world: Path) -> None:
    """It keeps the quarantine, and cleans nothing that is clean."""
    ours = Release(REPOSITORY)
    logs = contents(old_world / "logs")
    assert [each["partition"] for each in ours.serve(old_world)["quarantine"]] == ["damaged-0"]
    assert contents(old_world / "logs") == logs
    assert facts(ours, old_world) == EXPECTED


@pytest.mark.slow
def test_last_release_reads_what_this_one_wrote(last: Release, tmp_path: Path) -> None:
    """A downgrade: its commands, its daemon and its undo."""
    root = tmp_path / "world"
    make(Release(REPOSITORY), root)
    assert facts(last, root) == EXPECTED
    logs = contents(root / "logs")
    assert [each["partition"] for each in last.serve(root)["quarantine"]] == ["damaged-0"]
    assert contents(root / "logs") == logs
    undoes(last, root)
