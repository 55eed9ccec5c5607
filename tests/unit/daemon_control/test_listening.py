"""Where a socket may be, whom it keeps out, and what becomes of what is in its place."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.config.values import MAX_SOCKET_PATH_BYTES
from cleaner.daemon.control.client import Control
from cleaner.daemon.control.listening import ListeningSocket, peer_uid
from cleaner.daemon.control.server import ControlServer
from cleaner.errors import ConfigError, NoDaemonError, NotPermittedError, StateDirLockedError
from cleaner.storage.fs.file_system import FileSystem
from tests.support import sample_daemons
from tests.support.fake_steering import FakeSteering
from tests.support.manual_clock import ManualClock

NOBODY = 65534


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """Return a directory only its owner can write to."""
    tmp_path.chmod(0o750)
    return tmp_path


def listen(directory: Path, name: str = "s") -> ListeningSocket:
    return ListeningSocket(FileSystem(), directory / name)


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.connect(str(path))


def leave_stale(path: Path) -> None:
    """Leave what a killed daemon leaves."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
        dead.listen()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777], ids=oct)
def test_socket_is_for_user_and_group_whatever_the_umask(room: Path, umask: int) -> None:
    """Nobody else can connect, the group always can."""
    before = os.umask(umask)
    try:
        # The lock file takes its mode from the directory and not from the umask.
        listening = listen(room)
    finally:
        os.umask(before)
    assert stat.S_IMODE(listening.path.stat().st_mode) == 0o660
    connect(listening.path)
    listening.close()
    listening.close()
    assert [path.name for path in room.iterdir()] == ["s.lock"]


def test_stale_socket_is_replaced(room: Path) -> None:
    """A daemon that was killed does not keep the next one from starting."""
    leave_stale(room / "s")
    listening = listen(room)
    connect(room / "s")
    listening.close()


def test_live_socket_of_a_daemon_is_left_alone(room: Path) -> None:
    """The second one learns which process has it."""
    listening = listen(room)
    with pytest.raises(StateDirLockedError, match=f"control socket .*/s is in use by process {os.getpid()} on "):
        listen(room)
    connect(room / "s")
    listening.close()


def test_live_socket_of_another_program_is_left_alone(room: Path) -> None:
    """Which knows nothing of our lock."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(room / "s"))
        other.listen()
        with pytest.raises(StateDirLockedError, match="another process listens"):
            listen(room)
        connect(room / "s")


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling-link", "pipe"])
def test_file_that_is_not_a_socket_stays(room: Path, kind: str) -> None:
    """A slip in a setting must not cost a file; a link is not followed."""
    place = room / "s"
    match kind:
        case "file":
            place.write_text("precious")
        case "directory":
            place.mkdir()
        case "link":
            leave_stale(room / "target")
            place.symlink_to("target")
        case "dangling-link":
            place.symlink_to("nowhere")
        case "pipe":
            os.mkfifo(place)
    before = place.lstat()
    with pytest.raises(ConfigError, match=r"cleaner\.control\.socket=.*with this name is not a socket"):
        listen(room)
    assert place.lstat() == before


@pytest.mark.parametrize("mode", [0o770, 0o1777, 0o707], ids=oct)
def test_directory_others_may_write_to_is_refused(room: Path, mode: int) -> None:
    """They could replace it by their own socket, and receive what was meant for the daemon."""
    room.chmod(mode)
    with pytest.raises(ConfigError, match=r"cleaner\.control\.socket=.*others may write"):
        listen(room)
    assert list(room.iterdir()) == []


def test_missing_directory_is_named(room: Path) -> None:
    """It is not created: a slip must not scatter directories."""
    with pytest.raises(ConfigError, match=r"there is no directory .*/gone"):
        listen(room / "gone")


@pytest.mark.parametrize("name", ["x" * MAX_SOCKET_PATH_BYTES, "a\0b"], ids=["long", "zero"])
def test_path_no_socket_can_have_is_refused(room: Path, name: str) -> None:
    """By the setting's name, and not by a traceback."""
    with pytest.raises(ConfigError, match=r"cleaner\.control\.socket="):
        listen(room, name)


def test_lock_is_free_when_listening_failed(room: Path) -> None:
    """The next try does not find it in use."""
    (room / "s").mkdir()
    for _ in range(2):
        with pytest.raises(ConfigError):
            listen(room)


def test_kernel_says_who_connected(room: Path) -> None:
    """Not the caller himself."""
    listening = listen(room)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.connect(str(room / "s"))
        accepted, _ = listening.socket.accept()
        assert peer_uid(accepted) == os.getuid()
        accepted.close()
    listening.close()


# What a caller of another user finds out; the code of his process is that of the error.
CALL = """
import os, sys
from pathlib import Path
from cleaner.daemon.control.client import Control
from cleaner.errors import CleanerError
gid, uid = int(sys.argv[2]), int(sys.argv[3])
os.setgroups([]); os.setgid(gid); os.setuid(uid)
try:
    Control(Path(sys.argv[1])).ask("pause")
except CleanerError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def never(error: Exception) -> None:
    raise error


@pytest.fixture
def steering() -> FakeSteering:
    return FakeSteering(sample_daemons.at_work())


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory, steering: FakeSteering) -> Iterator[Path]:
    """Serve as user 0 and group 4711, in a directory all of whose parents let everybody through."""
    base = Path("/run") / f"cleaner-test-{os.getpid()}"
    base.mkdir(0o755)
    state = base / "state"
    state.mkdir()
    os.chown(state, 0, 4711)
    state.chmod(0o2750)
    try:
        with ControlServer(FileSystem(), state / "s", steering, ManualClock(), never) as server:
            yield server.path
    finally:
        for path in (*state.iterdir(), state, base):
            path.rmdir() if path.is_dir() else path.unlink()


def call(path: Path, gid: int, uid: int) -> tuple[int, str]:
    arguments = [sys.executable, "-c", CALL, str(path), str(gid), str(uid)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_member_of_the_group_may_steer_and_is_named(served: Path, steering: FakeSteering) -> None:
    """The journal gets the user's uid."""
    assert call(served, 4711, 1234) == (0, "")
    assert steering.calls == [("pause", None, 1234)]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("is_directory_open", [False, True], ids=["directory-closed", "directory-open"])
def test_other_users_are_kept_out(served: Path, steering: FakeSteering, is_directory_open: bool) -> None:
    """By the socket's mode alone, also where the directory lets them through; the error ends with 77."""
    if is_directory_open:
        served.parent.chmod(0o2755)
    code, words = call(served, NOBODY, NOBODY)
    assert code == NotPermittedError.exit_code == 77
    assert ("user root and group 4711" if is_directory_open else "only the daemon's user and group") in words
    assert steering.calls == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_other_user_finds_no_daemon_where_none_is(room: Path) -> None:
    """69, not 77, where the user may look."""
    code, words = call(Path("/run/nothing-there"), NOBODY, NOBODY)
    assert (code, words) == (NoDaemonError.exit_code, "no daemon is running at /run/nothing-there\n")


def test_control_of_a_stale_socket_finds_no_daemon(room: Path) -> None:
    """As if it were not there."""
    leave_stale(room / "s")
    with pytest.raises(NoDaemonError, match="no daemon is running at"):
        Control(room / "s").ask("jobs")
