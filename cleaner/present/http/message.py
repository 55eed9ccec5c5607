"""
HTTP/1.1 as far as a read-only server needs it: one GET or HEAD per connection, no request body, complete answers.

h11 parses requests. This module has no sockets; they are in `server.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from cleaner.base.clock import LAST_CALENDAR_MS

MAX_HEAD_BYTES = 16 << 10
HEAD_END = b"\r\n\r\n"
METHODS = ("GET", "HEAD")

# A browser may load, run, frame or send nothing unless an answer allows it (the page allows its own style and script).
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

# What h11 accepts although it should not: a line end without carriage return, a header continued on the next line.
_BAD_LINE_END = re.compile(rb"(?<!\r)\n|\n[ \t]")
_LOOPBACK_HOST = re.compile(
    r"(localhost|[a-z0-9-]+\.localhost|127(\.\d{1,3}){3}|\[::1\])\.?(:\d{1,5})?\Z", re.IGNORECASE
)


class BadRequestError(ValueError):
    """Bytes that are not a request; the message tells the client nothing else."""


@dataclass(frozen=True)
class Request:
    """
    One request.

    Attributes:
        method: any; see `METHODS`.
        path: decoded, begins with a slash.
        query: the last value by name.
        headers: the first value by name, names in lower case.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_host_on_loopback(self) -> bool:
        """
        Tell whether the `Host` is a name of this machine's loopback, or there is none.

        A foreign web page may point its own host name to 127.0.0.1, so that a browser reads data meant only for this
        machine's users; the browser then still sends that name.
        """
        host = self.headers.get("host", "")
        return not host or _LOOPBACK_HOST.match(host) is not None


@dataclass(frozen=True)
class Response:
    """
    What is answered.

    Attributes:
        body: all of it.
        content_type: with its character set.
        status: 200 unless something is wrong.
        headers: more headers; they override those of `SECURITY_HEADERS`.
    """

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def words(status: HTTPStatus, text: str = "", **headers: str) -> Response:
        """Return a line of text; without one, the status's own words."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Response(f"{text or status.phrase}\n".encode(), status=status, headers=named)


def parse_request(head: bytes) -> Request:
    """
    Parse the head of a request, including its empty line.

    Raises:
        BadRequestError: it is not one.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        parser.receive_data(head)
        event = parser.next_event()
        if not isinstance(event, h11.Request) or event.http_version not in (b"1.0", b"1.1"):
            raise ValueError("no head, or another version of HTTP")
        if _BAD_LINE_END.search(head):
            raise ValueError("a line ending that proxies may interpret differently")
        parts = urlsplit(event.target.decode("latin-1"))
        if not parts.path.startswith("/"):
            raise ValueError("a target without a path")
        query = dict(parse_qsl(parts.query, keep_blank_values=True, max_num_fields=32))
    except (h11.RemoteProtocolError, ValueError) as error:
        raise BadRequestError("not a request of HTTP/1.1") from error
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(event.headers)}
    return Request(event.method.decode("latin-1"), unquote(parts.path), query, headers)


def format_head(response: Response, now_ms: int = 0) -> bytes:
    """
    Format an answer without its body; `now_ms` is its date.

    Raises:
        ValueError: a header's value has a control character, so that it could inject another header.
    """
    headers = {
        "Date": formatdate(max(0, min(now_ms, LAST_CALENDAR_MS)) / 1000, usegmt=True),
        "Server": "cleaner",
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        **SECURITY_HEADERS,
        **response.headers,
    }
    lines = [f"HTTP/1.1 {int(response.status)} {HTTPStatus(response.status).phrase}"]
    for name, value in headers.items():
        if not value.isprintable():
            raise ValueError(f"header {name} with a control character")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
