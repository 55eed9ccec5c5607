"""
An interrupt (Ctrl-C) wherever Python looks for signals leaves no thread at work behind the call.

Python looks behind each call, at the beginning of a function and where a loop jumps back. Each place in the code that
works with threads has its turn, except for beginnings: nothing can be done against an interrupt between a call and the
first line of the function.
"""

from __future__ import annotations

import dis
import faulthandler
import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType

import pytest

from cleaner.base import concurrency, thread_pool
from cleaner.cleaning.passes import pipeline
from cleaner.cleaning.round import group_end
from cleaner.storage.fs import many_files

_FILES = {each.__file__ for each in (concurrency, thread_pool, pipeline, group_end, many_files)}
# In Python: an interrupt in there, behind the lock's own call, leaves the lock taken.
_OF_CONDITIONS = {threading.Condition.__enter__.__code__, threading.Condition.__exit__.__code__}
_AT_WORK_SECONDS, _LONGEST_SECONDS = 0.004, 120


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(_LONGEST_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@functools.cache
def _places(code: CodeType) -> set[int]:
    """Return the offsets of instructions in front of which Python looks for signals."""
    found, before = set(), ""
    for instruction in dis.get_instructions(code):
        if before.startswith("CALL") or "JUMP_BACKWARD" in instruction.opname:
            found.add(instruction.offset)
        before = instruction.opname
    return found


class _Interrupt:
    """Interrupts this thread at the n-th place, in a `with` block."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.where = ""

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Callable[..., object] | None:
        caller = frame.f_back
        is_of_ours = frame.f_code in _OF_CONDITIONS and caller is not None and caller.f_code.co_filename in _FILES
        if frame.f_code.co_filename not in _FILES and not is_of_ours:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in _places(frame.f_code):
            self._left -= 1
            if self._left == -1:
                self.where = f"{frame.f_code.co_name}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self) -> _Interrupt:
        sys.settrace(self._trace)  # type: ignore[arg-type]  # of this thread alone
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None) -> bool:
        sys.settrace(None)
        return kind is not None and issubclass(kind, KeyboardInterrupt)


class _Work:
    """Some work that takes a moment; counts what is under way, and what is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running = self.done = 0

    def __call__(self, *_: object) -> None:
        with self._lock:
            self.running += 1
        time.sleep(_AT_WORK_SECONDS)
        with self._lock:
            self.running, self.done = self.running - 1, self.done + 1


def _interrupted_anywhere(call: Callable[[_Work], object], judge: Callable[[str], None] = lambda _: None) -> int:
    """Make a call for each place in it; returns how many there are."""
    for number in itertools.count():
        work = _Work()
        with _Interrupt(number) as interrupt:
            call(work)
        running, done = work.running, work.done
        if not interrupt.where:
            return number
        time.sleep(2 * _AT_WORK_SECONDS)
        assert (running, work.done) == (0, done), interrupt.where
        judge(interrupt.where)
    raise AssertionError("unreachable")


def test_threads_that_are_joined() -> None:
    def call(work: _Work) -> None:
        threads = [concurrency.Thread(target=work) for _ in range(2)]
        try:
            for thread in threads:
                thread.start()
        finally:
            interrupt = concurrency.join_all(threads)
        if interrupt is not None:
            raise interrupt

    assert _interrupted_anywhere(call) > 20


def test_names_shared_out_to_threads() -> None:
    def call(work: _Work) -> None:
        many_files.share_out(lambda names: list(map(work, names)), ["a", "b", "c"], 3, 1)  # type: ignore[arg-type]

    assert _interrupted_anywhere(call) > 20


def test_pool_of_threads() -> None:
    def call(work: _Work) -> None:
        with concurrency.ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(work) for _ in range(2)]
            for future in futures:
                future.result()

    assert _interrupted_anywhere(call) > 20


class _Lane:
    """A lane of a pipeline that works on five chunks with others."""

    def __init__(self, work: _Work, chunks: Iterator[int]) -> None:
        self._work, self._chunks = work, chunks

    def take(self) -> bool:
        return next(self._chunks, None) is not None

    def fill(self) -> None:
        self._work()

    def arrange(self) -> None:
        """Do nothing."""

    def work(self) -> int:
        return 0

    def commit(self) -> None:
        """Do nothing."""

    def finish(self) -> None:
        """Do nothing."""


def test_pipeline() -> None:
    def call(work: _Work) -> None:
        chunks = iter(range(5))
        pipeline.OrderedPipeline([_Lane(work, chunks) for _ in range(4)], "test").run()

    assert _interrupted_anywhere(call) > 40


class _Target:
    """The output of a group, by what becomes of it."""

    def __init__(self) -> None:
        self.fate: list[str] = []

    def begin(self) -> None:
        """Do nothing."""

    def discard(self) -> None:
        self.fate.append("discarded")


class _LaneMemory:
    buffer = None


def test_ends_of_groups() -> None:
    """What is recopied is swapped in or discarded, once, and nothing behind it is swapped in."""
    targets: list[_Target] = []

    def call(work: _Work) -> None:
        targets[:] = []
        with group_end.GroupEnds() as ends:
            for number in range(3):
                targets.append(target := _Target())
                end = group_end.GroupEnd(work, functools.partial(_install, target))
                lanes: Sequence[object] = [_LaneMemory(), _LaneMemory()]
                ends.recopy(target, lambda end=end: end, lanes, is_last=number == 2)  # type: ignore[arg-type, misc]

    def judge(where: str) -> None:
        fates = [target.fate for target in targets if target.fate]
        assert fates in ([["swapped in"]] * count + rest for count in range(4) for rest in ([], [["discarded"]])), where
        assert len(targets) - len(fates) <= 1, where  # it was not begun

    assert _interrupted_anywhere(call, judge) > 40


def _install(target: _Target, _threads: int) -> Callable[[], None]:
    target.fate.append("swapped in")
    return lambda: None
