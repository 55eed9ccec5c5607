"""A service in this process on small log dirs, and log events that tests can wait for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.configuration import Loaded, load_settings
from cleaner.base.clock import SystemClock
from cleaner.base.model import TopicPartition
from cleaner.daemon.service import Service, ServiceDeps
from cleaner.daemon.service_steering import ServiceSteering
from cleaner.settings.sources import SetOption
from cleaner.storage.fs.file_system import FileSystem
from tests.support.invariants import check_manager

WAIT_SECONDS = 30.0  # only ever waited for in full by a test that fails
UID = 4711


class EventLog:
    """A logger that keeps its events and can be waited for. Thread-safe."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self.events: list[dict[str, object]] = []

    def _add(self, level: str, event: str, values: dict[str, object]) -> None:
        with self._change:
            self.events.append({"event": event, "level": level, **values})
            self._change.notify_all()

    def info(self, event: str, **values: object) -> None:
        self._add("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._add("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._add("error", event, values)

    def find(self, event: str, **values: object) -> list[dict[str, object]]:
        """Return the events whose message begins so and that have these values."""
        with self._change:
            return self._find(event, values)

    def wait(self, event: str, count: int = 1, **values: object) -> dict[str, object]:
        """Wait until there are `count` such events; returns the last of them."""
        with self._change:
            is_there = self._change.wait_for(lambda: len(self._find(event, values)) >= count, WAIT_SECONDS)
            assert is_there, f"no {event!r} {values} in {self.events}"
            return self._find(event, values)[count - 1]

    def _find(self, event: str, values: Mapping[str, object]) -> list[dict[str, object]]:
        return [
            each
            for each in self.events
            if str(each["event"]).startswith(event) and all(each.get(key) == value for key, value in values.items())
        ]


@dataclass
class RunningDaemon:
    """A running service, and how to look at it."""

    service: Service
    steering: ServiceSteering
    log: EventLog
    settings: dict[str, str] = field(default_factory=dict)

    def partition(self, name: str) -> TopicPartition:
        """Return a partition by its name."""
        return TopicPartition.parse(name)


def settings_for(*log_dirs: Path, state_dir: Path, **others: str) -> dict[str, str]:
    """Return settings for quick turns; names in `others` have underscores for dots."""
    state_dir.mkdir(exist_ok=True)
    return {
        "log.dirs": ",".join(map(str, log_dirs)),
        "cleaner.state.dir": str(state_dir),
        "log.cleaner.backoff.ms": "100",
        "cleaner.pipeline.threads": "1",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "cleanup.policy": "compact",
        "cleaner.trust.default.policy": "true",
        **{key.replace("_", "."): value for key, value in others.items()},
    }


def made(
    settings: dict[str, str], fs: FileSystem | None = None, *, trust_default_policy: bool = False
) -> RunningDaemon:
    """Make a service that has not started."""
    log = EventLog()
    config_file = Path(settings["cleaner.state.dir"]) / "test.properties"

    def read() -> Loaded:
        config_file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return load_settings(config_file, (), {}, trust_default_policy=trust_default_policy)

    deps = ServiceDeps(fs or FileSystem(), SystemClock(), log, read, Path(settings["cleaner.state.dir"]), "0-test")
    service = Service(deps, read())
    return RunningDaemon(service, ServiceSteering(service), log, settings)


@contextlib.contextmanager
def daemon(settings: dict[str, str], fs: FileSystem | None = None) -> Iterator[RunningDaemon]:
    """Run a service for the length of a `with` block; it has stopped in order at its end."""
    running = made(settings, fs)
    running.service.start()
    try:
        yield running
    finally:
        assert running.service.stop(WAIT_SECONDS)
        check_manager(running.service.manager)


def scoped(topic: str, key: str, value: str) -> SetOption:
    """Return `--set TOPIC:key=value`."""
    return SetOption(topic, key, value)
