"""Chunks processed in parallel: the order of their steps, whose error wins, and that no thread is left running."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import pytest

from cleaner.base import concurrency
from cleaner.cleaning.passes import pipeline
from cleaner.cleaning.passes.pipeline import LANES_PER_THREAD, OrderedPipeline, lanes_for, threads_of
from cleaner.errors import CleaningAborted
from tests.unit.cleaning.schedules import Deadlock, Schedule

NAME = "test-lane"
STEPS = ("take", "fill", "arrange", "work", "commit", "finish")
LANES = (1, 2, 3, 4, 7)
SECONDS = 30  # a test that waits as long has failed


class Clock:
    """Replaces the module `time`: each reading of a thread's processor time is 1 us later than the one before."""

    def __init__(self) -> None:
        self._now_ns = 0

    def thread_time_ns(self) -> int:
        """Return the time."""
        self._now_ns += 1000
        return self._now_ns


CROWDED = 100  # library calls that are too many for a chunk of 2 us


@pytest.fixture(autouse=True)
def processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every chunk 2 us of processor time or more, and set the cost of a GIL release to 0.1 us."""
    monkeypatch.setattr(pipeline, "time", Clock())
    monkeypatch.setattr(pipeline, "_WORTH_SHARING_NS", 100)


class Broken(Exception):
    """The error that a step of one chunk raises."""

    def __init__(self, step: str, chunk: int) -> None:
        super().__init__(f"{step} {chunk}")
        self.step = step
        self.chunk = chunk


class Book:
    """
    A log of so many chunks, and what the lanes did with it.

    Args:
        chunks: how many there are.
        broken: the steps that raise, each with its chunk.
        before: called ahead of each step, outside of any lock of ours, to hold a lane back.
    """

    def __init__(
        self,
        chunks: int,
        broken: Sequence[tuple[str, int]] = (),
        before: Callable[[str, int], None] = lambda step, chunk: None,
    ) -> None:
        self.chunks = chunks
        self.before = before
        self._broken = set(broken)
        self._lock = threading.Lock()
        self._inside: dict[str, int] = dict.fromkeys(STEPS, 0)
        self.max_inside: dict[str, int] = dict.fromkeys(STEPS, 0)
        self.done: dict[str, list[int]] = {step: [] for step in STEPS}
        self.threads: set[str] = set()
        self.next_chunk = 0
        self.takes_after_end = 0
        self.library_calls: Callable[[int], int] = lambda chunk: 0

    def step(self, step: str, chunk: int) -> None:
        """Record a step from its start to its end, or raise."""
        with self._lock:
            self.threads.add(threading.current_thread().name)
            self._inside[step] += 1
            self.max_inside[step] = max(self.max_inside[step], self._inside[step])
        try:
            self.before(step, chunk)
            if (step, chunk) in self._broken:
                raise Broken(step, chunk)
            with self._lock:
                self.done[step].append(chunk)
        finally:
            with self._lock:
                self._inside[step] -= 1


class PagedLane:
    """A lane over a book."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._chunk = -1

    def take(self) -> bool:
        """Take the next chunk."""
        if self._book.next_chunk == self._book.chunks:
            self._book.takes_after_end += 1
            return False
        self._book.step("take", self._book.next_chunk)
        self._chunk = self._book.next_chunk
        self._book.next_chunk += 1
        return True

    def fill(self) -> None:
        """Fill memory with it."""
        self._book.step("fill", self._chunk)

    def arrange(self) -> None:
        """Arrange it."""
        self._book.step("arrange", self._chunk)

    def work(self) -> int:
        """Work on it, with the libraries' help as the book says."""
        self._book.step("work", self._chunk)
        return self._book.library_calls(self._chunk)

    def commit(self) -> None:
        """Commit it."""
        self._book.step("commit", self._chunk)

    def finish(self) -> None:
        """Finish it."""
        self._book.step("finish", self._chunk)


