"""`cleaner run` as a process of its own: started, watched, asked and ended as an operator does it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

REPOSITORY = Path(__file__).parents[1]
WAIT_SECONDS = 60.0  # only ever waited for in full by one that fails
_LOOK_SECONDS = 0.02
_REQUEST_SECONDS = 30.0

Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


def settings_text(settings: Mapping[str, str]) -> str:
    """Return a properties file."""
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait for something another process does; AssertionError when it does not come."""
    moment, until = threading.Event(), time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"not within {seconds:.0f} s: {what}"
        moment.wait(_LOOK_SECONDS)


class CleanerRun:
    """
    One configuration, and the daemon that runs by it, if one does.

    The port of its HTTP server is any that is free; its logs are JSON, one file for all runs.

    Args:
        root: an empty directory for configuration, state and logs.
        settings: of the configuration file; `cleaner.state.dir` and the HTTP address are added.
    """

    def __init__(self, root: Path, settings: Mapping[str, str]) -> None:
        self.state_dir = root / "state"
        self.state_dir.mkdir()
        self.config_file = root / "cleaner.properties"
        self.log_file = root / "cleaner.log"
        self.settings = dict(settings)
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0
        self.write_settings(self.settings)

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Replace the configuration file's contents."""
        own = {
            "cleaner.state.dir": str(self.state_dir),
            "cleaner.http.listen": "127.0.0.1:0",
            "cleaner.log.format": "json",
        }
        temporary = self.config_file.with_suffix(".new")
        temporary.write_text(settings_text({**own, **settings}))
        temporary.replace(self.config_file)

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until it runs."""
        self.begin()
        wait_until(lambda: bool(self.events("running")) or self._has_ended(), "the daemon runs")
        assert not self._has_ended(), self.log_file.read_text()[self._log_begin :]

    def begin(self) -> None:
        """Start it and wait for nothing."""
        self._log_begin = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cleaner", "run", "--as-root", "--config", str(self.config_file)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self.process is not None
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut does, as far as the process is concerned."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """End it in order; returns how many seconds it took."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        assert self.wait() == 0, self.log_file.read_text()[-4000:]
        return time.monotonic() - began

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        assert self.process is not None
        return self.process.wait(WAIT_SECONDS)

    def _has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    # --- what it tells ----------------------------------------------------------------------------------------------

    def events(self, event: str | None = None, *, of_all_runs: bool = False) -> list[dict[str, Any]]:
        """Return what it logged (with these words) since it was started last, or ever; a line not yet whole is left."""
        with self.log_file.open("rb") as log:
            log.seek(0 if of_all_runs else self._log_begin)
            lines = log.read().split(b"\n")
        found = [json.loads(line) for line in lines[:-1] if line.startswith(b"{") and line.endswith(b"}")]
        return [each for each in found if event is None or each["event"] == event]

    def get(self, path: str) -> bytes:
        """Get a page of it."""
        address = self.events("http")[-1]["listen"]
        with urllib.request.urlopen(f"http://{address}{path}", timeout=_REQUEST_SECONDS) as answer:
            content: bytes = answer.read()
        return content

    def metrics(self) -> Metrics:
        """Scrape it."""
        families = text_string_to_metric_families(self.get("/metrics").decode())
        samples = [sample for family in families for sample in family.samples]
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `cleaner` against it; the command's exit code is the caller's to judge."""
        return subprocess.run(
            [sys.executable, "-m", "cleaner", *arguments, "--config", str(self.config_file)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )

    def status(self) -> dict[str, Any]:
        """Ask for all there is to know, through the command."""
        done = self.command("status", "--logs", "all", "--format", "json")
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


def total(metrics: Metrics, name: str, **labels: str) -> float:
    """Add up all samples of a name that have these labels."""
    wanted = set(labels.items())
    return sum(value for (each, its), value in metrics.items() if each == name and wanted <= its)


@contextlib.contextmanager
def cleaner_run(root: Path, settings: Mapping[str, str]) -> Iterator[CleanerRun]:
    """Give a configuration to run by; at the end of the `with` block no process is left."""
    run = CleanerRun(root, settings)
    try:
        yield run
    finally:
        if run.process is not None and run.process.poll() is None:
            run.kill()
