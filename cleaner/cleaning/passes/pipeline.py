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

Threads that take the GIL from each other all the time are slower together than one of them alone: a thread that lets go
of it for a moment has it back before another one wakes up. It happens where chunks are tiny (thousands of segments of
some KB), or where a library unpacks each of many small batches. So the processor time of every chunk is held against
how often the GIL was let go for it, and while it is not worth that, all threads but the caller's stand aside.

When a step fails, chunks before the failed one are still committed and none behind it is; `run` raises the error of the
earliest chunk, the same one that a single lane would have met.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from cleaner.errors import forget_frames

LANES_PER_THREAD = 2
# Processor time between two moments at which the GIL is let go, from which on it can be shared: about what it takes a
# thread to wake up.
_WORTH_SHARING_NS = 40_000
_RELEASES_A_CHUNK = 3  # beside those a lane tells of; there are some more, but they are as long as the chunk


def lanes_for(threads: int) -> int:
    """Return how many lanes keep so many threads busy."""
    return 1 if threads == 1 else LANES_PER_THREAD * threads


def threads_of(lanes: Sequence[object]) -> int:
    """Return how many threads, the caller's included, so many lanes keep busy."""
    return max(1, len(lanes) // LANES_PER_THREAD)


class Lane(Protocol):
    """The steps of one chunk over its own memory."""

    def take(self) -> bool:
        """Take the next chunk's place; False when there is none. Called in order, never for two lanes at once."""

    def fill(self) -> None:
        """Get what is at the place taken."""

    def arrange(self) -> None:
        """See how the chunk follows the one before. Called in the order of `take`, never for two lanes at once."""

    def work(self) -> int:
        """Work on the chunk taken. Returns how many batches a library was called for, each time without the GIL."""

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
    parked: dict[int, _Job[LaneT]] = field(default_factory=dict)


@dataclass
class _Job(Generic[LaneT]):
    """
    A chunk to go on with: from its filling on, or from the step in order it was parked before.

    Attributes:
        filling_ns: processor time it took to fill.
    """

    lane: LaneT
    number: int
    turn: _Turn[LaneT] | None = None
    filling_ns: int = 0


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
        lock = threading.RLock()
        self._change = threading.Condition(lock)
        self._sharing = threading.Condition(lock)
        # All guarded by the lock. A lane is free, parked, ready (its turn has come), or in some thread's hands.
        self._free = deque(lanes)
        self._ready: deque[_Job[LaneT]] = deque()
        self._arranging: _Turn[LaneT] = _Turn()
        self._committing: _Turn[LaneT] = _Turn()
        self._taken = 0
        self._is_taking = self._is_exhausted = False
        self._waiting = 0
        self._is_worth_sharing = True
        self._failed_at: int | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run all lanes to the end. Raises what the earliest failing step raised."""
        threads: list[threading.Thread] = []
        try:
            for number in range(1, self._threads):
                thread = threading.Thread(target=self._help, name=f"{self._name}-{number}")
                thread.start()
                threads.append(thread)
            self._drive()
        except BaseException as error:  # noqa: BLE001 - no thread could be started, or interrupted: raised once all have ended
            self._fail(_BEFORE_ALL_CHUNKS, error)
        for thread in threads:
            self._join(thread)
        # Lanes may know the error, and the error all functions that it came through, with the lanes they worked on:
        # a circle that would keep them until somebody looks for circles.
        self._free.clear()
        if (failure := self._error) is not None:
            self._error = None
            forget_frames(failure)
            try:
                raise failure
            finally:
                del failure

    def _join(self, thread: threading.Thread) -> None:
        # Not left before its end, interrupted or not: the caller closes files that it may be reading.
        while thread.is_alive():
            try:
                thread.join()
            except BaseException as error:  # noqa: BLE001 - raised once all have ended
                self._fail(_BEFORE_ALL_CHUNKS, error)

    def _help(self) -> None:
        self._drive(is_helper=True)

    def _drive(self, is_helper: bool = False) -> None:
        number = _BEFORE_ALL_CHUNKS
        try:
            while (job := self._next_job(is_helper)) is not None:
                number = job.number
                self._advance(job)
                number = _BEFORE_ALL_CHUNKS
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
            self._fail(number, error)
            if number != _BEFORE_ALL_CHUNKS:
                self._drive(is_helper)  # chunks before the failed one may be parked

    def _next_job(self, is_helper: bool) -> _Job[LaneT] | None:
        """Return something to do, waiting for it if need be; None once all is done."""
        with self._change:
            while is_helper and not self._is_worth_sharing and not self._is_exhausted:
                self._sharing.wait()
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
        return self._take(lane, number, is_helper)

    def _is_all_in_hands(self) -> bool:
        """Tell whether no chunk waits for its turn: what is left is in other threads' hands, which see to it."""
        return not self._is_taking and not self._arranging.parked and not self._committing.parked

    def _take(self, lane: LaneT, number: int, is_helper: bool) -> _Job[LaneT] | None:
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
                self._sharing.notify_all()
            self._wake()
        return _Job(lane, number) if is_there else self._next_job(is_helper)

    def _advance(self, job: _Job[LaneT]) -> None:
        """Take a chunk as far as it gets: to its end, or to a step whose turn has not come."""
        lane, turn = job.lane, job.turn
        if turn is None:
            began_ns = time.thread_time_ns()
            lane.fill()
            job.filling_ns = time.thread_time_ns() - began_ns
            if not self._is_turn(self._arranging, job):
                return
        if turn is not self._committing:
            lane.arrange()
            self._pass_on(self._arranging)
            began_ns = time.thread_time_ns()
            calls = lane.work()
            self._weigh(job.filling_ns + time.thread_time_ns() - began_ns, _RELEASES_A_CHUNK + calls)
            if not self._is_turn(self._committing, job):
                return
        lane.commit()
        self._pass_on(self._committing)
        lane.finish()
        with self._change:
            self._free.append(lane)
            self._wake()

    def _weigh(self, processor_ns: int, releases: int) -> None:
        """Decide by the chunk worked on last whether other threads may take part."""
        is_worth_sharing = processor_ns >= releases * _WORTH_SHARING_NS
        if is_worth_sharing is not self._is_worth_sharing and self._threads > 1:
            with self._change:
                self._is_worth_sharing = is_worth_sharing
                if is_worth_sharing:
                    self._sharing.notify_all()

    def _is_turn(self, turn: _Turn[LaneT], job: _Job[LaneT]) -> bool:
        """Tell whether a chunk's turn for a step has come; if not it is parked, or forgotten behind a failure."""
        with self._change:
            if self._is_behind_failure(job.number):
                return False
            if turn.number == job.number:
                return True
            job.turn = turn
            turn.parked[job.number] = job
            return False

    def _pass_on(self, turn: _Turn[LaneT]) -> None:
        """Let the next chunk have its turn."""
        with self._change:
            turn.number += 1
            job = turn.parked.pop(turn.number, None)
            if job is not None:
                self._ready.append(job)
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
                turn.parked = {n: job for n, job in turn.parked.items() if not self._is_behind_failure(n)}
            self._change.notify_all()
            self._sharing.notify_all()
