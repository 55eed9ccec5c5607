"""
The image without a container engine: the Dockerfile's steps in a bootstrapped Debian, and the cleaner in the result.

The long form only: it downloads a Debian and all packages, and compiles the kernels.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.container import Container
from tests.deploy.dockerfile import Image, build
from tests.deploy.installed import ROOT
from tests.deploy.machine import wait_until
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out

pytestmark = [pytest.mark.slow, pytest.mark.root]

UID = 1000


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the roots are made."""
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="module")
def slim(work: Path, debian: Path) -> Image:
    """The image without Spark."""
    return build((ROOT / "Dockerfile").read_text(), "slim", ROOT, work, {"debian:bookworm-slim": debian})


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """A log dir of the image's user, with a log to clean."""
    path = tmp_path / "logs"
    lay_out(path)
    for each in (path, *path.rglob("*")):
        os.chown(each, UID, UID)
    yield path


def _is_clean(log_dir: Path, scratch: Path) -> bool:
    left = {path.name: path.read_bytes() for path in (log_dir / PARTITION).glob("*.log")}
    return (log_dir / CHECKPOINT).read_text() == CLEAN_CHECKPOINT and left == cleaned_segments(scratch)


def test_image_has_its_kernels_and_no_installer(slim: Image) -> None:
    """Compiled at the build, for more than this machine's processor, and not writable for the user."""
    kernels = list((slim.root / "opt/cleaner/kernels").rglob("*.kernel"))
    assert kernels
    assert {path.stat().st_uid for path in kernels} == {0}
    assert not any(path.stat().st_mode & 0o022 for path in kernels)
    assert not (slim.root / "opt/cleaner/bin/pip").exists()


def test_command_in_a_read_only_root_compiles_nothing(slim: Image, log_dir: Path, tmp_path: Path) -> None:
    """As the image's user, without capabilities; it cleans as Kafka would and says nothing of compiling."""
    run = Container(slim, ["clean", "/data", "--all"], {"/data": log_dir}, {}, tmp_path / "output")
    assert run.wait() == 0, run.output.read_text()
    assert "compil" not in run.output.read_text()
    assert _is_clean(log_dir, tmp_path / "expected")


def test_daemon_in_a_read_only_root_gets_healthy_and_stops(slim: Image, log_dir: Path, tmp_path: Path) -> None:
    """The image's own command and health check; SIGTERM ends it with 0 and nothing half done."""
    state = tmp_path / "state"
    state.mkdir()
    # A volume as Kubernetes hands it out for an fsGroup.
    os.chown(state, 0, UID)
    state.chmod(0o2775)
    volumes = {"/data": log_dir, "/var/lib/cleaner": state}
    environment = {"CLEANER_LOG_DIRS": "/data", "CLEANER_LOG_CLEANER_BACKOFF_MS": "200"}
    run = Container(slim, None, volumes, environment, tmp_path / "output")
    try:
        wait_until(lambda: run.execute(slim.words["HEALTHCHECK"]) == 0, "the health check")
        wait_until(lambda: _is_clean(log_dir, tmp_path / "expected"), "the cleaning")
        os.kill(run.process_id, signal.SIGTERM)
        assert run.wait(30) == 0, run.output.read_text()
    finally:
        run.kill()
    assert sorted(path.name for path in log_dir.rglob("*") if path.suffix in (".cleaned", ".swap", ".deleted")) == []


def test_spark_runs_in_a_read_only_root(work: Path, debian: Path, tmp_path: Path) -> None:
    """The other target: a local session counts as the image's user, with the image's Java and pyspark."""
    image = build((ROOT / "Dockerfile").read_text(), "spark", ROOT, work / "spark", {"debian:bookworm-slim": debian})
    image.words["ENTRYPOINT"] = [
        "python3",
        "-c",
        "from pyspark.sql import SparkSession as S; s = S.builder.master('local[1]')"
        ".config('spark.ui.enabled', 'false').getOrCreate(); print('counted', s.range(1000).count())",
    ]
    run = Container(image, [], {}, {}, tmp_path / "output")
    assert run.wait(180) == 0, run.output.read_text()
    assert "counted 1000" in run.output.read_text()
