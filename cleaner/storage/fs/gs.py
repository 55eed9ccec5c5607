"""
The requests to Google Cloud Storage, by its JSON API.

Credentials come by the chain of Google's own tools (`GOOGLE_APPLICATION_CREDENTIALS`, `gcloud auth application-default
login`, the machine's service account). `STORAGE_EMULATOR_HOST` leads to another service, which is given none. An object
is named by its generation: Google gives each one that is put a new one.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any
from urllib.parse import quote

from cleaner.base.remote_path import RemotePath
from cleaner.storage.fs.http import Http, listing_of
from cleaner.storage.fs.store import Again, Limits, Listed, Refused, RemoteObject, Replaced, require_range

_GOOGLE = "https://storage.googleapis.com"
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
_FIELDS = "nextPageToken,prefixes,items(name,size,generation,updated)"


class GoogleStorage:
    """
    See `Store`.

    Args:
        limits: of requests.
    Raises:
        Refused: no credentials.
    """

    def __init__(self, limits: Limits) -> None:
        self._http = Http(limits, "gs")
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        self._base = (emulator if "://" in emulator else f"http://{emulator}") if emulator else _GOOGLE
        self._credentials: Any = None if emulator else _credentials()

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the objects and directories directly below a path, by name."""
        prefix = f"{path.key}/" if path.key else ""
        query = {"prefix": prefix, "delimiter": "/", "fields": _FIELDS}
        listed = Listed(prefix)
        while True:
            url = f"{self._base}/storage/v1/b/{quote(path.bucket, safe='')}/o"
            page = json.loads(listing_of(self._http.get(url, query, self._headers())))
            for each in page.get("prefixes", ()):
                listed.add_directory(each[:-1])
            for each in page.get("items", ()):
                mtime_ns = int(datetime.fromisoformat(each["updated"]).timestamp()) * 1_000_000_000
                listed.add(each["name"], int(each["size"]), str(int(each["generation"])), mtime_ns)
            if not page.get("nextPageToken"):
                return listed.found
            query["pageToken"] = page["nextPageToken"]
            listed.next_page(query["pageToken"])

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of an object from `start`, which are there by its listing."""
        url = f"{self._base}/storage/v1/b/{quote(path.bucket, safe='')}/o/{quote(path.key, safe='')}"
        headers = {**self._headers(), "Range": f"bytes={start}-{start + size - 1}", "Accept-Encoding": "gzip"}
        query = {"alt": "media", "generation": about.etag, "ifGenerationMatch": about.etag}
        answer = self._http.get(url, query, headers, size, is_read=True)
        # Not every service knows the conditions, nor ranges: what it sent decides.
        if answer.headers.get("x-goog-generation", about.etag) != about.etag:
            raise Replaced("was replaced since it was listed (another generation)")
        if answer.headers.get("Content-Range", "") != f"bytes {start}-{start + size - 1}/{about.size}":
            raise Again("the service sent another range than was asked for")
        return require_range(answer.body, size)

    def _headers(self) -> dict[str, str]:
        """Return the headers that say who asks."""
        if self._credentials is None:
            return {}
        from google.auth.exceptions import GoogleAuthError
        from google.auth.transport.urllib3 import Request

        failure = None
        headers: dict[str, str] = {}
        try:
            request: Any = Request(self._http.pool(_GOOGLE))  # type: ignore[no-untyped-call]
            self._credentials.before_request(request, "GET", self._base, headers)
        except GoogleAuthError as error:
            failure = Refused(f"no access by the usual chain of Google's tools ({type(error).__name__})")
        if failure is not None:
            raise failure
        return headers


def _credentials() -> Any:
    failure = None
    try:
        import google.auth
        from google.auth.exceptions import GoogleAuthError
    except ImportError:
        raise Refused("gs:// needs google-auth: pip install 'kafka-log-cleaner[remote]'") from None
    try:
        return google.auth.default(scopes=[_SCOPE])[0]
    except GoogleAuthError as error:
        failure = Refused(f"no credentials by the usual chain of Google's tools ({type(error).__name__})")
    raise failure
