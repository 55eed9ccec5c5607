"""Settings: read, bounded and named as Kafka does."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cleaner.cli.settings_document import document
from cleaner.config.definition import Setting, settings_of
from cleaner.config.table import BROKER_SETTINGS, TOPIC_SETTINGS, UNUSED_TOPIC_KEYS
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import ConfigError, ConfigErrors
from cleaner.settings.cluster import DYNAMIC_BROKER_KEYS

ROOT = Path(__file__).parents[3]
# Name, type, default and validator of settings, and synonyms of topic settings, printed by Kafka 4.4.0's own
# ConfigDef and ServerTopicConfigSynonyms. 4.3.1 prints the same without the four topic settings that came after it.
KAFKA_SETTINGS = ROOT / "tests" / "golden" / "kafka-settings.tsv"


def _kafka_rows(kind: str) -> dict[str, list[str]]:
    rows = [line.split("\t") for line in KAFKA_SETTINGS.read_text().splitlines()]
    return {name: rest for row_kind, name, *rest in rows if row_kind == kind}


def _validator(setting: Setting) -> str:
    low = setting.kafka_minimum if setting.kafka_minimum is not None else setting.minimum
    if setting.choices:
        return f"[{', '.join(setting.choices)}]"
    if low is None:
        return "null"
    return f"[{low},...]" if setting.maximum is None else f"[{low},...,{setting.maximum}]"


OF_KAFKA = {name for name in TOPIC_SETTINGS if not name.startswith("cleaner.")}


@pytest.mark.parametrize("name", sorted(OF_KAFKA - {"internal.segment.bytes"}))
def test_topic_setting_in_table_equals_kafka_definition(name: str) -> None:
    """Type, default, bounds and broker names of a topic setting are those of Kafka 4.4.0 (R-802)."""
    setting = TOPIC_SETTINGS[name]
    kind, default, validator = _kafka_rows("topic")[name]
    assert (kind.lower(), default, validator) == (setting.kind, setting.default, _validator(setting))
    assert _kafka_rows("synonyms").get(name, []) == [synonym.name for synonym in setting.synonyms]


@pytest.mark.parametrize("name", sorted(name for name in BROKER_SETTINGS if not name.startswith("cleaner.")))
def test_broker_setting_in_table_has_type_and_default_of_kafka(name: str) -> None:
    """Type and default of a broker setting are those of Kafka 4.4.0 (R-801)."""
    setting = BROKER_SETTINGS[name]
    kind, default, _ = _kafka_rows("broker")[name]
    assert kind.lower() == setting.kind
    if name not in ("node.id", "broker.id"):  # no node id at all is "unknown" here
        expected = None if default in ("-", "null") else default
        assert expected == (setting.default.replace("e+", "E") if setting.default else None)


def test_topic_settings_are_all_that_kafka_has() -> None:
    """Every topic setting of Kafka 4.4.0 is either read or named as without meaning here."""
    assert set(_kafka_rows("topic")) == OF_KAFKA | UNUSED_TOPIC_KEYS


def test_configs_without_settings_have_the_defaults_of_the_table() -> None:
    """The defaults of the dataclasses and of the table are the same."""
    assert TopicConfig() == TopicConfig.from_mapping({})
    assert CleanerConfig() == CleanerConfig.from_mapping({})


@pytest.mark.parametrize(
    ("text", "compact", "delete"),
    [("compact", True, False), ("delete", False, True), (" compact , delete ", True, True), ("", False, False)],
)
def test_cleanup_policy_is_a_list(text: str, compact: bool, delete: bool) -> None:
    """Both policies may be given, in any order, or none (R-803)."""
    config = TopicConfig.from_mapping({"cleanup.policy": text})
    assert (config.compact, config.delete) == (compact, delete)


def test_cleanup_policy_with_duplicates_warns() -> None:
    """Duplicates are dropped with a warning (R-803)."""
    config = TopicConfig.from_mapping({"cleanup.policy": "compact,compact"})
    assert config.cleanup_policy == {"compact"}
    assert ["duplicates" in warning for warning in config.warnings] == [True]


@pytest.mark.parametrize(
    ("key", "value", "bound"),
    [
        ("cleanup.policy", "compact,", "each of compact, delete"),
        ("cleanup.policy", "Compact", "each of compact, delete"),
        ("min.cleanable.dirty.ratio", "1.01", "0 to 1"),
        ("min.cleanable.dirty.ratio", "NaN", "a number"),
        ("min.compaction.lag.ms", "-1", "at least 0"),
        ("max.compaction.lag.ms", "0", "at least 1"),
        ("segment.bytes", "2147483648", "must fit int"),
        ("segment.bytes", "1_000", "a whole number"),
        ("segment.ms", "1.5", "a whole number"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.bytes", "9223372036854775808", "must fit long"),
        ("segment.index.bytes", "3", "at least 4"),
        ("max.decompressed.message.bytes", "0", "1 to 2147483639"),
        ("max.decompressed.message.bytes", "2147483640", "1 to 2147483639"),
        ("preallocate", "yes", "true or false"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("log.retention.ms", "0", "-1 (unlimited) or at least 1"),
    ],
)
def test_topic_setting_out_of_bounds_is_refused(key: str, value: str, bound: str) -> None:
    """A bad value fails with key, value and bound, and with exit code 78."""
    with pytest.raises(ConfigError) as caught:
        TopicConfig.from_mapping({key: value})
    error = caught.value
    assert (error.key, str(error.value), error.exit_code) == (key, value, 78)
    assert bound in error.reason


def test_min_lag_above_max_lag_is_refused() -> None:
    """The two lags are checked against each other (R-802)."""
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms=11: must not be above .* \(10\)"):
        TopicConfig.from_mapping({"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"})


@pytest.mark.parametrize(
    ("settings", "field", "expected"),
    [
        pytest.param({"log.roll.hours": "2"}, "segment_ms", 7_200_000, id="hours"),
        pytest.param({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment_ms", 5, id="ms-before-hours"),
        pytest.param({"log.roll.ms": "5", "segment.ms": "6"}, "segment_ms", 6, id="own-name-first"),
        pytest.param({"log.retention.minutes": "3"}, "retention_ms", 180_000, id="minutes"),
        pytest.param({"log.retention.hours": "-7"}, "retention_ms", -1, id="negative-hours"),
        pytest.param({"log.retention.ms": "-7"}, "retention_ms", -1, id="negative-ms"),
        pytest.param({"log.cleaner.min.cleanable.ratio": "0.25"}, "min_cleanable_dirty_ratio", 0.25, id="ratio"),
        pytest.param({"message.max.bytes": "77"}, "max_message_bytes", 77, id="max-bytes"),
    ],
)
def test_broker_name_on_topic_is_converted_with_note(settings: dict[str, str], field: str, expected: float) -> None:
    """A broker's name is taken as the topic setting, in the topic's unit (R-802, R-805), with a note."""
    config = TopicConfig.from_mapping(settings)
    assert expected == getattr(config, field)
    assert any("is a broker's name" in warning for warning in config.warnings)


def test_internal_segment_bytes_replaces_segment_bytes() -> None:
    """`internal.segment.bytes` counts where it is set (R-807), without Kafka's bound."""
    config = TopicConfig.from_mapping({"segment.bytes": "2097152", "internal.segment.bytes": "500"})
    assert (config.segment_bytes, config.warnings) == (500, ())


