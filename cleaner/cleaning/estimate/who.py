"""
Says whose bytes a log holds: keys, their prefixes, producers, ages; and what a round would do with them.

A small log is read whole, and the last record of each key is found as readers find it (`read/latest.py`). Of a large
one drawn cells are read, twice: for the keys, which give each record its chance to stay (`key_sample.py`), then for the
bytes. A batch's bytes are divided among its records by their length from key to key, unpacked, so that all sums add up
to the bytes of the files.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from cleaner.cleaning.estimate.cells import Cell, CellBlock, Cells
from cleaner.cleaning.estimate.entries import (
    LABELS,
    LOST,
    UNREADABLE_LABEL,
    Entries,
    age_name,
    entries_of,
    grouped,
    producer_name,
)
from cleaner.cleaning.estimate.key_sample import GROUPS, KeySample
from cleaner.cleaning.estimate.shares import (
    CLEAN,
    DIRTY,
    KINDS,
    REST,
    SECTIONS,
    VALUES,
    Design,
    Kind,
    Row,
    Tally,
)
from cleaner.cleaning.estimate.unseen_keys import Counts, Floats
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.errors import CorruptBatchError
from cleaner.format.chunks import control_batches
from cleaner.format.key_digests import Words, new_secret
from cleaner.format.layout import cut_out
from cleaner.policy.key_prefixes import prefixes_of
from cleaner.policy.survivor_rule import LATEST_OFFSET, SurvivorRule
from cleaner.read.latest import Digest, LatestByKey, keys_within
from cleaner.storage.segment.segment import Segment

OTHER = b"(other)"
KEY, PREFIX, PRODUCER, AGE = "key", "prefix", "producer", "age"
_ALL = 1 << 62
_MOST_KEY_BYTES = 512
_MAP_BYTES = 256 << 20
_FIRST_KEYS = 1 << 12
_LEAST_PART = 8  # of a sample: what a section gets at least, if it has as much
_MAX_DAMAGE = 100

Result = TypeVar("Result")
Namer = Callable[[bytes], Mapping[str, bytes]]
"""Returns the names of a key (of which only the first 512 bytes may be known) by what they are names of."""


class DamagedCell(NamedTuple):
    """Damage in a cell that was read: file, byte position, and why."""

    path: str
    position: int
    reason: str


@dataclass(frozen=True, eq=False)
class Whose:
    """
    What a log holds.

    Attributes:
        total: of all.
        names: the rows of each kind of name: KEY, PREFIX or those of the namer, PRODUCER, AGE. Keys and prefixes that
            are too small to be counted one by one are in `OTHER`, and prefixes contain each other.
        sampled_bytes, bytes: read, and there.
        is_exact: all was read, or nothing but damage was not.
        damage: what could not be read of the cells drawn, at most a hundred.
    """

    total: Row
    names: Mapping[str, list[tuple[bytes, Row]]]
    sampled_bytes: int
    bytes: int
    is_exact: bool
    damage: tuple[DamagedCell, ...] = ()


@dataclass(frozen=True)
class WhoTarget:
    """
    A log to be read.

    Attributes:
        segments: all, in order.
        first_dirty_offset, first_uncleanable_offset: the cleanable range.
        is_compacted: else nothing is ever superseded.
        limit_bytes: most bytes a batch may unpack to.
        now_ms: the moment from which ages are counted.
        rule: which record of a key stays.
        expiry: which records become tombstones for their age; None: none does.
        namer: names keys; None: by prefixes.
        named_by: what the namer's names are names of.
    """

    segments: Sequence[Segment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    is_compacted: bool
    limit_bytes: int
    now_ms: int
    rule: SurvivorRule = LATEST_OFFSET
    expiry: Expiry | None = None
    namer: Namer | None = None
    named_by: tuple[str, ...] = (PREFIX,)


def whose_bytes(
    target: WhoTarget, sample_bytes: int, check_done: Callable[[], None], progress: Callable[[int, int], None]
) -> Whose:
    """
    Read a log or a sample of it.

    Args:
        target: the log.
        sample_bytes: how much to read; a log that is not larger is read whole.
        check_done: called before each cell; raises to stop.
        progress: called with bytes done and in all.
    Raises:
        CorruptIndexError: a damaged transaction index.
        FileNotFoundError: a segment is gone.
    """
    if not sum(segment.size for segment in target.segments):
        return Whose(Row(np.zeros(VALUES), 0, np.zeros(2)), {}, 0, 0, is_exact=True)
    cells = Cells(target.segments, target.limit_bytes, target.now_ms, sample_bytes, numbers=target.rule.numbers)
    with closing(cells):
        return _Reading(target, cells, sample_bytes, check_done, progress).read()


class _Reading:
    """One log that is read."""

    def __init__(
        self,
        target: WhoTarget,
        cells: Cells,
        sample_bytes: int,
        check_done: Callable[[], None],
        progress: Callable[[int, int], None],
    ) -> None:
        self._target, self._cells = target, cells
        self._check_done, self._progress = check_done, progress
        bases = np.array([segment.base_offset for segment in target.segments])
        self._rest = int((bases < target.first_uncleanable_offset).sum()) if target.is_compacted else 0
        self._first_dirty = min(self._rest, max(0, int((bases <= target.first_dirty_offset).sum()) - 1))
        edges = [0, self._first_dirty, self._rest, len(bases)]
        self._edges = edges
        self._section_bytes: Counts = np.diff(cells.before[edges])
        self._is_whole = sample_bytes >= cells.total_bytes
        self._sample_bytes = sample_bytes
        self._damage: dict[tuple[str, int], DamagedCell] = {}
        self._secret = new_secret()
        self._latest: LatestByKey | None = None
        self._sample: KeySample | None = None

    def read(self) -> Whose:
        """Draw, judge and add up."""
        drawn = self._draw()
        section = np.array([self._section_of(cell) for cell in drawn])
        sizes = np.array([cell.end - cell.start for cell in drawn])
        group = np.random.default_rng(1).permutation(len(drawn)) % GROUPS
        staying, chance_doubt = np.ones((len(SECTIONS), GROUPS)), np.zeros(len(SECTIONS))
        if self._is_whole and self._rest:
            self._latest = LatestByKey(
                lambda digest: self._digests([cell for cell in drawn if cell.segment < self._rest], digest),
                self._target.segments[0].base_offset,
                self._target.first_uncleanable_offset,
                _FIRST_KEYS,
                keys_within(_MAP_BYTES),
                self._target.rule,
            )
        elif (section != REST).any():
            ranged = section != REST
            self._sample = sample = self._sampled([cell for cell in drawn if cell.segment < self._rest], sizes[ranged])
            group[ranged] = sample.groups
            staying[:REST] = (sample.without / np.maximum(1e-9, sample.staying)).T
            chance_doubt[:REST] = sample.chance_doubt
        self._design = design = Design.of(self._section_bytes, section, group, sizes, staying, chance_doubt)
        self._total = np.zeros((1, design.columns))
        self._keys, self._producers, self._ages = (Tally(design.columns) for _ in range(3))
        self._named: dict[str, Tally] = {}
        done = 0
        for cell, its_section, its_group in zip(drawn, section.tolist(), group.tolist(), strict=True):
            self._check_done()
            self._progress(done, int(sizes.sum()))
            self._add_cell(cell, its_section, its_group)
            done += cell.end - cell.start
        self._latest = None  # it refers to this object
        return self._found(int(sizes.sum()))

    def _draw(self) -> list[Cell]:
        """Draw cells of all sections."""
        cells, total = self._cells, self._cells.total_bytes
        # The same log gets the same sample again.
        chance = random.Random(total)  # noqa: S311 - no secret
        drawn: list[Cell] = []
        for section in SECTIONS:
            first, end = self._edges[section : section + 2]
            size = int(self._section_bytes[section])
            if size:
                least = min(size, self._sample_bytes // _LEAST_PART)
                wanted = _ALL if self._is_whole else max(least, self._sample_bytes * size // total)
                drawn += cells.draw(first, end, wanted, chance)
        return drawn

    def _section_of(self, cell: Cell) -> int:
        if cell.segment >= self._rest:
            return REST
        return DIRTY if cell.segment >= self._first_dirty else CLEAN

    def _sampled(self, drawn: list[Cell], sizes: Counts) -> KeySample:
        """Read the keys of the drawn cells of the range."""
        clean_bytes, dirty_bytes, _ = self._section_bytes.tolist()
        is_dirty = np.array([cell.segment >= self._first_dirty for cell in drawn])
        place = np.clip((np.array([cell.before for cell in drawn]) - clean_bytes) / max(1, dirty_bytes), 0, 1)
        sample = KeySample(is_dirty, place, sizes, self._section_bytes[:REST])
        self._secret = sample.secret
        for number, cell in enumerate(drawn):
            self._check_done()
            for rows in self._each(cell, lambda part: self._cells.digest(part, sample.secret), again=True):
                sample.add(number, *rows)
        sample.judge()
        return sample

    def _digests(self, drawn: list[Cell], digest: Digest) -> Iterator[Words]:
        """Digest the records of cells, as far as they can be read."""

        def rows(part: CellBlock) -> Words:
            path, block, gone = part
            return digest(path, block, gone | control_batches(block.batches))

        for cell in drawn:
            self._check_done()
            yield from self._each(cell, rows, again=True)

    def _each(self, cell: Cell, read: Callable[[CellBlock], Result], *, again: bool = False) -> Iterator[Result]:
        """Read the blocks of a cell up to damage, which is noted; `again`: the cell will be read once more."""
        try:
            for part in self._cells.blocks(cell, leaves_cache=again):
                yield read(part)
        except CorruptBatchError as error:
            if len(self._damage) < _MAX_DAMAGE:
                where = str(error.path), error.position
                self._damage[where] = DamagedCell(*where, error.reason)

    def _add_cell(self, cell: Cell, section: int, group: int) -> None:
        """Add what a cell holds to all tallies."""
        read = 0
        for entries in self._each(cell, lambda part: self._judged(part, section)):
            read += int(entries.sums[:, :KINDS].sum())
            self._add(entries, section, group)
        if read < cell.end - cell.start:
            lost = np.zeros((1, VALUES))
            lost[0, Kind.UNREADABLE] = cell.end - cell.start - read
            row = self._design.spread(lost, section, group)
            self._total += row
            for tally, name in ((self._producers, producer_name), (self._ages, age_name)):
                self._put(tally, np.array([LOST]), row, name)
            self._put_keys(np.array([UNREADABLE_LABEL], np.uint64), row, None)

    def _add(self, entries: Entries, section: int, group: int) -> None:
        design = self._design
        for tally, labels, name in (
            (self._producers, entries.producers, producer_name),
            (self._ages, entries.ages, age_name),
        ):
            found, sums = grouped(labels, entries.sums)
            self._put(tally, found, design.spread(sums, section, group), name)
        keys, sums = grouped(entries.keys, entries.sums)
        self._put_keys(keys, design.spread(sums, section, group), entries)
        self._total += design.spread(entries.sums.sum(axis=0, keepdims=True), section, group)

    @staticmethod
    def _put(tally: Tally, labels: Counts, rows: Floats, name: Callable[[int], bytes]) -> None:
        known = labels.tolist()
        for place in tally.unknown(known):
            tally.name(known[place], name(known[place]))
        tally.add(known, rows)
        if tally.is_full:
            tally.halve()

    def _put_keys(self, labels: Words, rows: Floats, entries: Entries | None) -> None:
        """Add rows of keys, by digest; names of new ones are cut out of the entries."""
        known = labels.tolist()
        new = self._keys.unknown(known)
        digests = [place for place in new if known[place] not in LABELS]
        names: dict[int, bytes | None] = {}
        if digests and entries is not None:
            layout = entries.layout
            of_records = entries.keys[: len(layout)]
            order = np.argsort(of_records, kind="stable")
            first = order[np.searchsorted(of_records, labels[digests], sorter=order)]
            sizes = np.minimum(layout.key_sizes[first], _MOST_KEY_BYTES)
            names = dict(zip(digests, cut_out(layout.data, layout.key_starts[first], sizes), strict=True))
        for place in new:
            self._keys.name(known[place], names.get(place) or LABELS.get(known[place], b""))
        self._keys.add(known, rows)
        if self._keys.is_full:
            self._flush(*self._keys.halve())

    def _flush(self, names: list[bytes], rows: Floats) -> None:
        """Add rows of keys to what else the keys have: prefixes, or the namer's names."""
        target, special = self._target, frozenset(LABELS.values())
        found: dict[str, tuple[list[bytes], list[int]]] = {by: ([], []) for by in target.named_by}
        for row, key in enumerate(names):
            if key in special:
                given = [(by, key) for by in target.named_by]
            elif target.namer is None:
                given = [(PREFIX, prefix) for prefix in prefixes_of(key)]
            else:
                given = [(by, name) for by, name in target.namer(key).items() if by in found]
            for by, name in given:
                labels, places = found[by]
                labels.append(name)
                places.append(row)
        for by, (labels, places) in found.items():
            tally = self._named.setdefault(by, Tally(self._design.columns))
            for place in tally.unknown(labels):
                tally.name(labels[place], labels[place])
            tally.add(labels, rows[places])
            while tally.is_full:
                tally.halve()

    def _found(self, sampled_bytes: int) -> Whose:
        self._flush(self._keys.names, self._keys.rows)
        tallies = {KEY: self._keys, PRODUCER: self._producers, AGE: self._ages, **self._named}
        names: dict[str, list[tuple[bytes, Row]]] = {}
        for by, tally in tallies.items():
            rows = self._design.read(np.concatenate([tally.rows, tally.other[None]]))
            names[by] = [pair for pair in zip([*tally.names, OTHER], rows, strict=True) if pair[1].values.any()]
        (total,) = self._design.read(self._total)
        return Whose(
            total,
            names,
            sampled_bytes,
            self._cells.total_bytes,
            is_exact=self._design.is_exact,
            damage=tuple(self._damage.values()),
        )

    def _judged(self, part: CellBlock, section: int) -> Entries:
        """Judge the records of a block."""
        digests, offsets, _ = self._cells.digest(part, self._secret)
        if section == REST:
            kind = Kind.WAITING if self._target.is_compacted else Kind.LIVE
            return entries_of(part, digests, None, kind, self._target.now_ms)
        stays: Floats = np.zeros(len(digests))
        if self._latest is not None:
            stays = self._latest.has(offsets.astype(np.int64) - 1).astype(np.float64)
        elif self._sample is not None:
            stays = self._sample.chances(digests, offsets, section == DIRTY)
        return entries_of(part, digests, stays, Kind.LIVE, self._target.now_ms, self._target.expiry)
