"""
A real single-node broker on loopback, started and stopped by a test, and a way to put a cleaned partition under it.

    with Broker(rig, client, tmp_path / "broker") as broker:
        broker.create(["prices"], {"cleanup.policy": "compact"})
        broker.write("prices", [("k", "v")])
    install_partition(broker, "prices", cleaned_log_dir, TopicPartition("bench", 0))
    with broker:
        broker.read(["prices"])
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from cleaner.base.model import TopicPartition
from tests.kafka.rig import CLIENT, Rig

CLUSTER_ID = "bGctY2xlYW5lci10ZXN0cw"
OFFSET_CHECKPOINTS = (
    "cleaner-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
)
PATIENCE_SECONDS = 120.0


class Consumed(NamedTuple):
    """One record as a consumer was given it."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """One record to write; `end` (commit or abort) ends the transaction behind it."""

    key: str
    value: str | None
    end: str | None = None


class BrokerFailed(Exception):
    """The broker did not start, or did not do in time what was waited for; carries the end of its log."""


class ClientFailed(Exception):
    """A broker refused what the client asked of it, or the client ended; carries what it said."""


class Client:
    """
    One Java process that asks whatever brokers there are, one order after the other; see `java/Client.java`.

    It stays for all tests of a process: a JVM a call would take longer to start than all calls take.
    """

    def __init__(self, rig: Rig, log: Path) -> None:
        self._log = log
        self._turn = threading.Lock()
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                rig.command(CLIENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def ask(self, order: Mapping[str, object]) -> list[dict[str, Any]]:
        """Give an order; returns the lines of its answer. ClientFailed: it was not done."""
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None and answers is not None
        with self._turn:
            print(json.dumps(order), file=given, flush=True)
            rows = []
            for line in answers:
                row = json.loads(line)
                if "failed" not in row:
                    rows.append(row)
                elif row["failed"] is None:
                    return rows
                else:
                    raise ClientFailed(f"{order['verb']} {order['topics']}: {row['failed']}\n{self._said()}")
        raise ClientFailed(f"{order['verb']} {order['topics']}: the client has ended\n{self._said()}")

    def close(self) -> None:
        """End the process."""
        try:
            self._process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            self._process.kill()

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]


def wait_until(condition: Callable[[], bool], what: str, still_alive: Callable[[], bool] = lambda: True) -> None:
    """Ask ten times a second; another process offers nothing else to wait on."""
    pause = threading.Event()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if not still_alive() or time.monotonic() > deadline:
            raise BrokerFailed(what)
        pause.wait(0.1)


def free_ports(count: int) -> list[int]:
    """Return free ports; all are held at once, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def read_checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Read an offset checkpoint the plain way: this is a test's own eye on the file."""
    if not path.exists():
        return {}
    rows = [line.split() for line in path.read_text().splitlines()[2:]]
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def write_checkpoint(path: Path, entries: Mapping[TopicPartition, int]) -> None:
    """Write an offset checkpoint in place: a file that was there keeps its owner."""
    lines = ["0", str(len(entries)), *(f"{tp.topic} {tp.partition} {offset}" for tp, offset in entries.items())]
    path.write_text("".join(f"{line}\n" for line in lines))


