"""
The daemon: started once, it looks, cleans and waits until it is stopped.

    scheduler thread     turns: look at all log dirs, let the manager choose, wait `log.cleaner.backoff.ms`
    worker threads       `log.cleaner.threads` of them, see `pool.py`
    scanner threads      one for each log dir, see `scanners.py`
    retention thread     idle unless `cleaner.retention.enable` is set, see `retention_loop.py`

It does not depend on being a process of its own: signals, logs, HTTP and the control socket are connected from outside
(`cli/daemon_process.py`), and a program may run it in process. `ServiceSteering` steers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.app.check_settings import why_no_start
from cleaner.app.configuration import Loaded, take_over
from cleaner.base import concurrency
from cleaner.base.clock import Clock
from cleaner.base.io_throttle import IoThrottle
from cleaner.base.json_values import JsonValue
from cleaner.base.logger import Logger
from cleaner.cleaning.round.memory_budget import require_memory
from cleaner.config.values import CleanerConfig
from cleaner.daemon.dir_locks import DirLocks
from cleaner.daemon.log_dir_watch import WatchedLogDir
from cleaner.daemon.manager import Assignment, CleanerManager
from cleaner.daemon.pool import WorkerPool
from cleaner.daemon.recovering import DirRecovery
from cleaner.daemon.retention_loop import make_retention
from cleaner.daemon.retention_pass import RetentionReport
from cleaner.daemon.round_task import RoundOutcome, RoundTools, journal_details, log_round, run_round
from cleaner.daemon.scanners import Scanners
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.daemon.status_history import StatusHistory, Turn
from cleaner.daemon.steering import ReloadResult
from cleaner.daemon.views import with_settings
from cleaner.errors import CleanerError, CleaningAborted, ConfigError
from cleaner.policy.retry import RetryDelays
from cleaner.policy.selection_context import DirCondition
from cleaner.state.journal import Journal
from cleaner.state.key_index_dir import NAME_IN_STATE_DIR, KeyIndexDir
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.memory_limits import lowest_memory_limit
from cleaner.storage.log_dir import LogDir

# Rest before a turn that a finished round asks for, in lengths of the last turn.
_REST_AFTER_TURN = 4.0
_MIN_REST_SECONDS = 0.05
# A scheduler is stuck if it has not turned for this much longer than its backoff.
_LATE_TURN_SECONDS = 60.0
_JOIN_SECONDS = 30.0


@dataclass(frozen=True)
class ServiceDeps:
    """
    What the service is given from outside.

    Attributes:
        fs, clock: the disk and the time.
        log: structured logs.
        read_settings: reads the settings again; raises one ConfigError with all mistakes.
        state_dir: an existing directory, used by this process only.
        version: of the program.
        trace_round: called with each round's journal entry, its seconds, and why it failed (or an empty text).
    """

    fs: FileSystem
    clock: Clock
    log: Logger
    read_settings: Callable[[], Loaded]
    state_dir: Path
    version: str
    trace_round: Callable[[Mapping[str, JsonValue], float, str], None] | None = None


class Service:
    """
    See the head of the file.

    Args:
        deps: what it is given.
        settings: already read.
    Raises:
        ConfigError: the settings cannot work here: no log dir, too little memory.
        LogDirOfflineError: the state directory's disk failed.
    """

    def __init__(self, deps: ServiceDeps, settings: Loaded) -> None:
        self._deps = deps
        self._fs, self._clock, self._log = deps.fs, deps.clock, deps.log
        config = settings.config
        _require_usable(deps.fs, config)
        self._lock = concurrency.Lock()
        # Guarded by _lock: what a reload, a round or a turn replaces.
        self._settings = settings
        self._state = "starting"

        self.quarantine = Quarantine(self._fs, deps.state_dir, self._warn)
        self.journal = Journal(
            self._fs,
            deps.state_dir,
            self._clock,
            max_file_bytes=config.history_max_bytes,
            kept_files=config.history_files,
            fsync_every_ms=1000,
        )
        self.manager = CleanerManager(
            self._clock,
            self.quarantine,
            config,
            wake=lambda: self._wake.set(),
            report=self._warn,
        )
        self.throttle = IoThrottle(config.io_max_bytes_per_second, self._clock)
        self._locks = DirLocks(self._fs, holds=config.lock_mode == "hold")
        self._watched = [
            WatchedLogDir(self._fs, self._clock, path, config, settings.sources) for path in settings.log_dirs
        ]
        log_dirs = {path: LogDir(self._fs, path) for path in settings.log_dirs}
        self._scanners = Scanners(self._clock)
        settings_of = {watched.path: watched.settings for watched in self._watched}
        self._tools = RoundTools(
            *(self._fs, self._clock, self._locks, log_dirs.__getitem__),
            *(self.throttle, settings_of.__getitem__, self._warn),
            key_index_dir=self._key_index_dir(config.index_dir, settings.log_dirs),
        )
        self._recovery = DirRecovery(self._tools, self.manager.put_into_quarantine, self._check_stopping, self._warn)
        self._retention = make_retention(self._tools, self.manager, self._config, self._check_stopping, self._retained)
        self._pool = WorkerPool(self.manager, self._run_round, self._round_ended, self._worker_died)
        self._wake = concurrency.Event()
        self._stopping = concurrency.Event()
        self._scheduler = concurrency.Thread(target=self._schedule, name="cleaner-scheduler", daemon=True)
        self._retainer = concurrency.Thread(target=self._retain, name="cleaner-retention", daemon=True)
        self._history = StatusHistory(self._fs, self._clock, deps.version, settings, self.quarantine, self.throttle)
        self._started_ns = self._clock.monotonic_ns()
        self._warned: dict[str, tuple[str, ...]] = {}  # already logged, by log dir; the scheduler's
        self._apply_rates(settings)

    def _key_index_dir(self, given: str | None, log_dirs: Sequence[Path]) -> KeyIndexDir:
        path = self._deps.state_dir / NAME_IN_STATE_DIR if given is None else Path(given)
        return KeyIndexDir(self._fs, path, log_dirs, self._warn)

    # --- start, stop, turns -------------------------------------------------------------------------------------

    def start(self) -> None:
        """
        Look at everything once, then let the scheduler begin.

        It waits for every log dir that answers, however many logs it has; workers begin with the log dirs already
        looked at.
        """
        is_all_seen = self.turn()
        with self._lock:
            if self._stopping.is_set():
                return
            threads = self._settings.config.threads
        self._pool.resize(threads)
        while not is_all_seen and not self._stopping.is_set():
            is_all_seen = self.turn()
        with self._lock:
            if self._stopping.is_set():
                return
            self._state = "running"
        self._scheduler.start()
        self._retainer.start()

    def stop(self, timeout: float = _JOIN_SECONDS) -> bool:
        """
        Stop: no round begins, running rounds end at their next buffer, with nothing half done.

        A second call only waits again.

        Args:
            timeout: seconds, for each thread in turn.
        Returns:
            False if some thread did not end in time.
        """
        with self._lock:
            self._state = "stopping"
        self._stopping.set()
        self._wake.set()
        self.manager.stop()
        self._retention.wake()
        has_ended = self._pool.join(timeout)
        for thread in (self._scheduler, self._retainer):
            if thread.is_alive():
                thread.join(timeout)
                has_ended &= not thread.is_alive()
        self._scanners.close()
        self._tools.large_logs.close()
        if has_ended:
            self._locks.release_all()
        self._in_journal(self.journal.sync)
        return has_ended

    @property
    def is_stopped(self) -> bool:
        """Tell whether the service is stopping and no worker has a log any more."""
        return self._stopping.is_set() and self.manager.is_idle

    def wake(self) -> None:
        """Have a turn now."""
        self._wake.set()

    def turn(self) -> bool:
        """
        Look at every log dir once and pass the looks to the manager.

        Returns:
            Whether each log dir has been looked at completely, or does not answer.
        """
        began_ns, now_ms = self._clock.monotonic_ns(), self._clock.now_ms()
        looks = self._scanners.look(self._watched, now_ms)
        config = self._config()
        looks = self._recovery.overlay(self._watched, looks, self._scanners, RetryDelays.of(config), now_ms)
        self.manager.take_looks(looks)
        if any(look.behind for look in looks.values()):
            self._wake.set()  # the next turn goes on with the rest
        self._note_conditions()
        self._save_quarantine()
        ended_ns, ended_ms = self._clock.monotonic_ns(), self._clock.now_ms()
        next_ms = ended_ms + config.backoff_ms
        self._history.note_turn(Turn(ended_ms, ended_ns, (ended_ns - began_ns) / 1e9, next_ms))
        return all(
            look.looked_at_ms is not None or look.facts.condition is not DirCondition.ONLINE for look in looks.values()
        )

    def _schedule(self) -> None:
        while not self._stopping.is_set():
            backoff = self._config().backoff_ms / 1000
            turn = self._history.turn
            rest = max(_MIN_REST_SECONDS, (turn.seconds if turn else 0) * _REST_AFTER_TURN)
            if self._wake.wait(backoff):
                self._stopping.wait(min(rest, max(backoff, _MIN_REST_SECONDS)))
            if self._stopping.is_set():
                return
            self._wake.clear()
            try:
                self.turn()
            except Exception as error:  # noqa: BLE001 - the next turn may succeed; `stuck` reports it if none does
                self._log.error("a turn of the scheduler failed", exc_info=error)

    # --- rounds -------------------------------------------------------------------------------------------------

    def _run_round(self, assignment: Assignment) -> RoundOutcome:
        return run_round(
            assignment,
            self._tools,
            check_done=lambda: self.manager.check_done(assignment),
            note_progress=lambda phase, done, total: self.manager.note_progress(assignment, phase, done, total),
        )

    def _config(self) -> CleanerConfig:
        with self._lock:
            return self._settings.config

    def _round_ended(self, outcome: RoundOutcome) -> None:
        self._history.note_round(outcome)
        log_round(self._log, outcome)
        details, partition = journal_details(outcome), str(outcome.view.partition)
        self._in_journal(lambda: self.journal.append("round", partition, details))
        if self._deps.trace_round is not None:
            self._deps.trace_round({"partition": partition, **details}, outcome.view.seconds, outcome.failure)

    def _retain(self) -> None:
        while not self._stopping.is_set():
            try:
                self._retention.run(self._stopping.is_set)
            except Exception as error:  # noqa: BLE001 - it starts again after a pause
                self._log.error("retention failed", exc_info=error)
                self._stopping.wait(self._config().backoff_ms / 1000)

    def _retained(self, report: RetentionReport) -> None:
        """Log and record what retention did to one log, or its failure."""
        partition = str(report.partition)
        if report.error:
            self._log.warning("retention failed", partition=partition, log_dir=report.log_dir, reason=report.error)
            return
        self._history.note_retention(report.partition.topic, report.segments, report.bytes)
        details = report.details()
        self._log.info("segments expired", partition=partition, **details)
        self._in_journal(lambda: self.journal.append("retention", partition, details))

    def _worker_died(self, worker: str, error: BaseException) -> None:
        self._log.error("a worker died and is replaced", worker=worker, exc_info=error)

    # --- settings -----------------------------------------------------------------------------------------------

    def reload(self) -> ReloadResult:
        """Read the settings again: either all of them are valid and take effect, or nothing changes."""
        with self._lock:
            running = self._settings
        try:
            read = self._deps.read_settings()
            taken = take_over(running, read)
            _require_usable(self._fs, taken.loaded.config)
        except CleanerError as error:
            mistakes = error.mistakes if isinstance(error, ConfigError) else (error,)
            errors = tuple(str(mistake) for mistake in mistakes)
            self._history.note_refused_settings(errors)
            self._log.error("reload refused, the settings stay as they were", mistakes=list(errors))
            return ReloadResult(errors=errors)
        new, config = taken.loaded, taken.loaded.config
        with self._lock:
            self._settings = new
        self._history.note_settings(new, taken.needs_restart)
        self.manager.change_settings(config)
        self._apply_rates(new)
        self._pool.resize(config.threads)
        for watched in self._watched:
            watched.reconfigure(config, new.sources)
        self._retention.wake()
        self._log.info("reloaded", changed=list(taken.changed), needs_restart=list(taken.needs_restart))
        warnings = why_no_start(self._fs, read, self.manager.snapshot().log_dirs)
        for warning in warnings:
            self._log.warning(warning)
        self.wake()
        return ReloadResult(changed=taken.changed, needs_restart=taken.needs_restart, warnings=warnings)

    def change_rate(self, bytes_per_second: float | None, log_dir: Path | None = None) -> None:
        """Set the speed limit, bytes a second (None: none), of all workers or of one log dir, until the next reload."""
        rate = float("inf") if bytes_per_second is None else bytes_per_second
        self.throttle.change_rate(rate, log_dir)
        self._history.note_rate(rate, log_dir)

    def _apply_rates(self, settings: Loaded) -> None:
        rates = settings.log_dir_rates
        self.change_rate(settings.config.io_max_bytes_per_second)
        for path in settings.log_dirs:
            self.change_rate(rates.get(path), path)

    # --- status -------------------------------------------------------------------------------------------------

    @property
    def is_progressing(self) -> bool:
        """Tell whether the scheduler turns and every busy worker makes progress; feeds the watchdog."""
        return not self._stuck(self.manager.stuck())

    def snapshot(self, settings_of: Collection[str] = ()) -> ServiceSnapshot:
        """Return the state of the daemon; see `Steering.snapshot`."""
        with self._lock:
            state = self._state
        known = self.manager.snapshot()
        shown = self._history.snapshot(
            state, known, tuple(self._stuck(known.stuck)), (self._pool.names, self._pool.deaths)
        )
        return with_settings(shown, known, settings_of) if settings_of else shown

    def _check_stopping(self) -> None:
        if self._stopping.is_set():
            raise CleaningAborted("the cleaner is being stopped")

    def _stuck(self, silent: Sequence[str]) -> list[str]:
        """Return the workers that do not report, and the scheduler if it does not turn."""
        stuck = list(silent)
        turn = self._history.turn
        late_s = (self._clock.monotonic_ns() - (turn.ended_ns if turn else self._started_ns)) / 1e9
        with self._lock:
            is_running = self._state == "running"
        if is_running and late_s > self._config().backoff_ms / 1000 + _LATE_TURN_SECONDS:
            stuck.append(f"no turn of the scheduler for {late_s:.0f} s")
        return stuck

    def _note_conditions(self) -> None:
        """Log changed conditions of log dirs, and new warnings."""
        known = self.manager.snapshot()
        self._history.prepare(known)
        for path in self._history.note_conditions(known.log_dirs):
            facts = known.log_dirs[path]
            self._log.warning(f"log dir is {facts.condition.value}", log_dir=path, detail=facts.detail)
        for path, look in known.looks.items():
            for warning in look.warnings:
                if warning not in self._warned.get(path, ()):
                    self._log.warning("log dir needs attention", log_dir=path, reason=warning)
            self._warned[path] = look.warnings

    def _save_quarantine(self) -> None:
        try:
            self.quarantine.save()
        except CleanerError as error:
            self._warn(f"the quarantine cannot be written: {error}")

    # --- logs and journal ---------------------------------------------------------------------------------------

    def note_command(
        self, kind: str, uid: int, partition: str | None = None, details: dict[str, JsonValue] | None = None
    ) -> None:
        """Log a steering command and enter it in the journal."""
        values: dict[str, JsonValue] = {"uid": uid, **(details or {})}
        self._log.info(f"command: {kind}", partition=partition, **values)
        self._in_journal(lambda: self.journal.append(kind, partition, values))

    def _in_journal(self, write: Callable[[], None]) -> None:
        """Write to the journal; if the disk fails, only the entry is lost."""
        try:
            write()
        except CleanerError as error:
            self._warn(f"the journal cannot be written: {error}")

    def _warn(self, warning: str) -> None:
        self._log.warning(warning)


def _require_usable(fs: FileSystem, config: CleanerConfig) -> None:
    if not config.log_dirs:
        raise ConfigError("log.dirs", "", "must name at least one log dir")
    require_memory(config, lowest_memory_limit(fs))
