"""
Which moved files belong to a partition's directory, under which names.

Where a moved segment and one of the broker's own log dir have an offset, the own one counts: moved ones end where it
begins. An end or a beginning in the middle of a moved segment is found by its batches. Nothing is guessed: a missing
segment is an error, not a gap.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cleaner.base.model import EpochEntry, TopicPartition
from cleaner.base.remote_path import TieredPlace
from cleaner.errors import CleanerError, CorruptBatchError
from cleaner.format.headers import HeaderReader
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.leader_epochs import parse_leader_epochs, read_leader_epochs
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.store import Refused, RemoteObject
from cleaner.storage.segment import names
from cleaner.storage.segment.indexes import OFFSET_ENTRY, TXN_ENTRY
from cleaner.storage.tiered.lineage import Gap, Piece, cover, needs_lineage, pieces_of
from cleaner.storage.tiered.manifest import Extent, Manifest
from cleaner.storage.tiered.objects import INDEXES, MANIFEST, Objects, OriginalLog, Segment

_TOPIC_DIR = re.compile(r"(.+)-([A-Za-z0-9_-]{22})\Z", re.DOTALL)
_PARTITION = re.compile(r"(0|[1-9][0-9]{0,9})\Z")
_OBJECT = re.compile(r"([0-9]{20}-[A-Za-z0-9_-]{22})(\.log|\.indexes|\.rsm-manifest)\Z")
_SUFFIX_OF = {"offset": names.INDEX, "timestamp": names.TIME_INDEX, "transaction": names.TXN_INDEX}

_MAX_MANIFESTS_BYTES = 64 << 20  # of one partition; 30 000 segments


class _Trouble(NamedTuple):
    """
    A segment that cannot be used: its name, and why.

    The manifest is put last, so without it there was no segment yet; objects beside it are missing where it is being
    removed.
    """

    name: str
    base_offset: int
    reason: str
    is_unfinished: bool
    is_half_removed: bool


class Part(NamedTuple):
    """A file that is shown: a stretch of the broker's file, or of the `.indexes`."""

    segment: Segment
    extent: Extent
    is_log: bool

    def listed(self) -> RemoteObject:
        about = self.segment.log if self.is_log else self.segment.indexes
        return RemoteObject(self.extent.size, f"{about.etag} {self.segment.path.name} {self.extent}", about.mtime_ns)


