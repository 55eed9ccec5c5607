"""
What a kind of storage has to answer so that `remote.py` can read log dirs in it, and what all of them share: the thread
of a request, and how much of an answer is believed.

A service may be broken, or hostile. Whatever it answers, a request ends: with what was asked for, or with `Again`,
`Refused` or `Replaced`; and it takes no more memory than an honest answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from cleaner.base import concurrency
from cleaner.base.remote_path import RemotePath
from cleaner.base.sizes import human_bytes

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Limits:
    """
    How a bucket is read.

    Attributes:
        attempts: how often a request is made before its failure is an error.
        pause_seconds: before the second attempt; doubles before each further one.
        silence_seconds: a request is given up if nothing comes for so long.
        listing_seconds: how long a listing is used.
        least_ahead, most_ahead: bytes of the first request of a reader, and of those of one that reads on.
        kept_bytes: of pieces that were read ahead, all files together.
    """

    attempts: int = 5
    pause_seconds: float = 0.25
    silence_seconds: float = 30.0
    listing_seconds: float = 5.0
    least_ahead: int = 256 << 10
    most_ahead: int = 8 << 20
    kept_bytes: int = 64 << 20


LIMITS = Limits()


class RemoteObject(NamedTuple):
    """An object as it was listed; a directory has no ETag."""

    size: int
    etag: str
    mtime_ns: int

    @property
    def is_directory(self) -> bool:
        """Tell whether it is the common beginning of other objects' names."""
        return not self.etag


class Again(ValueError):
    """A request failed, and the next may succeed; says how, without anything of the request."""


class Refused(ValueError):
    """A request failed, and so would the next."""


class Replaced(ValueError):
    """An object is not the one that was listed."""


class Store(Protocol):
    """A kind of storage: its requests, each made once. Raises `Again`, `Refused` and `Replaced`."""

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the objects and directories directly below a path, by name; empty if there is no such path."""

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of an object from `start`, which are there by its listing: no fewer."""


# ---- a request's thread ----------------------------------------------------------------------------------------------

_POLL_SECONDS = 0.2  # with the rest, less than the second in which a command must end
_here = concurrency.local()  # `request`: the one that this thread makes


class _Request:
    """What a thread that makes a request and the one that waits for it share."""

    def __init__(self) -> None:
        self.was_heard = False
        self.has_ended = concurrency.Latch()
        self.found: Any = None
        self.error: BaseException | None = None


def heard() -> None:
    """Note that something of an answer came; called in the thread that makes the request."""
    request: _Request | None = getattr(_here, "request", None)
    if request is not None:
        request.was_heard = True


def wait_for(work: Callable[[], _Result], silence_seconds: float, check_done: Callable[[], None]) -> _Result:
    """
    Make a request in a thread of its own, which is left behind if nobody waits for it any more.

    A thread that waits for a socket cannot be woken, and not every library has time-outs. The thread ends with the
    socket, or with the process.

    Args:
        work: the request; it calls `heard`.
        silence_seconds: how long nothing may come.
        check_done: called now and then; what it raises ends the wait.
    Raises:
        Again: nothing came.
        BaseException: as `work` does.
    """
    request = _Request()

    def run() -> None:
        _here.request = request
        try:
            request.found = work()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
            request.error = error
        request.has_ended.open()

    concurrency.Thread(target=run, name="cleaner-request", daemon=True).start()
    silent_seconds = 0.0
    while not request.has_ended.wait(_POLL_SECONDS):
        check_done()
        heard()  # this may be a request's thread itself, of a kind that is made of others
        silent_seconds = 0.0 if request.was_heard else silent_seconds + _POLL_SECONDS
        request.was_heard = False
        if silent_seconds > silence_seconds:
            raise Again("no answer (TimeoutError)")
    if request.error is not None:
        raise request.error
    return request.found  # type: ignore[no-any-return]


