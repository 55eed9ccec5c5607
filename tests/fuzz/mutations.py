"""
Mutations of the files in a place, all drawn from one random generator, so that a seed repeats a case exactly.

Each function takes the generator and the target to change, and returns a short description of the change.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.places import TARGET
from tests.support.batch_builder import HEADER, HEADER_BYTES
from tests.support.batch_reader import split_batches
from tests.support.codecs import CODEC_IDS, compress, crc32c, decompress

ODD = (
    0,
    1,
    -1,
    2,
    7,
    13,
    14,
    26,
    48,
    49,
    60,
    61,
    62,
    127,
    128,
    255,
    256,
    65535,
    2**31 - 1,
    -(2**31),
    2**63 - 1,
    -(2**63),
)
_WIDTHS = {1: "b", 2: "h", 4: "i", 8: "q"}
# Names and widths of a header of magic 2, in bytes, with the position of each.
_MODERN = {
    "baseOffset": (0, 8),
    "length": (8, 4),
    "leaderEpoch": (12, 4),
    "magic": (16, 1),
    "attributes": (21, 2),
    "lastOffsetDelta": (23, 4),
    "baseTimestamp": (27, 8),
    "maxTimestamp": (35, 8),
    "producerId": (43, 8),
    "producerEpoch": (51, 2),
    "baseSequence": (53, 4),
    "count": (57, 4),
}
_LEGACY = {
    "offset": (0, 8),
    "size": (8, 4),
    "magic": (16, 1),
    "attributes": (17, 1),
    "timestamp": (18, 8),
    "key": (26, 4),
}
_ENTRY_BYTES = {".index": 8, ".timeindex": 12, ".txnindex": 34, ".snapshot": 46}
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
_TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b"-1",
    b"99999999999999999999999",
    "٣".encode(),
    b"1e3",
    b"0x7",
    b" ",
    b"\r",
    b"nan",
)
_JSON = (
    None,
    -1,
    2**70,
    1.5,
    True,
    "",
    "x" * 300,
    "../../etc",
    "/",
    "\ud800",
    [],
    {},
    [[]],
    "NaN",
    -(2**63),
    "topic--1",
)

Rng = random.Random


def mutate(rng: Rng, place: Path) -> list[str]:
    """Change one to three things in a place; returns what."""
    return [_mutate_once(rng, place) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]


def _mutate_once(rng: Rng, place: Path) -> str:
    target = place / rng.choice(("logs", "logs", "logs", "logs", "logs", "cleaned")) / TARGET
    area = rng.random()
    if area < 0.45:
        files = sorted(path for path in target.glob("*.log") if path.is_file())
        return _change_log(rng, rng.choice(files)) if files else "no log left"
    if area < 0.60:
        files = sorted(path for path in target.iterdir() if path.suffix in _ENTRY_BYTES and path.is_file())
        return _change_entries(rng, rng.choice(files)) if files else "no index left"
    if area < 0.72:
        return _stray(rng, target)
    if area < 0.86:
        files = [
            *_small_files(target),
            *_small_files(target.parent),
            *_small_files(place / "topics"),
            place / "server.properties",
        ]
        return _change_text(rng, rng.choice([path for path in files if path.is_file()]))
    if area < 0.94:
        files = [path for home in ("state", "kept") for path in (place / home).rglob("*") if path.is_file()]
        files += [path for path in [target / "cleaner-transactional-ids"] if path.is_file()]
        path = rng.choice(sorted(files))
        is_json = path.suffix.startswith(".json") or path.parent == target
        return _change_json(rng, path) if is_json else _change_bytes(rng, path)
    if area < 0.97:
        files = [path for path in (place / "metadata").rglob("*") if path.is_file()]
        return _change_log(rng, rng.choice(sorted(files)))
    elsewhere = [
        place / name for name in ("topics", "state", "kept", f"kept/{TARGET}", "metadata/__cluster_metadata-0")
    ]
    home = rng.choice([target, target, target, *elsewhere])
    return _whole_file(rng, home) if rng.random() < 0.8 else _stray(rng, home)


def _small_files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.iterdir() if p.suffix in ("", ".properties", ".metadata") and p.is_file())


# ---- bytes -----------------------------------------------------------------------------------------------------------


def _change_bytes(rng: Rng, path: Path) -> str:
    """Change bytes, and put nothing right."""
    data = bytearray(path.read_bytes())
    at, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 61, 200))
    kinds: dict[str, Callable[[], bytearray]] = {
        "cut off": lambda: data[:at],
        "flip": lambda: _flipped(rng, data),
        "zero to the end": lambda: data[:at] + bytes(len(data) - at),
        "leave out": lambda: data[:at] + data[at + size :],
        "insert": lambda: data[:at] + rng.randbytes(size) + data[at:],
        "repeat": lambda: data[:at] + data[max(0, at - size) : at] + data[at:],
        "append zeros": lambda: data + bytes(rng.choice((1, 7, 8, 11, 4096, 1 << 20))),
        "append noise": lambda: data + rng.randbytes(rng.choice((1, 16, 60, 61, 100))),
        "odd number": lambda: data[:at] + _odd(rng, rng.choice((1, 2, 4, 8))) + data[at + 8 :],
    }
    what = rng.choice(sorted(kinds))
    path.write_bytes(kinds[what]())
    return f"{path.name}: {what} at {at}, {size}"


def _flipped(rng: Rng, data: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 1, 3, 20))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data


def _odd(rng: Rng, width: int) -> bytes:
    number = rng.choice(ODD) if rng.random() < 0.8 else rng.getrandbits(8 * width)
    return (number % 256**width).to_bytes(width, "big")


# ---- batches ---------------------------------------------------------------------------------------------------------


def sealed(batch: bytes) -> bytes:
    """Put length and checksum right, whatever the magic is."""
    if len(batch) < 18:
        return batch
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    if batch[16] < 2:
        return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:]
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def _change_log(rng: Rng, path: Path) -> str:
    """Change batches, mostly with checksums that are right again."""
    try:
        batches = split_batches(path.read_bytes())
    except (ValueError, struct.error):
        batches = []
    if not batches or rng.random() < 0.15:
        return _change_bytes(rng, path)
    at = rng.randrange(len(batches))
    batch, what = batches[at], ""
    kind = rng.random()
    if kind < 0.45:
        what, batch = _change_header(rng, batch)
    elif kind < 0.65:
        changed = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            begin = min(len(changed) - 1, HEADER_BYTES if changed[16] > 1 else 18)
            changed[rng.randrange(begin, len(changed))] = rng.randrange(256)
        what, batch = "bytes of records", sealed(bytes(changed))
    elif kind < 0.75:
        what, batch = _change_packed(rng, batch)
    elif kind < 0.83:
        what, batch = "size", sealed(batch[: -rng.randrange(1, 30)] if rng.random() < 0.5 else batch + rng.randbytes(9))
    else:
        what = rng.choice(("again", "gone", "order", "of elsewhere"))
        other = rng.randrange(len(batches))
        if what == "again":
            batches.insert(other, batch)
        elif what == "order":
            batches[at], batches[other] = batches[other], batches[at]
            batch = batches[at]
        elif what == "of elsewhere":
            siblings = [sibling for sibling in sorted(path.parent.glob("*.log")) if sibling.is_file()]
            batch = batch + rng.choice(siblings).read_bytes()
        else:
            batch = b""
    if what != "again":
        batches[at] = batch
    path.write_bytes(b"".join(batches))
    return f"{path.name}: batch {at}: {what}"


def _change_header(rng: Rng, batch: bytes) -> tuple[str, bytes]:
    fields = _MODERN if batch[16] > 1 else _LEGACY
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        name = rng.choice(sorted(fields))
        position, width = fields[name]
        value = _odd(rng, width)
        if rng.random() < 0.3:
            old = int.from_bytes(batch[position : position + width], "big")
            value = ((old + rng.choice((-1, 1, 2, -2, 100))) % 256**width).to_bytes(width, "big")
        if name == "magic":
            value = bytes((rng.choice((0, 1, 2, 3, 255)),))
        batch = batch[:position] + value + batch[position + width :]
        done.append(f"{name}={int.from_bytes(value, 'big', signed=True)}")
    is_length = done[-1].startswith(("length", "size"))
    if is_length and rng.random() < 0.5:
        return ", ".join(done), batch
    return ", ".join(done), sealed(batch)


def _change_packed(rng: Rng, batch: bytes) -> tuple[str, bytes]:
    """Change a batch's records and pack them again, with any codec."""
    if batch[16] < 2 or len(batch) < HEADER_BYTES:
        return "nothing", batch
    head = list(HEADER.unpack_from(batch))
    names = {number: name for name, number in CODEC_IDS.items()}
    try:
        records = bytearray(decompress(names[head[5] & 7], batch[HEADER_BYTES:]))
    except (KeyError, ValueError, IndexError, struct.error, zlib.error, EOFError, OSError):
        return "nothing", batch
    for _ in range(rng.choice((0, 1, 1, 4))):
        if records:
            records[rng.randrange(len(records))] = rng.randrange(256)
    if rng.random() < 0.2:
        records = records * rng.choice((2, 50, 3000))
    codec = rng.choice(sorted(CODEC_IDS))
    head[5] = head[5] & ~7 | CODEC_IDS[codec]
    packed = compress(codec, bytes(records))
    if rng.random() < 0.3:
        packed = bytes(_flipped(rng, bytearray(packed)))
    return f"records, then {codec}", sealed(HEADER.pack(*head) + packed)


