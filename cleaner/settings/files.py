"""
The files in which an operator writes settings, and the `--set` option.

Files named on the command line may be links (a mounted Kubernetes ConfigMap consists of links); the one inside the log
dir may not, because users who can write there must not choose which file is read.
"""

from __future__ import annotations

import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from cleaner.base.mistakes import Mistakes
from cleaner.base.properties import parse_properties
from cleaner.config.kafka_keys import FORMER_TOPIC_KEYS
from cleaner.config.read import UnknownNames, refuse_slip
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.errors import ConfigError, LogDirOfflineError, shortened
from cleaner.settings.sources import TOPIC_NAME
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.which_dir import Nature, nature_of

CLEANER_TOPICS = "cleaner-topics.properties"

# A configuration is written by hand; a larger file was named by mistake.
_LIMIT_BYTES = 16 << 20
_MAX_TOPIC_CHARACTERS = 249
_MAX_KEY_CHARACTERS = 1000  # of topic and setting together; far more than the longest
_TOPIC_KEYS = frozenset(TOPIC_SETTINGS) | UNUSED_TOPIC_KEYS | FORMER_TOPIC_KEYS | frozenset(SETTING_OF_SYNONYM)


def read_config_file(fs: FileSystem, path: Path) -> dict[str, str]:
    """
    Read a properties file that the operator named.

    Raises:
        ConfigError: it does not exist, cannot be read, or is malformed.
    """
    return parse_properties(read_config_bytes(fs, path), str(path))


def read_config_bytes(fs: FileSystem, path: Path) -> bytes:
    """Read the bytes of a file that the operator named. Raises ConfigError: it does not exist or cannot be read."""
    try:
        # Only links are resolved, as resolving a path takes longer than reading the file.
        is_link = stat.S_ISLNK(fs.stat(path).st_mode)
        return fs.read_bytes(real_path(path) if is_link else path, _LIMIT_BYTES)
    except FileNotFoundError:
        raise ConfigError(path, None, "there is no such file") from None
    except LogDirOfflineError as error:
        raise ConfigError(path, None, error.reason) from error
    except OSError as error:
        raise ConfigError(path, None, error.strerror or "cannot be read") from error


def check_topics_dir(fs: FileSystem, topics_dir: Path, key: str) -> None:
    """Raise ConfigError for `key` if a directory of topic files cannot be listed, or contains logs."""
    try:
        fs.list_dir(topics_dir)
        nature = nature_of(fs, topics_dir)
    except FileNotFoundError as error:
        raise ConfigError(key, topics_dir, error.strerror or "no such directory") from error
    except LogDirOfflineError as error:
        raise ConfigError(key, topics_dir, error.reason) from error
    if nature in (Nature.LOG_DIR, Nature.PARTITION):
        raise ConfigError(key, topics_dir, f"is {nature.value}, not one of <topic>.properties files")


def topic_file(topics_dir: Path, topic: str) -> Path:
    """Return the path of a topic's file."""
    return topics_dir / f"{topic}.properties"


def read_topic_file(fs: FileSystem, topics_dir: Path, topic: str) -> dict[str, str] | None:
    """Read `<topic>.properties` in `--topics-dir`; None if the topic has no file. Raises ConfigError."""
    path = topic_file(topics_dir, topic)
    return read_config_file(fs, path) if fs.exists(path) else None


def read_cleaner_topics(
    fs: FileSystem, log_dir: Path, topics: Collection[str], warnings: list[str]
) -> dict[str, dict[str, str]]:
    """
    Read `cleaner-topics.properties` of a log dir: lines `topic.key=value`.

    Topics and keys both contain dots, so `a.delete.retention.ms` may be topic `a` or topic `a.delete`. A topic that is
    in the log dir wins over one that is not; of two that are, the one with the longer key wins, with a warning.

    Args:
        fs: the file system.
        log_dir: the log dir.
        topics: names of the topics that have a partition there.
        warnings: gets a line for each key that is ignored, or decided by that rule.
    Returns:
        Settings by topic; empty without the file.
    Raises:
        ConfigError: a malformed file, or keys very similar to known ones.
    """
    path = log_dir / CLEANER_TOPICS
    if not fs.exists(path):
        return {}
    return parse_cleaner_topics(parse_properties(fs.read_bytes(path, _LIMIT_BYTES), str(path)), topics, warnings)


def parse_cleaner_topics(
    values: Mapping[str, str], topics: Collection[str], warnings: list[str]
) -> dict[str, dict[str, str]]:
    """Group the lines of a `cleaner-topics.properties` by topic; arguments and errors as `read_cleaner_topics`."""
    settings: dict[str, dict[str, str]] = {}
    unknown = UnknownNames()
    mistakes = Mistakes()
    for line_key, value in values.items():
        split = None
        with mistakes.collected():
            split = _split_topic(line_key, topics, warnings)
        if split is None:
            unknown.add(line_key)
        else:
            topic, key = split
            settings.setdefault(topic, {})[key] = value
    mistakes.raise_any()
    return settings


def _split_topic(line_key: str, topics: Collection[str], warnings: list[str]) -> tuple[str, str] | None:
    # Topic names and keys have limited lengths, so no dot beyond those limits is tried.
    splits = [
        (line_key[:at], line_key[at + 1 :])
        for at, letter in enumerate(line_key[: _MAX_TOPIC_CHARACTERS + 1])
        if letter == "." and at and len(line_key) <= _MAX_KEY_CHARACTERS
    ]
    meant = [(topic, key) for topic, key in splits if key in _TOPIC_KEYS and TOPIC_NAME.match(topic)]
    here = [(topic, key) for topic, key in meant if topic in topics]
    if len(here) > 1:
        warnings.append(f"{CLEANER_TOPICS}: {line_key} is taken as {here[0][1]} of topic {here[0][0]}")
    for candidates in (here, meant):
        if candidates:
            return candidates[0]
    for topic, key in splits:
        if topic in topics:
            refuse_slip(key, _TOPIC_KEYS)
    warnings.append(f"{CLEANER_TOPICS}: {shortened(line_key)} is not a topic setting: ignored")
    return None


def split_by_table(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """
    Split the keys of a `--config` file into those with a topic setting's own name, and the broker's.

    `compression.type` is both and counts as the broker's, so that a plain `server.properties` has no topic settings.
    """
    of_broker = {key: text for key, text in values.items() if key in SETTING_OF_SYNONYM or key in BROKER_SETTINGS}
    of_topics = {key: text for key, text in values.items() if key in TOPIC_SETTINGS and key not in of_broker}
    return of_topics, of_broker