def test_segment_bytes_below_kafka_minimum_only_warns() -> None:
    """A bound Kafka puts on the setting but not on files is a warning."""
    config = TopicConfig.from_mapping({"segment.bytes": "1000"})
    assert config.segment_bytes == 1000
    assert any("segment.bytes=1000" in warning for warning in config.warnings)


def test_max_segment_ms_of_compacted_topic_is_bounded_by_max_lag() -> None:
    """Only a compacted log rolls after the maximum lag (R-804)."""
    settings = {"segment.ms": "50", "max.compaction.lag.ms": "20"}
    assert TopicConfig.from_mapping(settings).max_segment_ms == 50
    assert TopicConfig.from_mapping({**settings, "cleanup.policy": "compact"}).max_segment_ms == 20


def test_compacted_topic_is_never_tiered() -> None:
    """Remote storage counts only without compact (R-808)."""
    assert TopicConfig.from_mapping({"remote.storage.enable": "true"}).is_tiered
    assert not TopicConfig.from_mapping({"remote.storage.enable": "true", "cleanup.policy": "compact"}).is_tiered


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("cleanup.polcy", "cleanup.policy"),
        ("Segment.Bytes", "segment.bytes"),
        ("retention_ms", "retention.ms"),
        ("log.cleaner.min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        ("cleaner.threads", "log.cleaner.threads"),
        ("log.cleaner.dedup.buffer.size", "log.cleaner.dedupe.buffer.size"),
        ("cleaner.trust.default.policies", "cleaner.trust.default.policy"),
    ],
)
def test_key_close_to_a_known_one_is_refused_naming_it(key: str, meant: str) -> None:
    """A slip is an error that names what was meant."""
    with pytest.raises(ConfigError, match=f"did you mean {meant}"):
        CleanerConfig.from_mapping({key: "1"})


