"""The samples in `config/` are what they claim: every setting, at its default, and files a daemon takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cleaner.app.check_settings import check_topic_files
from cleaner.app.configuration import load_settings
from cleaner.base.mistakes import Mistakes
from cleaner.base.properties import parse_properties
from cleaner.config.table import BROKER_SETTINGS, SETTING_OF_SYNONYM, TOPIC_SETTINGS
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.settings import SettingsResolver
from cleaner.settings.internal_topics import INTERNAL_TOPICS
from cleaner.storage.fs.file_system import FileSystem

CONFIG = Path(__file__).parents[2] / "config"
SAMPLE = CONFIG / "cleaner.properties"
TOPIC_FILES = sorted((CONFIG / "topics").glob("*.properties"))

# What stands for a setting without a default.
EXAMPLES = {
    "log.dirs": "/var/lib/kafka",
    "cleaner.topics.dir": "/etc/cleaner/topics",
    "metadata.log.dir": "/var/lib/kafka/metadata",
    "node.id": "1",
    "broker.id": "1",
    "cleaner.pipeline.threads": "2",
    "cleaner.max.decompressed.batch.bytes": "67109632",
    "cleaner.log.dir.max.workers": "1",
    "cleaner.http.web.config.file": "/etc/cleaner/web.yml",
    "cleaner.bulk.work.dir": "/var/lib/cleaner/bulk",
    "cleaner.index.dir": "/var/lib/cleaner/key-index",
    "cleaner.control.socket": "/run/cleaner/control.sock",
    "internal.segment.bytes": "1048576",
}


def _lines() -> list[tuple[str, str]]:
    found = re.findall(r"^#([a-z][a-z.]*)=(.*)$", SAMPLE.read_text(), re.MULTILINE)
    return [(key, value) for key, value in found]


def _names() -> set[str]:
    """Return the names the sample has to have: of a topic setting the first of the broker's, where it has one."""
    of_topics = {s.synonyms[0].name if s.synonyms else s.name for s in TOPIC_SETTINGS.values()}
    return of_topics | set(BROKER_SETTINGS)


def test_sample_says_first_what_it_is_not_for() -> None:
    """Nobody may miss that a live broker's directory is out of bounds."""
    assert SAMPLE.read_text().splitlines()[0].startswith("# Not for a live broker's log directory")


def test_sample_has_every_setting_once_and_sets_none() -> None:
    """As a comment, so that the file as it is changes nothing."""
    keys = [key for key, _ in _lines()]
    assert len(keys) == len(set(keys))
    assert set(keys) == _names()
    assert parse_properties(SAMPLE.read_bytes(), "sample") == {}


@pytest.mark.parametrize(("key", "value"), _lines())
def test_setting_of_the_sample_shows_its_default(key: str, value: str) -> None:
    """In the table's own words; an example only where there is no default."""
    setting = BROKER_SETTINGS[key] if key in BROKER_SETTINGS else TOPIC_SETTINGS.get(key)
    if setting is None:
        setting, synonym = SETTING_OF_SYNONYM[key]
        assert synonym.factor == 1
    assert value == (EXAMPLES[key] if setting.default is None else setting.default)
    assert setting.default is None or key not in EXAMPLES


def test_sample_with_all_comment_signs_taken_away_is_taken() -> None:
    """Every line is a line the reader understands, and the defaults are the defaults."""
    values = dict(_lines())
    assert CleanerConfig.from_mapping(values).warnings == ()
    defaults = {key: value for key, value in values.items() if key not in EXAMPLES and key != "log.dir"}
    assert CleanerConfig.from_mapping(defaults) == CleanerConfig()
    of_topics = {SETTING_OF_SYNONYM[key][0].name: value for key, value in defaults.items() if key in SETTING_OF_SYNONYM}
    assert TopicConfig.from_mapping(of_topics) == TopicConfig()


def test_topic_samples_are_taken_and_trusted() -> None:
    """Each is a sound topic file, whose policy counts as said of the topic."""
    assert len(TOPIC_FILES) >= 3
    mistakes = Mistakes()
    check_topic_files(FileSystem(), CONFIG / "topics", mistakes)
    assert mistakes.all() == ()
    loaded = load_settings(SAMPLE, [], {}, topics_dir=CONFIG / "topics")
    resolver = SettingsResolver(FileSystem(), None, loaded.sources)
    for file in TOPIC_FILES:
        resolved = resolver.topic(file.stem, None)
        assert resolved.policy_trusted
        assert resolved.config.compact
        assert resolved.warnings == ()
        assert file.read_text().startswith("# ")


def test_sample_of_consumer_offsets_has_kafkas_own_settings() -> None:
    """It says so."""
    values = parse_properties((CONFIG / "topics" / "__consumer_offsets.properties").read_bytes(), "sample")
    own = INTERNAL_TOPICS["__consumer_offsets"].values
    assert {key: values[key] for key in own} == dict(own)
