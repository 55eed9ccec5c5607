"""
The objects of moved segments, and the broker's files as they were before, read from them.

A chunk is read and unpacked when something in it is wanted; the last few are kept.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections import OrderedDict
from pathlib import Path

from cleaner.base import concurrency
from cleaner.base.remote_path import RemotePath
from cleaner.storage.fs.remote import RemoteFiles
from cleaner.storage.fs.store import Limits, Refused, RemoteObject, Replaced
from cleaner.storage.segment import names
from cleaner.storage.tiered.manifest import (
    LIMIT_BYTES,
    Extent,
    Manifest,
    chunk_ends,
    parse_manifest,
    unpack_chunk,
)

MANIFEST, INDEXES = ".rsm-manifest", ".indexes"

_KEPT_CHUNK_BYTES = 32 << 20
_KEPT_READ_AHEAD_BYTES = 16 << 20
_KEPT_MANIFESTS = 20_000
_MAX_INDEX_BYTES = 16 << 20  # of one that is read whole


@dataclasses.dataclass(frozen=True)
class Segment:
    """A moved segment: what its manifest says, and its objects as they were listed."""

    path: Path
    manifest: Manifest
    log: RemoteObject
    indexes: RemoteObject

    @property
    def start_offset(self) -> int:
        """The first offset."""
        return self.manifest.start_offset

    @property
    def end_offset(self) -> int:
        """The last offset."""
        return self.manifest.end_offset

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, its first offset here), ascending."""
        return self.manifest.leader_epochs

    def named(self, suffix: str) -> Path:
        """Return the path of an object."""
        return self.path.with_name(self.path.name + suffix)


class Objects:
    """
    Reads objects in buckets and on this machine. Safe to share between threads.

    Args:
        limits: of requests.

    Attributes:
        files: lists and reads them.
    """

    def __init__(self, limits: Limits) -> None:
        kept = min(limits.kept_bytes, _KEPT_READ_AHEAD_BYTES)
        self.files = RemoteFiles(dataclasses.replace(limits, kept_bytes=kept))
        self._guard = concurrency.RLock()
        # Guarded by _guard.
        self._manifests: OrderedDict[tuple[Path, str], Manifest | str] = OrderedDict()
        self._chunks: OrderedDict[tuple[Path, str, int], bytes] = OrderedDict()

    def listed(self, path: Path | None) -> dict[str, RemoteObject]:
        """Return what a directory holds, by name; empty if there is none."""
        if isinstance(path, RemotePath):
            return self.files.listing(path)
        found: dict[str, RemoteObject] = {}
        if path is None or not path.is_dir():
            return found
        for name in self.files.list_dir(path):
            try:
                about = self.files.stat(path / name)
            except FileNotFoundError:
                continue  # removed a moment ago
            found[name] = RemoteObject(0, "", 0) if stat.S_ISDIR(about.st_mode) else _local_object(about)
        return found

    def read(self, path: Path, about: RemoteObject, start: int, size: int) -> bytes:
        """Return bytes of an object. Raises Replaced: it is not the one that was listed, or is shorter."""
        data = bytearray()
        if isinstance(path, RemotePath):
            while len(data) < size:
                piece, at = self.files.read_range(path, about, start + len(data), size - len(data), 0)
                data += piece[at : at + size - len(data)]
            return bytes(data)
        with self.files.open(path) as file:
            if _local_object(file.stat()) != about or len(found := file.read(size, start)) != size:
                raise Replaced(f"{path}: was replaced since it was listed")
        return found

    def manifest(self, path: Path, about: RemoteObject) -> Manifest | str:
        """Return a manifest, or what is wrong with it."""
        key = (path, about.etag)
        with self._guard:
            if key in self._manifests:
                return self._manifests[key]
        found: Manifest | str
        if about.size > LIMIT_BYTES:
            found = f"its manifest has {about.size} bytes, more than {LIMIT_BYTES}"
        else:
            try:
                found = parse_manifest(self.read(path, about, 0, about.size))
            except ValueError as error:
                found = f"its manifest is damaged: {error}"
        with self._guard:
            self._manifests[key] = found
            while len(self._manifests) > _KEPT_MANIFESTS:
                self._manifests.popitem(last=False)
        return found

    def index(self, segment: Segment, name: str, row_bytes: int = 1) -> bytes:
        """Return an index in whole rows; empty without one."""
        position, size = segment.manifest.indexes.get(name, Extent(0, 0))
        if size > _MAX_INDEX_BYTES:
            raise Refused(f"{segment.named(INDEXES)}: an index ({name}) of {size} bytes")
        size -= size % row_bytes
        return self.read(segment.named(INDEXES), segment.indexes, position, size) if size else b""

    def original(self, segment: Segment, start: int, size: int) -> bytes:
        """Return bytes of the broker's `.log`, which are there by the manifest."""
        path, manifest = segment.named(names.LOG), segment.manifest
        if not manifest.packed_sizes:
            return self.read(path, segment.log, start, size)
        step = manifest.chunk_bytes
        first = start // step
        data = b"".join(self._chunk(segment, path, each) for each in range(first, -(-(start + size) // step)))
        return data[start - first * step :][:size]

    def _chunk(self, segment: Segment, path: Path, number: int) -> bytes:
        key, manifest = (path, segment.log.etag, number), segment.manifest
        with self._guard:
            if key in self._chunks:
                self._chunks.move_to_end(key)
                return self._chunks[key]
        try:
            ends = chunk_ends(manifest.packed_sizes, manifest.size, manifest.chunk_bytes, segment.log.size)
            at = int(ends[number - 1]) if number else 0
            packed = self.read(path, segment.log, at, int(ends[number]) - at)
            size = min(manifest.chunk_bytes, manifest.size - number * manifest.chunk_bytes)
            data = unpack_chunk(packed, size)
        except ValueError as error:
            if isinstance(error, Refused | Replaced):
                raise
            raise Refused(f"{path}: chunk {number}: {error}") from None
        with self._guard:
            self._chunks[key] = data
            while sum(map(len, self._chunks.values())) > _KEPT_CHUNK_BYTES and len(self._chunks) > 1:
                self._chunks.popitem(last=False)
        return data


class OriginalLog:
    """The broker's `.log`, for who walks its batches."""

    def __init__(self, objects: Objects, segment: Segment) -> None:
        self.path = segment.named(names.LOG)
        self.size = segment.manifest.size
        self._objects, self._segment = objects, segment

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer."""
        count = min(len(buffer), self.size - position)
        buffer[:count] = self._objects.original(self._segment, position, count)
        return count


def _local_object(about: os.stat_result) -> RemoteObject:
    return RemoteObject(about.st_size, f"{about.st_dev}-{about.st_ino}-{about.st_mtime_ns}", about.st_mtime_ns)
