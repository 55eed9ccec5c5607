"""
The line in which those wait whose password has to be compared.

One is served at a time, and each address in its turn: thirty guessers at one place delay who comes from another by one
comparison, and who comes from their own place by one of each of them. When the line is full, the address with the most
in it loses its last.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import Generic, TypeVar

MOST_WAITING = 64

Waiting = TypeVar("Waiting")


class WaitingLine(Generic[Waiting]):
    """
    Who waits, by origin.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._by_origin: dict[bytes, deque[Waiting]] = {}  # whose turn is next comes first; nobody's line is empty

    def join(self, origin: bytes, waiting: Waiting) -> Waiting | None:
        """Take the last place; returns who has none any more, which may be the same."""
        self._by_origin.setdefault(origin, deque()).append(waiting)
        if sum(map(len, self._by_origin.values())) <= self._most:
            return None
        longest = max(self._by_origin, key=lambda origin: len(self._by_origin[origin]))
        loser = self._by_origin[longest].pop()
        if not self._by_origin[longest]:
            del self._by_origin[longest]
        return loser

    def take(self) -> Waiting | None:
        """Return the next one; None: nobody waits."""
        if not self._by_origin:
            return None
        origin, line = next(iter(self._by_origin.items()))
        del self._by_origin[origin]
        waiting = line.popleft()
        if line:
            self._by_origin[origin] = line  # behind all others
        return waiting


def origin_of(host: str) -> bytes:
    """Return what tells a place from others: all of an IPv4 address, the network (/64) of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
