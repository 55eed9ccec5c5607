"""Precedence of the sources of settings, and whose policy is trusted."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from cleaner.errors import ConfigError, CorruptCheckpointError
from cleaner.settings import ResolvedTopic, SettingsResolver
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem
from tests.golden.archive import unpack
from tests.support.metadata_builder import (
    BROKER,
    TOPIC,
    config_record,
    feature_record,
    partition_record,
    topic_record,
    write_segment,
)

ARCHIVE = Path(__file__).parents[2] / "golden" / "cluster-metadata.tar.xz"
FS = FileSystem()
ID, OTHER_ID = UUID(int=5), UUID(int=6)
COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir with one partition of topic `t`."""
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    return tmp_path / "logs"


def _resolver(
    log_dir: Path,
    config: dict[str, str] | None = None,
    sets: list[str] | None = None,
    topics_dir: Path | None = None,
    metadata_dir: Path | None = None,
) -> SettingsResolver:
    options = tuple(SetOption.parse(text) for text in sets or [])
    return SettingsResolver(FS, log_dir, Sources(config or {}, options, topics_dir, metadata_dir))


def _metadata(log_dir: Path, *values: bytes, topic: str = "t") -> None:
    write_segment(log_dir / "__cluster_metadata-0", 0, [[topic_record(topic, ID), *values]])


def _set_topic(key: str, value: str, topic: str = "t") -> bytes:
    return config_record(TOPIC, topic, key, value)


def _set_broker(node: str, key: str, value: str) -> bytes:
    return config_record(BROKER, node, key, value)


def test_settings_take_the_first_source_that_has_them(log_dir: Path, tmp_path: Path) -> None:
    """Each source wins over all behind it: the issue's list, taken away from the front one by one."""
    topics_dir = tmp_path / "topics"
    topics_dir.mkdir()
    (topics_dir / "t.properties").write_text("segment.ms=3\n")
    (log_dir / "cleaner-topics.properties").write_text("t.segment.ms=4\n")
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    metadata = [
        _set_topic("segment.ms", "6"),
        _set_broker("7", "log.roll.ms", "7"),
        _set_broker("", "log.roll.ms", "8"),
        _set_broker("8", "log.roll.ms", "666"),
    ]
    _metadata(log_dir, *metadata)
    sets = ["t:segment.ms=1", "segment.ms=2"]
    config = {"segment.ms": "5", "log.roll.ms": "9", "log.roll.hours": "1"}

    def found() -> tuple[int, str | None]:
        resolved = _resolver(log_dir, config, sets, topics_dir).topic("t", ID)
        return resolved.config.segment_ms, resolved.origins.get("segment.ms")

    assert found() == (1, "--set t:")
    sets.pop(0)
    assert found() == (2, "--set")
    sets.clear()
    assert found() == (3, str(topics_dir / "t.properties"))
    (topics_dir / "t.properties").unlink()
    assert found() == (4, "cleaner-topics.properties")
    (log_dir / "cleaner-topics.properties").unlink()
    assert found() == (5, "--config")
    del config["segment.ms"]
    for value, origin in ((6, "cluster metadata"), (7, "cluster metadata (broker 7)")):
        assert found() == (value, origin)
        metadata.pop(0)
        _metadata(log_dir, *metadata)
    assert found() == (8, "cluster metadata (all brokers)")
    _metadata(log_dir)
    assert found() == (9, "--config (broker settings)")
    del config["log.roll.ms"]
    assert found() == (3_600_000, "--config (broker settings)")
    config.clear()
    assert found() == (604_800_000, None)


@pytest.mark.parametrize(
    ("topic_id", "is_used", "warning"),
    [
        pytest.param(ID, True, None, id="same"),
        pytest.param(OTHER_ID, False, "its settings there are not used", id="other"),
        pytest.param(None, False, "partition.metadata none", id="none"),
    ],
)
def test_metadata_counts_only_for_the_topic_id_of_the_partition(
    log_dir: Path, topic_id: UUID | None, is_used: bool, warning: str | None
) -> None:
    """A topic that merely has the name of one in the metadata has none of its settings."""
    _metadata(log_dir, _set_topic("cleanup.policy", "compact"))
    resolved = _resolver(log_dir).topic("t", topic_id)
    assert resolved.config.compact is is_used
    assert any(warning in text for text in resolved.warnings) if warning else resolved.warnings == ()