def pause(seconds: float, sleep: Callable[[float], None], check_done: Callable[[], None]) -> None:
    """Sleep, and ask now and then whether to go on."""
    while seconds > 0:
        check_done()
        sleep(min(seconds, _POLL_SECONDS))
        heard()
        seconds -= _POLL_SECONDS


# ---- how much of an answer is believed -------------------------------------------------------------------------------

MOST_LISTING_BYTES = 32 << 20
"""Of one answer to a listing: a thousand names take less than 4 MiB, a directory of HDFS with 50 000 files 16."""

TOO_LONG = f"its listing has answers above {human_bytes(MOST_LISTING_BYTES)}"

_MOST_NAMES = 250_000  # in a directory; 100 MiB of memory. A partition with 60 000 segments has fewer
_MOST_PAGES = 10_000
_MOST_TAG = 1024
_LARGEST = 2**63 - 1
_PIECE_BYTES = 64 << 10


def read_body(read: Callable[[int], bytes], most: int) -> bytes | None:
    """
    Return all that comes; None if that is more than `most` bytes: then the rest stays where it is.

    Args:
        read: returns what has come, at most so many bytes; nothing at the end.
    """
    data = bytearray()
    while piece := read(min(_PIECE_BYTES, most + 1 - len(data))):
        heard()
        data += piece
        if len(data) > most:
            return None
    return bytes(data)


def require_range(data: bytes | None, size: int) -> bytes:
    """Return what came, if it is as much as was asked for. Raises `Again`."""
    if data is None:
        raise Again(f"more than {size} bytes came")
    if len(data) != size:
        raise Again(f"{len(data)} bytes came instead of {size}")
    return data


def require_plain_xml(data: bytes) -> bytes:
    """Return an XML document that declares no entities: they could make it a hundred times as large. Raises `Again`."""
    if b"<!DOCTYPE" in data.replace(b"\0", b""):  # in UTF-16, too
        raise Again("its listing cannot be read (it declares entities)")
    return data


class Listed:
    """
    What a directory holds, put together from the pages of a listing.

    Names that no disk has (empty, `.`, `..`, with a NUL, not Unicode) are left out: there is no path to them.

    Args:
        prefix: begins all names; with it they are listed.
    Attributes:
        found: objects and directories by name; a directory hides an object of its name.
    """

    def __init__(self, prefix: str = "") -> None:
        self.found: dict[str, RemoteObject] = {}
        self._prefix = prefix
        self._tokens: set[str] = set()

    def add_directory(self, name: str) -> None:
        """Add a directory, by its name without the slash. Raises `Again`, `Refused`."""
        self._add(name, RemoteObject(0, "", 0))

    def add(self, name: str, size: int, tag: str, mtime_ns: int) -> None:
        """Add an object. Raises `Again`, `Refused`."""
        if not tag:
            raise Refused("the service lists objects without ETags, so a replaced one would not be noticed")
        if not 0 <= size <= _LARGEST or len(tag) > _MOST_TAG or not (tag.isascii() and tag.isprintable()):
            raise Again("its listing cannot be read (a size or an ETag is none)")
        self._add(name, RemoteObject(size, tag, min(max(mtime_ns, 0), _LARGEST)))

    def next_page(self, token: str) -> None:
        """Note that another page follows, by its token. Raises `Refused`: the pages have no end."""
        if token in self._tokens or len(self._tokens) >= _MOST_PAGES:
            raise Refused("its listing has no end")
        self._tokens.add(token)
        heard()

    def _add(self, name: str, about: RemoteObject) -> None:
        rest = name[len(self._prefix) :]
        if not name.startswith(self._prefix) or "/" in rest:
            raise Again("it lists other names than were asked for")
        if rest in ("", ".", "..") or "\0" in rest or not _is_unicode(rest):
            return
        if about.is_directory:
            self.found[rest] = about
        else:
            self.found.setdefault(rest, about)
        if len(self.found) > _MOST_NAMES:
            raise Refused(f"it has more than {_MOST_NAMES} names: a directory of logs has fewer")


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
