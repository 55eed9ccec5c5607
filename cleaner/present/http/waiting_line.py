"""
The line of requests whose password has to be compared.

One is served at a time, and origins take turns: thirty guessers at one address delay a request from another address by
one comparison, and a request from their own address by one for each of them. If the line is full, the origin with the
most requests loses its last one.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from typing import Generic, TypeVar

MAX_WAITING = 64

Waiting = TypeVar("Waiting")


class WaitingLine(Generic[Waiting]):
    """
    The waiting requests, by origin.

    Args:
        most: how many may wait.
    """

    def __init__(self, most: int = MAX_WAITING) -> None:
        self._most = most
        self._by_origin: dict[
            bytes, deque[Waiting]
        ] = {}  # the origin whose turn is next comes first; no origin's line is empty

    def join(self, origin: bytes, waiting: Waiting) -> Waiting | None:
        """Take the last place; returns the request that loses its place, possibly the new one; None if none does."""
        self._by_origin.setdefault(origin, deque()).append(waiting)
        if sum(map(len, self._by_origin.values())) <= self._most:
            return None
        longest = max(self._by_origin, key=lambda origin: len(self._by_origin[origin]))
        evicted = self._by_origin[longest].pop()
        if not self._by_origin[longest]:
            del self._by_origin[longest]
        return evicted

    def take(self) -> Waiting | None:
        """Return the next one; None if none waits."""
        if not self._by_origin:
            return None
        origin, line = next(iter(self._by_origin.items()))
        del self._by_origin[origin]
        waiting = line.popleft()
        if line:
            self._by_origin[origin] = line  # after all others
        return waiting


def origin_of(host: str) -> bytes:
    """Return the origin of an address: all of an IPv4 address, the network (/64) of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