def test_topic_the_metadata_does_not_know_warns(log_dir: Path) -> None:
    """A removed topic's directory is named as such."""
    _metadata(log_dir, topic="other")
    assert any("does not have this topic" in text for text in _resolver(log_dir).topic("t", ID).warnings)


def test_metadata_is_found_in_the_configured_directory(log_dir: Path, tmp_path: Path) -> None:
    """`--metadata-dir` goes before `metadata.log.dir`, that before the log dir, that before the first of `log.dirs`."""
    places = {}
    for number, name in enumerate(("given", "configured", "first"), 1):
        places[name] = tmp_path / name
        _metadata(places[name], _set_topic("segment.ms", str(number)))
    _metadata(log_dir, _set_topic("segment.ms", "4"))
    first = {"log.dirs": f"{places['first']},/elsewhere"}
    configured = {**first, "metadata.log.dir": str(places["configured"])}

    def segment_ms(config: dict[str, str], given: Path | None = None) -> int:
        return _resolver(log_dir, config, metadata_dir=given).topic("t", ID).config.segment_ms

    assert segment_ms(configured, places["given"]) == 1
    assert segment_ms(configured) == 2
    assert segment_ms(first) == 4
    (log_dir / "__cluster_metadata-0" / f"{0:020}.log").unlink()
    (log_dir / "__cluster_metadata-0").rmdir()
    assert segment_ms(first) == 3
    with pytest.raises(ConfigError, match="no metadata log in it"):
        _resolver(log_dir, metadata_dir=tmp_path / "absent")


def test_replicas_come_from_the_metadata_then_from_what_the_broker_makes_topics_with(log_dir: Path) -> None:
    """The most of any partition of this very topic; without metadata the broker's setting for it, then for all."""
    config = {"default.replication.factor": "2", "offsets.topic.replication.factor": "3"}

    def found(topic: str, topic_id: UUID | None = ID) -> tuple[int | None, str]:
        resolved = _resolver(log_dir, config).topic(topic, topic_id)
        return resolved.replicas, resolved.replicas_origin

    assert found("t") == (2, "default.replication.factor")
    assert found("__consumer_offsets") == (3, "offsets.topic.replication.factor")
    _metadata(log_dir, partition_record(ID, 0, [1]), partition_record(ID, 1, [1, 2, 3, 4]))
    assert found("t") == (4, "cluster metadata")
    assert found("t", None) == (2, "default.replication.factor")
    config.clear()
    assert found("t", None) == (None, "")


