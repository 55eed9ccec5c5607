"""What the daemon writes to standard error on SIGUSR1: where every thread stands, and a line of JSON on the rest."""

from __future__ import annotations

import dataclasses
import faulthandler
import json
import os
from collections.abc import Callable
from typing import TextIO

from cleaner.daemon.snapshot import LogDirView, ServiceSnapshot, WorkerView

DUMP_VERSION = 1

# A daemon with thousands of logs still writes one line that fits a journal's entry.
_MOST_OF_A_KIND = 20


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
        "now_ms": snapshot.now_ms,
        "started_ms": snapshot.started_ms,
        "state": snapshot.state,
        "is_ready": snapshot.is_ready,
        "is_progressing": snapshot.is_progressing,
        "stuck": list(snapshot.stuck),
        "turn_ended_ms": snapshot.turn_ended_ms,
        "turn_seconds": snapshot.turn_seconds,
        "next_turn_ms": snapshot.next_turn_ms,
        "last_success_ms": snapshot.ended_ms,
        "open_files": snapshot.open_files,
        "anonymous_bytes": snapshot.anonymous_bytes,
        "needed_bytes": snapshot.needed_bytes,
        "logs": snapshot.counts.logs,
        "logs_by_reason": dict(snapshot.counts.standings),
        "log_dirs": [_log_dir(view) for view in snapshot.log_dirs],
        "workers": [_worker(view) for view in snapshot.workers],
        "worker_deaths": snapshot.worker_deaths,
        "queued": snapshot.counts.waiting,
        "queue": [str(partition) for partition in snapshot.queue[:_MOST_OF_A_KIND]],
        "quarantined": len(snapshot.quarantine),
        "quarantine": [
            {"partition": str(entry.topic_partition), "log_dir": entry.log_dir, "reason": entry.reason}
            for entry in snapshot.quarantine[:_MOST_OF_A_KIND]
        ],
        "retries": len(snapshot.retries),
        "jobs": [
            {"id": job.id, "partition": str(job.partition), "state": job.state}
            for job in snapshot.jobs[:_MOST_OF_A_KIND]
        ],
        "pauses": list(snapshot.pauses),
        "opens_at_ms": snapshot.opens_at_ms,
        "throttle": dataclasses.asdict(snapshot.throttle) | {"log_dirs": dict(snapshot.throttle.log_dirs)},
        "config_file": snapshot.config.file,
        "is_last_reload_good": snapshot.config.is_last_reload_good,
        "reload_errors": list(snapshot.config.errors[:_MOST_OF_A_KIND]),
        "needs_restart": list(snapshot.config.needs_restart),
    }


def _log_dir(view: LogDirView) -> dict[str, object]:
    return {
        "path": view.path,
        "condition": view.condition.value,
        "detail": view.detail,
        "partitions": view.partitions,
        "workers": view.workers,
        "free_bytes": view.free_bytes,
        "looked_at_ms": view.looked_at_ms,
    }


def _worker(view: WorkerView) -> dict[str, object]:
    return {
        "name": view.name,
        "partition": None if view.partition is None else str(view.partition),
        "phase": view.phase,
        "done_bytes": view.done_bytes,
        "total_bytes": view.total_bytes,
        "since_ms": view.since_ms,
        "is_stopping": view.is_stopping,
    }
