"""
The cleaner in the writer's process: the daemon's service next to our own writer, with the same locks.

It follows the protocol of `docs/coexistence.md` as a sidecar does. A lock belongs to an open `.lock` file, so threads
of one process exclude each other as processes do. Retention stays with the writer.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cleaner import __version__
from cleaner.app.configuration import Loaded, load_settings
from cleaner.base.clock import Clock
from cleaner.base.logger import Logger
from cleaner.daemon.service import Service, ServiceDeps
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.state.state_dir import STATE_DIR_KEY, StateDir
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.lock.scratch_dir import scratch_dir

_OWN = {"cleaner.retention.enable": "false", "cleaner.recover": "false"}


class InProcessCleaner:
    """
    Cleans the logs of some log dirs until it is stopped.

    Without `cleaner.state.dir` in the settings, its state (which logs are quarantined after an error) is kept only
    until it is stopped.

    Args:
        fs, clock: the disk and the time.
        log_dirs: their writer already runs.
        settings: Kafka's keys and our own.
        log: called with rounds.
    Raises:
        ConfigError: settings that cannot work: too little memory, a state directory that other users may write to.
        StateDirLockedError: another process has the state directory.
    """

    def __init__(
        self, fs: FileSystem, clock: Clock, log_dirs: Sequence[Path], settings: Mapping[str, str], log: Logger
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._is_stopped = self._has_ended = False
        try:
            state_dir = self._state_dir(fs, log_dirs, settings)
            values = {**settings, **_OWN, STATE_DIR_KEY: str(state_dir), "log.dirs": ",".join(map(str, log_dirs))}

            def read() -> Loaded:
                return load_settings(None, (), {}, values=values, trust_default_policy=True, fs=fs)

            self._service = Service(ServiceDeps(fs, clock, log, read, state_dir, __version__), read())
        except BaseException:
            self._stack.close()
            raise

    def _state_dir(self, fs: FileSystem, log_dirs: Sequence[Path], settings: Mapping[str, str]) -> Path:
        if STATE_DIR_KEY in settings:
            return self._stack.enter_context(StateDir(fs, Path(settings[STATE_DIR_KEY]), log_dirs)).path
        base = real_path(Path(tempfile.gettempdir()))
        return self._stack.enter_context(scratch_dir(fs, base, "cleaner-state-"))

    def start(self) -> None:
        """Begin."""
        self._service.start()

    def wake(self) -> None:
        """Look at all logs now: settings have changed, or a segment was rolled."""
        self._service.wake()

    def snapshot(self) -> ServiceSnapshot:
        """Return its present state, as the daemon shows it."""
        return self._service.snapshot()

    def stop(self, timeout: float = 30.0) -> bool:
        """Stop at the next buffer; False: a round did not stop in time and goes on. A second call does nothing."""
        if not self._is_stopped:
            self._is_stopped = True
            try:
                self._has_ended = self._service.stop(timeout)
            finally:
                self._stack.close()
        return self._has_ended
