"""Cleaned logs with one thing wrong: a record dropped, revived, swapped or changed, an offset or a marker lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.reference.batches import Batch, Rec, Unbuildable, read_batches, read_records, rebuild

Files = dict[str, bytes]


@dataclass(frozen=True)
class Mutation:
    """What was done at which offset, and the `.log` files after it."""

    what: str
    offset: int
    files: Files


@dataclass(frozen=True)
class _Log:
    """A log taken apart: its files' batches."""

    batches: dict[str, list[Batch]]

    @staticmethod
    def of(files: Mapping[str, bytes]) -> _Log:
        return _Log({name: read_batches(data) for name, data in sorted(files.items()) if name.endswith(".log")})

    def places(self) -> Iterator[tuple[str, int, Batch]]:
        """Return each batch with its file and its number there."""
        for name, batches in self.batches.items():
            for number, batch in enumerate(batches):
                yield name, number, batch

    def replaced(self, name: str, number: int, new: bytes, count: int = 1) -> Files:
        """Return the files with other bytes in the place of some batches."""
        raws = [batch.raw for batch in self.batches[name]]
        raws[number : number + count] = [new]
        return {each: b"".join(b.raw for b in batches) for each, batches in self.batches.items()} | {
            name: b"".join(raws)
        }

    def holder_of(self, offset: int) -> str:
        """Return the file that an offset belongs to."""
        return max(name for name in self.batches if int(name[:20]) <= offset or name == min(self.batches))


class Mutator:
    """
    Makes mutations of a result.

    Args:
        before, after: the partition's files.
        visible_from: what lies below is gone or seen by nobody; it is left alone.
        randomness: chooses.
    """

    def __init__(
        self, before: Mapping[str, bytes], after: Mapping[str, bytes], visible_from: int, randomness: random.Random
    ) -> None:
        self._before, self._after = _Log.of(before), _Log.of(after)
        self._visible_from = visible_from
        self._random = randomness
        self._ways: list[Callable[[], Mutation | None]] = [
            self._drop,
            self._revive,
            self._swap,
            self._change,
            self._lose_offset,
            self._lose_marker,
        ]

    def mutate(self) -> Mutation | None:
        """Return a mutation of a random kind; None if the log has nothing for it, or no batch can be made of it."""
        try:
            return self._random.choice(self._ways)()
        except Unbuildable:
            return None

    def _pick(self, is_wanted: Callable[[Batch], bool]) -> tuple[str, int, Batch] | None:
        found = [at for at in self._after.places() if at[2].base_offset >= self._visible_from and is_wanted(at[2])]
        return self._random.choice(found) if found else None

    def _with_records(self, log: _Log, name: str, number: int, records: list[Rec]) -> Files:
        batch = log.batches[name][number]
        if not records:
            return log.replaced(name, number, b"")
        return log.replaced(name, number, rebuild(batch, records, _horizon(batch)))

    def _drop(self) -> Mutation | None:
        found = self._pick(lambda batch: bool(batch.count) and not batch.control)
        if found is None:
            return None
        name, number, batch = found
        records = read_records(batch)
        gone = self._random.choice(records)
        return Mutation("dropped", gone.offset, self._with_records(self._after, name, number, _but(records, gone)))

    def _lose_marker(self) -> Mutation | None:
        found = self._pick(lambda batch: batch.control)
        if found is None:
            return None
        name, number, batch = found
        return Mutation("marker lost", batch.base_offset, self._after.replaced(name, number, b""))

    def _swap(self) -> Mutation | None:
        found = self._pick(lambda batch: batch.count > 1 or batch.magic < 2)
        if found is None:
            return None
        name, number, batch = found
        records = read_records(batch)
        if len(records) < 2:
            return None
        one, other = self._random.sample(range(len(records)), 2)
        mine, theirs = records[one], records[other]
        if mine[2:] == theirs[2:]:
            return None
        records[one] = theirs._replace(offset=mine.offset, timestamp=mine.timestamp)
        records[other] = mine._replace(offset=theirs.offset, timestamp=theirs.timestamp)
        return Mutation("swapped", mine.offset, self._with_records(self._after, name, number, records))

    def _change(self) -> Mutation | None:
        found = self._pick(lambda batch: bool(batch.count))
        if found is None:
            return None
        name, number, batch = found
        records = read_records(batch)
        at = self._random.randrange(len(records))
        record = records[at]
        if record.value is not None and self._random.random() < 0.5:
            changed = record._replace(value=self._flipped(record.value))
        elif record.key is not None and self._random.random() < 0.5:
            changed = record._replace(key=self._flipped(record.key))
        else:
            changed = record._replace(headers=(*record.headers, (b"h", None)))
        records[at] = changed
        return Mutation("changed", record.offset, self._with_records(self._after, name, number, records))

    def _flipped(self, text: bytes) -> bytes:
        if not text:
            return b"x"
        at = self._random.randrange(len(text))
        return text[:at] + bytes([text[at] ^ (1 << self._random.randrange(8))]) + text[at + 1 :]

    def _lose_offset(self) -> Mutation | None:
        """Move a record to another offset of its batch."""
        found = self._pick(lambda batch: bool(batch.count) and batch.last_offset - batch.base_offset >= batch.count)
        if found is None:
            return None
        name, number, batch = found
        records = read_records(batch)
        taken = {record.offset for record in records}
        at = self._random.randrange(len(records))
        record = records[at]
        steps = [step for step in (-1, 1) if record.offset + step not in taken]
        steps = [step for step in steps if batch.base_offset <= record.offset + step <= batch.last_offset]
        if not steps:
            return None
        records[at] = record._replace(offset=record.offset + self._random.choice(steps))
        return Mutation("offset lost", record.offset, self._with_records(self._after, name, number, records))

    def _revive(self) -> Mutation | None:
        """Put a record back that is gone: into its batch, or with a batch of its own."""
        places = [(name, number, batch) for name, number, batch in self._after.places()]
        kept = {record.offset for _, _, batch in places for record in read_records(batch)}
        sources = [batch for _, _, batch in self._before.places() if batch.base_offset >= self._visible_from]
        candidates = [
            (batch, record) for batch in sources for record in read_records(batch) if record.offset not in kept
        ]
        if not candidates:
            return None
        source, record = self._random.choice(candidates)
        for name, number, batch in places:
            if batch.base_offset <= record.offset <= batch.last_offset:
                records = sorted([*read_records(batch), record], key=lambda one: one.offset)
                return Mutation("revived", record.offset, self._with_records(self._after, name, number, records))
        name = self._after.holder_of(record.offset)
        batches = self._after.batches[name]
        number = sum(batch.last_offset < source.base_offset for batch in batches)
        back = rebuild(source, [record], _horizon(source))
        return Mutation("revived", record.offset, self._after.replaced(name, number, back, count=0))


def _horizon(batch: Batch) -> int:
    return -1 if batch.delete_horizon is None else batch.delete_horizon


def _but(records: list[Rec], gone: Rec) -> list[Rec]:
    return [record for record in records if record is not gone]
