"""
Checks names of settings against the table, and converts texts to typed values.

An unknown name is ignored with a warning, unless it is so similar to a known one that it must be a typo: if a misspelt
`cleanup.polcy` were ignored, a topic would never be cleaned, or be cleaned although it must not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cleaner.base.mistakes import Mistakes, nearest
from cleaner.config.bulk_settings import SPARK_PREFIX
from cleaner.config.definition import Setting, field_value, settings_of
from cleaner.config.kafka_keys import FORMER_TOPIC_KEYS, is_broker_key
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.errors import ConfigError, shortened

_MAX_UNKNOWN = 1000
"""Most unknown names ignored in one file; for each the nearest known name is searched."""

_MAX_NAMED = 50  # of them in a warning

# How similar two names must be (difflib's ratio) for one to be taken for a typo of the other: two or three letters.
_MIN_SIMILARITY = 0.88
_TOPIC_KEYS = frozenset(TOPIC_SETTINGS) | UNUSED_TOPIC_KEYS
_READ_KEYS = frozenset(TOPIC_SETTINGS) | frozenset(BROKER_SETTINGS) | frozenset(SETTING_OF_SYNONYM)


class SettingReader:
    """
    Converts texts under Kafka's names to the values of settings; a setting that is not given has its default.

    A setting with a bad value has its default too, and its error is collected: raise `mistakes` at the end.

    Args:
        table: the known settings.
        values: the texts; other names are ignored.
        warnings: gets a line for each value below a bound that is only Kafka's.
        mistakes: collects errors.
    """

    def __init__(
        self, table: Mapping[str, Setting], values: Mapping[str, str], warnings: list[str], mistakes: Mistakes
    ) -> None:
        self._table = table
        self._values = values
        self._warnings = warnings
        self._mistakes = mistakes
        self._unsound: set[str] = set()
        self._words: dict[str, tuple[str, ...]] = {}

    def is_given(self, name: str) -> bool:
        """Tell whether the setting, or a broker's name for it, is among the texts."""
        return name in self._values or any(synonym.name in self._values for synonym in self._table[name].synonyms)

    def is_sound(self, *names: str) -> bool:
        """Tell whether none of these settings had a bad value, so that they can be compared."""
        return not self._unsound.intersection(names)

    def fields(self, cls: type) -> dict[str, Any]:
        """Return the values of all given settings of a dataclass, by field name."""
        return {name: self._read(row) for name, row in settings_of(cls).values() if self.is_given(row.name)}

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list setting's words as written, after `fields`; empty if it was not given, or wrong."""
        return self._words.get(name, ())

    def _read(self, row: Setting) -> Any:
        under = None
        text = self._values.get(row.name)
        if text is None:
            under = next(synonym for synonym in row.synonyms if synonym.name in self._values)
            text = self._values[under.name]
        try:
            value = row.parse(text, under)
            found = field_value(row, value)
            if isinstance(value, tuple):
                self._words[row.name] = value
        except ConfigError as error:
            self._mistakes.add(error)
            self._unsound.add(row.name)
            return field_value(row, row.default_value)
        if row.kafka_minimum is not None and isinstance(value, int) and value < row.kafka_minimum:
            self._warnings.append(f"{under.name if under else row.name}={value}: {row.bound()}")
        return found


def check_topic_keys(values: Mapping[str, str]) -> list[str]:
    """
    Check the names of settings given for a topic; returns warnings.

    Raises:
        ConfigError: unknown names that are very similar to known ones.
    """
    warnings = []
    mistakes = Mistakes()
    unknown = UnknownNames()
    for key in values:
        if key in SETTING_OF_SYNONYM and key not in _TOPIC_KEYS:
            setting, _ = SETTING_OF_SYNONYM[key]
            warnings.append(f"{key} is a broker's name: taken as the topic's {setting.name}")
        elif key not in _TOPIC_KEYS and key not in FORMER_TOPIC_KEYS:
            unknown.add(key)
            with mistakes.collected():
                refuse_slip(key, _TOPIC_KEYS | frozenset(SETTING_OF_SYNONYM))
                warnings.append(f"{shortened(key)} is not a topic setting: ignored")
    mistakes.raise_any()
    return warnings


def check_broker_keys(values: Mapping[str, str]) -> list[str]:
    """
    Check the names in a `server.properties` or our smaller file; returns warnings.

    Raises:
        ConfigError: unknown names that are very similar to known ones.
    """
    unknown = UnknownNames()
    mistakes = Mistakes()
    for key in values:
        if key.startswith(SPARK_PREFIX):
            continue
        if key not in _READ_KEYS and key not in _TOPIC_KEYS and key not in FORMER_TOPIC_KEYS and not is_broker_key(key):
            unknown.add(key)
            with mistakes.collected():
                refuse_slip(key, _READ_KEYS)
    mistakes.raise_any()
    return [f"unknown settings are ignored: {unknown}"] if unknown.names else []


class UnknownNames:
    """The unknown names in one file, limited: a file with too many was named by mistake, or is an attack."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, name: str) -> None:
        """Add a name. Raises ConfigError: these are too many."""
        if len(self.names) >= _MAX_UNKNOWN:
            raise ConfigError(name, None, f"more than {_MAX_UNKNOWN} unknown settings: this is not a configuration")
        self.names.append(name)

    def __str__(self) -> str:
        named = ", ".join(shortened(name) for name in sorted(self.names)[:_MAX_NAMED])
        return f"{named} and {len(self.names) - _MAX_NAMED} more" if len(self.names) > _MAX_NAMED else named


def refuse_slip(key: str, known: Collection[str]) -> None:
    """
    Raise ConfigError if `key` is nearly one of the `known` names.

    The error does not show the value: after a typo in the name of a password setting, it would be in a log.
    """
    plain = key.strip().lower().replace("_", ".").replace("-", ".")
    if plain in known:
        raise ConfigError(key, None, f"unknown setting; did you mean {plain}?")
    for prefix in ("log.cleaner.", "log.", "cleaner."):
        if prefix + plain in known:
            raise ConfigError(key, None, f"unknown setting; did you mean {prefix + plain}?")
    alike = nearest(plain, sorted(known), _MIN_SIMILARITY)
    if alike:
        raise ConfigError(key, None, f"unknown setting; did you mean {alike}?")
