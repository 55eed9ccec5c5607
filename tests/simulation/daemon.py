"""
The daemon in a world: its service with scheduler, scanners and workers, in a process of its own, without HTTP.

It follows the writer as a sidecar does, until it is asked to stop. An internal error that it reports fails the world.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from cleaner.errors import CleanerError
from cleaner.log.cleaning import InProcessCleaner
from cleaner.state.state_dir import STATE_DIR_KEY
from tests.simulation.bench import Bench, EventLog
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong

_SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.threads": "1",
    "log.cleaner.min.cleanable.ratio": "0",
}


def serve(bench: Bench, fs: SimFiles, stop: Any) -> None:
    """Run the service until `stop` is set."""
    state_dir: Path = bench.log_dir.parent / "state"
    settings = bench.settings | _SETTINGS | {STATE_DIR_KEY: str(state_dir)}
    try:
        with bench.topics.rounds_run(math.inf):
            service = InProcessCleaner(fs, bench.clock, [bench.log_dir], settings, EventLog(bench, "daemon"))
            service.start()
            stop.wait()
            if not service.stop(600.0):
                raise Wrong("a worker of the daemon does not stop")
    except (CleanerError, OSError) as error:
        bench.count(f"daemon: {type(error).__name__}")
        if not bench.has_errors and not bench.topics.damaged_checkpoints:
            raise
