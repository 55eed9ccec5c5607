"""
The settings of a process, read together: every value with its origin, all mistakes at once.

A daemon's start and a reload begin with `load_settings`; `take_over` decides which new values count at run time.
Nothing here changes any state, so a reload is all or nothing: either it raises, or its result replaces the old
settings.

A cluster's dynamic broker settings are not read here: they are found per log dir, and the daemon's threads and buffers
belong to no broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.base.mistakes import Mistakes
from cleaner.base.properties import parse_properties
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import ConfigError
from cleaner.settings.config_watch import fingerprint
from cleaner.settings.environment import read_known_variables
from cleaner.settings.files import check_topics_dir, read_config_bytes
from cleaner.settings.given import DEFAULT, Given, GivenSettings
from cleaner.settings.sources import SetOption, Sources
from cleaner.state.state_dir import require_outside_log_dirs
from cleaner.storage.fs.file_system import FileSystem, once_each, real_path


@dataclass(frozen=True)
class Loaded:
    """
    Valid settings.

    Attributes:
        file: the `--config` file; None: none.
        fingerprint: of its content, for `ConfigWatch`.
        sources: for `SettingsResolver` and `FollowedSettings`.
        config: the settings of the process.
        values: every setting with its origin; topic settings as they are for topics without their own.
        warnings: for the operator.
    """

    file: Path | None
    fingerprint: bytes
    sources: Sources
    config: CleanerConfig
    values: Mapping[str, Given]
    warnings: tuple[str, ...]

    @property
    def log_dirs(self) -> tuple[Path, ...]:
        """The log dirs, links followed, each once."""
        return tuple(map(real_path, once_each(map(Path, self.config.log_dirs))))

    @property
    def log_dir_rates(self) -> dict[Path, float]:
        """The speed limits of single log dirs, bytes a second."""
        return {real_path(Path(path)): rate for path, rate in self.config.log_dir_io_max_bytes_per_second}

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """Return key, value and origin, by key."""
        return tuple((key, *self.values[key]) for key in sorted(self.values))


@dataclass(frozen=True)
class TakenOver:
    """
    The result of a reload.

    Attributes:
        loaded: the settings in force now: the new ones, except that those that need a restart keep their old values.
        changed: keys with a new value in force.
        needs_restart: keys with a new value that takes effect after a restart.
    """

    loaded: Loaded
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def load_settings(
    config_file: Path | None,
    sets: Sequence[SetOption],
    environment: Mapping[str, str],
    *,
    topics_dir: Path | None = None,
    metadata_dir: Path | None = None,
    log_dirs: Sequence[Path] = (),
    trust_default_policy: bool = False,
    values: Mapping[str, str] | None = None,
    fs: FileSystem | None = None,
) -> Loaded:
    """
    Read and check all settings of a process.

    Args:
        config_file: `--config`.
        sets: `--set`.
        environment: `os.environ`.
        topics_dir, metadata_dir: the options of these names.
        log_dirs: those the command names; if empty, those of `log.dirs`.
        trust_default_policy: the option of this name.
        values: settings of a library call, which count as if they were in the file.
        fs: the file system.
    Raises:
        ConfigError: all mistakes in one; files of single topics are read when the topic is needed.
    """
    fs = fs or FileSystem()
    mistakes = Mistakes()
    data, config = _read_file(fs, config_file, mistakes)
    config = {**config, **(values or {})}
    variables = read_known_variables(environment, mistakes)
    sources = Sources(config, tuple(sets), topics_dir, metadata_dir, trust_default_policy, variables)
    given = GivenSettings(sources, mistakes)
    _check_directories(fs, given, log_dirs, mistakes)
    loaded = _load(config_file, fingerprint(data), sources, given, mistakes)
    mistakes.raise_any()
    assert loaded is not None  # noqa: S101 - without it there is a mistake
    return loaded


def configured_topics_dir(
    config_file: Path | None, sets: Sequence[SetOption], environment: Mapping[str, str], fs: FileSystem
) -> Path | None:
    """Return `cleaner.topics.dir` even if other settings are invalid: its files can still be checked."""
    unreported = Mistakes()
    _, config = _read_file(fs, config_file, unreported)
    sources = Sources(config, tuple(sets), environment=read_known_variables(environment, unreported))
    return GivenSettings(sources, unreported).topics_dir


def take_over(running: Loaded, new: Loaded) -> TakenOver:
    """
    Return the settings in force after a reload.

    Args:
        running: the settings in force now.
        new: the settings just read.
    Raises:
        ConfigError: the new values do not go together with the old ones that need a restart.
    """
    differing = [key for key, value in new.values.items() if value.text != running.values[key].text]
    fixed = {key for key, setting in BROKER_SETTINGS.items() if not setting.dynamic}
    sources = replace(
        new.sources,
        config={**_without(new.sources.config, fixed), **_only(running.sources.config, fixed)},
        environment={**_without(new.sources.environment, fixed), **_only(running.sources.environment, fixed)},
        sets=(
            *(option for option in running.sources.sets if option.key in fixed),
            *(option for option in new.sources.sets if option.key not in fixed),
        ),
    )
    mistakes = Mistakes()
    loaded = _load(new.file, new.fingerprint, sources, GivenSettings(sources, mistakes), mistakes)
    mistakes.raise_any()
    assert loaded is not None  # noqa: S101 - without it there is a mistake
    return TakenOver(
        loaded=loaded,
        changed=tuple(sorted(key for key in differing if key not in fixed)),
        needs_restart=tuple(sorted(key for key in differing if key in fixed)),
    )


def _read_file(fs: FileSystem, file: Path | None, mistakes: Mistakes) -> tuple[bytes, Mapping[str, str]]:
    """Return content and settings of the `--config` file."""
    data = b""
    if file is not None:
        with mistakes.collected():
            data = read_config_bytes(fs, file)
            return data, parse_properties(data, str(file))
    return data, {}


def _load(
    file: Path | None, content: bytes, sources: Sources, given: GivenSettings, mistakes: Mistakes
) -> Loaded | None:
    """Convert the given settings to values; None if there is a mistake."""
    with mistakes.collected():
        TopicConfig.from_mapping({key: value.text for key, value in given.topic_defaults(mistakes).items()})
    try:
        config = given.cleaner_config({})
        warnings = (*given.warnings, *config.warnings)
        return Loaded(file, content, sources, config, _with_defaults(given), warnings)
    except ConfigError as error:
        mistakes.add(error)
        return None


def _check_directories(fs: FileSystem, given: GivenSettings, log_dirs: Sequence[Path], mistakes: Mistakes) -> None:
    """Check the places of directories, even if other settings are wrong."""
    values = _with_defaults(given)
    named = [text.strip() for text in (values["log.dirs"].text or values["log.dir"].text).split(",") if text.strip()]
    if values["log.dirs"].origin == values["log.dir"].origin == DEFAULT:
        named = []
    state_dir = values["cleaner.state.dir"].text
    for log_dir in log_dirs or [Path(text) for text in named] if state_dir else ():
        with mistakes.collected():
            require_outside_log_dirs(Path(state_dir), [log_dir])
    if given.topics_dir is not None:
        with mistakes.collected():
            check_topics_dir(fs, given.topics_dir, given.topics_dir_key)


def _with_defaults(given: GivenSettings) -> dict[str, Given]:
    settings = {**BROKER_SETTINGS, **TOPIC_SETTINGS}
    values = {key: Given(setting.default or "", DEFAULT) for key, setting in settings.items()}
    unreported = Mistakes()
    for key, value in {**given.process_values({}), **given.topic_defaults(unreported)}.items():
        with unreported.collected():  # the reader of their values reports it
            values[key] = Given(settings[key].canonical(value.text), value.origin)
    return values


def _only(values: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    return {key: text for key, text in values.items() if key in keys}


def _without(values: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    return {key: text for key, text in values.items() if key not in keys}
