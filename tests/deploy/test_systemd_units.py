"""The units as systemd's own analysis sees them, without starting anything."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.installed import UNITS

INSTANCES = {"cleaner.service": "cleaner.service", "cleaner-clean@.service": "cleaner-clean@var-lib-kafka.service"}


@pytest.fixture(params=INSTANCES)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit as it would be installed, with a program that is there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("analysis of units NOT RUN: no systemd-analyze (apt-get install systemd)")
    path = tmp_path / INSTANCES[request.param]
    path.write_text((UNITS / request.param).read_text().replace("/opt/cleaner/bin/cleaner", "/bin/true"))
    return path


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False, timeout=60)


def test_unit_is_verified_without_a_word(unit: Path) -> None:
    """systemd-analyze returns 0 on unknown keys too, so its silence is what counts."""
    done = _analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_unit_is_hardly_exposed(unit: Path) -> None:
    """An exposure of 1.5 or less; what is left open is said why in the unit."""
    done = _analyze("security", "--offline=true", "--threshold=15", str(unit))
    exposure = re.search(r"Overall exposure level for \S+: (\S+)", done.stdout)
    assert exposure is not None, done.stderr
    assert float(exposure[1]) <= 1.5
    assert done.returncode == 0


def test_unit_with_an_unknown_key_is_noticed(unit: Path) -> None:
    """The check above sees a slip of the pen."""
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHmoe="))
    assert "ProtectHmoe" in _analyze("verify", "--man=no", str(unit)).stderr


def test_service_keeps_what_it_must_not_be_denied() -> None:
    """Kernels are made at run time, segments keep their group, no core is written, a wrong setting starts nothing."""
    lines = (UNITS / "cleaner.service").read_text().splitlines()
    for line in (
        "Type=notify",
        "MemoryDenyWriteExecute=no",
        "SystemCallFilter=fchown",
        "LimitCORE=0",
        "RestartPreventExitStatus=2 64 78",
        "ExecReload=/bin/kill -HUP $MAINPID",
    ):
        assert line in lines
    assert [line for line in lines if line.startswith("PrivateUsers=")] == []
