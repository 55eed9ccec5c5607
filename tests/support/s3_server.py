"""An S3 server in this process (moto), and a proxy before it that does what networks and busy services do."""

from __future__ import annotations

import http.client
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

BUCKET = "backups"
SECRET = "not-to-be-seen-anywhere"  # noqa: S105
KEY_ID = "AKIANOTTOBESEEN"

_TRICKLE_BYTES = 200
_OF_THE_CONNECTION = ("connection", "content-length", "date", "transfer-encoding")

Fault = Callable[["Answer"], None]


class Answer:
    """
    An answer of the server on its way through the proxy; a fault changes it.

    Attributes:
        method, path: of the request, with its query.
        wanted: the request's range; None: the whole object.
        status, body, headers: of the answer.
        cut_at: the connection ends after so many bytes of the body.
        silent_seconds: nothing is sent for so long.
        trickle_seconds: between every two small parts of the body.
    """

    def __init__(self, method: str, path: str, wanted: str | None, status: int, headers: list[tuple[str, str]]) -> None:
        self.method, self.path, self.wanted = method, path, wanted
        self.status = status
        self.headers = headers
        self.body = b""
        self.cut_at: int | None = None
        self.silent_seconds = self.trickle_seconds = 0.0

    @property
    def is_read(self) -> bool:
        """Tell whether it is of a read and not of a listing."""
        return self.wanted is not None


class S3Server:
    """
    Attributes:
        requests: of the proxy, method and path, with a read's range.
        faults: called with each answer, in this order.
    """

    def __init__(self, upstream: int) -> None:
        self.requests: list[tuple[str, str, str | None]] = []
        self.faults: list[Fault] = []
        self._upstream = upstream
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the proxy listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Stop the proxy."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, key: str, data: bytes) -> None:
        """Store an object, not through the proxy."""
        self._direct("PUT", f"/{BUCKET}/{quote(key)}", data)

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._direct("DELETE", f"/{BUCKET}/{quote(key)}")

    def upload(self, directory: Path, prefix: str) -> None:
        """Store the files of a directory as `aws s3 sync` does: without empty directories."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory)}", path.read_bytes())

    def reads(self) -> list[tuple[str, str | None]]:
        """Return path and range of the reads so far."""
        return [(path, wanted) for _, path, wanted in self.requests if wanted is not None]

    def _direct(self, method: str, path: str, body: bytes = b"") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        try:
            connection.request(
                method,
                path,
                body,
                {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/20260101/us-east-1/s3/aws4_request"},
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status < 300, answer.status
        finally:
            connection.close()

    def make_bucket(self) -> None:
        """Make the bucket anew."""
        self._direct("POST", "/moto-api/reset")
        self._direct("PUT", f"/{BUCKET}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # headers and body are two writes

            def do_GET(self) -> None:
                outer._pass_on(self)

            do_PUT = do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler

    def wanted_of(self, handler: BaseHTTPRequestHandler) -> str | None:
        """Return the range that a request wants to read; None: it is no read."""
        return handler.headers.get("Range")

    def ask(self, handler: BaseHTTPRequestHandler, wanted: str | None) -> Answer:
        """Return the service's answer to a request."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        try:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", 0))) or None
            connection.request(handler.command, handler.path, body, dict(handler.headers.items()))
            got = connection.getresponse()
            kept = [(n, v) for n, v in got.getheaders() if n.lower() not in _OF_THE_CONNECTION]
            answer = Answer(handler.command, handler.path, wanted, got.status, kept)
            answer.body = got.read()
        finally:
            connection.close()
        return answer

    def _pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = self.wanted_of(handler)
        self.requests.append((handler.command, handler.path, wanted))
        answer = self.ask(handler, wanted)
        for fault in list(self.faults):
            fault(answer)
        if answer.silent_seconds:
            self._over.wait(answer.silent_seconds)
        self.send(handler, answer)

    def send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        """Send an answer."""
        handler.send_response(answer.status)
        for name, value in answer.headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(answer.body)))
        handler.end_headers()
        if answer.trickle_seconds:
            for at in range(0, len(answer.body), _TRICKLE_BYTES):
                handler.wfile.write(answer.body[at : at + _TRICKLE_BYTES])
                self._over.wait(answer.trickle_seconds)
            return
        handler.wfile.write(answer.body[: answer.cut_at])
        if answer.cut_at is not None:
            handler.close_connection = True


def first(times: int, fault: Fault, *, of_reads: bool = True) -> Fault:
    """Return a fault that strikes only so many times, and only reads, or listings."""
    left = [times]

    def strike(answer: Answer) -> None:
        if answer.is_read is of_reads and left[0]:
            left[0] -= 1
            fault(answer)

    return strike


def busy(answer: Answer) -> None:
    """Answer 503, as S3 does when it is asked too much; with the credentials in its text, as a bad proxy might."""
    answer.status = 503
    answer.headers = [("Content-Type", "application/xml")]
    answer.body = f"<Error><Code>SlowDown</Code><Message>{KEY_ID} {SECRET}</Message></Error>".encode()


def denied(answer: Answer) -> None:
    """Answer 403 likewise."""
    busy(answer)
    answer.status = 403
    answer.body = answer.body.replace(b"SlowDown", b"AccessDenied")


def cut(answer: Answer) -> None:
    """End the connection in the middle of the body."""
    answer.cut_at = len(answer.body) // 2


def short(answer: Answer) -> None:
    """Send fewer bytes than were asked for, as if the object ended there: every header agrees with it."""
    answer.body = answer.body[: len(answer.body) // 2]


def silent(answer: Answer) -> None:
    """Send nothing for a second."""
    answer.silent_seconds = 1.0


def trickling(answer: Answer) -> None:
    """Send it slowly: each part comes in time."""
    answer.trickle_seconds = 0.1


def without_range(answer: Answer) -> None:
    """Send other bytes than were asked for, and say so."""
    answer.headers = [(n, v) for n, v in answer.headers if n.lower() != "content-range"]


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run moto and the proxy during a `with` block."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    _, port = moto.get_host_and_port()
    server = S3Server(port)
    try:
        yield server
    finally:
        server.stop()
        moto.stop()


def environment(server: S3Server) -> dict[str, str]:
    """Return what AWS's tools are told, and nothing of this machine's own."""
    return {
        "AWS_ENDPOINT_URL_S3": server.url,
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
    }