class Layout:
    """
    Makes the listings of partitions.

    Args:
        objects: reads what is listed.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._files = objects.files

    def partitions(self, moved: Path) -> set[str]:
        """Return the partitions with moved segments, as names of directories."""
        return {f"{topic}-{n}" for topic, _, path in self._topics(moved) for n in self._numbers(path)}

    def _topics(self, moved: Path) -> Iterable[tuple[str, str, Path]]:
        """Return name, id and directory of each topic; of one if the path is a topic's directory itself."""
        if (match := _TOPIC_DIR.match(moved.name)) and self._numbers(moved):
            return [(match[1], match[2], moved)]
        listed = [name for name, each in self._objects.listed(moved).items() if each.is_directory]
        found = [(match[1], match[2], moved / name) for name in listed if (match := _TOPIC_DIR.match(name))]
        if not found:
            raise Refused(
                f"{moved}: no directory of moved segments, TOPIC-ID/PARTITION as the plugin names them, in it"
            )
        return found

    def _numbers(self, topic: Path) -> Iterable[str]:
        found = self._objects.listed(topic).items()
        return [name for name, each in found if each.is_directory and _PARTITION.match(name)]

    def parts_of(
        self, place: TieredPlace, topic_partition: TopicPartition, local: Mapping[str, RemoteObject]
    ) -> dict[str, Part]:
        """Return the moved files that belong to a partition, by the names that they have there."""
        directory = self._directory_of(place, topic_partition)
        if directory is None:
            return {}
        segments, troubles = self._segments(directory)
        bases = names.offsets_of(local, names.LOG)
        own = place.local_file if bases else None
        start = self._log_start(place, topic_partition)
        lineage = self._lineage(own, segments)
        if own is not None and segments:
            self._require_newest(own, bases, segments, lineage)
        # Above the start that the broker has noted nothing may be missing; what is below may be half removed.
        end = min(bases) if bases else None
        pieces = [piece for each in segments for piece in pieces_of(each, lineage)]
        chosen = cover([each for each in pieces if start is None or each.end >= start], start, end)
        if isinstance(chosen, Gap):
            raise Refused(_words_of(chosen, [each for each in troubles if each.base_offset <= chosen.end], own))
        _require_all(troubles, chosen, start, end, own)
        parts: dict[str, Part] = {}
        for piece in chosen:
            parts |= self._files_of(piece)
        if own is None and chosen and (epochs := chosen[-1].segment.manifest.indexes.get("leaderEpoch")):
            parts[names.LEADER_EPOCHS] = Part(chosen[-1].segment, epochs, is_log=False)
        return parts

    def _directory_of(self, place: TieredPlace, topic_partition: TopicPartition) -> Path | None:
        """Return where a partition's moved segments are; None if none were moved."""
        ids = {
            topic_id: path
            for topic, topic_id, path in self._topics(place.moved)
            if topic == topic_partition.topic and str(topic_partition.partition) in self._numbers(path)
        }
        if place.local_file is not None:
            own = read_topic_id(self._files, place.local_file / names.PARTITION_METADATA)
            if own is not None:
                ids = {each: path for each, path in ids.items() if each == format_uuid(own)}
        if len(ids) > 1:
            urls = " or ".join(f"{place.moved}/{topic_partition.topic}-{each}" for each in sorted(ids))
            raise Refused(f"several topics had this name; give the directory of one of them as the place: {urls}")
        return next((path / str(topic_partition.partition) for path in ids.values()), None)

    def _segments(self, directory: Path) -> tuple[Sequence[Segment], Sequence[_Trouble]]:
        found: dict[str, dict[str, RemoteObject]] = {}
        for name, about in self._objects.listed(directory).items():
            if match := _OBJECT.match(name):
                found.setdefault(match[1], {})[match[2]] = about
        sizes = [each[MANIFEST].size for each in found.values() if MANIFEST in each]
        if sum(sizes) > _MAX_MANIFESTS_BYTES:
            raise Refused(f"{directory}: {len(sizes)} manifests of {sum(sizes)} bytes; up to {_MAX_MANIFESTS_BYTES}")
        segments: list[Segment] = []
        troubles: list[_Trouble] = []
        for stem, objects in sorted(found.items()):
            missing = [suffix for suffix in (MANIFEST, names.LOG, INDEXES) if suffix not in objects]
            manifest = (
                f"without {' and '.join(missing)}"
                if missing
                else self._objects.manifest(directory / f"{stem}{MANIFEST}", objects[MANIFEST])
            )
            if isinstance(manifest, Manifest) and manifest.start_offset != int(stem[:20]):
                manifest = f"its manifest is of a segment at {manifest.start_offset}"
            if isinstance(manifest, str):
                is_unfinished = MANIFEST in missing
                is_half_removed = bool(missing) and not is_unfinished
                troubles.append(_Trouble(stem, int(stem[:20]), manifest, is_unfinished, is_half_removed))
            else:
                segments.append(Segment(directory / stem, manifest, objects[names.LOG], objects[INDEXES]))
        return segments, troubles

    def _log_start(self, place: TieredPlace, topic_partition: TopicPartition) -> int | None:
        if place.local is None:
            return None
        return read_offset_checkpoint(self._files, place.local / names.LOG_START_CHECKPOINT).get(topic_partition)

    def _lineage(self, own: Path | None, segments: Iterable[Segment]) -> Sequence[EpochEntry] | None:
        """Return the leader epochs of the log: the broker's own, else, if needed, those of the newest segment."""
        ordered = sorted(segments, key=lambda each: (each.leader_epochs[-1][0], each.end_offset))
        if own is not None and (entries := read_leader_epochs(self._files, own / names.LEADER_EPOCHS)):
            return entries
        if not needs_lineage(ordered):
            return None
        newest = ordered[-1]
        path = newest.named(INDEXES)
        try:
            entries = parse_leader_epochs(self._objects.index(newest, "leaderEpoch"), path)
        except CleanerError as error:
            raise Refused(f"{error}; segments of several leaders overlap, and this says which count") from None
        if not entries:
            raise Refused(f"{path}: no leader epochs; segments of several leaders overlap, and these say which count")
        return entries

    def _require_newest(
        self, own: Path, bases: Iterable[int], segments: Iterable[Segment], lineage: Sequence[EpochEntry] | None
    ) -> None:
        """Refuse a log dir that is behind what was moved, as that of a follower that stopped early."""
        last = max(segments, key=lambda each: (each.leader_epochs[-1][0], each.end_offset))
        base = max(bases)
        epoch = last.leader_epochs[-1][0]
        reason = ""
        if lineage and epoch > lineage[-1].epoch:
            reason = f"its newest leader epoch is {lineage[-1].epoch}"
        elif last.end_offset >= base and (not lineage or epoch == lineage[-1].epoch):
            with self._files.open(own / names.segment_file_name(base, names.LOG)) as file:
                end = _walk(HeaderReader(file, size=file.size()), base, 2**63 - 1)[1]
            reason = f"it ends at offset {end}" if end <= last.end_offset else ""
        if reason:
            raise Refused(
                f"{own} is behind the moved segments, which reach offset {last.end_offset} of epoch {epoch}: {reason}; "
                "give the log dir of the leader, or none"
            )

    def _files_of(self, piece: Piece[Segment]) -> dict[str, Part]:
        """Return the files of a segment, or of a part of one."""
        segment, manifest = piece.segment, piece.segment.manifest
        if manifest.key_id is not None:
            raise Refused(
                f"{segment.named(names.LOG)}: encrypted by the plugin with key {manifest.key_id!r}, and encrypted "
                "segments are not read; consume it from a broker that has the key, or read the broker's log dir alone"
            )
        if not manifest.packed_sizes and segment.log.size != manifest.size:
            found = segment.log.size
            raise Refused(f"{segment.named(names.LOG)}: {found} bytes, and by the manifest {manifest.size}")
        if any(sum(each) > segment.indexes.size for each in manifest.indexes.values()):
            raise Refused(f"{segment.named(INDEXES)}: {segment.indexes.size} bytes, and by the manifest more")
        begin = 0 if piece.start == manifest.start_offset else self._position_of(segment, piece.start)
        end = manifest.size if piece.end == manifest.end_offset else self._position_of(segment, piece.end + 1)
        name = names.segment_file_name(piece.start, names.LOG)
        parts = {name: Part(segment, Extent(begin, end - begin), is_log=True)}
        indexes = dict(manifest.indexes)
        if (begin, end) != (0, manifest.size):
            # Positions are others, and the last entries of another segment; readers do without these two.
            indexes = {"transaction": self._aborted_in(piece)}
        for key in ("transaction", "producerSnapshot"):  # empty where the broker has no such file
            if key in indexes and not indexes[key].size:
                del indexes[key]
        for key in _SUFFIX_OF.keys() & indexes.keys():
            parts[names.segment_file_name(piece.start, _SUFFIX_OF[key])] = Part(segment, indexes[key], is_log=False)
        if "producerSnapshot" in indexes:
            parts[names.snapshot_file_name(piece.end + 1)] = Part(segment, indexes["producerSnapshot"], is_log=False)
        return parts

    def _aborted_in(self, piece: Piece[Segment]) -> Extent:
        """Return where the aborted transactions are that end in a part of a segment."""
        entries = np.frombuffer(self._objects.index(piece.segment, "transaction", TXN_ENTRY.itemsize), TXN_ENTRY)
        inside = np.flatnonzero((entries["last_offset"] >= piece.start) & (entries["last_offset"] <= piece.end))
        if not len(inside):
            return Extent(0, 0)
        first, count = int(inside[0]), int(inside[-1] - inside[0]) + 1
        position = piece.segment.manifest.indexes["transaction"].position
        return Extent(position + first * TXN_ENTRY.itemsize, count * TXN_ENTRY.itemsize)

    def _position_of(self, segment: Segment, offset: int) -> int:
        """Return where the first batch at or above an offset begins. Raises Refused: the offset is inside a batch."""
        entries = np.frombuffer(self._objects.index(segment, "offset", OFFSET_ENTRY.itemsize), OFFSET_ENTRY)
        below = np.flatnonzero(entries["relative_offset"] < offset - segment.start_offset)
        hint = int(entries["position"][below[-1]]) if len(below) else 0
        file = OriginalLog(self._objects, segment)
        for start in [hint, 0] if 0 < hint < file.size else [0]:  # a damaged index leads elsewhere
            try:
                position, next_offset = _walk(HeaderReader(file, size=file.size, start=start), -1, offset)
            except CorruptBatchError as error:
                if not start:
                    raise Refused(str(error)) from None
                continue
            if (not start or position > start) and next_offset <= offset:
                return position
        raise Refused(
            f"{segment.named(names.LOG)}: offset {offset} is in the middle of a batch, and another segment begins "
            "there: the segments of these leaders do not fit together; read the broker's log dir alone"
        )


