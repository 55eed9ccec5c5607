"""What the daemon writes to standard error on SIGUSR1: where every thread stands, and a line of JSON on the rest."""

from __future__ import annotations

import faulthandler
import json
import os
from collections.abc import Callable
from typing import TextIO

from cleaner.base.json_values import json_value
from cleaner.daemon.snapshot import ServiceSnapshot

DUMP_VERSION = 1

# A daemon with thousands of logs still writes one line that fits a journal's entry.
_MOST_OF_A_KIND = 20

_LOG_DIR = ("path", "condition", "detail", "partitions", "workers", "free_bytes", "looked_at_ms")
_WORKER = ("name", "partition", "phase", "done_bytes", "total_bytes", "since_ms", "is_stopping")
_DAEMON = (
    "now_ms",
    "started_ms",
    "state",
    "is_ready",
    "is_progressing",
    "stuck",
    "turn_ended_ms",
    "turn_seconds",
    "next_turn_ms",
    "open_files",
    "anonymous_bytes",
    "needed_bytes",
    "worker_deaths",
    "pauses",
    "opens_at_ms",
    "throttle",
)


def dump(snapshot: Callable[[], ServiceSnapshot], stream: TextIO) -> None:
    """
    Write the stacks of all threads, then the summary.

    In that order: a thread that holds a lock for ever may keep `snapshot` from returning, and then the stacks are what
    was wanted.
    """
    stream.write(f"stacks of all threads, asked for by SIGUSR1:\n{_stacks()}")
    stream.flush()
    stream.write(json.dumps(summary(snapshot())) + "\n")
    stream.flush()


def _stacks() -> str:
    """
    Return the stacks.

    They are written to memory first: faulthandler holds the GIL while it writes, even to a pipe that nobody reads.
    """
    with os.fdopen(os.memfd_create("cleaner-stacks"), "w+b") as memory:
        faulthandler.dump_traceback(memory, all_threads=True)
        memory.seek(0)
        return memory.read().decode(errors="replace")


def summary(snapshot: ServiceSnapshot) -> dict[str, object]:
    """Return what matters of a snapshot as JSON values: counts of logs, and all that is at work, held or broken."""
    return {
        "version": DUMP_VERSION,
        "program": snapshot.version,
        **_fields(snapshot, *_DAEMON),
        "last_success_ms": snapshot.ended_ms,
        "logs": snapshot.counts.logs,
        "logs_by_reason": dict(snapshot.counts.standings),
        "log_dirs": [_fields(view, *_LOG_DIR) | {"condition": view.condition.value} for view in snapshot.log_dirs],
        "workers": [_fields(view, *_WORKER) for view in snapshot.workers],
        "queued": snapshot.counts.waiting,
        "queue": [str(partition) for partition in snapshot.queue[:_MOST_OF_A_KIND]],
        "quarantined": len(snapshot.quarantine),
        "quarantine": [
            _fields(entry, "partition", "log_dir", "reason") for entry in snapshot.quarantine[:_MOST_OF_A_KIND]
        ],
        "retries": len(snapshot.retries),
        "jobs": [_fields(job, "id", "partition", "state") for job in snapshot.jobs[:_MOST_OF_A_KIND]],
        "config_file": snapshot.config.file,
        "is_last_reload_good": snapshot.config.is_last_reload_good,
        "reload_errors": list(snapshot.config.errors[:_MOST_OF_A_KIND]),
        "needs_restart": list(snapshot.config.needs_restart),
    }


def _fields(value: object, *names: str) -> dict[str, object]:
    return {name: json_value(getattr(value, name)) for name in names}
