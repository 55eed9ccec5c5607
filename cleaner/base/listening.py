"""Addresses at which a server of ours listens."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import NamedTuple

from cleaner.errors import ListenError


class Address(NamedTuple):
    """Host, an IPv6 address without brackets, and port; as a place to listen, port 0 is any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen(address: Address, backlog: int, option: str) -> tuple[socket.socket, Address]:
    """
    Return a listening socket that does not block, and its address, with the port that was free.

    Args:
        backlog: connections that wait to be accepted.
        option: with the address behind it, for the error: `--listen `.
    Raises:
        ListenError: the address is taken, or not this machine's.
    """
    with contextlib.ExitStack() as attempt:
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(
                *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = attempt.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(backlog)
        except OSError as error:
            raise ListenError(f"{option}{address}: {error.strerror or error}") from error
        listener.setblocking(False)
        attempt.pop_all()
    return listener, Address(address.host, listener.getsockname()[1])
