"""Threads of a simulated world, and pools of them; see `primitives.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cleaner.base import concurrency
from tests.simulation.scheduler import Scheduler, Task


class SimThread:
    """As `threading.Thread`; two callers may start it twice, as Python's own."""

    _scheduler: Scheduler

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name = name or "thread"
        self.daemon = daemon
        self._task: Task | None = None
        self._waiters: list[Task] = []

    def start(self) -> None:
        if self._task is not None:
            raise RuntimeError("threads can only be started once")
        scheduler = self._scheduler
        scheduler.pause("start")
        parent = scheduler.current
        assert parent is not None, "a thread of the world is started by another one"
        self._task = scheduler.spawn(self.name, parent.owner, self._run)
        self._task.thread = self
        self._task.on_end.append(self._tell)
        scheduler.pause("started")

    def _run(self) -> None:
        try:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)
        finally:
            del self._target, self._args, self._kwargs  # as Python's own: nothing is kept alive by a thread that ended

    def _tell(self) -> None:
        for task in self._waiters:
            self._scheduler.wake(task)

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.has_ended and not self._task.owner.is_dead

    def join(self, timeout: float | None = None) -> None:
        scheduler = self._scheduler
        current = scheduler.current
        if current is not None and current.owner.is_dead:
            return  # loops that join until a thread is no longer alive come to their end
        scheduler.pause("join")
        until_ns = None if timeout is None else scheduler.now_ns() + int(max(0.0, timeout) * 1e9)
        while self.is_alive():
            assert current is not None
            self._waiters.append(current)
            try:
                if not scheduler.block("join", until_ns):
                    return
            finally:
                self._waiters.remove(current)


class SimExecutor:
    """As `concurrent.futures.ThreadPoolExecutor`."""

    _scheduler: Scheduler
    _own: Any
    _thread_type: Any

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "pool", *_: object) -> None:
        self._most = max_workers or 4
        self._prefix = thread_name_prefix
        self._work = self._own.SimpleQueue()
        self._threads: list[Any] = []
        self._idle = 0
        self._is_shut = False

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self._own.Future()
        self._work.put((future, work, args, named))
        if self._idle <= 0 and len(self._threads) < self._most:
            thread = self._thread_type(target=self._run, name=f"{self._prefix}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def _run(self) -> None:
        while True:
            self._idle += 1
            item = self._work.get()
            self._idle -= 1
            if item is None:
                self._work.put(None)
                return
            future, work, args, named = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work(*args, **named)
            except BaseException as error:  # noqa: BLE001 - the future carries it
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, work, args, named

    def map(self, work: Callable[..., Any], *columns: Iterable[Any]) -> Any:
        futures = [self.submit(work, *row) for row in zip(*columns, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        if cancel_futures:
            while not self._work.empty():
                item = self._work.get()
                if item is not None:
                    item[0].cancel()
        self._work.put(None)
        interrupt = concurrency.join_all(self._threads) if wait else None
        if interrupt is not None:
            raise interrupt

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