def test_damaged_metadata_is_refused(log_dir: Path) -> None:
    """Settings that cannot be read are not guessed."""
    (log_dir / "__cluster_metadata-0").mkdir()
    (log_dir / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(b"x" * 500)
    with pytest.raises(CorruptCheckpointError):
        _resolver(log_dir)


@pytest.mark.parametrize(
    ("sets", "config", "is_trusted", "is_unscoped"),
    [
        pytest.param(["t:cleanup.policy=compact"], {}, True, False, id="set-with-topic"),
        pytest.param(["cleanup.policy=compact"], {}, False, True, id="set-without-topic"),
        pytest.param(["log.cleanup.policy=compact"], {}, False, True, id="set-broker-name"),
        pytest.param([], COMPACT, False, False, id="config-topic-name"),
        pytest.param([], {"log.cleanup.policy": "compact"}, False, False, id="config-broker-name"),
    ],
)
def test_policy_set_for_all_topics_is_not_trusted(
    log_dir: Path, sets: list[str], config: dict[str, str], is_trusted: bool, is_unscoped: bool
) -> None:
    """Only who names the topic is believed to mean it."""
    resolved = _resolver(log_dir, config, sets).topic("t", ID)
    assert resolved.config.compact
    assert (resolved.policy_trusted, resolved.policy_is_unscoped_set) == (is_trusted, is_unscoped)


def test_policy_of_files_about_the_topic_is_trusted(log_dir: Path, tmp_path: Path) -> None:
    """`--topics-dir` and `cleaner-topics.properties` speak of one topic."""
    (tmp_path / "t.properties").write_text("cleanup.policy=compact\n")
    assert _resolver(log_dir, topics_dir=tmp_path).topic("t", None).policy_trusted
    (log_dir / "cleaner-topics.properties").write_text("t.cleanup.policy=compact\n")
    assert _resolver(log_dir).topic("t", None).policy_trusted
    assert not _resolver(log_dir, COMPACT).topic("u", None).policy_trusted


def test_default_policy_is_trusted_once_the_metadata_knows_the_topic(log_dir: Path) -> None:
    """A topic without a policy of its own has the broker's, and then that is a fact."""
    config = {"log.cleanup.policy": "compact"}
    _metadata(log_dir)
    resolved = _resolver(log_dir, config).topic("t", ID)
    assert (resolved.config.compact, resolved.policy_trusted) == (True, True)
    assert not _resolver(log_dir, config).topic("t", OTHER_ID).policy_trusted
    assert not _resolver(log_dir).topic("t", OTHER_ID).policy_trusted
    assert not _resolver(log_dir, {**config, **COMPACT}).topic("t", ID).policy_trusted


@pytest.mark.parametrize(
    ("topic", "compact", "key"),
    [
        ("__consumer_offsets", True, "offsets.topic.segment.bytes"),
        ("__transaction_state", True, "transaction.state.log.segment.bytes"),
        ("__share_group_state", False, "share.coordinator.state.topic.segment.bytes"),
    ],
)
def test_internal_topic_without_metadata_has_settings_of_its_own(
    log_dir: Path, topic: str, compact: bool, key: str
) -> None:
    """Kafka's coordinators ask for 100 MiB segments, or what the broker setting says, and for their policy."""
    resolved = _resolver(log_dir).topic(topic, None)
    assert (resolved.config.compact, resolved.config.segment_bytes) == (compact, 104_857_600)
    assert resolved.policy_trusted
    given = _resolver(log_dir, {key: "5000000", "log.segment.bytes": "7000000"}).topic(topic, None)
    assert given.config.segment_bytes == 5_000_000


def test_broker_settings_go_before_those_of_internal_topics_with_a_warning(log_dir: Path) -> None:
    """The order of the sources holds for internal topics too; where it differs from a broker's, that is said."""
    resolved = _resolver(log_dir, {"log.segment.bytes": "7000000"}).topic("__consumer_offsets", None)
    assert resolved.config.segment_bytes == 7_000_000
    assert any("Kafka's own for this topic is 104857600" in text for text in resolved.warnings)


def test_process_settings_come_from_set_metadata_and_config(log_dir: Path) -> None:
    """`--set` wins over the cluster's dynamic settings, these over the file; what is not dynamic does not count."""
    _metadata(
        log_dir,
        _set_broker("", "log.cleaner.threads", "3"),
        _set_broker("", "log.cleaner.backoff.ms", "3"),
        _set_broker("", "log.retention.check.interval.ms", "3"),
        _set_broker("4", "log.cleaner.backoff.ms", "4"),
    )
    config = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "1", "message.max.bytes": "1", "node.id": "4"}
    resolver = _resolver(log_dir, config, ["log.cleaner.threads=9", "message.max.bytes=99"])
    found = resolver.cleaner
    assert (found.threads, found.backoff_ms, found.message_max_bytes) == (9, 4, 99)
    assert found.retention_check_interval_ms == 300_000
    resolved = resolver.topic("t", ID)
    assert (resolved.config.max_message_bytes, resolved.origins["max.message.bytes"]) == (99, "--set")


@pytest.mark.parametrize(
    ("sets", "config", "message"),
    [
        (["t:cleanup.polcy=compact"], {}, r"did you mean cleanup\.policy"),
        (["other:cleanup.polcy=compact"], {}, r"did you mean cleanup\.policy"),
        (["log.cleaner.thread=2"], {}, r"did you mean log\.cleaner\.threads"),
        ([], {"cleanup.polcy": "compact"}, r"did you mean cleanup\.policy"),
        (["segment.ms=0"], {}, r"segment\.ms=0: must be at least 1 \(--set\)"),
        ([], {"log.roll.ms": "0"}, r"log\.roll\.ms=0: must be at least 1 \(--config"),
    ],
)
def test_bad_setting_of_any_topic_is_refused_at_once(
    log_dir: Path, sets: list[str], config: dict[str, str], message: str
) -> None:
    """A slip or bad value in a source of all topics is found before any topic is asked for."""
    with pytest.raises(ConfigError, match=message):
        _resolver(log_dir, config, sets)


