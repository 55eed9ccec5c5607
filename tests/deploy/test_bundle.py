"""The bundle: what its script refuses; and, in the long form, a Debian without a network that installs it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from tests.deploy.dockerfile import Image, run_in
from tests.deploy.installed import ROOT
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out
from tools.bundle import build_bundle, core, requirements, write_sums
from tools.locked import versions

FIRST_LOG_SECONDS = 10
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle without its wheels: the script gets to them last."""
    tree = tmp_path / "bundle"
    (tree / "wheels").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "install.sh", tree)
    (tree / "requirements.txt").write_text("")
    (tree / "machine").write_text(f"{platform.machine()}\n")
    (tree / "pythons").write_text(f"{THIS_PYTHON}\n")
    write_sums(tree)
    return tree


def _change(tree: Path) -> None:
    (tree / "requirements.txt").write_text("numpy\n")


def _other_machine(tree: Path) -> None:
    (tree / "machine").write_text("s390x\n")
    write_sums(tree)


def _other_python(tree: Path) -> None:
    (tree / "pythons").write_text("3.9\n")
    write_sums(tree)


def _occupy(tree: Path) -> None:
    (tree.parent / "place").mkdir()
    (tree.parent / "place" / "theirs").touch()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_change, "is not what was packed; get the bundle again"),
        (_other_machine, "this bundle is for s390x, this machine is"),
        (_other_python, f"python is {re.escape(THIS_PYTHON)}, and the bundle has wheels for 3.9"),
        (_occupy, "is there and no environment of Python: name another directory"),
    ],
)
def test_bundle_that_does_not_fit_installs_nothing(bundle: Path, spoil: Callable[[Path], None], said: str) -> None:
    """One line says why and what to do; the directory stays as it was."""
    spoil(bundle)
    place = bundle.parent / "place"
    before = sorted(place.rglob("*"))
    done = subprocess.run(
        ["sh", bundle / "install.sh", place],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable},
    )
    assert done.returncode == 1
    assert re.search(said, done.stderr), done.stderr
    assert sorted(place.rglob("*")) == before


def test_bundle_asks_for_the_locked_releases_by_digest(tmp_path: Path) -> None:
    """Several wheels of one package are alternatives; pip itself is not asked for."""
    for name in ("numba-0.68.1-cp311-cp311-linux_x86_64.whl", "numba-0.68.1-cp312-cp312-linux_x86_64.whl"):
        (tmp_path / name).write_text(name)
    (tmp_path / "pip-26.3-py3-none-any.whl").touch()
    text = requirements(tmp_path)
    assert re.fullmatch(r"numba==0\.68\.1( \\\n    --hash=sha256:[0-9a-f]{64}){2}\n", text)
    wanted = {each.name: each.version for each in core()}
    assert {"numba", "llvmlite", "numpy"} < set(wanted)
    assert wanted.items() <= versions().items()
    assert not {"pytest", "pyspark"} & set(wanted)


@pytest.mark.slow
@pytest.mark.root
def test_bundle_is_installed_without_a_network(debian: Path, tmp_path: Path) -> None:
    """In a Debian with Python and nothing else; then a first log, and the same again over it."""
    image = Image(tmp_path / "root")
    subprocess.run(["cp", "-a", "--reflink=auto", debian, image.root], check=True)
    run_in(image, "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3")
    made = build_bundle(image.root / "root", platform.machine(), ["3.11"])
    lay_out(image.root / "srv/logs")

    def offline(command: str) -> str:
        return run_in(image, f"unshare --net sh -ec '{command}'")

    assert offline("grep -c : /proc/net/dev").strip() == "1"  # loopback, which is down
    offline(f"cd /root && tar xf {made.name} && cd {made.stem} && sh install.sh")
    begin = time.monotonic()
    said = offline("/opt/cleaner/bin/cleaner clean /srv/logs --all 2>&1")
    assert time.monotonic() - begin < FIRST_LOG_SECONDS
    assert "compil" not in said
    left = {path.name: path.read_bytes() for path in (image.root / "srv/logs" / PARTITION).glob("*.log")}
    assert left == cleaned_segments(tmp_path / "expected")
    assert (image.root / "srv/logs" / CHECKPOINT).read_text() == CLEAN_CHECKPOINT
    assert f"cleaner {cleaner.__version__}" in offline(f"cd /root/{made.stem} && sh install.sh")
