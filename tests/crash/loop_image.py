"""Real file systems in a file: mounted over a loop device, with a switch for the power."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

# _IOR('X', 125, __u32) of <linux/fs.h>, known to ext4 and XFS; 2 = neither flush the journal nor the data.
_GOINGDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_IMAGE_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20}  # the smallest that mkfs.xfs makes is 300 MiB


class LoopImage:
    """A file system in a file. `mount` it, `cut_power`, `unmount`; the next mount shows what the disk held."""

    def __init__(self, kind: str, scratch: Path, *, size_bytes: int | None = None, has_journal: bool = True) -> None:
        self.point = scratch / "mounted"
        self._image = scratch / "image"
        self._is_mounted = False
        self.point.mkdir()
        with self._image.open("wb") as file:
            file.truncate(size_bytes or _IMAGE_BYTES[kind])
        options = () if has_journal else ("-O", "^has_journal")
        # Of a small ext4 blocks would be smaller than pages, and a write, see `mount`, could reach over two of them.
        blocks = ("-b", str(os.sysconf("SC_PAGE_SIZE"))) if kind == "ext4" else ()
        _run(f"mkfs.{kind}", "-q", *blocks, *options, str(self._image))

    def mount(self) -> Path:
        """Mount it; the journal is replayed. Returns the mount point."""
        if _is_attached(self._image):
            self._leave_behind()
        _run("mount", "-o", "loop", str(self._image), str(self.point))
        self._is_mounted = True
        # The loop driver takes a write that its file's disk cut short as complete, and then no fsync fails (Linux
        # 6.18, `lo_complete_rq`): a disk that loses what it acknowledged. A write of one page cannot be cut short.
        device = self.point.stat().st_dev
        queue = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue")
        (queue / "max_sectors_kb").write_text(str(os.sysconf("SC_PAGE_SIZE") // 1024))
        return self.point

    def _leave_behind(self) -> None:
        """
        Go on with a copy of the image.

        A mount namespace made during the mount, such as a container's, still has the file system mounted: to
        mount the image again would give the same one, without power. Nothing is written to it any more.
        """
        copy = self._image.with_name(f"{self._image.name}+")
        _run("cp", "--sparse=always", str(self._image), str(copy))
        self._image.unlink()
        self._image = copy

    def cut_power(self) -> None:
        """Stop the file system at once: everything not forced to disk is lost, and every later call fails."""
        descriptor = os.open(self.point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _GOINGDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def unmount(self) -> None:
        """Unmount it, if it is mounted."""
        # Not `os.path.ismount`: of an XFS without power it says no.
        if self._is_mounted:
            _run("umount", str(self.point))
            self._is_mounted = False


@contextlib.contextmanager
def loop_image(
    kind: str, scratch: Path, *, size_bytes: int | None = None, has_journal: bool = True
) -> Iterator[LoopImage]:
    """
    Make a file system for the length of a `with` block. Skips the test, loudly, where that is not possible.

    Args:
        kind: `ext4` or `xfs`.
        scratch: a directory for the image and the mount point.
        size_bytes: of the file system; the image is sparse.
        has_journal: False is for ext4 only.
    """
    require_loop_images(kind)
    image = LoopImage(kind, scratch, size_bytes=size_bytes, has_journal=has_journal)
    try:
        yield image
    finally:
        image.unmount()


def require_loop_images(kind: str) -> None:
    """Skip the test, loudly, where no file system of this kind can be mounted from a file."""
    if os.geteuid() != 0:
        pytest.skip("power cuts on real file systems NOT RUN: they need root")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"power cuts on {kind} NOT RUN: no mkfs.{kind} (apt-get install e2fsprogs xfsprogs)")
    if not Path("/dev/loop-control").exists():
        pytest.skip("power cuts on real file systems NOT RUN: no loop devices")


@contextlib.contextmanager
def small_disk(scratch: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a disk in memory of that size for the length of a `with` block. Skips the test, loudly, without root."""
    if os.geteuid() != 0:
        pytest.skip("full disks NOT RUN: they need root")
    scratch.mkdir(exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(scratch))
    try:
        yield scratch
    finally:
        _run("umount", str(scratch))


def _is_attached(image: Path) -> bool:
    """Tell whether a loop device has this file."""
    found = Path("/sys/block").glob("loop*/loop/backing_file")
    return any(path.read_text().strip() == str(image) for path in found if path.exists())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
