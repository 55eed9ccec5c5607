"""
What a round with `--recompress` leaves of a log in which nothing is dirty: the same records, in other batches.

Nothing here asks the product: batches are read with the tests' own reader, and what may have become one batch is
decided again.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

from tests.reference.batches import CREATE_TIME, Batch, Rec, read_batches, read_records
from tests.simulation.found import Wrong, checkpoints_of
from tests.support.codecs import compress, crc32c, decompress

TARGETS = ("zstd", "lz4", "none", "zstd:1")
LIMITS = ("110", "170", "1048588")
_HEADER_BYTES = 61
_LEVELS_DIFFER_BY = 16
_MOST_VARINTS = 20  # by which a record can become longer


class Kept(NamedTuple):
    """A record, and what its batch says of it."""

    record: Rec
    producer: tuple[int, int]
    is_transactional: bool
    leader_epoch: int
    timestamp_type: int
    delete_horizon: int | None


class PackedLog(NamedTuple):
    """
    A log before or after such a round.

    Attributes:
        name: the topic's.
        end: its line in the cleaner's checkpoint.
        batches: of each segment.
    """

    name: str
    end: int
    batches: dict[int, list[Batch]]

    @staticmethod
    def of(log_dir: Path, name: str) -> PackedLog:
        """Read a topic's log."""
        paths = sorted((log_dir / f"{name}-0").glob("*.log"))
        end = checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint", 0)
        return PackedLog(name, end, {int(path.stem): read_batches(path.read_bytes()) for path in paths})

    def judge(self, after: PackedLog, target: str, limit: int, *, is_whole: bool) -> None:
        """
        Judge what the round has left of this log.

        Args:
            after: the log afterwards.
            target, limit: as it was asked for, and `max.message.bytes`.
            is_whole: no accident has cut the command short.
        """
        if after.end != self.end:
            raise Wrong(f"{self.name}: nothing was dirty, and the checkpoint moves from {self.end} to {after.end}")
        old, new = self._all(), after._all()
        if _records(old) != _records(new):
            missing = [kept for kept in _records(old) if kept not in _records(new)]
            raise Wrong(f"{self.name}: packing has changed records: {missing[:2]}")
        # Whatever somebody needs the bounds of has them still.
        if [_bounds(batch) for batch in old if not _is_free(batch)] != [
            _bounds(batch) for batch in new if not _is_free(batch)
        ]:
            raise Wrong(f"{self.name}: packing has changed batches of producers, markers or empty ones")
        codec = target.partition(":")[0]
        known = {batch.raw for batch in old}
        for base, batches in after.batches.items():
            for batch in batches:
                made_of = [each for each in old if batch.base_offset <= each.base_offset <= batch.last_offset]
                largest = max(limit, len(made_of[0].raw)) if len(made_of) == 1 else limit
                self._judge_batch(batch, codec, largest, is_new=batch.raw not in known)
            if is_whole and base < self.end:
                self._judge_segment(batches, codec, limit)

    def _all(self) -> list[Batch]:
        return [batch for batches in self.batches.values() for batch in batches]

    def _judge_batch(self, batch: Batch, codec: str, largest: int, *, is_new: bool) -> None:
        where = f"{self.name}: the batch at {batch.base_offset}"
        if crc32c(batch.raw[21:]) != int.from_bytes(batch.raw[17:21], "big"):
            raise Wrong(f"{where} is damaged")
        if not is_new:
            return
        if len(batch.raw) > largest:
            raise Wrong(f"{where} has {len(batch.raw)} bytes, more than {largest}")
        if batch.codec not in (codec, "none"):
            raise Wrong(f"{where} is packed with {batch.codec}, {codec} was asked for")
        times = [record.timestamp for record in read_records(batch)]
        if batch.timestamp_type == CREATE_TIME and max(times) != batch.max_timestamp:
            raise Wrong(f"{where} says that its largest time is {batch.max_timestamp}, it is {max(times)}")

    def _judge_segment(self, batches: list[Batch], codec: str, limit: int) -> None:
        """Judge whether all is packed that can be."""
        for batch in batches:
            is_other = batch.codec not in (codec, "none") and batch.count and codec != "none"
            if is_other and _packed_bytes(batch, codec) <= max(limit, len(batch.raw)):
                raise Wrong(f"{self.name}: the batch at {batch.base_offset} is still packed with {batch.codec}")
        for first, second in itertools.pairwise(batches):
            sizes = [len(decompress(each.codec, each.raw[_HEADER_BYTES:])) for each in (first, second) if each.count]
            most = _HEADER_BYTES + sum(sizes) + _MOST_VARINTS * second.count
            # What is packed already may be smaller as it is.
            is_free = _is_free(first) and _is_free(second) and first.codec == second.codec == "none"
            if is_free and _says_the_same(first, second) and most <= limit:
                raise Wrong(f"{self.name}: {first.base_offset} and {second.base_offset} could be one batch")


def _packed_bytes(batch: Batch, codec: str) -> int:
    """Return about how many bytes a batch would have with a codec: levels differ by some bytes."""
    body = decompress(batch.codec, batch.raw[_HEADER_BYTES:])
    return _HEADER_BYTES + len(compress(codec, body)) + _LEVELS_DIFFER_BY


def _records(batches: list[Batch]) -> list[Kept]:
    return [
        Kept(
            record,
            (batch.producer_id, batch.producer_epoch),
            batch.transactional,
            batch.leader_epoch,
            batch.timestamp_type,
            batch.delete_horizon,
        )
        for batch in batches
        if not batch.control
        for record in read_records(batch)
    ]


def _is_free(batch: Batch) -> bool:
    """Tell whether nobody needs the bounds of a batch."""
    return batch.producer_id == -1 and batch.count > 0 and not batch.control and not batch.transactional


def _says_the_same(first: Batch, second: Batch) -> bool:
    def about(batch: Batch) -> tuple[object, ...]:
        is_create_time = batch.timestamp_type == CREATE_TIME
        return batch.leader_epoch, batch.timestamp_type, batch.delete_horizon, is_create_time or batch.max_timestamp

    return about(first) == about(second)


def _bounds(batch: Batch) -> tuple[object, ...]:
    """Return what must be the same of a batch whose bounds somebody may need."""
    is_as_it_is = batch.control or not batch.count
    return (
        *(batch.base_offset, batch.last_offset, batch.producer_id, batch.producer_epoch, batch.base_sequence),
        *(batch.count, batch.max_timestamp, batch.base_timestamp, batch.raw if is_as_it_is else b""),
    )
