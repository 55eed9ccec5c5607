"""
One world from its beginning to its end: lives of the writer, accidents between them, and the judgement.

A supervisor, which no accident reaches, begins a writer, waits for its end, has the disk forget what a power cut lets
it forget, and begins the next writer, until all operations are done. Then everything heals: a round has to clean all
that is due, and the log has to close in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from cleaner.errors import CleanerError
from cleaner.log.manager import LogManager
from cleaner.storage.segment.names import CLEAN_SHUTDOWN
from tests.simulation.bench import Bench
from tests.simulation.clients import Client, clean_once, make_topic
from tests.simulation.daemon import SimDaemon, lose_lock, serve_second
from tests.simulation.disk import SimFiles, Trouble
from tests.simulation.found import Wrong, checkpoints_of, judge_cut_checkpoints, judge_cut_swap
from tests.simulation.healing import Healing
from tests.simulation.operators import Operators
from tests.simulation.plan import Accident, Plan
from tests.simulation.processes import Process
from tests.simulation.report import Report
from tests.simulation.scheduler import Task
from tests.simulation.world import World
from tests.support.batch_reader import without_room

_MOST_LIVES = 30
_OTHER_STATES = 1
_RAW_STATES = 10
_TROUBLE_STEPS = 400
_LATER_STEPS = 500
_STALLS_NS = (1_000_000, 10_000_000, 100_000_000, 3_000_000_000)
_FREEZE_NS = 150_000_000_000
_LONGEST_JUMP_MS = 3_600_000


class Life:
    """
    The course of one world.

    Args:
        world: installed.
        log_dir: with the plan's topics, closed in order.
        plan: what happens.
    """

    def __init__(self, world: World, log_dir: Path, plan: Plan) -> None:
        self._world = world
        self._plan = plan
        self._bench = Bench(world, log_dir, plan)
        self._bench.begun = self._operation_begins
        self._bench.has_read = lambda: self._comes("read")
        self._bench.has_noted = lambda: self._comes("note")
        self._bench.is_noting = lambda: self._comes("noting")
        self._bench.has_deleted = lambda: self._comes("delete")
        self._bench.has_failed = lambda: self._comes("error")
        self._later: dict[str, list[tuple[int, Callable[[], None]]]] = {
            "read": [],
            "close": [],
            "note": [],
            "delete": [],
            "error": [],
            "noting": [],
        }
        self._accidents = list(plan.accidents)
        self._rounds = list(plan.rounds)
        self._supervisor = Process("supervisor")
        self._writer: Process | None = None
        self._cleaner: Process | None = None
        self._daemon: Process | None = None
        self._served: SimDaemon | None = None
        self._daemon_stops = world.primitives.Event()
        self._has_power = True
        self._is_healing = False
        self._is_trying = False  # states that a power cut may leave
        self._was_cut = False  # since logs were last judged
        self._may_lack: set[str] = set()  # topics that were not judged since
        self._was_cut_in_round = False
        self._place = -1
        self._failed_opens = 0
        self.report = Report(world.seed, plan)

    def run(self) -> Report:
        """Run the world; what goes wrong is in the report."""
        scheduler = self._world.scheduler
        task = scheduler.spawn("supervisor", self._supervisor, self._supervise)

        def end() -> None:
            # A daemon would go on until the last step that a world may have.
            if task.error is not None:
                scheduler.collapse(AssertionError("the supervisor has failed"))

        task.on_end.append(end)
        failure: AssertionError | None = None
        try:
            scheduler.run()
        except AssertionError as error:
            failure = error
        for task, first in scheduler.errors:
            self.report.fail(first, f"{task.owner.name}/{task.name}: ")
        if failure is not None:
            self.report.fail(failure)
        self.report.steps = scheduler.step
        self.report.operations = self._bench.done
        self.report.outcomes = self._bench.outcomes
        self.report.trace = scheduler.trace
        return self.report

    # ---- lives -----------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        while any(self._bench.operations.values()):
            self.report.lives += 1
            if self.report.lives > _MOST_LIVES:
                raise Wrong(f"the writer did not come through in {_MOST_LIVES} lives")
            self._live()
            # First, as the cut may bring back a name, and with it a damaged file.
            self._restore_power()
            if self._failed_opens > 2:
                self._world.disk.trouble = None  # the operator has repaired it
                self._bench.topics.repair(self._world.disk)
            if self._plan.rests:
                self._rest()
        self._heal()

    def _rest(self) -> None:
        """Let operators work on the logs while no writer is there."""
        tasks = self._world.scheduler.tasks
        busy = (self._supervisor, self._daemon)
        self._wait_for([task for task in tasks if task.owner not in busy])
        self._restore_power()
        operators = Operators(
            self._bench,
            has_daemon=self._plan.has_daemon,
            begin=self._world.process,
            run_process=self._run_process,
            cut=self._cut_power,
            restore=self._restore_power,
            judge=self._judge,
        )
        operators.rest(self._plan.rests[(self.report.lives - 1) % len(self._plan.rests)])
        self._restore_power()

    def _live(self) -> None:
        bench = self._bench
        now_ns = self._world.scheduler.now_ns()
        is_frozen = self._daemon is not None and self._daemon.frozen_until_ns > now_ns  # it may hold the logs
        bench.has_errors = self._world.disk.trouble is not None or is_frozen
        bench.lacks_descriptors = False
        bench.stopping = False
        process, fs = self._world.process("writer")
        self._writer = process
        if self._plan.has_daemon and (self._daemon is None or self._daemon.is_dead):
            served = self._served = SimDaemon(bench, has_retention=self._plan.has_retention)
            self._daemon, _ = self._world.begin("daemon", lambda fs: served.serve(fs, self._daemon_stops))

        def main() -> None:
            try:
                manager = bench.open(fs)
            except (CleanerError, OSError) as error:
                bench.count(f"open: {type(error).__name__}")
                self._failed_opens += 1
                if not bench.has_errors and not bench.topics.damaged_checkpoints:
                    raise
                return
            loaded = bench.loaded(manager)
            self._failed_opens += bool(manager.failed)
            if manager.failed and bench.has_errors:
                self._close(process, manager)
                return
            self._judge(set(loaded) - self._make_missing(manager))
            bench.writer = process
            numbers = [number for number in bench.operations if bench.topic_of(number) in loaded]
            clients = [Client(bench, manager, number) for number in numbers]
            threads = [self._world.primitives.Thread(target=client.run, name="client") for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self._close(process, manager)

        self._run_process(process, main)

    def _make_missing(self, manager: LogManager) -> set[str]:
        """Make the topics that are not there; returns those that could not be made, which their clients will."""
        bench, failed = self._bench, set[str]()
        for name in bench.topics.missing():
            try:
                make_topic(bench, manager, name)
            except (CleanerError, OSError) as error:
                bench.count(f"make: {type(error).__name__}")
                if not bench.has_errors:
                    raise
                failed.add(name)
        return failed

    def _run_process(self, process: Process, main: Callable[[], None]) -> None:
        """
        Run a process from its beginning to its end; one that was closed in order has no other thread left.

        But for one that frees what a round has removed: nobody waits for that.
        """
        world = self._world
        task = world.spawn(process, "main", main)
        self._wait_for([task])
        if process.closed_in_order and not process.is_dead:
            running = (other for other in world.scheduler.tasks if other.owner is process and not other.has_ended)
            left = [other.name for other in running if other.name != "cleaner-frees"]
            if left:
                raise Wrong(f"threads are left after the close: {left}")
            if process.open_files():
                raise Wrong(f"files are left open: {[file.path.name for file in process.open_files()]}")
        world.kill(process)  # the end of a process

    def _close(self, process: Process, manager: Any) -> None:
        self._bench.writer = None
        try:
            manager.close()
            process.closed_in_order = True
            self._bench.count("close")
            if (self._bench.log_dir / CLEAN_SHUTDOWN).exists():
                self._require_no_room()
            self._comes("close")
        except (CleanerError, OSError) as error:
            self._bench.count(f"close: {type(error).__name__}")
            if not any(map(self._bench.is_troubled, self._bench.topics.names)):
                raise

    def _require_no_room(self) -> None:
        """Beside a marker no log has room behind its batches: nobody would cut it off."""
        for name in self._bench.topics.names:
            paths = sorted(self._bench.directory(name).glob("*.log"))
            data = paths[-1].read_bytes() if paths else b""
            if len(without_room(data)) < len(data):
                raise Wrong(f"{paths[-1]}: closed with room behind its batches")

    def _wait_for(self, tasks: list[Task]) -> None:
        scheduler = self._world.scheduler
        supervisor = next(task for task in scheduler.tasks if task.owner is self._supervisor)
        for task in tasks:
            while not task.has_ended:
                task.on_end.append(lambda: scheduler.wake(supervisor))
                scheduler.block("wait for a process")

    def _judge(self, names: Collection[str]) -> None:
        """Judge logs that have been opened; others may not have been, as they are damaged."""
        disk = self._world.disk
        if self._was_cut or disk.has_lost_pages:
            self._may_lack |= set(self._bench.topics.names)
        self._was_cut = disk.has_lost_pages = False
        self._bench.topics.judge(names, only_durable=self._may_lack)
        self._may_lack -= set(names)

    # ---- accidents -------------------------------------------------------------------------------------------------

    def _operation_begins(self, place: int) -> None:
        """Begin the rounds and accidents that belong to operations up to this one."""
        bench = self._bench
        self._place = max(self._place, place)
        while self._rounds and self._rounds[0] <= self._place:
            self._rounds.pop(0)
            self._clean()
        while self._accidents and self._accidents[0].after_operation <= self._place:
            accident = self._accidents.pop(0)
            scheduler = self._world.scheduler
            happen = partial(self._happen, accident)
            process = self._daemon if self._plan.has_daemon else self._cleaner
            if accident.place == "change" and process is not None:
                process.accidents.append((accident.steps, happen))
            elif accident.place == "change of the writer" and self._writer is not None:
                self._writer.accidents.append((accident.steps, happen))
            elif accident.place == "fence" and process is not None:
                process.accidents_at_fences.append((accident.steps, happen))
            elif accident.place in self._later:
                self._later[accident.place].append((accident.steps, happen))
                bench.stopping |= accident.place == "close"
            else:
                scheduler.at_step(scheduler.step + 1 + accident.steps, happen)

    def _comes(self, place: str) -> None:
        """Begin the accidents that waited for a note, or for what has come to its end or failed."""
        scheduler = self._world.scheduler
        for steps, happen in self._later[place]:
            scheduler.at_step(scheduler.step + 1 + steps, happen)
        self._later[place].clear()

    def _clean(self) -> Task | None:
        if self._cleaner is not None and not self._cleaner.is_dead and self._runs(self._cleaner):
            return None
        self._cleaner, task = self._world.begin("cleaner", lambda fs: clean_once(self._bench, fs))
        return task

    def _runs(self, process: Process) -> bool:
        return any(task.owner is process and not task.has_ended for task in self._world.scheduler.tasks)

    def _happen(self, accident: Accident) -> None:
        world, bench = self._world, self._bench
        if self._is_healing:
            return
        if self._is_trying or bench.holds_accidents:
            world.scheduler.at_step(world.scheduler.step + _LATER_STEPS, partial(self._happen, accident))
            return
        if world.scheduler.trace:
            self.report.met.add((accident.kind, world.scheduler.trace[-1].what))
        self.report.accidents.append(f"{accident.kind} at step {world.scheduler.step}")
        match accident.kind:
            case "kill":
                if self._writer is not None:
                    world.kill(self._writer)
            case "kill cleaner":
                if self._cleaner is not None:
                    world.kill(self._cleaner)
            case "kill daemon":
                if self._daemon is not None:
                    world.kill(self._daemon)
            case "power":
                self._cut_power()
            case "stop":
                bench.stopping = True
            case "interrupt":
                self._interrupt(accident.number)
            case "full":
                self._trouble(Trouble.full())
            case "failing":
                share = (0.0, 0.02, 0.2, 1.0)[accident.number % 4]
                self._trouble(Trouble.failing(share) if share else Trouble.failing_once())
            case "read only":
                self._trouble(Trouble.read_only())
            case "stall":
                self._stall(accident.number)
            case "rot":
                bench.topics.strike(world.disk, accident.number)
            case "descriptors":
                self._trouble(Trouble.no_descriptors())
            case "clock":
                bench.topics.note_time()
                jump_ms = accident.number * _LONGEST_JUMP_MS // (1 << 16)
                world.clock.wall_offset_ms += jump_ms if accident.number % 4 else -jump_ms
                bench.topics.note_time()
            case "lock lost":
                world.begin("operator", lambda fs: self._lose_lock(fs, accident.number))
            case "second daemon" | "state lost" | "steer" | "freeze":
                self._operate(accident)

    def _operate(self, accident: Accident) -> None:
        """Have an operator do something to the daemon."""
        world, bench, daemon, number = self._world, self._bench, self._served, accident.number
        if daemon is None or self._daemon is None or self._daemon.is_dead:
            return
        match accident.kind:
            case "second daemon":
                world.begin("second daemon", lambda fs: serve_second(bench, daemon, fs, number))
            case "state lost":
                world.begin("operator", lambda fs: daemon.lose_state(fs, number))
            case "steer":
                world.spawn(self._daemon, "operator", lambda: daemon.steer(number))
            case "freeze":
                bench.has_errors, bench.lacks_descriptors = True, False
                self._daemon.frozen_until_ns = world.scheduler.now_ns() + _FREEZE_NS

    def _lose_lock(self, fs: SimFiles, number: int) -> None:
        """Have the lock file lost: the writer of that moment, maybe of the next life, is to end soon."""
        if lose_lock(self._bench, fs):
            self._bench.has_errors, self._bench.lacks_descriptors = True, False
            scheduler = self._world.scheduler
            scheduler.at_step(scheduler.step + 1 + number % _TROUBLE_STEPS, self._stop)

    def _stop(self) -> None:
        self._bench.stopping = not self._is_healing

    def _stall(self, number: int) -> None:
        """Have the thread that is at a step stand still, as one that gets no processor."""
        scheduler = self._world.scheduler
        task = scheduler.current
        if task is not None and task.owner is not self._supervisor and not task.owner.is_dead:
            scheduler.block("stands still", scheduler.now_ns() + _STALLS_NS[number % len(_STALLS_NS)])

    def _cut_power(self) -> None:
        self._has_power = False
        is_alone = self._cleaner is not None and not self._plan.has_daemon  # whose swap it is is known
        self._was_cut_in_round = is_alone and not self._cleaner.is_dead
        self._world.kill_all()

    def _interrupt(self, number: int) -> None:
        """Have a client of the writer get Ctrl-C, or no memory, at its next step, and some more soon after."""
        tasks = [task for task in self._world.scheduler.tasks if task.name == "client" and not task.has_ended]
        if tasks and self._writer is not None and not self._writer.is_dead:
            self._bench.has_errors, self._bench.lacks_descriptors = True, False
            tasks[number % len(tasks)].interrupt = KeyboardInterrupt() if number % 3 else MemoryError()
            if number // 8 and not self._is_trying:
                step = self._world.scheduler.step
                self._world.scheduler.at_step(step + 1 + number % 61, partial(self._interrupt, number // 8))

    def _trouble(self, trouble: Trouble) -> None:
        world = self._world
        world.disk.trouble = trouble
        self._bench.lacks_descriptors = trouble == Trouble.no_descriptors() and not self._bench.has_errors
        self._bench.has_errors = True

        def end() -> None:
            world.disk.trouble = None

        world.scheduler.at_step(world.scheduler.step + _TROUBLE_STEPS, end)

    def _restore_power(self) -> bool:
        """If the power was cut, have the disk forget what it may, and return True."""
        if self._has_power:
            return False
        tasks = self._world.scheduler.tasks
        self._wait_for([task for task in tasks if task.owner is not self._supervisor])
        self._world.disk.trouble = None
        self._has_power = self._was_cut = True
        self._is_trying = True
        bench, disk = self._bench, self._world.disk
        bench.topics.forget_ends()
        cut = disk.journal.power_cut()
        if cut.pending:
            if self._was_cut_in_round:
                for _ in range(_RAW_STATES):
                    state = disk.draw_state(cut)
                    for topic, began in bench.rounds_began.items():
                        if bench.topics.is_damaged(topic):
                            continue
                        judge_cut_swap(state, bench.directory(topic).relative_to(disk.root), began)
            for _ in range(_OTHER_STATES):
                disk.come_back(cut)
                for topic in bench.topics.names:
                    if not bench.topics.is_remade(topic) and not bench.topics.is_damaged(topic):
                        judge_cut_checkpoints(bench.directory(topic), checkpoints_of(bench.log_dir, topic))
                self._try_state()
        disk.come_back(cut)
        self._is_trying = False
        return True

    def _try_state(self) -> None:
        """Open the log in another state that the power cut may have left; what happens there is forgotten."""
        bench = self._bench
        topics, bench.topics = bench.topics, bench.topics.copy()
        bench.has_errors = bench.stopping = False
        process, fs = self._world.process("trial")

        def main() -> None:
            try:
                manager = bench.open(fs)
            except CleanerError:
                if not bench.topics.damaged_checkpoints:
                    raise
                return  # the damage was told
            loaded = bench.loaded(manager)
            for name in bench.topics.missing():
                make_topic(bench, manager, name)
            self._judge(loaded)

        self._run_process(process, main)
        self._wait_for([task for task in self._world.scheduler.tasks if task.owner is process])
        bench.topics, self._was_cut = topics, True

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """All is well again: no accident comes any more."""
        world = self._world
        self._accidents.clear()
        self._is_healing = True
        world.disk.trouble = None
        self._daemon_stops.set()
        self._wait_for([task for task in world.scheduler.tasks if task.owner is not self._supervisor])
        Healing(
            world,
            self._bench,
            has_daemon=self._plan.has_daemon,
            has_retention=self._plan.has_retention,
            cleans_at_horizons=self._plan.stops_clock,
            counts_objects=self._plan.counts_objects,
            has_index=self._plan.has_index,
            run_process=self._run_process,
            judge=self._judge,
            clean=self._clean,
        ).run()
