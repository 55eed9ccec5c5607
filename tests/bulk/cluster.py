"""A standalone Spark cluster on the loopback interface: a master and some workers, each with one core."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_HOST = "127.0.0.1"
_START_SECONDS = 120


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Cluster:
    """
    A running cluster.

    Attributes:
        url: of the master, for `spark.master`.
        workers: the processes of the living workers.
    """

    url: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_worker(self) -> None:
        """Kill one worker with all its executors, as if its machine were gone."""
        worker = self.workers.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def environment() -> dict[str, str]:
    """Return the environment of all processes: this package is imported from its sources."""
    return os.environ | {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": _HOST, "SPARK_NO_DAEMONIZE": "1"}


def _start(scratch: Path, name: str, *arguments: object) -> subprocess.Popen[bytes]:
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *map(str, arguments)]
    with (scratch / f"{name}.log").open("wb") as log:
        # Its own process group, so that it can be killed with all its children.
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)


def _wait_for(log: Path, words: str, count: int = 1) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while log.read_text(errors="replace").count(words) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{words!r} is not in {log}: {log.read_text()[-2000:]}")
        time.sleep(0.1)


@contextmanager
def cluster(scratch: Path, workers: int) -> Iterator[Cluster]:
    """Run a cluster for a `with` block."""
    deploy, port = "org.apache.spark.deploy", free_port()
    url = f"spark://{_HOST}:{port}"
    running = Cluster(url)
    master = _start(
        scratch, "master", f"{deploy}.master.Master", "--host", _HOST, "--port", port, "--webui-port", free_port()
    )
    try:
        _wait_for(scratch / "master.log", "Starting Spark master")
        for number in range(workers):
            ports = ("--webui-port", free_port(), "-c", 1, "-m", "1g", "-d", scratch / f"worker-{number}")
            running.workers.append(
                _start(scratch, f"worker-{number}", f"{deploy}.worker.Worker", "--host", _HOST, *ports, url)
            )
        _wait_for(scratch / "master.log", "Registering worker", workers)
        yield running
    finally:
        for process in (*running.workers, master):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
