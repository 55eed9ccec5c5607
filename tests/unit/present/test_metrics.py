"""What Prometheus scrapes."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from cleaner.base.model import TopicPartition
from cleaner.daemon.snapshot import Histogram, ServiceSnapshot
from cleaner.policy.reasons import Reason
from cleaner.present.http.exposition import encode, expose
from cleaner.present.metrics.families import CHAPTERS, KAFKA_CHAPTER, MetricKind
from cleaner.present.metrics.metrics import SnapshotCollector, registry
from tests.support.sample_daemons import at_work, hostile, with_many_logs, with_problems
from tests.support.snapshots import MB, log, round_of, snapshot, throttle, topic_totals
from tools.metrics_doc import PATH, document

DAEMONS = [snapshot, at_work, with_problems, hostile]
FAMILIES = [family for chapter in (*CHAPTERS, KAFKA_CHAPTER) for family in chapter.families]


def of_snapshot(described: ServiceSnapshot, **options: object) -> CollectorRegistry:
    """Return a registry without those of the process, which differ from scrape to scrape."""
    own = CollectorRegistry(auto_describe=False)
    own.register(SnapshotCollector(lambda: described, **options))
    return own


def samples(described: ServiceSnapshot, **options: object) -> dict[str, float]:
    """Return what is scraped: name and labels, as the text has them, and the value."""
    text = encode(of_snapshot(described, **options), is_openmetrics=False).decode()
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if not line.startswith("#")
    }


@pytest.mark.parametrize("daemon", DAEMONS)
def test_exposition_is_what_prometheus_client_writes(daemon: Callable[[], ServiceSnapshot]) -> None:
    """The encoder that knows its names and the one that does not agree to the byte, in both formats."""
    own = of_snapshot(daemon(), is_with_kafka_names=True)
    assert encode(own, is_openmetrics=False) == generate_latest(own)
    assert encode(own, is_openmetrics=True) == generate_openmetrics(own)


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", b"\n"),
        ("text/html", "text/plain; version=0.0.4; charset=utf-8", b"\n"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
            b"# EOF\n",
        ),
        (
            "application/openmetrics-text;version=1.0.0;escaping=dots",
            "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=dots",
            b"# EOF\n",
        ),
    ],
    ids=["nothing", "browser", "prometheus", "dots"],
)
def test_exposition_format_is_the_one_asked_for(accept: str, content_type: str, end: bytes) -> None:
    """Negotiation is prometheus_client's own; what it answers is said and kept."""
    body, answered = expose(of_snapshot(at_work()), accept)
    assert answered == content_type
    assert body.endswith(end)
    assert (b"cleaner__ready" in body) is ("dots" in accept)


def test_families_scraped_are_those_of_the_table() -> None:
    """Nothing is scraped that the table lacks, and nothing in it goes missing; types and help are the table's."""
    text = encode(of_snapshot(with_problems(), is_with_kafka_names=True), is_openmetrics=False).decode()
    scraped = {}
    for metric in text_string_to_metric_families(text):
        name = metric.name + "_total" if metric.type == "counter" else metric.name
        scraped[name] = (metric.type, metric.documentation)
    assert scraped == {family.name: (family.kind.value, family.help) for family in FAMILIES}


def test_family_names_follow_prometheus() -> None:
    """`_total` is on counters only, no name is used twice, every help is one sentence or more."""
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert family.name.endswith("_total") is (family.kind is MetricKind.COUNTER)
        assert family.help.endswith(".") and "\n" not in family.help


def test_metrics_document_is_written_from_the_table() -> None:
    """`docs/metrics.md` lists every metric as the table has it; `python -m tools.metrics_doc` writes it."""
    assert PATH.read_text() == document()


