"""
Servers that others have written for Google's and Azure's storage, and HDFS, behind the proxy that makes faults.

`make stores` fetches them: fake-gcs-server (a Go module), azurite (npm) and Hadoop's minicluster (Maven). They are on
loopback, in memory or below a directory of the test, and end with the test.
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
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from tests.support.s3_server import BUCKET, Answer, S3Server

STORES = Path(__file__).parents[2] / ".cache" / "stores"
REAL = {
    "gs": STORES / "bin" / "fake-gcs-server",
    "abfs": STORES / "node_modules" / ".bin" / "azurite-blob",
    "webhdfs": STORES / "hdfs",
}
_MINI_HDFS = Path(__file__).with_name("MiniHdfs.java")
ACCOUNT = "devstoreaccount1"
# Azurite's own, which everybody knows.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_PATIENCE_SECONDS = 60
_OF_A_NODE = "namenoderpcaddress="  # in requests to the data node alone


class RealStore(S3Server):
    """
    A proxy before such a server.

    Args:
        kind: `gs`, `abfs` or `webhdfs`.
        upstream: the server's port.
    Attributes:
        rpc_port: of HDFS, the name node's in its own language.
        process_id: of the server.
    """

    rpc_port = process_id = 0

    def __init__(self, kind: str, upstream: int) -> None:
        super().__init__(upstream)
        self._kind = kind
        self._name_node, self._data_node = upstream, 0

    def wanted_of(self, handler: BaseHTTPRequestHandler) -> str | None:
        """Of HDFS, what is asked of the data node."""
        if self._kind != "webhdfs":
            return super().wanted_of(handler)
        query = parse_qs(urlsplit(handler.path).query)
        is_read = _OF_A_NODE in handler.path and query["op"] == ["OPEN"]
        return f"{query['offset'][0]}+{query['length'][0]}" if is_read else None

    def ask(self, handler: BaseHTTPRequestHandler, wanted: str | None) -> Answer:
        """Return the server's answer; what it says of the data node leads here, too."""
        self._upstream = self._data_node if _OF_A_NODE in handler.path else self._name_node
        answer = super().ask(handler, wanted)
        for row, (name, value) in enumerate(answer.headers):
            if name.lower() == "location":
                node = urlsplit(value)
                self._data_node = node.port or 0
                answer.headers[row] = (name, f"{self.url}{node.path}?{node.query}")
        return answer

    def make_bucket(self) -> None:
        """Make the bucket."""
        if self._kind == "gs":
            self._request("POST", "/storage/v1/b", json.dumps({"name": BUCKET}).encode())
        elif self._kind == "abfs":
            self._azure("PUT", "", b"", {"restype": "container"})

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        if self._kind == "webhdfs":
            path = f"/webhdfs/v1/{quote(key)}?op=CREATE&overwrite=true&user.name=root"
            self._upstream = self._name_node
            node = urlsplit(self._request("PUT", path, b""))
            self._upstream = node.port or 0
            self._request("PUT", f"{node.path}?{node.query}", data)
        elif self._kind == "gs":
            self._request("POST", f"/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(key, safe='')}", data)
        else:
            self._azure("PUT", f"/{quote(key)}", data, {})

    def remove(self, key: str) -> None:
        """Remove an object."""
        self._upstream = self._name_node
        if self._kind == "webhdfs":
            self._request("DELETE", f"/webhdfs/v1/{quote(key)}?op=DELETE&user.name=root", b"")
        elif self._kind == "gs":
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

    def _request(self, method: str, path: str, data: bytes, headers: dict[str, str] | None = None) -> str:
        """Make a request; returns where it leads, if it does."""
        connection = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        try:
            connection.request(method, path, data, headers or {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status < 300 or answer.getheader("Location"), (answer.status, said)
            return answer.getheader("Location", "")
        finally:
            connection.close()


@contextmanager
def real_store(kind: str, directory: Path) -> Iterator[RealStore]:
    """Run the server of a kind, and the proxy, during a `with` block; its data is below a directory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = {
        "gs": [REAL["gs"], "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)],
        "abfs": [REAL["abfs"], "--silent", "--disableTelemetry", "--blobHost", "127.0.0.1", "--blobPort", str(port)],
        "webhdfs": ["java", "-Xmx512m", "-cp", f"{REAL['webhdfs']}/*", _MINI_HDFS, str(directory / "data"), str(port)],
    }[kind]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=directory, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                if kind != "webhdfs" or "READY" in (directory / "log").read_text():
                    break
                raise ConnectionRefusedError
            except OSError:
                assert time.monotonic() < until, (directory / "log").read_text()
                time.sleep(0.1)
        server = RealStore(kind, port)
        server.process_id = process.pid
        server.rpc_port = (
            int((directory / "log").read_text().partition("READY ")[2].split()[0]) if kind == "webhdfs" else 0
        )
        try:
            yield server
        finally:
            server.stop()
    finally:
        process.kill()
        process.wait(_PATIENCE_SECONDS)


def environment_of(kind: str, server: S3Server) -> dict[str, str]:
    """Return what a kind's tools are told."""
    words = f"AccountName={ACCOUNT};AccountKey={_KEY};BlobEndpoint={server.url}/{ACCOUNT}"
    return {
        "gs": {"STORAGE_EMULATOR_HOST": server.url},
        "abfs": {"AZURE_STORAGE_CONNECTION_STRING": words},
        "webhdfs": {"HADOOP_USER_NAME": "root"},
    }[kind] | {"NO_PROXY": "127.0.0.1"}


def url_of(kind: str, server: S3Server) -> str:
    """Return the URL of the bucket."""
    return {
        "gs": f"gs://{BUCKET}",
        "abfs": f"abfs://{BUCKET}@{ACCOUNT}.dfs.core.windows.net",
        "webhdfs": server.url.replace("http://", "webhdfs://"),
    }[kind]
