"""
Layers of settings, and which of them wins.

A layer has the settings of one source, the source's name for messages, and its scope. Layers are in order of
precedence, highest first; the first one that has a setting, under the topic's or a broker's name for it, wins.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cleaner.base.mistakes import Mistakes
from cleaner.config.definition import Setting, Synonym, Value, format_value
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.errors import ConfigError


class LayerScope(enum.Enum):
    """The topics for which a layer is meant; a cleanup policy is trusted if the layer means exactly this topic."""

    TOPIC = "this topic"
    EVERY_TOPIC = "every topic of the command"
    BROKER = "topics without a setting of their own"


class Layer(NamedTuple):
    """
    The settings of one source.

    `names_topic_settings` tells whether topic settings may have their own names there; in a `server.properties` they
    have the broker's names only.
    """

    origin: str
    reach: LayerScope
    values: Mapping[str, str]
    names_topic_settings: bool = True


class FoundSetting(NamedTuple):
    """A setting's value as text under its own name, and the layer that gave it."""

    text: str
    layer: Layer


def find_settings(layers: Sequence[Layer]) -> dict[str, FoundSetting]:
    """
    Return the topic settings that the layers give, each from the first layer that has it.

    Raises:
        ConfigError: bad values that would win, in any layer.
    """
    mistakes = Mistakes()
    found = find_sound_settings(layers, mistakes)
    mistakes.raise_any()
    return found


def find_sound_settings(layers: Sequence[Layer], mistakes: Mistakes) -> dict[str, FoundSetting]:
    """Do as `find_settings`, but leave out bad values, and collect their errors."""
    found: dict[str, FoundSetting] = {}
    for layer in layers:
        for setting in _settings_in(layer):
            if setting.name in found:
                continue
            try:
                value = _value_in(layer, setting)
            except ConfigError as error:
                mistakes.add(error)
                continue
            if value is not None:
                found[setting.name] = FoundSetting(format_value(value), layer)
    return found


def check_values(layer: Layer) -> None:
    """
    Check every topic setting in a layer, even if no topic uses it.

    Raises:
        ConfigError: all bad values, except of settings that the process has too: those are checked when it reads them.
    """
    mistakes = Mistakes()
    for setting in TOPIC_SETTINGS.values():
        for under in _names_in(layer, setting):
            name = under.name if under else setting.name
            if name in layer.values and name not in BROKER_SETTINGS:
                with mistakes.collected():
                    _parse(layer, setting, under, layer.values[name])
    mistakes.raise_any()


def _settings_in(layer: Layer) -> list[Setting]:
    """Return the topic settings that a layer may contain, some perhaps twice."""
    settings = []
    for name in layer.values:
        if name in SETTING_OF_SYNONYM:
            settings.append(SETTING_OF_SYNONYM[name][0])
        if name in TOPIC_SETTINGS:
            settings.append(TOPIC_SETTINGS[name])
    return settings


def _value_in(layer: Layer, setting: Setting) -> Value | None:
    for under in _names_in(layer, setting):
        text = layer.values.get(under.name if under else setting.name)
        if text is not None:
            return _parse(layer, setting, under, text)
    return None


def _names_in(layer: Layer, setting: Setting) -> tuple[Synonym | None, ...]:
    """Return the names that a setting may have in a layer; None means its own."""
    return (None, *setting.synonyms) if layer.names_topic_settings else setting.synonyms


def _parse(layer: Layer, setting: Setting, under: Synonym | None, text: str) -> Value:
    try:
        return setting.parse(text, under)
    except ConfigError as error:
        raise ConfigError(error.key, error.value, f"{error.reason} ({layer.origin})") from None
