"""A progress bar on standard error, drawn only when that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from cleaner.base import concurrency
from cleaner.base.sizes import human_bytes
from cleaner.cli.fitting import HELP_COLUMNS, columns, shortened

_WIDTH = 24
_REDRAW_SECONDS = 0.1
_CLEAR_LINE = "\r\x1b[K"


class ProgressBar:
    """
    Shows one phase of one partition at a time: `prices-0 copy [#####.....]  41 %  1.2 GiB`.

    Worker threads call it. Use it in a `with` block, so that the line is gone before the command prints.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._enabled = self._stream.isatty()
        self._drawn_at = float("-inf")
        self._phase = ""
        self._lock = concurrency.Lock()  # guards all fields and the stream

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def __call__(self, phase: str, done: int, total: int, note: str | None = None) -> None:
        """
        Note how far a phase is.

        Args:
            phase: what is being done, with the partition's name.
            done, total: bytes, or with a note any unit.
            note: shown instead of the bytes done.
        """
        if not self._enabled:
            return
        now = time.monotonic()
        part = min(1.0, done / total) if total else 1.0
        words = human_bytes(done) if note is None else note
        bar = "#" * round(part * _WIDTH)
        with self._lock:
            if phase == self._phase and done < total and now - self._drawn_at < _REDRAW_SECONDS:
                return
            self._phase, self._drawn_at = phase, now
            rest = f" [{bar:.<{_WIDTH}}] {part:4.0%}  {words}"
            # A line that the terminal folds could not be erased.
            room = (columns(self._stream) or HELP_COLUMNS) - 1
            shown = f"{shortened(phase, max(1, room - len(rest)))}{rest}"[:room]
            self._stream.write(_CLEAR_LINE + shown)
            self._stream.flush()

    def speaking(self, say: Callable[[str], None]) -> Callable[[str], None]:
        """Return `say` wrapped so that it first removes the bar from the screen."""

        def clear_and_say(text: str) -> None:
            self.clear()
            say(text)

        return clear_and_say

    def clear(self) -> None:
        """Remove the bar from the screen before something else is printed."""
        with self._lock:
            if self._enabled and self._phase:
                self._stream.write(_CLEAR_LINE)
                self._stream.flush()
                self._phase = ""