class Broker:
    """
    A combined broker and controller. `with` starts and stops it, as often as wanted, on the same directory.

    Args:
        rig: the version to run.
        client: talks to it.
        home: takes the configuration, the log and, in `logs`, the log dir.
        user_id: run as this user and group; needs root, and jars that user may read.
        settings: added to the broker's configuration.
    """

    def __init__(
        self,
        rig: Rig,
        client: Client,
        home: Path,
        *,
        user_id: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._rig = rig
        self._client = client
        self._user_id = user_id
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.home = home
        self.log_dir = home / "logs"
        self.address = ""
        home.mkdir(parents=True, exist_ok=True)
        self._give_away(home)

    def _give_away(self, path: Path) -> None:
        if self._user_id is not None:
            os.chown(path, self._user_id, self._user_id)

    def _as_user(self, command: list[str]) -> list[str]:
        if self._user_id is None:
            return command
        user = str(self._user_id)
        return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]

    def _configure(self) -> Path:
        port, controller_port = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "log.cleaner.backoff.ms": "200",
        } | self._settings
        path = self.home / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    @property
    def log(self) -> str:
        """Return what the broker has logged since its last start."""
        return (self.home / "broker.log").read_text(errors="replace")

    def format(self, *options: str) -> None:
        """Format the log dir, which a first start does without options."""
        command = self._rig.command(
            "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._configure(), *options
        )
        done = subprocess.run(self._as_user(command), capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise BrokerFailed(done.stdout + done.stderr)

    def start(self) -> None:
        """Start it and wait until it serves; formats the log dir the first time."""
        if not (self.log_dir / "meta.properties").exists():
            self.format()
        config = self._configure()
        command = self._rig.command("kafka.Kafka", config, log_level="info")
        with (self.home / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._as_user(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/"
            )
        process = self._process
        try:
            wait_until(
                lambda: "Kafka Server started" in self.log, "broker did not start", lambda: process.poll() is None
            )
        except BrokerFailed as error:
            tail = self.log[-3000:]
            self.kill()
            raise BrokerFailed(f"{error}:\n{tail}") from None

    def stop(self) -> None:
        """Stop it cleanly, as SIGTERM does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop it without a clean shutdown."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()

    def __enter__(self) -> Broker:
        """Start."""
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _value: object, _trace: TracebackType | None) -> None:
        """Stop; after a failed test without ceremony."""
        if kind is None:
            self.stop()
        else:
            self.kill()

    def _ask(
        self, verb: str, topics: Sequence[str], settings: Mapping[str, str], **more: object
    ) -> list[dict[str, Any]]:
        order = {"verb": verb, "bootstrap": self.address, "topics": topics, "settings": settings}
        return self._client.ask(order | more)

    def create(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Make topics of one partition each, all with the same settings."""
        self._ask("create", topics, settings)

    def alter(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Change settings of topics."""
        self._ask("alter", topics, settings)

    def write(self, topic: str, records: Iterable[Outgoing], settings: Mapping[str, str] | None = None) -> None:
        """Write records in order; `settings` are the producer's."""
        rows = []
        for record in records:
            row = {"key": record.key.encode().hex(), "value": None}
            if record.value is not None:
                row["value"] = record.value.encode().hex()
            rows.append(row | ({"end": record.end} if record.end else {}))
        self._ask("write", [topic], settings or {}, records=rows)

    def read(self, topics: Sequence[str], *, committed: bool = False) -> dict[str, list[Consumed]]:
        """Return every record a consumer is given of each topic, in order."""
        found: dict[str, list[Consumed]] = {topic: [] for topic in topics}
        isolation = "read_committed" if committed else "read_uncommitted"
        for row in self._ask("read", topics, {"isolation.level": isolation}):
            headers = tuple((name, _bytes(value)) for name, value in row["headers"])
            found[row["topic"]].append(
                Consumed(
                    row["offset"],
                    row["timestamp"],
                    row["timestamp_type"],
                    _bytes(row["key"]),
                    _bytes(row["value"]),
                    headers,
                )
            )
        return found

    def share(self, group: str, topic: str, count: int, *, stays: bool = False) -> None:
        """Take so many records in a share group, then leave it, or stay in it as long as the client lives."""
        self._ask("share", [topic], {"group.id": group}, count=count, stays=stays)

    def groups(self) -> dict[str, dict[str, Any]]:
        """Return what the coordinator says of each group; `error` where it cannot."""
        return {row.pop("group"): row for row in self._ask("groups", [], {})}

    def delete_groups(self, kind: str, names: Sequence[str]) -> None:
        """Delete share groups or streams groups."""
        self._ask("delete", names, {"type": kind})

    def cleaner_offset(self, topic: str) -> int | None:
        """Return up to where the topic is clean, as the checkpoint on disk says."""
        return read_checkpoint(self.log_dir / OFFSET_CHECKPOINTS[0]).get(TopicPartition(topic, 0))

    def wait_until_clean(self, topic: str) -> None:
        """Wait until the broker's own cleaner has reached the active segment."""

        def is_clean() -> bool:
            active = max(path.name for path in (self.log_dir / f"{topic}-0").glob("*.log"))
            return self.cleaner_offset(topic) == int(active[:20])

        wait_until(is_clean, f"{topic} was not cleaned")

    def map_ranges(self, topic: str) -> list[tuple[int, int]]:
        """Return the dirty sections for which the broker's cleaner built an offset map since the last start."""
        line = rf"Building offset map for log {re.escape(topic)}-0 for \d+ segments in offset range \[(\d+), (\d+)\)"
        return [(int(first), int(end)) for first, end in re.findall(line, self.log)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def last_values(broker: Broker, topic: str, *, committed: bool) -> dict[str, str | None]:
    """Return key and value of what a consumer reads; without keys that begin with `filler`."""
    return {
        (each.key or b"").decode(): None if each.value is None else each.value.decode()
        for each in broker.read([topic], committed=committed)[topic]
        if not (each.key or b"").startswith(b"filler")
    }


def repairs_at_start(broker: Broker, topic: str) -> list[str]:
    """Return the lines of the last start's log about topics recovered, renamed or given new indexes."""
    what = r"Recovering|orrupt|rebuilding index|Could not find|stray|Error while loading"
    return [line for line in broker.log.splitlines() if f"{topic}-0" in line and re.search(what, line)]


def started_without_recovery(broker: Broker) -> bool:
    """Tell whether the clean-shutdown marker spared every log a recovery at the last start."""
    return bool(re.search(r"Skipping recovery of \d+ logs from \S+ since clean shutdown file was found", broker.log))


def install_partition(
    broker: Broker, topic: str, source_log_dir: Path, source: TopicPartition, partition: int = 0
) -> None:
    """
    Put a partition from another log dir in the place of one of the stopped broker's own, of `topic`.

    A broker sets a directory aside whose topic id it does not know (R-107), so its own `partition.metadata` and
    `meta.properties` stay; segments, snapshots and epochs come from the source, and so do its checkpoint lines.
    """
    target = TopicPartition(topic, partition)
    directory = broker.log_dir / str(target)
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in (source_log_dir / str(source)).iterdir():
        if path.name != "partition.metadata" and path.is_file():
            shutil.copy2(path, directory / path.name)
    for name in OFFSET_CHECKPOINTS:
        entries = read_checkpoint(broker.log_dir / name)
        entries.pop(target, None)
        theirs = read_checkpoint(source_log_dir / name)
        if source in theirs:
            entries[target] = theirs[source]
        write_checkpoint(broker.log_dir / name, entries)
