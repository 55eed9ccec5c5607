"""Log dirs served by a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.app.serve_log_dirs import ServedLogDirs
from cleaner.serve.server import Limits
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem


@contextlib.contextmanager
def serving(
    *log_dirs: Path,
    limits: Limits | None = None,
    fs: FileSystem | None = None,
    warn: Callable[[str], None] | None = None,
) -> Iterator[int]:
    """Serve log dirs during a `with` block, at the port that it returns."""
    context = CallContext.of(fs=fs, warn=warn)
    with ServedLogDirs(log_dirs, Sources(), context, listen_at=("127.0.0.1", 0), limits=limits) as served:
        stops: list[Callable[[], None]] = []
        began = threading.Event()

        def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
            stops.append(lambda: loop.call_soon_threadsafe(stop) and None)
            began.set()

        thread = threading.Thread(target=lambda: served.run(started))
        thread.start()
        assert began.wait(20)
        try:
            yield served.address[1]
        finally:
            stops[0]()
            thread.join(20)
            assert not thread.is_alive()
