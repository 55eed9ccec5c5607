"""
`doctor`: whether a machine and its log dirs are fit for cleaning. Locks and changes nothing.

Each check calls the code that a command or the daemon calls before its own work: a check that passes here fails there
only if something has changed since.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from cleaner.app.check_settings import check_log_dirs
from cleaner.app.configuration import Loaded
from cleaner.app.warm_kernels import find_kept_kernels
from cleaner.base.clock import Clock, SystemClock, require_set
from cleaner.base.mistakes import Mistakes
from cleaner.base.sizes import human_bytes
from cleaner.cleaning.round.memory_budget import MemoryBudget, require_memory
from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, ConfigError, UncleanableError
from cleaner.settings.given import DEFAULT
from cleaner.spark.clean.available import why_not_available
from cleaner.state.state_dir import STATE_DIR_KEY, require_own_way, require_private
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.memory_limits import lowest_memory_limit
from cleaner.storage.fs.ownership import become, owner_of

Result = TypeVar("Result")


class Grade(enum.Enum):
    """`FAIL`: commands or the daemon refuse. `WARN`: they work, with the restriction given. `PASS`: nothing to do."""

    PASS = "PASS"  # noqa: S105 - a grade
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Answer:
    """
    The result of one check.

    Attributes:
        check: the name of the check, one word.
        grade: `PASS`, `WARN` or `FAIL`.
        finding: what was found.
        remedy: what to do; empty with `PASS`, or if `error` says it.
        log_dir: the one it concerns; None: the machine.
        error: the error with which a command would fail.
    """

    check: str
    grade: Grade
    finding: str
    remedy: str = ""
    log_dir: Path | None = None
    error: CleanerError | None = field(default=None, compare=False)


def passed(check: str, finding: str) -> Answer:
    """Return a `PASS`."""
    return Answer(check, Grade.PASS, finding)


def warned(check: str, finding: str, remedy: str) -> Answer:
    """Return a `WARN`."""
    return Answer(check, Grade.WARN, finding, remedy)


def failed(check: str, finding: str, remedy: str, error: CleanerError | None = None) -> Answer:
    """Return a `FAIL`."""
    return Answer(check, Grade.FAIL, finding, remedy, error=error)


def examine_machine(config: CleanerConfig) -> Iterator[Answer]:
    """Check everything that does not concern a log dir, as the user that started the process, even root."""
    yield _memory(FileSystem(), config)
    yield _kernels()
    reason = why_not_available()
    do = "needed for `cleaner bulk` and DataFrames only"
    yield warned("spark", reason, do) if reason else passed("spark", "Java, pyspark, pyarrow and pandas are installed")
    yield _clock(SystemClock())


def _memory(fs: FileSystem, config: CleanerConfig) -> Answer:
    limit, needed = lowest_memory_limit(fs), MemoryBudget.of(config).total
    if limit is None:
        return warned(
            "memory", f"{human_bytes(needed)} may be needed; how much the machine has is not known", "mount /proc"
        )
    try:
        require_memory(config, limit)
    except CleanerError as error:
        return failed("memory", str(error), "lower the setting that it names, or give the process more memory", error)
    return passed("memory", f"at most {human_bytes(needed)} are needed, {limit.source} has {human_bytes(limit.size)}")


def _kernels() -> Answer:
    try:
        kept = find_kept_kernels()
    except ImportError as error:
        return failed(
            "kernels", f"numba cannot be loaded: {error}", "install the cleaner again, in its own environment"
        )
    reasons = "".join(f"; {reason}" for reason in kept.warnings)
    if kept.are_complete:
        return passed("kernels", f"compiled{f', kept in {kept.writable}' if kept.writable else ''}{reasons}")
    if kept.writable is None:
        return warned(
            "kernels",
            f"compiled at every start, which takes seconds: there is no directory to keep them in{reasons}",
            "let NUMBA_CACHE_DIR name a directory that only you can write to, and run `cleaner warm`",
        )
    return warned("kernels", f"not compiled yet; they will be kept in {kept.writable}{reasons}", "run `cleaner warm`")


def _clock(clock: Clock) -> Answer:
    try:
        require_set(clock.now_ms())
    except CleanerError as error:
        return failed("clock", str(error), "set the machine's clock, and keep it synchronized (NTP)", error)
    return passed("clock", "is set")


def examine_settings(fs: FileSystem, loaded: Loaded, log_dirs: Sequence[Path]) -> Iterator[Answer]:
    """Check the settings as `config check` does, with the named log dirs, or if none those of the settings."""
    mistakes = Mistakes()
    found: list[Answer] = []
    try:
        with mistakes.collected():
            checked = check_log_dirs(fs, loaded, log_dirs, mistakes)
            what_next = "`cleaner config show` says where each value comes from"
            found += [warned("settings", warning, what_next) for warning in checked.warnings]
    except CleanerError as error:
        if not isinstance(error, UncleanableError):  # a bad name in a log dir, which its own check reports
            found.append(failed("settings", str(error), "", error))
    # A named log dir has its own check.
    found += [wrong_setting(mistake) for mistake in mistakes.all() if mistake.key != "--log-dir"]
    yield from found or [passed("settings", "sound")]


def wrong_setting(mistake: ConfigError) -> Answer:
    """Return the `FAIL` for a mistake in the settings."""
    return failed("settings", str(mistake), "correct it at its source: `cleaner config check`", mistake)


def examine_owner(log_dirs: Sequence[Path], *, stay_root: bool = False) -> Answer:
    """Check which user root becomes to work in some log dirs, and become that user for the checks that follow."""
    if os.geteuid() != 0 or stay_root:
        return passed("owner", f"runs as user {os.geteuid()}")
    try:
        owner = owner_of(log_dirs)
        if owner is not None:
            become(owner)
    except CleanerError as error:
        return failed("owner", str(error), "", error)
    except OSError as error:
        return failed("owner", str(error), "check the directory")
    return passed("owner", "root stays root" if owner is None else f"root becomes {owner}, the owner of the logs")


def examine_state_dir(fs: FileSystem, loaded: Loaded) -> Iterator[Answer]:
    """Check whether the daemon can use its state directory, if one is set; as the daemon's user."""
    path = Path(loaded.config.state_dir)
    if loaded.values[STATE_DIR_KEY].origin == DEFAULT:
        return
    try:
        require_own_way(path, STATE_DIR_KEY, path)
        if fs.exists(real_path(path)):
            require_private(fs, real_path(path), STATE_DIR_KEY, path)
        yield passed("state", f"{path} belongs to this user, or will be created")
    except CleanerError as error:
        yield failed("state", str(error), "", error)
    except OSError as error:
        yield failed("state", f"{path}: {error.strerror}", "name another directory")
