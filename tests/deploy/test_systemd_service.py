"""The units under a real systemd: ready, status, reload, watchdog, stop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.installed import UNITS, install_cleaner
from tests.deploy.machine import Machine, machine, skip_without_systemd, wait_until
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out

# The stand-in takes the daemon's place in the daemon's own unit; the watchdog is made impatient.
STAND_IN = """
cat > $R/etc/systemd/system/cleaner.service.d/stand-in.conf <<'E'
[Service]
ExecStart=
ExecStart=/opt/cleaner/bin/stand-in /var/lib/cleaner/hangs
WatchdogSec=1
RestartSec=100ms
StandardOutput=append:/run/cleaner.log
StandardError=append:/run/cleaner.log
E
"""

# What a broker's host has: its log dir, its settings, and a broker that comes after the cleaning.
BROKER = """
mkdir -p $R/etc/systemd/system/cleaner.service.d $R/etc/kafka $R/etc/cleaner
cp -r '{log_dir}' $R/var/lib/kafka
chroot $R chown -R kafka:kafka /var/lib/kafka
: > $R/etc/kafka/server.properties
cp -r '{units}/kafka.service.d' $R/etc/systemd/system/
cat > $R/etc/systemd/system/kafka.service <<'E'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cp /var/lib/kafka/cleaner-offset-checkpoint /run/seen-by-broker
E
mkdir $R/etc/systemd/system/cleaner-clean@.service.d
cat > $R/etc/systemd/system/cleaner-clean@.service.d/kernels.conf <<'E'
[Service]
Environment=NUMBA_CACHE_DIR=/opt/cleaner/kernels
StandardOutput=append:/run/clean.log
StandardError=append:/run/clean.log
E
"""


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log dir that is copied into the machine."""
    path = tmp_path_factory.mktemp("log-dir") / "kafka"
    lay_out(path)
    return path


@pytest.fixture(scope="module")
def stand_in(log_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine where the stand-in is to be started as cleaner.service."""
    skip_without_systemd()
    with machine(
        tmp_path_factory.mktemp("systemd"), install_cleaner() + BROKER.format(log_dir=log_dir, units=UNITS) + STAND_IN
    ) as up:
        yield up


def test_hanging_service_is_killed_and_started_again(stand_in: Machine) -> None:
    """No progress, no sign of life: the watchdog aborts it, stacks go to the log, and the next one is ready again."""
    stand_in.systemctl("start", "cleaner.service")
    first = stand_in.show("cleaner.service", "MainPID")
    assert stand_in.show("cleaner.service", "StatusText") == "ready"
    stand_in.run("touch", "/var/lib/cleaner/hangs")
    wait_until(lambda: stand_in.show("cleaner.service", "NRestarts") != "0", "the watchdog")
    stand_in.run("rm", "/var/lib/cleaner/hangs")
    wait_until(lambda: stand_in.show("cleaner.service", "ActiveState") == "active", "the restart")
    assert stand_in.show("cleaner.service", "MainPID") != first
    assert "Fatal Python error: Aborted" in stand_in.read("/run/cleaner.log")


def test_service_reloads_and_stops(stand_in: Machine) -> None:
    """systemctl reload is a SIGHUP, stop a SIGTERM that ends in success."""
    stand_in.systemctl("restart", "cleaner.service")
    stand_in.systemctl("reload", "cleaner.service")
    wait_until(lambda: stand_in.show("cleaner.service", "StatusText") == "reloaded 1", "the reload")
    assert stand_in.show("cleaner.service", "ActiveState") == "active"
    stand_in.systemctl("stop", "cleaner.service")
    assert stand_in.show("cleaner.service", "Result") == "success"
    assert stand_in.show("cleaner.service", "ExecMainStatus") == "0"


def test_log_dir_is_clean_before_the_broker_starts(stand_in: Machine, tmp_path: Path) -> None:
    """The one-shot, hardened as it is, leaves what Kafka's cleaner would, and the broker waits for it."""
    stand_in.systemctl("start", "kafka.service")
    unit = "cleaner-clean@var-lib-kafka.service"
    assert (stand_in.show(unit, "Result"), stand_in.show(unit, "ExecMainStatus")) == ("success", "0")
    assert stand_in.read("/run/seen-by-broker") == CLEAN_CHECKPOINT
    assert stand_in.read(f"/var/lib/kafka/{CHECKPOINT}") == CLEAN_CHECKPOINT
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in cleaned_segments(tmp_path).items()}
    lines = stand_in.run("sh", "-c", f"cd /var/lib/kafka/{PARTITION} && sha256sum *.log").splitlines()
    assert {name: digest for digest, name in map(str.split, lines)} == expected
    assert set(stand_in.run("sh", "-c", "stat -c %U /var/lib/kafka/*/*").split()) == {"kafka"}


def test_broker_starts_though_the_cleaning_fails(stand_in: Machine) -> None:
    """A damaged setting makes the one-shot fail, which an operator sees, and keeps no broker down."""
    stand_in.systemctl("stop", "kafka.service")
    stand_in.run("sh", "-c", "echo log.cleaner.threads=many > /etc/kafka/server.properties")
    stand_in.systemctl("start", "kafka.service")
    unit = "cleaner-clean@var-lib-kafka.service"
    assert (stand_in.show(unit, "Result"), stand_in.show(unit, "ExecMainStatus")) == ("exit-code", "78")
    assert stand_in.show("kafka.service", "ActiveState") == "active"
