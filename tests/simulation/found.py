"""
What the files of a partition hold, read with the tests' own reader, and what must be true of them alone.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from tests.reference.batches import Batch, Rec, read_batches, read_records
from tests.simulation.rot import Rots, sound_batches
from tests.support.batch_builder import HEADER_BYTES
from tests.support.batch_reader import batch_info, read_marker, without_room
from tests.support.codecs import crc32c
from tests.support.power_cut import DiskState

ID_HEADER = "id"
RECOVERY_POINTS, HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
_COMMIT = 1
_TEMPORARY = (".cleaned", ".swap", ".deleted")
_ABORT = struct.Struct(">hqqqq")
_INDEX = struct.Struct(">ii")


# Most of what is judged again has not changed since.
_batches_in = lru_cache(64)(read_batches)


_records_in = lru_cache(4096)(read_records)


class Wrong(AssertionError):
    """The product has broken a promise."""


@dataclass
class Found:
    """
    What the files of a partition hold.

    Attributes:
        producers: of each record: its producer's id, and whether it is in a transaction.
        markers: offset, producer id, and whether it commits.
        in_transactions: of each batch in a transaction, empty ones too: last offset and producer id.
        last_ends: of each producer outside of transactions: the last offset of its last batch.
        bases: base offsets of all batches.
        open_from: of each producer with an open transaction: the base offset of that one's first batch.
        aborts: the entries of transaction indexes: segment, producer id, first offset and last.
        segment_of: the segment of each marker.
        epochs: leader epoch and base offset of each batch.
        size: bytes of all `.log` files.
        horizons: of each tombstone and marker: its batch's delete horizon (ms).
        damaged_bytes: of damaged segments, how many are not in a sound batch.
    """

    records: dict[int, Rec] = field(default_factory=dict)
    producers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    markers: list[tuple[int, int, bool]] = field(default_factory=list)
    in_transactions: list[tuple[int, int]] = field(default_factory=list)
    last_ends: dict[int, int] = field(default_factory=dict)
    bases: set[int] = field(default_factory=set)
    open_from: dict[int, int] = field(default_factory=dict)
    aborts: list[tuple[str, int, int, int]] = field(default_factory=list)
    segment_of: dict[int, str] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    horizons: dict[int, int | None] = field(default_factory=dict)
    end: int = 0
    size: int = 0
    damaged_bytes: int = 0

    @staticmethod
    def of(directory: Path, rots: Rots | None = None) -> Found:
        """Read all segments; of damaged ones only what is sound. With `preallocate` the last one may end in zeros."""
        found, names = Found(), set() if rots is None else rots.names
        paths = sorted(directory.glob("*.log"))
        for path in paths:
            base = int(path.name.partition(".")[0])
            data = without_room(path.read_bytes()) if path is paths[-1] else path.read_bytes()
            if path.name in names:
                found._take_damaged(data, path.stem)
                continue
            batches = _batches_in(data)
            whole = sum(len(batch.raw) for batch in batches)
            if whole != len(data):
                raise Wrong(f"{path.name}: {len(data) - whole} bytes behind its last batch")
            found.end = max(found.end, base)
            found.size += len(data)
            for batch in batches:
                if batch.base_offset < found.end:
                    raise Wrong(f"{path.name}: offset {batch.base_offset} after {found.end - 1}")
                found._take(batch, path.stem)
                if names and crc32c(batch.raw[21:]) != int.from_bytes(batch.raw[17:21], "big"):
                    raise Wrong(f"{path.name}: the batch at offset {batch.base_offset} is damaged, and nobody hit it")
            if path.with_suffix(".index").name not in names:
                found._take_index(path, batches, base)
            index = path.with_suffix(".txnindex")
            entries = index.read_bytes() if index.exists() else b""
            if len(entries) % _ABORT.size and index.name not in names:
                raise Wrong(f"{index.name}: {len(entries)} bytes")
            whole = len(entries) // _ABORT.size * _ABORT.size
            found.aborts += [(path.stem, *entry[1:4]) for entry in _ABORT.iter_unpack(entries[:whole])]  # type: ignore[misc]
        return found

    def _take_damaged(self, data: bytes, segment: str) -> None:
        batches = list(sound_batches(data))
        self.damaged_bytes += len(data) - sum(len(batch.raw) for batch in batches)
        self.size += len(data)
        self.end = max(self.end, int(segment))
        for batch in batches:
            self._take(batch, segment)

    def _take(self, batch: Batch, segment: str) -> None:
        self.end = batch.last_offset + 1
        self.epochs.append((batch.leader_epoch, batch.base_offset))
        if batch.transactional and not batch.control:
            self.in_transactions.append((batch.last_offset, batch.producer_id))
            self.open_from.setdefault(batch.producer_id, batch.base_offset)
        self.bases.add(batch.base_offset)
        if not batch.transactional and batch.producer_id >= 0:
            self.last_ends[batch.producer_id] = batch.last_offset
        if batch.control:
            self.open_from.pop(batch.producer_id, None)
            if batch.count:
                self.segment_of[batch.base_offset] = segment
                self.horizons[batch.base_offset] = batch.delete_horizon
                self.markers.append((batch.base_offset, batch.producer_id, read_marker(batch.raw)[0] == _COMMIT))
            return
        for record in _records_in(batch):
            self.records[record.offset] = record
            if record.value is None:
                self.horizons[record.offset] = batch.delete_horizon
            self.producers[record.offset] = (batch.producer_id, batch.transactional)

    def _take_index(self, path: Path, batches: list[Batch], base: int) -> None:
        """Judge an offset index: each entry says where a batch begins, by its last offset."""
        index = path.with_suffix(".index")
        if not index.exists():
            raise Wrong(f"{index.name} is missing")
        at = {batch.position: batch.last_offset for batch in batches}
        data = index.read_bytes()
        for relative, position in _INDEX.iter_unpack(data[: len(data) // _INDEX.size * _INDEX.size]):
            if (relative or position) and at.get(position) != base + relative:
                raise Wrong(f"{index.name} says that offset {base + relative} is at {position}")

    def judge_epochs(self, directory: Path, log_start: int) -> None:
        """Judge the leader epochs: the file has each batch's, from its offset or the log start on or earlier."""
        starts = epochs_of(directory)
        for epoch, offset in self.epochs:
            if offset >= log_start and (epoch not in starts or starts[epoch] > offset):
                raise Wrong(f"leader epoch {epoch} of the batch at {offset} is not among {starts}")

    def outcome(self, offset: int) -> bool | None:
        """Tell how the transaction of a record ended: committed, aborted, or not yet (None)."""
        marker = self.marker_after(offset, self.producers[offset][0])
        return None if marker is None else marker[1]

    def marker_after(self, offset: int, producer_id: int) -> tuple[int, bool] | None:
        """Return the marker that ends a producer's transaction at an offset: its own, and whether it commits."""
        return next(
            ((at, commit) for at, producer, commit in self.markers if at > offset and producer == producer_id), None
        )

    def judge_aborts(self, log_start: int) -> None:
        """
        Judge the transaction indexes: a reader that goes by them leaves out what is aborted, and nothing else.

        Segments below the log start may be there still; a recovery looks at transactions from the log start on.

        Raises:
            Wrong: an aborted transaction that still has a batch has no entry, or an entry has no marker.
        """
        ends = {(segment, producer, last): first for segment, producer, first, last in self.aborts}
        if len(ends) != len(self.aborts):
            raise Wrong(f"an aborted transaction is in an index twice: {self.aborts}")
        for offset, producer in self.in_transactions:
            if offset < log_start:
                continue
            marker = self.marker_after(offset, producer)
            if marker is not None and not marker[1]:
                first = ends.get((self.segment_of[marker[0]], producer, marker[0]))
                if first is None or first > offset:
                    raise Wrong(f"the transaction that the marker at {marker[0]} aborts is in no index")
        aborting = {(self.segment_of[at], producer, at) for at, producer, commit in self.markers if not commit}
        if not ends.keys() <= aborting:
            raise Wrong(f"indexes name aborted transactions without a marker: {ends.keys() - aborting}")


