"""`cleaner status --watch`: a daemon shown again and again, until Ctrl-C."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TextIO

from cleaner.base.clock import Clock
from cleaner.cli.fitting import columns, fold
from cleaner.cli.output import print_error
from cleaner.cli.stop import keyboard_interrupts
from cleaner.errors import NoDaemonError
from cleaner.present.text import printable

_HOME, _CLEAR_REST, _CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
# What cannot be folded ends at the edge meanwhile, instead of making two lines of one.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"


class _Drawn(io.StringIO):
    """What is printed for a terminal, before it gets there: with its colours, and as wide as it is."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Answer for the terminal."""
        return True

    def fileno(self) -> int:
        """Answer for the terminal, to be asked for its width; all output goes through this one."""
        return self._terminal.fileno()


def watch(show: Callable[[], int], seconds: float, clock: Clock) -> int:
    """
    Show something every so many seconds: on a terminal in the place of what was there, else below it.

    A daemon that goes away is reported once, and asked again until it is back; that there is none to begin with is an
    error, for it may be one in the command.

    Args:
        show: prints it; returns how it is.
        seconds: between one time and the next.
        clock: to wait by.
    Returns:
        0, when Ctrl-C ends it.
    Raises:
        NoDaemonError: there is none to begin with.
    """
    is_terminal = sys.stdout.isatty()
    is_there = has_begun = False
    try:
        with keyboard_interrupts():
            while True:
                try:
                    text = _printed(show, is_terminal=is_terminal)
                    is_there = has_begun = True
                    _draw(text, is_terminal=is_terminal)
                except NoDaemonError as error:
                    if not has_begun:
                        raise
                    words = f"{error}; asked again every {seconds:g} s"
                    if is_terminal:
                        lines = fold(f"cleaner: {printable(words)}", columns())
                        _draw("\n".join([*lines, ""]), is_terminal=True)
                    elif is_there:
                        print_error(words)
                    is_there = False
                clock.sleep(seconds)
    except KeyboardInterrupt:
        return 0


def _printed(show: Callable[[], int], *, is_terminal: bool) -> str:
    """Return what is printed: whole, so that half of it is never seen."""
    text = _Drawn(sys.stdout) if is_terminal else io.StringIO()
    with redirect_stdout(text):
        show()
    return text.getvalue()


def _draw(text: str, *, is_terminal: bool) -> None:
    if is_terminal:
        # What does not fit would scroll what is above it away; the last line is left for the cursor.
        lines = text.split("\n")[: shutil.get_terminal_size().lines - 1]
        text = _CUT + _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_REST + _WRAP
    print(text, end="", flush=True)
