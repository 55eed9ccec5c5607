"""
Requests over HTTP for kinds of storage that need no library of their own, each made once.

A message about a failed request has its status in it and nothing of the request or of the service's text, which may
quote credentials.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from cleaner.base import concurrency
from cleaner.errors import UsageError
from cleaner.storage.fs.store import Again, Limits, Refused, Replaced

if TYPE_CHECKING:
    import urllib3

_TRANSIENT = (408, 429, 500, 502, 503, 504, 509)
_GONE = 404
_REPLACED = (_GONE, 412, 416)  # gone; another object; shorter than the range
_GOOD = (200, 206)


class Missing(Replaced):
    """There is nothing of that name."""


class Http:
    """
    Connections to services.

    Args:
        limits: of requests.
        scheme: of the URLs they are for, for the message if urllib3 is missing.
    Raises:
        UsageError: it is.
    """

    def __init__(self, limits: Limits, scheme: str) -> None:
        try:
            import urllib3
        except ImportError:
            raise UsageError(f"{scheme}:// needs urllib3: pip install 'kafka-log-cleaner[remote]'") from None
        logging.getLogger("urllib3").setLevel(logging.WARNING)  # at DEBUG it logs what is asked for
        self._errors = urllib3.exceptions.HTTPError
        # Only redirects are followed here: a data node of HDFS has the bytes. Repeats are the caller's.
        once = urllib3.Retry(total=3, redirect=3, connect=0, read=0, status=0, other=0)
        timeout = urllib3.Timeout(connect=min(limits.silence_seconds, 10.0), read=limits.silence_seconds)
        self._options: dict[str, Any] = {"maxsize": 32, "timeout": timeout, "retries": once}
        self._pools: dict[str, urllib3.PoolManager] = {}  # by the proxy
        self._guard = concurrency.Lock()

    def pool(self, url: str) -> urllib3.PoolManager:
        """Return the connections by which a URL is asked: through a proxy where the environment names one."""
        import urllib3

        about = urlsplit(url)
        proxy = getproxies().get(about.scheme, "")
        if proxy_bypass(about.hostname or ""):
            proxy = ""
        with self._guard:
            if proxy not in self._pools:
                make = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
                self._pools[proxy] = make(**self._options)
            return self._pools[proxy]

    def get(
        self, url: str, query: Mapping[str, str], headers: Mapping[str, str], *, is_read: bool = False
    ) -> urllib3.BaseHTTPResponse:
        """
        Return an answer with its data.

        Args:
            is_read: of an object that was listed, so a failure may mean that it was replaced.
        Raises:
            Again, Refused, Replaced: as a `Store` does.
        """
        failure: Exception
        try:
            # Not unpacked: an object is bytes, whatever its headers say.
            answer = self.pool(url).request("GET", url, fields=dict(query), headers=dict(headers), decode_content=False)
        except (self._errors, OSError) as error:
            failure = Again(f"no answer ({type(getattr(error, 'reason', None) or error).__name__})")
        else:
            if answer.status in _GOOD:
                return answer
            failure = failed(answer.status, is_read=is_read)
        raise failure


def failed(status: int, *, is_read: bool) -> Exception:
    """Return the error of an answer."""
    words = f"the service answered HTTP {status}"
    if is_read and status in _REPLACED:
        if status == _GONE:
            return Missing(f"was removed since it was listed ({words})")
        return Replaced(f"was replaced since it was listed ({words})")
    return Again(words) if status in _TRANSIENT else Refused(words)


def require_range(data: bytes, size: int) -> bytes:
    """Return what came, if it is as much as was asked for. Raises `Again`."""
    if len(data) != size:
        raise Again(f"{len(data)} bytes came instead of {size}")
    return data
