"""
A service between two lives: it imports lines, answers them in transactions over partitions, and keeps its place.

    lines       topic `lines`: appended by a producer that is resumed by its name; what was not answered is sent again
    answers     a transaction appends its number to three logs, and commits the offset of its group behind it
    places      another group commits offsets without a transaction, ever higher ones

Its log dir is its own. Each life ends by an accident or in order; between some of them a round cleans what it keeps.
When it is opened again, it is compared with the service's own book: what was answered as durable is there, in all
partitions or in none, once, and nothing waits for a transaction that nobody ends. Around each round the internal topics
are replayed (`replaying.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from random import Random

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, UnknownTopicError
from cleaner.log.log import Log
from cleaner.log.log_producer import LogProducer
from cleaner.log.manager import LogManager
from cleaner.log.manager_producer import ManagerProducer
from cleaner.log.record import Record
from cleaner.settings.sources import Sources
from cleaner.verification.replay.state import Thing
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong
from tests.simulation.plan import Rest
from tests.simulation.processes import Process
from tests.simulation.replaying import SCHEMAS, SHARE_STATE, SOURCES, TOPICS, Known, ReplayedTopics

_LINES, _ANSWERS, _TOTALS = "lines", "answers", "totals"
_LOGS = (TopicPartition(_ANSWERS, 0), TopicPartition(_ANSWERS, 1), TopicPartition(_TOTALS, 0))
_KEPT = [str(TopicPartition(topic, 0)) for topic in TOPICS]
_LIVES = 5
_MOST_CHANGES = 130
_STEPS = 14
_CHANGES_OF_A_COMMIT = 18  # four records were written before; forced to disk, decided, forced, marked, forced, noted
_IN_TRANSACTIONS, _ALONE = "answering", "watching"
_IMPORTER = "importer"


class Serving:
    """
    The service of one rest, and its book.

    Args:
        bench: what all share.
        rest: its number says what the service does, and which accidents come.
    """

    def __init__(self, bench: Bench, rest: Rest) -> None:
        self._bench = bench
        self._rng = Random(rest.number)
        self._path = bench.new_directory("service")
        self._in_commit: Callable[[int], object] = lambda _: None
        self._in_round: Callable[[], object] = lambda: None
        # The book.
        self._number = 0  # of the last transaction
        self._committed: list[int] = []
        self._open: set[int] = set()  # of which it is not known how they end
        self._lines = self._durable_lines = 0  # sent; answered as durable
        self._unanswered: tuple[int, int] | None = None  # first line and end of an append without an answer
        self._asked_place = self._durable_place = 0
        self._has_answered = False  # in this life
        seeds = (Random(f"{rest.number}/{what}") for what in ("replay", "members"))
        self._replayed = ReplayedTopics(bench, self._path, *seeds)

    def run(
        self,
        begin: Callable[[str], tuple[Process, SimFiles]],
        run_process: Callable[[Process, Callable[[], None]], None],
        cut: Callable[[], None],
        restore: Callable[[], bool],
    ) -> None:
        """Live some lives; see `OperatorsHand` for what is given."""
        bench, rng = self._bench, self._rng
        for life in range(_LIVES + 1):
            process, fs = begin("service")
            self._in_commit = lambda _: None
            happen = rng.choice((cut, cut, partial(bench.world.kill, process), None))
            if 0 < life < _LIVES and happen is not None:
                self._plan_accident(process, happen)
            in_round = cut, partial(bench.world.kill, process)
            self._in_round = partial(self._replayed.plan_accident, process, in_round)
            run_process(process, partial(self._live, fs, process))
            if bench.world.scheduler.errors:
                return
            restore()
            self._replayed.round_broken_off()
        bench.count("serve")

    def _plan_accident(self, process: Process, happen: Callable[[], None]) -> None:
        """Have an accident come anywhere, or among the few changes of a commit."""
        if self._rng.random() < 0.4:
            process.accidents.append((self._rng.randrange(_MOST_CHANGES), happen))
        else:
            self._in_commit = lambda changes: process.accidents.append((changes, happen))

    def _live(self, fs: SimFiles, process: Process) -> None:
        bench = self._bench
        calm = bench.calm()
        try:
            settings = bench.settings | {"cleanup.policy": "delete"}
            manager = LogManager(self._path, settings, create=True, cleaner=False, clock=bench.clock, fs=fs)
            for name, count in ((_LINES, 1), (_ANSWERS, 2), (_TOTALS, 1), (SCHEMAS, 1), (SOURCES, 1), (SHARE_STATE, 1)):
                if name not in manager.topics():
                    policy = {"cleanup.policy": "compact" if name in TOPICS else "delete"}
                    manager.create_topic(name, count, settings=policy)
                elif len(manager.describe_topic(name).homes) < count:  # the end of a life came between two partitions
                    manager.add_partitions(name, count)
            self._judge(manager)
            self._replayed.settle()
            self._serve(manager)
            manager.close()
            self._replayed.closed()
            process.closed_in_order = True
            if self._rng.random() < 0.5:
                self._clean(fs)
        except (CleanerError, OSError) as error:
            bench.count(f"serve: {type(error).__name__}")
            if bench.is_calm_since(calm):
                raise

    def _clean(self, fs: SimFiles) -> None:
        context = CallContext(fs=fs, clock=self._bench.clock)
        sources = Sources(config=self._bench.settings)
        self._replayed.round_begins()
        self._in_round()
        with contextlib.closing(clean_log_dir(self._path, _KEPT, sources, CleanOptions(), context)) as outcomes:
            for outcome in outcomes:
                error = getattr(outcome, "error", None)
                if isinstance(error, CleanerError) and not isinstance(error, UnknownTopicError):
                    raise error
        self._replayed.round_ended(self._known())

    # ---- work ------------------------------------------------------------------------------------------------------

    def _serve(self, manager: LogManager) -> None:
        rng = self._rng
        importer = manager.log(_LINES).producer(_IMPORTER, resume=True)
        if self._unanswered is not None:
            first, end = self._unanswered
            is_there = importer.next_sequence >= end
            again = importer.append(_lines(first, end), sequence=first)
            if again.is_repeat != is_there:
                raise Wrong(f"lines {first} to {end} sent again: {again.is_repeat}, {is_there} before")
            self._unanswered = None
        service, self._has_answered = manager.producer("service"), False
        for _ in range(rng.randrange(1, _STEPS)):
            match rng.choice("aaaiipr"):
                case "a":
                    self._answer(manager, service)
                case "i":
                    self._import(importer)
                case "p":
                    self._place(manager)
                case _:
                    for log in manager.logs().values():
                        log.roll()
            self._replayed.write(manager)

    def _answer(self, manager: LogManager, service: ManagerProducer) -> None:
        """Commit a transaction, abort one, or begin one that the end of this life leaves open."""
        if service.is_in_transaction:
            return
        rng, place = self._rng, manager.log(_LINES).offsets(_IN_TRANSACTIONS)
        self._number += 1
        number, self._has_answered = self._number, True
        service.begin()
        for log in _logs(manager):
            service.append(log, Record(b"k", str(number).encode()))
        place.commit(number, transaction=service)
        ending = rng.random()
        if ending < 0.6:
            self._open.add(number)
            if rng.random() < 0.4:
                self._in_commit(rng.randrange(_CHANGES_OF_A_COMMIT))
            service.commit()
            self._open.discard(number)
            self._committed.append(number)
        elif ending < 0.85:
            service.abort()
        expected = self._committed[-1] if self._committed else None
        if place.load() != expected:
            raise Wrong(f"the offset of a group is {place.load()}, committed was {expected}")

    def _import(self, importer: LogProducer) -> None:
        """Send some lines, and perhaps wait until they are on disk; the end of this life may come before the answer."""
        first = importer.next_sequence
        if first != self._lines:
            raise Wrong(f"the log has taken {first} lines, sent were {self._lines}")
        end = first + self._rng.randrange(1, 4)
        self._lines, self._unanswered = end, (first, end)
        appended = importer.append(_lines(first, end), sequence=first)
        if self._rng.random() < 0.5:
            appended.durable.result()
            self._durable_lines = end
        self._unanswered = (first, end) if self._rng.random() < 0.5 else None  # the answer may get lost

    def _place(self, manager: LogManager) -> None:
        self._asked_place += 1
        appended = manager.log(_LINES).offsets(_ALONE).commit(self._asked_place)
        if self._rng.random() < 0.5:
            appended.durable.result()
            self._durable_place = self._asked_place

    # ---- judgement -------------------------------------------------------------------------------------------------

    def _judge(self, manager: LogManager) -> None:
        """Compare what is there with the book, and settle in it what was open."""
        if manager.failed:
            raise next(iter(manager.failed.values()))
        found = [_numbers(log, committed=True) for log in _logs(manager)]
        if found.count(found[0]) != len(found):
            raise Wrong(f"a transaction is in some partitions only: {found}")
        wanted = sorted({*self._committed, *(number for number in self._open if number in found[0])})
        if found[0] != wanted:
            raise Wrong(f"transactions {found[0]} are committed, {wanted} were, {sorted(self._open)} may be")
        self._committed, self._open = wanted, set()
        for log in manager.logs().values():
            if log.last_stable_offset != log.high_watermark:
                raise Wrong(f"{log.topic_partition}: readers of committed records wait at {log.last_stable_offset}")
        place, last = manager.log(_LINES).offsets(_IN_TRANSACTIONS).load(), wanted[-1] if wanted else None
        if place != last:
            raise Wrong(f"the offset of a group is {place}, its last transaction {last}")
        alone = manager.log(_LINES).offsets(_ALONE).load() or 0
        if not self._durable_place <= alone <= self._asked_place:
            raise Wrong(f"the offset {alone} is committed, durable was {self._durable_place}")
        self._asked_place = self._durable_place = alone
        lines = _numbers(manager.log(_LINES), committed=False)
        if lines != list(range(len(lines))) or not self._durable_lines <= len(lines) <= self._lines:
            raise Wrong(f"lines {lines} are there, {self._durable_lines} were durable, {self._lines} sent")
        taken = manager.log(_LINES).producer(_IMPORTER, resume=True).next_sequence
        if taken != len(lines):
            raise Wrong(f"the importer is resumed at line {taken}, {len(lines)} are there")
        self._lines = self._durable_lines = len(lines)
        if self._unanswered is not None and self._unanswered[1] != len(lines):
            # It was lost, perhaps with others before it: a source that keeps what is not durable sends all of them.
            self._unanswered = None

    def _known(self) -> Known:
        """Return what a replay of the internal topics has to find, after a close in order."""
        place, alone = self._committed[-1:], self._asked_place
        ends = ["CompleteCommit" if place == [self._number] else "CompleteAbort"]
        offsets = {_IN_TRANSACTIONS: place, _ALONE: [alone] if alone else []}
        known: dict[Thing, list[str]] = {
            Thing("offset", f"group {group}, topic {_LINES}-0"): [str(at) for at in found]
            for group, found in offsets.items()
            if found
        }
        if self._number:
            # An accident may have left nothing of the last one, in an earlier life.
            known[Thing("transaction", "transaction service")] = (
                ends if self._has_answered else ["CompleteCommit", "CompleteAbort", "None"]
            )
        return known


def _logs(manager: LogManager) -> list[Log]:
    return [manager.log(*partition) for partition in _LOGS]


def _lines(first: int, end: int) -> list[Record]:
    return [Record(b"k", str(number).encode()) for number in range(first, end)]


def _numbers(log: Log, *, committed: bool) -> list[int]:
    isolation = "read_committed" if committed else "read_uncommitted"
    return [int(record.value or b"") for record in log.read(0, isolation=isolation)]  # type: ignore[arg-type]
