"""The units under a real systemd: ready, status, reload, watchdog, stop, and the one-shot before a broker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.installed import UNITS, install_cleaner
from tests.deploy.machine import Machine, machine, skip_without_systemd, wait_until
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out

CLEANER = "cleaner.service"
STAND_IN = "stand-in.service"
ONE_SHOT = "cleaner-clean@var-lib-kafka.service"
SETTINGS = "/etc/cleaner/cleaner.properties"

# The kernels that are there, logs where the test can read them, and a watchdog that is impatient.
FOR_TESTS = """
install_for_tests() {
    mkdir -p $R/etc/systemd/system/$1.d
    cat > $R/etc/systemd/system/$1.d/for-tests.conf <<E
[Service]
Environment=NUMBA_CACHE_DIR=/opt/cleaner/kernels
ReadWritePaths=-/var/lib/archive
StandardOutput=append:/run/$1.log
StandardError=append:/run/$1.log
E
}
install_for_tests cleaner-clean@.service
install_for_tests cleaner.service
printf 'WatchdogSec=3\\nRestartSec=100ms\\n' >> $R/etc/systemd/system/cleaner.service.d/for-tests.conf
"""

# A host with an archive that the service cleans, and a broker that comes after the cleaning of its log dir.
HOST = f"""
mkdir -p $R/etc/kafka $R/etc/cleaner
printf 'log.dirs=/var/lib/archive\\nlog.cleaner.backoff.ms=200\\n' > $R{SETTINGS}
for directory in kafka archive; do
    cp -r '{{log_dir}}' $R/var/lib/$directory
    chroot $R chown -R kafka:kafka /var/lib/$directory
