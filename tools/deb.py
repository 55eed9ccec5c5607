"""
Build the Debian package: `python -m tools.deb [--out DIR] [--python 3.11]`, with debhelper.

The package has an environment of its own in /opt/cleaner, where the units and all documents have the program: the
wheels of requirements.lock, laid out by PyPA's installer. It is for one Python, that of one Debian; no index is asked
when it is installed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from email.utils import format_datetime
from pathlib import Path

from installer import install
from installer.destinations import SchemeDictionaryDestination
from installer.sources import WheelFile
from packaging.utils import parse_wheel_filename

from tools.bundle import core, download
from tools.dist import build_dist, even_out, source_date
from tools.locked import NAME, ROOT

DEBIAN = Path(__file__).with_name("debian")
PREFIX = "/opt/cleaner"
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}

# What the wheel has below share/ and where Debian has it; and files of the checkout.
_MOVED = {
    "share/man": "usr/share/man",
    "share/bash-completion/completions/cleaner.bash": "usr/share/bash-completion/completions/cleaner",
    "share/zsh/site-functions": "usr/share/zsh/vendor-completions",
    "share/fish/vendor_completions.d": "usr/share/fish/vendor_completions.d",
    f"share/{NAME}/cleaner.properties": "etc/cleaner/cleaner.properties",
    f"share/{NAME}/systemd/cleaner.service": "lib/systemd/system/cleaner.service",
    f"share/{NAME}/systemd/cleaner-clean@.service": "lib/systemd/system/cleaner-clean@.service",
    f"share/{NAME}/systemd/cleaner.sysusers.conf": "usr/lib/sysusers.d/cleaner.conf",
    f"share/{NAME}": f"usr/share/doc/{NAME}/examples",
}


def build_deb(out: Path, architecture: str, python: str) -> Path:
    """Write the .deb into a directory; returns its path."""
    epoch = source_date()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        _, wheel = build_dist(scratch / "dist")
        version = str(parse_wheel_filename(wheel.name)[1])
        wheels = scratch / "wheels"
        download(wheels, core(), ARCHITECTURES[architecture], [python])
        source = scratch / f"{NAME}-{version}"
        lay_out(source / "installed", [wheel, *sorted(wheels.iterdir())], python)
        even_out(source / "installed", epoch)
        _write_debian(source / "debian", version, python, epoch)
        command = ["dpkg-buildpackage", "--build=binary", "--no-sign", f"--host-arch={architecture}", "-d"]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "DEB_BUILD_OPTIONS": "nocheck"}
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
        (made,) = scratch.glob("*.deb")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(made, out))


def lay_out(root: Path, wheels: Sequence[Path], python: str) -> None:
    """Make the files below `/`: the environment as venv would make it, and what lies elsewhere on Debian."""
    place = root / PREFIX.lstrip("/")
    (place / "bin").mkdir(parents=True)
    (place / "kernels").mkdir()
    (place / "bin" / "python3").symlink_to(f"/usr/bin/python{python}")
    (place / "bin" / "python").symlink_to("python3")
    settings = ("home = /usr/bin", "include-system-site-packages = false", f"version = {python}")
    (place / "pyvenv.cfg").write_text("".join(f"{line}\n" for line in settings))
    packages = f"{PREFIX}/lib/python{python}/site-packages"
    places = {"purelib": packages, "platlib": packages, "scripts": f"{PREFIX}/bin", "data": PREFIX, "headers": PREFIX}
    target = SchemeDictionaryDestination(
        places,
        interpreter=f"{PREFIX}/bin/python3",
        script_kind="posix",
        bytecode_optimization_levels=(),
        destdir=str(root),
    )
    for wheel in wheels:
        with WheelFile.open(wheel) as source:
            source.validate_record()
            install(source, target, additional_metadata={"INSTALLER": b"dpkg\n"})
    for old, new in _MOVED.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(place / old, root / new)
    shutil.rmtree(place / "share")
    shutil.copy(ROOT / "CHANGELOG.md", root / f"usr/share/doc/{NAME}")
    (root / "usr/bin").mkdir()
    (root / "usr/bin/cleaner").symlink_to(f"{PREFIX}/bin/cleaner")


def _write_debian(target: Path, version: str, python: str, epoch: int) -> None:
    """Fill in what depends on the version and the Python."""
    shutil.copytree(DEBIAN, target)
    major, minor = map(int, re.fullmatch(r"(\d+)\.(\d+)", python).groups())  # type: ignore[union-attr]
    for path in target.iterdir():
        text = path.read_text().replace("@PYTHON@", python).replace("@PYTHON_NEXT@", f"{major}.{minor + 1}")
        path.write_text(text)
    maintainer = re.search(r"^Maintainer: (.*)$", (DEBIAN / "control").read_text(), re.MULTILINE)[1]  # type: ignore[index]
    when = format_datetime(datetime.datetime.fromtimestamp(epoch, datetime.UTC))
    entry = f"{NAME} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n -- {maintainer}  {when}\n"
    (target / "changelog").write_text(entry)
    (target / "rules").chmod(0o755)


def main() -> None:
    """Build, and name the file."""
    parser = argparse.ArgumentParser(prog="tools.deb", description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    parser.add_argument("--python", default="3.11", metavar="VERSION", help="that of the Debian it is for (3.11: 12)")
    parser.add_argument("--architecture", default="amd64", choices=sorted(ARCHITECTURES))
    chosen = parser.parse_args()
    print(build_deb(chosen.out, chosen.architecture, chosen.python))


if __name__ == "__main__":
    main()
