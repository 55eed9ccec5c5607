"""
Servers that others have written for Google's and Azure's storage, behind the proxy that makes faults.

`make stores` fetches them: fake-gcs-server (a Go module) and azurite (npm). They are on loopback, in memory or below a
directory of the test, and end with the test.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from tests.support.s3_server import BUCKET, S3Server

STORES = Path(__file__).parents[2] / ".cache" / "stores"
REAL = {"gs": STORES / "bin" / "fake-gcs-server", "abfs": STORES / "node_modules" / ".bin" / "azurite-blob"}
ACCOUNT = "devstoreaccount1"
# Azurite's own, which everybody knows.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_PATIENCE_SECONDS = 30


class RealStore(S3Server):
    """
    A proxy before such a server.

    Args:
        kind: `gs` or `abfs`.
        upstream: the server's port.
    """

    def __init__(self, kind: str, upstream: int) -> None:
        super().__init__(upstream)
        self._kind = kind

    def make_bucket(self) -> None:
        """Make the bucket."""
        if self._kind == "gs":
            self._request("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode())
        else:
            self._azure("PUT", "", b"", {"restype": "container"})

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        if self._kind == "gs":
            self._request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}", data)
        else:
            self._azure("PUT", f"/{quote(key)}", data, {})

    def remove(self, key: str) -> None:
        """Remove an object."""
        if self._kind == "gs":
            self._request("DELETE", f"/storage/v1/b/{BUCKET}/o/{quote(key, safe='')}", b"")
        else:
            self._azure("DELETE", f"/{quote(key)}", b"", {})

    def _azure(self, method: str, path: str, data: bytes, query: dict[str, str]) -> None:
        path = f"/{ACCOUNT}/{BUCKET}{path}"
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        kind = "application/octet-stream"
        lines = [method, "", "", str(len(data)) if data else "", "", kind, *[""] * 6]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers)]
        lines += [f"/{ACCOUNT}{path}", *(f"{name}:{query[name]}" for name in sorted(query))]
        digest = hmac.new(base64.b64decode(_KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        self._request(method, f"{path}?{asked}", data, {**headers, "Content-Type": kind})

    def _request(self, method: str, path: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        try:
            connection.request(method, path, data, headers or {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status < 300, (answer.status, said)
        finally:
            connection.close()


@contextmanager
def real_store(kind: str, directory: Path) -> Iterator[RealStore]:
    """Run the server of a kind, and the proxy, during a `with` block; its data is below a directory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "gs": ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)],
        "abfs": ["--silent", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port)],
    }[kind]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([REAL[kind], *options], cwd=directory, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < until, (directory / "log").read_text()
                time.sleep(0.1)
        server = RealStore(kind, port)
        try:
            yield server
        finally:
            server.stop()
    finally:
        process.terminate()
        process.wait(_PATIENCE_SECONDS)


def environment_of(kind: str, server: S3Server) -> dict[str, str]:
    """Return what a kind's tools are told."""
    words = f"AccountName={ACCOUNT};AccountKey={_KEY};BlobEndpoint={server.url}/{ACCOUNT}"
    return {
        "gs": {"STORAGE_EMULATOR_HOST": server.url},
        "abfs": {"AZURE_STORAGE_CONNECTION_STRING": words},
    }[kind] | {"NO_PROXY": "127.0.0.1"}


def url_of(kind: str) -> str:
    """Return the URL of the bucket."""
    return f"gs://{BUCKET}" if kind == "gs" else f"abfs://{BUCKET}@{ACCOUNT}.dfs.core.windows.net"
