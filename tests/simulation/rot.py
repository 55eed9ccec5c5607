"""
Bit rot: files at rest change on the disk, and what may follow from it.

A bit flips or a sector becomes zeros in a closed segment, an index, a snapshot, the leader epochs or a checkpoint. In a
`.log` only bytes are hit that a checksum covers, or whole sectors: nobody can notice another base offset in a batch.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

from tests.reference.batches import Batch, read_batches
from tests.simulation.disk import Disk
from tests.support.codecs import crc32c
from tests.support.power_cut import SECTOR

_CRC_AT, _COVERED_FROM, _LEAST_BYTES = 17, 21, 61
EPOCHS, _CHECKPOINT = "leader-epoch-checkpoint", "-offset-checkpoint"
_KINDS = (*(".log",) * 6, ".index", ".timeindex", ".txnindex", ".snapshot", EPOCHS, _CHECKPOINT)


@dataclass(frozen=True)
class Rot:
    """
    Damage to one file.

    Attributes:
        first, last: offsets of the records of which nobody can say any more what they were; last < first: none.
        whole: the damaged file; None for a `.log`, of which recovery may cut off the rest.
        number: higher for later ones, whatever partition they belong to.
    """

    path: Path
    position: int
    before: bytes
    after: bytes
    first: int = 0
    last: int = -1
    whole: bytes | None = None
    number: int = field(default_factory=itertools.count().__next__)


class Rots:
    """
    The damage to one partition, since it was last repaired by its operator.

    Args:
        checkpoints: names of the checkpoints that were ever damaged, which all partitions of the log dir have.
    Attributes:
        last_ever_hit: the last offset that was ever damaged, also if that was repaired or cut off since; -1: none was.
    """

    def __init__(self, checkpoints: set[str]) -> None:
        self._checkpoints = checkpoints
        self._files: set[str] = set()
        self._rots: list[Rot] = []
        self.last_ever_hit = -1
        self._cut: list[Rot] = []  # recovery has cut the segment there, and kept later ones
        self._just_cut: list[Rot] = []  # or removed them; which of the two, the judge has not seen yet

    def copy(self) -> Rots:
        """Return an independent copy."""
        other = Rots(set(self._checkpoints))
        other._files, other._rots, other._cut = set(self._files), list(self._rots), list(self._cut)
        other._just_cut = list(self._just_cut)
        other.last_ever_hit = self.last_ever_hit
        return other

    @property
    def names(self) -> set[str]:
        """The files that were ever damaged."""
        return self._files | self._checkpoints

    def has_hit(self, suffix: str) -> bool:
        """Tell whether a file with this end of its name was ever damaged."""
        return any(name.endswith(suffix) for name in self.names)

    def is_lost(self, offset: int) -> bool:
        """Tell whether a record at an offset was damaged."""
        return any(rot.first <= offset <= rot.last for rot in (*self._rots, *self._just_cut, *self._cut))

    def first_lost(self, start: int = 0) -> int:
        """Return where the first damage from an offset on begins; a huge number if there is none."""
        lost = (*self._rots, *self._just_cut)
        return min((rot.first for rot in lost if start <= rot.first <= rot.last), default=1 << 62)

    def last_lost(self) -> int:
        """Return the last damaged offset."""
        return max((rot.last for rot in self._rots if rot.first <= rot.last), default=-1)

    def cut(self, end: int) -> None:
        """Note that the log ends here now: recovery has cut the damage off."""
        self._rots = [rot for rot in self._rots if rot.last < rot.first or rot.first < end]
        self._cut += [rot for rot in self._just_cut if rot.first < end]
        self._just_cut.clear()

    def damaged_bytes(self, directory: Path) -> int:
        """Return how many bytes of the damaged segments are not in a sound batch."""
        contents = [path.read_bytes() for path in directory.glob("*.log") if path.name in self._files]
        return sum(len(data) - sum(len(batch.raw) for batch in sound_batches(data)) for data in contents)

    def strike(self, disk: Disk, directory: Path, number: int) -> None:
        """Damage a file, if there is one of the kind that the number draws."""
        rng = Random(number)
        kind = rng.choice(_KINDS)
        logs = sorted(directory.glob("*.log"))
        if kind == _CHECKPOINT:
            files = sorted(directory.parent.glob(f"*{kind}"))
        elif kind in (".snapshot", EPOCHS):
            files = sorted(directory.glob(f"*{kind}"))
        else:
            files = [path for log in logs[:-1] for path in [log.with_suffix(kind)] if path.exists()]
        files = [path for path in files if path.stat().st_size]
        if not files:
            return
        path = rng.choice(files[-2:])  # records of the latest segments are the least likely to be superseded
        data = path.read_bytes()
        batches = list(sound_batches(data)) if kind == ".log" else []
        if kind == ".log" and not batches:
            return
        position, after = _damage(data, rng, batches)
        before = data[position : position + len(after)]
        if before == after:
            return
        # A batch of which a sector only takes zeros that it has already is sound.
        same = next(at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)
        position, before, after = position + same, before[same:], after[same:]
        first, last = 0, -1
        whole: bytes | None = data[:position] + after + data[position + len(after) :]
        if kind == ".log":
            whole = None
            # A reader that loses its way finds it again in the next segment.
            hit = (each.base_offset for each in batches if each.position + len(each.raw) > position)
            first = next(hit, batches[-1].base_offset)
            last = int(logs[logs.index(path) + 1].stem) - 1
            self.last_ever_hit = max(self.last_ever_hit, last)
        (self._checkpoints if kind == _CHECKPOINT else self._files).add(path.name)
        self._rots.append(Rot(path, position, before, after, first, last, whole))
        disk.rot(path, position, after)

    @property
    def damage(self) -> list[Rot]:
        """What was not repaired yet."""
        return list(self._rots)

    def repair(self, disk: Disk, rot: Rot, *, is_there: bool) -> None:
        """
        Have the operator put back what was there, from a copy, in a file that still has its damage; later damage first.

        Args:
            disk: the machine's.
            rot: of this partition.
            is_there: the partition is; else only the checkpoints of its log dir are.
        """
        self._rots.remove(rot)
        if not is_there and not rot.path.name.endswith(_CHECKPOINT):
            return
        data = rot.path.read_bytes() if rot.path.exists() else b""
        if rot.whole is not None and rot.whole != data:
            if rot.path.name.endswith(_CHECKPOINT):
                _repair_lines(disk, rot, rot.whole, data)
            return  # it was written anew
        if data[rot.position : rot.position + len(rot.after)] == rot.after:
            disk.rot(rot.path, rot.position, rot.before)
        else:
            self._just_cut.append(rot)


def _repair_lines(disk: Disk, rot: Rot, whole: bytes, data: bytes) -> None:
    """Put back damaged lines of a checkpoint that was written since: that of a log that cannot be opened is kept."""
    sound = whole[: rot.position] + rot.before + whole[rot.position + len(rot.after) :]
    for wrong, right in zip(whole.splitlines(True), sound.splitlines(True), strict=False):
        at = data.find(b"\n" + wrong)
        if len(wrong) == len(right) and at >= 0:
            disk.rot(rot.path, at + 1, right)


def _damage(data: bytes, rng: Random, batches: list[Batch]) -> tuple[int, bytes]:
    """Draw where, and what is there afterwards."""
    if rng.random() < 0.25:
        start = rng.randrange(len(data)) // SECTOR * SECTOR
        return start, bytes(len(data[start : start + SECTOR]))
    if batches:
        # Most often one of several records: if some of them go, a round builds it anew, with a checksum that is right.
        (batch,) = rng.choices(batches, [1 + each.count**2 for each in batches])
        first = _CRC_AT if batch.count == 0 or rng.random() < 0.2 else _LEAST_BYTES
        at = batch.position + rng.randrange(first, len(batch.raw))
    else:
        at = rng.randrange(len(data))
    return at, bytes([data[at] ^ (1 << rng.randrange(8))])


def sound_batches(data: bytes) -> Iterator[Batch]:
    """Yield the batches of a damaged segment whose checksums are right, up to where their lengths end to make sense."""
    position = 0
    while len(data) - position >= _LEAST_BYTES:
        size = int(struct.unpack_from(">i", data, position + 8)[0]) + 12
        raw = data[position : position + size]
        if size < _LEAST_BYTES or len(raw) < size:
            return
        if raw[16] == 2 and struct.unpack_from(">I", raw, _CRC_AT)[0] == crc32c(raw[_COVERED_FROM:]):
            yield from (replace(batch, position=position) for batch in read_batches(raw))
        position += size
