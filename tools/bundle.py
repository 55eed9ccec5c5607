"""
Pack all that a machine without a network needs: `python -m tools.bundle [--out DIR] [--machine M] [--python V ...]`.

The bundle is a .tar with the wheel of this project, wheels of all packages it needs at run time in the releases of
requirements.lock, one install script, and the digest of every file, twice: for sha256sum and for pip.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.dist import build_dist, pack, source_date
from tools.locked import NAME, ROOT, Locked, runtime

PYTHONS = ("3.11", "3.12", "3.13")
"""Debian 12, Ubuntu 24.04, Debian 13."""

_PIP = Locked("pip", "26.3", (), "MIT")  # installs the others; Debian's Python comes without one
_GLIBC = (28, 27, 17)  # newest first: what Debian 12 and later have is newer


def build_bundle(out: Path, machine: str, pythons: Sequence[str]) -> Path:
    """Write the archive into a directory; returns its path."""
    with tempfile.TemporaryDirectory() as name:
        _, wheel = build_dist(Path(name) / "dist")
        version = str(parse_wheel_filename(wheel.name)[1])
        tree = Path(name) / f"{NAME}-{version}-linux-{machine}"
        lay_out(tree, wheel, machine, pythons)
        out.mkdir(parents=True, exist_ok=True)
        return pack(tree, out / f"{tree.name}.tar", source_date())


def lay_out(tree: Path, wheel: Path, machine: str, pythons: Sequence[str]) -> None:
    """Make the bundle as a directory."""
    wheels = tree / "wheels"
    download(wheels, [_PIP, *core()], machine, pythons)
    shutil.copy(wheel, wheels)
    shutil.copy(ROOT / "tools" / "install.sh", tree)
    shutil.copy(ROOT / "LICENSE", tree)
    (tree / "requirements.txt").write_text(requirements(wheels))
    (tree / "machine").write_text(f"{machine}\n")
    (tree / "pythons").write_text("".join(f"{each}\n" for each in pythons))
    write_sums(tree)


def core() -> list[Locked]:
    """Return the packages that the product needs without any extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return list(runtime(project["dependencies"]).values())


def download(wheels: Path, packages: Sequence[Locked], machine: str, pythons: Sequence[str]) -> None:
    """Get the wheels of some packages for each Python from the index that pip asks; nothing is built."""
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in _GLIBC]
    platforms.append(f"--platform=manylinux2014_{machine}")
    exact = [f"{each.name}=={each.version}" for each in packages]
    for python in pythons:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--implementation=cp", f"--python-version={python}", f"--dest={wheels}", *platforms, *exact]
        subprocess.run(command, check=True)


def requirements(wheels: Path) -> str:
    """Return what pip is given: every package with the digests of its wheels, so that it takes no other file."""
    found: dict[str, list[str]] = {}
    for path in sorted(wheels.glob("*.whl")):
        name, version, _, _ = parse_wheel_filename(path.name)
        if canonicalize_name(name) != _PIP.name:
            found.setdefault(f"{name}=={version}", []).append(_sha256(path))
    return "".join(
        " \\\n    ".join([package, *(f"--hash=sha256:{digest}" for digest in digests)]) + "\n"
        for package, digests in found.items()
    )


def write_sums(tree: Path) -> None:
    """Write SHA256SUMS of all other files, for sha256sum."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{_sha256(path)}  {path.relative_to(tree)}\n" for path in files]
    (tree / "SHA256SUMS").write_text("".join(lines))


def _sha256(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def main() -> None:
    """Pack, and name the file and its digest."""
    parser = argparse.ArgumentParser(prog="tools.bundle", description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    parser.add_argument("--machine", default=platform.machine(), choices=("x86_64", "aarch64"))
    parser.add_argument("--python", action="append", metavar="VERSION", help=f"instead of {', '.join(PYTHONS)}")
    chosen = parser.parse_args()
    made = build_bundle(chosen.out, chosen.machine, chosen.python or PYTHONS)
    print(f"{_sha256(made)}  {made}")


if __name__ == "__main__":
    main()
