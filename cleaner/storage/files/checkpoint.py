"""
Checkpoint files: small text files that map partitions (or leader epochs) to offsets.

    0                   the version
    2                   the number of entries
    orders 0 1234       topic, partition, offset
    orders 1 99

A missing, an empty and a one-line file all mean "no entries": Kafka creates these files empty. Anything else that is
not exactly this format is refused; a guessed offset would decide which records are deleted.

Source: rules R-113, R-114; `CheckpointFile.java`, `OffsetCheckpointFile.java`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.readable import ReadableFiles

CHECKPOINT_LIMIT_BYTES = 32 << 20
"""Largest checkpoint read: some 100 000 partitions with the longest names; a broker has a few thousand."""

MAX_ENTRIES = 500_000
"""Most entries accepted in a checkpoint: a hundred times what a broker has."""

VERSION = 0  # Value on disk, never changes.

_NUMBER = re.compile(rb"[+-]?[0-9]{1,20}\Z")
_PARTITION = re.compile(rb"[0-9]{1,10}\Z")
# The form in which Kafka and we write nearly all files: parsed many times as fast as line by line. Any other file is
# parsed by lines, which finds its errors.
_PLAIN = re.compile(rb"0\n([0-9]{1,9})\n((?:[a-zA-Z0-9._-]{1,249}+ [0-9]{1,9}+ [0-9]{1,18}+\n)*+)\Z")
# Java's readLine ends a line at any of these.
_LINE = re.compile(rb"[^\r\n]*+(\r\n|\n|\r|\Z)")


class CheckpointLine(NamedTuple):
    """One entry of the file: its byte position and its words."""

    position: int
    words: list[bytes]


def read_bounded(fs: ReadableFiles, path: Path, limit_bytes: int) -> bytes | None:
    """
    Return a small file's bytes, or None if it does not exist.

    Raises:
        CorruptCheckpointError: longer than `limit_bytes`; then nothing is read.
        LogDirOfflineError: not a regular file, or the disk failed.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    with file:
        size = file.size()
        if size > limit_bytes:
            raise CorruptCheckpointError(path, limit_bytes, f"the file has {size} bytes, more than {limit_bytes}")
        return file.read(size, 0)


def read_number(word: bytes, bits: int, path: Path, position: int, what: str) -> int:
    """
    Parse a signed decimal as Java's `parseInt` and `parseLong` do.

    Raises:
        CorruptCheckpointError: not a number, or one that does not fit into `bits`.
    """
    if not _NUMBER.match(word) or not -(1 << (bits - 1)) <= int(word) < 1 << (bits - 1):
        raise CorruptCheckpointError(path, position, f"{what} is {_shown(word)}, not a number of {bits} bits")
    return int(word)


def read_checkpoint(fs: ReadableFiles, path: Path, words: int) -> Iterator[CheckpointLine]:
    """
    List the entries of a checkpoint file; none when the file is missing, empty or has only its version.

    Args:
        fs: the file system.
        path: the file.
        words: how many words each entry must have.
    Raises:
        CorruptCheckpointError: another version, a line with more or fewer words, or a wrong count.
    """
    return parse_checkpoint(read_bounded(fs, path, CHECKPOINT_LIMIT_BYTES) or b"", path, words)


def parse_checkpoint(data: bytes, path: Path, words: int) -> Iterator[CheckpointLine]:
    """List the entries of such a file's content; the path is for errors. Raises as `read_checkpoint`."""
    lines = _lines(data)
    for position, line in lines:
        version = read_number(line, 32, path, position, "the version")
        if version != VERSION:
            raise CorruptCheckpointError(path, position, f"the version is {version}, not {VERSION}")
        break
    for position, line in lines:
        yield from _entries(lines, words, path, position, line)


def _entries(
    lines: Iterator[tuple[int, bytes]], words: int, path: Path, count_position: int, count_line: bytes
) -> Iterator[CheckpointLine]:
    count = read_number(count_line, 32, path, count_position, "the number of entries")
    if count > MAX_ENTRIES:
        raise CorruptCheckpointError(path, count_position, f"{count} entries are announced, more than {MAX_ENTRIES}")
    found = 0
    for position, line in lines:
        # Java's split keeps an empty word before leading white space, Python's does not.
        entry = [] if line[:1].isspace() else line.split()
        if len(entry) != words:
            raise CorruptCheckpointError(path, position, f"{_shown(line)} is not an entry of {words} words")
        found += 1
        if found > count:
            raise CorruptCheckpointError(path, position, f"more than the {count} entries announced")
        yield CheckpointLine(position, entry)
    if found != count:
        raise CorruptCheckpointError(path, count_position, f"{count} entries are announced, but there are {found}")


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        found = _LINE.match(data, position)
        assert found is not None  # noqa: S101 - the pattern matches the empty string
        yield position, data[position : found.start(1)]
        position = found.end()


def _shown(line: bytes) -> str:
    """Return a line for an error message: escaped and shortened."""
    text = line[:80].decode("ascii", "backslashreplace")
    return repr(text) + ("..." if len(line) > 80 else "")


def write_checkpoint(fs: FileSystem, path: Path, entries: list[str]) -> bytes:
    """
    Replace a checkpoint file by one with these lines, durably; returns the bytes written.

    A crash leaves the old or the new file (R-114).
    """
    data = "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode("ascii")
    fs.write_atomically(path, data)
    return data


def read_offset_checkpoint(fs: ReadableFiles, path: Path) -> dict[TopicPartition, int]:
    """
    Read `topic partition offset` lines; a missing or empty file is an empty map.

    Of two lines for one partition the last counts (R-442). An offset may be any 64-bit number, as in Kafka: the code
    that loads the log checks whether it lies within the log (R-405).

    Raises:
        CorruptCheckpointError: malformed; names the byte position of the line.
    """
    return parse_offset_checkpoint(read_bounded(fs, path, CHECKPOINT_LIMIT_BYTES) or b"", path)


def parse_offset_checkpoint(data: bytes, path: Path) -> dict[TopicPartition, int]:
    """
    Parse the content of an offset checkpoint.

    Args:
        data: the file's bytes.
        path: for errors.
    Raises:
        CorruptCheckpointError: as `read_offset_checkpoint`.
    """
    plain = _PLAIN.match(data)
    if plain is not None and int(plain.group(1)) <= MAX_ENTRIES and data.count(b"\n") <= MAX_ENTRIES + 2:
        flat = plain.group(2).decode("ascii").split()
        if len(flat) == 3 * int(plain.group(1)):
            partitions = map(TopicPartition, flat[::3], map(int, flat[1::3]))
            return dict(zip(partitions, map(int, flat[2::3]), strict=True))
    offsets: dict[TopicPartition, int] = {}
    for position, (topic, partition, offset) in parse_checkpoint(data, path, 3):
        name = f"{topic.decode('ascii', 'backslashreplace')}-{partition.decode('ascii', 'backslashreplace')}"
        if not _PARTITION.match(partition):
            raise CorruptCheckpointError(path, position, f"the partition is {_shown(partition)}, not a number")
        try:
            topic_partition = TopicPartition.parse(name)
        except ValueError as error:
            raise CorruptCheckpointError(path, position, str(error)) from error
        offsets[topic_partition] = read_number(offset, 64, path, position, "the offset")
    return offsets


def write_offset_checkpoint(fs: FileSystem, path: Path, entries: Mapping[TopicPartition, int]) -> bytes:
    """
    Replace an offset checkpoint durably; returns the bytes written.

    Entries are sorted, so that equal content gives equal bytes (Kafka's order is random).
    """
    return write_checkpoint(fs, path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(entries.items())])
