"""
Chunks worked on side by side, by threads that end before `run` returns.

Each pass over a log is the same three steps for every chunk: *take* it from the files, *work* on it, *commit* the
result. Taking and committing happen in the log's order, one chunk at a time; the work in between, which is nearly all
of it, runs on as many threads as there are lanes. The kernels hold no GIL, so lanes scale over cores.

A lane is one thread's memory: its read buffer and whatever else a chunk needs until it is committed. With one lane
there is no thread at all and the steps simply follow each other.

When a step fails, chunks before the failed one are still committed and none behind it is; `run` raises the error of the
earliest chunk, the same one that a single lane would have met.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar


class Lane(Protocol):
    """The steps of one thread over its own memory."""

    def take(self) -> bool:
        """Take the next chunk; False when there is none. Called in order, never by two lanes at once."""

    def work(self) -> None:
        """Work on the chunk taken."""

    def commit(self) -> None:
        """Commit the result. Called in the order of `take`, never by two lanes at once."""

    def finish(self) -> None:
        """Do what is left and needs no order."""


LaneT = TypeVar("LaneT", bound=Lane)

_BEFORE_ALL_CHUNKS = -1


class OrderedPipeline(Generic[LaneT]):
    """
    Runs lanes until one of them finds nothing more to take.

    Args:
        lanes: at least one.
        name: of the threads.
    """

    def __init__(self, lanes: Sequence[LaneT], name: str) -> None:
        self._lanes = lanes
        self._name = name
        self._source = threading.Lock()
        self._turn = threading.Condition()
        # Guarded by _source: the number of the next chunk, and whether there is one.
        self._taken = 0
        self._is_exhausted = False
        # Guarded by _turn: the number of the chunk to be committed next, and the earliest failure.
        self._committed = 0
        self._failed_at: int | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all lanes to the end. Raises what the earliest failing step raised."""
        threads: list[threading.Thread] = []
        try:
            for number, lane in enumerate(self._lanes[1:], 1):
                thread = threading.Thread(target=self._drive, args=(lane,), name=f"{self._name}-{number}")
                thread.start()
                threads.append(thread)
            self._drive(self._lanes[0])
        except BaseException as error:  # noqa: BLE001 - no thread to be had, or interrupted: raised once all have ended
            self._fail(_BEFORE_ALL_CHUNKS, error)
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _drive(self, lane: LaneT) -> None:
        while (number := self._take(lane)) is not None:
            try:
                lane.work()
                if not self._commit(lane, number):
                    return
                lane.finish()
            except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
                self._fail(number, error)
                return

    def _take(self, lane: LaneT) -> int | None:
        with self._source:
            if self._is_exhausted:
                return None
            number = self._taken
            try:
                if lane.take():
                    self._taken += 1
                    return number
            except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
                self._fail(number, error)
            self._is_exhausted = True
            return None

    def _commit(self, lane: LaneT, number: int) -> bool:
        """Wait for the chunk's turn and commit it. Returns whether it came: not behind a failure."""
        with self._turn:
            while self._committed != number and not self._is_behind_failure(number):
                self._turn.wait()
            if self._is_behind_failure(number):
                return False
        # Only the lane whose turn it is gets here, so the commit itself needs no lock.
        lane.commit()
        with self._turn:
            self._committed += 1
            self._turn.notify_all()
        return True

    def _is_behind_failure(self, number: int) -> bool:
        return self._failed_at is not None and number > self._failed_at

    def _fail(self, number: int, error: BaseException) -> None:
        with self._turn:
            if self._failed_at is None or number < self._failed_at:
                self._failed_at, self._error = number, error
            self._turn.notify_all()
        self._is_exhausted = True
