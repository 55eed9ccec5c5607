"""The settings that the verdict of `plan` on a partition depends on, each with its value and origin."""

from __future__ import annotations

from cleaner.app.plan_report import SettingInForce
from cleaner.app.session import Session
from cleaner.config.process_settings import KAFKA_VERSION_KEY
from cleaner.config.table import BROKER_SETTINGS
from cleaner.settings import ResolvedTopic
from cleaner.settings.given import DEFAULT, Given

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


def topic_settings(resolved: ResolvedTopic) -> tuple[SettingInForce, ...]:
    """Return the settings of a topic that affect its cleaning, and the Kafka version whose rules apply."""
    kafka = SettingInForce(KAFKA_VERSION_KEY, resolved.kafka.version.name, resolved.kafka.origin)
    return (*(SettingInForce(key, *resolved.in_force(key)) for key in _OF_TOPIC), kafka)


def settings_in_force(session: Session, resolved: ResolvedTopic) -> tuple[SettingInForce, ...]:
    """Return the settings of a topic, and those of the process."""
    return (*topic_settings(resolved), *(_of_process(session, key) for key in _OF_PROCESS))


def _of_process(session: Session, key: str) -> SettingInForce:
    return SettingInForce(key, *session.given.get(key, Given(BROKER_SETTINGS[key].default or "", DEFAULT)))