@pytest.mark.parametrize("daemon", DAEMONS)
def test_promtool_has_nothing_to_say(daemon: Callable[[], ServiceSnapshot]) -> None:
    """Prometheus's own checker accepts all our names, types and help texts."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    body = generate_latest(registry(SnapshotCollector(daemon)))
    checked = subprocess.run([promtool, "check", "metrics"], input=body, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_hostile_names_stay_inside_their_quotes() -> None:
    """A name with line ends and quotes makes neither a line nor a label of its own; no control character comes out."""
    text = encode(of_snapshot(hostile(), is_with_kafka_names=True), is_openmetrics=False).decode()
    assert all(line.isprintable() for line in text.split("\n"))
    families = {metric.name for metric in text_string_to_metric_families(text)}
    assert all(name.startswith(("cleaner_", "kafka_log_")) for name in families)
    labels = {label for m in text_string_to_metric_families(text) for s in m.samples for label in s.labels}
    assert "evil" not in labels


def test_topic_counters_are_the_totals_of_the_topic() -> None:
    """Bytes and records by pass, what was removed by reason, rounds by result, retention."""
    totals = topic_totals(
        rounds={"done": 3, "retry": 1},
        bytes_read=100,
        bytes_written=40,
        messages_read=10,
        messages_written=4,
        map_bytes_read=60,
        map_messages_read=6,
        removed={"superseded": 5, "tombstones": 1},
        retention_segments=2,
        retention_bytes=2_000,
        last_success_ms=1_500,
    )
    found = samples(snapshot(topics={"orders": totals}))
    assert {name: value for name, value in found.items() if 'topic="orders"' in name and "dirty_ratio" not in name} == {
        'cleaner_rounds_total{result="done",topic="orders"}': 3,
        'cleaner_rounds_total{result="retry",topic="orders"}': 1,
        'cleaner_topic_last_successful_round_timestamp_seconds{topic="orders"}': 1.5,
        'cleaner_read_bytes_total{pass="map",topic="orders"}': 60,
        'cleaner_read_bytes_total{pass="copy",topic="orders"}': 100,
        'cleaner_read_records_total{pass="map",topic="orders"}': 6,
        'cleaner_read_records_total{pass="copy",topic="orders"}': 10,
        'cleaner_written_bytes_total{topic="orders"}': 40,
        'cleaner_written_records_total{topic="orders"}': 4,
        'cleaner_removed_records_total{reason="superseded",topic="orders"}': 5,
        'cleaner_removed_records_total{reason="tombstones",topic="orders"}': 1,
        'cleaner_retention_segments_total{topic="orders"}': 2,
        'cleaner_retention_bytes_total{topic="orders"}': 2_000,
    }


def test_partition_ratios_are_those_of_the_dirtiest_and_topics_have_their_highest() -> None:
    """Only the N dirtiest logs have samples of their own; a topic counts with its dirtiest log."""
    logs = tuple(log("orders", number, clean_bytes=(10 - number) * MB, dirty_bytes=number * MB) for number in range(10))
    found = samples(snapshot(logs), partitions=2)
    ratios = {name: value for name, value in found.items() if name.startswith("cleaner_partition_dirty_ratio")}
    assert list(ratios.values()) == [0.9, 0.8]
    assert all('partition="9"' in name or 'partition="8"' in name for name in ratios)
    assert found['cleaner_topic_max_dirty_ratio{topic="orders"}'] == 0.9


def test_logs_are_counted_by_reason() -> None:
    """Every log counts once: with its verdict's reason, as not compacted, or as unreadable."""
    found = samples(with_problems())
    counts = {name: value for name, value in found.items() if name.startswith("cleaner_logs{")}
    assert counts['cleaner_logs{reason="quarantined"}'] == 2
    assert counts['cleaner_logs{reason="not_compacted"}'] == 1
    assert counts['cleaner_logs{reason="unreadable"}'] == 1
    assert sum(counts.values()) == len(with_problems().logs)


