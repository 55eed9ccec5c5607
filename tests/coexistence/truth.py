"""
What a log has to hold, told by a journal that its writer keeps outside of the log dir.

The writer notes each thing it is about to do before it does it, a line of JSON each; killed in between, the journal
says more than the log. At its next opening it notes where the log really ends, and all noted beyond is forgotten.

    {"op": "append", "base": 7, "records": [["k1", "v9"], ["k2", null]], "producer": -1}
    {"op": "marker", "base": 9, "producer": 3, "commit": false}
    {"op": "flush", "end": 9}                        about to say that all below is replicated
    {"op": "cut", "to": 7}                           about to cut the log
    {"op": "start", "to": 5}                         about to delete all segments below
    {"op": "open", "end": 7}                         the log ends here
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cleaner.storage.segment.names import LOG, TEMPORARY_SUFFIXES
from tests.reference.batches import Rec, read_batches, read_records
from tests.support.batch_reader import without_room


class Entry(NamedTuple):
    """A record that was appended."""

    key: str
    value: str | None
    producer_id: int


@dataclass
class Truth:
    """
    One partition by its journal.

    Attributes:
        entries: records by offset.
        markers: offset -> producer and whether it committed.
        start: below it nothing has to be there.
        doubtful: keys that lost a replicated record to a cut, which may have been all there was: cleaning had removed
            what it superseded. They may be missing, unless there is a record of theirs from this offset on: such a
            one was written after the cut.
    """

    entries: dict[int, Entry] = field(default_factory=dict)
    markers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    start: int = 0
    doubtful: dict[str, int] = field(default_factory=dict)
    # What may have been cleaned by: a cut that was begun and not ended lowers the line, and leaves the records.
    _replicated: int = 0

    @staticmethod
    def of(journal: Path) -> dict[str, Truth]:
        """Read the journal of all partitions; a last line that was cut off is one whose deed was not begun."""
        found: dict[str, Truth] = {}
        for line in journal.read_text().split("\n")[:-1]:
            note = json.loads(line)
            found.setdefault(note["partition"], Truth()).take(note)
        return found

    def take(self, note: dict[str, Any]) -> None:
        """Take in a line."""
        match note["op"]:
            case "append":
                for offset, (key, value) in enumerate(note["records"], start=note["base"]):
                    self.entries[offset] = Entry(key, value, note["producer"])
            case "marker":
                self.markers[note["base"]] = (note["producer"], note["commit"])
            case "flush":
                self._replicated = max(self._replicated, note["end"])
            case "start":
                self.start = max(self.start, note["to"])
            case "open":
                self._end_at(note["end"])

    def _end_at(self, end: int) -> None:
        gone = [offset for offset in self.entries if offset >= end]
        self.doubtful |= {self.entries[offset].key: end for offset in gone if offset < self._replicated}
        self.doubtful = {key: min(offset, end) for key, offset in self.doubtful.items()}
        self._replicated = min(self._replicated, end)
        for offset in gone:
            del self.entries[offset]
        self.markers = {offset: marker for offset, marker in self.markers.items() if offset < end}

    def is_committed(self, offset: int) -> bool:
        """Tell whether a record counts: outside of transactions, or in one that was committed."""
        producer_id = self.entries[offset].producer_id
        if producer_id < 0:
            return True
        later = (at for at, (producer, _) in self.markers.items() if at > offset and producer == producer_id)
        marker = min(later, default=None)
        return marker is not None and self.markers[marker][1]

    def judge(self, directory: Path, checkpoint: int, *, head_from: int | None = None) -> None:
        """
        Compare with a log that was closed in order.

        Nothing is there that was not written; from the checkpoint on everything is; of each key the last value is; in
        the clean section no key comes twice; no temporary file is left.

        Args:
            directory: the partition's.
            checkpoint: where its dirty section begins.
            head_from: from where on everything has to be there, where a round was cut short before its checkpoint.
        """
        left = [path.name for path in directory.iterdir() if path.name.endswith(TEMPORARY_SUFFIXES)]
        assert not left, f"{directory.name}: temporary files are left: {left}"
        found = read_log(directory)
        for offset, record in found.items():
            assert offset < self.start or _as_entry(record) == self.entries[offset][:2], f"{directory.name}: {record}"
        begin = max(checkpoint if head_from is None else head_from, self.start)
        head = {offset for offset in self.entries if offset >= begin}
        assert head <= found.keys(), f"{directory.name}: {sorted(head - found.keys())} of the head are missing"
        clean = [record.key for offset, record in found.items() if offset < checkpoint]
        assert len(clean) == len(set(clean)), f"{directory.name}: a key twice below {checkpoint}: {sorted(clean)}"
        self._judge_last_values(directory.name, found)

    def _judge_last_values(self, name: str, found: dict[int, Rec]) -> None:
        committed = sorted(offset for offset in self.entries if offset >= self.start and self.is_committed(offset))
        last = {self.entries[offset].key: offset for offset in committed}
        shown = {
            _as_entry(record)[0]: offset
            for offset, record in sorted(found.items())
            if offset >= self.start and self.is_committed(offset)
        }
        for key, offset in last.items():
            if offset in found or offset < self.doubtful.get(key, 0):
                continue
            is_deleted = self.entries[offset].value is None and key not in shown
            assert is_deleted, f"{name}: {key} was last written at {offset}; the log has it at {shown.get(key)}"


def read_log(directory: Path) -> dict[int, Rec]:
    """Return a partition's records by offset, markers left out; AssertionError when offsets do not ascend."""
    found: dict[int, Rec] = {}
    last_offset = -1
    for path in sorted(directory.glob(f"*{LOG}")):
        for batch in read_batches(without_room(path.read_bytes())):
            assert batch.base_offset > last_offset, f"{path}: offset {batch.base_offset} after {last_offset}"
            last_offset = batch.last_offset
            if not batch.control:
                found.update((record.offset, record) for record in read_records(batch))
    return found


def _as_entry(record: Rec) -> tuple[str, str | None]:
    assert record.key is not None
    return record.key.decode(), None if record.value is None else record.value.decode()


def as_line(partition: str, op: str, **note: object) -> bytes:
    """Return a line of the journal."""
    return (json.dumps({"partition": partition, "op": op, **note}) + "\n").encode()


def keys(numbers: Iterable[int]) -> list[str]:
    """Name keys."""
    return [f"k{number}" for number in numbers]
