"""How an application's keys and values become bytes, and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Serde:
    """
    A pair of functions; `None` is not given to either: it is no key, or a tombstone.

        manager.topic("orders", key=Serde.str, value=Serde.json)

    Attributes:
        to_bytes, from_bytes: raise ValueError or TypeError for what they cannot convert.
    """

    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], Any]

    bytes: ClassVar[Serde]
    str: ClassVar[Serde]
    json: ClassVar[Serde]


def _as_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a {type(value).__name__} where bytes are needed")
    return bytes(value)


def _as_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where a str is needed")
    return value.encode()


def _as_json(value: Any) -> bytes:
    # The same value gives the same bytes, so that equal keys are one key.
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


Serde.bytes = Serde(_as_bytes, lambda data: data)
Serde.str = Serde(_as_text, lambda data: data.decode())
Serde.json = Serde(_as_json, json.loads)