def test_round_durations_are_cumulative_buckets() -> None:
    """The snapshot counts each bucket for itself, Prometheus all up to a bound."""
    found = samples(snapshot(round_seconds=Histogram((1.0, 60.0), (2, 3, 1), 250.0)))
    assert [found[f'cleaner_round_duration_seconds_bucket{{le="{le}"}}'] for le in ("1.0", "60.0", "+Inf")] == [2, 5, 6]
    assert found["cleaner_round_duration_seconds_count"] == 6
    assert found["cleaner_round_duration_seconds_sum"] == 250


def test_what_has_no_value_has_no_sample() -> None:
    """No round yet, no turn yet, an open window: absent, not zero; no limit is infinity."""
    found = samples(snapshot(ended_ms=None, turn_seconds=None, turn_ended_ms=None, throttle=throttle(None)))
    for name in ("last_successful_round_timestamp_seconds", "scheduler_turn_seconds", "window_opens_timestamp_seconds"):
        assert f"cleaner_{name}" not in found
    assert found["cleaner_window_open"] == 1
    assert found["cleaner_throttle_limit_bytes_per_second"] == math.inf


def test_trouble_is_seen() -> None:
    """What alerts use: a disk gone, logs in quarantine, a bad reload, a worker dead, something stuck."""
    found = samples(with_problems())
    assert found["cleaner_offline_log_dirs"] == 1
    assert found['cleaner_log_dir_state{log_dir="/mnt/disk2/kafka",state="offline"}'] == 1
    assert found['cleaner_log_dir_state{log_dir="/mnt/disk2/kafka",state="online"}'] == 0
    assert 'cleaner_log_dir_free_bytes{log_dir="/mnt/disk2/kafka"}' not in found
    assert found['cleaner_quarantined_partitions{log_dir="/var/lib/kafka/data"}'] == 2
    assert found["cleaner_config_last_reload_successful"] == 0
    assert (found["cleaner_worker_deaths_total"], found["cleaner_stuck_threads"], found["cleaner_progressing"]) == (
        1,
        1,
        0,
    )


def test_kafka_names_are_kafkas_numbers() -> None:
    """Percent and whole seconds from each worker's last round, as Kafka's gauges count them; off unless asked for."""
    described = snapshot(
        (log("orders", 0, reason=Reason.OVERDUE, clean_bytes=1 * MB, dirty_bytes=3 * MB),),
        rounds=(
            round_of(worker="cleaner-0", seconds=9.9, map_utilization=0.307, bytes_read=100, bytes_written=50),
            round_of(worker="cleaner-1", seconds=4.0, map_utilization=0.1, bytes_read=300, bytes_written=30),
            round_of(TopicPartition("older", 0), worker="cleaner-0", seconds=99.0, map_utilization=0.9),
        ),
    )
    assert not any(name.startswith("kafka") for name in samples(described))
    found = samples(described, is_with_kafka_names=True)
    assert {name: value for name, value in found.items() if name.startswith("kafka")} == {
        "kafka_log_logcleaner_max_buffer_utilization_percent": 30,
        "kafka_log_logcleaner_cleaner_recopy_percent": 20,
        "kafka_log_logcleaner_max_clean_time_secs": 9,
        "kafka_log_logcleaner_max_compaction_delay_secs": 7_200,
        "kafka_log_logcleaner_deadthreadcount": 0,
        "kafka_log_logcleanermanager_max_dirty_percent": 75,
        "kafka_log_logcleanermanager_time_since_last_run_ms": 4_000,
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logdirectory="/var/lib/kafka/data"}': 0,
        'kafka_log_logcleanermanager_uncleanable_bytes{logdirectory="/var/lib/kafka/data"}': 0,
    }


def test_series_of_thousands_of_logs_are_bounded_by_topics() -> None:
    """Five thousand partitions cost what their topics cost, and a fixed number besides."""
    few, many = (len(samples(with_many_logs(count), partitions=20)) for count in (1_000, 5_000))
    assert few < 100 * 25
    assert many < 500 * 20 + 500
