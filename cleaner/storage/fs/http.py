"""
Requests over HTTP for kinds of storage that need no library of their own, each made once.

A message about a failed request has its status in it and nothing of the request or of the service's text, which may
quote credentials.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from cleaner.base import concurrency
from cleaner.errors import UsageError
from cleaner.storage.fs.store import MOST_LISTING_BYTES, TOO_LONG, Again, Limits, Refused, Replaced, heard, read_body

if TYPE_CHECKING:
    import urllib3

_TRANSIENT = (408, 429, 500, 502, 503, 504, 509)
_GONE = 404
_REPLACED = (_GONE, 412, 416)  # gone; another object; shorter than the range
_GOOD = (200, 206)
_ELSEWHERE = (301, 302, 303, 307, 308)


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
        timeout = urllib3.Timeout(connect=min(limits.silence_seconds, 10.0), read=limits.silence_seconds)
        self._options: dict[str, Any] = {"maxsize": 32, "timeout": timeout, "retries": False}
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
        self,
        url: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        most_bytes: int = MOST_LISTING_BYTES,
        *,
        is_read: bool = False,
        redirects: int = 0,
    ) -> Answered:
        """
        Return an answer.

        Args:
            most_bytes: of its body; of more, None is returned.
            is_read: of an object that was listed, so a failure may mean that it was replaced.
            redirects: how many are followed. Headers, which say who asks, stay with the first service.
        Raises:
            Again, Refused, Replaced: as a `Store` does.
        """
        failure: Exception
        try:
            answer = self._ask(url, query, headers)
            for _ in range(redirects):
                if answer.status not in _ELSEWHERE:
                    break
                answer.close()
                url = _elsewhere(url, answer.headers.get("Location", ""))
                answer = self._ask(url, {}, {})
            with contextlib.closing(answer):
                body = read_body(answer.read1, most_bytes)
        except (self._errors, OSError) as error:
            failure = Again(f"no answer ({type(getattr(error, 'reason', None) or error).__name__})")
        else:
            if answer.status in _GOOD:
                return Answered(answer.headers, body)
            failure = failed(answer.status, is_read=is_read)
        raise failure

    def _ask(self, url: str, query: Mapping[str, str], headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
        # Not unpacked: an object is bytes, whatever its headers say. Nor read, which has a limit.
        answer = self.pool(url).request(
            "GET",
            url,
            fields=dict(query),
            headers=dict(headers),
            decode_content=False,
            preload_content=False,
            redirect=False,
        )
        heard()
        return answer


class Answered(NamedTuple):
    """An answer: its headers, and its body; None: that is too long."""

    headers: Mapping[str, str]
    body: bytes | None


def listing_of(answer: Answered) -> bytes:
    """Return the body of a listing. Raises `Refused`: it is too long."""
    if answer.body is None:
        raise Refused(TOO_LONG)
    return answer.body


def _elsewhere(url: str, location: str) -> str:
    """Return where a redirect leads; raises Refused: not to a service, or away from TLS."""
    there = urljoin(url, location)
    scheme = urlsplit(there).scheme
    if scheme != "https" and (scheme != "http" or urlsplit(url).scheme == "https"):
        raise Refused("the service sends its clients to a place where they do not go")
    return there


def failed(status: int, *, is_read: bool) -> Exception:
    """Return the error of an answer."""
    words = f"the service answered HTTP {status}"
    if is_read and status in _REPLACED:
        if status == _GONE:
            return Missing(f"was removed since it was listed ({words})")
        return Replaced(f"was replaced since it was listed ({words})")
    return Again(words) if status in _TRANSIENT else Refused(words)
