"""
A service with a table between two lives: it appends, cuts, rolls, cleans, and looks keys up.

Its log dir is its own. Each life ends by an accident or in order, with the table closed or not; between some of them a
round cleans. Half of the services gather what they put into the index, as tables of many records do. What a key must be
is in the service's own book: what it appended, at which offset, and which of it was in transactions, none of which is
ever committed. What lies above the log's end after an accident was lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from unittest import mock

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.errors import CleanerError
from cleaner.log import table_index, unpacked_batches
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from cleaner.log.record import Record
from cleaner.log.table import Table
from cleaner.settings.sources import Sources
from cleaner.state import table_runs
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong
from tests.simulation.plan import Rest
from tests.simulation.processes import Process

_TOPIC = "state"
_KEYS = tuple(b"key-%d" % number for number in range(12))
_UNCOMMITTED = b"never committed"
_LIVES = 5
_MOST_CHANGES = 90
_STEPS = 16


class Lookups:
    """
    The service of one rest, and its book.

    Args:
        bench: what all share.
        rest: its number says what the service does, and which accidents come.
    """

    def __init__(self, bench: Bench, rest: Rest) -> None:
        self._bench = bench
        self._rng = Random(rest.number)
        self._gathers = Random(f"{rest.number}/gathers").random() < 0.5
        self._path = bench.new_directory("lookups")
        # The book: offset to key and value, without what is in transactions; the number of the last value.
        self._sent: dict[int, tuple[bytes, bytes | None]] = {}
        self._durable_end = self._cleaned_to = self._number = 0
        self._has_cleaned = False
        self._was_closed = True
        self._batches: dict[int, int] = {}  # base offset to the offset behind the last record
        self._doubtful_from: int | None = None  # an append or a cut began there, and it is not known whether it ended
        self._read_back = range(0)  # offsets whose records were read from the log: their batches are not known

    def run(
        self,
        begin: Callable[[str], tuple[Process, SimFiles]],
        run_process: Callable[[Process, Callable[[], None]], None],
        cut: Callable[[], None],
        restore: Callable[[], bool],
    ) -> None:
        """Live some lives; see `OperatorsHand` for what is given."""
        bench, rng = self._bench, self._rng
        for _ in range(_LIVES):
            process, fs = begin("lookups")
            happen = rng.choice((cut, partial(bench.world.kill, process), None, None))
            if happen is not None:
                process.accidents.append((rng.randrange(_MOST_CHANGES), happen))
            with self._gathering():
                run_process(process, partial(self._live, fs, process))
            if bench.world.scheduler.errors:
                return
            restore()
        bench.count("table")

    @contextlib.contextmanager
    def _gathering(self) -> Iterator[None]:
        """In a service that gathers, have a table do so with all that it puts into its index, and keep few batches."""
        if not self._gathers:
            yield
            return
        with (
            mock.patch.object(table_index, "MANY_OFFSETS", 1),
            mock.patch.object(table_runs, "RUN_ENTRIES", 3),
            mock.patch.object(unpacked_batches, "ROOM_BYTES", 4096),
            mock.patch.object(unpacked_batches, "SHELVES", 8),
        ):
            yield

    def _live(self, fs: SimFiles, process: Process) -> None:
        bench = self._bench
        calm = bench.calm()
        try:
            settings = bench.settings | {"cleanup.policy": "compact", "delete.retention.ms": "0"}
            manager = LogManager(self._path, settings, create=True, cleaner=False, clock=bench.clock, fs=fs)
            if _TOPIC not in manager.topics():
                manager.create_topic(_TOPIC, 1)
            log = manager.log(_TOPIC)
            if self._has_cleaned:  # up to where the log ended then; as it closed, it may have aborted a transaction
                self._cleaned_to, self._has_cleaned = log.log_end_offset, False
            if log.log_end_offset < self._durable_end:
                raise Wrong(f"the log ends at {log.log_end_offset}, durable was {self._durable_end}")
            if not self._was_closed:
                # Where records were lost, the marker of a transaction that was open may be.
                doubtful = self._durable_end if self._doubtful_from is None else self._doubtful_from
                self._doubtful_from = min(doubtful, self._durable_end)
            self._was_closed = False
            self._forget_from(log.log_end_offset)
            self._settle_doubts(log, log.log_end_offset)
            self._serve(log)
            end = log.log_end_offset
            manager.close()
            process.closed_in_order = self._was_closed = True
            if self._rng.random() < 0.6:
                self._durable_end, self._has_cleaned = end, True
                self._clean(fs)
        except (CleanerError, OSError) as error:
            bench.count(f"table: {type(error).__name__}")
            if bench.is_calm_since(calm):
                raise

    def _clean(self, fs: SimFiles) -> None:
        context = CallContext(fs=fs, clock=self._bench.clock)
        sources = Sources(config=self._bench.settings)
        with contextlib.closing(clean_log_dir(self._path, [f"{_TOPIC}-0"], sources, CleanOptions(), context)) as all_of:
            for outcome in all_of:
                error = getattr(outcome, "error", None)
                if isinstance(error, CleanerError):
                    raise error

    def _serve(self, log: Log) -> None:
        rng, table = self._rng, log.table()
        try:
            self._judge(log, table)
            for _ in range(rng.randrange(2, _STEPS)):
                match rng.choice("aaaaatrcoj"):
                    case "a":
                        self._append(log)
                    case "t":
                        self._abort(log)
                    case "r":
                        log.roll()
                    case "c":
                        self._cut(log)
                    case "o":
                        table.close()
                        if rng.random() < 0.5:  # the log is another one when the index is opened again
                            self._cut(log)
                            for _ in range(2):
                                self._append(log)
                            log.flush()
                        table = log.table()
                    case _:
                        pass
                if rng.random() < 0.7:
                    self._judge(log, table)
            if log.log_end_offset:
                log.roll()
        finally:
            # A table that is not closed leaves an index of which nothing is known.
            if rng.random() < 0.7:
                table.close()
            else:
                table._index.close()

    def _append(self, log: Log) -> None:
        rng, at = self._rng, log.log_end_offset
        pairs: list[tuple[bytes, bytes | None]] = []
        for _ in range(rng.randrange(1, 6)):
            self._number += 1
            value = None if rng.random() < 0.2 else b"value-%d" % self._number
            pairs.append((rng.choice(_KEYS), value))
        self._sent.update(enumerate(pairs, at))
        self._doubtful_from = at
        first = log.append([Record(*pair) for pair in pairs]).base_offset
        if first != at:  # a marker of a transaction that took too long came between
            self._forget_from(at)
            self._sent.update(enumerate(pairs, first))
        self._batches[first] = first + len(pairs)
        self._read_back = range(self._read_back.start, min(first, self._read_back.stop))
        self._doubtful_from = None
        if rng.random() < 0.5:
            self._durable_end = max(self._durable_end, log.flush())

    def _abort(self, log: Log) -> None:
        """Append in a transaction that is aborted, or that the end of this life leaves open."""
        producer = log.producer("lookups")
        producer.begin()
        producer.append([Record(self._rng.choice(_KEYS), _UNCOMMITTED)])
        self._durable_end = max(self._durable_end, log.flush())
        if self._rng.random() < 0.9:
            producer.abort()

    def _cut(self, log: Log) -> None:
        end = log.log_end_offset
        if log.last_stable_offset < log.high_watermark or end <= self._cleaned_to:
            return  # not below an open transaction, nor where a round has removed what would count again
        offset = self._rng.randrange(max(self._cleaned_to, end - 6), end + 1)
        # A batch goes whole, and while this is under way any of it may be there.
        self._durable_end = min(self._durable_end, max(self._cleaned_to, offset - 6))
        # Where a transaction is open again, its marker takes the place of a record that went.
        self._doubtful_from = next((at for at, end in self._batches.items() if at < offset < end), offset)
        if offset in self._read_back:  # which may begin within that batch
            self._doubtful_from = min(self._doubtful_from, self._read_back.start)
        log.truncate_to(offset)
        self._settle_doubts(log, offset if offset in self._read_back else self._doubtful_from)

    def _settle_doubts(self, log: Log, end: int) -> None:
        """After an interrupted append or cut, or an end out of order, the book has what is there below an offset."""
        if self._doubtful_from is not None:
            self._forget_from(self._doubtful_from)
            first = max(self._doubtful_from, log.log_start_offset)
            for columns in log.columns(first) if first < min(end, log.log_end_offset) else ():
                pairs = zip(columns.keys(), columns.values(), strict=True)
                for at, (key, value) in zip(columns.offsets.tolist(), pairs, strict=True):
                    if at < end and key is not None and value != _UNCOMMITTED:
                        self._sent[at] = key, value
            self._read_back = range(min(first, self._read_back.start) if self._read_back else first, end)
            self._doubtful_from = None

    def _forget_from(self, end: int) -> None:
        self._sent = {at: pair for at, pair in self._sent.items() if at < end}
        self._batches = {at: behind for at, behind in self._batches.items() if at < end}

    # ---- judgement -------------------------------------------------------------------------------------------------

    def _judge(self, log: Log, table: Table) -> None:
        """Compare each way to look up with the book."""
        end = log.last_stable_offset
        state: dict[bytes, bytes | None] = {}
        for offset in sorted(self._sent):
            if offset < end:
                key, value = self._sent[offset]
                state[key] = value
        found = {key: table.get(key) for key in _KEYS}
        if log.last_stable_offset != end:
            return  # a flush in the background came between
        many, items = table.get_many(_KEYS), dict(table.items())
        for key in _KEYS:
            if found[key] != state.get(key):
                raise Wrong(f"{key!r} is {found[key]!r} in the table, {state.get(key)!r} was written below {end}")
        if log.last_stable_offset != end:
            return
        if many != [state.get(key) for key in _KEYS]:
            raise Wrong(f"several keys are {many} in the table, written were {state}")
        if items != {key: value for key, value in state.items() if value is not None}:
            raise Wrong(f"all of the table is {items}, written were {state}")