def test_bad_setting_in_a_topic_source_names_it(log_dir: Path, tmp_path: Path) -> None:
    """The file of a topic is named in the error."""
    (tmp_path / "t.properties").write_text("segment.ms=x\n")
    resolver = _resolver(log_dir, topics_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"segment\.ms=x: must be a whole number \(long\) \(.*t\.properties\)"):
        resolver.topic("t", None)
    assert resolver.topic("u", None).config.segment_ms == 604_800_000


def test_lags_from_two_sources_are_checked_against_each_other(log_dir: Path) -> None:
    """Sound values of two sources may still not go together."""
    resolver = _resolver(log_dir, {"log.cleaner.max.compaction.lag.ms": "5"}, ["t:min.compaction.lag.ms=6"])
    with pytest.raises(ConfigError, match=r"must not be above max\.compaction\.lag\.ms \(5\)"):
        resolver.topic("t", None)


def test_odd_settings_draw_warnings(log_dir: Path) -> None:
    """Unknown names, missing topics and an ignored segment.bytes are reported."""
    config = {"internal.segment.bytes": "500"}
    resolver = _resolver(log_dir, config, ["colour=red", "absent:segment.ms=1", "t:segment.bytes=2000000"])
    assert any("colour" in text for text in resolver.warnings)
    assert any("absent" in text for text in resolver.warnings)
    resolved = resolver.topic("t", None)
    assert resolved.config.segment_bytes == 500
    assert any("is ignored, because of internal.segment.bytes" in text for text in resolved.warnings)


def test_topics_dir_that_is_missing_is_refused(log_dir: Path, tmp_path: Path) -> None:
    """A directory named but absent is an error, not an empty one."""
    with pytest.raises(ConfigError, match="No such file or directory"):
        _resolver(log_dir, topics_dir=tmp_path / "absent")


def test_settings_of_a_real_broker_are_those_it_used(tmp_path: Path) -> None:
    """A broker's log dir gives each topic the settings that the broker had for it."""
    unpack(ARCHIVE, tmp_path)
    log_dir = tmp_path / "stopped"
    resolver = _resolver(log_dir, {"log.cleanup.policy": "compact"})

    def topic(name: str) -> ResolvedTopic:
        return resolver.topic(name, read_topic_id(FS, log_dir / f"{name}-0" / "partition.metadata"))

    prices = topic("prices").config
    assert (prices.min_cleanable_dirty_ratio, prices.delete_retention_ms) == (0.2, 60_000)
    assert (prices.segment_bytes, prices.segment_ms) == (1_048_576, 3_600_000)
    assert topic("orders.delete").config.cleanup_policy == {"compact", "delete"}
    assert topic("orders.delete").config.retention_ms == 604_800_000
    assert topic("again").config.cleanup_policy == {"delete"}
    assert topic("plain").config.delete_retention_ms == 7_200_000
    assert (topic("plain").config.compact, topic("plain").policy_trusted) == (True, True)
    assert topic("__consumer_offsets").config.segment_bytes == 52_428_800
    assert topic("__share_group_state").config.retention_ms == -1
    assert (resolver.cleaner.threads, resolver.cleaner.dedupe_buffer_size) == (2, 67_108_864)
    assert resolver.warnings == []


def test_environment_has_precedence_over_the_file_but_not_the_command_line(log_dir: Path, tmp_path: Path) -> None:
    """Of topics as of the process; files that name a topic still win, the cluster's word on brokers does not."""
    _metadata(log_dir, _set_broker("", "log.cleaner.threads", "3"), _set_broker("", "log.roll.ms", "3"))
    environment = {"log.cleaner.threads": "4", "log.roll.ms": "4", "log.cleaner.backoff.ms": "4"}
    config = {"log.cleaner.threads": "5", "log.roll.ms": "5", "retention.ms": "5", "log.cleaner.backoff.ms": "5"}
    sets = (SetOption(None, "log.cleaner.backoff.ms", "6"),)

    def resolver(environment: dict[str, str]) -> SettingsResolver:
        return SettingsResolver(FS, log_dir, Sources(config, sets, environment=environment))

    found = resolver(environment)
    assert (found.cleaner.threads, found.cleaner.backoff_ms) == (4, 6)
    assert found.process_values["log.cleaner.threads"] == ("4", "environment (CLEANER_LOG_CLEANER_THREADS)")
    topic = found.topic("t", ID)
    assert (topic.config.segment_ms, topic.origins["segment.ms"]) == (4, "environment (broker settings)")
    named = resolver({"retention.ms": "7"}).topic("t", ID)
    assert (named.config.retention_ms, named.origins["retention.ms"]) == (7, "environment")
    (log_dir / "cleaner-topics.properties").write_text("t.retention.ms=8\n")
    assert resolver({"retention.ms": "7"}).topic("t", ID).config.retention_ms == 8


