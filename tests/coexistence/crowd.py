"""
One writer, and readers of several kinds, as processes of their own beside a cleaner.

    python -m tests.coexistence.crowd write LOG_DIR SECONDS RECORDS_A_SECOND
    python -m tests.coexistence.crowd read LOG_DIR SECONDS KIND...

The writer follows the script and closes in order; readers then read up to where it says the logs end. Each prints a
line of JSON with what it has done, and ends with an error if anything was not as it should be.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np

from cleaner import LogManager, LogReader, RecordColumns, open_reader
from cleaner.log.log import Log
from tests.cleaner_run import wait_until
from tests.coexistence.script import BLOCK, LAST_PART, PARTS, Part, Script, State
from tests.coexistence.witness import Seen, Witness
from tests.integration.log_dirs import offsets

PLAIN, TRANSACTIONAL = "plain", "transactional"
SCRIPTS = {PLAIN: Script(is_transactional=False), TRANSACTIONAL: Script(is_transactional=True)}
TOMBSTONES_STAY_MS = 3_000
TOPIC = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
    "segment.ms": "1000",
    "delete.retention.ms": str(TOMBSTONES_STAY_MS),
    "file.delete.delay.ms": "500",
    "flush.ms": "100",
}
MANAGER = {"replica.high.watermark.checkpoint.interval.ms": "200"}
ENDS = "ends.json"
_PATIENCE_SECONDS = 60.0
_TICKS_A_SECOND = 50
_BLOCKS_SHARE = 5  # one record in so many is of the log with transactions


# ---- the writer ------------------------------------------------------------------------------------------------------


class _Writing:
    """A scripted log that is written on."""

    def __init__(self, log: Log, script: Script) -> None:
        self.log = log
        self._script = script
        self._producers = {name: log.producer(name) for name in ("a", "b")} if script.is_transactional else {}

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.log.log_end_offset

    def append(self, count: int) -> None:
        """Append records outside of transactions."""
        self._append(Part("", self.end, self.end + count), 0)

    def append_block(self) -> None:
        """Append a block: two transactions, and records of nobody in between."""
        block, begin = divmod(self.end, BLOCK)
        assert begin == 0
        for producer in self._producers.values():
            producer.begin()
        for part in PARTS:
            self._append(part, block * BLOCK)
        for name, producer in self._producers.items():
            (producer.commit if self._script.commits(name, block) else producer.abort)()
        self._append(LAST_PART, block * BLOCK)

    def _append(self, part: Part, shift: int) -> None:
        keys, values = self._script.records(shift + part.begin, shift + part.end)
        where = self._producers[part.producer] if part.producer else self.log
        assert where.append(RecordColumns(keys=keys, values=values)).base_offset == shift + part.begin


def write(log_dir: Path, seconds: float, records_a_second: int) -> dict[str, object]:
    """Write as fast as told, for as long as told; returns how much it was."""
    moment = threading.Event()
    with LogManager(log_dir, MANAGER, cleaner=False) as manager:
        plain, transactional = (_Writing(manager.log(topic), script) for topic, script in SCRIPTS.items())
        began, tick = time.monotonic(), 0
        while tick < seconds * _TICKS_A_SECOND:
            tick += 1
            due = records_a_second * tick // _TICKS_A_SECOND
            while transactional.end < due // _BLOCKS_SHARE:
                transactional.append_block()
            missing = due - transactional.end - plain.end
            if missing > 0:
                plain.append(missing)
            moment.wait(max(0.0, began + tick / _TICKS_A_SECOND - time.monotonic()))
        took = time.monotonic() - began
        ends = {PLAIN: plain.end, TRANSACTIONAL: transactional.end}
    (log_dir.parent / ENDS).with_suffix(".new").write_text(json.dumps(ends))
    (log_dir.parent / ENDS).with_suffix(".new").rename(log_dir.parent / ENDS)
    return {"records": sum(ends.values()), "seconds": took}


# ---- the readers -----------------------------------------------------------------------------------------------------


class _Reading:
    """One reader of a scripted log."""

    def __init__(self, log_dir: Path, topic: str, *, committed: bool = False) -> None:
        self.script = SCRIPTS[topic]
        self.state = State(self.script)
        self.isolation = "read_committed" if committed else "read_uncommitted"
        self._directory = log_dir / f"{topic}-0"
        self._ends = log_dir.parent / ENDS
        self._topic = topic
        self._until = time.monotonic() + _PATIENCE_SECONDS
        self._committed = committed
        self.reader: LogReader = open_reader(log_dir, topic)

    def witness(self) -> Witness:
        """Return somebody who has seen nothing yet."""
        return Witness(
            self.script,
            committed=self._committed,
            active_base=self.active_base,
            tombstones_stay_ms=TOMBSTONES_STAY_MS,
        )

    def active_base(self) -> int:
        """Return the base offset of the last segment."""
        return max(int(path.name[:20]) for path in self._directory.iterdir() if path.suffix == ".log")

    def end(self) -> int | None:
        """Return where the log ends, once the writer has closed it."""
        return json.loads(self._ends.read_text())[self._topic] if self._ends.exists() else None

    def follow(self, witness: Witness, is_over: Callable[[], bool], *, until: str, as_objects: bool = False) -> None:
        """Follow from where the witness is, until the log's end, or until something else is over."""
        follower = self.reader.follow(witness.next_offset, isolation=self.isolation, until=until)  # type: ignore[arg-type]
        with follower:
            while not is_over():
                if as_objects:
                    witness.take(Seen.of_records(follower.poll(0.05)))
                elif (columns := follower.poll_columns(0.05)) is not None:
                    witness.take(Seen.of_columns(columns))
                if follower.next_offset == self.end():
                    return

    def finish(self, witness: Witness, **figures: object) -> dict[str, object]:
        """Judge the whole; returns what was seen."""
        end = self.end()
        assert end is not None
        witness.finish(end, self.state)
        return {"records": witness.count, "gaps": witness.gaps, **figures}


