"""
Processes chunks in parallel, with threads that end before `run` returns.

Each pass over a log has the same steps for every chunk: *take* a place in the files, *fill* memory with its bytes,
*arrange* it after the previous chunk, *work* on it, *commit* the result, *finish*. Taking, arranging and committing run
in the log's order, one chunk at a time, and are short; the other steps take nearly all of the time and run in parallel.
Reads and kernels hold no GIL, so threads scale over cores.

A lane is the memory of one chunk. `docs/design.md` ("Parallel passes") says why there are more lanes than threads, and
why all threads except the caller's wait while sharing does not pay: a thread that releases the GIL for a moment has it
back before another one wakes up.

When a step fails, chunks before the failed one are still committed, and none after it; `run` raises the error of the
earliest chunk, the same error that a single lane would have raised.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError, forget_frames

LANES_PER_THREAD = 2
# Least processor time between two releases of the GIL at which sharing pays: about the time that a thread needs to wake
# up.
_WORTH_SHARING_NS = 40_000
_RELEASES_A_CHUNK = 3  # besides those that a lane reports; the remaining ones last as long as the chunk


def lanes_for(threads: int) -> int:
    """Return how many lanes keep this many threads busy."""
    return 1 if threads == 1 else LANES_PER_THREAD * threads


def threads_of(lanes: Sequence[object]) -> int:
    """Return how many threads, the caller's included, these lanes keep busy."""
    return max(1, len(lanes) // LANES_PER_THREAD)


class Lane(Protocol):
    """The steps of one chunk over its own memory."""

    def take(self) -> bool:
        """Take the next chunk's place; False if there is none. Called in order, never for two lanes at once."""

    def fill(self) -> None:
        """Read the bytes at this place."""

    def arrange(self) -> None:
        """Connect the chunk to the one before. Called in the order of `take`, never for two lanes at once."""

    def work(self) -> int:
        """Process the chunk. Returns for how many batches a library was called, each time without the GIL."""

    def commit(self) -> None:
        """Commit the result. Called in the order of `take`, never for two lanes at once."""

    def finish(self) -> None:
        """Do the remaining work, which needs no order."""


LaneT = TypeVar("LaneT", bound=Lane)

_BEFORE_ALL_CHUNKS = -1


@dataclass
class _Turn(Generic[LaneT]):
    """A step that runs in order: the chunk whose turn it is, and parked lanes with later chunks."""

    number: int = 0
    parked: dict[int, _Job[LaneT]] = field(default_factory=dict)


@dataclass
class _Job(Generic[LaneT]):
    """
    A chunk to continue: from `fill` on, or from the ordered step before which it was parked.

    Attributes:
        filling_ns: processor time of its `fill`.
    """

    lane: LaneT
    number: int
    turn: _Turn[LaneT] | None = None
    filling_ns: int = 0


class OrderedPipeline(Generic[LaneT]):
    """
    Runs lanes until there is nothing more to take.

    Args:
        lanes: at least one. The caller keeps no other reference to them: they are large, and refer to the caller.
        name: of the threads.
        threads: how many, the caller's included; None: the number that `lanes_for` made the lanes for.
    """

    def __init__(self, lanes: Sequence[LaneT], name: str, threads: int | None = None) -> None:
        self._threads = threads or threads_of(lanes)
        self._name = name
        # Taken itself, not by the conditions: these take it in Python, where an interrupt would leave it held for good.
        self._lock = concurrency.RLock()
        self._change = concurrency.Condition(self._lock)
        self._sharing = concurrency.Condition(self._lock)
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
        """Run all lanes to the end. Raises the error of the earliest failing step."""
        threads: list[concurrency.Thread] = []
        try:
            for number in range(1, self._threads):
                thread = concurrency.Thread(target=self._help, name=f"{self._name}-{number}")
                # First: an interrupt may come while `start` waits for a thread that runs already.
                threads.append(thread)
                try:
                    thread.start()
                except OutOfThreadsError:
                    break  # those that run do all the work
            self._drive()
        except BaseException as error:  # noqa: BLE001 - interrupted: raised once all have ended
            self._fail(_BEFORE_ALL_CHUNKS, error)
        interrupt = concurrency.join_all(threads)  # the caller closes files that they may be reading
        if interrupt is not None:
            self._fail(_BEFORE_ALL_CHUNKS, interrupt)
        del interrupt  # its traceback leads to this frame
        # Lanes may refer to the error, and its traceback to the lanes: a cycle that would keep both in memory until the
        # garbage collector runs.
        self._free.clear()
        if (failure := self._error) is not None:
            self._error = None
            forget_frames(failure)
            try:
                raise failure
            finally:
                del failure

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
        """Return a job, waiting for one if necessary; None once everything is done."""
        with self._lock:
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
                if self._is_exhausted and self._is_all_claimed():
                    self._change.notify_all()
                    return None
                self._waiting += 1
                self._change.wait()
                self._waiting -= 1
            else:
                return None
        return self._take(lane, number, is_helper)

    def _is_all_claimed(self) -> bool:
        """Tell whether no chunk waits for its turn: other threads are processing the rest."""
        return not self._is_taking and not self._arranging.parked and not self._committing.parked

    def _take(self, lane: LaneT, number: int, is_helper: bool) -> _Job[LaneT] | None:
        is_there = False
        try:
            is_there = lane.take()
        except BaseException as error:  # noqa: BLE001 - handed to `run`, which raises the earliest
            self._fail(number, error)
        with self._lock:
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
        """Process a chunk as far as possible: to its end, or to a step whose turn has not come."""
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
        with self._lock:
            self._free.append(lane)
            self._wake()

    def _weigh(self, processor_ns: int, releases: int) -> None:
        """Decide by the last processed chunk whether other threads may take part."""
        is_worth_sharing = processor_ns >= releases * _WORTH_SHARING_NS
        if is_worth_sharing is not self._is_worth_sharing and self._threads > 1:
            with self._lock:
                self._is_worth_sharing = is_worth_sharing
                if is_worth_sharing:
                    self._sharing.notify_all()

    def _is_turn(self, turn: _Turn[LaneT], job: _Job[LaneT]) -> bool:
        """Tell whether a chunk's turn for a step has come; if not, park it, or drop it after a failure."""
        with self._lock:
            if self._is_behind_failure(job.number):
                return False
            if turn.number == job.number:
                return True
            job.turn = turn
            turn.parked[job.number] = job
            return False

    def _pass_on(self, turn: _Turn[LaneT]) -> None:
        """Give the turn to the next chunk."""
        with self._lock:
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
        with self._lock:
            if self._failed_at is None or number < self._failed_at:
                self._failed_at, self._error = number, error
            self._is_exhausted = True
            for turn in (self._arranging, self._committing):
                turn.parked = {n: job for n, job in turn.parked.items() if not self._is_behind_failure(n)}
            self._change.notify_all()
            self._sharing.notify_all()