def test_topics_dir_of_the_settings_is_read_unless_the_command_names_one(log_dir: Path, tmp_path: Path) -> None:
    """`cleaner.topics.dir` is used without `--topics-dir`."""
    for name, value in (("configured", "1"), ("given", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.properties").write_text(f"segment.ms={value}\n")
    config = {"cleaner.topics.dir": str(tmp_path / "configured")}
    assert _resolver(log_dir, config).topic("t", None).config.segment_ms == 1
    assert _resolver(log_dir, config, topics_dir=tmp_path / "given").topic("t", None).config.segment_ms == 2
    with pytest.raises(ConfigError, match="No such file or directory"):
        _resolver(log_dir, {"cleaner.topics.dir": str(tmp_path / "absent")})


def test_all_mistakes_of_all_sources_are_reported_together(log_dir: Path, tmp_path: Path) -> None:
    """Each with who says so."""
    (log_dir / "cleaner-topics.properties").write_text("t.segmnt.ms=7\n")
    config = {"log.cleaner.threads": "0", "cleanup.policy": "x", "message.max.bytes": "y"}
    with pytest.raises(ConfigError) as caught:
        _resolver(log_dir, config, ["segment.ms=0", "t:retntion.ms=5"], topics_dir=tmp_path / "absent")
    assert {(mistake.key, str(mistake.value)) for mistake in caught.value.mistakes} == {
        ("log.cleaner.threads", "0"),
        ("cleanup.policy", "x"),
        ("message.max.bytes", "y"),
        ("segment.ms", "0"),
        ("retntion.ms", "None"),
        ("segmnt.ms", "None"),
        ("--topics-dir", str(tmp_path / "absent")),
    }
    assert any("threads=0: must be at least 1 (--config)" in str(mistake) for mistake in caught.value.mistakes)


@pytest.mark.parametrize(("level", "expected"), [(30, "4.3"), (33, "4.4"), (34, "4.4")])
def test_kafka_version_is_that_of_the_cluster_metadata(log_dir: Path, level: int, expected: str) -> None:
    """`auto` goes by the finalized level; a level beyond the known ones gives a warning."""
    _metadata(log_dir, feature_record("metadata.version", level))
    found = _resolver(log_dir)
    assert found.kafka.version.name == expected
    assert str(level) in found.kafka.origin
    assert any("newer than Kafka" in warning for warning in found.warnings) is (level > 33)
    assert found.topic("t", ID).kafka == found.kafka


def test_kafka_version_given_wins_over_the_metadata(log_dir: Path) -> None:
    """The setting counts wherever a setting of the process may be given; its source is named."""
    _metadata(log_dir, feature_record("metadata.version", 33))
    assert _resolver(log_dir, {"cleaner.kafka.version": "4.3"}).kafka.version.name == "4.3"
    chosen = _resolver(log_dir, sets=["cleaner.kafka.version=4.3"]).kafka
    assert (chosen.version.name, chosen.origin) == ("4.3", "--set")
    with pytest.raises(ConfigError, match=r"one of auto, 4\.3, 4\.4"):
        _resolver(log_dir, {"cleaner.kafka.version": "3.9"})


def test_kafka_version_without_metadata_is_the_oldest_and_says_so(log_dir: Path) -> None:
    """Nothing is guessed: the rules of 4.3, with the reason."""
    assert "no metadata.version" in _resolver(log_dir).kafka.origin
    assert _resolver(log_dir).kafka.version.name == "4.3"


def test_setting_of_the_process_cannot_be_given_to_one_topic(log_dir: Path) -> None:
    """It would be ignored; a broker's name of a topic setting still means the topic's."""
    with pytest.raises(ConfigError, match=r"cleaner\.kafka\.version=4\.3: is a setting of the process: --set"):
        _resolver(log_dir, sets=["t:cleaner.kafka.version=4.3"])
    found = _resolver(log_dir, sets=["t:message.max.bytes=77"]).topic("t", None)
    assert found.config.max_message_bytes == 77
