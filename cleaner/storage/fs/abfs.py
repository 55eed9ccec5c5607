"""
The requests to Azure Blob Storage: `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/path`, also `abfss://`.

Credentials come as for Azure's own tools: `AZURE_STORAGE_CONNECTION_STRING`, which may also lead to another service,
`AZURE_STORAGE_SAS_TOKEN`, `AZURE_STORAGE_KEY`, or else the chain of azure-identity (environment, workload identity,
the machine's managed identity, `az login`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit
from xml.etree import ElementTree

from cleaner.base.remote_path import RemotePath
from cleaner.storage.fs.http import Answered, Http, Missing, listing_of
from cleaner.storage.fs.store import (
    MOST_LISTING_BYTES,
    Again,
    Limits,
    Listed,
    Refused,
    RemoteObject,
    Replaced,
    require_plain_xml,
    require_range,
)

_VERSION = "2021-08-06"  # of the service's interface
_PAGE = "1000"  # names in an answer, a fifth of what it may have
_SCOPE = "https://storage.azure.com/.default"
# Headers of a signature in their order; the others of a GET are empty.
_SIGNED = ("If-Match", "If-None-Match", "If-Unmodified-Since", "Range")


class AzureStorage:
    """
    See `Store`.

    Args:
        limits: of requests.
    Raises:
        Refused: settings that cannot be read.
    """

    def __init__(self, limits: Limits) -> None:
        self._http = Http(limits, "abfs")
        text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
        given = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        self._endpoint = given.get("BlobEndpoint", "").rstrip("/")
        self._account = given.get("AccountName", "")
        sas = given.get("SharedAccessSignature") or os.environ.get("AZURE_STORAGE_SAS_TOKEN", "")
        self._sas = dict(parse_qsl(sas.lstrip("?"), keep_blank_values=True))
        self._key = _key(given.get("AccountKey") or os.environ.get("AZURE_STORAGE_KEY", ""))
        self._identity: Any = None

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the objects and directories directly below a path, by name."""
        prefix = f"{path.key}/" if path.key else ""
        query = {"restype": "container", "comp": "list", "prefix": prefix, "delimiter": "/", "maxresults": _PAGE}
        listed = Listed(prefix)
        while True:
            page = ElementTree.fromstring(require_plain_xml(listing_of(self._get(path, "", query, {}))))  # noqa: S314
            for each in page.iterfind("Blobs/Blob"):
                time = parsedate_to_datetime(_text(each, "Properties/Last-Modified"))
                size, tag = int(_text(each, "Properties/Content-Length")), _text(each, "Properties/Etag").strip('"')
                listed.add(_text(each, "Name"), size, tag, int(time.timestamp()) * 1_000_000_000)
            for each in page.iterfind("Blobs/BlobPrefix"):
                # Where directories are things of their own there is also a blob of this name.
                listed.add_directory(_text(each, "Name")[:-1])
            marker = page.findtext("NextMarker")
            if not marker:
                return listed.found
            query["marker"] = marker
            listed.next_page(marker)

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of an object from `start`, which are there by its listing."""
        headers = {"Range": f"bytes={start}-{start + size - 1}", "If-Match": f'"{about.etag}"'}
        answer = self._get(path, f"/{quote(path.key)}", {}, headers, size, is_read=True)
        # Not every service knows the condition, nor ranges: what it sent decides.
        if answer.headers.get("ETag", "").strip('"') != about.etag:
            raise Replaced("was replaced since it was listed (another ETag)")
        if answer.headers.get("Content-Range", "") != f"bytes {start}-{start + size - 1}/{about.size}":
            raise Again("the service sent another range than was asked for")
        return require_range(answer.body, size)

    def _get(
        self,
        path: RemotePath,
        blob: str,
        query: dict[str, str],
        headers: dict[str, str],
        most_bytes: int = MOST_LISTING_BYTES,
        *,
        is_read: bool = False,
    ) -> Answered:
        container, _, host = path.bucket.partition("@")
        account = host.partition(".")[0]
        if self._endpoint and self._account != account:
            raise Refused("AZURE_STORAGE_CONNECTION_STRING is of another account")
        endpoint = self._endpoint or f"https://{host.replace('.dfs.', '.blob.', 1)}"
        url = f"{endpoint}/{container}{blob}"
        headers = {**headers, "x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
        if self._key:
            headers["Authorization"] = self._signature(account, urlsplit(url).path, query, headers)
        elif self._sas:
            query = {**query, **self._sas}
        else:
            headers["Authorization"] = f"Bearer {self._token()}"
        try:
            return self._http.get(url, query, headers, most_bytes, is_read=True)
        except Missing:
            if is_read:
                raise
        raise Refused("the service answered HTTP 404: no such container")

    def _signature(self, account: str, path: str, query: dict[str, str], headers: dict[str, str]) -> str:
        """Return the Shared Key authorization of a GET."""
        lines = ["GET", *[""] * 7, *(headers.get(name, "") for name in _SIGNED)]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
        lines += [f"/{account}{path}", *(f"{name}:{query[name]}" for name in sorted(query))]
        digest = hmac.new(self._key, "\n".join(lines).encode(), hashlib.sha256).digest()
        return f"SharedKey {account}:{base64.b64encode(digest).decode()}"

    def _token(self) -> str:
        failure = None
        try:
            from azure.core.exceptions import AzureError
            from azure.identity import DefaultAzureCredential
        except ImportError:
            words = (
                "no connection string, SAS or key in the environment; other credentials need the package azure-identity"
            )
            raise Refused(words) from None
        try:
            if self._identity is None:
                self._identity = DefaultAzureCredential()
            return str(self._identity.get_token(_SCOPE).token)  # it keeps one until it expires
        except (AzureError, ValueError) as error:
            failure = Refused(f"no credentials by the usual chain of Azure's tools ({type(error).__name__})")
        raise failure


def _key(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused("the account's key in the environment is not base64") from None


def _text(element: ElementTree.Element, name: str) -> str:
    found = element.findtext(name)
    if found is None:
        raise ValueError(name)
    return found
