"""Group commit: one fsync for many, futures in order, and nothing after a failed fsync."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cleaner.base import concurrency
from cleaner.config.values import TopicConfig
from cleaner.errors import FailedFsyncError, ForkedError, LogClosedError, LogWriteError, UsageError
from cleaner.log.flusher import LogFlusher
from cleaner.log.work_threads import Work, WorkThreads
from tests.support.manual_clock import ManualClock
from tests.support.no_threads import start_no_more_threads


class _Log:
    """A log of offsets; its fsync waits at a gate, if one is set, or fails."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.flushes = 0
        self.error: LogClosedError | None = None
        self.gate: threading.Event | None = None
        self.is_flushing = threading.Event()

    def require_idle(self) -> None:
        pass

    def flush_to_disk(self) -> int:
        end = self.log_end_offset
        self.flushes += 1
        self.is_flushing.set()
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.flushed_offset = max(self.flushed_offset, end)
        return self.flushed_offset


class _Later:
    """Keeps the work submitted to another thread."""

    def __init__(self) -> None:
        self.asked: list[Work] = []

    def __call__(self, work: Work) -> None:
        self.asked.append(work)

    def run(self) -> None:
        asked, self.asked = self.asked, []
        self.asked = [work for work in asked if work()] + self.asked


def _call_back(work: Work) -> None:
    work()


def _flusher(
    log: _Log,
    submit: Callable[[Work], None],
    clock: ManualClock | None = None,
    call_back: Callable[[Work], None] = _call_back,
    **topic: int,
) -> LogFlusher:
    return LogFlusher(
        log,
        "a-0",
        submit=submit,
        call_back=call_back,
        wake=lambda: None,
        clock=clock or ManualClock(),
        topic=TopicConfig(**topic),  # type: ignore[arg-type]
        flushed=lambda _seconds, _offset: None,
    )


def _append(log: _Log, flusher: LogFlusher, count: int = 1) -> int:
    log.log_end_offset += count
    flusher.appended()
    return log.log_end_offset - 1


def test_futures_of_many_appends_share_one_fsync_and_are_resolved_in_order() -> None:
    """Also when they are asked for out of order."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    offsets = [_append(log, flusher) for _ in range(5)]
    order: list[int] = []

    def note(offset: int, _: object) -> None:
        order.append(offset)

    for offset in (3, 0, 4, 1, 2):
        flusher.durable(offsets[offset]).add_done_callback(partial(note, offset))
    assert len(later.asked) == 1
    later.run()
    assert (order, log.flushes) == ([0, 1, 2, 3, 4], 1)


def test_log_that_a_roll_has_flushed_is_not_due() -> None:
    """What waited is on disk without the flusher; if it stayed due, the thread of the tasks would turn all the time."""
    log, later, clock = _Log(), _Later(), ManualClock()
    flusher = _flusher(log, later, clock, flush_ms=100)
    _append(log, flusher)
    assert flusher.due_ns is not None
    log.flushed_offset = log.log_end_offset
    clock.move_on(1)
    assert flusher.due_ns is None
    _append(log, flusher)
    assert flusher.due_ns == clock.monotonic_ns() + 100 * 1_000_000


def test_append_during_a_look_is_due_in_time() -> None:
    """It was counted before the look forgot what had waited: nobody else would begin its time."""

    class Appending(_Log):
        looks = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "log_end_offset":
                self.looks += 1
                return 1 + (self.looks > 1)
            return super().__getattribute__(name)

    log, clock = Appending(), ManualClock()
    log.flushed_offset = 1
    flusher = _flusher(log, _Later(), clock, flush_ms=100)
    assert flusher.due_ns == clock.monotonic_ns() + 100 * 1_000_000


def test_append_alone_asks_for_no_flush() -> None:
    """By default the system decides when to write, as in Kafka."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    for _ in range(1000):
        _append(log, flusher)
    assert later.asked == []


def test_flush_messages_asks_for_a_flush_at_that_many_records() -> None:
    """`flush.messages` counts records, not appends."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later, flush_messages=10)
    _append(log, flusher, 9)
    assert not later.asked
    _append(log, flusher)
    later.run()
    assert log.flushed_offset == 10
    flusher.configure(TopicConfig(flush_messages=2))
    _append(log, flusher, 2)
    later.run()
    assert log.flushed_offset == 12


def test_flush_ms_counts_from_the_oldest_record_that_is_not_flushed() -> None:
    """And starts again after a flush."""
    log, clock = _Log(), ManualClock()
    flusher = _flusher(log, _Later(), clock, flush_ms=100)
    assert flusher.due_ns is None
    _append(log, flusher)
    clock.move_on(0.06)
    _append(log, flusher)
    assert not flusher.is_due(clock.monotonic_ns())
    clock.move_on(0.04)
    assert flusher.is_due(clock.monotonic_ns())
    flusher.flush()
    assert flusher.due_ns is None
    _append(log, flusher)
    assert flusher.due_ns == 200_000_000


def test_future_of_flushed_records_is_done_at_once() -> None:
    """For example of an append that was recognised as a repeat."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    offset = _append(log, flusher)
    flusher.flush()
    assert flusher.durable(offset).done()
    assert later.asked == []


