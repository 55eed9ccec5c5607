"""Who a client is: its connection, and SASL/PLAIN before any other request is answered."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from cleaner.base.password_line import PasswordLine
from cleaner.serve.codes import Code
from cleaner.serve.wire import RequestHeader, Values

MECHANISM = "PLAIN"
BEFORE_LOGIN = frozenset(("ApiVersions", "SaslHandshake", "SaslAuthenticate"))
"""Requests that are answered before a client has said who it is."""


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
        line: of the server.
        host: the address of the client.

    Attributes:
        is_done: all requests may be answered.
        has_failed: the connection ends.
    """

    def __init__(self, passwords: Passwords | None, line: PasswordLine, host: str) -> None:
        self._passwords = passwords
        self._line = line
        self._host = host
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

    async def authenticate(self, request: Values, call: Call) -> Values:
        """Answer SaslAuthenticate."""
        if self._passwords is None or not self._is_agreed or self.is_done:
            self.has_failed = True
            return {"errorCode": Code.ILLEGAL_SASL_STATE, "errorMessage": "not now"}
        acting_for, name, password = (*base64.b64decode(request["authBytes"]).split(b"\0"), b"", b"")[:3]
        # A name with a colon is no user's, and would be taken for a shorter one.
        if acting_for in (b"", name) and b":" not in name:
            authorization = f"Basic {base64.b64encode(name + b':' + password).decode()}"
            is_right = self._passwords.known(authorization)
            if is_right is None:
                compare = partial(self._passwords.is_allowed, authorization)
                is_right = await self._line.is_right(self._host, lambda: compare, call.is_gone)
            self.is_done = is_right is True
        self.has_failed = not self.is_done
        if self.has_failed:
            return {"errorCode": Code.SASL_AUTHENTICATION_FAILED, "errorMessage": "no such user, or another password"}
        return {"errorMessage": None, "authBytes": b""}


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
