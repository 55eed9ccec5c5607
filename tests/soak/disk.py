"""A small ext4 that can be filled up, lose its power, fail to write, or be turned read-only; and a plain directory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.loop_image import LoopImage, require_loop_images, small_disk
from tests.simulation.found import Wrong

IMAGE_BYTES = 96 << 20
_BELOW_BYTES = 160 << 20
_UNMOUNT_SECONDS = 15.0


class SmallDisk(LoopImage):
    """
    An ext4 in an image, on a disk in memory that may be filled up below it, so that writes and fsyncs really fail.

    Args:
        below: a directory on that disk.
    """

    def __init__(self, below: Path) -> None:
        super().__init__("ext4", below, size_bytes=IMAGE_BYTES)
        self._below = below
        self.mount()

    def mount(self) -> Path:
        """Mount it; after an error of the file system it goes read-only."""
        point = super().mount()
        _run("mount", "-o", "remount,errors=remount-ro", str(point))
        return point

    def fill(self, free_bytes: int) -> None:
        """Leave that much room."""
        about = os.statvfs(self.point)
        size = about.f_bavail * about.f_frsize - free_bytes
        with contextlib.suppress(OSError), (self.point / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(size, 1))

    def free(self) -> None:
        """Give all room back."""
        (self.point / "filler").unlink(missing_ok=True)

    def fail_writes(self) -> None:
        """Let writes to blocks that are new to the image fail from now on, with EIO."""
        _run("fstrim", str(self.point))
        with contextlib.suppress(OSError), (self._below / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                continue

    def break_down(self) -> None:
        """Have ext4 find an error: it goes read-only."""
        device = self.point.stat().st_dev
        name = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().name
        Path(f"/sys/fs/ext4/{name}/trigger_fs_error").write_text("soak")

    def repair(self) -> None:
        """Unmount it, check it and mount it again. Raises Wrong: a process keeps it busy."""
        until = time.monotonic() + _UNMOUNT_SECONDS
        while _is_mounted_at(self.point):
            done = subprocess.run(["umount", str(self.point)], capture_output=True, text=True, check=False)
            if done.returncode and time.monotonic() > until:
                raise Wrong(f"the disk cannot be unmounted: {done.stderr.strip()}; open are {open_below(self.point)}")
            if done.returncode:
                time.sleep(0.1)
        self._is_mounted = False
        (self._below / "filler").unlink(missing_ok=True)
        checked = subprocess.run(["e2fsck", "-fy", str(self._image)], capture_output=True, text=True, check=False)
        if checked.returncode not in (0, 1):
            raise AssertionError(f"e2fsck: {checked.returncode} {checked.stdout} {checked.stderr}")
        self.mount()


@contextlib.contextmanager
def small_disk_of(scratch: Path) -> Iterator[SmallDisk]:
    """Make such a disk for the length of a `with` block. Skips a test, loudly, where that is not possible."""
    require_loop_images("ext4")
    with small_disk(scratch, _BELOW_BYTES) as below:
        disk = SmallDisk(below)
        try:
            yield disk
        finally:
            disk.unmount()


def open_below(directory: Path) -> list[str]:
    """Return which process has which file open below a directory."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            path = link.readlink()
            if path.is_relative_to(directory):
                found.append(f"{link.parts[2]}: {path}")
    return found


def _is_mounted_at(point: Path) -> bool:
    return any(line.split()[1] == str(point) for line in Path("/proc/self/mounts").read_text().splitlines())


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
