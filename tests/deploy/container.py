"""An image run as a container engine would: namespaces, a read-only root, its own user, no capability."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.deploy.dockerfile import Image

_SCRATCH = "/tmp"  # noqa: S108
_UNPRIVILEGED = (
    "--clear-groups --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs --reuid={} --regid={}"
)


class Container:
    """
    A container that has been started.

    Args:
        image: what to run; its root is not changed.
        arguments: behind the image's ENTRYPOINT; None: its CMD.
        volumes: directories of this machine, by where they are to be seen; writable.
        environment: beside the image's.
        output: takes what the process prints.
    """

    def __init__(
        self,
        image: Image,
        arguments: Sequence[str] | None,
        volumes: Mapping[str, Path],
        environment: Mapping[str, str],
        output: Path,
    ) -> None:
        self._image = image
        self._environment = {**image.environment, **environment}
        for place in (*volumes, _SCRATCH):
            (image.root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (image.root / "etc/hosts").touch()
        words = [*image.words["ENTRYPOINT"], *(image.words["CMD"] if arguments is None else arguments)]
        command = ["unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--kill-child", "/bin/sh", "-c"]
        self.output = output
        with output.open("wb") as stream:
            self._outer = subprocess.Popen(
                [*command, self._script(volumes, words)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )

    def _script(self, volumes: Mapping[str, Path], words: Sequence[str]) -> str:
        root = self._image.root
        mounts = "".join(f"mount --bind '{path}' {root}{place}\n" for place, path in volumes.items())
        return f"""
set -e
mount --make-rprivate /
mount --bind {root} {root}
mount -t proc proc {root}/proc
mount -t tmpfs -o mode=1777 tmpfs {root}{_SCRATCH}
mount -t tmpfs -o mode=755 tmpfs {root}/dev
for device in null zero full random urandom; do
    : > {root}/dev/$device
    mount --bind /dev/$device {root}/dev/$device
done
cd {root}/dev
ln -s /proc/self/fd fd
mkdir -m 1777 shm
hostname container
printf '127.0.0.1 localhost\\n127.0.0.2 container\\n' > hosts
mount --bind hosts {root}/etc/hosts
{mounts}mount -o remount,bind,ro {root}
ip link set lo up
exec chroot {root} {self._unprivileged()} {shlex.join(words)}
"""

    def _unprivileged(self) -> str:
        uid, _, gid = self._image.user.partition(":")
        return f"/usr/bin/setpriv {_UNPRIVILEGED.format(uid, gid)} --"

    @property
    def process_id(self) -> int:
        """Its process 1, as seen from here; 0 before it is there."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def execute(self, words: Sequence[str]) -> int:
        """Run a command in it, as its user and with its environment; returns the exit code."""
        enter = ["nsenter", "-t", str(self.process_id), "-m", "-u", "-i", "-n", "-p", "-r", "-w"]
        done = subprocess.run(
            [*enter, *self._unprivileged().split(), *words],
            env=self._environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode

    def wait(self, timeout: float = 120) -> int:
        """Wait for its end; returns the exit code."""
        return self._outer.wait(timeout)

    def kill(self) -> None:
        """End it."""
        self._outer.kill()
        self._outer.wait()
