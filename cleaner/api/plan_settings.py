"""The settings that what `plan` says of a partition rests on, each with its value and who says so."""

from __future__ import annotations

from collections.abc import Mapping

from cleaner.api.plan_report import SettingInForce
from cleaner.api.session import Session
from cleaner.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.settings import ResolvedTopic

_OF_TOPIC = (
    "cleanup.policy",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
    "segment.ms",
    "segment.bytes",
)
_OF_PROCESS = ("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor", "log.cleaner.threads")
DEFAULT = "Kafka's default"


def settings_in_force(session: Session, resolved: ResolvedTopic) -> tuple[SettingInForce, ...]:
    """Return the settings of a topic, and those of the process."""
    own = [_setting(key, resolved.values, resolved.origins, TOPIC_SETTINGS[key].default) for key in _OF_TOPIC]
    texts = {key: session.given[key].text for key in _OF_PROCESS if key in session.given}
    origins = {key: session.given[key].origin for key in _OF_PROCESS if key in session.given}
    return (*own, *(_setting(key, texts, origins, BROKER_SETTINGS[key].default) for key in _OF_PROCESS))


def _setting(key: str, values: Mapping[str, str], origins: Mapping[str, str], default: str | None) -> SettingInForce:
    return SettingInForce(key, values.get(key, default or ""), origins.get(key, DEFAULT))
