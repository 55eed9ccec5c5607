"""Several log dirs of one node, opened for writing together: named once, made, locked, held against each other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cleaner.base import arguments
from cleaner.base.clock import Clock
from cleaner.errors import ConfigError, UsageError
from cleaner.log.dir_state import DirState, identify, make_log_dir
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.log_dir import find_conflicts
from cleaner.storage.which_dir import require_log_dir

PathLike = str | os.PathLike[str]


def paths_of(log_dirs: PathLike | Sequence[PathLike]) -> list[Path]:
    """
    Return the directories, each once.

    Raises:
        UsageError: none, or two names for one directory (R-101).
    """
    is_one = isinstance(log_dirs, str | bytes | os.PathLike) or not isinstance(log_dirs, Iterable)
    given = [log_dirs] if is_one else list(log_dirs)  # type: ignore[arg-type]  # each is looked at below
    paths = [arguments.path("log_dirs", path) for path in given]
    if not paths:
        raise UsageError("no log dir is named")
    if len({real_path(path) for path in paths}) < len(paths):
        raise UsageError(f"{', '.join(map(str, paths))}: two of them are the same directory")
    return paths


def open_dirs(
    fs: FileSystem,
    clock: Clock,
    paths: Sequence[Path],
    settings: Mapping[str, str],
    *,
    create: bool,
    cluster_id: str | None,
) -> list[DirState]:
    """
    Lock log dirs for writing and take their markers away, all of them or none.

    Args:
        fs, clock: the disk and the time.
        paths: the directories.
        settings: `node.id` (or `broker.id`) is used, for new ones.
        create: make those that are not there, and give those without one an identity.
        cluster_id: of new ones.
    Raises:
        UsageError: one is no log dir, or they do not belong together.
        CleanerError: see `DirState`.
    """
    for path in paths:
        require_log_dir(fs, path, may_be_new=create)
    there = [path for path in paths if path.is_dir()]
    identity = identify(fs, there, cluster_id, _node_id(settings))
    if create:
        for path in paths:
            make_log_dir(fs, path, identity)
    states: list[DirState] = []
    try:
        # In one order everywhere: two processes with the same directories do not each get one of them.
        for path in sorted(real_path(path) for path in paths):
            states.append(DirState(fs, path, clock))
        if len(states) > 1:
            conflicts = find_conflicts([state.log_dir for state in states])
            directories = [str(conflict) for conflict in conflicts if conflict.what == "directory"]
            if directories:
                raise UsageError("; ".join(directories))
    except BaseException:
        for state in states:
            state.restore()
        raise
    return states


def _node_id(settings: Mapping[str, str]) -> int | None:
    for key in ("node.id", "broker.id"):
        text = settings.get(key, "").strip()
        if text:
            try:
                return int(text)
            except ValueError:
                raise ConfigError(key, text, "must be an integer") from None
    return None
