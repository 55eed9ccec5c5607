"""Files with odd names, of odd kinds, exchanged or gone."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.change_bytes import Rng

REGULAR = ("empty", "copy", "copy", "noise")
ANY_KIND = (*REGULAR, "directory", "full directory", "link", "dangling", "loop", "fifo", "socket")

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".tmp", "", ".deleted", ".swap")
_TEMPORARY = ("", "", "", ".cleaned", ".swap", ".deleted", ".tmp", ".cleaned.swap", ".swap.swap")
_PREFIXES = (
    b"-0000000000000000001",
    b"-1",
    b"+7",
    b"12",
    b"00000000000000000000",
    b"00000000000000000003",
    b"09223372036854775807",
    b"09223372036854775808",
    b"99999999999999999999",
    b"-9223372036854775808",
    b"1" * 60,
    "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٣".encode(),
    "²".encode() * 20,
    b"\xff\xfe\x80",
    b"\n\x1b[31m",
    b"",
    b".",
    b"0x10",
    b"1_0",
    b" 5",
    b"nan",
)
_DIRECTORIES = (
    b"topic--1",
    b"topic-2147483648",
    b"topic-99999999999999999999",
    b"topic-0.0123456789abcdef0123456789abcdef-delete",
    b"topic-0.0123456789abcdef0123456789abcdef-future",
    b"topic-7.0123456789abcdef0123456789abcdef-stray",
    b"topic-00",
    b"topic-+0",
    b"topic-",
    b"-1",
    b"-",
    b"no dash",
    b"t\xff\xfe-0",
    "thema-٣".encode(),
    b"topic-\n0",
    b"__cluster_metadata-0",
    b"remote-log-index-cache",
    b".hidden-0",
    b"topic-0-delete",
    b"x" * 250 + b"-0",
)


def _make(rng: Rng, path: bytes, like: Path, kinds: Sequence[str]) -> str:
    """Put something of one of some kinds there."""
    if os.path.lexists(path):
        return "is there already"
    what = rng.choice(kinds)
    match what:
        case "empty" | "noise" | "copy":
            data = {"empty": b"", "noise": rng.randbytes(100), "copy": like.read_bytes() if like.is_file() else b""}[
                what
            ]
            with open(path, "wb") as file:  # noqa: PTH123 - a name that is no text
                file.write(data)
        case "directory" | "full directory":
            os.mkdir(path)  # noqa: PTH102
            if what == "full directory":
                os.mkdir(path + b"/x")  # noqa: PTH102
        case "link":
            os.symlink(os.fsencode(like), path)  # noqa: PTH211
        case "dangling":
            os.symlink(b"nowhere", path)  # noqa: PTH211
        case "loop":
            os.symlink(os.path.basename(path), path)  # noqa: PTH119, PTH211
        case "fifo":
            os.mkfifo(path)
        case "socket":
            _make_socket(path)
    return what


def _make_socket(path: bytes) -> None:
    """A socket's address may be 107 bytes at most, a path more: it is made from within its directory."""
    home = os.open(os.path.dirname(path), os.O_RDONLY)  # noqa: PTH120
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{home}/".encode() + os.path.basename(path)[:60])  # noqa: PTH119
    finally:
        os.close(home)


def add_stray(rng: Rng, target: Path, kinds: Sequence[str] = ANY_KIND) -> str:
    """Put something with an odd name into the partition's directory, or the log dir."""
    files = sorted(path for path in target.iterdir() if path.is_file())
    like = rng.choice(files) if files else target
    if kinds is ANY_KIND and rng.random() < 0.25:
        name = rng.choice(_DIRECTORIES)
        path = os.fsencode(target.parent) + b"/" + name
        if rng.random() < 0.5 and not os.path.lexists(path):
            shutil.copytree(os.fsencode(target), path, symlinks=True, copy_function=_copy_regular)
            return f"stray {name!r}: a partition's copy"
    else:
        known = [os.fsencode(path.name.partition(".")[0]) for path in files]
        name = rng.choice((*_PREFIXES, *known, *known)) + (rng.choice(_SUFFIXES) + rng.choice(_TEMPORARY)).encode()
        path = os.fsencode(target) + b"/" + name
    if name in (b"", b"."):
        return "no name"
    return f"stray {name!r}: {_make(rng, path, like, kinds)} (like {like.name})"


def _copy_regular(source: str, target: str) -> object:
    return shutil.copy2(source, target) if Path(os.fsdecode(source)).is_file() else None


def change_file(rng: Rng, target: Path, kinds: Sequence[str] = ANY_KIND) -> str:
    """Take a file away, or put another thing in its place."""
    homes = [target, target, target.parent]
    files = sorted(path for path in rng.choice(homes).iterdir() if path.is_file() and path.name != ".lock")
    if not files:
        return "no file left"
    path, other = rng.choice(files), rng.choice(files)
    what = rng.choice(("gone", "gone", "of another", "exchanged", "replaced", "renamed", "unreadable"))
    data = path.read_bytes()
    if what == "of another":
        path.write_bytes(other.read_bytes())
    elif what == "exchanged":
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif what == "unreadable":
        path.chmod(0)
    elif what == "renamed":
        name = path.name + rng.choice((".deleted", ".swap", ".cleaned", ".tmp"))
        path.rename(path.with_name(name))
    else:
        path.unlink()
        if what == "replaced":
            what = f"replaced: {_make(rng, os.fsencode(path), other, kinds)}"
    return f"{path.name}: {what} ({other.name})"
