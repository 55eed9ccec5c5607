"""Log dirs served by a thread of this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cleaner.app.options import CallContext
from cleaner.app.serve_log_dirs import ServedLogDirs
from cleaner.serve.server import Limits
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import FileSystem


@contextlib.contextmanager
def serving(
    *log_dirs: Path,
    limits: Limits | None = None,
    fs: FileSystem | None = None,
    warn: Callable[[str], None] | None = None,
    **more: Any,
) -> Iterator[int]:
    """Serve log dirs during a `with` block, at the port that it returns."""
    with running(*log_dirs, fs=fs, warn=warn, limits=limits, **more) as served:
        yield served.address[1]


@contextlib.contextmanager
def running(
    *log_dirs: Path,
    fs: FileSystem | None = None,
    warn: Callable[[str], None] | None = None,
    settings: Mapping[str, str] | None = None,
    sets: Mapping[str, Mapping[str, str]] | None = None,
    **more: Any,
) -> Iterator[ServedLogDirs]:
    """Serve log dirs during a `with` block; `settings` are of all topics, `sets` by topic; `more` is passed on."""
    of_topics = [SetOption(name, key, value) for name, own in (sets or {}).items() for key, value in own.items()]
    context, sources = CallContext.of(fs=fs, warn=warn), Sources(config=settings or {}, sets=of_topics)
    more = {"listen_at": ("127.0.0.1", 0), **more}
    with ServedLogDirs(log_dirs, sources, context, **more) as served, served.in_background():
        yield served