def epochs_of(directory: Path) -> dict[int, int]:
    """Return where the leader epochs of a log begin, by its `leader-epoch-checkpoint`, in its order."""
    path = directory / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {int(epoch): int(start) for epoch, start in (line.split() for line in lines)}


def number_of(headers: object) -> int:
    """Return the number in a record's headers."""
    for name, value in headers:  # type: ignore[attr-defined]
        if (name if isinstance(name, str) else name.decode()) == ID_HEADER:
            return int(value)
    raise Wrong(f"a record without its number: {headers!r}")


def first_base(directory: Path) -> int | None:
    """Return the base offset of the first segment, one that is being swapped in included; None without one."""
    names = (path.name for path in directory.glob("*.log*"))
    return min((int(name[:20]) for name in names if name.endswith((".log", ".log.swap"))), default=None)


def topic_id_of(directory: Path) -> uuid.UUID | None:
    """Return the id in a partition's metadata."""
    path = directory / "partition.metadata"
    if not path.exists():
        return None
    texts = dict(line.split(": ") for line in path.read_text().splitlines())
    return uuid.UUID(bytes=base64.urlsafe_b64decode(texts["topic_id"] + "=="))


def checkpoints_of(log_dir: Path, topic: str) -> dict[str, int]:
    """Read the lines of a topic's partition 0 from the four checkpoints."""
    found = {}
    for path in log_dir.glob("*-checkpoint"):
        with contextlib.suppress(ValueError):
            offset = _line_of(path.read_text(), topic)
            if offset is not None:
                found[path.name] = offset
    return found