def test_unknown_keys_far_from_known_ones_warn() -> None:
    """Other unknown names are passed over with a warning."""
    assert any("my.plugin.x" in warning for warning in CleanerConfig.from_mapping({"my.plugin.x": "1"}).warnings)
    assert any("my.plugin.x" in warning for warning in TopicConfig.from_mapping({"my.plugin.x": "1"}).warnings)


def test_every_key_of_kafka_draws_neither_error_nor_warning() -> None:
    """A real `server.properties`, of 4.x or 3.x, is taken silently."""
    keys = ["zookeeper.connect", "log.message.format.version", "listeners", "listener.name.x.ssl.key.password"]
    keys += ["controlled.shutdown.enable", "super.users", "log.retention.minutes", "confluent.x"]
    config = CleanerConfig.from_mapping(dict.fromkeys(keys, "x"))
    assert config.warnings == ()
    assert TopicConfig.from_mapping(dict.fromkeys([*UNUSED_TOPIC_KEYS, "message.format.version"], "x")).warnings == ()


def test_default_map_takes_the_keys_of_the_specification() -> None:
    """128 MiB are 5 592 405 slots and 5 033 164 keys (R-512, R-520, R-523)."""
    assert (CleanerConfig().slots, CleanerConfig().key_limit) == (5_592_405, 5_033_164)


def test_dedupe_buffer_is_shared_by_threads_and_capped_only_on_request() -> None:
    """Each thread has its share; Kafka's cap of 2 GiB comes back with `cleaner.map.kafka.cap` (R-523)."""
    settings = {"log.cleaner.dedupe.buffer.size": str(16 << 30), "log.cleaner.threads": "2"}
    assert CleanerConfig.from_mapping(settings).map_bytes == 8 << 30
    assert CleanerConfig.from_mapping({**settings, "cleaner.map.kafka.cap": "true"}).map_bytes == 2**31 - 1


def test_dedupe_buffer_below_kafka_minimum_warns_until_no_key_fits() -> None:
    """1 MiB a thread is Kafka's bound and a warning; not a single key is an error."""
    config = CleanerConfig.from_mapping(
        {"log.cleaner.dedupe.buffer.size": "48", "log.cleaner.io.buffer.load.factor": "0.5"}
    )
    assert config.key_limit == 1
    assert any("dedupe.buffer.size=48" in warning for warning in config.warnings)
    with pytest.raises(ConfigError, match=r"1 slots .* must be at least 1"):
        CleanerConfig.from_mapping({"log.cleaner.dedupe.buffer.size": "24"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.cleaner.threads", "0"),
        ("log.cleaner.io.max.bytes.per.second", "0"),
        ("log.cleaner.io.buffer.load.factor", "-0.1"),
        ("log.cleaner.backoff.ms", "-1"),
        ("cleaner.max.decompressed.batch.bytes", "0"),
        ("cleaner.pipeline.threads", "0"),
        ("cleaner.pipeline.threads", "65"),
    ],
)
def test_broker_setting_that_cannot_work_is_refused(key: str, value: str) -> None:
    """A setting no cleaner could run with names itself."""
    with pytest.raises(ConfigError) as caught:
        CleanerConfig.from_mapping({key: value})
    assert caught.value.key == key


