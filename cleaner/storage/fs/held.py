"""
Directories held open, so that work stays in them even if they are renamed or replaced.

The system resolves a path again in every call, and the owner of a directory in the path may have put a link there since
the last call. Root, working in another user's log dir, would then create, cut and chown files anywhere. So the log dir
is opened once, and while it is held:

    /data/logs                 held: names in it go to the system with its descriptor (`openat`, `renameat`, ...)
    /data/logs/prices-0        below a held one: opened from there for each call, and a link is an error; or held as
                               well for a whole round, and then it stays the same directory to the end
    /etc/cleaner.properties    not below a held one: an ordinary path

A descriptor is shared by the holders of a directory and by the calls that are using it, in any thread. The last of them
closes it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from cleaner.base import concurrency

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TO_READ = os.O_RDONLY | _DIRECTORY
# Enough to descend from. O_PATH exists on Linux only; elsewhere no directory is ever held.
_ON_THE_WAY = getattr(os, "O_PATH", os.O_RDONLY) | _DIRECTORY

Accept = Callable[[Path, os.stat_result], None]
"""Raises if work in a directory, given with its status once opened, is not allowed."""


class _HeldDirectory:
    """An open directory; fields are guarded by the lock of `HeldDirectories`."""

    __slots__ = ("descriptor", "holders", "path", "users")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.holders = 0
        # Calls that are using the descriptor now.
        self.users = 0


class HeldName:
    """
    Where a call finds a name: `name` in the directory `descriptor`, or a path (None). Use it in a `with` block.

    An OSError raised in the block names the whole path.
    """

    __slots__ = ("_held", "_owned", "_owner", "_path", "descriptor", "name")

    def __init__(
        self, owner: HeldDirectories, path: str, name: str, held: _HeldDirectory | None, owned: int | None
    ) -> None:
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
        """Return what to pass to the system for a name in the directory that `inside` was called with."""
        return name if self.descriptor is not None else f"{self.name}{os.sep}{name}"

    def status(self) -> os.stat_result:
        """Return the status of the directory that `parent` found the name in."""
        return Path(self._path).parent.stat() if self.descriptor is None else os.fstat(self.descriptor)


class Hold:
    """Holds a directory until `release`, or for a `with` block."""

    def __init__(self, owner: HeldDirectories, held: _HeldDirectory) -> None:
        self._owner = owner
        self._held: _HeldDirectory | None = held

    def release(self) -> None:
        """End the hold; a second call does nothing."""
        held, self._held = self._held, None
        if held is not None:
            self._owner.drop_hold(held)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class HeldDirectories:
    """The directories that are held through one `FileSystem`. Thread-safe."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may need it while its own thread has it.
        self._lock = concurrency.RLock()
        self._held: dict[str, _HeldDirectory] = {}  # guarded, except for asking whether it is empty or has a key

    def hold(self, path: Path, accept: Accept, *, follow_above: bool) -> Hold:
        """
        Open a directory and hold it; the directory itself must not be a link.

        Args:
            path: the directory.
            accept: see `Accept`.
            follow_above: follow links above the directory; otherwise the path must have none.
        Raises:
            OSError: no such directory; a link; or the directory held by this path was renamed.
        """
        text = str(path)
        descriptor = self._opened(path, follow_above=follow_above)
        try:
            about = os.fstat(descriptor)
            accept(path, about)
            with self._lock:
                held = self._held.get(text)
                if held is None:
                    held = self._held[text] = _HeldDirectory(text, descriptor)
                    descriptor = -1
                elif not os.path.samestat(os.fstat(held.descriptor), about):
                    raise OSError(errno.EBUSY, "another directory, which had this name before, is in use", text)
                held.holders += 1
                return Hold(self, held)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _opened(self, path: Path, *, follow_above: bool) -> int:
        """Open a directory by its name, even if a directory of this name is already held."""
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

    def is_in_place(self, path: Path) -> bool:
        """Tell whether the directory that is held by a path still has this name; without one: True."""
        with self._lock:
            held = self._held.get(str(path))
            if held is None:
                return True
            about = os.fstat(held.descriptor)
        try:
            with self.parent(path) as at:
                return os.path.samestat(about, os.stat(at.name, dir_fd=at.descriptor, follow_symlinks=False))
        except FileNotFoundError:
            return False

    @property
    def is_empty(self) -> bool:
        """Tell whether no directory is held, so that paths go to the system unchanged."""
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
        """Return where to find names in a directory; `name` of the result is the directory's path, or a dot."""
        text = str(path)
        if not self._held:
            return HeldName(self, text, text, None, None)
        held, owned = self._find(text, _TO_READ)
        return HeldName(self, text, "." if held or owned is not None else text, held, owned)

    def itself(self, path: Path) -> HeldName:
        """Return where to find a path itself: as `parent`, but for a held directory the one that is held."""
        return self.inside(path) if str(path) in self._held else self.parent(path)

    def _find(self, directory: str, flags: int) -> tuple[_HeldDirectory | None, int | None]:
        """Borrow a held directory, or open one below a held one; (None, None) if neither it nor a parent is held."""
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

    def give_back(self, held: _HeldDirectory) -> None:
        """End the use of a borrowed descriptor."""
        with self._lock:
            held.users -= 1
            self._close_if_last(held)

    def drop_hold(self, held: _HeldDirectory) -> None:
        """End a hold."""
        with self._lock:
            held.holders -= 1
            if not held.holders and self._held.get(held.path) is held:
                del self._held[held.path]
            self._close_if_last(held)

    @staticmethod
    def _close_if_last(held: _HeldDirectory) -> None:
        if not held.holders and not held.users:
            os.close(held.descriptor)

    def renamed(self, source: Path, target: Path) -> None:
        """Note a rename: a held directory is held by its new name from now on."""
        if str(source) in self._held:
            with self._lock:
                held = self._held.pop(str(source), None)
                if held is not None:
                    held.path = str(target)
                    self._held[held.path] = held


def _descend(start: int, names: list[str], flags: int) -> int:
    """Open a directory below an open one, name by name; links and `..` are refused."""
    wanted = [name for name in names if name] or ["."]
    at = start
    try:
        for number, name in enumerate(wanted, 1):
            if name == "..":
                raise OSError(errno.ELOOP, "the path contains `..`", name)
            below = os.open(name, flags if number == len(wanted) else _ON_THE_WAY, dir_fd=at)
            above, at = at, below
            if above != start:
                os.close(above)
    except BaseException:
        if at != start:
            os.close(at)
        raise
    return at
