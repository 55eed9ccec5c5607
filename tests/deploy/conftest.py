"""A minimal Debian, and the wheel: made once for all tests that install something."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.dist import build_dist

MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1763900000")
        _, wheel = build_dist(tmp_path_factory.mktemp("dist"))
    return wheel


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `debian:bookworm-slim` is made of; to be copied, not changed."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("packages and images NOT TRIED: they need root and debootstrap (apt-get install debootstrap)")
    root = tmp_path_factory.mktemp("debian") / "root"
    command = ["debootstrap", "--variant=minbase", "bookworm", str(root), MIRROR]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"packages and images NOT TRIED: no Debian from {MIRROR}")
    return root