# ---- indexes and snapshots -------------------------------------------------------------------------------------------


def _change_entries(rng: Rng, path: Path) -> str:
    """Change an entry of an index or a snapshot; a snapshot's checksum is put right mostly."""
    width, data = _ENTRY_BYTES[path.suffix], bytearray(path.read_bytes())
    if not data or rng.random() < 0.2:
        return _change_bytes(rng, path)
    at = rng.randrange(len(data))
    size = rng.choice((1, 2, 4, 8))
    what = rng.choice(("number", "number", "number", "entry gone", "entry again", "no entry"))
    row = at // width * width
    if what == "number":
        data[at : at + size] = _odd(rng, size)
    elif what == "entry gone":
        del data[row : row + width]
    elif what == "entry again":
        data[row:row] = data[row : row + width]
    else:
        data.clear()
    if path.suffix == ".snapshot" and len(data) >= 10 and rng.random() < 0.8:
        if rng.random() < 0.5:
            struct.pack_into(">i", data, 6, (len(data) - 10) // width)
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))
    path.write_bytes(data)
    return f"{path.name}: {what} at {at}"


# ---- texts -----------------------------------------------------------------------------------------------------------


def _change_text(rng: Rng, path: Path) -> str:
    """Change a word or a line of a checkpoint or a properties file."""
    data = path.read_bytes()
    if rng.random() < 0.25:
        return _change_bytes(rng, path)
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    what = rng.choice(("word", "word", "word", "again", "gone", "joined", "long"))
    if what == "word":
        words = lines[at].replace(b"=", b" = ").split(b" ")
        number = str(rng.choice(ODD)).encode()
        words[rng.randrange(len(words))] = number if rng.random() < 0.6 else rng.choice(_TEXTS)
        lines[at] = b" ".join(words).replace(b" = ", b"=")
    elif what == "again":
        lines.insert(rng.randrange(len(lines) + 1), lines[at])
    elif what == "gone":
        del lines[at]
    elif what == "joined":
        lines[at : at + 2] = [b"".join(lines[at : at + 2])]
    else:
        lines[at] = lines[at] * 20_000
    path.write_bytes(b"\n".join(lines))
    return f"{path.name}: {what} in line {at}"


