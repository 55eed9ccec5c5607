"""
The daemon in a world: its service with scheduler, scanners, workers and retention, in a process of its own, without
HTTP and without its socket.

It follows the writer as a sidecar does, until it is asked to stop. An internal error that it reports fails the world.
Operators steer it, give it other settings, start a second one beside it, and lose its files.
"""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cleaner import __version__
from cleaner.app.configuration import Loaded, load_settings
from cleaner.base.model import TopicPartition
from cleaner.daemon.service import Service, ServiceDeps
from cleaner.daemon.service_steering import ServiceSteering
from cleaner.errors import CleanerError, LogDirOfflineError, StateDirLockedError, SteeringError
from cleaner.state.state_dir import STATE_DIR_KEY, StateDir
from cleaner.storage.segment import names
from tests.simulation.bench import Bench, EventLog
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong
from tests.simulation.processes import Process
from tests.simulation.topics import MAIN

_SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.threads": "1",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "cleaner.recover": "false",
}
_STOP_SECONDS = 600.0
_PAUSE_SECONDS = 2.0
_UID = 0
# The last two are refused, and nothing of them is taken over.
_RELOADS = (
    {"log.cleaner.min.cleanable.ratio": "0.3"},
    {"log.cleaner.threads": "2"},
    {"log.cleaner.threads": "many"},
    {"log.cleaner.backoff.ms": "200", "log.cleaner.io.max.bytes.per.second": "nothing"},
)
_REFUSED = (2, 3)


