"""
Checks and converts arguments of library calls; a refusal names the argument.

Python would find a wrong type where it is first used, which may be deep inside and after something has changed. So
public calls check here first. A refusal is a `UsageError`, or a `ConfigError` for a setting.
"""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cleaner.base.remote_path import RemotePath, any_path, refuse_remote
from cleaner.errors import ConfigError, UsageError, shortened

Setting = str | int | float | bool | list[str] | tuple[str, ...]
Settings = Mapping[str, Setting]
"""Settings as callers pass them; `setting_texts` converts them to text."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_HIGHEST = 2**63 - 1  # largest integer in Kafka's format and settings
_LONGEST_NAME = 255  # bytes of a file's name


def _refused(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{name} is {shortened(repr(value))}, a {type(value).__name__}; {wanted}")


def whole(name: str, value: object, least: int = -_HIGHEST - 1, most: int = _HIGHEST) -> int:
    """Return an integer of any kind, numpy's included, within bounds, both inclusive; not a bool."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # raises TypeError for a wrong type
    except TypeError:
        number = most + 1
    if isinstance(value, bool) or number > most or number < least:
        bound = f" of at least {least}" if least > -_HIGHEST else ""
        bound = bound if most == _HIGHEST else f" from {least} to {most}"
        raise _refused(name, value, f"an integer{bound} is needed")
    return number


def seconds(name: str, value: object) -> float | None:
    """Return a time to wait, 0 or more, from a number of any kind, numpy's included; None means forever."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value != value:  # not a number: NaN
        raise _refused(name, value, "a number of seconds or None is needed")
    return float(_HIGHEST) if value > _HIGHEST else max(0.0, float(value))  # type: ignore[operator]


def text(name: str, value: object) -> str:
    """Return a str."""
    if not isinstance(value, str):
        raise _refused(name, value, "a str is needed")
    return value


def utf8(name: str, value: object) -> str:
    """Return a str that has a UTF-8 form, for texts that are written into logs; half of a surrogate pair has none."""
    checked = text(name, value)
    if not checked.isascii():
        try:
            checked.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{name} has no UTF-8 form: {error}") from error
    return checked


def texts(name: str, values: object) -> list[str]:
    """Return several strings; a single one is refused, as it would be iterated by characters."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise _refused(name, values, "several of type str are needed")
    return [text(name, value) for value in values]


def byte_strings(name: str, values: object) -> list[bytes]:
    """Return several byte strings; a single one is refused, as it would be iterated by bytes."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(values, Iterable):
        raise _refused(name, values, "several of type bytes are needed")
    found = list(values)
    for value in found:
        if not isinstance(value, bytes):
            raise UsageError(f"{name}: a {type(value).__name__} where bytes are needed: key.encode()")
    return found


def flag(name: str, value: object) -> bool:
    """Return True or False; a string such as "no" is neither."""
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise _refused(name, value, "True or False is needed")


def one_of(name: str, value: object, allowed: Iterable[str]) -> str:
    """Return one of some words."""
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise _refused(name, value, f"not one of {', '.join(words)}")
    return value


def function(name: str, value: object) -> Callable[..., object] | None:
    """Return something that can be called, or None."""
    if value is not None and not callable(value):
        raise _refused(name, value, "a function or None is needed")
    return value


def require_methods(name: str, value: object, *methods: str) -> None:
    """Raise unless a value is None, or an object with these methods."""
    if value is not None and not all(callable(getattr(value, method, None)) for method in methods):
        raise _refused(name, value, f"an object with {', '.join(methods)} is needed")


def path(name: str, value: object, *, may_be_remote: bool = False) -> Path:
    """Return a path, from a string or a path-like object; one into a bucket only for calls that change nothing."""
    if not isinstance(value, str | os.PathLike):
        raise _refused(name, value, "a path is needed")
    given = os.fspath(value)
    if not isinstance(given, str) or not given or "\0" in given:
        raise _refused(name, value, "a path is needed, as text")
    if not may_be_remote:
        refuse_remote(given, f"{name} needs a directory of this machine")
    found = any_path(value)
    if not isinstance(found, RemotePath):
        _require_name(name, given)
    return found


def _require_name(name: str, given: str) -> None:
    """Raise for what no path of this machine can be: the system would say so wherever it is first used."""
    try:
        longest = max(map(len, os.fsencode(given).split(b"/")))
    except UnicodeEncodeError as error:
        raise UsageError(f"{name} has no form in bytes: {error}") from error
    if longest > _LONGEST_NAME:
        raise _refused(name, given, "a name in it is too long")


def paths(name: str, values: object) -> list[Path]:
    """Return several paths; a single one is refused, as it would be iterated by characters."""
    return [path(name, value) for value in several(name, values)]


def several(name: str, values: object) -> list[object]:
    """Return what may be several paths; a single one is refused, as it would be iterated by characters."""
    if isinstance(values, str | bytes | os.PathLike | Mapping) or not isinstance(values, Iterable):
        raise _refused(name, values, "several paths are needed")
    return list(values)


def offset_range(name: str, value: object) -> tuple[int, int] | None:
    """Return a first and a last offset, or None."""
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise _refused(name, value, "a first and a last offset are needed")
    first, last = whole(name, value[0], 0), whole(name, value[1], 0)
    if last < first:
        raise _refused(name, value, "the last offset is below the first")
    return first, last


def optional_path(name: str, value: object) -> Path | None:
    """Return a path, or None."""
    return None if value is None else path(name, value)


def moment_ms(name: str, value: object) -> int:
    """Return a time in milliseconds since 1970, from such a number or from a `datetime` with a time zone."""
    if not isinstance(value, datetime):
        try:
            return whole(name, value)
        except UsageError:
            raise _refused(name, value, "milliseconds since 1970 or a datetime with a time zone is needed") from None
    if value.tzinfo is None or value.utcoffset() is None:
        raise _refused(name, value, "it has no time zone: say datetime(..., tzinfo=...) or .astimezone()")
    return (value - _EPOCH) // _MILLI


def setting_texts(values: object) -> dict[str, str]:
    """
    Return settings as a properties file has them; numbers and flags may be given as such.

    Raises:
        UsageError: not a mapping, or a key that is not a string.
        ConfigError: a value that is not a string, number, flag, or list of strings.
    """
    return {key: _setting_text(key, value) for key, value in _pairs(values)}


def setting_changes(values: object) -> dict[str, str | None]:
    """Return changes of settings as `setting_texts` does; None removes a setting."""
    return {key: None if value is None else _setting_text(key, value) for key, value in _pairs(values)}


def _pairs(values: object) -> list[tuple[str, object]]:
    if values is None:
        return []
    if not isinstance(values, Mapping):
        raise _refused("settings", values, "a mapping of keys to values is needed")
    return [(text("a setting's key", key), value) for key, value in values.items()]


def _setting_text(key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        return ",".join(value)
    try:
        return str(operator.index(value))  # type: ignore[arg-type]  # raises TypeError for a wrong type
    except TypeError:
        raise ConfigError(key, value, f"text, a number or a flag is needed, not a {type(value).__name__}") from None
