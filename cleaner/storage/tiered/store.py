"""
A kind of storage: a log dir in which the segments that a broker has moved away are back among its own.

It lists a partition's directory as if nothing had been moved, and answers reads of moved segments from their chunks, so
everything above reads it as any log dir. Files that the broker's own log dir has are read there (`fs/remote.py`).
"""

from __future__ import annotations

from collections import OrderedDict

from cleaner.base import concurrency
from cleaner.base.model import TopicPartition
from cleaner.base.remote_path import RemotePath, tiered_place
from cleaner.storage.fs.store import Limits, Refused, RemoteObject, Replaced
from cleaner.storage.segment import names
from cleaner.storage.tiered.layout import Layout, Part
from cleaner.storage.tiered.objects import INDEXES, Objects

_KEPT_LISTINGS = 256


class TieredStorage:
    """
    Lists and reads joined log dirs. Safe to share between threads.

    Args:
        limits: of requests.
    """

    def __init__(self, limits: Limits) -> None:
        self.objects = Objects(limits)
        self._layout = Layout(self.objects)
        self._guard = concurrency.RLock()
        self._parts: OrderedDict[RemotePath, dict[str, Part]] = OrderedDict()  # guarded by _guard

    def list(self, path: RemotePath) -> dict[str, RemoteObject]:
        """Return the files and directories directly below a path, by name."""
        place = tiered_place(path)
        if place is None:
            return {}
        local = self.objects.listed(place.local_file)
        if not place.inside:
            if place.local is not None and not place.local.is_dir():
                raise Refused(f"{place.local}: no such directory")
            moved = sorted(self._layout.partitions(place.moved))
            return {**dict.fromkeys(moved, RemoteObject(0, "", 0)), **local}
        topic_partition = _partition_of(place.inside[0])
        if topic_partition is None or len(place.inside) > 1:
            return local
        parts = self._layout.parts_of(place, topic_partition, local)
        with self._guard:
            self._parts[path] = parts
            self._parts.move_to_end(path)
            while len(self._parts) > _KEPT_LISTINGS:
                self._parts.popitem(last=False)
        return {**{name: part.listed() for name, part in parts.items()}, **local}

    def read(self, path: RemotePath, about: RemoteObject, start: int, size: int) -> bytes:
        """Return `size` bytes of a moved file from `start`, which are there by its listing."""
        above = path.parent
        with self._guard:
            parts = self._parts.get(above)
        if parts is None:
            self.list(above)
            with self._guard:
                parts = self._parts.get(above, {})
        part = parts.get(path.name)
        if part is None or part.listed() != about:
            raise Replaced("was replaced or removed since it was listed")
        segment, at = part.segment, part.extent.position + start
        if part.is_log:
            return self.objects.original(segment, at, size)
        return self.objects.read(segment.named(INDEXES), segment.indexes, at, size)


def _partition_of(name: str) -> TopicPartition | None:
    try:
        found = names.parse_partition_dir(name)
    except ValueError:
        return None
    return found.topic_partition if found.kind is names.DirKind.CURRENT else None
