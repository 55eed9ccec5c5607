"""
The requests of the control socket and their answers: one line in, one line out.

    {"v": 1, "do": "pause", "scope": "orders"}
    {"v": 1, "ok": true, "stopping": ["orders-3"]}
    {"v": 1, "ok": false, "code": "refused", "error": "no such topic or partition: orders"}

An unknown field is refused, not ignored: otherwise `{"do": "throttle", ..., "logdir": "/a"}` would slow down all
workers instead of those of one log dir.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import cast

from cleaner.base.json_values import JsonValue, NotJsonError, described, format_json, json_value, parse_json
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import slow_rate
from cleaner.daemon.snapshot import LogView
from cleaner.daemon.steering import Steering
from cleaner.errors import CleanerError, SteeringError

VERSION = 1
"""Of requests and answers. An added field does not change the version; a changed meaning of a field does."""

MAX_REQUEST_BYTES = 64 << 10
"""Longest line of a request: hundreds of names."""

MAX_ANSWER_BYTES = 64 << 20
"""Longest answer: ten times that of a daemon with 5 000 logs."""

# A topic's name, or a partition's; the daemon finds out which of the two.
_SCOPE = re.compile(r"[a-zA-Z0-9._-]{1,260}\Z")

Answer = dict[str, JsonValue]


class BadControlRequestError(ValueError):
    """
    A request that cannot be understood.

    Attributes:
        code: for programs: `bad_request`, or `version`.
    """

    def __init__(self, reason: str, code: str = "bad_request") -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True)
class Reply:
    """
    A line to send back.

    Attributes:
        line: with its line end.
        is_last: close the connection, since what follows in it may not be a request.
    """

    line: bytes
    is_last: bool = False


class ControlRequest:
    """
    The fields of a request; each is taken once, and all of them must be taken.

    Every method except `take` raises BadControlRequestError: the field is missing or has another type.
    """

    def __init__(self, values: Mapping[str, JsonValue]) -> None:
        self._values = {name: value for name, value in values.items() if name not in ("v", "do")}

    def take(self, name: str, default: JsonValue = None) -> JsonValue:
        """Return a field, or the default."""
        return self._values.pop(name, default)

    def must(self, name: str) -> JsonValue:
        """Return a required field, which may be null."""
        if name not in self._values:
            raise BadControlRequestError(f"{name} is missing")
        return self._values.pop(name)

    def partition(self) -> TopicPartition:
        """Return the field `partition`."""
        name = self.must("partition")
        try:
            return TopicPartition.parse(_text("partition", name))
        except ValueError as error:
            raise BadControlRequestError(f"partition: {error}") from error

    def scope(self) -> str | None:
        """Return the field `scope`; None, or missing: everything."""
        value = self.take("scope")
        if value is None:
            return None
        text = _text("scope", value)
        if not _SCOPE.match(text):
            raise BadControlRequestError(f"scope: {text!r} is no name of a topic or a partition")
        return text

    def number(self, name: str) -> int:
        """Return a whole number from 0 on."""
        return _whole(name, self.must(name))

    def flag(self, name: str) -> bool:
        """Return a truth value, false if it is missing."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise BadControlRequestError(f"{name}: neither true nor false")
        return value

    def end(self) -> None:
        """Raise BadControlRequestError if there are fields that were not taken."""
        if self._values:
            raise BadControlRequestError(f"unknown fields: {', '.join(sorted(self._values))}")


def answer(line: bytes, steering: Steering, uid: int, on_error: Callable[[Exception], None]) -> Reply:
    """
    Carry out a request line, and return the answer.

    Args:
        line: as received, without its end.
        steering: the daemon.
        uid: the calling user.
        on_error: called with an internal error; the caller gets only its class.
    """
    try:
        values = parse_json(line)
    except NotJsonError as error:
        return refusal("bad_request", f"no request: {error}", is_last=True)
    try:
        return _line({"v": VERSION, "ok": True, **_do(values, steering, uid)})
    except BadControlRequestError as error:
        return refusal(error.code, str(error))
    except SteeringError as error:
        return refusal("refused", str(error))
    except CleanerError as error:  # such as a failed disk of the state directory
        return refusal("failed", str(error))
    except Exception as error:  # noqa: BLE001 - a daemon with an internal error can still be steered
        on_error(error)
        return refusal("failed", f"an internal error of the cleaner: {type(error).__name__}; see its log")


def refusal(code: str, reason: str, *, is_last: bool = False) -> Reply:
    """Return a refusal."""
    # Reasons quote the request: they are bounded, or an answer could be six times as long as a request.
    return replace(_line({"v": VERSION, "ok": False, "code": code, "error": reason[:4096]}), is_last=is_last)


