"""What the daemon writes to standard error on SIGUSR1: the stacks of all threads, and a snapshot as a line of JSON."""

from __future__ import annotations

import faulthandler
import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

from cleaner.base.json_values import JsonValue, described, format_json
from cleaner.daemon.snapshot import ServiceSnapshot

# A daemon with thousands of logs still writes one line that fits a journal's entry.
_MAX_OF_A_KIND = 20


def dump(snapshot: Callable[[], ServiceSnapshot], stream: TextIO) -> None:
    """
    Write the stacks of all threads, then the summary.

    In that order: a thread that never releases a lock may keep `snapshot` from returning, and then the stacks are what
    the operator needs.
    """
    stream.write(f"stacks of all threads, asked for by SIGUSR1:\n{_stacks()}")
    stream.flush()
    stream.write(format_json(summary(snapshot())) + "\n")
    stream.flush()


def _stacks() -> str:
    """
    Return the stacks.

    They are written to memory first: faulthandler holds the GIL while it writes, even to a pipe that no process reads.
    """
    with os.fdopen(os.memfd_create("cleaner-stacks"), "w+b") as memory:
        faulthandler.dump_traceback(memory, all_threads=True)
        memory.seek(0)
        return memory.read().decode(errors="replace")


def summary(snapshot: ServiceSnapshot) -> dict[str, JsonValue]:
    """Return a snapshot as JSON values: its logs only as counts, of other long lists the first few entries."""
    config = replace(snapshot.config, values=(), errors=snapshot.config.errors[:_MAX_OF_A_KIND])
    return described(
        "snapshot",
        replace(
            snapshot,
            logs=(),
            topics={},
            rounds=(),
            queue=snapshot.queue[:_MAX_OF_A_KIND],
            quarantine=snapshot.quarantine[:_MAX_OF_A_KIND],
            retries=dict(itertools.islice(snapshot.retries.items(), _MAX_OF_A_KIND)),
            jobs=snapshot.jobs[:_MAX_OF_A_KIND],
            config=config,
        ),
    )
