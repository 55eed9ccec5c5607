"""
The offsets that consumer groups have committed: those of the backup, and over them those of this process.

What a client commits here is kept until the process ends and is written nowhere: the directory is only read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from cleaner.errors import MAY_PASS, CleanerError
from cleaner.format.coordinator_records import CONSUMER_OFFSETS
from cleaner.read.partition_files import MAX_BATCH_BYTES
from cleaner.read.summary import look_again
from cleaner.serve.catalog import Catalog
from cleaner.serve.partition import Partition
from cleaner.storage.fs.file_system import FileSystem
from cleaner.verification.replay.groups import GroupReplay
from cleaner.verification.replay.kinds import replay

_MAX_COMMITS = 1_000_000

Place = tuple[str, int]
"""Topic and partition."""


class Committed(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int
    metadata: str


class GroupOffsets:
    """Committed offsets by group."""

    def __init__(self, fs: FileSystem, catalog: Catalog) -> None:
        self._fs = fs
        self._catalog = catalog
        self._of_backup: dict[str, dict[Place, Committed]] = {}
        self._unread: list[Partition] | None = None  # of `__consumer_offsets`; None: not looked for yet
        self._own: dict[str, dict[Place, Committed]] = {}
        self._count = 0

    def load(self, group: str | None = None) -> bool:
        """
        Read the backup's offsets, the first time; this may take seconds.

        Returns:
            False: a bucket or a disk does not answer now, or no file descriptor is left, and the group may have offsets
            in what was not read. That is asked for again the next time: without these offsets, it would begin anew.
        """
        if self._unread is None:
            topic = self._catalog.topics.get(CONSUMER_OFFSETS)
            self._unread = [] if topic is None else list(topic.partitions.values())
        self._unread = [partition for partition in self._unread if not self._read(partition)]
        return not self._unread or group in self._of_backup  # all of a group is in one partition

    def _read(self, partition: Partition) -> bool:
        """Read a partition; False: it may have an answer the next time."""
        try:
            state, _ = look_again(
                self._fs,
                [partition.directory],
                lambda _: replay("groups", partition.side(), MAX_BATCH_BYTES, lambda _bytes: None),
            )
        except CleanerError as error:
            self._catalog.say(f"committed offsets of {partition.topic_partition} are not known: {error}")
            is_forbidden = isinstance(getattr(error, "cause", None), PermissionError)  # and stays so
            return is_forbidden or not isinstance(error, MAY_PASS)
        found: dict[str, dict[Place, Committed]] = {}
        for key, facts in cast("GroupReplay", state).committed_offsets():
            offset, epoch = cast("tuple[int, int]", (facts["offset"], facts["leader epoch"]))
            place = (key.topic, key.partition)
            found.setdefault(key.group, {})[place] = Committed(offset, epoch, str(facts["metadata"] or ""))
        for group, places in found.items():  # each as a whole: other threads answer from it
            self._of_backup[group] = {**self._of_backup.get(group, {}), **places}
        return True

    def groups(self) -> set[str]:
        """Return the groups that have offsets; call `load` first."""
        return {*self._of_backup, *self._own}

    def of(self, group: str) -> Mapping[Place, Committed]:
        """Return a group's offsets; call `load` first."""
        return {**self._of_backup.get(group, {}), **self._own.get(group, {})}

    def commit(self, group: str, place: Place, committed: Committed) -> bool:
        """Keep an offset for the life of the process; False: there are too many."""
        own = self._own.setdefault(group, {})
        if place not in own:
            if self._count >= _MAX_COMMITS:
                return False
            self._count += 1
        own[place] = committed
        return True
