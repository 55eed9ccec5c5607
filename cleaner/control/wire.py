"""
Frozen values to JSON and back, by their types.

Daemon and command may be of different releases for the time of an upgrade, so reading is forgiving where it can be: a
field not known here is passed over, one that is not there has its default, and a word of an enum that is not known here
makes the value around it None, where that is allowed (`LogView.verdict`; `why` then still says it in words).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from cleaner.model import TopicPartition
from cleaner.state.json_text import JsonValue

VERSION = 1
"""Of requests and answers alike. A field more is the same version; another meaning of one is another version."""

Value = TypeVar("Value")
_Reader = Callable[[JsonValue], Any]


class WireError(ValueError):
    """JSON that is not the value it should be; says where."""


class _UnknownWordError(WireError):
    """A word of an enum that a later release has added."""


def to_json(value: object) -> JsonValue:
    """
    Return a value's JSON form: dataclasses as objects, enums by value, partitions by name, tuples as lists.

    Raises:
        TypeError: something in it has no such form.
    """
    kind: Any = type(value)
    return _writer_of(kind)(value)


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


def _same(value: Any) -> JsonValue:
    return cast(JsonValue, value)


def _write_list(value: Any) -> JsonValue:
    return [to_json(item) for item in value]


def _write_mapping(value: Any) -> JsonValue:
    return {str(key): to_json(item) for key, item in value.items()}


def _write_enum(value: Any) -> JsonValue:
    return to_json(value.value)


@functools.cache
def _writer_of(kind: type) -> Callable[[Any], JsonValue]:
    if kind in (bool, int, float, str, type(None)):
        return _same
    if kind is TopicPartition:
        return str
    if issubclass(kind, enum.Enum):
        return _write_enum
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return lambda value: {name: to_json(getattr(value, name)) for name in names}
    if issubclass(kind, tuple | list):
        return _write_list
    if issubclass(kind, Mapping):
        return _write_mapping
    raise TypeError(f"{kind.__name__} has no form in JSON")


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
        return lambda value: float(_read_primitive((int, float), value))
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


def _read_enum(kind: type[enum.Enum], value: JsonValue) -> enum.Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise _UnknownWordError(str(error)) from error


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
