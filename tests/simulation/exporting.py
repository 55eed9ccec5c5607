"""
A topic that is written, cleaned and exported by turns, between two lives; judged by a book of its own.

The book has value and offset of each key that was committed. After each export its table is the book, and its changes
lead from the export that it names to this one. The export may be killed, or the power cut, in its middle: what is there
then is the export before, or the new one, whole. Then it is given again.
"""

from __future__ import annotations

import contextlib
from random import Random

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import Refusal
from cleaner.base.model import TopicPartition
from cleaner.exporting.topic import ExportOptions, export_topic
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from cleaner.settings.sources import Sources
from tests.reference.table import Row, Table, changes
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong
from tests.simulation.plan import KEYS, Rest
from tests.support.tables import changes_in, manifest_of, table_in

_TOPIC = "exported"
EXPORTS = 3
Book = dict[bytes, tuple[bytes, int]]


class Exporting:
    """
    The topic of one rest, and its book.

    Args:
        bench: what all share.
        rest: its number says what is written, and how it is exported.
    """

    def __init__(self, bench: Bench, rest: Rest) -> None:
        self._bench = bench
        self._rng = Random(rest.number)
        self._path = bench.new_directory("exporting")
        self._target = bench.new_directory("export")
        self._form = self._rng.choice(("jsonl", "jsonl", "parquet"))
        self._settings = {**bench.settings, "cleanup.policy": "compact"}
        self._book: Book = {}
        self._exported: dict[int, Book] = {0: {}}  # by the number of the export

    def write(self, fs: SimFiles) -> None:
        """Append some records, in transactions and without, and clean some."""
        rng, bench = self._rng, self._bench
        with LogManager(self._path, self._settings, create=True, cleaner=False, clock=bench.clock, fs=fs) as manager:
            if _TOPIC not in manager.topics():
                manager.create_topic(_TOPIC, 1)
            log = manager.log(_TOPIC)
            producer = log.producer("service")
            for _ in range(rng.randrange(1, 12)):
                records = [self._record() for _ in range(rng.randrange(1, 4))]
                kind = rng.choice(("append", "append", "commit", "abort", "roll"))
                if kind == "roll":
                    log.roll()
                    continue
                if kind == "append":
                    base_offset = log.append(records).base_offset
                else:
                    producer.begin()
                    base_offset = producer.append(records).base_offset
                    producer.commit() if kind == "commit" else producer.abort()
                if kind != "abort":
                    self._note(records, base_offset)
            log.roll()
        for _ in range(rng.choice((0, 1, 2))):
            self._clean(fs)
            bench.clock.sleep(6)  # delete.retention.ms is 0 or 5 seconds

    def _record(self) -> Record:
        key = self._rng.choice(KEYS).encode()
        return Record(key, None if self._rng.random() < 0.3 else b"%d" % self._rng.randrange(1000))

    def _note(self, records: list[Record], base_offset: int) -> None:
        for offset, record in enumerate(records, base_offset):
            self._book.pop(record.key or b"", None)
            if record.value is not None:
                self._book[record.key or b""] = record.value, offset

    def _clean(self, fs: SimFiles) -> None:
        context = CallContext(fs=fs, clock=self._bench.clock)
        partition = str(TopicPartition(_TOPIC, 0))
        outcomes = clean_log_dir(self._path, [partition], Sources(config=self._settings), CleanOptions(), context)
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, Refusal):
                    raise outcome.error

    def command(self, fs: SimFiles) -> None:
        """Give the command."""
        self.judge(is_done=False)
        context = CallContext(fs=fs, clock=self._bench.clock)
        export_topic(self._path, _TOPIC, self._target, ExportOptions(self._form, changes=True), context)

    def judge(self, *, is_done: bool) -> None:
        """
        Judge what is there.

        Args:
            is_done: the export has come to its end; else it may have been broken off.
        Raises:
            Wrong: it is not a whole export, or not that of the book.
        """
        if not (self._target / "manifest.json").exists():
            if is_done or len(self._exported) > 1:
                raise Wrong("export: there is no manifest")
            return
        try:
            about = manifest_of(self._target, is_alone=is_done)
            table, (upserts, deletes) = table_in(self._target), changes_in(self._target)
        except (AssertionError, OSError, ValueError) as error:
            raise Wrong(f"export: what the manifest names is not whole: {error}") from error
        number, since = about["number"], about["since"] or 0
        book = self._exported.setdefault(number, dict(self._book))
        if is_done and book != self._book:
            raise Wrong(f"export: number {number} is of an earlier state")
        if _plain(table) != book:
            raise Wrong(f"export: the table is {_plain(table)}, the book {book}")
        wanted, gone = changes(_rows(self._exported[since]), _rows(book))
        if (_plain(upserts), deletes) != (_plain(wanted), gone):
            raise Wrong(
                f"export: from {since} to {number} {_plain(upserts)}, {deletes}; wanted {_plain(wanted)}, {gone}"
            )


def _plain(table: Table) -> Book:
    return {key: (row.value, row.offset) for key, row in table.items()}


def _rows(book: Book) -> Table:
    return {key: Row(value, offset, None, ()) for key, (value, offset) in book.items()}