def _line_of(checkpoint: str, topic: str) -> int | None:
    for line in checkpoint.splitlines()[2:]:
        name, partition, offset = line.split(" ")
        if name == topic and partition == "0":
            return int(offset)
    return None


def judge_cut_checkpoints(directory: Path, checkpoints: dict[str, int]) -> None:
    """
    Judge what a power cut has left, before anybody opens it: these checkpoints only say what had been forced to disk.

    Raises:
        Wrong: one says more.
    """
    if left_overs(directory):
        return  # the names of a swap say what is there, not these files
    end = 0
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        end = max(end, int(path.stem))
        at = 0
        # No checksum covers a base offset: a batch whose offset was lost is not above those before it.
        while (raw := _sound_batch(data, at)) is not None and batch_info(raw).base_offset >= end:
            end, at = batch_info(raw).last_offset + 1, at + len(raw)
        if at < len(data):
            break
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        if checkpoints.get(name, 0) > end:
            raise Wrong(f"{name} says {checkpoints[name]}, and what is on the disk ends at {end}")


def _sound_batch(data: bytes, at: int) -> bytes | None:
    """Return the batch that begins at a position; None if it is torn, or the data ends there."""
    size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
    raw = data[at : at + size]
    is_sound = HEADER_BYTES <= size == len(raw) and int.from_bytes(raw[17:21], "big") == crc32c(raw[21:])
    return raw if is_sound else None


class RoundBegun(NamedTuple):
    """
    What was there when a round began: the cleaner's checkpoint, and files of unfinished work.

    `expires`: retention may retire segments meanwhile.
    """

    checkpoint: int
    left_overs: frozenset[str]
    expires: bool


def judge_cut_swap(state: DiskState, directory: Path, begun: RoundBegun) -> None:
    """
    Judge the names that a power cut during a round has left: no later phase of a swap without the earlier ones.

    Raises:
        Wrong: the phases are mixed.
    """
    dates = {path.name: file.mtime_ns for path, file in state.files if path.parent == directory}
    there = set(dates)
    names = there - begun.left_overs
    unfinished = sorted(name for name in names if name.endswith((".cleaned", ".swap")))
    for path, file in state.files:
        if path.name == "cleaner-offset-checkpoint" and unfinished:
            offset = _line_of(file.data.decode(errors="replace"), directory.name.rpartition("-")[0])
            if offset is not None and offset > begun.checkpoint:
                raise Wrong(f"the checkpoint of the round is on disk, and these names are not final: {unfinished}")
    for stem in sorted({name[:20] for name in names if name[:20].isdigit()}):
        has = {name[20:] for name in names if name.startswith(stem)}
        indexes = {suffix for suffix in (".index", ".timeindex", ".txnindex") if suffix + ".swap" in has}
        # A `.cleaned` file condemns the `.swap` files at and above it, also one with the name of an earlier round's.
        cleaned = {name for name in names if name.endswith(".cleaned")}
        is_decided = not cleaned and not any(name.endswith(".cleaned") and name[:20] <= stem for name in there)
        is_retired = ".log" not in has and not (begun.expires and ".log.deleted" in has)
        if is_retired and any(name.endswith(".cleaned") for name in has):
            raise Wrong(f"{stem}.log is retired before the swap is decided: {sorted(has)}")
        # Of a swap that was interrupted after its logs had their names, a power cut may bring the logs' suffixes back.
        if ".log.swap" in has and is_decided and not {f"{stem}.index.swap", f"{stem}.timeindex.swap"} <= there:
            raise Wrong(f"{stem}.log.swap without its indexes: {sorted(has)}")
        if ".log.swap" in has and is_decided:
            new = [dates[f"{stem}{suffix}.swap"] for suffix in (".log", ".index", ".timeindex")]
            if len(set(new)) > 1:
                raise Wrong(f"the new files of {stem} have the times {new}: one was set and not forced to disk")
        if ".log" in has and f"{stem}.log.deleted" not in there and is_decided and unfinished:
            retired = [name for name in has if name.endswith("index.deleted")]
            if retired:
                raise Wrong(f"{stem}.log is there, and its indexes are retired: {sorted(has)}")
        if ".log" in has and ".log.swap" not in has and indexes and is_decided:
            # Also one that an earlier round has left, of which only this cut took the new names back.
            if f"{stem}.log.deleted" not in there:
                raise Wrong(f"{stem}: the old log is removed before the new names are final: {sorted(has)}")
            if indexes & has:
                raise Wrong(f"{stem}.log is new beside old indexes: {sorted(has)}")


def left_overs(directory: Path) -> list[str]:
    """Return the files of unfinished work."""
    return sorted(path.name for path in directory.iterdir() if path.name.endswith(_TEMPORARY))
