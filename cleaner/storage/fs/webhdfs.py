"""
The requests to HDFS, by its WebHDFS API: `webhdfs://NAMENODE:9870/path`, `swebhdfs://` over TLS.

Who asks is `HADOOP_USER_NAME`, or the user of this process, as for Hadoop's tools without Kerberos. A file is named by
its number and its time of change; a read has no condition, so after each it is asked whether it is still that file.
"""

from __future__ import annotations

import json
import os
import pwd
from typing import Any
from urllib.parse import quote

from cleaner.base.remote_path import RemotePath
from cleaner.storage.fs.http import Http, Missing, listing_of
from cleaner.storage.fs.store import Limits, Listed, RemoteObject, Replaced, require_range

_REDIRECTS = 3  # a data node has the bytes


class WebHdfs:
    """
    See `Store`.

    Args:
        limits: of requests.
    """

    def __init__(self, limits: Limits) -> None:
        self._http = Http(limits, "webhdfs")
        self._user = os.environ.get("HADOOP_USER_NAME") or pwd.getpwuid(os.geteuid()).pw_name

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the files and directories directly below a path, by name."""
        listed = self._ask(path, "LISTSTATUS")
        if listed is None:
            return {}
        found = Listed()
        for row in listed["FileStatuses"]["FileStatus"]:
            about = _object(row)  # of a file: itself, without a name
            if about.is_directory:
                found.add_directory(row["pathSuffix"])
            else:
                found.add(row["pathSuffix"], *about)
        return found.found

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of a file from `start`, which are there by its listing."""
        query = {"op": "OPEN", "user.name": self._user, "offset": str(start), "length": str(size)}
        answer = self._http.get(self._url(path), query, {}, size, is_read=True, redirects=_REDIRECTS)
        now = self._ask(path, "GETFILESTATUS")
        if now is None or _object(now["FileStatus"]) != about:
            raise Replaced("was replaced or changed since it was listed")
        return require_range(answer.body, size)

    def _url(self, path: RemotePath) -> str:
        scheme = {"webhdfs": "http", "swebhdfs": "https"}[path.scheme]
        return f"{scheme}://{path.bucket}/webhdfs/v1/{quote(path.key)}"

    def _ask(self, path: RemotePath, operation: str) -> dict[str, Any] | None:
        """Return what is said of a path; None if it is not there."""
        query = {"op": operation, "user.name": self._user}
        try:
            answer = self._http.get(self._url(path), query, {}, is_read=True, redirects=_REDIRECTS)
        except Missing:
            return None
        found: dict[str, Any] = json.loads(listing_of(answer))
        return found


def _object(row: dict[str, Any]) -> RemoteObject:
    if row["type"] == "DIRECTORY":
        return RemoteObject(0, "", 0)
    time_ms = int(row["modificationTime"])
    return RemoteObject(int(row["length"]), f"{int(row['fileId'])}-{time_ms}", time_ms * 1_000_000)
