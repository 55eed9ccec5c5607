"""
The requests to S3, and to everything else that speaks its language, that reading a bucket needs.

Credentials come by the chain of AWS's own tools (environment, `~/.aws`, the machine's role), which nothing here looks
at. A message about a failed request has the service's code in it and none of its text, and no part of the request.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from typing import Any

from cleaner.base.remote_path import RemotePath
from cleaner.errors import UsageError
from cleaner.storage.fs.store import (
    MOST_LISTING_BYTES,
    TOO_LONG,
    Again,
    Limits,
    Listed,
    Refused,
    RemoteObject,
    Replaced,
    heard,
    read_body,
    require_plain_xml,
    require_range,
)

_TRANSIENT = (408, 429, 500, 502, 503, 504, 509)
_GOOD = (200, 206)
_REPLACED = (404, 412, 416)  # gone; another ETag; shorter than the range
# Words without digits: an ID of a key, or a signature, has some.
_CODE = re.compile(r"(?=.{1,64}\Z)([A-Z]{1,4}[a-z]+\.?)+\Z")
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
        # The library reads all of an answer to a listing, and all that an error has to say.
        self._send = self._client._endpoint.http_session.send
        self._client.meta.events.register("before-send.s3", self._send_within_bounds)

    def _send_within_bounds(self, request: Any, **_: Any) -> Any:
        """Return an answer; that to a read is not read yet."""
        is_read, request.stream_output = request.stream_output, True
        answer = self._send(request)
        heard()
        if is_read and answer.status_code in _GOOD:
            answer.raw = _Piecewise(answer.raw)
            return answer
        with contextlib.closing(answer.raw) as body:
            data = read_body(body.read1, MOST_LISTING_BYTES)
        if data is None:
            raise Refused(TOO_LONG)
        answer.raw = _Body(require_plain_xml(data))
        return answer

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the objects and directories directly below a path, by name."""
        prefix = f"{path.key}/" if path.key else ""
        listed, token = Listed(prefix), dict[str, str]()
        while True:
            with failures():
                page = self._client.list_objects_v2(Bucket=path.bucket, Prefix=prefix, Delimiter="/", **token)
            for each in page.get("CommonPrefixes", ()):
                listed.add_directory(each["Prefix"][:-1])
            for each in page.get("Contents", ()):
                mtime_ns = int(each["LastModified"].timestamp()) * 1_000_000_000
                listed.add(each["Key"], int(each["Size"]), each.get("ETag", ""), mtime_ns)
            if not page.get("IsTruncated"):
                return listed.found
            token = {"ContinuationToken": page["NextContinuationToken"]}
            listed.next_page(page["NextContinuationToken"])

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
                return require_range(read_body(body.read, size), size)


class _Body(io.BytesIO):
    """A body that has been read, as botocore wants it."""

    def stream(self) -> Iterator[bytes]:
        """Yield it."""
        yield self.read()


class _Piecewise:
    """A body of which a read returns what has come, so that slow ones can be told from silent ones."""

    def __init__(self, body: Any) -> None:
        self.read = body.read1
        self.close = body.close


@contextlib.contextmanager
def failures(*, is_read: bool = False) -> Iterator[None]:
    """Turn botocore's errors into `Again`, `Refused` and `Replaced`; an error's own text may show the request."""
    from botocore.exceptions import BotoCoreError, ClientError
    from urllib3.exceptions import HTTPError

    failure: Exception
    try:
        yield
        return
    except ClientError as error:
        failure = _answered(error.response, is_read=is_read)
    except BotoCoreError as error:
        failure = _unanswered(type(error).__name__)
    except (HTTPError, OSError) as error:
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
