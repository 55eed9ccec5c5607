"""
Converts frozen values to JSON and back: for state files, the control socket, HTTP and the output of commands.

JSON is written as one line, ASCII only. Names of topics, files and users may contain everything that a file name can:
line breaks, terminal escapes, bytes that are not UTF-8 (Python's lone surrogates). Everything except printable ASCII is
escaped, so that no value can end a line, control a terminal or fail to be encoded; reading returns exactly what was
written.

Names are a dataclass's fields, followed by its `JSON_PROPERTIES`, if any; a partition is the name of its directory, a
member of an enum its name in lower case, a time milliseconds since 1970, an infinite number null.

Reading is tolerant where possible, as daemon and command may be of different releases during an upgrade: an unknown
field is ignored, a missing one has its default, and an unknown word of an enum makes the value that contains it None,
if that is allowed (`LogView.verdict`; `why` then still has the text).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from cleaner.base.byte_order import byte_order_mark
from cleaner.base.model import TopicPartition
from cleaner.errors import shortened

FORMAT_VERSION = 1
"""Of every object with a `format`: removing a field or changing its meaning needs another version (docs/json.md)."""

MAX_VALUES = 4_000_000
"""Most values accepted in a text: each takes some fifty bytes of memory, and may take only two in the text."""

JsonValue = bool | int | float | str | None | list["JsonValue"] | dict[str, "JsonValue"]


Value = TypeVar("Value")
_Reader = Callable[[JsonValue], Any]

# Names by class, found once: with thousands of logs `dataclasses.asdict` takes ten times as long.
_NAMES: dict[type, tuple[str, ...]] = {}


class NotJsonError(ValueError):
    """The text is not a JSON object; the message says why."""


class WrongValueError(ValueError):
    """The JSON is not the expected value; the message says where."""


class _UnknownWordError(WrongValueError):
    """A word of an enum that a later release may have added."""


def format_json(value: Mapping[str, object], *, indent: int | None = None) -> str:
    """
    Return an object as JSON.

    Raises:
        TypeError, ValueError: a value in it has no JSON form (a path, a set, infinity).
    """
    return json.dumps(value, ensure_ascii=True, allow_nan=False, indent=indent)


def parse_json(data: bytes, *, max_values: int = MAX_VALUES) -> dict[str, JsonValue]:
    """
    Parse an object.

    Args:
        data: the text.
        max_values: the most values it may have.
    Raises:
        NotJsonError: anything else: not UTF-8, nested too deeply, infinite numbers, too many values.
    """
    if mark := byte_order_mark(data):
        raise NotJsonError(f"a byte-order mark ({mark}) at its beginning; save it without one")
    # At most one value begins at each of these, besides the outermost; those inside strings are counted too.
    if sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise NotJsonError(f"more than {max_values} values")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise NotJsonError("nested too deeply") from error
    except ValueError as error:  # includes UnicodeDecodeError and JSONDecodeError
        raise NotJsonError(str(error)) from error
    if not isinstance(value, dict):
        raise NotJsonError("not a JSON object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise NotJsonError("a number that is too large")
    return number


def _refuse_constant(name: str) -> float:
    raise NotJsonError(f"{name} is not a JSON number")


def described(kind: str, value: object, **more: object) -> dict[str, JsonValue]:
    """
    Return an object that begins with its format and version.

    Args:
        kind: `plan` for `"format": "cleaner-plan"`, listed in docs/json.md.
        value: a frozen report, or names with their values.
        more: fields to append, or to replace those of the value.
    Raises:
        TypeError: the value does not become an object, or a part of it has no form in JSON.
    """
    fields = json_value(value)
    if not isinstance(fields, dict):
        raise TypeError(f"{type(value).__name__} is not a report")
    head: dict[str, JsonValue] = {"format": f"cleaner-{kind}", "format_version": FORMAT_VERSION}
    return head | fields | {name: json_value(each) for name, each in more.items()}


def json_value(value: object) -> JsonValue:
    """
    Convert a frozen value, or part of one, to JSON values.

    Raises:
        TypeError: a value has no JSON form.
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
    if isinstance(value, frozenset):
        return [json_value(item) for item in sorted(value)]
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    return {name: json_value(getattr(value, name)) for name in _names_of(type(value))}


def _names_of(kind: type) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        if not dataclasses.is_dataclass(kind):
            raise TypeError(f"{kind.__name__} has no form in JSON")
        own = tuple(field.name for field in dataclasses.fields(kind))
        names = _NAMES[kind] = own + tuple(getattr(kind, "JSON_PROPERTIES", ()))
    return names


def from_json(kind: type[Value], value: JsonValue) -> Value:
    """
    Create a value from its JSON form.

    Args:
        kind: a dataclass.
        value: as parsed.
    Raises:
        WrongValueError: another kind of value, or one of a later release that cannot be ignored.
    """
    return cast(Value, _reader_of(cast(Any, kind))(value))


@functools.cache
def _reader_of(kind: Any) -> _Reader:
    """Return the reader of a dataclass's annotated type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        kinds = tuple(argument for argument in arguments if argument is not type(None))
        return _optional(kinds[0]) if len(kinds) == 1 else functools.partial(_read_primitive, kinds)
    if origin is frozenset:
        return lambda value: frozenset(map(_reader_of(arguments[0]), _list(value)))
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
            raise WrongValueError(f"{len(items)} values, not {len(readers)}")
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
                except WrongValueError as error:
                    raise type(error)(f"{name}: {error}") from error
            elif name in required:
                raise WrongValueError(f"{name} is missing")
        return kind(**found)

    return read_fields


def _read_primitive(kinds: tuple[type, ...], value: JsonValue) -> Any:
    if type(value) not in kinds:
        raise WrongValueError(f"a {type(value).__name__}, not a {kinds[-1].__name__}")
    return value


def _read_float(value: JsonValue) -> float:
    """Read a number; null is an infinite one."""
    return math.inf if value is None else float(_read_primitive((int, float), value))


def _read_enum(kind: type[enum.Enum], value: JsonValue) -> enum.Enum:
    for member in kind:
        if member.name.lower() == value:
            return member
    raise _UnknownWordError(f"{shortened(repr(value))} is not a {kind.__name__}")


def _read_partition(value: JsonValue) -> TopicPartition:
    """Read a partition's name; whether the topic's name is legal is not checked here."""
    topic, dash, number = _read_primitive((str,), value).rpartition("-")
    if not dash or not number.isascii() or not number.isdecimal() or len(number) > 10:
        raise WrongValueError("not a partition")
    return TopicPartition(topic, int(number))


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise WrongValueError("not a list")
    return value


def _object(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise WrongValueError("not an object")
    return value
