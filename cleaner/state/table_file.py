"""
The index of a log's table on disk (`log/table.py`): an open-addressing table in a mapped file, and what is known of it.

    index       the entries of `kernels/table.py`, and nothing else
    index.json  written when the table is closed, removed before it is changed: of which log and files it is, up to
                which offset, the key of its digests, and a checksum of `index`
    index.runs  while many records are put into the index: see `table_runs.py`
    lock        one process has it

Without `index.json`, or if anything in it is not so, the index is made again: losing it costs time. The pages are the
file's: they take no anonymous memory, and the system may write them out at any time.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cleaner.base.json_values import JsonValue, from_json
from cleaner.base.model import TopicPartition
from cleaner.format.key_digests import SEED_BYTES, Words, secret_words
from cleaner.kernels import table as kernel
from cleaner.state.lock_file import LockFile
from cleaner.state.state_dir import require_own_way, require_private
from cleaner.state.state_file import StateFile
from cleaner.state.table_runs import ENTRY_BYTES, Bytes, Longs, TableRuns
from cleaner.storage.fs.file_system import UNFINISHED, File, FileSystem, disk_errors

_INDEX = "index"
_RUNS = "index.runs"
_SUFFIX = ".tables"
WHAT = "the table's directory"
_FIRST_SLOTS = 1 << 12
_DENSEST = 5 / 8
_MODE = 0o700
_VERSION = 1
_CRC_BYTES = 64 << 20


@dataclass(frozen=True)
class IndexedFile:
    """A segment's `.log` of which all records below the table's end are in the index."""

    number: int
    base_offset: int
    device: int
    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class TableFacts:
    """
    What an index is of.

    Attributes:
        log: identity of the log: path, device, inode and topic id.
        end_offset: records below it are in the index.
        epoch: leader epoch of the last of them.
        next_number: of the next file.
        files: the segments that entries name.
        seed: of the digests, in hex.
        entries: keys in the index.
        checksum: of the file.
    """

    log: str
    end_offset: int
    epoch: int
    next_number: int
    files: tuple[IndexedFile, ...]
    seed: str = ""
    entries: int = 0
    checksum: int = 0


def table_directory(log_dir: Path, topic_partition: TopicPartition) -> Path:
    """Return where the index of a partition is, if nobody names a place: beside the log dir, where no broker looks."""
    return log_dir.with_name(log_dir.name + _SUFFIX) / str(topic_partition)


def forget_table(fs: FileSystem, directory: Path) -> None:
    """
    Remove an index, because keys that it has digests of are erased; a table that is open keeps its own until it closes.

    Raises:
        LogDirOfflineError: the disk.
    """
    if fs.exists(directory):
        fs.remove_all(directory, [name for name in fs.list_files(directory) if name.startswith(_INDEX)])


class TableFile:
    """
    The index, locked and mapped. Close it.

    Args:
        fs: the file system.
        directory: made if missing, for its owner alone.
    Attributes:
        words, slots: the table of the kernels.
        secret: words under which keys are digested.
        entries: keys in it.
    Raises:
        StateDirLockedError: another table has it.
        ConfigError: others may write to the directory.
        NoSpaceError, LogDirOfflineError: the disk.
    """

    words: Words
    secret: Words

    def __init__(self, fs: FileSystem, directory: Path) -> None:
        self._fs = fs
        self._path = directory / _INDEX
        self._file: File | None = None
        require_own_way(directory, WHAT, directory)
        for each in (directory.parent, directory):
            if not fs.exists(each):
                with contextlib.suppress(FileExistsError):
                    fs.make_dir(each, _MODE)
            require_private(fs, each, WHAT, each)
        self._lock = LockFile(fs, directory / "lock", f"the table in {directory}")
        self._facts = StateFile(
            *(fs, directory / "index.json"), format_name="cleaner-table", version=_VERSION, read=_read, write=asdict
        )
        self.slots = self.entries = 0

    def load(self) -> TableFacts | None:
        """Take the index of an earlier life, if it is whole; None: `clear` it. From now on it counts as changed."""
        facts = self._facts.load().content
        self._fs.remove(self._path.with_name(_RUNS))  # of a process that died
        self._fs.remove(self._facts.path)
        self._fs.fsync_dir(self._facts.path.parent)
        try:
            file = self._fs.open(self._path, write=True)
        except FileNotFoundError:
            return None
        size = file.size()
        seed = b"" if facts is None else _seed_of(facts)
        is_sound = facts is not None and size and size % ENTRY_BYTES == 0 and len(seed) == SEED_BYTES
        if facts is None or not is_sound or _checksum(file) != facts.checksum:
            file.close()
            return None
        self._map(file, size // ENTRY_BYTES)
        self._seed, self.secret, self.entries = seed, secret_words(seed), facts.entries
        return facts

    def clear(self) -> None:
        """Begin with an empty index, and new words for digests."""
        seed = os.urandom(SEED_BYTES)
        self._replace(_FIRST_SLOTS, np.zeros(0, np.uint64))
        # Only now: with new words nothing would be found in a table that could not be replaced.
        self._seed, self.secret, self.entries = seed, secret_words(seed), 0

    def put(self, keys: tuple[Bytes, Longs, Longs], offsets: Longs, places: Longs) -> None:
        """Put records: data, starts and sizes of their keys, their offsets and places."""
        begin = 0
        while True:
            limit = int(self.slots * _DENSEST)
            begin, self.entries = kernel.put_keys(
                self.words, self.slots, self.secret, *keys, offsets, places, begin, self.entries, limit
            )
            if begin == len(offsets):
                return
            self._replace(2 * self.slots, self.words)

    def gather(self) -> TableRuns:
        """Return what takes many records, for `put_gathered`."""
        return TableRuns(self._fs, self._path.with_name(_RUNS), self.secret)

    def put_gathered(self, gathered: TableRuns) -> None:
        """Put all records that were gathered; group by group, so that no page of the index is changed twice."""
        for number, rows in enumerate(gathered.groups()):
            if number == 0:
                self._make_room(rows)
            begin = 0
            while True:
                limit = int(self.slots * _DENSEST)
                begin, self.entries = kernel.put_entries(self.words, self.slots, rows, begin, self.entries, limit)
                if begin == rows.size // kernel.ENTRY_WORDS:
                    break
                self._replace(2 * self.slots, self.words)

    def _make_room(self, first_group: Words) -> None:
        """Make the index so large that all groups fit into their parts of it, told by the keys of the first."""
        rows = first_group.reshape(-1, kernel.ENTRY_WORDS)
        _, first_of_keys = np.unique(rows[:, 0], return_index=True)
        missing = kernel.count_missing(self.words, self.slots, rows[first_of_keys].ravel())
        # Up to three standard deviations more, since what is in a group varies.
        entries = self.entries + int((missing + 3 * missing**0.5) * kernel.GROUPS)
        slots = int(entries / _DENSEST) + 1
        if slots > self.slots:
            self._replace(slots, self.words)

    def save(self, facts: TableFacts) -> None:
        """Force the index to disk and write down what it is."""
        file = self._file
        assert file is not None  # noqa: S101 - loaded or cleared
        with disk_errors(self._path):
            self._memory.flush()
        file.fsync()
        values = {**vars(facts), "seed": self._seed.hex(), "entries": self.entries, "checksum": _checksum(file)}
        self._facts.save(TableFacts(**values))

    def close(self) -> None:
        """Close the file and release the lock; a second call does nothing."""
        self.words = np.zeros(0, np.uint64)
        if self._file is not None:
            self._file.close()
            self._file = None
        self._lock.release()

    def _replace(self, slots: int, entries: Words) -> None:
        """Go on with a new file of so many slots, which has these entries."""
        temporary = self._path.with_name(self._path.name + UNFINISHED)
        self._fs.remove(temporary)
        file = self._fs.create(temporary, like=None)
        try:
            self._fs.set_mode(temporary, 0o600)
            memory = file.map(slots * ENTRY_BYTES)
            words = np.frombuffer(memory, np.uint64)
            kernel.move_keys(entries, words, slots)
            self._fs.rename(temporary, self._path)
        except BaseException:
            file.close()
            self._fs.remove(temporary)
            raise
        self._take(file, memory, words, slots)

    def _map(self, file: File, slots: int) -> None:
        memory = file.map(slots * ENTRY_BYTES)
        self._take(file, memory, np.frombuffer(memory, np.uint64), slots)

    def _take(self, file: File, memory: mmap.mmap, words: Words, slots: int) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._memory, self.words, self.slots = file, memory, words, slots


def _seed_of(facts: TableFacts) -> bytes:
    try:
        return bytes.fromhex(facts.seed)
    except ValueError:
        return b""


def _checksum(file: File) -> int:
    checksum, position = 0, 0
    while part := file.read(_CRC_BYTES, position):
        checksum = zlib.crc32(part, checksum)
        position += len(part)
    return checksum


def _read(_version: int, values: dict[str, JsonValue]) -> TableFacts:
    return from_json(TableFacts, values)
