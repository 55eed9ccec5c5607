"""Checks all settings that a daemon would ever read, without changing or locking anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.app.configuration import Loaded
from cleaner.base.mistakes import Mistakes
from cleaner.base.model import TopicPartition
from cleaner.config.read import check_topic_keys
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import CleanerError, ConfigError
from cleaner.policy.selection_context import DirCondition, LogDirFacts
from cleaner.settings import ResolvedTopic, SettingsResolver
from cleaner.settings.files import read_config_file
from cleaner.settings.layers import Layer, LayerScope, check_values
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, once_each
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import PARTITION_METADATA
from cleaner.storage.which_dir import Nature, nature_of, require_log_dir, why_no_log_dir

_SUFFIX = ".properties"


@dataclass(frozen=True)
class CheckedSettings:
    """
    The result of a check.

    Attributes:
        log_dirs: the existing ones.
        topics: how many topics they have.
        warnings: for the operator.
    """

    log_dirs: tuple[Path, ...]
    topics: int
    warnings: tuple[str, ...]


def check_topic_files(fs: FileSystem, topics_dir: Path, mistakes: Mistakes) -> None:
    """Check every `<topic>.properties` of a directory, including those of topics that do not exist yet."""
    try:
        names = fs.list_dir(topics_dir)
    except (OSError, CleanerError):
        return  # reported already
    for name in names:
        if not name.endswith(_SUFFIX) or name.startswith("."):
            continue
        path = topics_dir / name
        found = Mistakes()
        values: Mapping[str, str] = {}
        with mistakes.collected():
            values = read_config_file(fs, path)
        with found.collected():
            check_topic_keys(values)
        with found.collected():
            check_values(Layer(str(path), LayerScope.TOPIC, values))
        if not found.all():
            with found.collected():
                TopicConfig.from_mapping(values)
        for mistake in found.all():
            names_path = str(path) in mistake.reason
            mistakes.add(mistake if names_path else _with_source(mistake, str(path)))


def check_places(fs: FileSystem, config: CleanerConfig, mistakes: Mistakes) -> list[str]:
    """
    Check the directories of `log.dirs`, as a daemon does before it starts.

    Args:
        fs: the file system.
        config: the settings of the process.
        mistakes: receives the reasons for which a start is refused.
    Returns:
        Warnings that do not prevent a start: a directory that the daemon waits for, or one that does not answer now.
    """
    warnings = []
    for path in once_each(map(Path, config.log_dirs)):
        try:
            nature, reason = nature_of(fs, path), why_no_log_dir(fs, path)
        except CleanerError as error:
            warnings.append(str(error))
            continue
        if nature is Nature.MISSING and config.log_dirs_wait:
            warnings.append(f"{path}: {reason}; the daemon waits for it (cleaner.log.dirs.wait)")
        elif nature is Nature.MISSING:
            what = "mount or create it, or set cleaner.log.dirs.wait=true to wait for it"
            mistakes.add(ConfigError("log.dirs", path, f"{reason}; {what}"))
        elif nature in (Nature.EMPTY, Nature.FOREIGN):
            warnings.append(f"{path}: {reason}")
        elif reason is not None:
            mistakes.add(ConfigError("log.dirs", path, reason))
    return warnings


def why_no_start(fs: FileSystem, settings: Loaded, known: Mapping[str, LogDirFacts]) -> tuple[str, ...]:
    """
    Say why a daemon with some settings would be refused if it started now.

    Args:
        fs: the file system.
        settings: those a start would read.
        known: by path, what is known of the log dirs that a running daemon has; these are not asked again, as their
            disks may hang.
    """
    config, mistakes = settings.config, Mistakes()
    unknown = tuple(str(path) for path in settings.log_dirs if str(path) not in known)
    check_places(fs, replace(config, log_dirs=unknown), mistakes)
    found = [f"a restart would be refused: {mistake}" for mistake in mistakes.all()]
    for path in () if config.log_dirs_wait else map(str, settings.log_dirs):
        if path in known and known[path].condition is DirCondition.OFFLINE:
            found.append(f"a restart would be refused if this is missing then: log.dirs={path}: {known[path].detail}")
    return tuple(found)


def check_log_dirs(fs: FileSystem, loaded: Loaded, log_dirs: Sequence[Path], mistakes: Mistakes) -> CheckedSettings:
    """
    Resolve the settings of every topic in the existing log dirs.

    Args:
        fs: the file system.
        loaded: the settings of the process.
        log_dirs: those to look at; if empty, those of the settings.
        mistakes: receives the mistakes.
    """
    warnings = list(loaded.warnings)
    for named in log_dirs:
        reason = why_no_log_dir(fs, named)
        if reason is not None:
            mistakes.add(ConfigError("--log-dir", named, reason))
    if not log_dirs:
        warnings += check_places(fs, loaded.config, mistakes)
        if not loaded.config.log_dirs:
            warnings.append("log.dirs is not set: the daemon does not start without it; commands with a log dir do")
    seen: list[Path] = []
    topics = 0
    for log_dir in once_each(log_dirs or map(Path, loaded.config.log_dirs)):
        if why_no_log_dir(fs, log_dir) is not None:
            continue
        seen.append(log_dir)
        with mistakes.collected():
            resolver = SettingsResolver(fs, log_dir, loaded.sources)
            warnings += resolver.warnings
            for topic, directory in _topics_of(fs, log_dir).items():
                topics += 1
                warnings += _check_topic(fs, resolver, topic, directory, mistakes)
    return CheckedSettings(tuple(seen), topics, tuple(dict.fromkeys(warnings)))


def resolve_topic(fs: FileSystem, loaded: Loaded, topic: str, log_dirs: Sequence[Path]) -> ResolvedTopic:
    """
    Return a topic's settings in the first log dir that has it, or its settings without a log dir.

    Raises:
        UsageError: a named directory is not a log dir.
        ConfigError: bad settings.
        CorruptCheckpointError: damaged metadata.
    """
    for named in log_dirs:
        require_log_dir(fs, named)
    for log_dir in log_dirs or [Path(text) for text in loaded.config.log_dirs]:
        directory = _topics_of(fs, log_dir).get(topic) if log_dir.is_dir() else None
        if directory is not None:
            topic_id = read_topic_id(fs, directory / PARTITION_METADATA)
            return SettingsResolver(fs, log_dir, loaded.sources).topic(topic, topic_id)
    return SettingsResolver(fs, None, loaded.sources).topic(topic, None)


def _check_topic(
    fs: FileSystem, resolver: SettingsResolver, topic: str, directory: Path, mistakes: Mistakes
) -> list[str]:
    """Resolve one topic; returns warnings."""
    try:
        resolved = resolver.topic(topic, read_topic_id(fs, directory / PARTITION_METADATA))
    except ConfigError as error:
        for mistake in error.mistakes:
            mistakes.add(_with_source(mistake, f"topic {topic}"))
        return []
    except CleanerError as error:
        return [str(error)]
    return [f"topic {topic}: {warning}" for warning in resolved.warnings]


def _with_source(mistake: ConfigError, source: str) -> ConfigError:
    return ConfigError(mistake.key, mistake.value, f"{mistake.reason} ({source})")


def _topics_of(fs: FileSystem, log_dir: Path) -> dict[str, Path]:
    """Return a partition directory of each topic."""
    found: dict[TopicPartition, Path] = LogDir(fs, log_dir).listing().current
    return {topic_partition.topic: directory for topic_partition, directory in sorted(found.items(), reverse=True)}