done
: > $R/etc/kafka/server.properties
cp -r '{UNITS}/kafka.service.d' $R/etc/systemd/system/
cat > $R/etc/systemd/system/kafka.service <<'E'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cp /var/lib/kafka/{CHECKPOINT} /run/seen-by-broker
E
"""

# The daemon's own unit with another program in it, which hangs when it is told to.
HANGING = f"""
cp $R/etc/systemd/system/{CLEANER} $R/etc/systemd/system/{STAND_IN}
install_for_tests {STAND_IN}
cat >> $R/etc/systemd/system/{STAND_IN}.d/for-tests.conf <<'E'
ExecStart=
ExecStart=/opt/cleaner/bin/stand-in /var/lib/cleaner/hangs
WatchdogSec=1
RestartSec=100ms
E
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine where the units are installed, and nothing is started."""
    skip_without_systemd()
    scratch = tmp_path_factory.mktemp("systemd")
    lay_out(scratch / "log-dir")
    prepare = install_cleaner() + HOST.format(log_dir=scratch / "log-dir") + FOR_TESTS + HANGING
    with machine(scratch, prepare) as up:
        yield up


@pytest.fixture
def service(host: Machine) -> Iterator[Machine]:
    """The machine, with the service running; how often it was started before is forgotten."""
    host.systemctl("reset-failed", CLEANER, check=False)
    host.systemctl("start", CLEANER)
    yield host
    host.systemctl("stop", CLEANER)


def _is_cleaned(host: Machine, log_dir: str, scratch: Path) -> bool:
    expected = {name: hashlib.sha256(data).hexdigest() for name, data in cleaned_segments(scratch).items()}
    lines = host.run("sh", "-c", f"cd {log_dir}/{PARTITION} && sha256sum *.log").splitlines()
    is_done = host.read(f"{log_dir}/{CHECKPOINT}") == CLEAN_CHECKPOINT
    return is_done and {name: digest for digest, name in map(str.split, lines)} == expected


def _wait_for_status(host: Machine, words: str) -> None:
    wait_until(lambda: words in host.show(CLEANER, "StatusText"), f"the status {words!r}")


def test_service_is_ready_says_so_and_cleans(service: Machine, tmp_path: Path) -> None:
    """Hardened as it is: `systemctl start` returns when it is ready, the status tells, the log gets clean."""
    assert service.show(CLEANER, "ActiveState") == "active"
    wait_until(lambda: _is_cleaned(service, "/var/lib/archive", tmp_path), "the cleaning")
    _wait_for_status(service, "idle, 1 logs")
    assert set(service.run("sh", "-c", "stat -c %U:%G /var/lib/archive/*/*").split()) == {"kafka:kafka"}
    shown = json.loads(service.run("/opt/cleaner/bin/cleaner", "status", "--format", "json"))
    assert (shown["state"], shown["is_ready"]) == ("running", True)


def test_service_takes_over_what_is_right_on_reload(service: Machine) -> None:
    """`systemctl reload`: new settings are in force; wrong ones change nothing, and the status says so."""
    good = service.read(SETTINGS)
    log = f"/run/{CLEANER}.log"
    service.run("sh", "-c", f"echo log.cleaner.io.max.bytes.per.second=12345678 >> {SETTINGS}")
    service.systemctl("reload", CLEANER)
    wait_until(
        lambda: "12345678" in service.run("/opt/cleaner/bin/cleaner", "status", "--format", "json"), "the reload"
    )
    service.run("sh", "-c", f"echo log.cleaner.threads=many >> {SETTINGS}")
    service.systemctl("reload", CLEANER)
    wait_until(lambda: "many" in service.read(log), "the refusal")
    assert service.show(CLEANER, "ActiveState") == "active"
    service.run("sh", "-c", f"printf '%s' '{good}' > {SETTINGS}")


def test_service_that_does_not_move_is_killed_and_started_again(service: Machine) -> None:
    """The watchdog ends a process that was stopped in its tracks, the stacks are in the log, a new one gets ready."""
    first = service.show(CLEANER, "MainPID")
    restarts = service.show(CLEANER, "NRestarts")
    service.systemctl("kill", "--signal=STOP", CLEANER)
    wait_until(lambda: service.show(CLEANER, "NRestarts") != restarts, "the watchdog")
    wait_until(lambda: service.show(CLEANER, "ActiveState") == "active", "the restart")
    assert service.show(CLEANER, "MainPID") != first
    assert "Fatal Python error: Aborted" in service.read(f"/run/{CLEANER}.log")
    _wait_for_status(service, "idle, 1 logs")


def test_service_dumps_its_state_on_sigusr1(service: Machine) -> None:
    """Stacks, and a line of JSON; it goes on."""
    pid = service.show(CLEANER, "MainPID")
    service.systemctl("kill", "--signal=USR1", CLEANER)
    log = f"/run/{CLEANER}.log"
    wait_until(lambda: '"cleaner-snapshot"' in service.read(log), "the dump")
    dump = next(line for line in service.read(log).splitlines() if '"cleaner-snapshot"' in line)
    assert json.loads(dump)["state"] == "running"
    assert service.show(CLEANER, "MainPID") == pid


def test_service_stops_in_order(service: Machine) -> None:
    """`systemctl stop`: exit code 0, and no socket and no unfinished file is left."""
    service.systemctl("stop", CLEANER)
    assert service.show(CLEANER, "Result") == "success"
    assert service.show(CLEANER, "ExecMainStatus") == "0"
    left = service.run("sh", "-c", "find /var/lib/archive /var/lib/cleaner -name '*.cleaned' -o -name '*.swap'")
    assert left == ""


def test_service_with_wrong_settings_is_not_started_again(host: Machine) -> None:
    """Exit code 78: starting once more would not help."""
    good = host.read(SETTINGS)
    host.run("sh", "-c", f"echo log.cleaner.threads=many >> {SETTINGS}")
    host.systemctl("start", CLEANER, check=False)
    assert host.show(CLEANER, "ExecMainStatus") == "78"
    assert host.show(CLEANER, "ActiveState") == "failed"
    host.run("sh", "-c", f"printf '%s' '{good}' > {SETTINGS}")
    host.systemctl("reset-failed", CLEANER)


def test_watchdog_is_not_fed_by_a_loop_that_only_turns(host: Machine) -> None:
    """A service that answers signals but makes no progress gets no further than one that is dead."""
    host.systemctl("start", STAND_IN)
    first = host.show(STAND_IN, "MainPID")
    assert host.show(STAND_IN, "StatusText") == "ready"
    host.run("touch", "/var/lib/cleaner/hangs")
    wait_until(lambda: host.show(STAND_IN, "NRestarts") != "0", "the watchdog")
    host.run("rm", "/var/lib/cleaner/hangs")
    wait_until(lambda: host.show(STAND_IN, "ActiveState") == "active", "the restart")
    assert host.show(STAND_IN, "MainPID") != first
    host.systemctl("stop", STAND_IN)


def test_log_dir_is_clean_before_the_broker_starts(host: Machine, tmp_path: Path) -> None:
    """The one-shot, hardened as it is, leaves what Kafka's cleaner would, and the broker waits for it."""
    host.systemctl("start", "kafka.service")
    assert (host.show(ONE_SHOT, "Result"), host.show(ONE_SHOT, "ExecMainStatus")) == ("success", "0")
    assert host.read("/run/seen-by-broker") == CLEAN_CHECKPOINT
    assert _is_cleaned(host, "/var/lib/kafka", tmp_path)
    assert set(host.run("sh", "-c", "stat -c %U /var/lib/kafka/*/*").split()) == {"kafka"}


def test_broker_starts_though_the_cleaning_fails(host: Machine) -> None:
    """A wrong setting makes the one-shot fail, which an operator sees, and keeps no broker down."""
    host.systemctl("stop", "kafka.service")
    host.run("sh", "-c", "echo log.cleaner.threads=many > /etc/kafka/server.properties")
    host.systemctl("start", "kafka.service")
    assert (host.show(ONE_SHOT, "Result"), host.show(ONE_SHOT, "ExecMainStatus")) == ("exit-code", "78")
    assert host.show("kafka.service", "ActiveState") == "active"