def run(book: Book, lanes: int, threads: int | None = None) -> None:
    """Run a book to its end; none of our threads may be left, however it ends."""
    try:
        OrderedPipeline([PagedLane(book) for _ in range(lanes)], NAME, threads or lanes).run()
    finally:
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(NAME)]


class Meeting:
    """Makes threads wait until all have arrived."""

    def __init__(self, *expected: tuple[str, int]) -> None:
        self._expected = set(expected)
        self._barrier = threading.Barrier(len(expected))

    def __call__(self, step: str, chunk: int) -> None:
        """Wait for the others."""
        if (step, chunk) in self._expected:
            self._barrier.wait(SECONDS)


class After:
    """Delays one step until another has begun."""

    def __init__(self, late: tuple[str, int], early: tuple[str, int]) -> None:
        self._late = late
        self._early = early
        self._begun = threading.Event()

    def __call__(self, step: str, chunk: int) -> None:
        """Wait for the other step, or signal it."""
        if (step, chunk) == self._early:
            self._begun.set()
        if (step, chunk) == self._late:
            assert self._begun.wait(SECONDS)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("chunks", [0, 1, 2, 3, 50])
def test_every_chunk_takes_every_step_and_those_that_need_it_are_in_order(lanes: int, chunks: int) -> None:
    """One at a time, in the order of the log, with any number of lanes."""
    book = Book(chunks)
    run(book, lanes)
    everything = list(range(chunks))
    for step in ("take", "arrange", "commit"):
        assert book.done[step] == everything
        assert book.max_inside[step] <= 1
    for step in ("fill", "work", "finish"):
        assert sorted(book.done[step]) == everything


@pytest.mark.parametrize("lanes", LANES)
def test_exhausted_source_is_not_called_again(lanes: int) -> None:
    """Whichever lane finds the end: a generator as the source must not be resumed."""
    book = Book(5)
    run(book, lanes)
    assert book.takes_after_end == 1


def test_one_lane_starts_no_thread_and_its_steps_follow_each_other() -> None:
    """All of it happens on the caller's thread."""
    steps: list[tuple[str, int]] = []
    book = Book(3, before=lambda step, chunk: steps.append((step, chunk)))
    run(book, 1)
    assert book.threads == {threading.current_thread().name}
    assert steps == [(step, chunk) for chunk in range(3) for step in STEPS]


@pytest.mark.parametrize("lanes", [2, 3, 4])
def test_as_many_chunks_are_worked_on_at_once_as_there_are_lanes(lanes: int) -> None:
    """The caller's thread is one of them; the others have the pipeline's name."""
    book = Book(lanes, before=Meeting(*[("work", chunk) for chunk in range(lanes)]))
    run(book, lanes)
    assert book.max_inside["work"] == lanes
    named = {f"{NAME}-{number}" for number in range(1, lanes)}
    assert book.threads == named | {threading.current_thread().name}


def test_chunk_that_is_ready_early_waits_for_its_turn() -> None:
    """The second is committed after the first, though it was finished long before."""
    turns: list[tuple[str, int]] = []
    after = After(late=("work", 0), early=("work", 1))

    def before(step: str, chunk: int) -> None:
        after(step, chunk)
        if step == "commit":
            turns.append((step, chunk))

    run(Book(2, before=before), 2)
    assert turns == [("commit", 0), ("commit", 1)]


def test_finishes_may_overlap_and_need_no_order() -> None:
    """The bytes of two chunks may be written at the same time."""
    book = Book(2, before=Meeting(("finish", 0), ("finish", 1)))
    run(book, 2)
    assert book.max_inside["finish"] == 2
    book = Book(2, before=After(late=("finish", 0), early=("finish", 1)))
    run(book, 2)
    assert sorted(book.done["finish"]) == [0, 1]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("chunk", [0, 1, 6, 11])
