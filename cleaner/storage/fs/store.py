"""What a kind of storage has to answer so that `remote.py` can read log dirs in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cleaner.base.remote_path import RemotePath


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
