"""
One round of each cleaner on a copy of a log, timed: ours in this process, Kafka's in a JVM that stays, and `cp -r`.

A round is everything from loading the partition to closing it: map, copy, checks, fsyncs, swap, checkpoint. Copies are
made and synced before the clock starts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import cleaner
from benchmarks.inputs import PARTITION
from tests.kafka.rig import WARM_BENCH, Rig

NOW_MS = 1_700_003_600_000
HEAP = "1g"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


class RoundFailed(Exception):
    """A cleaner did not clean, or not what the other did."""


class Round(NamedTuple):
    """Seconds of one round and of its two passes; `whole` has loading and closing too."""

    whole: float
    map: float
    copy: float
    messages_read: int
    messages_written: int


def copy(source: Path, target: Path) -> Path:
    """Copy a log dir with its times and wait for the disk; nothing of the copying falls into what is measured after."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)
    os.sync()
    return target


def clean_ours(log_dir: Path, threads: int | None = None, topic: Mapping[str, str] = NO_SETTINGS) -> Round:
    """One round in this process; `threads` None: as many as there are by default."""
    settings = {"cleanup.policy": "compact", **topic}
    if threads is not None:
        settings["cleaner.pipeline.threads"] = str(threads)
    began = time.perf_counter()
    report = cleaner.clean(log_dir, PARTITION, settings, now_ms=NOW_MS)
    whole = time.perf_counter() - began
    if report.rounds != 1:
        raise RoundFailed(f"{log_dir}: {report.rounds} rounds: {report.note}")
    return Round(whole, report.map_seconds, report.copy_seconds, report.messages_read, report.messages_written)


def copy_plainly(source: Path, target: Path) -> float:
    """
    Return the seconds of `cp -r`, `sync` and `rm -r` of what was copied: all bytes read, written and removed once.

    A round does that too, to the bytes that stay and to those that do not.
    """
    mine = copy(source, target.with_name(f"{target.name}-source"))
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    began = time.perf_counter()
    subprocess.run(["cp", "-r", mine, target], check=True)
    os.sync()
    subprocess.run(["rm", "-r", mine], check=True)
    return time.perf_counter() - began


class WarmKafka:
    """
    Kafka's cleaner in one JVM that waits for the next log dir, so that rounds of others can be run in between.

    What its round is charged with is loading, `Cleaner.clean`, the checkpoint and closing; neither the start of the
    JVM, nor a garbage collection before each round, nor allocating the offset map, which a broker does once.
    """

    def __init__(self, kafka: Rig) -> None:
        self._command = kafka.command(WARM_BENCH, heap=HEAP)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> WarmKafka:
        """Start the JVM."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, _value: object, _trace: TracebackType | None) -> None:
        """End it."""
        process, self._process = self._process, None
        if process is None:
            return
        if kind is not None:
            process.kill()
        process.communicate()

    def clean(self, log_dir: Path, topic: Mapping[str, str] = NO_SETTINGS) -> Round:
        """One round, with these settings of the topic."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RoundFailed("Kafka's cleaner has not been started")
        process.stdin.write("\t".join([str(log_dir), *(f"{key}={value}" for key, value in topic.items())]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        found: dict[str, Any] = json.loads(answer) if answer else {"error": "the JVM has ended"}
        if "error" in found or not found["cleaned"]:
            raise RoundFailed(f"{log_dir}: Kafka: {found.get('error', 'nothing to clean')}")
        total = found["total_seconds"]
        whole = found["load_seconds"] + total + found["checkpoint_seconds"] + found["close_seconds"]
        map_seconds = found["map_seconds"]
        return Round(whole, map_seconds, total - map_seconds, found["messages_read"], found["messages_written"])
