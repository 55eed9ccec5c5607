"""
The end of a world: all is well again, so everything due is cleaned, what has expired is gone, and nothing has leaked.
"""

from __future__ import annotations

import contextlib
import errno
import gc
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any

from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.log.reader import LogReader
from tests.simulation.bench import Bench
from tests.simulation.clients import make_topic, records_of, require_closed
from tests.simulation.daemon import SimDaemon
from tests.simulation.disk import SimFiles, Trouble
from tests.simulation.found import Found, Wrong, checkpoints_of, first_base, left_overs
from tests.simulation.processes import Process
from tests.simulation.scheduler import Task
from tests.simulation.sent import Transaction
from tests.simulation.topics import MAIN
from tests.simulation.unread import UnreadSegments
from tests.simulation.world import World

_PATIENCE_NS = 120_000_000_000
_OPENINGS = 3
_REST_SECONDS = 6
_REFUSAL_SECONDS = 2.5
_REMOVAL_SECONDS = 61
_MOST_ROUNDS_AT_REST = 4
_OF_READERS = ("cleaner.read.", "cleaner.log.reader.")


class Healing:
    """
    See the head of the file.

    Args:
        world, bench: what the lives have left; no accident comes any more.
        has_daemon: the daemon cleans, not a round.
        has_retention: it removes what has expired, once the writer is gone.
        cleans_at_horizons: rounds come at the moments of horizons, too.
        counts_objects: opening and closing is tried for leaks, too.
        has_index: rounds with key indexes follow.
        run_process: runs a process to its end.
        judge: judges logs that have been opened.
        clean: begins a round; returns its thread.
    """

    def __init__(
        self,
        world: World,
        bench: Bench,
        *,
        has_daemon: bool,
        has_retention: bool,
        cleans_at_horizons: bool,
        counts_objects: bool,
        has_index: bool,
        run_process: Callable[[Process, Callable[[], None]], None],
        judge: Callable[[Collection[str]], None],
        clean: Callable[[], Any],
    ) -> None:
        self._world = world
        self._bench = bench
        self._has_daemon = has_daemon
        self._has_retention = has_retention
        self._cleans_at_horizons = cleans_at_horizons
        self._counts_objects = counts_objects
        self._has_index = has_index
        self._run_process = run_process
        self._judge = judge
        self._clean = clean
        self._sound: list[str] = []  # the topics without damage

    def run(self) -> None:
        """Open the logs, have everything cleaned, and close them in order; then repair what was damaged."""
        bench = self._bench
        bench.has_errors = bench.stopping = bench.stops_clock = False
        self._sound = [name for name in bench.topics.names if not bench.topics.is_damaged(name)]
        if self._sound:
            self._heal()
        if len(self._sound) < len(bench.topics.names):
            self._heal_damaged()
        elif self._counts_objects:
            self._open_again()

    def _heal(self) -> None:
        """Have what is not damaged cleaned and closed, whatever is damaged beside it."""
        world, bench = self._world, self._bench
        process, fs = world.process("writer")

        def main() -> None:
            with bench.open(fs) as manager:
                loaded = bench.loaded(manager)
                for name in bench.topics.missing():
                    make_topic(bench, manager, name)
                self._judge(loaded)
                if not self._has_retention:
                    self._expire(manager)
                if self._has_daemon and not self._has_retention and MAIN in self._sound:
                    self._clean_beside_a_transaction(manager)
                ends = {}
                for name in self._sound:
                    log = manager.log(name)
                    log.roll()
                    log.flush()
                    ends[name] = log.log_end_offset if log.log_start_offset < log.log_end_offset else 0
                manager.upkeep.note_all()
                if self._cleans_at_horizons:
                    self._clean_at_horizons()
                bench.clock.sleep(6)  # tombstones may go
                self._clean_all(ends)
                bench.clock.sleep(61 if self._deleted() else 6)  # deleted files have waited long enough
                self._judge(self._sound)
                self._require_clean(ends)
                if self._has_index and not self._has_daemon and len(self._sound) == len(bench.topics.names):
                    UnreadSegments(bench, self._run_round, world.seed).run(manager)
                    self._judge(self._sound)
            process.closed_in_order = True

        self._run_process(process, main)
        is_all = len(self._sound) == len(bench.topics.names)
        if is_all and not (bench.log_dir / ".kafka_cleanshutdown").exists() and not world.scheduler.errors:
            raise Wrong("it was closed in order, and left no marker")
        for name in self._sound:
            Found.of(bench.directory(name))
        # Without a marker, because another log cannot be opened, the daemon leaves the log dir alone.
        if self._has_retention and is_all:
            self._expire_without_writer()

    # ---- damage ----------------------------------------------------------------------------------------------------

    def _heal_damaged(self) -> None:
        """A round is told of damaged records, and the logs open, soon or when the operator has repaired them."""
        bench = self._bench
        damaged = bench.damaged_bytes()
        bench.index_dir = None  # damage in a segment that is not read goes unseen
        self._run_round()
        for name in bench.cleaned:
            if damaged[name]:
                raise Wrong(f"a round has cleaned a log with {damaged[name]} damaged bytes, and told nothing")
        self._try_damaged()
        bench.topics.repair(self._world.disk)
        if not self._try_damaged():
            raise Wrong(f"the damage was repaired, and the logs do not open: {bench.outcomes}")

    def _try_damaged(self) -> bool:
        """Open and judge logs that were damaged; tells whether that went for all."""
        bench = self._bench
        process, fs = self._world.process("writer")
        went = []

        def main() -> None:
            try:
                with bench.open(fs) as manager:
                    loaded = bench.loaded(manager)
                    for name in bench.topics.missing():
                        make_topic(bench, manager, name)
                    self._judge(loaded)
            except CleanerError as error:
                bench.count(f"damaged: {type(error).__name__}")
            else:
                went.append(len(loaded) == len(bench.topics.names))

        self._run_process(process, main)
        return any(went)

    # ---- everything due --------------------------------------------------------------------------------------------

    def _expire(self, manager: LogManager) -> None:
        """Wait until all records of some topics have expired; they have to be gone, and nothing else."""
        bench = self._bench
        old = [name for name in self._sound if bench.topics.now[name].start.retention_ms is not None]
        if not old:
            return
        bench.clock.sleep(max(bench.topics.now[name].start.retention_ms or 0 for name in old) / 1000 + 1)
        bench.clock.wall_offset_ms = max(0, bench.clock.wall_offset_ms)
        manager.upkeep.retain()
        manager.wake()
        self._refuse_removals(old)
        for name in old:
            log = manager.log(name)
            if log.log_start_offset < log.log_end_offset and not bench.topics.now[name].start.is_dated_ahead:
                raise Wrong(f"{name}: {log.log_start_offset} to {log.log_end_offset} has expired, and is there")

    def _refuse_removals(self, names: list[str]) -> None:
        """Have the disk refuse to remove files when they are due to go: they go a minute later."""
        bench, disk = self._bench, self._world.disk
        bench.has_errors, disk.trouble = True, Trouble(errno.EIO, ("remove",))
        bench.clock.sleep(_REFUSAL_SECONDS)
        bench.has_errors, disk.trouble = False, None
        bench.clock.sleep(_REMOVAL_SECONDS)
        waiting = [file for name in names for file in left_overs(bench.directory(name)) if file.endswith(".deleted")]
        if waiting:
            raise Wrong(f"the disk is well again, and after {_REMOVAL_SECONDS} s these are left: {waiting}")

    def _expire_without_writer(self) -> None:
        """Wait until the daemon has removed all that has expired, but for active segments."""
        bench = self._bench
        bench.clock.sleep(max(bench.topics.now[name].start.retention_ms or 0 for name in self._sound) / 1000 + 1)
        bench.clock.wall_offset_ms = max(0, bench.clock.wall_offset_ms)
        with self._daemon() as (_, task):
            self._wait_while(lambda: self._expired() and not task.has_ended)
        if self._expired():
            raise Wrong(f"all is well, a daemon has had its time, and these have expired: {self._expired()}")
        process, fs = self._world.process("writer")

        def main() -> None:
            with bench.open(fs) as manager:
                self._judge(bench.loaded(manager))
            process.closed_in_order = True

        self._run_process(process, main)

    def _expired(self) -> list[str]:
        """Return the segments below the active one that have expired, and those that only have to be removed."""
        found, bench = [], self._bench
        for name in self._sound:
            truth, directory = bench.topics.now[name].start, bench.directory(name)
            logs = sorted(directory.glob("*.log"))[:-1]
            has_expired = truth.retention_ms is not None and not truth.is_dated_ahead
            found += [f"{name}/{path.name}" for path in (logs if has_expired else [])]
            found += [f"{name}/{file}" for file in left_overs(directory)]
        return found

    def _clean_at_horizons(self) -> None:
        """Run a round that sets horizons, and one in the millisecond before one of them."""
        self._bench.stops_clock = True
        for _ in range(2):
            self._run_round()
            self._judge(self._sound)
        self._bench.stops_clock = False

    def _clean_all(self, ends: dict[str, int]) -> None:
        """Have the daemon, or one round, clean all that is due."""
        if not self._has_daemon:
            self._run_round()
            return
        with self._daemon() as (_, task):
            self._wait_while(lambda: self._behind(ends) and not task.has_ended)

    @contextlib.contextmanager
    def _daemon(self) -> Iterator[tuple[SimDaemon, Task]]:
        """Have a daemon run for the length of a `with` block."""
        stop, bench = self._world.primitives.Event(), self._bench
        daemon = SimDaemon(bench, has_retention=self._has_retention)
        _, task = self._world.begin("daemon", lambda fs: daemon.serve(fs, stop))
        try:
            yield daemon, task
        finally:
            stop.set()
        while not task.has_ended:
            bench.clock.sleep(0.2)

    def _run_round(self) -> None:
        """Run one round of all compacted logs, to its end."""
        cleaning = self._clean()
        while cleaning is not None and not cleaning.has_ended:
            self._bench.clock.sleep(1)

    def _wait_while(self, is_so: Callable[[], object]) -> None:
        clock = self._bench.clock
        until_ns = clock.monotonic_ns() + _PATIENCE_NS
        while is_so() and clock.monotonic_ns() < until_ns:
            clock.sleep(0.2)

    def _clean_beside_a_transaction(self, manager: LogManager) -> None:
        """Have a daemon clean up to an open transaction, and then rest: a log that stays due is cleaned."""
        bench = self._bench
        found = Found.of(bench.directory(MAIN))
        if any(found.marker_after(offset, producer) is None for offset, producer in found.in_transactions):
            return  # one from before is open until its timeout
        truth, log = bench.topics.now[MAIN], manager.log(MAIN)
        transaction, producer = Transaction(), log.producer("late")
        log.roll()  # rounds end with whole segments
        producer.begin()
        inside = truth.send("ab", 0, transaction)
        start = producer.append(records_of(inside)).base_offset
        truth.answered(inside, start)
        beside = truth.send("a", 0, None)
        truth.answered(beside, log.append(records_of(beside)).base_offset)
        log.roll()
        truth.durable_below(log.flush())
        manager.upkeep.note_all()
        ends = {name: start if name == MAIN else 0 for name in bench.topics.compacted}
        with self._daemon() as (daemon, task):
            self._wait_while(lambda: self._behind(ends) and not task.has_ended)
            if self._behind(ends):
                due = f"{start} of {MAIN} is due, a daemon has had its time, and is at {self._behind(ends)}"
                raise Wrong(due)
            bench.clock.sleep(_REST_SECONDS / 4)
            rounds = self._rounds()
            bench.clock.sleep(_REST_SECONDS)
            if self._rounds() - rounds > _MOST_ROUNDS_AT_REST:
                raise Wrong(f"nothing is appended, and in {_REST_SECONDS} s {self._rounds() - rounds} rounds have run")
            with daemon.paused(None):
                transaction.asked = False
                producer.abort().result()
                transaction.answered, transaction.is_durable = False, True
                log.roll()  # so that something is due

    def _rounds(self) -> int:
        return sum(self._bench.outcomes.get(f"daemon: {what}", 0) for what in ("cleaned", "nothing to clean"))

    def _behind(self, ends: dict[str, int]) -> dict[str, int]:
        """Return the compacted logs that are not cleaned to their ends, and up to where they are."""
        log_dir, topics = self._bench.log_dir, self._bench.topics
        clean_to = {
            # Retention may have removed all that was due.
            name: max(
                checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint", 0),
                first_base(self._bench.directory(name)) or 0,
            )
            for name in topics.compacted
            if name in ends
        }
        return {name: offset for name, offset in clean_to.items() if offset < ends[name]}

    def _require_clean(self, ends: dict[str, int]) -> None:
        bench = self._bench
        behind = self._behind(ends)
        if behind:
            raise Wrong(f"all is well, and logs are cleaned up to {behind}, not to {ends}: {bench.outcomes}")
        for name in self._sound:
            if left_overs(bench.directory(name)):
                raise Wrong(f"all is well, and these files are left: {left_overs(bench.directory(name))}")
        if self._deleted():
            raise Wrong(f"all is well, and these deleted topics are left: {self._deleted()}")

    def _deleted(self) -> list[str]:
        return sorted(path.name for path in self._bench.log_dir.iterdir() if path.name.endswith("-delete"))

    # ---- leaks -----------------------------------------------------------------------------------------------------

    def _open_again(self) -> None:
        """Open and close a writer and a reader some times in one process: nothing of them may stay."""
        bench = self._bench
        process, fs = self._world.process("openings")

        def main() -> None:
            counts = []
            for opening in range(_OPENINGS):
                self._open_and_close(fs, counts_readers=opening == 1)
                require_closed(fs)
                if any(task.owner is process and not task.has_ended for task in self._world.scheduler.tasks[1:]) > 1:
                    raise Wrong("threads are left after the close")
                if opening:
                    counts.append(objects_of_the_product())
            grown = counts[-1] - counts[-2]
            if grown:
                raise Wrong(f"each opening and closing leaves objects: {dict(grown)}")
            process.closed_in_order = True

        self._run_process(process, main)
        bench.count("openings")

    def _open_and_close(self, fs: SimFiles, *, counts_readers: bool) -> None:
        bench = self._bench
        with bench.open(fs) as manager:
            for name in bench.topics.names:
                manager.log(name).flush()
            self._read(fs)
            if counts_readers:
                before = self._objects_of_readers()
                self._read(fs)
                left = self._objects_of_readers() - before
                if left:
                    raise Wrong(f"each reader leaves objects until the collector comes: {dict(left)}")

    def _read(self, fs: SimFiles) -> None:
        """Open a reader, read all of a log, and close it."""
        bench = self._bench
        with LogReader(fs, bench.log_dir, TopicPartition(bench.topics.names[-1], 0), clock=bench.clock) as reader:
            for _ in reader.read(reader.log_start_offset):
                pass

    @staticmethod
    def _objects_of_readers() -> Counter[str]:
        found = objects_of_the_product(collects=False)
        return Counter({name: count for name, count in found.items() if name.startswith(_OF_READERS)})


def objects_of_the_product(*, collects: bool = True) -> Counter[str]:
    """Count the objects of the product that are alive, by class; `collects`: those in garbage do not count."""
    if collects:
        gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    # Of some compiled types the module's name is no text.
    names = ((str(kind.__module__), kind.__qualname__) for kind in kinds)
    return Counter(f"{module}.{name}" for module, name in names if module.startswith("cleaner."))