def _line(values: Answer) -> Reply:
    line = format_json(values).encode("ascii") + b"\n"
    if len(line) > MAX_ANSWER_BYTES:
        return refusal("failed", f"the answer has {len(line)} bytes, at most {MAX_ANSWER_BYTES} are sent; ask for less")
    return Reply(line)


def _do(values: Mapping[str, JsonValue], steering: Steering, uid: int) -> Answer:
    version, verb = values.get("v"), values.get("do")
    if type(version) is not int or version != VERSION:
        raise BadControlRequestError(f"version {version!r} is not supported, only {VERSION}", "version")
    if not isinstance(verb, str) or verb not in VERBS:
        raise BadControlRequestError(f"unknown verb {verb!r}; known: {', '.join(sorted(VERBS))}")
    return VERBS[verb](ControlRequest(values), steering, uid)


def _status(request: ControlRequest, steering: Steering, _uid: int) -> Answer:
    logs, names = request.take("logs", "all"), request.take("of")
    wanted = None if names is None else _names(names)
    most = None if logs == "all" else _whole("logs", logs)
    with_topics, with_config = request.flag("topics"), request.flag("config")
    request.end()
    snapshot = steering.snapshot(settings_of=wanted if with_config and wanted else ())
    shown = replace(
        snapshot,
        logs=_chosen(snapshot.logs, wanted, most),
        topics=snapshot.topics if with_topics else {},
        config=snapshot.config if with_config else replace(snapshot.config, values=()),
    )
    counts = snapshot.counts
    return {
        "snapshot": described("snapshot", shown),
        "log_count": counts.logs,
        "standings": json_value(counts.standings),
    }


def _jobs(request: ControlRequest, steering: Steering, _uid: int) -> Answer:
    job = request.take("job")
    wanted = None if job is None else _whole("job", job)
    request.end()
    jobs = [found for found in steering.snapshot().jobs if wanted is None or found.id == wanted]
    if wanted is not None and not jobs:
        raise SteeringError(f"there is no job {wanted}, or it ended long ago")
    return {"jobs": json_value(jobs)}


def _now(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    partition = request.partition()
    request.end()
    return {"job": json_value(steering.request(partition, uid))}


def _cancel(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    job = request.number("job")
    request.end()
    return {"job": json_value(steering.cancel(job, uid))}


def _pause(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    scope = request.scope()
    request.end()
    return {"stopping": json_value(list(steering.pause(scope, uid)))}


def _resume(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    scope = request.scope()
    request.end()
    steering.resume(scope, uid)
    return {"pauses": json_value(steering.snapshot().pauses)}


def _release(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    partition = request.partition()
    request.end()
    steering.release(partition, uid)
    return {}


def _throttle(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    given, log_dir = request.must("bytes_per_second"), request.take("log_dir")
    request.end()
    rate = None
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
            raise BadControlRequestError("bytes_per_second: null, or a number above 0")
        rate = float(given)
    steering.throttle(rate, None if log_dir is None else _text("log_dir", log_dir), uid)
    return {"warning": slow_rate(rate) or None}


def _reload(request: ControlRequest, steering: Steering, uid: int) -> Answer:
    request.end()
    return cast(Answer, json_value(steering.reload(uid)))


VERBS: Mapping[str, Callable[[ControlRequest, Steering, int], Answer]] = {
    "status": _status,
    "jobs": _jobs,
    "now": _now,
    "cancel": _cancel,
    "pause": _pause,
    "resume": _resume,
    "release": _release,
    "throttle": _throttle,
    "reload": _reload,
}


def _chosen(logs: tuple[LogView, ...], names: Collection[str] | None, most: int | None) -> tuple[LogView, ...]:
    """Return the named logs, and of those the dirtiest."""
    found = [view for view in logs if names is None or str(view.partition) in names or view.partition.topic in names]
    if most is not None:
        found = sorted(found, key=lambda view: -(view.ratio or 0.0))[:most]
    return tuple(found)


def _names(value: JsonValue) -> frozenset[str]:
    if not isinstance(value, list):
        raise BadControlRequestError("of: no list of names")
    return frozenset(_text("of", name) for name in value)


def _text(name: str, value: JsonValue) -> str:
    if not isinstance(value, str):
        raise BadControlRequestError(f"{name}: no text")
    return value


def _whole(name: str, value: JsonValue) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise BadControlRequestError(f"{name}: no whole number from 0 on")
    return value
