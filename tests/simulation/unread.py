"""
Rounds that leave segments unread: in some worlds a log lives on for some rounds with key indexes, when all is well.

Before each round something is appended and something may happen to the indexes; after it, no key may be twice in the
clean section, and no tombstone there whose time has come.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from cleaner.log.manager import LogManager
from tests.simulation.bench import Bench
from tests.simulation.clients import records_of
from tests.simulation.found import Found, Wrong, checkpoints_of
from tests.simulation.topics import MAIN

_ROUNDS = 7
_SHARE = 0.7  # of `segment.bytes` that a segment has: two of them are no group
_FIRST = ("ab", "c", "de", "f")
_ACTS = ("", "", "lose", "tear", "change", "exchange", "exchange", "key")


class UnreadSegments:
    """
    See the head of the file.

    Args:
        bench: all is well; no other round runs.
        run_round: runs one to its end.
        seed: of the choices.
    """

    def __init__(self, bench: Bench, run_round: Callable[[], None], seed: object) -> None:
        self._bench = bench
        self._run_round = run_round
        self._rng = Random(f"{seed}/unread")

    def run(self, manager: LogManager) -> None:
        """Fill segments that stay, and clean the log again and again."""
        rng, due_ms = self._rng, -1
        for key in _FIRST:
            self._append(manager, key + "G" if rng.random() < 0.3 else key)
        for number in range(_ROUNDS):
            if number > 2:
                self._happen(rng.choice(_ACTS))
            keys = rng.choice(("h", "h", "gh", rng.choice("abcdef")))
            # A tombstone alone fills no segment: it needs a record with a value beside it to be a group of one.
            self._append(manager, keys + rng.choice("abcdef").upper() if rng.random() < 0.3 else keys)
            self._bench.clock.sleep(rng.choice((0.01, 0.01, 6)))
            due_ms = self._bench.clock.now_ms()
            self._run_round()
            self._judge(due_ms)

    def _append(self, manager: LogManager, keys: str) -> None:
        """Append a segment."""
        log, truth = manager.log(MAIN), self._bench.topics.now[MAIN]
        size = int(int(self._bench.settings["internal.segment.bytes"]) * _SHARE) // len(keys)
        sent = truth.send(keys, size, None)
        truth.answered(sent, log.append(records_of(sent)).base_offset)
        log.roll()
        truth.durable_below(log.flush())
        manager.upkeep.note_all()

    def _happen(self, act: str) -> None:
        """Let something happen to the indexes, on a disk that forgets nothing any more."""
        directory, rng = self._bench.index_dir, self._rng
        if directory is None:
            return
        indexes = sorted(directory.glob(f"*/{MAIN}-0/*.keys"))
        if act == "key":
            (directory / "cleaner-index.key").unlink(missing_ok=True)
        if not indexes:
            return
        path = rng.choice(indexes)
        if act == "lose":
            path.unlink()
        elif act == "tear":
            self._change(path, lambda data: data[: rng.randrange(len(data))])
        elif act == "change":
            self._change(path, lambda data: data[:-2] + bytes([data[-2] ^ 0x5A, data[-1]]))
        elif act == "exchange":
            other = rng.choice(indexes).read_bytes()
            path.write_bytes(other)
        self._bench.count(f"index: {act}")

    @staticmethod
    def _change(path: Path, change: Callable[[bytes], bytes]) -> None:
        path.write_bytes(change(path.read_bytes()))

    def _judge(self, due_ms: int) -> None:
        bench = self._bench
        if MAIN not in bench.cleaned:
            raise Wrong(f"all is well, and a round has cleaned only {bench.cleaned}: {bench.outcomes}")
        found = Found.of(bench.directory(MAIN))
        end = checkpoints_of(bench.log_dir, MAIN).get("cleaner-offset-checkpoint", 0)
        seen: dict[bytes | None, int] = {}
        for offset, record in sorted(found.records.items()):
            if offset >= end or found.producers[offset][1]:
                continue
            if record.key in seen:
                raise Wrong(f"after a round up to {end}, key {record.key!r} is at {seen[record.key]} and at {offset}")
            seen[record.key] = offset
            horizon = found.horizons.get(offset) if record.value is None else None
            if record.value is None and horizon is None:
                raise Wrong(f"the tombstone at {offset} has no horizon after a round up to {end}")
            if horizon is not None and horizon < due_ms:  # it may have been set by this round
                raise Wrong(f"the tombstone at {offset} might go at {horizon}, and is there after a round at {due_ms}")
