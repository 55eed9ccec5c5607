"""
The line of requests whose password has to be compared, which takes long on purpose.

One is compared at a time, and origins take turns: thirty guessers at one address delay a request from another address
by one comparison, and a request from their own address by one for each of them. If the line is full, the origin with
the most requests loses its last one. Failures are paced, so that guesses cannot take all CPU time.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from cleaner.base import concurrency

_FAILURE_SECONDS = 0.1
"""From the start of a failed comparison to that of the next one; comparing takes at most half of the time."""

Waiting = TypeVar("Waiting")


class WaitingLine(Generic[Waiting]):
    """
    The waiting requests, by origin.

    Args:
        most: how many may wait.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # The origin whose turn is next comes first; no origin's line is empty.
        self._by_origin: dict[bytes, deque[Waiting]] = {}

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


class _Request(NamedTuple):
    turn: Callable[[], Callable[[], bool]]
    has_left: Callable[[], bool]
    is_right: asyncio.Future[bool | None]


class PasswordLine:
    """
    Compares the passwords of a server; used in its event loop only.

    Args:
        most: how many requests may wait.
    """

    def __init__(self, most: int) -> None:
        self._line: WaitingLine[_Request] = WaitingLine(most)
        self._comparing: asyncio.Task[None] | None = None

    async def is_right(
        self, host: str, turn: Callable[[], Callable[[], bool]], has_left: Callable[[], bool]
    ) -> bool | None:
        """
        Tell whether a password is right, once it was compared; None: the line is full.

        Args:
            host: the address of the client.
            turn: called when it is its turn; what it returns compares the password, in a thread of its own.
            has_left: tells whether the client waits no more: then nothing is compared.
        """
        request = _Request(turn, has_left, asyncio.get_running_loop().create_future())
        evicted = self._line.join(origin_of(host), request)
        if evicted is not None:
            _settle(evicted, None)
        if self._comparing is None or self._comparing.done():
            self._comparing = asyncio.create_task(self._compare_all())
        return await request.is_right

    async def _compare_all(self) -> None:
        now = asyncio.get_running_loop().time
        while (request := self._line.take()) is not None:
            if request.has_left():
                _settle(request, False)
                continue
            began = now()
            try:
                is_right = await _in_own_thread(request.turn())
            except Exception as error:  # noqa: BLE001 - raised where the answer is awaited; others wait, too
                is_right = False
                if not request.is_right.done():
                    request.is_right.set_exception(error)
            _settle(request, is_right)
            if not is_right:
                took = now() - began
                await asyncio.sleep(max(_FAILURE_SECONDS - took, took))


def _settle(request: _Request, is_right: bool | None) -> None:
    if not request.is_right.done():  # who waited may have been cancelled
        request.is_right.set_result(is_right)


async def _in_own_thread(compare: Callable[[], bool]) -> bool:
    """Run long work in a thread that neither `close` nor the interpreter waits for."""
    done: concurrency.Future[bool] = concurrency.Future()
    done.set_running_or_notify_cancel()  # from here on it cannot be called off

    def run() -> None:
        try:
            done.set_result(compare())
        except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
            done.set_exception(error)

    concurrency.Thread(target=run, name="cleaner-passwords", daemon=True).start()
    return await asyncio.wrap_future(done)


def origin_of(host: str) -> bytes:
    """Return the origin of an address: all of an IPv4 address, the network (/64) of an IPv6 one."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.packed
    return address.ipv4_mapped.packed if address.ipv4_mapped else address.packed[:8]
