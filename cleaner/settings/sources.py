"""Where settings come from, besides the log dir itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from cleaner.base import arguments
from cleaner.base.arguments import Settings
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.errors import UsageError

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}\Z")


@dataclass(frozen=True)
class SetOption:
    """One `--set [TOPIC:]key=value`; `topic` is None for every topic and for settings of the process."""

    topic: str | None
    key: str
    value: str

    @staticmethod
    def parse(text: str) -> SetOption:
        """
        Read the option's value.

        Raises:
            UsageError: no `=`, an empty key, or a topic name that Kafka refuses.
        """
        name, equals, value = text.partition("=")
        # Neither topic names nor keys contain a colon.
        topic, colon, key = name.rpartition(":")
        if not equals or not key.strip():
            raise UsageError(f"--set {text}: expected [TOPIC:]key=value")
        if colon and not TOPIC_NAME.match(topic):
            raise UsageError(f"--set {text}: {topic!r} is not a topic name")
        return SetOption(topic if colon else None, key.strip(), value)


@dataclass(frozen=True)
class Sources:
    """
    Where settings come from, besides the log dir itself.

    Attributes:
        config: the keys of `--config FILE`: a `server.properties`, topic settings, or both.
        environment: the keys in `CLEANER_` variables, which override the file.
        sets: `--set`, which overrides everything.
        topics_dir: a directory of `<topic>.properties` files; it overrides `cleaner.topics.dir`.
        metadata_dir: the directory of a KRaft metadata log, if that is neither in the log dir nor in
            `metadata.log.dir`.
        trust_default_policy: also treat a topic as compacted if only a default says so.
    """

    config: Mapping[str, str] = field(default_factory=dict)
    sets: Sequence[SetOption] = ()
    topics_dir: Path | None = None
    metadata_dir: Path | None = None
    trust_default_policy: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of_call(
        topic: str | None,
        settings: Settings | None,
        topics_dir: str | PathLike[str] | None,
        metadata_dir: str | PathLike[str] | None,
    ) -> Sources:
        """
        Make sources from a library call's arguments.

        Topic settings then count as `--set` for that topic, so that they override everything; the others, and all of
        them without a topic, count as in a `--config` file.

        Raises:
            UsageError, ConfigError: the arguments are not settings or paths.
        """
        given = arguments.setting_texts(settings)
        mine = {key: value for key, value in given.items() if topic is not None and key in TOPIC_SETTINGS}
        return Sources(
            config={key: value for key, value in given.items() if key not in mine},
            sets=tuple(SetOption(topic, key, value) for key, value in mine.items()),
            topics_dir=arguments.optional_path("topics_dir", topics_dir),
            metadata_dir=arguments.optional_path("metadata_dir", metadata_dir),
        )