def _change_json(rng: Rng, path: Path) -> str:
    """Put something else in the place of a value."""
    lines = path.read_bytes().split(b"\n")
    is_lines = path.suffix not in (".json", "")
    at = rng.randrange(len(lines)) if is_lines else 0
    text = lines[at] if is_lines else b"\n".join(lines)
    try:
        value = json.loads(text)
    except ValueError:
        return _change_bytes(rng, path)
    if rng.random() < 0.1:
        changed = rng.choice((b"[" * 100_000, b"null", b"[]", b"1", b"{}", b'"\\ud800"', b"1e999", b"NaN", b"9" * 5000))
    else:
        changed = json.dumps(_other(rng, value)).encode()
    if is_lines:
        lines[at] = changed
        changed = b"\n".join(lines)
    path.write_bytes(changed)
    return f"{path.name}: a value in line {at}"


def _other(rng: Rng, value: object) -> object:
    """Return a value like this one, with one thing in it another one, or gone."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _other(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _other(rng, value[at]), *value[at + rng.randrange(2) :]]
    return rng.choice(_JSON)


# ---- names -----------------------------------------------------------------------------------------------------------


def _make(rng: Rng, path: bytes, like: Path) -> str:
    """Put anything there."""
    if os.path.lexists(path):
        return "is there already"
    what = rng.choice(
        ("empty", "copy", "copy", "noise", "directory", "full directory", "link", "dangling", "loop", "fifo", "socket")
    )
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


def _stray(rng: Rng, target: Path) -> str:
    """Put something with an odd name into the partition's directory, or the log dir."""
    files = sorted(path for path in target.iterdir() if path.is_file())
    like = rng.choice(files) if files else target
    if rng.random() < 0.25:
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
    return f"stray {name!r}: {_make(rng, path, like)} (like {like.name})"


def _copy_regular(source: str, target: str) -> object:
    return shutil.copy2(source, target) if Path(os.fsdecode(source)).is_file() else None


def _whole_file(rng: Rng, target: Path) -> str:
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
            what = f"replaced: {_make(rng, os.fsencode(path), other)}"
    return f"{path.name}: {what} ({other.name})"
