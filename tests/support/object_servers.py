"""
Servers that answer as Google's, Azure's and HDFS's do to the few requests that readers make: written from their
documents. Others' servers are started by `tests/integration/test_real_stores.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.s3_server import BUCKET, KEY_ID, SECRET, Answer, S3Server, environment, s3_server

_PAGE = 2  # names in an answer to a listing: there are several
_ACCOUNT = "archive"
_TIME = "Mon, 01 Jan 2024 00:00:00 GMT"


class _Stored(NamedTuple):
    data: bytes
    version: int


class ObjectServer(S3Server):
    """
    A service with one bucket.

    Args:
        kind: `gs`, `abfs` or `webhdfs`.
    Attributes:
        authorized: how requests to Google said who asks.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(0)
        self._kind = kind
        self._objects: dict[str, _Stored] = {}
        self._versions = 0
        self.authorized: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        """Store an object; each one has another version."""
        self._versions += 1
        self._objects[key] = _Stored(data, self._versions)

    def remove(self, key: str) -> None:
        """Remove an object."""
        del self._objects[key]

    def make_bucket(self) -> None:
        """Make the bucket anew."""
        self._objects.clear()

    def wanted_of(self, handler: BaseHTTPRequestHandler) -> str | None:
        """Of WebHDFS, what is asked of the data node."""
        if self._kind != "webhdfs":
            return super().wanted_of(handler)
        query = parse_qs(urlsplit(handler.path).query)
        return f"{query['offset'][0]}+{query['length'][0]}" if "node" in query else None

    def ask(self, handler: BaseHTTPRequestHandler, wanted: str | None) -> Answer:
        """Answer."""
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        url = urlsplit(handler.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        answer = Answer(handler.command, handler.path, wanted, 200, [])
        getattr(self, f"_{self._kind}")(
            answer, unquote(url.path), query, {name.title(): value for name, value in handler.headers.items()}
        )
        return answer

    def _names(self, prefix: str) -> list[tuple[str, bool]]:
        """Return names below a prefix, with the slash of a directory, and whether they are objects."""
        found = {}
        for key in self._objects:
            if key.startswith(prefix):
                rest, slash, _ = key[len(prefix) :].partition("/")
                found[prefix + rest + slash] = not slash
        return sorted(found.items())

    def _gs(self, answer: Answer, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        head = f"/storage/v1/b/{BUCKET}/o"
        if path == "/token":
            answer.body = json.dumps({"access_token": SECRET, "expires_in": 3600}).encode()
            return
        self.authorized.append(headers.get("Authorization", ""))
        if path == head:
            first = int(query.get("pageToken", 0))
            names = self._names(query["prefix"])
            page: dict[str, object] = {"prefixes": [], "items": []}
            for name, is_object in names[first : first + _PAGE]:
                if is_object:
                    data, version = self._objects[name]
                    row = {"name": name, "size": str(len(data)), "generation": str(version)}
                    page["items"].append({**row, "updated": "2024-01-01T00:00:00.000Z"})  # type: ignore[attr-defined]
                else:
                    page["prefixes"].append(name)  # type: ignore[attr-defined]
            if first + _PAGE < len(names):
                page["nextPageToken"] = str(first + _PAGE)
            answer.body = json.dumps(page).encode()
            return
        stored = self._objects.get(path.removeprefix(f"{head}/"))
        if stored is None or query["generation"] != str(stored.version):
            answer.status = 404
            return
        answer.headers.append(("x-goog-generation", str(stored.version)))
        _send_range(answer, stored.data, headers["Range"])

    def _abfs(self, answer: Answer, path: str, query: dict[str, str], headers: dict[str, str]) -> None:
        if query.get("sig") != SECRET and not headers.get("Authorization", "").startswith(f"SharedKey {_ACCOUNT}:"):
            answer.status = 403
            return
        head = f"/{_ACCOUNT}/{BUCKET}"
        if path == head:
            first = int(query.get("marker", 0))
            names, rows = self._names(query["prefix"]), []
            for name, is_object in names[first : first + _PAGE]:
                if is_object:
                    data, version = self._objects[name]
                    about = f"<Last-Modified>{_TIME}</Last-Modified><Etag>0x{version}</Etag>"
                    about += f"<Content-Length>{len(data)}</Content-Length>"
                    rows.append(f"<Blob><Name>{escape(name)}</Name><Properties>{about}</Properties></Blob>")
                else:
                    rows.append(f"<BlobPrefix><Name>{escape(name)}</Name></BlobPrefix>")
            marker = str(first + _PAGE) if first + _PAGE < len(names) else ""
            answer.body = (
                '<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>'
                f"{''.join(rows)}</Blobs><NextMarker>{marker}</NextMarker></EnumerationResults>"
            ).encode()
            return
        stored = self._objects.get(path.removeprefix(f"{head}/"))
        if stored is None:
            answer.status = 404
        elif headers["If-Match"] != f'"0x{stored.version}"':
            answer.status = 412
        else:
            answer.headers.append(("ETag", f'"0x{stored.version}"'))
            _send_range(answer, stored.data, headers["Range"])

    def _webhdfs(self, answer: Answer, path: str, query: dict[str, str], _: dict[str, str]) -> None:
        key = path.removeprefix("/webhdfs/v1/").strip("/")
        stored = self._objects.get(key)
        if query["op"] == "LISTSTATUS":
            rows = [self._status(name, is_object) for name, is_object in self._names(f"{key}/" if key else "")]
            answer.body = json.dumps({"FileStatuses": {"FileStatus": rows}}).encode()
            if not rows:
                answer.status, answer.body = 404, b""
        elif stored is None:
            answer.status = 404
        elif query["op"] == "GETFILESTATUS":
            answer.body = json.dumps({"FileStatus": {**self._status(key, True), "pathSuffix": ""}}).encode()
        elif "node" not in query:
            answer.status = 307
            answer.headers.append(("Location", f"{self.url}{answer.path}&node=1"))
        else:
            start = int(query["offset"])
            answer.body = stored.data[start : start + int(query["length"])]

    def _status(self, name: str, is_object: bool) -> dict[str, object]:
        row: dict[str, object] = {"pathSuffix": name.rstrip("/").rpartition("/")[2]}
        if not is_object:
            return {**row, "type": "DIRECTORY", "length": 0, "fileId": 1, "modificationTime": 0}
        data, version = self._objects[name]
        return {**row, "type": "FILE", "length": len(data), "fileId": version, "modificationTime": 1_700_000_000_000}


def _send_range(answer: Answer, data: bytes, wanted: str) -> None:
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    answer.status = 206
    answer.headers.append(("Content-Range", f"bytes {first}-{last}/{len(data)}"))
    answer.body = data[int(first) : int(last) + 1]


KINDS = ("s3", "gs", "abfs", "webhdfs")


@contextmanager
def object_server(kind: str) -> Iterator[S3Server]:
    """Run a server of a kind during a `with` block."""
    if kind == "s3":
        with s3_server() as server:
            yield server
        return
    server = ObjectServer(kind)
    try:
        yield server
    finally:
        server.stop()


def environment_of(kind: str, server: S3Server) -> dict[str, str]:
    """Return what a kind's tools are told."""
    key = base64.b64encode(SECRET.encode()).decode()
    words = f"AccountName={_ACCOUNT};AccountKey={key};BlobEndpoint={server.url}/{_ACCOUNT}"
    return {
        "s3": environment(server),
        "gs": {"STORAGE_EMULATOR_HOST": server.url},
        "abfs": {"AZURE_STORAGE_CONNECTION_STRING": words},
        "webhdfs": {"HADOOP_USER_NAME": KEY_ID},
    }[kind] | {"NO_PROXY": "127.0.0.1"}


def url_of(kind: str, server: S3Server) -> str:
    """Return the URL of the bucket."""
    return {
        "s3": f"s3://{BUCKET}",
        "gs": f"gs://{BUCKET}",
        "abfs": f"abfs://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net",
        "webhdfs": server.url.replace("http://", "webhdfs://"),
    }[kind]
