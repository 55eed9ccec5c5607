"""Which file system a directory is on, and which promises that a log needs it does not make."""

from __future__ import annotations

from pathlib import Path

from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.memory_limits import read_text

_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "9p", "afs", "virtiofs"))
_IN_MEMORY = frozenset(("tmpfs", "ramfs"))
_NOT_POSIX = frozenset(("vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"))


def kind_of_file_system(fs: FileSystem, path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """
    Return the type of the file system a directory is on, as `mount` shows it; empty if unknown.

    Args:
        path: links resolved.
        mounts: the kernel's table, see proc(5).
    """
    depth, kind = 0, ""
    for line in read_text(fs, mounts).splitlines():
        words = line.split()
        if "-" not in words[6:-1]:
            continue
        point = Path(words[4].encode().decode("unicode_escape"))  # spaces are octal there
        # Of two file systems mounted at one place, the later one is visible.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            depth, kind = len(point.parts), words[words.index("-", 6) + 1]
    return kind


def missing_guarantee(kind: str) -> str:
    """Say what a type of file system does not promise; empty for a local disk's."""
    if kind in _NETWORK or kind.startswith("fuse."):
        return "renames, fsyncs and locks are only as safe there as its server makes them"
    if kind in _IN_MEMORY:
        return "all its files are lost when the machine stops"
    if kind in _NOT_POSIX:
        return "it has no owners, hard links or safe renames"
    return ""