def test_load_factor_above_one_fills_the_map_at_most() -> None:
    """A load factor above 1 cannot give more keys than slots."""
    config = CleanerConfig.from_mapping({"log.cleaner.io.buffer.load.factor": "1.5"})
    assert config.key_limit == config.slots
    assert any("taken as 1" in warning for warning in config.warnings)


def test_batch_limit_is_64_times_the_largest_batch_unless_given() -> None:
    """The bound on a batch's unpacked size follows the largest batch of broker and topic."""
    large = TopicConfig(max_message_bytes=3 << 20)
    assert CleanerConfig(message_max_bytes=100).batch_limit_bytes(TopicConfig(max_message_bytes=5)) == 64 << 20
    assert CleanerConfig().batch_limit_bytes(large) == 64 * (3 << 20)
    assert CleanerConfig(max_decompressed_batch_bytes=7).batch_limit_bytes(large) == 7


def test_pipeline_has_a_thread_for_each_processor_up_to_four_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processors this process may use, not those of the machine."""
    for processors, threads in ((1, 1), (3, 3), (4, 4), (96, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=processors: set(range(count)))
        assert CleanerConfig.from_mapping({}).pipeline_threads == threads
        assert CleanerConfig.from_mapping({"cleaner.pipeline.threads": "7"}).pipeline_threads == 7


def test_log_dirs_wins_over_log_dir() -> None:
    """`log.dirs` counts before `log.dir`; without both there are none."""
    assert CleanerConfig.from_mapping({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")
    assert CleanerConfig.from_mapping({"log.dir": "/a"}).log_dirs == ("/a",)
    assert CleanerConfig().log_dirs == ()


def test_log_dir_named_twice_is_one() -> None:
    """As for a broker."""
    assert CleanerConfig.from_mapping({"log.dirs": "/b,/a, /b"}).log_dirs == ("/b", "/a")


@pytest.mark.parametrize("text", ["/a,", ",/a", "/a, ,/b"])
@pytest.mark.parametrize("key", ["log.dirs", "log.dir"])
def test_empty_log_dir_is_refused(key: str, text: str) -> None:
    """It would be the directory in which the command was started."""
    with pytest.raises(ConfigError, match="must not have an empty element"):
        CleanerConfig.from_mapping({key: text})


def test_settings_document_is_written_from_the_table() -> None:
    """`docs/settings.md` lists every setting as the table has it; `cleaner config docs` prints it."""
    assert document() == (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({"cleaner.http.listen": "9404"}, "cleaner.http.listen", "must be HOST:PORT"),
        ({"cleaner.http.listen": "localhost:65536"}, "cleaner.http.listen", "must be HOST:PORT"),
        ({"cleaner.log.dir.io.max.bytes.per.second": "a=5"}, None, "an absolute path"),
        ({"cleaner.log.dir.io.max.bytes.per.second": "/a=0"}, None, "above 0"),
        ({"cleaner.log.dir.io.max.bytes.per.second": "/a=1,/a=2"}, None, "has a rate already"),
        ({"cleaner.retry.max.ms": "14999"}, "cleaner.retry.max.ms", r"below log.cleaner.backoff.ms \(15000\)"),
        ({"cleaner.control.socket": "/" + "x" * 107}, "cleaner.control.socket", "at most 107 bytes"),
        ({"cleaner.state.dir": "/" + "x" * 100}, "cleaner.control.socket", "at most 107 bytes"),
        ({"cleaner.state.dir": ""}, "cleaner.state.dir", "must name a directory"),
        ({"cleaner.selection": "random"}, "cleaner.selection", "one of deadline, kafka"),
        ({"cleaner.lock": "never"}, "cleaner.lock", "one of round, hold"),
        ({"cleaner.http.partition.metrics": "10001"}, None, "0 to 10000"),
    ],
)
def test_daemon_setting_that_cannot_work_is_refused(settings: dict[str, str], key: str | None, reason: str) -> None:
    """A daemon's setting out of bounds or out of form says so under its own key."""
    with pytest.raises(ConfigError, match=reason) as caught:
        CleanerConfig.from_mapping(settings)
    assert caught.value.key == (key or next(iter(settings)))


