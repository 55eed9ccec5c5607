"""
Build the sdist and the wheel, the same bytes wherever and whenever: `python -m tools.dist [--out DIR]`.

The files of the index are copied with one time and one mode, setuptools makes the sdist of them, and the wheel is made
of the sdist. What setuptools leaves to chance is evened out: the times, owners and order in the sdist's archive. The
wheel then gets its bill of materials. The time is SOURCE_DATE_EPOCH, or that of the last commit.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import IO, cast

from tools.locked import ROOT
from tools.sbom import FILE_NAME, sbom


def build_dist(out: Path) -> tuple[Path, Path]:
    """Write both into a directory; returns the sdist and the wheel."""
    epoch = source_date()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        source = scratch / "source"
        copy_index(source, epoch)
        made = _build("--sdist", source, scratch / "sdist", epoch)
        with tarfile.open(made) as archive:
            archive.extractall(scratch, filter="data")
        tree = scratch / made.name.removesuffix(".tar.gz")
        sdist = pack(tree, out / made.name, epoch)
        wheel = _with_sbom(_build("--wheel", tree, scratch / "wheel", epoch), scratch / "unpacked", out, epoch)
    return sdist, wheel


def source_date() -> int:
    """Return what counts as the time of the build, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git("log", "-1", "--format=%ct"))


def copy_index(target: Path, epoch: int) -> None:
    """Copy every file that git knows of, as it is in the work tree now."""
    for name in _git("ls-files", "-z").split("\0"):
        path = ROOT / name
        if name and path.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    even_out(target, epoch)


def even_out(tree: Path, epoch: int) -> None:
    """Give every file below a directory one time, and a mode that no umask had a part in."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            is_program = path.is_dir() or path.read_bytes()[:2] == b"#!"
            path.chmod(0o755 if is_program else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def pack(tree: Path, target: Path, epoch: int) -> Path:
    """Write a directory as a .tar, or a .tar.gz: in the order of its names, as root's, with one time."""
    even_out(tree, epoch)
    with contextlib.ExitStack() as stack:
        stream: IO[bytes] = stack.enter_context(target.open("wb"))
        if target.suffix == ".gz":
            stream = cast(IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", mtime=epoch, fileobj=stream)))
        archive = stack.enter_context(tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT))
        for path in (tree, *sorted(tree.rglob("*"))):
            about = archive.gettarinfo(path, str(path.relative_to(tree.parent)))
            about.uid = about.gid = 0
            about.uname = about.gname = "root"
            about.mtime = epoch
            if about.isreg():
                with path.open("rb") as content:
                    archive.addfile(about, content)
            else:
                archive.addfile(about)
    return target


def _build(kind: str, source: Path, out: Path, epoch: int) -> Path:
    """Run the build frontend with the setuptools that is installed; returns what it made."""
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(out), str(source)]
    _run(command, epoch)
    (made,) = out.iterdir()
    return made


def _with_sbom(wheel: Path, scratch: Path, out: Path, epoch: int) -> Path:
    """Unpack a wheel, add the bill of materials, and pack it with a new RECORD."""
    _run([sys.executable, "-m", "wheel", "unpack", "--dest", str(scratch), str(wheel)], epoch)
    (unpacked,) = scratch.iterdir()
    (about,) = unpacked.glob("*.dist-info")
    version = about.name.removesuffix(".dist-info").rpartition("-")[2]
    (about / "sboms").mkdir()
    (about / "sboms" / FILE_NAME).write_text(sbom(version, epoch))
    even_out(unpacked, epoch)
    _run([sys.executable, "-m", "wheel", "pack", "--dest-dir", str(out), str(unpacked)], epoch)
    return out / wheel.name


def _run(command: list[str], epoch: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Build, and name the files."""
    parser = argparse.ArgumentParser(prog="tools.dist", description=__doc__.strip().partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    for path in build_dist(parser.parse_args().out):
        print(path)


if __name__ == "__main__":
    main()
