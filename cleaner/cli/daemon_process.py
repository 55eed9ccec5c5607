"""
The daemon as a process: the service, wired to signals, the service manager, HTTP and the control socket.

The main thread waits for signals and feeds the watchdog; it does nothing that could hang.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner import __version__
from cleaner.base import concurrency
from cleaner.base.clock import SystemClock
from cleaner.cli.collecting import collect_seldom, set_aside
from cleaner.daemon.control.server import ControlServer
from cleaner.daemon.dump import dump
from cleaner.daemon.notify import Notifier, Watchdog
from cleaner.daemon.service import Service, ServiceDeps
from cleaner.daemon.service_steering import ServiceSteering
from cleaner.daemon.signals import SignalRequest, Signals
from cleaner.errors import OutOfThreadsError
from cleaner.present.http.routes import status_server
from cleaner.settings.config_watch import ConfigWatch
from cleaner.state.state_dir import StateDir
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    import structlog

    from cleaner.app.configuration import Loaded
    from cleaner.present.spans import Spans

# How often the status line is renewed and the `--config` file is checked for changes.
_TICK_SECONDS = 2.0
_STOP_POLL_SECONDS = 0.1
_START_POLL_SECONDS = 0.1
# Asked for repeatedly while the first look goes on.
_EXTENSION_SECONDS = 30.0
_STOPS: frozenset[SignalRequest] = frozenset(("stop", "stop-now"))
# A worker stops at its next buffer; only a disk that hangs takes longer.
_STOP_SECONDS = 60.0
# What a collector gets for the last spans.
_SPANS_SECONDS = 1.0


class DaemonProcess:
    """
    One run of the daemon.

    Args:
        loaded: the settings.
        read_settings: reads them again.
        log: the logs.
        fs: the file system.
        spans: gets the rounds, and is closed at the end; None: nobody does.
    """

    def __init__(
        self,
        loaded: Loaded,
        read_settings: Callable[[], Loaded],
        log: structlog.typing.FilteringBoundLogger,
        fs: FileSystem,
        spans: Spans | None = None,
    ) -> None:
        self._loaded = loaded
        self._read_settings = read_settings
        self._log = log
        self._fs, self._clock = fs, SystemClock()
        self._spans = spans

    def run(self) -> int:
        """
        Run until stopped.

        Returns:
            0 after a graceful stop; 128 and the signal's number after a second one.
        Raises:
            ConfigError, StateDirLockedError, ListenError: it cannot start.
        """
        config = self._loaded.config
        notifier = Notifier.from_environment(self._clock)
        with contextlib.ExitStack() as stack:
            signals = stack.enter_context(Signals())
            state = stack.enter_context(StateDir(self._fs, Path(config.state_dir), self._loaded.log_dirs))
            trace_round = None
            if self._spans is not None:
                stack.callback(self._spans.close, _SPANS_SECONDS)
                trace_round = self._spans.add_round
            service = Service(
                ServiceDeps(
                    *(self._fs, self._clock, self._log, self._read_settings, state.path, __version__), trace_round
                ),
                self._loaded,
            )
            steering = ServiceSteering(service)
            socket_path = Path(config.control_socket)
            stack.enter_context(ControlServer(self._fs, socket_path, steering, self._clock, self._mistake))
            http = status_server(
                config, service.snapshot, fs=self._fs, clock=self._clock, warn=self._log.warning, failed=self._mistake
            )
            if http is not None:
                stack.enter_context(http)
                self._log.info("http", listen=str(http.address))
            self._log.info("starting", version=__version__, log_dirs=[str(path) for path in self._loaded.log_dirs])
            collect_seldom()
            requests = self._start(service, signals, notifier)
            set_aside()
            if not requests:
                notifier.ready(_status_line(service))
                self._log.info("running", partitions=len(service.snapshot().logs), threads=config.threads)
                requests = self._watch(service, signals, notifier)
            return self._stop(service, signals, notifier, is_at_once="stop-now" in requests)

    def _start(self, service: Service, signals: Signals, notifier: Notifier) -> set[SignalRequest]:
        """
        Start the service in its own thread: the first look at thousands of logs takes some time, and this thread
        handles signals. Returns the requests to stop; empty if the service has started.
        """
        errors: list[BaseException] = []

        def start() -> None:
            try:
                service.start()
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                errors.append(error)

        starter = concurrency.Thread(target=start, name="cleaner-start", daemon=True)
        starter.start()
        while starter.is_alive():
            notifier.extend_timeout(_EXTENSION_SECONDS)
            starter.join(_START_POLL_SECONDS)
            requests = signals.wait(0)
            if requests & _STOPS:
                return requests
            if "dump" in requests:
                _dump_aside(service)
        if errors:
            raise errors[0]
        return set()

    def _watch(self, service: Service, signals: Signals, notifier: Notifier) -> set[SignalRequest]:
        """Act on signals, and feed the watchdog, until a stop is asked for."""
        watchdog = Watchdog(notifier, lambda: service.is_progressing)
        config_watch = self._config_watch()
        interval = min(_TICK_SECONDS, watchdog.interval_seconds or _TICK_SECONDS)
        while True:
            requests = signals.wait(interval)
            if requests & _STOPS:
                return requests
            if "dump" in requests:
                _dump_aside(service)
            if "reload" in requests or (config_watch is not None and config_watch.has_changed()):
                notifier.reloading()
                result = service.reload()
                notifier.ready("reload refused: see the logs" if result.errors else _status_line(service))
            watchdog.tick()
            notifier.status(_status_line(service))

    def _config_watch(self) -> ConfigWatch | None:
        loaded = self._loaded
        if not loaded.config.config_watch or loaded.file is None:
            return None
        return ConfigWatch(self._fs, loaded.file, loaded.fingerprint, self._clock)

    def _stop(self, service: Service, signals: Signals, notifier: Notifier, *, is_at_once: bool) -> int:
        notifier.stopping("stopping at the next buffer")
        self._log.info("stopping")
        stopper = concurrency.Thread(target=service.stop, args=(_STOP_SECONDS,), name="cleaner-stop", daemon=True)
        try:
            stopper.start()
        except OutOfThreadsError:
            service.stop(_STOP_SECONDS)  # no second signal is seen meanwhile
        while stopper.is_alive():
            if is_at_once or "stop-now" in signals.wait(_STOP_POLL_SECONDS):
                self._log.warning("stopped at once")
                return signals.exit_code_at_once
        if not service.is_stopped:
            self._log.error("a worker did not stop in time", seconds=_STOP_SECONDS)
            return 1
        self._log.info("stopped")
        return 0

    def _mistake(self, error: Exception) -> None:
        self._log.error("an internal error of the cleaner", exc_info=error)


def _dump_aside(service: Service) -> None:
    """Dump in a thread: the reader of standard error may have stopped, or a lock may never be released."""
    dumper = concurrency.Thread(target=dump, args=(service.snapshot, sys.stderr), name="cleaner-dump", daemon=True)
    with contextlib.suppress(OutOfThreadsError):  # asked again, there may be one
        dumper.start()


def _status_line(service: Service) -> str:
    """Return what `systemctl status` shows."""
    snapshot = service.snapshot()
    busy = [f"{each.partition} ({each.phase})" for each in snapshot.workers if each.partition is not None]
    words = [f"cleaning {', '.join(busy)}" if busy else "idle", f"{snapshot.counts.logs} logs"]
    if snapshot.counts.waiting:
        words.append(f"{snapshot.counts.waiting} due")
    if snapshot.quarantine:
        words.append(f"{len(snapshot.quarantine)} in quarantine")
    words += list(snapshot.stuck)
    return ", ".join(words)
