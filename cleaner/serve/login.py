"""Who a client is: its connection, and SASL/PLAIN before any other request is answered."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cleaner.serve.codes import Code
from cleaner.serve.wire import RequestHeader, Values

MECHANISM = "PLAIN"
BEFORE_LOGIN = frozenset(("ApiVersions", "SaslHandshake", "SaslAuthenticate"))
"""Requests that are answered before a client has said who it is."""

_FAILURE_SECONDS = 0.1


class Passwords(Protocol):
    """Compares passwords, each as `Basic` and base64 of `name:password`."""

    def known(self, authorization: str) -> bool | None:
        """Tell at once whether it is right; None: it has to be compared."""

    def is_allowed(self, authorization: str) -> bool:
        """Tell whether it is right; takes long."""


class Access(NamedTuple):
    """
    Who may connect, and how.

    Attributes:
        tls: for the handshake; None: no TLS.
        passwords: None: nobody has to log in.
        is_guarded: a password or a client's certificate is asked for.
    """

    tls: ssl.SSLContext | None = None
    passwords: Passwords | None = None
    is_guarded: bool = False


class Login:
    """
    Of one connection.

    Args:
        passwords: None: nobody has to log in.
        comparing: one of the server: a guess takes long, and no more than half of the time is for guesses.

    Attributes:
        is_done: all requests may be answered.
        has_failed: the connection ends.
    """

    def __init__(self, passwords: Passwords | None, comparing: asyncio.Lock) -> None:
        self._passwords = passwords
        self._comparing = comparing
        self._is_agreed = False
        self.is_done = passwords is None
        self.has_failed = False

    def handshake(self, request: Values, call: Call) -> Values:
        """Answer SaslHandshake."""
        if call.header.version == 0:  # offered, because librdkafka looks for it; but tokens behind it are no messages
            return {"errorCode": Code.UNSUPPORTED_VERSION}
        self._is_agreed = not self.is_done and request["mechanism"] == MECHANISM
        code = Code.ILLEGAL_SASL_STATE if self.is_done else Code.UNSUPPORTED_SASL_MECHANISM
        return {"errorCode": Code.NONE if self._is_agreed else code, "mechanisms": [MECHANISM]}

    async def authenticate(self, request: Values) -> Values:
        """Answer SaslAuthenticate."""
        if self._passwords is None or not self._is_agreed or self.is_done:
            self.has_failed = True
            return {"errorCode": Code.ILLEGAL_SASL_STATE, "errorMessage": "not now"}
        acting_for, name, password = (*base64.b64decode(request["authBytes"]).split(b"\0"), b"", b"")[:3]
        # A name with a colon is no user's, and would be taken for a shorter one.
        if acting_for in (b"", name) and b":" not in name:
            authorization = f"Basic {base64.b64encode(name + b':' + password).decode()}"
            self.is_done = await self._is_right(self._passwords, authorization)
        self.has_failed = not self.is_done
        if self.has_failed:
            return {"errorCode": Code.SASL_AUTHENTICATION_FAILED, "errorMessage": "no such user, or another password"}
        return {"errorMessage": None, "authBytes": b""}

    async def _is_right(self, passwords: Passwords, authorization: str) -> bool:
        is_known = passwords.known(authorization)
        if is_known is not None:
            return is_known
        now = asyncio.get_running_loop().time
        async with self._comparing:
            began = now()
            is_right = await asyncio.to_thread(passwords.is_allowed, authorization)
            if not is_right:
                await asyncio.sleep(max(_FAILURE_SECONDS, now() - began))
            return is_right


@dataclass(frozen=True)
class Call:
    """
    A request: who asks, and how.

    Attributes:
        where: the address under which the client reaches this server.
        is_gone: tells whether it has closed its connection.
        login: of its connection.
        opened: what is closed when the answer is sent.
    """

    header: RequestHeader
    where: tuple[str, int]
    is_gone: Callable[[], bool]
    login: Login
    opened: contextlib.ExitStack
