"""
Directories held open, so that work goes on in them whatever becomes of their names.

A path is looked up anew by every call, and the owner of a directory on the way may have put a link there since the last
one: root, at work in another user's log dir, would create, cut and give away files anywhere. So the directory that is
worked in is opened once, and while it is held

    /data/logs                 held: names in it are given to the system with its descriptor (`openat`, `renameat`, ...)
    /data/logs/prices-0        below one: opened for the one call, from there, and a link is an error; or held as well,
                               for as long as a round takes, and it is the same directory to the end
    /etc/cleaner.properties    below none: a path as ever

A descriptor is for those who hold a directory and for the calls that are just using it, of whatever thread, and closed
when the last of them has left.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TO_READ = os.O_RDONLY | _DIRECTORY
# Enough to go on from; elsewhere than on Linux, where nothing is ever held, there is no such thing.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY

Accept = Callable[[Path, os.stat_result], None]
"""Raises when a directory, with the status of the open one, is not to be worked in."""


class _Held:
    """An open directory; fields are guarded by the lock of `HeldDirectories`."""

    __slots__ = ("descriptor", "holders", "path", "users")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.holders = 0
        # Calls that are just using the descriptor.
        self.users = 0


class HeldName:
    """
    Where a call finds a name: `name` in the directory `descriptor`, or (None) a path. To be used in a `with` block.

    Errors of the system in the block name the whole path.
    """

    __slots__ = ("_held", "_owned", "_owner", "_path", "descriptor", "name")

    def __init__(self, owner: HeldDirectories, path: str, name: str, held: _Held | None, owned: int | None) -> None:
        self._owner = owner
        self._path = path
        self._held = held
        self._owned = owned
        self.name = name
        self.descriptor = held.descriptor if held is not None else owned

    def __enter__(self) -> HeldName:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._held is not None:
            self._owner.give_back(self._held)
        elif self._owned is not None:
            os.close(self._owned)
        if self.descriptor is not None and isinstance(error, OSError) and isinstance(error.filename, str | int):
            error.filename = self._path

    def below(self, name: str) -> str:
        """Return what a call is given for a name in the directory that `inside` was asked for."""
        return name if self.descriptor is not None else f"{self.name}{os.sep}{name}"

    def status(self) -> os.stat_result:
        """Return the status of the directory that `parent` found the name in."""
        return Path(self._path).parent.stat() if self.descriptor is None else os.fstat(self.descriptor)


class Hold:
    """A directory that is held until `release`, or for a `with` block."""

    def __init__(self, owner: HeldDirectories, held: _Held) -> None:
        self._owner = owner
        self._held: _Held | None = held

    def release(self) -> None:
        """Let go of it; a second call does nothing."""
        held, self._held = self._held, None
        if held is not None:
            self._owner.let_go(held)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class HeldDirectories:
    """The directories that are held through one `FileSystem`. Thread-safe."""

    def __init__(self) -> None:
        # A signal handler may come to it while its own thread has it.
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}  # guarded, but for the question whether it is empty or has a key

    def hold(self, path: Path, accept: Accept, *, follow_above: bool) -> Hold:
        """
        Open a directory, no link followed in its place, and hold it.

        Args:
            path: the directory.
            accept: see there.
            follow_above: links on the way there are followed; else the path has none.
        Raises:
            OSError: no such directory; a link; or the one that is held by this name has another name by now.
        """
        text = str(path)
        descriptor = self._opened(path, follow_above=follow_above)
        try:
            about = os.fstat(descriptor)
            accept(path, about)
            with self._lock:
                held = self._held.get(text)
                if held is None:
                    held = self._held[text] = _Held(text, descriptor)
                    descriptor = -1
                elif not os.path.samestat(os.fstat(held.descriptor), about):
                    raise OSError(errno.EBUSY, "work goes on in another directory, which had this name before", text)
                held.holders += 1
                return Hold(self, held)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _opened(self, path: Path, *, follow_above: bool) -> int:
        """Open a directory to be held, by its name: what is held by that name already does not count."""
        with self.parent(path) as at:
            if at.descriptor is not None:
                return os.open(at.name, _TO_READ, dir_fd=at.descriptor)
        if follow_above:
            return os.open(path, _TO_READ)
        root = os.open("/", _ON_THE_WAY)
        try:
            return _descend(root, str(path.absolute()).split("/"), _TO_READ)
        finally:
            os.close(root)

    @property
    def is_empty(self) -> bool:
        """Tell whether none is held, so that paths are given to the system as they are."""
        return not self._held

    def parent(self, path: Path) -> HeldName:
        """Return where to find the last name of a path."""
        text = str(path)
        if not self._held:
            return HeldName(self, text, text, None, None)
        directory, _, name = text.rpartition("/")
        held, owned = self._find(directory, _ON_THE_WAY)
        return HeldName(self, text, name if held or owned is not None else text, held, owned)

    def inside(self, path: Path) -> HeldName:
        """Return where to find names in a directory; the place's own name is the directory's path, or a dot."""
        text = str(path)
        if not self._held:
            return HeldName(self, text, text, None, None)
        held, owned = self._find(text, _TO_READ)
        return HeldName(self, text, "." if held or owned is not None else text, held, owned)

    def itself(self, path: Path) -> HeldName:
        """Return where to find what a path names: as `parent`, but a directory that is held is that one."""
        return self.inside(path) if str(path) in self._held else self.parent(path)

    def _find(self, directory: str, flags: int) -> tuple[_Held | None, int | None]:
        """Borrow a held directory, or open one below a held one; nothing where none is held on the way."""
        rest: list[str] = []
        at = directory
        with self._lock:
            while (held := self._held.get(at)) is None:
                at, slash, name = at.rpartition("/")
                if not slash:
                    return None, None
                rest.append(name)
            held.users += 1
        if not rest:
            return held, None
        try:
            return None, _descend(held.descriptor, rest[::-1], flags)
        except OSError as error:
            error.filename = directory
            raise
        finally:
            self.give_back(held)

    def give_back(self, held: _Held) -> None:
        """End the use of a borrowed descriptor."""
        with self._lock:
            held.users -= 1
            self._close_if_last(held)

    def let_go(self, held: _Held) -> None:
        """End a hold."""
        with self._lock:
            held.holders -= 1
            if not held.holders and self._held.get(held.path) is held:
                del self._held[held.path]
            self._close_if_last(held)

    @staticmethod
    def _close_if_last(held: _Held) -> None:
        if not held.holders and not held.users:
            os.close(held.descriptor)

    def renamed(self, source: Path, target: Path) -> None:
        """Note that we have renamed something: a directory that is held is so by its new name."""
        if str(source) in self._held:
            with self._lock:
                held = self._held.pop(str(source), None)
                if held is not None:
                    held.path = str(target)
                    self._held[held.path] = held


def _descend(start: int, names: list[str], flags: int) -> int:
    """Open a directory below an open one, name by name; no link is followed, and no name leads up again."""
    wanted = [name for name in names if name] or ["."]
    at = start
    try:
        for number, name in enumerate(wanted, 1):
            if name == "..":
                raise OSError(errno.ELOOP, "a path that leads up again", name)
            below = os.open(name, flags if number == len(wanted) else _ON_THE_WAY, dir_fd=at)
            above, at = at, below
            if above != start:
                os.close(above)
    except BaseException:
        if at != start:
            os.close(at)
        raise
    return at