def test_chunks_before_a_failure_are_committed_and_none_behind_it(lanes: int, step: str, chunk: int) -> None:
    """
    The error is the chunk's own.

    A finish comes after the commit, so that later chunks may be in when it fails: with another lane all of them, while
    the thread that is to fail waits for a processor.
    """
    book = Book(12, [(step, chunk)])
    with pytest.raises(Broken) as raised:
        run(book, lanes)
    assert (raised.value.step, raised.value.chunk) == (step, chunk)
    committed = book.done["commit"]
    assert committed == list(range(len(committed)))
    if step == "finish":
        assert len(committed) == chunk + 1 if lanes == 1 else len(committed) > chunk
    else:
        assert len(committed) == chunk
        assert sorted(book.done["finish"]) == committed
    if step != "finish" or lanes == 1:
        assert len(book.done["take"]) <= chunk + lanes


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("first", STEPS)
@pytest.mark.parametrize("second", STEPS)
def test_error_of_the_earliest_chunk_wins(lanes: int, first: str, second: str) -> None:
    """Two chunks in a row are broken: the error is the one that a single lane would raise."""
    for _ in range(5):
        book = Book(12, [(first, 4), (second, 5)])
        with pytest.raises(Broken) as raised:
            run(book, lanes)
        assert (raised.value.step, raised.value.chunk) == (first, 4)


@pytest.mark.parametrize("first", ["work", "commit"])
@pytest.mark.parametrize("second", ["take", "work"])
def test_error_of_the_earliest_chunk_wins_although_it_comes_later(first: str, second: str) -> None:
    """The later chunk has failed before the earlier one gets that far."""
    late = ("work", 4)
    book = Book(12, [(first, 4), (second, 5)], before=After(late=late, early=(second, 5)))
    with pytest.raises(Broken) as raised:
        run(book, 2)
    assert (raised.value.step, raised.value.chunk) == (first, 4)
    assert book.done["commit"] == [0, 1, 2, 3]


@pytest.mark.parametrize("step", ["take", "work"])
def test_chunk_before_an_earlier_failure_in_time_is_still_committed_and_finished(step: str) -> None:
    """The second chunk has failed while the first was still being worked on."""
    book = Book(5, [(step, 1)], before=After(late=("work", 0), early=(step, 1)))
    with pytest.raises(Broken) as raised:
        run(book, 2)
    assert raised.value.chunk == 1
    assert book.done["commit"] == book.done["finish"] == [0]


def test_lanes_that_wait_for_a_turn_that_never_comes_end() -> None:
    """Their chunks are after the failure: nothing of them is committed."""
    ready = threading.Barrier(4)

    def before(step: str, chunk: int) -> None:
        if step == "work":
            ready.wait(SECONDS)

    book = Book(4, [("work", 0)], before=before)
    with pytest.raises(Broken):
        run(book, 4)
    assert sorted(book.done["work"]) == [1, 2, 3]
    assert book.done["commit"] == book.done["finish"] == []


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("error", [CleaningAborted, KeyboardInterrupt, SystemExit, OSError])
def test_whatever_take_raises_is_raised_to_the_caller(lanes: int, error: type[BaseException]) -> None:
    """Asked to stop, the chunks before are committed, and it is the very same exception."""
    raised_here = error()

    def before(step: str, chunk: int) -> None:
        if (step, chunk) == ("take", 3):
            raise raised_here

    book = Book(8, before=before)
    with pytest.raises(error) as raised:
        run(book, lanes)
    assert raised.value is raised_here
    assert book.done["commit"] == [0, 1, 2]
    assert book.done["take"] == [0, 1, 2]
    assert book.takes_after_end == 0


@pytest.mark.parametrize("lanes", LANES)
def test_lanes_that_failed_run_again(lanes: int) -> None:
    """Their memory is used for the next log; the next run is not affected by the failure."""
    book = Book(6, [("work", 2)])
    paged = [PagedLane(book) for _ in range(lanes)]
    with pytest.raises(Broken):
        OrderedPipeline(paged, NAME, lanes).run()
    taken = len(book.done["take"])
    OrderedPipeline(paged, NAME, lanes).run()
    assert book.done["commit"] == [0, 1, *range(taken, 6)]


