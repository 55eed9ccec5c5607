"""
Rules for all tests: skips are counted out loud, and under CI a skip is a failure.

A test that needs a tool (Java, strace, a loop device) skips where it is missing, so that `make test` works anywhere;
only a run without skips has shown everything.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

import hypothesis
import pytest

# No test is run on a terminal. Without this, commands started by tests would be told of one by readline, which pytest
# loads: it puts COLUMNS=80 into the environment of all children, though not into `os.environ`.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
    os.unsetenv(_name)

# A shell without job control starts what runs in its background with SIGINT ignored, and commands keep to that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Spark runs for seconds here: without the optimizing compiler its sessions start with two thirds of the processor time.
for _name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(_name, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Two busy cores make no promise about time, so no example is failed for being slow.
hypothesis.settings.register_profile("shared-machine", deadline=None, print_blob=True)
hypothesis.settings.load_profile("shared-machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files marked `long`, so that no process is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("true", "1", "yes")


def _skips(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker process: the one that started it counts
        return Counter()
    reports = reporter.stats.get("skipped", [])
    return Counter(report.longrepr[2] if isinstance(report.longrepr, tuple) else "" for report in reports)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Make the run fail under CI when anything was skipped."""
    if _is_ci() and _skips(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many tests did not run, and why."""
    skips = _skips(config)
    if not skips:
        return
    verdict = "and CI allows none: the run has failed" if _is_ci() else "so this run has not shown everything"
    terminalreporter.section(f"{skips.total()} tests SKIPPED, {verdict}", red=True, bold=True)
    for reason, count in skips.most_common():
        terminalreporter.line(f"{count:5}  {reason}")