def _never() -> bool:
    return False


def _follow(log_dir: Path, topic: str, *, committed: bool, until: str, as_objects: bool = False) -> dict[str, object]:
    reading = _Reading(log_dir, topic, committed=committed)
    witness = reading.witness()
    reading.follow(witness, _never, until=until, as_objects=as_objects)
    return reading.finish(witness)


def _come_late(log_dir: Path, seconds: float) -> dict[str, object]:
    """Come when half of the time is over and the daemon has cleaned, however late both began."""
    threading.Event().wait(seconds / 2)
    wait_until(lambda: bool(offsets(log_dir, "cleaner").get(f"{TRANSACTIONAL}-0")), "the daemon cleans")
    found = _follow(log_dir, TRANSACTIONAL, committed=True, until="high_watermark")
    assert found["gaps"]
    return found


def _restart(log_dir: Path, seconds: float) -> dict[str, object]:
    """Follow, and begin anew now and then, from an offset that has been cleaned away."""
    rng, reading = Random(7), _Reading(log_dir, PLAIN)
    witness, restarts = reading.witness(), 0
    while True:
        until = time.monotonic() + seconds / 8
        reading.follow(witness, lambda until=until: time.monotonic() > until, until="end")  # type: ignore[misc]
        if reading.end() is not None and restarts:
            break
        seen = [columns.offsets for columns in reading.reader.columns(0, until="end")]
        if not seen:  # the writer has not begun yet
            continue
        there = np.concatenate(seen)
        gone = np.setdiff1d(np.arange(there[-1]), there, assume_unique=True)
        if len(gone):
            witness.start_at(int(gone[rng.randrange(len(gone))]))
            restarts += 1
    reading.follow(witness, _never, until="end")
    return reading.finish(witness, restarts=restarts)


def _restore(log_dir: Path, _seconds: float) -> dict[str, object]:
    """Take the state of both logs again and again, by `latest` and by reading all there is."""
    passes, keys = 0, 0
    readings = [_Reading(log_dir, topic, committed=True) for topic in SCRIPTS]
    are_over = False
    while not are_over:
        are_over = all(reading.end() is not None for reading in readings)
        for reading in readings:
            keys += _restore_once(reading, as_dict=passes % 3 == 2)
        passes += 1
    return {"passes": passes, "keys": keys}


def _restore_once(reading: _Reading, *, as_dict: bool) -> int:
    with reading.reader.latest() as latest:
        wanted = reading.state.shown(latest.next_offset)
        if as_dict:
            found = latest.to_dict()
            keys = [key.to_bytes(8) for key in reading.script.keys(wanted).tolist()]
            assert found.keys() == set(keys)
            assert [int.from_bytes(found[key][:8]) for key in keys] == wanted.tolist()
        else:
            offsets = [columns.offsets for columns in latest.columns()]
            assert np.array_equal(np.concatenate([np.zeros(0, np.int64), *offsets]), wanted)
    witness = reading.witness()
    for columns in reading.reader.columns(0, isolation="read_committed"):
        witness.take(Seen.of_columns(columns))
    return len(wanted)


KINDS: dict[str, Callable[[Path, float], dict[str, object]]] = {
    "plain": lambda log_dir, _: _follow(log_dir, PLAIN, committed=False, until="high_watermark"),
    "uncommitted": lambda log_dir, _: _follow(log_dir, TRANSACTIONAL, committed=False, until="end", as_objects=True),
    "committed": lambda log_dir, _: _follow(log_dir, TRANSACTIONAL, committed=True, until="high_watermark"),
    "late": _come_late,
    "restarting": _restart,
    "restoring": _restore,
}


def read(log_dir: Path, seconds: float, kinds: list[str]) -> dict[str, object]:
    """Be some readers at a time; returns what each has seen."""
    with ThreadPoolExecutor(len(kinds)) as pool:
        futures = {kind: pool.submit(KINDS[kind], log_dir, seconds) for kind in kinds}
        return {kind: future.result() for kind, future in futures.items()}


def main() -> None:
    """Be who one is told to be."""
    role, log_dir, seconds, *others = sys.argv[1:]
    if role == "write":
        done = write(Path(log_dir), float(seconds), int(others[0]))
    else:
        done = read(Path(log_dir), float(seconds), others)
    print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