@pytest.mark.parametrize("last", [0, 2])
def test_threads_that_could_be_started_do_the_work_of_the_rest(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """The system has no more threads, or none at all."""
    start, refused = threading.Thread.start, threading.Event()

    def refuse_third(thread: threading.Thread) -> None:
        if thread.name > f"{NAME}-{last}":
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    def before(step: str, chunk: int) -> None:
        assert refused.wait(SECONDS)

    monkeypatch.setattr(threading.Thread, "start", refuse_third)
    book = Book(50, before=before)
    run(book, 5)
    assert book.done["commit"] == list(range(50))


def test_many_short_runs_with_failures_anywhere_agree_with_one_lane() -> None:
    """The same commits and the same error, for any scheduling of the threads."""
    for seed in range(60):
        broken = [(STEPS[(seed + i) % 3], (seed * 7 + i * 5) % 20) for i in range(3)]
        outcomes = set()
        for lanes in (1, 2, 4):
            book = Book(20, broken)
            with pytest.raises(Broken) as raised:
                run(book, lanes)
            outcomes.add((raised.value.step, raised.value.chunk, tuple(book.done["commit"])))
        assert len(outcomes) == 1, seed


def test_interrupt_while_the_last_thread_ends_is_raised_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller closes files that the thread may be reading."""
    join, interrupted = concurrency.Thread.join, threading.Event()
    meeting = Meeting(("work", 0), ("work", 1))

    def interrupted_join(thread: concurrency.Thread, timeout: float | None = None) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt
        join(thread, timeout)

    def before(step: str, chunk: int) -> None:
        meeting(step, chunk)
        if step == "finish" and threading.current_thread().name.startswith(NAME):
            assert interrupted.wait(SECONDS)

    monkeypatch.setattr(concurrency.Thread, "join", interrupted_join)
    book = Book(2, before=before)
    with pytest.raises(KeyboardInterrupt):
        run(book, 2)
    assert book.done["commit"] == sorted(book.done["finish"]) == [0, 1]


def test_lanes_for_threads_leave_each_thread_something_to_go_on_with() -> None:
    """One thread never waits for another, so one lane is enough for it."""
    assert [lanes_for(threads) for threads in (1, 2, 3, 8)] == [1, *(LANES_PER_THREAD * n for n in (2, 3, 8))]


def test_pipeline_starts_as_many_threads_as_its_lanes_are_for() -> None:
    """The caller's thread is one of them."""
    for threads in (1, 2, 4):
        book = Book(threads, before=Meeting(*[("work", chunk) for chunk in range(threads)]))
        OrderedPipeline([PagedLane(book) for _ in range(lanes_for(threads))], NAME).run()
        assert book.max_inside["work"] == len(book.threads) == threads


@pytest.mark.parametrize("late", ["fill", "arrange", "work", "commit"])
@pytest.mark.parametrize("lanes", [2, 4, 6])
def test_thread_goes_on_with_other_chunks_while_one_is_late(late: str, lanes: int) -> None:
    """All other lanes run until they need its turn; then their chunks are resumed in order."""
    furthest = "fill" if late in ("fill", "arrange") else "work"
    book = Book(3 * lanes, before=After((late, 0), (furthest, lanes - 1)))
    run(book, lanes, threads=2)
    for step in ("take", "arrange", "commit"):
        assert book.done[step] == list(range(3 * lanes))
    assert book.done[furthest][: lanes - 1] == list(range(1, lanes)) or late in ("arrange", "commit")


def test_chunks_before_a_failed_one_are_committed_though_they_were_parked() -> None:
    """A later failure does not drop them."""
    book = Book(9, [("fill", 3)], before=After(("fill", 0), ("fill", 3)))
    with pytest.raises(Broken) as raised:
        run(book, 4, threads=2)
    assert raised.value.chunk == 3
    assert book.done["commit"] == [0, 1, 2]
    assert sorted(book.done["finish"]) == [0, 1, 2]


class ScheduledBook(Book):
    """A book in which threads may switch at every step; checks that no thread waits without need."""

    def __init__(
        self, chunks: int, broken: Sequence[tuple[str, int]], schedule: Schedule, lanes: int, threads: int
    ) -> None:
        super().__init__(chunks, broken, before=self._look)
        self._schedule = schedule
        self._lanes = lanes
        self._threads = threads
        self._at: dict[threading.Thread, tuple[str, int]] = {}
        self.crowded: set[int] = set()
        self.library_calls = lambda chunk: CROWDED if chunk in self.crowded else 0

    def step(self, step: str, chunk: int) -> None:
        """Record which thread is at which step."""
        self._at[threading.current_thread()] = (step, chunk)
        try:
            super().step(step, chunk)
        finally:
            del self._at[threading.current_thread()]

    def _look(self, step: str, chunk: int) -> None:
        is_clear = set(self._schedule.runnable) == set(self._at)  # no thread is between two steps
        is_going_well = not self._broken and not self.crowded and not self._schedule.was_interrupted
        if is_clear and is_going_well and len(self._at) < self._threads:
            assert not self._ready(), "a thread waits, or has ended"
        self._schedule.pause()

    def _ready(self) -> list[tuple[str, int]]:
        """List the steps that a thread could continue with."""
        in_hands = {chunk for _, chunk in self._at.values()}
        ready = []
        for before, step in (("fill", "arrange"), ("work", "commit")):
            turn = len(self.done[step])
            if turn in self.done[before] and turn not in in_hands:
                ready.append((step, turn))
        is_taking = any(step == "take" for step, _ in self._at.values())
        if (
            not is_taking
            and not self.takes_after_end
            and len(self.done["take"]) - len(self.done["finish"]) < self._lanes
        ):
            ready.append(("take", len(self.done["take"])))
        return ready


@pytest.mark.parametrize("is_crowded", [False, True])
@pytest.mark.parametrize("broken", [0, 1, 3])
def test_any_schedule_ends_as_a_single_lane_does(
    broken: int, is_crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No deadlock, no chunk lost or out of order, no thread that waits while there is something to do."""
    for seed in range(500):
        rng, schedule = random.Random(seed), Schedule(seed)
        threads, chunks = rng.randint(2, 4), rng.randint(0, 9)
        lanes = rng.randint(threads, 3 * threads)
        steps = {(rng.choice(STEPS), rng.randrange(chunks)) for _ in range(broken if chunks else 0)}
        monkeypatch.setattr(pipeline, "concurrency", schedule)
        book = ScheduledBook(chunks, sorted(steps), schedule, lanes, threads)
        if is_crowded:
            book.crowded = {chunk for chunk in range(chunks) if rng.random() < 0.6}
        error = None
        try:
            run(book, lanes, threads)
        except Broken as raised:
            error = (raised.chunk, STEPS.index(raised.step))
        assert error == min(((chunk, STEPS.index(step)) for step, chunk in steps), default=None), seed
        committed = book.done["commit"]
        assert committed == list(range(len(committed))), seed
        assert all(book.max_inside[step] <= 1 for step in ("take", "arrange", "commit")), seed
        if error is None:
            assert len(committed) == len(book.done["finish"]) == chunks, seed
        elif STEPS[error[1]] != "finish":
            assert committed == sorted(book.done["finish"]) == list(range(error[0])), seed


@pytest.mark.parametrize("broken", [0, 1])
def test_interrupt_at_any_moment_ends_all_threads(broken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a step or between two, while waiting or while others end: it is raised unless an earlier chunk fails."""
    seen = 0
    for seed in range(300):
        rng = random.Random(seed)
        schedule = Schedule(seed, interrupt_at=rng.randint(1, 90))
        monkeypatch.setattr(pipeline, "concurrency", schedule)
        threads = rng.randint(1, 3)
        book = ScheduledBook(6, [(rng.choice(STEPS), rng.randrange(6))] * broken, schedule, 5, threads)
        raised: BaseException | None = None
        try:
            run(book, 5, threads)
        except (KeyboardInterrupt, Broken) as error:
            raised = error
        seen += isinstance(raised, KeyboardInterrupt)
        assert isinstance(raised, KeyboardInterrupt) == schedule.was_interrupted or broken, seed
        assert book.done["commit"] == list(range(len(book.done["commit"]))), seed
    assert seen > 50


def test_schedule_sees_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a waiting thread were not woken, the tests of schedules would report it."""
    monkeypatch.setattr(OrderedPipeline, "_wake", lambda self: None)
    seen = 0
    for seed in range(40):
        schedule = Schedule(seed)
        monkeypatch.setattr(pipeline, "concurrency", schedule)
        try:
            run(ScheduledBook(6, [], schedule, 4, 2), 4, 2)
        except (Deadlock, AssertionError):
            seen += 1
    assert seen > 5


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_lanes_tell_how_many_threads_they_keep_busy(threads: int) -> None:
    """The inverse of `lanes_for`."""
    assert threads_of(range(lanes_for(threads))) == threads


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_stand_aside_while_they_would_only_take_the_gil_from_each_other(threads: int) -> None:
    """Each processes at most the chunk that shows it; the caller's thread processes all others."""
    workers: list[str] = []
    book = Book(40, before=lambda step, _: workers.append(threading.current_thread().name) if step == "work" else None)
    book.library_calls = lambda chunk: CROWDED
    run(book, lanes_for(threads), threads)
    assert book.done["commit"] == list(range(40))
    helpers = [name for name in workers if name != threading.current_thread().name]
    assert len(helpers) == len(set(helpers)) <= threads - 1


def test_paused_threads_return_when_parallel_work_pays() -> None:
    """A codec may change in the middle of a log."""
    book = Book(40, before=Meeting(("work", 30), ("work", 31)))
    book.library_calls = lambda chunk: CROWDED if chunk < 20 else 0
    run(book, 4, threads=2)
    assert book.done["commit"] == list(range(40))


def test_thread_that_stands_aside_ends_with_the_others() -> None:
    """At the end, or at a failure."""
    for broken in ([], [("commit", 30)], [("take", 30)], [("work", 39)]):
        book = Book(40, broken)
        book.library_calls = lambda chunk: CROWDED
        if broken:
            with pytest.raises(Broken):
                run(book, 4, threads=2)
        else:
            run(book, 4, threads=2)


def test_interrupt_of_a_start_does_not_leave_the_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that runs already when its start is interrupted, and works on a chunk, is waited for."""
    may_end, is_at_work, ended = threading.Event(), threading.Event(), []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            super().start()
            assert is_at_work.wait(SECONDS)
            threading.Timer(0.1, may_end.set).start()
            raise KeyboardInterrupt

    class OneChunk:
        """A lane whose only chunk takes until it may end."""

        def __init__(self) -> None:
            self.taken = False

        def take(self) -> bool:
            self.taken, was_taken = True, self.taken
            return not was_taken

        def fill(self) -> None:
            is_at_work.set()
            assert may_end.wait(SECONDS)
            ended.append("fill")

        def arrange(self) -> None:
            """Do nothing."""

        def work(self) -> int:
            return 0

        def commit(self) -> None:
            """Do nothing."""

        def finish(self) -> None:
            """Do nothing."""

    monkeypatch.setattr(concurrency, "Thread", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        OrderedPipeline([OneChunk()], NAME, threads=2).run()
    assert ended == ["fill"]
