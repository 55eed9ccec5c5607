"""
Frozen values out of the JSON that `daemon/snapshot_json.py` makes of them, by their types.

Daemon and command may be of different releases for the time of an upgrade, so reading is forgiving where it can be: a
field not known here is passed over, one that is not there has its default, and a word of an enum that is not known here
makes the value around it None, where that is allowed (`LogView.verdict`; `why` then still says it in words).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from cleaner.base.model import TopicPartition
from cleaner.errors import shortened
from cleaner.state.json_text import JsonValue

VERSION = 1
"""Of requests and answers alike. A field more is the same version; another meaning of one is another version."""

Value = TypeVar("Value")
_Reader = Callable[[JsonValue], Any]


class WireError(ValueError):
    """JSON that is not the value it should be; says where."""


class _UnknownWordError(WireError):
    """A word of an enum that a later release has added."""


def from_json(kind: type[Value], value: JsonValue) -> Value:
    """
    Make a value of its JSON form.

    Args:
        kind: a dataclass of ours.
        value: as read.
    Raises:
        WireError: it is none, or of a later release in a way that cannot be passed over.
    """
    return cast(Value, _reader_of(cast(Any, kind))(value))


@functools.cache
def _reader_of(kind: Any) -> _Reader:
    """Return what reads a type, as it stands in the dataclass."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _optional(*(argument for argument in arguments if argument is not type(None)))
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*arguments)
    if kind is TopicPartition:
        return _read_partition
    if kind is float:
        return _read_float
    if kind in (bool, int, str):
        return functools.partial(_read_primitive, (kind,))
    if issubclass(kind, enum.Enum):
        return functools.partial(_read_enum, kind)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"{kind} is not read from JSON")


def _optional(kind: Any) -> _Reader:
    read = _reader_of(kind)

    def read_or_none(value: JsonValue) -> Any:
        try:
            return None if value is None else read(value)
        except _UnknownWordError:
            return None

    return read_or_none


def _tuple(kinds: tuple[Any, ...]) -> _Reader:
    if kinds[-1] is Ellipsis:
        read = _reader_of(kinds[0])
        return lambda value: tuple(map(read, _list(value)))
    readers = [_reader_of(kind) for kind in kinds]

    def read_each(value: JsonValue) -> Any:
        items = _list(value)
        if len(items) != len(readers):
            raise WireError(f"{len(items)} values, not {len(readers)}")
        return tuple(read(item) for read, item in zip(readers, items, strict=True))

    return read_each


def _mapping(key: Any, item: Any) -> _Reader:
    read_key, read_item = _reader_of(key), _reader_of(item)
    return lambda value: {read_key(name): read_item(inner) for name, inner in _object(value).items()}


def _dataclass(kind: Any) -> _Reader:
    hints = typing.get_type_hints(kind)
    fields = [(field.name, _reader_of(hints[field.name])) for field in dataclasses.fields(kind)]
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }

    def read_fields(value: JsonValue) -> Any:
        given = _object(value)
        found = {}
        for name, read in fields:
            if name in given:
                try:
                    found[name] = read(given[name])
                except WireError as error:
                    raise type(error)(f"{name}: {error}") from error
            elif name in required:
                raise WireError(f"{name} is missing")
        return kind(**found)

    return read_fields


def _read_primitive(kinds: tuple[type, ...], value: JsonValue) -> Any:
    if type(value) not in kinds:
        raise WireError(f"a {type(value).__name__}, not a {kinds[-1].__name__}")
    return value


def _read_float(value: JsonValue) -> float:
    """Read a number; null is one without end."""
    return math.inf if value is None else float(_read_primitive((int, float), value))


def _read_enum(kind: type[enum.Enum], value: JsonValue) -> enum.Enum:
    for member in kind:
        if member.name.lower() == value:
            return member
    raise _UnknownWordError(f"{shortened(repr(value))} is no {kind.__name__}")


def _read_partition(value: JsonValue) -> TopicPartition:
    """Read a partition's name; what a topic may be called is for those to judge who look one up."""
    topic, dash, number = _read_primitive((str,), value).rpartition("-")
    if not dash or not number.isascii() or not number.isdecimal() or len(number) > 10:
        raise WireError("no partition")
    return TopicPartition(topic, int(number))


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise WireError("no list")
    return value


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise WireError("no object")
    return value
