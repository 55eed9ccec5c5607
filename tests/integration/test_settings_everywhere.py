"""A topic's settings are the same, with the same origin, wherever they are shown: one place decides them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cleaner.app.configuration import Loaded, load_settings
from cleaner.app.options import SetOption
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.cli.explain import show_log
from cleaner.cli.fitting import wide
from cleaner.cli.main import main
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.daemon.control.verbs import answer
from cleaner.daemon.service import Service, ServiceDeps
from cleaner.daemon.service_steering import ServiceSteering
from cleaner.policy.reasons import RATIO_SETTINGS
from cleaner.present.explanations import BOUNDS, explain_log
from cleaner.settings import parse_set
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.daemons import EventLog
from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir
from tests.support.metadata_builder import BROKER, TOPIC, config_record, topic_record, write_segment

ID = UUID(int=5)
LOG = "orders-0"
Shown = dict[str, tuple[str, str]]


class Machine:
    """A log dir with one log, and settings of its topic from everywhere."""

    def __init__(self, root: Path) -> None:
        self.root, self.log_dir, self.topics_dir = root, root / "logs", root / "topics"
        # Everything is clean except the active segment, which the topic's settings hold back.
        write_log_dir(self.log_dir, keyed_log(LOG), cleaner_offsets={TopicPartition.parse(LOG): 60})
        (self.log_dir / LOG / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABQ\n")
        self.topics_dir.mkdir()
        (root / "state").mkdir()
        self.file = root / "cleaner.properties"
        self.sets: list[str] = []
        self.configure({})

    def configure(self, settings: Mapping[str, str]) -> None:
        own = {
            "log.dirs": str(self.log_dir),
            "cleaner.topics.dir": str(self.topics_dir),
            "cleaner.state.dir": str(self.root / "state"),
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
        }
        self.file.write_text("".join(f"{key}={value}\n" for key, value in {**own, **settings}.items()))

    def options(self) -> list[str]:
        return ["--config", str(self.file), *(word for text in self.sets for word in ("--set", text))]

    def steering(self, environment: Mapping[str, str]) -> ServiceSteering:
        """Return a daemon that has looked once; no thread of it runs."""
        sets = tuple(SetOption(*parse_set(text)) for text in self.sets)
        read: Callable[[], Loaded] = partial(load_settings, self.file, sets, environment)
        deps = ServiceDeps(FileSystem(), SystemClock(), EventLog(), read, self.root / "state", "0-test")
        service = Service(deps, read())
        service.turn()
        return ServiceSteering(service)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """No source sets anything yet."""
    return Machine(tmp_path)


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def _in_force(entry: Mapping[str, object]) -> Shown:
    settings = entry["settings"]
    assert isinstance(settings, list)
    return {each["key"]: (each["value"], each["origin"]) for each in settings if each["key"] in TOPIC_SETTINGS}


def _by_topic_file(machine: Machine) -> None:
    (machine.topics_dir / "orders.properties").write_text("segment.bytes=25000000\ncleanup.policy=compact\n")


def _by_the_log_dir(machine: Machine) -> None:
    (machine.log_dir / "cleaner-topics.properties").write_text("orders.segment.bytes=25000001\n")


def _by_metadata(machine: Machine) -> None:
    records = [
        topic_record("orders", ID),
        config_record(TOPIC, "orders", "segment.bytes", "25000002"),
        config_record(BROKER, "", "log.cleaner.min.compaction.lag.ms", "7"),
    ]
    write_segment(machine.log_dir / "__cluster_metadata-0", 0, [records])


def _by_set_of_the_topic(machine: Machine) -> None:
    machine.sets = ["orders:segment.bytes=25000003", "segment.bytes=1"]


def _by_set_of_all(machine: Machine) -> None:
    machine.sets = ["min.cleanable.dirty.ratio=0.25", "log.cleaner.delete.retention.ms=9"]


def _by_file_of_all_topics(machine: Machine) -> None:
    machine.configure({"segment.bytes": "25000004", "max.compaction.lag.ms": "86400001"})


def _by_the_broker(machine: Machine) -> None:
    machine.configure({"log.segment.bytes": "25000005", "log.cleanup.policy": "compact", "log.roll.hours": "1"})


def _by_all(machine: Machine) -> None:
    for layer in (_by_topic_file, _by_the_log_dir, _by_metadata, _by_file_of_all_topics, _by_set_of_all):
        layer(machine)


@pytest.mark.parametrize(
    ("say", "environment", "key", "expected"),
    [
        pytest.param(_by_set_of_the_topic, {}, "segment.bytes", ("25000003", "--set orders:"), id="set-topic"),
        pytest.param(_by_set_of_all, {}, "min.cleanable.dirty.ratio", ("0.25", "--set"), id="set"),
        pytest.param(_by_topic_file, {}, "segment.bytes", ("25000000", "orders.properties"), id="topics-dir"),
        pytest.param(_by_the_log_dir, {}, "segment.bytes", ("25000001", "cleaner-topics.properties"), id="log-dir"),
        pytest.param(_by_file_of_all_topics, {}, "segment.bytes", ("25000004", ""), id="config"),
        pytest.param(_by_the_broker, {}, "segment.bytes", ("25000005", ""), id="broker-key"),
        pytest.param(_by_metadata, {}, "segment.bytes", ("25000002", "cluster metadata"), id="metadata"),
        pytest.param(_by_metadata, {}, "min.compaction.lag.ms", ("7", "cluster metadata"), id="metadata-of-brokers"),
        pytest.param(
            lambda _: None, {"CLEANER_LOG_SEGMENT_BYTES": "25000006"}, "segment.bytes", ("25000006", ""), id="variable"
        ),
        pytest.param(lambda _: None, {}, "segment.bytes", ("1073741824", "default"), id="default"),
        pytest.param(
            _by_all, {"CLEANER_LOG_SEGMENT_BYTES": "1"}, "segment.bytes", ("25000000", "orders.properties"), id="all"
        ),
    ],
)
def test_settings_of_a_topic_are_the_same_wherever_they_are_shown(
    machine: Machine,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    say: Callable[[Machine], None],
    environment: dict[str, str],
    key: str,
    expected: tuple[str, str],
) -> None:
    """By `config show`, `plan`, both kinds of `explain`, in JSON and in text."""
    say(machine)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["config", "show", "--topic", "orders", "--format", "json", *machine.options()]) == 0
    shown = {row["key"]: (row["value"] or "", row["source"]) for row in _lines(capsys)}
    value, origin = shown[key]
    assert (value, expected[1] in origin) == (expected[0], True)

    main(["plan", str(machine.log_dir), "--format", "json", *machine.options()])
    planned = [entry for entry in _lines(capsys) if entry["partition"] == LOG]
    main(["explain", str(machine.log_dir), LOG, "--format", "json", *machine.options()])
    (looked,) = _lines(capsys)
    steering = machine.steering(environment)
    line = json.dumps({"v": 1, "do": "status", "of": [LOG], "config": True}).encode()
    reply = json.loads(answer(line, steering, 0, _raise).line)
    (asked,) = reply["snapshot"]["logs"]
    decide = _in_force(looked)
    assert len(decide) > 5
    assert _in_force(planned[0]) == decide
    assert _in_force(asked) == decide
    assert {name: shown[name] for name in decide} == decide

    snapshot = steering.snapshot(settings_of=[LOG])
    (view,) = snapshot.logs
    with wide(chosen=True):
        show_log(view, snapshot, "")
    page = capsys.readouterr().out
    named = [setting for setting in explain_log(view, snapshot).settings if setting in decide]
    assert named == (["cleanup.policy"] if view.verdict is None else ["segment.ms", "segment.bytes"])
    for setting in named:
        assert f"{setting}={decide[setting][0]} ({decide[setting][1]})" in page


def _raise(error: Exception) -> None:
    raise error


def test_every_setting_of_a_topic_that_an_explanation_names_is_shown(machine: Machine) -> None:
    """Settings of the process do not replace any of them."""
    (view,) = machine.steering({}).snapshot(settings_of=["orders"]).logs
    told = {setting.key for setting in view.settings}
    named = {key for _, keys in BOUNDS.values() for key in keys} | {*RATIO_SETTINGS, "cleanup.policy"}
    assert {key for key in named if key in TOPIC_SETTINGS} <= told


def test_settings_are_shown_only_on_request(machine: Machine) -> None:
    """For thousands of logs they would take more space than everything else."""
    (view,) = machine.steering({}).snapshot().logs
    assert view.settings == ()
