"""
The definition of a setting: type, default, bounds and other names; and the parsing of its value, as Kafka's ConfigDef.

A setting is declared once, in one of the `*_settings.py`, with `setting`, which creates a dataclass field.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

from cleaner.base.sizes import parse_size
from cleaner.errors import ConfigError

Kind = Literal["int", "long", "double", "boolean", "string", "list"]
Value = int | float | bool | str | tuple[str, ...]

LONG_MAX = 2**63 - 1

_INTEGER_BITS = {"int": 31, "long": 63}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")
_REAL = re.compile(r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[dDfF]?\Z")


@dataclass(frozen=True)
class Synonym:
    """
    A broker's name for a topic setting; the broker's value times `factor` is the topic setting's.

    With `negative_is_unlimited` every negative value means -1, and zero is refused (R-805).
    """

    name: str
    factor: int = 1
    negative_is_unlimited: bool = False


@dataclass(frozen=True)
class Setting:
    """
    One setting.

    Values outside `minimum` and `maximum` are refused. `kafka_minimum` is a bound that Kafka sets but logs do not need,
    so a value below it gives only a warning. A `dynamic` setting takes effect at the next reload, others at the next
    start. Only the daemon reads a `daemon` setting. One `in_bytes` may be given as a size (`128M`), which Kafka does
    not support: files are written with the `canonical` value. `convert` makes the field's value from the parsed one; it
    may raise ConfigError.
    """

    name: str
    kind: Kind
    default: str | None
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    kafka_minimum: int | None = None
    choices: tuple[str, ...] = ()
    synonyms: tuple[Synonym, ...] = ()
    dynamic: bool = True
    daemon: bool = False
    in_bytes: bool = False
    convert: Callable[[Any], Any] | None = None

    @cached_property
    def default_value(self) -> Value | None:
        """The parsed default; None without a default."""
        return None if self.default is None else self.parse(self.default)

    def bound(self) -> str:
        """Return the bounds as text, empty if any value of the type is valid."""
        words = []
        if self.choices:
            words.append(f"{'each of' if self.kind == 'list' else 'one of'} {', '.join(self.choices)}")
        if self.minimum is not None and self.maximum is not None:
            words.append(f"{self.minimum} to {self.maximum}")
        elif self.minimum is not None:
            words.append(f"at least {self.minimum}")
        if self.kafka_minimum is not None:
            words.append(f"Kafka: at least {self.kafka_minimum} (here only a warning)")
        return "; ".join(words)

    def parse(self, text: str, under: Synonym | None = None) -> Value:
        """
        Parse a value as Kafka's ConfigDef does: surrounding blanks are ignored, case matters (except for booleans).

        Args:
            text: the value as written.
            under: the broker's name, if it was given under one.
        Raises:
            ConfigError: wrong type, or out of bounds; names key, value and bound.
        """
        key = under.name if under else self.name
        text = text.strip()
        if self.in_bytes and self.kind != "list":
            text = self._without_suffix(text, key)
        match self.kind:
            case "int" | "long":
                return self._parse_integer(text, key, under or Synonym(key))
            case "double":
                return self._parse_real(text, key)
            case "boolean":
                if text.lower() not in ("true", "false"):
                    raise ConfigError(key, text, "must be true or false")
                return text.lower() == "true"
            case "string" | "list" if "\0" in text:
                raise ConfigError(key, text, "must not hold a NUL character")
            case "string":
                self._check_choice(text, text, key)
                return text
            case "list":
                elements = tuple(element.strip() for element in text.split(",")) if text else ()
                if not self.choices and "" in elements:
                    # As in Kafka 4.3; an empty path would be the directory that the command was started in.
                    raise ConfigError(key, text, "must not have an empty element; see its commas")
                for element in elements:
                    self._check_choice(element, text, key)
                return elements

    def canonical(self, text: str) -> str:
        """Return the text to show and compare, the same for all ways to write a value. Raises ConfigError."""
        return format_value(self.parse(text))

    def _without_suffix(self, text: str, key: str) -> str:
        """Convert a size such as `128M` to plain bytes; other text is returned unchanged and checked later."""
        if not (text[:1].isdigit() and text[-1:].isalpha()) or _REAL.match(text):
            return text
        try:
            return str(parse_size(text))
        except ValueError as error:
            raise ConfigError(key, text, str(error)) from None

    def _parse_integer(self, text: str, key: str, under: Synonym) -> int:
        if not _INTEGER.match(text):
            raise ConfigError(key, text, f"must be a whole number ({self.kind})")
        value = int(text) * under.factor
        limit = 1 << _INTEGER_BITS[self.kind]
        if not -limit <= value < limit:
            raise ConfigError(key, text, f"must fit {self.kind}, {-limit} to {limit - 1}")
        if under.negative_is_unlimited:
            if value == 0:
                raise ConfigError(key, text, "must be -1 (unlimited) or at least 1")
            value = max(value, -1)
        self._check_range(value, text, key)
        return value

    def _parse_real(self, text: str, key: str) -> float:
        match = _REAL.match(text)
        if match is None:
            raise ConfigError(key, text, "must be a number")
        value = float(match.group(1))
        if not math.isfinite(value):
            raise ConfigError(key, text, "must be a finite number")
        self._check_range(value, text, key)
        return value

    def _check_range(self, value: float, text: str, key: str) -> None:
        is_low = self.minimum is not None and value < self.minimum
        is_high = self.maximum is not None and value > self.maximum
        if is_low or is_high:
            raise ConfigError(key, text, f"must be {self.bound()}")

    def _check_choice(self, element: str, text: str, key: str) -> None:
        if self.choices and element not in self.choices:
            raise ConfigError(key, text, f"must be {self.bound()}")


def format_value(value: Value) -> str:
    """Format a value so that it is parsed as the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def setting(name: str, kind: Kind, default: str | None, doc: str, **more: Any) -> Any:
    """Declare a setting, as a field of a dataclass; the arguments are those of `Setting`."""
    row = Setting(name, kind, default, doc, **more)
    return field(default=field_value(row, row.default_value), metadata={"setting": row})


def field_value(row: Setting, value: Value | None) -> Any:
    """Convert a parsed value to its field's value: an empty one is None, or an empty list. Raises ConfigError."""
    if row.default is None and not value and row.kind in ("string", "list"):
        value = () if row.kind == "list" else None
    return row.convert(value) if row.convert else value


def settings_of(cls: type) -> dict[str, tuple[str, Setting]]:
    """Return the settings that a dataclass declares, in order: by name, the field's name and the definition."""
    rows = ((each.name, each.metadata["setting"]) for each in fields(cls) if "setting" in each.metadata)
    return {row.name: (name, row) for name, row in rows}