class SimDaemon:
    """
    One daemon.

    Args:
        bench: what all share.
        has_retention: it removes what has expired, while no writer is there.
        state: the name of its state directory.
    Attributes:
        steering: once it has started, until it stops.
    """

    def __init__(self, bench: Bench, *, has_retention: bool = False, state: str = "state") -> None:
        self._bench = bench
        self._state_dir: Path = bench.log_dir.parent / state
        self._is_reloading = False
        self._values = bench.settings | _SETTINGS
        self._values |= {
            "cleaner.retention.enable": str(has_retention).lower(),
            STATE_DIR_KEY: str(self._state_dir),
            "cleaner.index.enabled": str(bench.index_dir is not None).lower(),
            "log.dirs": str(bench.log_dir),
        }
        self._holder: Process | None = None
        self.steering: ServiceSteering | None = None

    def serve(self, fs: SimFiles, stop: Any, beside: SimDaemon | None = None) -> None:
        """
        Run the service until `stop` is set.

        Args:
            fs: of its process.
            stop: an event.
            beside: another daemon that shares the state directory; None: none.
        """
        bench = self._bench

        def read() -> Loaded:
            return load_settings(None, (), {}, values=self._values, trust_default_policy=True, fs=fs)

        try:
            with bench.topics.rounds_run(math.inf), StateDir(fs, self._state_dir, [bench.log_dir]) as state:
                if beside is not None and beside.has_state:
                    raise Wrong("two daemons have one state directory")
                self._holder = fs.process
                service = Service(
                    ServiceDeps(fs, bench.clock, EventLog(bench, "daemon"), read, state.path, __version__), read()
                )
                self.steering = ServiceSteering(service)
                service.start()
                stop.wait()
                self.steering = None
                if not service.stop(_STOP_SECONDS):
                    raise Wrong("a worker of the daemon does not stop")
                self._holder = None
        except StateDirLockedError:
            bench.count("daemon: another one has its state")
        except (CleanerError, OSError) as error:
            bench.count(f"daemon: {type(error).__name__}")
            if not bench.has_errors and not bench.topics.damaged_checkpoints:
                raise

    @property
    def has_state(self) -> bool:
        """Whether it holds the lock of its state directory, which nobody has removed."""
        return self._holder is not None and not self._holder.is_dead

    def lose_state(self, fs: SimFiles, number: int) -> None:
        """Remove files of its state, or the directory with them, as far as the disk lets an operator; `fs`: theirs."""
        calm = self._bench.calm()
        try:
            self._lose_state(fs, number)
        except (CleanerError, OSError):
            if self._bench.is_calm_since(calm):
                raise
        self._bench.count("state lost")

    def _lose_state(self, fs: SimFiles, number: int) -> None:
        if not fs.exists(self._state_dir):
            return
        self._holder = None  # another daemon may make the file again, and lock that
        found = fs.list_files(self._state_dir)
        for name in found if number % 3 == 0 else found[number % len(found) :] if found else ():
            fs.remove(self._state_dir / name)
        if number % 3 == 0:
            _remove_tree(fs, self._state_dir)

    # ---- what operators do -----------------------------------------------------------------------------------------

    def steer(self, number: int) -> None:
        """Give it one command, in a thread of its process; what it refuses changes nothing."""
        steering = self.steering
        if steering is None:
            return
        partition = TopicPartition(MAIN, 0)
        commands = (
            lambda: self.pause(None),
            lambda: self.pause((MAIN, str(partition))[number // 16 % 2]),
            lambda: steering.request(partition, _UID),
            lambda: steering.release(partition, _UID),
            lambda: steering.throttle((5_000.0, None)[number // 16 % 2], None, _UID),
            lambda: self._reload(steering, number // 16),
            lambda: self._cancel(steering, partition),
        )
        try:
            commands[number % len(commands)]()
            self._bench.count("steered")
        except SteeringError:
            self._bench.count("refused to steer")

    def pause(self, scope: str | None) -> None:
        """Pause it for some seconds; see `paused`."""
        with self.paused(scope):
            pass

    @contextlib.contextmanager
    def paused(self, scope: str | None) -> Iterator[None]:
        """
        Pause it for a `with` block and some seconds: what runs ends soon, and nothing new begins.

        Args:
            scope: a topic or a partition; None: everything.
        Raises:
            Wrong: a round runs or begins.
        """
        clock, what, steering = self._bench.clock, scope or "everything", self.steering
        if steering is None:
            yield
            return
        steering.pause(scope, _UID)
        calm, seconds = self._bench.calm(), _STOP_SECONDS
        while self._works(steering, scope) and seconds > 0:
            clock.sleep(1)
            seconds -= 1
        if self._works(steering, scope) and self.steering is steering and self._bench.is_calm_since(calm):
            raise Wrong(f"{what} is paused, and a round runs for {_STOP_SECONDS:.0f} s")
        before = self._rounds(steering, scope)
        yield
        clock.sleep(_PAUSE_SECONDS)
        if self._works(steering, scope) or self._rounds(steering, scope) != before:
            raise Wrong(f"{what} is paused, and a round has begun")
        steering.resume(scope, _UID)

    @staticmethod
    def _is_in(name: str | None, scope: str | None) -> bool:
        return name is not None and (scope is None or name in (scope, f"{scope}-0"))

    def _works(self, steering: ServiceSteering, scope: str | None) -> bool:
        shown = steering.snapshot()
        return any(self._is_in(worker.partition and str(worker.partition), scope) for worker in shown.workers)

    def _rounds(self, steering: ServiceSteering, scope: str | None) -> list[Any]:
        return [each for each in steering.snapshot().rounds if self._is_in(str(each.partition), scope)]

    def _cancel(self, steering: ServiceSteering, partition: TopicPartition) -> None:
        steering.cancel(steering.request(partition, _UID).id, _UID)

    def _reload(self, steering: ServiceSteering, number: int) -> None:
        """Have it read other settings, and then its own again: bad ones change nothing. There is one file of them."""
        if self._is_reloading:
            return
        self._is_reloading = True
        try:
            self._read_other_settings(steering, number % len(_RELOADS))
        finally:
            self._is_reloading = False

    def _read_other_settings(self, steering: ServiceSteering, number: int) -> None:
        before = dict(self._values)
        self._values |= _RELOADS[number]
        shown = steering.snapshot().config.values
        result = steering.reload(_UID)
        if bool(result.errors) != (number in _REFUSED):
            raise Wrong(f"a reload with {_RELOADS[number]} was answered with {result}")
        if result.errors and steering.snapshot().config.values != shown:
            raise Wrong(f"a reload was refused, and has changed settings: {result}")
        self._values = before
        if steering.reload(_UID).errors:
            raise Wrong(f"a daemon does not go back to its settings: {before}")


def serve_second(bench: Bench, first: SimDaemon, fs: SimFiles, number: int) -> None:
    """Start a daemon beside another, with its state directory or one of its own, for some seconds."""
    stop = bench.world.primitives.Event()

    def end() -> None:
        bench.clock.sleep(1 + number // 2 % 20)
        stop.set()

    bench.world.spawn(fs.process, "operator", end)
    if number % 2:
        SimDaemon(bench, state="another-state").serve(fs, stop)
    else:
        SimDaemon(bench).serve(fs, stop, first)
    bench.count("second daemon")


def lose_lock(bench: Bench, fs: SimFiles) -> bool:
    """Remove the lock file of the log dir, which may be held; returns whether it is gone."""
    with contextlib.suppress(CleanerError, OSError):  # an accident of the disk: it stays
        fs.remove(bench.log_dir / names.LOCK)
        bench.count("lock file lost")
        return True
    return False


def _remove_tree(fs: SimFiles, directory: Path) -> None:
    """Remove a directory as `rm -r` does: what its daemon makes there meanwhile stays, with the directories above."""
    for name in fs.list_dirs(directory):
        _remove_tree(fs, directory / name)
    for name in fs.list_files(directory):
        fs.remove(directory / name)
    try:
        fs.remove_dir(directory)
    except LogDirOfflineError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ENOTEMPTY:
            raise