def test_daemon_settings_with_a_form_of_their_own_are_read() -> None:
    """Addresses, rates of log dirs and the control socket are at hand in the form they are used in."""
    config = CleanerConfig.from_mapping(
        {
            "cleaner.http.listen": "[::1]:0",
            "cleaner.log.dir.io.max.bytes.per.second": "/a=b=5e6 , /c=1",
            "cleaner.state.dir": "/s",
        }
    )
    assert config.http_address == ("::1", 0)
    assert config.log_dir_io_max_bytes_per_second == (("/a=b", 5e6), ("/c", 1.0))
    assert config.control_socket == "/s/control.sock"
    assert CleanerConfig.from_mapping({"cleaner.http.listen": ""}).http_address is None


def test_retry_limit_follows_a_long_backoff_unless_given() -> None:
    """A broker's long backoff alone is no mistake: the limit is then the backoff."""
    assert CleanerConfig.from_mapping({"log.cleaner.backoff.ms": "7200000"}).retry_max_ms == 7_200_000


def test_all_mistakes_are_reported_together() -> None:
    """One error carries every mistake, each with its key, and says each on a line of its own."""
    settings = {
        "log.cleaner.threads": "x",
        "cleaner.lokc": "hold",
        "cleaner.retry.max.ms": "0",
        "cleaner.state.dir": "",
    }
    with pytest.raises(ConfigErrors) as caught:
        CleanerConfig.from_mapping(settings)
    error = caught.value
    assert {mistake.key for mistake in error.mistakes} == set(settings)
    assert [str(mistake) for mistake in error.mistakes] == str(error).split("\n")
    with pytest.raises(ConfigErrors) as caught:
        TopicConfig.from_mapping({"cleanup.policy": "x", "segment.ms": "0", "retntion.ms": "1"})
    assert {mistake.key for mistake in caught.value.mistakes} == {"cleanup.policy", "segment.ms", "retntion.ms"}


def test_settings_with_a_mistake_are_not_judged_together() -> None:
    """What cannot be read is one mistake, and no second one against its default."""
    with pytest.raises(ConfigError) as caught:
        CleanerConfig.from_mapping({"cleaner.retry.max.ms": "10", "log.cleaner.backoff.ms": "ten"})
    assert [mistake.key for mistake in caught.value.mistakes] == ["log.cleaner.backoff.ms"]


def test_table_names_settings_that_wait_for_a_restart() -> None:
    """Topic settings and those Kafka changes at run time (R-801) are dynamic; what is opened at the start is not."""
    fixed = {name for name, setting in BROKER_SETTINGS.items() if not setting.dynamic}
    assert {"log.dirs", "cleaner.state.dir", "cleaner.http.listen", "cleaner.control.socket"} <= fixed
    assert fixed.isdisjoint(DYNAMIC_BROKER_KEYS)
    assert all(setting.dynamic and not setting.daemon for setting in TOPIC_SETTINGS.values())


@pytest.mark.parametrize("key", ["node.id", "broker.id", "offsets.topic.segment.bytes"])
def test_setting_that_is_read_as_text_refuses_no_configuration(key: str) -> None:
    """A broker's file may have `broker.id=`, or a text that a config provider fills in."""
    config = CleanerConfig.from_mapping({key: "", "log.cleaner.threads": "2"})
    assert (key in BROKER_SETTINGS, config.threads) == (True, 2)


def test_every_setting_is_read_or_says_that_it_has_no_effect() -> None:
    """A row alone is accepted, shown and documented, and does nothing: `log.cleaner.io.buffer.size` was such a one."""
    rows = set((ROOT / "cleaner" / "config").glob("*_settings.py"))
    sources = [path.read_text() for path in (ROOT / "cleaner").rglob("*.py") if path not in rows]
    keys_read = {key for key in BROKER_SETTINGS if any(f'.get("{key}"' in source for source in sources)}
    idle = {
        row.name
        for kind in (CleanerConfig, TopicConfig)
        for field, row in settings_of(kind).values()
        if not any(re.search(rf"\.{field}\b", source) for source in sources)
    }
    known = {key for key, row in BROKER_SETTINGS.items() if "without effect" in row.doc}
    assert idle - keys_read == known