def test_records_appended_during_an_fsync_wait_for_the_next_one() -> None:
    """An fsync covers the log up to its end when the fsync began."""
    log = _Log()
    log.gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        flusher = _flusher(log, lambda work: (pool.submit(work), None)[1])
        first = flusher.durable(_append(log, flusher))
        assert log.is_flushing.wait(10)
        later = [flusher.durable(_append(log, flusher)) for _ in range(50)]
        assert not first.done()
        log.gate.set()
        for future in (first, *later):
            future.result(10)
    assert log.flushes == 2


def test_callers_of_flush_share_fsyncs() -> None:
    """Ten threads that wait for one fsync need one more, not ten."""
    log = _Log()
    log.gate = threading.Event()
    flusher = _flusher(log, _Later())
    _append(log, flusher)
    with ThreadPoolExecutor(11) as pool:
        first = pool.submit(flusher.flush)
        assert log.is_flushing.wait(10)
        _append(log, flusher)
        others = [pool.submit(flusher.flush) for _ in range(10)]
        log.gate.set()
        assert first.result(10) >= 1
        assert [each.result(10) for each in others] == [2] * 10
    assert log.flushes <= 2


def test_failed_fsync_fails_all_current_and_later_callers() -> None:
    """C-2: no caller gets "on disk" when that is unknown; the fsync is not repeated."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    waiting = [flusher.durable(_append(log, flusher)) for _ in range(3)]
    log.error = FailedFsyncError(Path("a-0"), OSError(5, "EIO"))
    later.run()
    assert [type(future.exception(0)) for future in waiting] == [FailedFsyncError] * 3
    assert isinstance(flusher.durable(0).exception(0), FailedFsyncError)
    with pytest.raises(FailedFsyncError):
        flusher.flush()
    assert log.flushes == 1


def test_records_flushed_before_a_failure_stay_flushed() -> None:
    """The future of an earlier record is done, not failed."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    first = _append(log, flusher)
    flusher.flush()
    log.error = FailedFsyncError(Path("a-0"), OSError(5, "EIO"))
    last = flusher.durable(_append(log, flusher))
    later.run()
    assert last.exception(0) is not None
    assert flusher.durable(first).result(0) is None


def test_close_resolves_flushed_futures_and_fails_the_rest() -> None:
    """No caller waits forever."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    done = flusher.durable(_append(log, flusher))
    log.flushed_offset = 1  # closing the log has flushed it
    lost = flusher.durable(_append(log, flusher))
    flusher.close()
    assert done.result(0) is None
    assert isinstance(lost.exception(0), LogClosedError)
    later.run()
    assert log.flushes == 0


def _interrupt_opening(future: Any) -> None:
    """An interrupt at the first attempt to end a future."""
    real, calls = future.open, []

    def interrupted(error: BaseException | None) -> None:
        calls.append(error)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real(error)

    future.open = interrupted


def test_future_cannot_be_cancelled() -> None:
    """The flush is not called off, and what waits for it is told."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    assert not future.cancel()
    assert future.running()
    later.run()
    assert not future.running()
    assert not future.cancelled()
    assert future.result(0) is None


def test_waiting_for_some_of_several_futures() -> None:
    """`wait` and `as_completed` look into a future without asking it; a flush in a caller's thread is seen too."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    futures = [flusher.durable(_append(log, flusher)) for _ in range(2)]
    flusher.flush()
    assert all(future.done() for future in futures)
    later.run()
    assert wait(futures, 0).not_done == set()
    assert set(as_completed(futures, 0)) == set(futures)


def test_callback_may_ask_for_the_result_and_add_another() -> None:
    """It is called after the waiting callers were let go; one that comes later is called at once."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    seen: list[object] = []
    future.add_done_callback(lambda done: (seen.append(done.result()), done.add_done_callback(seen.append))[0])
    later.run()
    future.add_done_callback(seen.append)
    assert seen == [None, future, future]


