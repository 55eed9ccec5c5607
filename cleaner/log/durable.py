"""The future of a record that is to be on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cleaner.base import arguments, concurrency
from cleaner.errors import CleanerError

if TYPE_CHECKING:
    from cleaner.log.flusher import LogFlusher


@lru_cache(maxsize=1)
def durable_type(base: type[Any]) -> Callable[[LogFlusher], Any]:
    """Return the class of futures that flush for a caller who waits alone; `base`: the simulator has its own."""

    class Durable(base):  # type: ignore[misc]
        """
        A future whose caller may be interrupted anywhere.

        `Future` has Python code around a lock, and an interrupt in it leaves the lock held for good. So a caller waits
        for a latch, which whoever ends the future only opens, in `open`; and what `Future` itself does
        with that is left to flush threads, which no interrupt reaches: `settle`. Callbacks have a thread of their own.

        It cannot be cancelled: nor can the append.
        """

        def __init__(self, flusher: LogFlusher) -> None:
            super().__init__()
            self.set_running_or_notify_cancel()
            self._flusher = flusher
            self._latch = concurrency.Latch()
            self._error: CleanerError | None = None
            self._callbacks: list[Callable[[Any], object]] = []
            self._is_settled = False

        def done(self) -> bool:
            return self._latch.is_open

        def running(self) -> bool:
            return not self._latch.is_open

        def cancel(self) -> bool:
            return False

        def cancelled(self) -> bool:
            return False

        def result(self, timeout: float | None = None) -> None:
            error = self.exception(timeout)
            if error is not None:
                # Shared by all futures of the log: with a traceback it would grow at each call.
                raise error.with_traceback(None)

        def exception(self, timeout: float | None = None) -> BaseException | None:
            wait = arguments.seconds("timeout", timeout)
            if not self._latch.is_open:
                self._flusher.on_wait(wait)
                if not self._latch.wait(wait):
                    raise TimeoutError
            return self._error

        def add_done_callback(self, fn: Callable[[Any], object]) -> None:
            if self._is_settled:
                self._call_done_callback(fn)
                return
            if not self._latch.is_open:
                self._flusher.require_own()
            self._callbacks.append(fn)
            if self._is_settled:
                self.call_back()
            elif not self._latch.is_open:
                self._flusher.hurry()

        def open(self, error: CleanerError | None) -> None:
            """Let the waiting callers go on; a second call does nothing new."""
            if not self._latch.is_open:
                self._error = error
            self._latch.open()

        def settle(self) -> None:
            """End what `Future` itself keeps, after `open`; a second call does nothing new."""
            if super().done():
                pass
            elif self._error is None:
                self.set_result(None)
            else:
                self.set_exception(self._error)
            self._is_settled = True

        @property
        def has_callbacks(self) -> bool:
            return bool(self._callbacks)

        def call_back(self) -> bool:
            """Call the callbacks, each once whoever calls this; `Work`."""
            while self._callbacks:
                try:
                    callback = self._callbacks.pop(0)
                except IndexError:
                    break  # another thread took it
                try:
                    callback(self)
                except BaseException:  # noqa: BLE001 - nobody waits for it
                    concurrency.report_uncaught()
            return False

        def _call_done_callback(self, callback: Callable[[Any], object]) -> None:
            """Call a callback in its caller's own thread, as `Future` does; an interrupt goes on."""
            try:
                callback(self)
            except Exception:  # noqa: BLE001 - as in the other threads
                concurrency.report_uncaught()

    return Durable
