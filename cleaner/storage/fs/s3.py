"""
The requests to S3, and to everything else that speaks its language, that reading a bucket needs.

Credentials come by the chain of AWS's own tools (environment, `~/.aws`, the machine's role), which nothing here looks
at. A message about a failed request has the service's code in it and none of its text, and no part of the request.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import Any

from cleaner.base.remote_path import RemotePath
from cleaner.errors import UsageError
from cleaner.storage.fs.store import Again, Limits, Refused, RemoteObject, Replaced

_TRANSIENT = (408, 429, 500, 502, 503, 504, 509)
_REPLACED = (404, 412, 416)  # gone; another ETag; shorter than the range
_CODE = re.compile(r"[A-Za-z0-9.]{1,64}\Z")
_BAD_SETTINGS = (
    "ConfigNotFound",
    "ConfigParseError",
    "InvalidConfigError",
    "InvalidEndpointConfigurationError",
    "InvalidRegionError",
    "InvalidS3AddressingStyleError",
    "NoRegionError",
    "ParamValidationError",
)
_BUSY = ("SlowDown", "RequestTimeout")


class S3:
    """
    The two requests that reading needs, made once: whoever calls decides on repeats.

    Args:
        limits: of requests.
    Raises:
        Refused: without botocore, or with a setting of AWS's tools that it does not take.
    """

    def __init__(self, limits: Limits) -> None:
        try:
            import botocore.session
            from botocore.config import Config
        except ImportError:
            raise UsageError("s3:// needs botocore: pip install 'kafka-log-cleaner[remote]'") from None
        for name in ("botocore", "urllib3"):  # at DEBUG they log requests with their signatures
            logging.getLogger(name).setLevel(logging.WARNING)
        seconds = limits.silence_seconds
        config = Config(
            connect_timeout=min(seconds, 10.0),
            read_timeout=seconds,
            retries={"total_max_attempts": 1},
            max_pool_connections=32,
            user_agent_extra="kafka-log-cleaner",
        )
        with failures():
            self._client = botocore.session.get_session().create_client("s3", config=config)

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the objects and directories directly below a path, by name."""
        prefix = f"{path.key}/" if path.key else ""
        found = {}
        with failures():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=path.bucket, Prefix=prefix, Delimiter="/"):
                for each in page.get("CommonPrefixes", ()):
                    found[each["Prefix"][len(prefix) : -1]] = RemoteObject(0, "", 0)
                for each in page.get("Contents", ()):
                    if not each.get("ETag"):
                        raise Refused("the service lists objects without ETags, so a replaced one would not be noticed")
                    mtime_ns = int(each["LastModified"].timestamp()) * 1_000_000_000
                    about = RemoteObject(int(each["Size"]), each["ETag"], mtime_ns)
                    found.setdefault(each["Key"][len(prefix) :], about)
        found.pop("", None)  # the object that some tools make to show an empty directory
        return found

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of an object from `start`, which are there by its listing."""
        wanted = f"bytes={start}-{start + size - 1}"
        with failures(is_read=True):
            answer = self._client.get_object(Bucket=path.bucket, Key=path.key, Range=wanted, IfMatch=about.etag)
            with contextlib.closing(answer["Body"]) as body:
                # Not every service knows the condition, nor ranges: what it sent decides.
                if answer.get("ETag") != about.etag:
                    raise Replaced("was replaced since it was listed (another ETag)")
                if answer.get("ContentRange", "") != f"bytes {start}-{start + size - 1}/{about.size}":
                    raise Again("the service sent another range than was asked for")
                data: bytes = body.read()
        if len(data) != size:
            raise Again(f"{len(data)} bytes came instead of {size}")
        return data


@contextlib.contextmanager
def failures(*, is_read: bool = False) -> Iterator[None]:
    """Turn botocore's errors into `Again`, `Refused` and `Replaced`; an error's own text may show the request."""
    from botocore.exceptions import BotoCoreError, ClientError

    failure: Exception
    try:
        yield
        return
    except ClientError as error:
        failure = _answered(error.response, is_read=is_read)
    except BotoCoreError as error:
        failure = _unanswered(type(error).__name__)
    except OSError as error:
        failure = Again(f"no answer ({type(error).__name__})")
    raise failure


def _answered(response: dict[str, Any], *, is_read: bool) -> Exception:
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(response.get("Error", {}).get("Code", ""))
    words = f"the service answered {code if _CODE.match(code) else 'an error'} (HTTP {status})"
    if is_read and status in _REPLACED:
        return Replaced(f"was {'removed' if status == 404 else 'replaced'} since it was listed ({words})")
    return Again(words) if status in _TRANSIENT or code in _BUSY else Refused(words)


def _unanswered(name: str) -> Exception:
    if "Credential" in name or "Profile" in name or "Token" in name:
        return Refused(f"no credentials by the usual chain: environment, ~/.aws, the machine's role ({name})")
    if name in _BAD_SETTINGS:
        return Refused(f"the settings of AWS's tools on this machine are not usable ({name})")
    return Again(f"no answer ({name})")
