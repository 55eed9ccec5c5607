"""Threads and locks of the product are Python's own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from cleaner.base import concurrency
from cleaner.errors import OutOfThreadsError
from tests.support.no_threads import start_no_more_threads


def test_names_of_the_door_are_the_standard_library_s_own_objects() -> None:
    """The door costs nothing: a lock made through it is a lock of `threading`, and so are all others."""
    ours = {"is_held", "join_all", "report_uncaught", "undisturbed", "Latch", "Thread", "ThreadPoolExecutor"}
    for name in sorted(set(concurrency.__all__) - ours):
        own = next(getattr(home, name) for home in (threading, queue, concurrent.futures) if hasattr(home, name))
        assert getattr(concurrency, name) is own
    assert issubclass(concurrency.Thread, threading.Thread)
    assert issubclass(concurrency.ThreadPoolExecutor, concurrent.futures.ThreadPoolExecutor)
    assert set(vars(concurrency.Thread)) - set(vars(type("", (), {}))) <= {
        *("__init__", "start", "run", "is_alive", "join"),
    }


def test_thread_that_cannot_start_names_the_limit_and_one_that_ran_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = concurrency.Thread(target=lambda: None)
    with monkeypatch.context() as patch:
        start_no_more_threads(patch)
        with pytest.raises(OutOfThreadsError, match="ulimit -u"):
            thread.start()
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="once") as again:
        thread.start()
    assert not isinstance(again.value, OutOfThreadsError)


def test_thread_whose_join_was_interrupted_is_alive_until_its_work_has_ended() -> None:
    """CPython 3.11 marks it as stopped; what it works in would be given back, and used by others, meanwhile."""
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(60)
        has_ended.set()

    thread = concurrency.Thread(target=work)
    thread.start()
    with pytest.raises(KeyboardInterrupt), interrupted_each(0.05, times=1):
        thread.join()
    assert thread.is_alive()
    thread.join(0.01)
    assert not has_ended.is_set()
    threading.Timer(0.05, may_end.set).start()
    thread.join()
    assert has_ended.is_set()
    assert not thread.is_alive()


def test_threads_are_all_joined_though_interrupts_keep_coming() -> None:
    """The caller gets the last interrupt; a thread that was never started is not waited for."""
    may_end = threading.Event()
    threads = [concurrency.Thread(target=may_end.wait, args=(60,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    threading.Timer(0.4, may_end.set).start()
    with interrupted_each(0.02):
        interrupt = concurrency.join_all([*threads, concurrency.Thread()])
    assert isinstance(interrupt, KeyboardInterrupt)
    assert not any(thread.is_alive() for thread in threads)


def test_undisturbed_work_goes_on_though_the_wait_is_interrupted() -> None:
    ended = threading.Event()
    with pytest.raises(KeyboardInterrupt), interrupted_each(0.05, times=1):
        concurrency.undisturbed(lambda: (time.sleep(0.3), ended.set()))
    assert ended.wait(60)


def test_undisturbed_work_gives_its_result_or_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads, which no interrupt reaches, do it themselves; and so does the main one without another."""
    working = concurrency.undisturbed(concurrency.current_thread)
    assert working is not concurrency.main_thread()
    with pytest.raises(ZeroDivisionError):
        concurrency.undisturbed(lambda: 1 // 0)
    with concurrency.ThreadPoolExecutor(1) as pool:
        here = pool.submit(concurrency.current_thread).result()
        assert pool.submit(concurrency.undisturbed, concurrency.current_thread).result() is here
    start_no_more_threads(monkeypatch)
    assert concurrency.undisturbed(concurrency.current_thread) is concurrency.main_thread()


@pytest.mark.parametrize("cancel_futures", [False, True])
def test_pool_is_left_once_its_work_has_ended_though_interrupts_keep_coming(cancel_futures: bool) -> None:
    """Python's own lets go of a thread at each interrupt: its work went on in files that the caller had given back."""
    started, ended = threading.Semaphore(0), list[int]()

    def work(number: int) -> None:
        started.release()
        time.sleep(0.4)
        ended.append(number)

    pool = concurrency.ThreadPoolExecutor(2)
    futures = [pool.submit(work, number) for number in range(3)]  # the third one waits
    for _ in range(2):
        started.acquire()
    with pytest.raises(KeyboardInterrupt), interrupted_each(0.02):
        pool.shutdown(cancel_futures=cancel_futures)
    assert sorted(ended) == [0, 1]
    assert [future.cancelled() for future in futures] == [False, False, True]


def test_interrupt_in_a_pool_s_block_is_raised_once_its_work_has_ended() -> None:
    ended = list[bool]()

    def work() -> None:
        time.sleep(0.3)
        ended.append(True)

    with (
        pytest.raises(KeyboardInterrupt),
        interrupted_each(0.02),
        concurrency.ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(work)
        while True:
            time.sleep(1)
    assert ended


def test_pool_of_the_parent_is_left_at_once_in_a_fork() -> None:
    """Its work is done elsewhere."""
    may_end = threading.Event()
    pool = concurrency.ThreadPoolExecutor(1)
    pool.submit(may_end.wait, 60)
    if (child := os.fork()) == 0:
        signal.alarm(10)
        pool.shutdown()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()
    pool.shutdown()


def test_thread_that_does_not_run_when_its_start_is_interrupted_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would wait for it."""
    done, real = list[bool](), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        real(threading.Timer(0.05, real, (thread,)))  # the system takes its time
        raise KeyboardInterrupt

    thread = concurrency.Thread(target=lambda: done.append(True))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            thread.start()
    assert not thread.is_alive()
    time.sleep(0.2)
    assert thread.ident is not None
    assert not done


def test_pool_without_wait_is_left_at_once_and_one_that_is_shut_takes_no_work() -> None:
    may_end = threading.Event()
    pool = concurrency.ThreadPoolExecutor(1)
    future = pool.submit(may_end.wait, 60)
    pool.shutdown(wait=False)
    assert not future.done()
    with pytest.raises(RuntimeError):
        pool.submit(may_end.wait)
    may_end.set()
    pool.shutdown()
    assert future.result() is True


def test_work_that_a_pool_could_not_begin_is_neither_waited_for_nor_done_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's own queues it before it fails to start a thread, and another thread would do it behind the caller."""
    done = list[str]()
    with concurrency.ThreadPoolExecutor(2) as pool:
        pool.submit(time.sleep, 0.2)
        with monkeypatch.context() as patch:
            start_no_more_threads(patch)
            with pytest.raises(RuntimeError):
                pool.submit(done.append, "refused")
        pool.submit(done.append, "taken").result()
    assert done == ["taken"]


def test_latch_lets_all_go_on_once_it_is_open() -> None:
    latch, seen = concurrency.Latch(), list[bool]()
    assert not latch.wait(0)
    waiting = [threading.Thread(target=lambda: seen.append(latch.wait())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    with pytest.raises(KeyboardInterrupt), interrupted_each(0.02):
        latch.wait()
    assert not latch.is_open
    latch.open()
    latch.open()
    for thread in waiting:
        thread.join()
    assert seen == [True] * 3
    assert latch.wait(float("inf"))


@contextlib.contextmanager
def interrupted_each(seconds: float, times: int = 6) -> Iterator[None]:
    """Have this thread interrupted again and again, so many times."""
    left = iter(range(times))

    def interrupt(*_: object) -> None:
        if next(left, None) is not None:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        left = iter(())
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_thread_of_the_parent_is_not_alive_in_a_fork() -> None:
    """It does not exist there, and nobody may wait for it."""
    may_end = threading.Event()
    thread = concurrency.Thread(target=may_end.wait, args=(60,))
    thread.start()
    if (child := os.fork()) == 0:
        thread.join()
        os._exit(int(thread.is_alive()))
    assert os.waitpid(child, 0)[1] == 0
    assert thread.is_alive()
    may_end.set()
    thread.join()


def test_uncaught_exception_goes_to_the_hook_set_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's crash reporter, set long after the library was imported, sees errors of its threads."""
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda failure: seen.append(failure.exc_type))
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        concurrency.report_uncaught()
    assert seen == [ZeroDivisionError]
