"""The sdist and the wheel: complete, the same bytes wherever they are built, and enough to clean a first log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from installer.sources import WheelFile

import cleaner
from tests.deploy.installed import ROOT
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out
from tools.locked import NAME, versions

EPOCH = "1763900000"
DATA = f"kafka_log_cleaner-{cleaner.__version__}.data/data/share"
ABOUT = f"kafka_log_cleaner-{cleaner.__version__}.dist-info"


def _run(command: Sequence[str | Path], **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def names(wheel: Path) -> set[str]:
    """What is in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_has_every_file_of_the_packages(names: set[str]) -> None:
    """Python, templates, py.typed, what Spark gets: all that git knows below the two packages."""
    listed = subprocess.run(
        ["git", "ls-files", "cleaner", "pyspark_kafkalog"], cwd=ROOT, capture_output=True, text=True
    )
    files = set(listed.stdout.split())
    assert len(files) > 200
    assert files - names == set()
    assert {name for name in names if name.startswith(("cleaner/", "pyspark_kafkalog/"))} == files
    assert {name.partition("/")[0] for name in names} == {"cleaner", "pyspark_kafkalog", DATA.partition("/")[0], ABOUT}


def test_wheel_has_manuals_completions_units_samples_and_the_licence(names: set[str]) -> None:
    """Each file of deploy/ and config/ that a host needs; neither the compose example nor hidden files."""
    wanted = {
        **{f"man/man1/{path.name}": path for path in (ROOT / "deploy/man").glob("*.1")},
        "man/man5/cleaner.properties.5": ROOT / "deploy/man/cleaner.properties.5",
        "bash-completion/completions/cleaner.bash": ROOT / "deploy/completion/cleaner.bash",
        "zsh/site-functions/_cleaner": ROOT / "deploy/completion/_cleaner",
        "fish/vendor_completions.d/cleaner.fish": ROOT / "deploy/completion/cleaner.fish",
    }
    for top in ("systemd", "prometheus", "grafana", "kubernetes", "helm"):
        files = [path for path in (ROOT / "deploy" / top).rglob("*") if path.is_file()]
        wanted.update({f"{NAME}/{path.relative_to(ROOT / 'deploy')}": path for path in files})
    files = [path for path in (ROOT / "config").rglob("*") if path.is_file()]
    wanted.update({f"{NAME}/{path.relative_to(ROOT / 'config')}": path for path in files})
    assert {name for name in names if name.startswith(DATA)} == {f"{DATA}/{name}" for name in wanted}
    assert f"{ABOUT}/licenses/LICENSE" in names


def test_wheel_has_the_bill_of_its_materials(wheel: Path) -> None:
    """PEP 770: CycloneDX, with the releases of requirements.lock and what needs what."""
    with zipfile.ZipFile(wheel) as archive:
        bill = json.loads(archive.read(f"{ABOUT}/sboms/{NAME}.cdx.json"))
        metadata = archive.read(f"{ABOUT}/METADATA").decode()
    product = bill["metadata"]["component"]
    assert (bill["bomFormat"], product["name"], product["version"]) == ("CycloneDX", NAME, cleaner.__version__)
    parts = {part["name"]: part["version"] for part in bill["components"]}
    direct = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {"numba", "llvmlite", "markupsafe"} < set(parts)
    assert len(parts) >= len(direct)
    assert parts.items() <= versions().items()
    assert "pyspark" not in parts
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert f"pkg:pypi/llvmlite@{parts['llvmlite']}" in needs[f"pkg:pypi/numba@{parts['numba']}"]
    assert len(needs[product["bom-ref"]]) == len(direct)
    assert f"\nVersion: {cleaner.__version__}\n" in metadata


def test_record_of_the_wheel_is_right(wheel: Path) -> None:
    """Every file with its digest, the bill included; installers refuse it else."""
    with WheelFile.open(wheel) as source:
        source.validate_record(validate_contents=True)


def test_wheel_alone_cleans_a_log(wheel: Path, tmp_path: Path) -> None:
    """What is in it is enough, without this checkout: it leaves what Kafka's cleaner would."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    _cleans([sys.executable, "-P", "-m", "cleaner"], tmp_path, PYTHONPATH=str(tmp_path / "unpacked"))


def _cleans(program: list[str | Path], scratch: Path, **environment: str) -> None:
    log_dir = scratch / "logs"
    lay_out(log_dir)
    _run([*program, "clean", log_dir, "--all"], **environment)
    left = {path.name: path.read_bytes() for path in (log_dir / PARTITION).glob("*.log")}
    assert left == cleaned_segments(scratch / "expected")
    assert (log_dir / CHECKPOINT).read_text() == CLEAN_CHECKPOINT


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    """In other directories, of files with other times and modes, in another time zone, under another umask."""
    there = tmp_path / "elsewhere" / "a much longer name"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, listed):
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, there / name)
        (there / name).chmod(0o600)
        os.utime(there / name, (1e9, 1e9))
    _run(["git", "init", "-q", there])
    _run(["git", "-C", there, "add", "-A"])
    build = f'umask $1; cd "$2" && {sys.executable} -m tools.dist --out "$3"'
    common = {"SOURCE_DATE_EPOCH": EPOCH}
    _run(["sh", "-c", build, "-", "022", ROOT, tmp_path / "1"], **common, TZ="UTC", PYTHONPATH=str(ROOT))
    _run(["sh", "-c", build, "-", "077", there, tmp_path / "2"], **common, TZ="Asia/Tokyo", PYTHONPATH=str(there))
    first, second = ({path.name: path.read_bytes() for path in (tmp_path / each).iterdir()} for each in "12")
    assert len(first) == 2
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


@pytest.mark.slow
def test_wheel_installed_by_pip_cleans_a_log(wheel: Path, tmp_path: Path) -> None:
    """Into an empty environment, with the locked releases; pages and units are below its share/. It asks an index."""
    _run([sys.executable, "-m", "venv", tmp_path / "venv"])
    place = tmp_path / "venv"
    _run([place / "bin/pip", "install", "-q", "--constraint", ROOT / "requirements.lock", wheel], PYTHONPATH="")
    assert (place / "share/man/man1/cleaner.1").exists()
    assert (place / f"share/{NAME}/systemd/cleaner.service").exists()
    assert _run([place / "bin/cleaner", "--version"], PYTHONPATH="").startswith(f"cleaner {cleaner.__version__}\n")
    _cleans([place / "bin/cleaner"], tmp_path, PYTHONPATH="")
