"""
Planted defects: the product with one promise broken, so that it is known what the simulator would notice.

Each is a context that replaces functions of the product. `found_by` runs seeds until one fails. A new defect is a
function here with `@defect(...)`; a sync left out needs only a line in `LEFT_OUT`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any, NamedTuple

from cleaner.base import concurrency
from cleaner.cleaning.recopy import cleaned_segment
from cleaner.log import active_segment, flusher, partition_writer, producers, writable_log
from cleaner.read import directory_view
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.swap import swap
from tests.simulation.disk import SimFile, SimFiles
from tests.simulation.run import run_seed
from tests.support.watched_fs import Operation

Planting = Callable[[], AbstractContextManager[object]]


class Found(NamedTuple):
    """The first seed that notices a defect, and how."""

    seed: int
    failure: str


DEFECTS: dict[str, Planting] = {}


def defect(planting: Callable[[], Iterator[None]]) -> Planting:
    """Register a defect by its function's name."""
    DEFECTS[planting.__name__.replace("_", " ")] = context = contextlib.contextmanager(planting)
    return context


def found_by(name: str, *, most: int, first: int = 0) -> Found | None:
    """Run seeds with a defect until one fails; None: none did."""
    with DEFECTS[name]():
        for seed in range(first, first + most):
            report = run_seed(seed)
            if report.failure:
                return Found(seed, report.failure)
    return None


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute for a `with` block."""
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---- syncs left out -------------------------------------------------------------------------------------------------


class LeftOut(NamedTuple):
    """A sync in a function: `call` is fsync, fsync_dir or fsync_all; the `number`-th such line of it, from 0."""

    function: Any
    call: str
    number: int = 0


LEFT_OUT = {
    "flush without fsync": LeftOut(active_segment.ActiveSegment._force, "fsync("),
    "new segment without directory fsync": LeftOut(active_segment.create_segment, "fsync_dir"),
    "cleaned log without fsync": LeftOut(cleaned_segment.CleanedSegment.finish, "fsync("),
    "cleaned names without directory fsync": LeftOut(cleaned_segment.CleanedSegment.finish, "fsync_dir"),
    "swap announced without fence": LeftOut(swap._announce, "fsync_dir"),
    "old segments retired without first fence": LeftOut(swap._retire_old, "fsync_dir", 0),
    "old segments retired without second fence": LeftOut(swap._retire_old, "fsync_dir", 1),
    "new segment installed without first fence": LeftOut(swap._install, "fsync_dir", 0),
    "new segment installed without second fence": LeftOut(swap._install, "fsync_dir", 1),
    "small file replaced without fsync": LeftOut(FileSystem.write_atomically, "fsync("),
    "small file replaced without directory fsync": LeftOut(FileSystem.write_atomically, "fsync_dir"),
}


def current_task(files: Any) -> object:
    """Return the thread that has the token, found by a file or its file system."""
    return getattr(files, "_owner", files)._disk.scheduler.current


@contextlib.contextmanager
def _unsynced(task: object) -> Iterator[None]:
    """Keep a thread's syncs out of the journal."""

    def after(self: SimFiles, operation: Operation) -> None:
        if operation.kind not in ("fsync", "fsync_dir") or current_task(self) is not task:
            real(self, operation)

    real = SimFiles.after
    with replaced(SimFiles, "after", after):
        yield


@contextlib.contextmanager
def leaving_out(left_out: LeftOut) -> Iterator[None]:
    """Leave a sync out: its call succeeds and does nothing."""
    code = left_out.function.__code__
    lines, start = inspect.getsourcelines(left_out.function)
    at = [start + number for number, line in enumerate(lines) if left_out.call in line and "def " not in line]
    line = at[left_out.number]

    def skipping(call: FunctionType) -> Callable[..., object]:
        def maybe(*args: object) -> object:
            frame = sys._getframe(1)
            is_it = frame.f_code is code and frame.f_lineno == line
            # A step like any other: until the next power cut everything goes as without the defect.
            if is_it:
                with _unsynced(current_task(args[0])):
                    return call(*args)
            return call(*args)

        return maybe

    with (
        replaced(SimFile, "fsync", skipping(SimFile.fsync)),  # type: ignore[arg-type]
        replaced(SimFiles, "fsync_dir", skipping(SimFiles.fsync_dir)),  # type: ignore[arg-type]
        replaced(SimFiles, "fsync_all", skipping(SimFiles.fsync_all)),  # type: ignore[arg-type]
    ):
        yield


for _name, _left_out in LEFT_OUT.items():
    DEFECTS[_name] = lambda left_out=_left_out: leaving_out(left_out)  # type: ignore[misc]


# ---- other promises broken ------------------------------------------------------------------------------------------


@defect
def answered_as_durable_before_the_fsync() -> Iterator[None]:
    """A future is done when its flush is asked for."""

    def durable(self: flusher.LogFlusher, last_offset: int) -> Any:
        real(self, last_offset)
        done: concurrency.Future[None] = concurrency.Future()
        done.set_result(None)
        return done

    real = flusher.LogFlusher.durable
    with replaced(flusher.LogFlusher, "durable", durable):
        yield


@defect
def failed_append_is_not_undone() -> Iterator[None]:
    """What a failed append has written stays."""
    with replaced(writable_log.WritableLog, "_undo", lambda *_: None):
        yield


@defect
def committed_readers_go_to_the_high_watermark() -> Iterator[None]:
    """The last stable offset of other processes ignores open transactions."""
    stable = property(lambda self: self.high_watermark)
    with replaced(directory_view.DirectoryView, "last_stable_offset", stable):
        yield


@defect
def high_watermark_is_the_log_end() -> Iterator[None]:
    """A writer tells other processes of records that are not on disk."""

    def append(self: writable_log.WritableLog, *args: Any) -> int:
        first = real(self, *args)
        self._options.publish(self.log_end_offset)
        return first

    real = writable_log.WritableLog.append
    with replaced(writable_log.WritableLog, "append", append):
        yield


@defect
def repeats_are_not_recognised() -> Iterator[None]:
    """An idempotent producer's second try is appended again."""
    with (
        replaced(producers.Producers, "find_repeat", lambda *_: None),
        replaced(producers.Producers, "check", lambda *_: None),
    ):
        yield


@defect
def open_transactions_survive_an_opening() -> Iterator[None]:
    """A writer does not abort what an earlier one has left open."""
    with replaced(writable_log.WritableLog, "abort_open_transactions", lambda _: None):
        yield


@defect
def appends_do_not_exclude_each_other() -> Iterator[None]:
    """The writer's lock is none."""

    def init(self: partition_writer.PartitionWriter, *args: Any) -> None:
        real(self, *args)
        self._lock = contextlib.nullcontext()  # type: ignore[assignment]

    real = partition_writer.PartitionWriter.__init__
    with replaced(partition_writer.PartitionWriter, "__init__", init):
        yield


@defect
def flushes_are_not_asked_for_again() -> Iterator[None]:
    """A wake-up is missed: a request that has begun counts as one that will see what came after it."""

    def request(self: flusher.LogFlusher) -> None:
        if self._requested is None:
            real(self)

    real = flusher.LogFlusher._request
    with replaced(flusher.LogFlusher, "_request", request):
        yield
