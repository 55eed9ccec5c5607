"""Looks for keys in one file: in its record batches, wherever they begin, and in all bytes between and behind them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cleaner.errors import CorruptBatchError, LogChangedError
from cleaner.format.batch import ReadBuffer, SegmentReader
from cleaner.format.chunks import Bytes
from cleaner.format.next_batch import LARGEST_BATCH_BYTES, find_whole_batch
from cleaner.kernels import PAD_BYTES
from cleaner.kernels.batch_header import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_BYTES,
    LEGACY_HEADER,
    MAGIC,
    MAGIC_AT,
    MIN_BATCH_BYTES,
    size_of,
)
from cleaner.kernels.codec_table import CODEC_NAMES, LAST_CODEC, NONE
from cleaner.storage.fs.readable import OpenedFile
from cleaner.storage.segment import names
from cleaner.verification.proof.erased.batch_search import BatchSearch
from cleaner.verification.proof.erased.findings import Doubt, FileAccount, LeftOver, Level, Unsure
from cleaner.verification.proof.erased.hashed_file import HashedFile
from cleaner.verification.proof.erased.wanted import WantedKeys

WINDOW_BYTES = 1 << 20
# Files of these kinds hide what is in them from a search of their bytes: where their mark is, what it is, and the kind.
_ARCHIVES = (
    (0, b"\x1f\x8b\x08", "gzip"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"\xff\x06\x00\x00sNaPpY", "snappy"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"LZIP", "lzip"),
    (0, b"\x89LZO", "lzop"),
    (0, b"BZh", "bzip2"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "rar"),
    (257, b"ustar", "tar, whose members may be"),
    # Tables, those of `cleaner export` too.
    (0, b"PAR1", "Parquet"),
    (0, b"PARE", "Parquet"),
    (0, b"Obj\x01", "Avro"),
    (0, b"ORC", "ORC"),
    (0, b"ARROW1", "Arrow"),
)
_SKIPPED = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # a frame of zstd or lz4 with anything in it, before the others
_HEAD_BYTES = 262


class FileSearch:
    """
    Searches files, one after the other.

    Args:
        keys: what is looked for.
        limit_bytes: most bytes a batch may unpack to.
        with_mentions: also search values and headers.
        check_done: called before each chunk; raises CleaningAborted to stop.
    """

    def __init__(
        self,
        keys: WantedKeys,
        *,
        limit_bytes: int,
        with_mentions: bool,
        check_done: Callable[[], None],
    ) -> None:
        self._keys = keys
        self._batches = BatchSearch(keys, limit_bytes=limit_bytes, with_mentions=with_mentions)
        self._buffer = _BoundedBuffer()
        self._window: Bytes = np.zeros(0, np.uint8)
        self._check_done = check_done

    def run(
        self, file: OpenedFile, size: int, on_find: Callable[[LeftOver], None], on_bytes: Callable[[int], None]
    ) -> FileAccount:
        """
        Search a file and hash it.

        Args:
            file: the open file.
            size: its length, bytes.
            on_find: called with each left-over.
            on_bytes: called with how many bytes are done.
        Raises:
            LogChangedError: it became shorter.
            LogDirOfflineError: the disk refuses.
        """
        account = FileAccount(size=size)
        source = HashedFile(file, size)
        is_log = _is_log_name(file.path)
        position = 0
        while position < size:
            end = self._read_batches(source, position, account, on_find, on_bytes)
            if end == size:
                break
            following = find_whole_batch(source, end + 1, size, in_anything=True)
            position = size if following is None else following
            self._search_bytes(source, end, position, account, on_find, is_log=is_log)
            on_bytes(position)
        account.sha256 = source.finish()
        return account

    def hash(self, file: OpenedFile, size: int) -> FileAccount:
        """Only hash a file."""
        return FileAccount(size=size, sha256=HashedFile(file, size).finish())

    def _read_batches(
        self,
        source: HashedFile,
        position: int,
        account: FileAccount,
        on_find: Callable[[LeftOver], None],
        on_bytes: Callable[[int], None],
    ) -> int:
        """Search the batches from a position on; returns where they end."""
        reader = SegmentReader(source, size=account.size, start=position, buffer=self._buffer)
        try:
            while True:
                self._check_done()
                chunk = reader.next_chunk(self._buffer)
                if chunk is None:
                    break
                self._batches.search(source.path, chunk, account, on_find)
                position = chunk.position + chunk.length
                account.structured_bytes += chunk.length
                on_bytes(position)
        except (CorruptBatchError, _BatchTooLargeError):
            self._buffer.shrink()
            return position
        self._buffer.shrink()
        return position

    def _search_bytes(
        self,
        source: HashedFile,
        start: int,
        end: int,
        account: FileAccount,
        on_find: Callable[[LeftOver], None],
        *,
        is_log: bool | None,
    ) -> None:
        """Search bytes that are no sound batch."""
        overlap = max(0, self._keys.longest - 1)
        step = max(WINDOW_BYTES, overlap)
        if len(self._window) < step + overlap + PAD_BYTES:
            self._window = np.zeros(step + overlap + PAD_BYTES, np.uint8)
        zeros = 0
        head = b""
        for position in range(start, end, step):
            self._check_done()
            size = min(step + overlap, end - position)
            if source.read_into(self._window.data[:size], position) < size:
                raise LogChangedError(f"{source.path}: the file became shorter while it was read")
            if position == start:
                head = self._window[: min(size, _HEAD_BYTES)].tobytes()
            if not self._window[: min(step, size)].any():
                zeros += min(step, size)
            for hit in self._keys.in_bytes(self._window, size, spare=max(0, size - step)):
                on_find(LeftOver(Level.RAW, position + hit.position, None, hit.number))
        account.raw_bytes += end - start
        account.zero_bytes += zeros
        if zeros < end - start:
            self._doubt(head, start, end, account, is_log=is_log)

    def _doubt(self, head: bytes, start: int, end: int, account: FileAccount, *, is_log: bool | None) -> None:
        """Note what the bytes of a stretch that is not only zeros may hide."""
        if is_log or account.batches or (is_log is None and _may_be_batch(head[:HEADER_BYTES])):
            reason = f"{end - start} bytes that are no sound batch: searched as they are, not unpacked"
            account.unsure.append(Unsure(Doubt.DAMAGED, start, reason))
            return
        kind = next((kind for at, mark, kind in _ARCHIVES if head.startswith(mark, at)), None)
        if kind is not None or _SKIPPED.match(head):
            reason = f"compressed ({kind or 'zstd or lz4'}): what is in it was not searched; unpack it, or remove it"
            account.unsure.append(Unsure(Doubt.NOT_SEARCHED, start, reason))


class _BatchTooLargeError(Exception):
    """A length field that says more than any batch is searched for."""


class _BoundedBuffer(ReadBuffer):
    """A buffer that does not grow to what bytes say that are no batch."""

    def grow(self, chunk_bytes: int) -> None:
        """Make room for a batch."""
        if chunk_bytes > LARGEST_BATCH_BYTES:
            raise _BatchTooLargeError
        super().grow(chunk_bytes)


def _is_log_name(path: Path) -> bool | None:
    """Tell whether a name is that of a `.log`, renamed ones included; None for a name that says nothing."""
    parsed = names.parse_file_name(path.name)
    return None if parsed is None else parsed.suffix == names.LOG


def _may_be_batch(head: bytes) -> bool:
    """Tell whether bytes may be the first part of a compressed batch."""
    if len(head) <= MAGIC_AT + 2 or head[MAGIC_AT] > MAGIC or head[0] > 0x7F:
        return False
    magic = head[MAGIC_AT]
    if not MIN_BATCH_BYTES[magic] <= size_of(head) <= LARGEST_BATCH_BYTES:
        return False
    if magic < MAGIC:
        return len(head) >= LEGACY_HEADER.size and 0 < head[MAGIC_AT + 1] <= LAST_CODEC[magic]
    if len(head) < HEADER_BYTES:
        return True
    _, _, _, _, _, attributes, last_delta, *_, count = HEADER.unpack(head)
    return (
        0 <= attributes < 1 << 7
        and attributes & COMPRESSION_MASK in range(NONE, len(CODEC_NAMES))
        and (last_delta >= 0 and 0 <= count <= last_delta + 1)
    )
