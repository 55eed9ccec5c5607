"""
Users and their passwords, as bcrypt hashes.

bcrypt is slow on purpose, so correct passwords are remembered, under a key of this process, and are then recognized at
once. A failed comparison takes the same time for every user name: that of the costliest hash in the file.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from cleaner.base import concurrency

MAX_COST = 15
"""Of a hash: the next cost would take some ten seconds per guess."""

_HASH = re.compile(r"\$2[abxy]\$([0-9]{2})\$[./A-Za-z0-9]{53}\Z")
_MIN_COST = 4
_MAX_REMEMBERED = 64  # besides one for each user


def cost_of(hashed: str) -> int | None:
    """Return the cost of a bcrypt hash, the binary logarithm of its rounds; None: it is none."""
    match = _HASH.match(hashed)
    cost = int(match[1]) if match else 0
    return cost if _MIN_COST <= cost <= 31 else None


class Passwords:
    """
    The users and their passwords. Thread-safe.

    Args:
        users: bcrypt hashes by name; if empty, every request is allowed.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._max_cost = max((cost_of(hashed) or 0 for hashed in users.values()), default=0)
        self._key = secrets.token_bytes(32)
        self._lock = concurrency.Lock()  # guards _right; never held for long
        self._right: set[bytes] = set()

    def known(self, authorization: str) -> bool | None:
        """Tell at once whether an `Authorization` is a user's; None: its password has to be compared."""
        if not self._users:
            return True
        credentials = _decoded(authorization)
        if credentials is None:
            return False
        with self._lock:
            return True if self._digest(credentials) in self._right else None

    def is_allowed(self, authorization: str) -> bool:
        """Tell whether an `Authorization` is a user's; takes as long as bcrypt unless it is remembered."""
        known = self.known(authorization)
        credentials = _decoded(authorization)
        if known is not None or credentials is None:
            return known is True
        if not self._compare(credentials):
            return False
        with self._lock:
            if len(self._right) >= _MAX_REMEMBERED + len(self._users):
                self._right.clear()
            self._right.add(self._digest(credentials))
        return True

    def _digest(self, credentials: bytes) -> bytes:
        return hmac.new(self._key, credentials, hashlib.sha256).digest()

    def _compare(self, credentials: bytes) -> bool:
        import bcrypt  # not needed by most daemons

        name, _, password = credentials.partition(b":")
        hashed = self._users.get(name.decode("utf-8", "replace"))
        try:
            if hashed is None:
                bcrypt.checkpw(password, _dummy_hash(self._max_cost))
                return False
            if bcrypt.checkpw(password, hashed.encode()):
                return True
            # Each cost takes twice as long as the one before: together these make up the difference to the costliest.
            for cost in range(cost_of(hashed) or self._max_cost, self._max_cost):
                bcrypt.checkpw(password, _dummy_hash(cost))
        except ValueError:  # more bytes than bcrypt takes, or a NUL; for any user name
            pass
        return False


def _dummy_hash(cost: int) -> bytes:
    """Return a hash that no password matches."""
    return f"$2b${cost:02}$".encode() + b"." * 21 + b"u" + b"." * 31


def _decoded(authorization: str) -> bytes | None:
    """Return `user:password` of a header for basic authentication; None: it is none."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        credentials = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return credentials if b":" in credentials else None