def test_callback_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it: it is reported as any error in a thread that nobody catches."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    reported, seen = [], []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: reported.append(arguments.exc_type))
    future = flusher.durable(_append(log, flusher))
    future.add_done_callback(lambda _: 1 // 0)
    future.add_done_callback(lambda _: sys.exit(1))
    future.add_done_callback(seen.append)
    later.run()
    assert reported == [ZeroDivisionError, SystemExit]
    assert seen == [future]


def test_callback_may_append_and_flush() -> None:
    """In any thread."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    seen: list[int] = []

    def again(_: object) -> None:
        _append(log, flusher)
        seen.append(flusher.flush())

    flusher.durable(_append(log, flusher)).add_done_callback(again)
    later.run()
    assert seen == [2]


def test_request_interrupted_before_it_was_made_prevents_no_later_one() -> None:
    """A future ends whatever happened to a thread that requested a flush earlier."""
    log, later = _Log(), _Later()
    asked: list[int] = []

    def submit(work: Callable[[], None]) -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            raise KeyboardInterrupt
        later(work)

    flusher = _flusher(log, submit)
    first, second = _append(log, flusher), _append(log, flusher)
    with pytest.raises(KeyboardInterrupt):
        flusher.durable(first)
    future = flusher.durable(second)
    later.run()
    assert future.done()


def test_flush_interrupted_while_futures_are_resolved_leaves_none_waiting() -> None:
    """An interrupt in a callback, as at any line: another thread does the rest."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    futures = [flusher.durable(_append(log, flusher)) for _ in range(3)]
    _interrupt_opening(futures[1])
    with pytest.raises(KeyboardInterrupt):
        flusher.flush()
    assert [future.done() for future in futures] == [True, False, False]
    later.run()
    assert [future.done() for future in futures] == [True, True, True]
    assert wait(futures, 0).not_done == set()


def test_flush_that_runs_out_of_memory_fails_the_futures_that_wait() -> None:
    """In the flushing thread the error would be unseen, and the futures would wait forever."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    log.flush_to_disk = _out_of_memory  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        later.run()
    with pytest.raises(LogWriteError, match="MemoryError"):
        future.result(0)


def test_future_of_cut_records_fails() -> None:
    """It can never be flushed, whether requested before or after the cut; the rest is flushed."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    offsets = [_append(log, flusher) for _ in range(3)]
    before = [flusher.durable(offset) for offset in offsets[:2]]
    log.log_end_offset = 1
    later.run()
    after = flusher.durable(offsets[2])
    assert before[0].result(0) is None
    for future in (before[1], after):
        with pytest.raises(LogWriteError, match="was cut off"):
            future.result(0)


def test_future_is_resolved_after_a_cut_and_an_append_during_its_flush() -> None:
    """Its own request finds nothing left to flush: it makes another one."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher, 3))
    real = log.flush_to_disk

    def cut_and_grown() -> int:
        log.log_end_offset = 1
        flushed = real()
        log.log_end_offset = 5
        return flushed

    log.flush_to_disk = cut_and_grown  # type: ignore[method-assign]
    later.run()
    log.flush_to_disk = real  # type: ignore[method-assign]
    assert not future.done()
    later.run()
    assert future.done()


def test_flush_that_is_refused_fails_the_futures_that_wait() -> None:
    """Theirs was the last request, so no other would flush for them; later futures are flushed."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    refused = flusher.durable(_append(log, flusher))
    real = log.flush_to_disk
    log.flush_to_disk = _refuse  # type: ignore[method-assign]
    later.run()
    with pytest.raises(LogWriteError, match="refused"):
        refused.result(0)
    log.flush_to_disk = real  # type: ignore[method-assign]
    future = flusher.durable(_append(log, flusher))
    later.run()
    assert future.result(0) is None


def _refuse() -> int:
    raise LogWriteError("a-0", "refused")


def test_flush_interrupted_while_futures_are_failed_leaves_none_waiting() -> None:
    """An interrupt while futures are failed after a failed fsync: another thread fails the rest."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    futures = [flusher.durable(_append(log, flusher)) for _ in range(3)]
    log.error = FailedFsyncError("a-0", OSError("gone"))
    _interrupt_opening(futures[1])
    with pytest.raises(KeyboardInterrupt):
        flusher.flush()
    assert [future.done() for future in futures] == [True, False, False]
    later.run()
    assert wait(futures, 0).not_done == set()
    for future in futures:
        with pytest.raises(FailedFsyncError):
            future.result(0)


def _out_of_memory() -> int:
    raise MemoryError


def _alone(log: _Log, later: _Later) -> LogFlusher:
    """Return a flusher whose last futures had one caller each, which waited alone."""
    flusher = _flusher(log, later)
    for _ in range(2):
        future = flusher.durable(_append(log, flusher))
        flusher.on_wait(None)
        later.run()
        assert future.done()
    assert later.asked == []
    return flusher


def test_caller_who_waits_alone_again_flushes_by_itself() -> None:
    """No other thread is needed, and the request that was made for it does nothing."""
    log, later = _Log(), _Later()
    flusher = _alone(log, later)
    for _ in range(3):
        flusher.durable(_append(log, flusher)).result()
    assert (log.flushes, len(later.asked)) == (5, 1)
    later.run()
    later.run()
    assert (log.flushes, later.asked) == (5, [])


def test_postponed_flush_is_made_when_nobody_waits() -> None:
    """A caller who flushed by itself does not wait for its next record."""
    log, later = _Log(), _Later()
    flusher = _alone(log, later)
    future = flusher.durable(_append(log, flusher))
    later.run()
    assert not future.done()
    later.run()
    assert future.done()
    # And the next one is not postponed.
    future = flusher.durable(_append(log, flusher))
    later.run()
    assert future.done()


def test_postponed_flush_is_made_at_once_when_a_second_caller_waits() -> None:
    """Group commit is for them."""
    log, later = _Log(), _Later()
    flusher = _alone(log, later)
    futures = [flusher.durable(_append(log, flusher)) for _ in range(2)]
    assert len(later.asked) == 1
    flusher.on_wait(None)
    assert len(later.asked) == 2
    later.asked.pop(0)
    later.run()
    assert all(future.done() for future in futures)
    assert log.flushes == 3


@pytest.mark.parametrize("how", ["timeout", "callback"])
def test_postponed_flush_is_made_at_once_for_a_caller_who_cannot_flush(how: str) -> None:
    """A timeout must end while the disk hangs, and a callback's thread does not wait."""
    log, later = _Log(), _Later()
    flusher = _alone(log, later)
    future = flusher.durable(_append(log, flusher))
    if how == "timeout":
        with pytest.raises(TimeoutError):
            future.result(0)
    else:
        future.add_done_callback(lambda _: None)
    assert (log.flushes, len(later.asked)) == (2, 2)
    later.asked.pop(0)
    later.run()
    assert future.done()


@pytest.mark.parametrize("call", ["result", "exception"])
def test_failed_fsync_of_a_caller_alone_fails_all_futures(call: str) -> None:
    """As that of any other thread; what follows fails, too."""
    log, later = _Log(), _Later()
    flusher = _alone(log, later)
    future = flusher.durable(_append(log, flusher))
    log.error = FailedFsyncError("a-0", OSError("gone"))
    if call == "exception":
        assert future.exception() is log.error
    with pytest.raises(FailedFsyncError):
        future.result()
    log.error = None
    with pytest.raises(FailedFsyncError):
        flusher.durable(_append(log, flusher)).result(0)
    assert log.flushes == 3


def test_postponed_work_is_called_again_until_it_is_done() -> None:
    """Other work goes on meanwhile, and a shutdown waits for all of it."""
    threads, looks, done = WorkThreads(1), list(range(50)), threading.Event()

    def postponed() -> bool:
        looks.pop()
        return bool(looks)

    def other() -> bool:
        done.set()
        return False

    threads.submit(postponed)
    threads.submit(other)
    assert done.wait(10)
    threads.shutdown()
    assert looks == []


class _QueueOfCPython:
    """A `SimpleQueue` whose `get` with a timeout, having found that another thread was quicker, waits for good."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._items.put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        return self._items.get(block) if timeout is None else self._items.get()


def test_threads_rely_on_no_timeout_of_their_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "SimpleQueue", _QueueOfCPython)
    threads, looks, done = WorkThreads(2), list(range(5)), threading.Event()

    def postponed() -> bool:
        looks.pop()
        if not looks:
            done.set()
        return bool(looks)

    threads.submit(postponed)
    assert done.wait(10)
    threads.shutdown()


def test_work_that_many_postpone_at_once_is_all_looked_at_again() -> None:
    """One thread looks for all: none is left over when it stops looking, also at the end."""
    for number in range(300):
        threads, left = WorkThreads(4), [Random(number * 10 + each).randrange(4) for each in range(6)]
        done = [threading.Event() for _ in left]

        def look(at: int, left: list[int] = left, done: list[threading.Event] = done) -> bool:
            left[at] -= 1
            if left[at] < 0:
                done[at].set()
            return left[at] >= 0

        for at in range(len(left)):
            threads.submit(partial(look, at))
        if number % 2:
            assert all(each.wait(10) for each in done)
        threads.shutdown()
        assert set(left) == {-1}


def test_threads_that_could_not_be_started_are_started_by_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system had no thread left: the caller does the work, as others wait for it."""
    threads, looks, done = WorkThreads(2), [True, True, False], threading.Event()
    with monkeypatch.context() as patched:
        start_no_more_threads(patched)
        threads.submit(lambda: looks.pop(0))
        assert looks == []
    threads.submit(lambda: bool(done.set()))
    assert done.wait(10)
    threads.shutdown()


def test_caller_whose_flush_no_thread_makes_does_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may have used up its threads."""
    log, threads = _Log(), WorkThreads(1)
    flusher = _flusher(log, threads.submit)
    start_no_more_threads(monkeypatch)
    flusher.durable(_append(log, flusher)).result()
    flusher.durable(_append(log, flusher)).result(0)
    assert log.flushed_offset == 2


def test_callback_that_waits_holds_up_no_flush() -> None:
    """Neither of its own log, by whatever call others wait, nor of another one."""
    flushes, callbacks, go_on = WorkThreads(1), WorkThreads(1, "callbacks"), threading.Event()
    logs = [_Log(), _Log()]
    flushers = [_flusher(log, flushes.submit, call_back=callbacks.submit) for log in logs]
    seen: list[int] = []

    def callback(_: object) -> None:
        inner = flushers[0].durable(_append(logs[0], flushers[0]))
        seen.append(len(wait([inner], 10).done))
        assert go_on.wait(10)

    gate = logs[0].gate = threading.Event()
    flushers[0].durable(_append(logs[0], flushers[0])).add_done_callback(callback)
    gate.set()
    for log, flusher in zip(logs, flushers, strict=True):
        assert len(wait([flusher.durable(_append(log, flusher))], 10).done) == 1
        flusher.durable(_append(log, flusher)).result(10)
    go_on.set()
    flushes.shutdown()
    callbacks.shutdown()
    assert seen == [1]


def test_thread_may_end_all_threads_in_its_work() -> None:
    """A callback that closes its manager."""
    threads, ended = WorkThreads(2), threading.Event()

    def end() -> bool:
        threads.shutdown()
        ended.set()
        return False

    threads.submit(end)
    assert ended.wait(10)
    threads.shutdown()


def test_interrupt_in_a_callback_of_a_future_that_is_done_reaches_its_caller() -> None:
    """It is called in the caller's own thread."""
    log = _Log()
    flusher = _flusher(log, _Later())
    _append(log, flusher)
    flusher.flush()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flusher.durable(0).add_done_callback(interrupt)


@pytest.mark.parametrize("timeout", [0.001, 1e300, float("inf"), 10**400])
def test_timeout_may_have_any_length(timeout: float) -> None:
    """Also one that the system's timers do not take."""
    log, threads = _Log(), WorkThreads(1)
    flusher = _flusher(log, threads.submit)
    log.gate = threading.Event()
    future = flusher.durable(_append(log, flusher))
    if timeout < 1:
        with pytest.raises(TimeoutError):
            future.result(timeout)
    threading.Timer(0.05, log.gate.set).start()
    future.result(max(timeout, 10))
    threads.shutdown()


@pytest.mark.parametrize("timeout", ["1", True, float("nan"), b""])
def test_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    """By a clear error, whether the record is on disk already or not."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    for _ in range(2):
        for call in (future.result, future.exception):
            with pytest.raises(UsageError, match="timeout is"):
                call(timeout)
        later.run()


def test_error_that_is_raised_again_and_again_does_not_grow() -> None:
    """A service may ask a log that has failed for as long as it runs."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    log.error = FailedFsyncError("a-0", OSError(5, "io"))
    later.run()
    depths = set()
    for _ in range(5):
        for call in (future.result, flusher.flush):
            with pytest.raises(FailedFsyncError) as failed:
                call()
            depths.add(sum(1 for _ in traceback.walk_tb(failed.value.__traceback__)))
    assert max(depths) <= 3


def test_future_of_the_parent_is_refused_in_a_fork() -> None:
    """No thread there ends it."""
    log, later = _Log(), _Later()
    flusher = _flusher(log, later)
    future = flusher.durable(_append(log, flusher))
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        refused = 0
        for call in (future.result, partial(future.result, 1), future.exception, partial(future.add_done_callback, id)):
            try:
                call()
            except ForkedError:
                refused += 1
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    later.run()
    future.result()
