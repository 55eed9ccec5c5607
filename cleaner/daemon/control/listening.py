"""
The socket's file: where it may be, how a stale one is replaced, and who may connect.

Only the directory's owner may be able to write to it, so that no other user can replace the file. A socket file
outlives a killed process. It is replaced under its own lock: of two daemons that both find it stale, the slower one
would otherwise remove the socket of the faster. The new socket gets its mode before it begins to listen: until then no
client can connect, whatever the umask.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from pathlib import Path

from cleaner.config.values import MAX_SOCKET_PATH_BYTES
from cleaner.errors import ConfigError, StateDirLockedError
from cleaner.state.lock_file import LockFile
from cleaner.state.state_dir import require_private
from cleaner.storage.fs.file_system import FileSystem, disk_errors, real_path

SOCKET_KEY = "cleaner.control.socket"
SOCKET_NAME = "control.sock"
MODE = 0o660

BACKLOG = 64
_LOCK = ".lock"
_PROBE_SECONDS = 1.0
# struct ucred: pid, uid, gid.
_PEER = struct.Struct("@iII")


class ListeningSocket:
    """
    A UNIX stream socket that listens, and its file.

    Args:
        fs: the file system.
        path: of the socket; links in its directory part are followed once, here; the last part is not followed.
    Attributes:
        socket: does not block.
        path: links followed.
    Raises:
        ConfigError: a socket cannot be there: the directory does not exist, is not this user's or is open to others,
            the path is too long, or another kind of file has the name.
        StateDirLockedError: another process listens there.
        LogDirOfflineError, NoSpaceError: the disk failed.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self.path = _checked(fs, path)
        self._lock = LockFile(fs, self.path.with_name(self.path.name + _LOCK), f"the control socket {path}")
        try:
            _require_free(fs, self.path)
            self.socket = self._listen()
        except BaseException:
            self._lock.release()
            raise

    def _listen(self) -> socket.socket:
        self._fs.remove(self.path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with disk_errors(self.path):
                listening.bind(os.fsencode(self.path))
                self._fs.set_mode(self.path, MODE)
                listening.listen(BACKLOG)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            self._fs.remove(self.path)
            raise
        return listening

    def close(self) -> None:
        """Stop listening and remove the file; a second call does nothing."""
        if self.socket.fileno() >= 0:
            self._fs.remove(self.path)
            self.socket.close()
            self._lock.release()


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the client, as the kernel recorded it when the client connected."""
    _pid, uid, _gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)


def _checked(fs: FileSystem, path: Path) -> Path:
    if "\0" in str(path):
        raise ConfigError(SOCKET_KEY, path, "a path has no zero bytes")
    resolved = real_path(path.parent) / path.name
    if len(os.fsencode(resolved)) > MAX_SOCKET_PATH_BYTES:
        raise ConfigError(SOCKET_KEY, path, f"the path of a socket has at most {MAX_SOCKET_PATH_BYTES} bytes")
    try:
        require_private(fs, resolved.parent, SOCKET_KEY, path)
    except FileNotFoundError:
        raise ConfigError(SOCKET_KEY, path, f"there is no directory {resolved.parent}") from None
    return resolved


def _require_free(fs: FileSystem, path: Path) -> None:
    """Make sure that no process listens at a path without our lock; a stale socket may be removed."""
    try:
        status = fs.stat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigError(SOCKET_KEY, path, "a file with this name is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(os.fsencode(path))
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                return
    raise StateDirLockedError(f"another process listens at the control socket {path}")
