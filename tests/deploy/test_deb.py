"""The Debian package in a minimal Debian: installed, upgraded, removed and purged. The long form only."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

import cleaner
from tests.deploy.dockerfile import Image, run_in
from tests.deploy.price_log import CHECKPOINT, CLEAN_CHECKPOINT, PARTITION, cleaned_segments, lay_out
from tools.deb import build_deb

pytestmark = [pytest.mark.slow, pytest.mark.root]

FIRST_LOG_SECONDS = 10
SETTINGS = "etc/cleaner/cleaner.properties"
# What apt, dpkg and the system's own programs keep about themselves.
THEIRS = re.compile(
    r"(proc|sys|dev|run|tmp|root|var/(lib/(dpkg|apt|systemd/deb-systemd-helper.*|aptitude)|cache/(apt|debconf|ldconfig|man)"
    r"|log|lib/systemd))(/|$)|etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|etc/(ld.so.cache|resolv.conf)$"
)


def _files(root: Path) -> set[str]:
    names = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {
        name for name in names if not THEIRS.match(name) and "/__pycache__" not in name.replace("opt/cleaner", "ours")
    }


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package for Debian 12."""
    if shutil.which("dh") is None:
        pytest.skip("package for Debian NOT BUILT: no debhelper (tools/prepare image)")
    return build_deb(tmp_path_factory.mktemp("deb"), "amd64", "3.11")


@pytest.fixture(scope="module")
def host(debian: Path, deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A Debian with what the package depends on, and the file in /srv."""
    image = Image(tmp_path_factory.mktemp("host") / "root")
    subprocess.run(["cp", "-a", "--reflink=auto", debian, image.root], check=True)
    shutil.copy(deb, image.root / "srv/first.deb")
    # As another version would be: the same files, and a sample of settings that has changed.
    tree = tmp_path_factory.mktemp("next") / "tree"
    subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {cleaner.__version__}", "Version: 99"))
    with (tree / SETTINGS).open("a") as settings:
        settings.write("# of version 99\n")
    subprocess.run(["dpkg-deb", "-b", "-Znone", tree, image.root / "srv/next.deb"], check=True, capture_output=True)
    run_in(image, "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3 systemd man-db")
    return image


def _cleans_a_log(host: Image, name: str, scratch: Path, owner: str) -> None:
    log_dir = host.root / "srv" / name
    lay_out(log_dir)
    run_in(host, f"chown -R {owner} /srv/{name}")
    begin = time.monotonic()
    said = run_in(host, f"cleaner clean /srv/{name} --all 2>&1")
    assert time.monotonic() - begin < FIRST_LOG_SECONDS
    assert "compil" not in said
    left = {path.name: path.read_bytes() for path in (log_dir / PARTITION).glob("*.log")}
    assert left == cleaned_segments(scratch / name)
    assert (log_dir / CHECKPOINT).read_text() == CLEAN_CHECKPOINT
    shutil.rmtree(log_dir)


def test_package_is_installed_upgraded_removed_and_purged(host: Image, tmp_path: Path) -> None:
    """Settings and state survive all but the purge, after which every file is as before."""
    root = host.root
    before = _files(root)
    run_in(host, "dpkg -i /srv/first.deb")
    assert "kafka:" in (root / "etc/passwd").read_text()
    assert run_in(host, "cleaner --version").startswith(f"cleaner {cleaner.__version__}\n")
    assert run_in(host, "man -w cleaner-clean 5 cleaner.properties").count("/usr/share/man/") == 2
    assert run_in(host, "dpkg --verify kafka-log-cleaner") == ""
    assert run_in(host, "systemctl is-enabled cleaner || true").strip() == "disabled"
    _cleans_a_log(host, "first", tmp_path, "root:root")
    _cleans_a_log(host, "theirs", tmp_path, "kafka:kafka")

    (root / "var/lib/cleaner").mkdir()
    (root / "var/lib/cleaner/quarantine.json").touch()
    (root / SETTINGS).write_text("log.dirs=/srv\n")
    run_in(host, "dpkg --force-confdef -i /srv/next.deb < /dev/null")
    assert (root / SETTINGS).read_text() == "log.dirs=/srv\n"
    _cleans_a_log(host, "second", tmp_path, "kafka:kafka")

    # A new release of Python makes all kernels useless: the trigger compiles them again.
    shutil.rmtree(root / "opt/cleaner/kernels")
    run_in(host, "apt-get install -y -qq --reinstall python3.11-minimal")
    _cleans_a_log(host, "third", tmp_path, "kafka:kafka")

    run_in(host, "dpkg -r kafka-log-cleaner")
    assert not (root / "opt/cleaner").exists()
    left = {name for name in _files(root) - before if not name.startswith("srv/")}
    assert {SETTINGS, "var/lib/cleaner/quarantine.json"} <= left
    run_in(host, "dpkg -P kafka-log-cleaner")
    assert _files(root) - before == set()
    # dpkg removes empty directories of a package, and nobody owns /opt.
    assert before - _files(root) <= {"opt"}


def test_package_does_not_mix_with_an_installation_by_hand(host: Image) -> None:
    """It says what is in the way, and leaves it."""
    by_hand = host.root / "opt/cleaner/pyvenv.cfg"
    by_hand.parent.mkdir(parents=True)
    by_hand.touch()
    said = run_in(host, "dpkg -i /srv/first.deb 2>&1 || true")
    assert "/opt/cleaner is there already, and not from a package: move or remove it first" in said
    assert list(by_hand.parent.iterdir()) == [by_hand]
    run_in(host, "dpkg -P kafka-log-cleaner 2>&1 || true")
    shutil.rmtree(by_hand.parent)
