"""
The directory of key indexes, by which rounds leave segments unread (`policy/unread.py`).

    cleaner-index.key                         of all digests: 16 random bytes and a checksum; for its owner alone
    <log dir>/<partition>/<base offset>.keys  a segment's index (`key_index.py`)
    <log dir>/<partition>/worth.json          whether indexes have paid for the log

A log dir's name here is its path with all slashes quoted, or a digest of that. Whatever is lost or damaged costs time:
segments are read. What is here decides which records are looked at, so only its owner may write there, and it is
outside of all log dirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from collections.abc import Callable, Collection
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from cleaner.base import concurrency
from cleaner.base.json_values import JsonValue, from_json
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError
from cleaner.policy.unread import SegmentFacts, Worth
from cleaner.state.digest_runs import DigestRuns
from cleaner.state.key_index import KeyIndexFile, write_key_index
from cleaner.state.state_dir import require_outside_log_dirs, require_own_way, require_private
from cleaner.state.state_file import StateFile
from cleaner.storage.fs.file_system import UNFINISHED, FileSystem, real_path

if TYPE_CHECKING:
    from cleaner.format.key_digests import Words

INDEX_DIR_KEY = "cleaner.index.dir"
NAME_IN_STATE_DIR = "key-index"
KEY_NAME = "cleaner-index.key"
KEY_BYTES = 16
SUFFIX = ".keys"

_RUNS = ".runs"
_WORTH = "worth.json"
_MODE = 0o700
_KEY_MODE = 0o600
_CHECKSUM_BYTES = 4
# Names the digests of `kernels/digest.py`: if these ever change, this must, or old indexes would be believed.
_DIGESTS = b"two words, multilinear up to 32 bytes, SipHash-1-3 and MurmurHash3 above"
_ID_BYTES = 8
_LONGEST_NAME = 255
_VERSION = 1  # of `worth.json`


class KeyIndexDir:
    """
    The directory, created if missing. One for all logs and threads of a process.

    Args:
        fs: the file system.
        path: the directory; links to it are followed once, here.
        log_dirs: it must not be inside any of them.
        warn: called with what costs time: a refusal of the disk, a damaged key.
    Attributes:
        path: the directory, links followed.
    Raises:
        ConfigError: it is in a log dir, not a directory, another user's, or writable by others.
        LogDirOfflineError: the disk.
    """

    def __init__(self, fs: FileSystem, path: Path, log_dirs: Collection[Path], warn: Callable[[str], None]) -> None:
        require_outside_log_dirs(path, log_dirs, INDEX_DIR_KEY)
        self.path = real_path(path)
        self._fs = fs
        self.warn = warn
        require_own_way(path, INDEX_DIR_KEY, path)
        if fs.exists(self.path):
            require_private(fs, self.path, INDEX_DIR_KEY, path)
        self._lock = concurrency.Lock()
        # Guarded by _lock.
        self._key: bytes | None = None
        self._swept: set[Path] = set()
        self._warned: set[str] = set()

    def of(self, log_dir: Path, topic_partition: TopicPartition) -> LogKeyIndexes | None:
        """
        Return the indexes of a log; None, after a warning, if the disk refuses.

        Args:
            log_dir: links followed. The indexes of partitions that it no longer has are removed, the first time; what
                the disk refuses is tried again the next time.
            topic_partition: which log.
        """
        above = self.path / _name_of(log_dir)
        try:
            with self._lock:
                if self._key is None:
                    self._key = self._load_key()
                if log_dir not in self._swept and self._sweep(above, log_dir):
                    self._swept.add(log_dir)
            return LogKeyIndexes(self._fs, above / str(topic_partition), self._key, self.warn)
        except CleanerError as error:
            self.warn(f"no key index is used: {error}")
            return None

    def _load_key(self) -> bytes:
        path = self.path / KEY_NAME
        _make(self._fs, self.path)
        require_private(self._fs, self.path, INDEX_DIR_KEY, self.path)
        try:
            data = self._fs.read_bytes(path)
            key = data[:KEY_BYTES]
            if len(data) == KEY_BYTES + _CHECKSUM_BYTES and data == _with_checksum(key):
                return key
            self.warn(f"{path}: damaged; with a new key all segments are read again")
        except FileNotFoundError:
            pass
        key = os.urandom(KEY_BYTES)
        temporary = path.with_name(KEY_NAME + UNFINISHED)
        self._fs.remove(temporary)
        try:
            with self._fs.create(temporary, like=None) as file:
                self._fs.set_mode(temporary, _KEY_MODE)
                file.write(_with_checksum(key), 0)
                file.fsync()
            self._fs.rename(temporary, path)
        except BaseException:
            self._fs.remove(temporary)
            raise
        self._fs.fsync_dir(self.path)
        return key

    def _sweep(self, above: Path, log_dir: Path) -> bool:
        """Remove the indexes of partitions that are gone; False, after a warning: some could not be removed."""
        try:
            gone = set(self._fs.list_dirs(above)) - set(self._fs.list_dirs(log_dir))
        except FileNotFoundError:
            return True
        except CleanerError as error:
            self._warn_once(f"key indexes of partitions that are gone stay: {error}")
            return False
        is_done = True
        for name in gone:
            try:
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    self._fs.remove_all(above / name, self._fs.list_files(above / name))
                self._fs.remove_dir(above / name)
            except CleanerError as error:
                is_done = False
                self._warn_once(f"key indexes of a partition that is gone stay: {error}")
        return is_done

    def _warn_once(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.warn(message)


def _name_of(log_dir: Path) -> str:
    name = quote(os.fsencode(log_dir), safe="")
    return name if len(name) <= _LONGEST_NAME else hashlib.sha256(name.encode()).hexdigest()


def _make(fs: FileSystem, directory: Path) -> None:
    if not fs.exists(directory):
        with contextlib.suppress(FileExistsError):  # another process was faster
            fs.make_dir(directory, _MODE)


def _with_checksum(key: bytes) -> bytes:
    return key + zlib.crc32(key).to_bytes(_CHECKSUM_BYTES, "little")


class LogKeyIndexes:
    """
    The indexes of one log, for one round at a time.

    Args:
        fs: the file system.
        directory: of the log; created when something is written.
        key: of all digests.
        warn: called when the disk refuses.
    Attributes:
        key_id: names the key, and does not give it away.
    """

    def __init__(self, fs: FileSystem, directory: Path, key: bytes, warn: Callable[[str], None]) -> None:
        self._key = key
        self.key_id = hashlib.sha256(_DIGESTS + key).digest()[:_ID_BYTES]
        self._fs = fs
        self.directory = directory
        self._warn = warn
        self._worth_file = StateFile(
            *(fs, directory / _WORTH), format_name="cleaner-index-worth", version=_VERSION, read=_read, write=asdict
        )
        self._saved: Worth | None = None

    @cached_property
    def keys(self) -> Words:
        """The words under which keys are digested; of a round, which needs the kernels anyway."""
        from cleaner.format.key_digests import secret_words

        return secret_words(self._key)

    def path(self, base_offset: int) -> Path:
        """Return where a segment's index is."""
        return self.directory / f"{base_offset:020d}{SUFFIX}"

    def open(self, base_offset: int) -> KeyIndexFile:
        """Open a segment's index; raises what `KeyIndexFile` does."""
        return KeyIndexFile(self._fs, self.path(base_offset))

    def runs(self, base_offset: int) -> DigestRuns:
        """Return a place for the digests of a segment."""
        return DigestRuns(self._fs, self.path(base_offset).with_suffix(_RUNS))

    def make_room(self) -> bool:
        """Create the directory; False, after a warning, if the disk refuses."""
        try:
            for directory in (self.directory.parent, self.directory):
                _make(self._fs, directory)
        except CleanerError as error:
            self.warn_of(error)
            return False
        return True

    def write(self, base_offset: int, facts: SegmentFacts, runs: DigestRuns) -> int:
        """Write a segment's index; returns its bytes, 0 after a warning."""
        try:
            return write_key_index(self._fs, self.path(base_offset), facts, runs)
        except CleanerError as error:
            self.warn_of(error)
            return 0

    def remove(self, base_offset: int) -> None:
        """Remove a segment's index, if there is one."""
        try:
            self._fs.remove(self.path(base_offset))
        except CleanerError as error:
            self.warn_of(error)

    def keep_only(self, base_offsets: Collection[int]) -> None:
        """Remove the indexes of all other segments, and what a crash has left."""
        kept = {self.path(base).name for base in base_offsets} | {_WORTH}
        try:
            with contextlib.suppress(FileNotFoundError):  # no directory, or not any more
                names = [name for name in self._fs.list_files(self.directory) if name not in kept]
                self._fs.remove_all(self.directory, names)
        except CleanerError as error:
            self.warn_of(error)

    def load_worth(self) -> Worth:
        """Return whether indexes have paid; unknown counts as yes."""
        try:
            self._saved = self._worth_file.load().content
        except CleanerError as error:
            self.warn_of(error)
        return self._saved or Worth()

    def save_worth(self, worth: Worth) -> None:
        """Write it down, if it has changed."""
        if worth == (self._saved or Worth()) or not self.make_room():
            return
        try:
            self._worth_file.save(worth)
            self._saved = worth
        except CleanerError as error:
            self.warn_of(error)

    def warn_of(self, error: CleanerError) -> None:
        """Tell that the disk refuses something that only costs time."""
        self._warn(f"a key index cannot be used, so its segment is read again: {error}")


def _read(_version: int, values: dict[str, JsonValue]) -> Worth:
    return from_json(Worth, values)
