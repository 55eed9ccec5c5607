"""
Chunks worked on side by side, by threads that end before `run` returns.

Each pass over a log is the same steps for every chunk: *take* a place in the files, *fill* memory with what is there,
*arrange* it behind the chunk before, *work* on it, *commit* the result, *finish*. Taking, arranging and committing
happen in the log's order, one chunk at a time, and are short; the steps in between, which are nearly all of the time,
run side by side. Reads and kernels hold no GIL, so threads scale over cores.

A lane is one chunk's memory: its read buffer and whatever else a chunk needs until it is committed. There are more
lanes than threads: a chunk whose turn has not come is parked and its thread goes on with another one, since waking a
thread that waits takes as long as many a chunk. With one lane there is no thread at all and the steps simply follow
each other.

When a step fails, chunks before the failed one are still committed and none behind it is; `run` raises the error of the
earliest chunk, the same one that a single lane would have met.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

LANES_PER_THREAD = 2
_MANY_SEGMENTS = 50
_TINY_PART_OF_WINDOW = 8


def lanes_for(threads: int) -> int:
    """Return how many lanes keep so many threads busy."""
    return 1 if threads == 1 else LANES_PER_THREAD * threads


def threads_of(lanes: Sequence[object]) -> int:
    """Return how many threads, the caller's included, so many lanes keep busy."""
    return max(1, len(lanes) // LANES_PER_THREAD)


def worth_having(lanes: Sequence[LaneT], sizes: Sequence[int], window_bytes: int) -> Sequence[LaneT]:
    """
    Return the lanes that gain anything on segments of some sizes: a single one if there are many and they are tiny.

    Passing a chunk on and taking the GIL from each other then takes two threads longer than the work itself takes one.
    """
    is_tiny = len(sizes) >= _MANY_SEGMENTS and sum(sizes) < len(sizes) * window_bytes // _TINY_PART_OF_WINDOW
    return lanes[:1] if is_tiny else lanes


class Lane(Protocol):
    """The steps of one chunk over its own memory."""

    def take(self) -> bool:
        """Take the next chunk's place; False when there is none. Called in order, never for two lanes at once."""

    def fill(self) -> None:
        """Get what is at the place taken."""

    def arrange(self) -> None:
        """See how the chunk follows the one before. Called in the order of `take`, never for two lanes at once."""

    def work(self) -> None:
        """Work on the chunk taken."""

    def commit(self) -> None:
        """Commit the result. Called in the order of `take`, never for two lanes at once."""

    def finish(self) -> None:
        """Do what is left and needs no order."""


LaneT = TypeVar("LaneT", bound=Lane)

_BEFORE_ALL_CHUNKS = -1


@dataclass
class _Turn(Generic[LaneT]):
    """A step that happens in order: the chunk whose turn it is, and lanes with later ones that are ready for it."""

    number: int = 0
    parked: dict[int, LaneT] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job(Generic[LaneT]):
    """A chunk to go on with: from its filling on, or from the step in order it was parked before."""

    lane: LaneT
    number: int
    turn: _Turn[LaneT] | None = None


class OrderedPipeline(Generic[LaneT]):
    """
    Runs lanes until one of them finds nothing more to take.

    Args:
        lanes: at least one.
        name: of the threads.
        threads: how many, the caller's included; None for as many as `lanes_for` has made the lanes for.
    """

    def __init__(self, lanes: Sequence[LaneT], name: str, threads: int | None = None) -> None:
        self._threads = threads or threads_of(lanes)
        self._name = name
        self._change = threading.Condition()
        # All guarded by _change. A lane is free, parked, ready (its turn has come), or in some thread's hands.
        self._free = deque(lanes)
        self._ready: deque[_Job[LaneT]] = deque()
        self._arranging: _Turn[LaneT] = _Turn()
        self._committing: _Turn[LaneT] = _Turn()
        self._taken = 0
        self._is_taking = self._is_exhausted = False
        self._waiting = 0
        self._failed_at: int | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all lanes to the end. Raises what the earliest failing step raised."""
        threads: list[threading.Thread] = []
        try:
            for number in range(1, self._threads):
                thread = threading.Thread(target=self._drive, name=f"{self._name}-{number}")
                thread.start()
                threads.append(thread)
            self._drive()
        except BaseException as error:  # noqa: BLE001 - no thread to be had, or interrupted: raised once all have ended
            self._fail(_BEFORE_ALL_CHUNKS, error)
        for thread in threads:
            self._join(thread)
        if self._error is not None:
            raise self._error

    def _join(self, thread: threading.Thread) -> None:
        # Not left before its end, interrupted or not: the caller closes files that it may be reading.
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:  # noqa: BLE001 - raised once all have ended
                self._fail(_BEFORE_ALL_CHUNKS, error)

    def _drive(self) -> None:
        number = _BEFORE_ALL_CHUNKS
        try:
            while (job := self._next_job()) is not None:
                number = job.number
                self._advance(job)
                number = _BEFORE_ALL_CHUNKS
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
            self._fail(number, error)
            if number != _BEFORE_ALL_CHUNKS:
                self._drive()  # chunks before the failed one may be parked

    def _next_job(self) -> _Job[LaneT] | None:
        """Return something to do, waiting for it if need be; None once all is done."""
        with self._change:
            while self._failed_at != _BEFORE_ALL_CHUNKS:
                while self._ready:
                    job = self._ready.popleft()
                    if not self._is_behind_failure(job.number):
                        return job
                if not self._is_exhausted and not self._is_taking and self._free:
                    lane, number = self._free.pop(), self._taken
                    self._is_taking = True
                    break
                if self._is_exhausted and self._is_all_in_hands():
                    self._change.notify_all()
                    return None
                self._waiting += 1
                self._change.wait()
                self._waiting -= 1
            else:
                return None
        return self._take(lane, number)

    def _is_all_in_hands(self) -> bool:
        """Tell whether no chunk waits for its turn: what is left is in other threads' hands, which see to it."""
        return not self._is_taking and not self._arranging.parked and not self._committing.parked

    def _take(self, lane: LaneT, number: int) -> _Job[LaneT] | None:
        is_there = False
        try:
            is_there = lane.take()
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
            self._fail(number, error)
        with self._change:
            self._is_taking = False
            if is_there:
                self._taken += 1
            else:
                self._is_exhausted = True
                self._free.append(lane)
            self._wake()
        return _Job(lane, number) if is_there else self._next_job()

    def _advance(self, job: _Job[LaneT]) -> None:
        """Take a chunk as far as it gets: to its end, or to a step whose turn has not come."""
        lane, number = job.lane, job.number
        if job.turn is None:
            lane.fill()
            if not self._is_turn(self._arranging, lane, number):
                return
        if job.turn is not self._committing:
            lane.arrange()
            self._pass_on(self._arranging)
            lane.work()
            if not self._is_turn(self._committing, lane, number):
                return
        lane.commit()
        self._pass_on(self._committing)
        lane.finish()
        with self._change:
            self._free.append(lane)
            self._wake()

    def _is_turn(self, turn: _Turn[LaneT], lane: LaneT, number: int) -> bool:
        """Tell whether a chunk's turn for a step has come; if not it is parked, or forgotten behind a failure."""
        with self._change:
            if self._is_behind_failure(number):
                return False
            if turn.number == number:
                return True
            turn.parked[number] = lane
            return False

    def _pass_on(self, turn: _Turn[LaneT]) -> None:
        """Let the next chunk have its turn."""
        with self._change:
            turn.number += 1
            lane = turn.parked.pop(turn.number, None)
            if lane is not None:
                self._ready.append(_Job(lane, turn.number, turn))
                self._wake()

    def _wake(self) -> None:
        if self._waiting:
            self._change.notify_all()

    def _is_behind_failure(self, number: int) -> bool:
        return self._failed_at is not None and number > self._failed_at

    def _fail(self, number: int, error: BaseException) -> None:
        with self._change:
            if self._failed_at is None or number < self._failed_at:
                self._failed_at, self._error = number, error
            self._is_exhausted = True
            for turn in (self._arranging, self._committing):
                turn.parked = {n: lane for n, lane in turn.parked.items() if not self._is_behind_failure(n)}
            self._change.notify_all()
