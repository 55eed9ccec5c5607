"""
A snapshot as JSON values: what `/api/v1/snapshot` and the control socket hand to programs.

Names are the fields' of `snapshot.py`, with what they can be asked for (`ratio`, `total_bytes`, `bytes_freed`) beside
them; a partition is the name of its directory, a choice its name in lower case, a moment milliseconds since 1970, a
number without end null. New fields may come at any time; a field that goes or means something else is another version.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import Forecast, LogView, RoundView, ServiceSnapshot
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.sections import Sections
from cleaner.state.json_text import JsonValue
from cleaner.state.quarantine import QuarantinedLog

SNAPSHOT_VERSION = 1

_PROPERTIES: Mapping[type, tuple[str, ...]] = {
    Sections: ("total_bytes",),
    LogView: ("ratio", "standing"),
    ServiceSnapshot: ("dirtiest_ratio", "overdue", "max_overdue_ms"),
    RoundView: ("bytes_freed",),
    Cleanable: ("ratio",),
    QuarantinedLog: ("partition",),
    Forecast: ("about_seconds",),
}


def snapshot_json(snapshot: ServiceSnapshot) -> dict[str, JsonValue]:
    """Return all of a snapshot, `format` and `format_version` before everything else."""
    described: dict[str, JsonValue] = {"format": "cleaner-snapshot", "format_version": SNAPSHOT_VERSION}
    return described | _fields(snapshot)


def json_value(value: object) -> JsonValue:
    """
    Return any part of a snapshot as JSON values.

    Raises:
        TypeError: something that no part of a snapshot is.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, TopicPartition):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.name.lower()
    if isinstance(value, tuple | list):
        return [json_value(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    return _fields(value)


def _fields(value: object) -> dict[str, JsonValue]:
    names = _NAMES.get(type(value))
    if names is None:
        if not dataclasses.is_dataclass(value):
            raise TypeError(f"{type(value).__name__} is no part of a snapshot")
        own = tuple(field.name for field in dataclasses.fields(value))
        names = _NAMES[type(value)] = own + _PROPERTIES.get(type(value), ())
    return {name: json_value(getattr(value, name)) for name in names}


# Names by class, found once: with thousands of logs `dataclasses.asdict` takes ten times as long.
_NAMES: dict[type, tuple[str, ...]] = {}
