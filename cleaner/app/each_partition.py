"""One partition after another, or several in parallel: one never stops the others; a failed disk or lost lock does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from cleaner.app.reports import Refusal
from cleaner.base import concurrency
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, CleaningAborted, WriterWaitingError, is_disk_failure

Result = TypeVar("Result")
Work = Callable[[TopicPartition, Path], Result]
"""Does one partition's work; refusals are results, and an exception ends the whole call."""

MAX_SIDE_BY_SIDE = 64
"""The limit whatever the caller asks for: each one needs a loaded log and some threads."""

_LOOK_UP_SECONDS = 0.1


def one_by_one(todo: Mapping[TopicPartition, Path], work: Work[Result]) -> Iterator[Result | Refusal]:
    """Work on one partition after another; if the disk itself fails, the rest is not begun."""
    waiting = dict(todo)
    for topic_partition, directory in todo.items():
        del waiting[topic_partition]
        try:
            outcome = work(topic_partition, directory)
        except CleaningAborted as error:
            _end(error, len(waiting))
        yield outcome
        if _has_disk_failed(outcome):
            break
    yield from map(_not_begun, waiting)


def side_by_side(
    todo: Mapping[TopicPartition, Path], work: Work[Result], places: Callable[[], int]
) -> Iterator[Result | Refusal]:
    """
    Work on several partitions at once, each in a thread; outcomes come in the order of the partitions.

    If the disk fails, or one raises, no more are begun, and the running ones are waited for.

    Args:
        places: returns how many may run at once, at least one; called again and again, since it may change.
    """
    waiting = deque(todo.items())
    tasks: deque[concurrency.Future[Result]] = deque()  # in order, until their outcome is taken
    busy: set[concurrency.Future[Result]] = set()
    has_ended = False
    with concurrency.ThreadPoolExecutor(MAX_SIDE_BY_SIDE, thread_name_prefix="cleaner-partition") as pool:
        while waiting and not has_ended:
            if len(busy) < min(places(), MAX_SIDE_BY_SIDE):
                task = pool.submit(work, *waiting.popleft())
                tasks.append(task)
                busy.add(task)
            else:
                concurrency.wait(busy, _LOOK_UP_SECONDS, concurrency.FIRST_COMPLETED)
            done = {task for task in busy if task.done()}
            busy -= done
            has_ended = any(task.exception() is not None or _has_disk_failed(task.result()) for task in done)
            while tasks and tasks[0].done() and tasks[0].exception() is None:
                yield tasks.popleft().result()
        errors = []
        for task in tasks:
            error = task.exception()
            if error is None:
                yield task.result()
            else:
                errors.append(error)
    if errors:
        _end(errors[0], len(waiting))
    yield from (_not_begun(topic_partition) for topic_partition, _ in waiting)


def _has_disk_failed(outcome: object) -> bool:
    return isinstance(outcome, Refusal) and is_disk_failure(outcome.error)


def _not_begun(topic_partition: TopicPartition) -> Refusal:
    return Refusal(str(topic_partition), CleanerError("not begun: the disk failed earlier"))


def _end(error: BaseException, left: int) -> NoReturn:
    """Raise the error that ends the call; a stop says how many partitions are left."""
    try:
        if not left or not isinstance(error, CleaningAborted):
            raise error
        kind = WriterWaitingError if isinstance(error, WriterWaitingError) else CleaningAborted
        raise kind(f"{error}; {left} more partitions were not begun") from error
    finally:
        del error  # or the error and this frame would refer to each other
