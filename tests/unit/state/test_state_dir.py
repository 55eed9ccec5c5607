"""The state directory is one daemon's own, and lies outside of all log dirs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.errors import ConfigError, StateDirLockedError
from cleaner.state.state_dir import StateDir, require_outside_log_dirs
from cleaner.storage.fs.file_system import FileSystem


@pytest.fixture(params=[0o022, 0o077, 0o000], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Run under masks that take and leave more than we want."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_dir(path: Path, *log_dirs: Path) -> StateDir:
    return StateDir(FileSystem(), path, log_dirs)


def test_state_dir_is_created_for_its_owner_and_readable_for_the_group(tmp_path: Path, umask: int) -> None:
    """Whatever the umask."""
    tmp_path.chmod(0o755)
    with open_dir(tmp_path / "state") as state:
        assert stat.S_IMODE(state.path.stat().st_mode) == 0o750
        assert stat.S_IMODE((state.path / "lock").stat().st_mode) == 0o640


def test_two_daemons_do_not_share_a_state_dir(tmp_path: Path) -> None:
    """Not through a link either; the error names directory and holder, and ends with 75."""
    (tmp_path / "link").symlink_to("state")
    with open_dir(tmp_path / "state"):
        with pytest.raises(StateDirLockedError, match=rf"link is in use by process {os.getpid()} ") as caught:
            open_dir(tmp_path / "link")
        assert caught.value.exit_code == 75
    open_dir(tmp_path / "link").release()


def test_state_dir_in_a_log_dir_is_not_even_created(tmp_path: Path) -> None:
    """A broker would refuse to start over it."""
    (tmp_path / "logs").mkdir()
    with pytest.raises(ConfigError, match="inside the log dir"):
        open_dir(tmp_path / "logs" / "state", tmp_path / "logs")
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize("mode", [0o770, 0o757, 0o1777], ids=oct)
def test_state_dir_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put a journal of their own, or a link, where ours is to be."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)
    with pytest.raises(ConfigError, match=rf"cleaner\.state\.dir=.*others may write to .*{mode:04o}"):
        open_dir(tmp_path / "state")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("is_there", [False, True], ids=["to be made", "there"])
@pytest.mark.parametrize(("uid", "mode"), [(4711, 0o755), (0, 0o777)])
def test_state_dir_of_root_where_others_can_exchange_it_is_refused(
    tmp_path: Path, uid: int, mode: int, is_there: bool
) -> None:
    """Root's own, in another user's directory: its name may lead elsewhere at any time; nothing is made there."""
    above = tmp_path / "theirs"
    above.mkdir()
    if is_there:
        (above / "state").mkdir(0o750)
    os.chown(above, uid, uid)
    above.chmod(mode)
    with pytest.raises(ConfigError, match=rf"{above}.*another directory could replace it"):
        open_dir(above / "state")
    assert (above / "state").exists() is is_there


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_state_dir_of_another_user_is_refused(tmp_path: Path) -> None:
    """Root must not write where that user can lay out links."""
    (tmp_path / "state").mkdir(0o750)
    os.chown(tmp_path / "state", 4711, 4711)
    with pytest.raises(ConfigError, match="belongs to user 4711, the cleaner runs as user 0"):
        open_dir(tmp_path / "state")


def test_state_dir_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """With the setting's name."""
    (tmp_path / "state").write_text("")
    with pytest.raises(ConfigError, match=r"cleaner\.state\.dir=.*not a directory"):
        open_dir(tmp_path / "state")


def test_state_dir_without_a_parent_is_refused(tmp_path: Path) -> None:
    """A slip in a path must not scatter directories over the disk."""
    with pytest.raises(ConfigError, match=r"cleaner\.state\.dir=.*cannot be created: No such file"):
        open_dir(tmp_path / "a" / "state")


@pytest.mark.parametrize("name", ["logs", "logs/state", "logs/topic-0/state", "link/state", "logs/../logs/state"])
def test_state_dir_inside_a_log_dir_is_refused(tmp_path: Path, name: str) -> None:
    """Whatever way leads there; the error names setting, value and log dir."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "link").symlink_to("logs")
    with pytest.raises(ConfigError, match=r"cleaner\.state\.dir=.*inside the log dir .*logs") as caught:
        require_outside_log_dirs(tmp_path / name, [tmp_path / "other", tmp_path / "logs"])
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("name", ["state", "logs-state", "logs2"])
def test_state_dir_next_to_or_above_log_dirs_is_accepted(tmp_path: Path, name: str) -> None:
    """A common beginning of the name is accepted; so is a log dir below it."""
    (tmp_path / "logs").mkdir()
    require_outside_log_dirs(tmp_path / name, [tmp_path / "logs"])
    require_outside_log_dirs(tmp_path, [tmp_path / "logs"])
