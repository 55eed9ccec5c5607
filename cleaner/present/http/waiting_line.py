"""
The line in which those wait whose password has to be compared.

One is served at a time, and each address in its turn: thirty guessers at one place delay who comes from another by one
comparison, and who comes from their own place by one of each of them. When the line is full, the address with the most
in it loses its last.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from typing import Generic, TypeVar

MOST_WAITING = 64

Waiting = TypeVar("Waiting")


class WaitingLine(Generic[Waiting]):
    """
    Who waits, by origin. Thread-safe.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._changed = threading.Condition()  # guards all below
        self._by_origin: OrderedDict[bytes, deque[Waiting]] = OrderedDict()  # whose turn is next comes first
        self._count = 0
        self._is_closed = False

    def join(self, origin: bytes, waiting: Waiting) -> Waiting | None:
        """Take the last place; returns who has none any more, which may be the same."""
        with self._changed:
            if self._is_closed:
                return waiting
            loser = None
            self._by_origin.setdefault(origin, deque()).append(waiting)
            self._count += 1
            if self._count > self._most:
                longest = max(self._by_origin, key=lambda origin: len(self._by_origin[origin]))
                loser = self._by_origin[longest].pop()
                self._gone(longest)
            self._changed.notify()
            return loser

    def take(self) -> Waiting | None:
        """Wait for the next one; None: the line is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._is_closed)
            if self._is_closed:
                return None
            origin, line = next(iter(self._by_origin.items()))
            waiting = line.popleft()
            self._by_origin.move_to_end(origin)
            self._gone(origin)
            return waiting

    def close(self) -> list[Waiting]:
        """Let nobody in any more; returns who waited."""
        with self._changed:
            self._is_closed = True
            left = [waiting for line in self._by_origin.values() for waiting in line]
            self._by_origin.clear()
            self._count = 0
            self._changed.notify_all()
            return left

    def _gone(self, origin: bytes) -> None:
        self._count -= 1
        if not self._by_origin[origin]:
            del self._by_origin[origin]


def origin_of(host: str) -> bytes:
    """Return what tells a place from others: all of an IPv4 address, the network (/64) of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