def _walk(reader: HeaderReader, next_offset: int, until: int) -> tuple[int, int]:
    """Return where the first batch at or above an offset begins, or the end, and the offset behind the batch before."""
    position = 0
    for chunk in reader:
        at = bisect.bisect_left(chunk.batches["base_offset"], until)
        if at:
            next_offset = int(chunk.batches["last_offset"][at - 1]) + 1
        if at < len(chunk.batches):
            return int(chunk.batches["position"][at]), next_offset
        position = chunk.position + chunk.length
    return position, next_offset


def _require_all(
    troubles: Iterable[_Trouble], chosen: list[Piece[Segment]], start: int | None, end: int | None, own: Path | None
) -> None:
    """Refuse if a segment that cannot be used may have records that nothing else has."""
    first = chosen[0].start if chosen else end
    last = chosen[-1].end if chosen else -1
    for each in troubles:
        base = each.base_offset
        is_below = first is not None and base < first and (start is not None or each.is_half_removed)
        is_above = end is not None and base >= end
        if not (each.is_unfinished or is_below or is_above or (first is not None and first <= base <= last)):
            raise Refused(_words_of(Gap(base, base), [each], own))


def _words_of(gap: Gap, troubles: Iterable[_Trouble], own: Path | None) -> str:
    """Say which offsets are missing, which objects might have had them, and what can be done."""
    named = "; ".join(f"{each.name}: {each.reason}" for each in list(troubles)[-3:])
    return (
        f"no usable moved segment has offset {gap.start}"
        + (f" to {gap.end}" if gap.end > gap.start else "")
        + (f" ({named})" if named else "")
        + "; put the objects back, "
        + (f"or read {own.parent} alone" if own is not None else "or `cleaner dump` what is there")
    )
