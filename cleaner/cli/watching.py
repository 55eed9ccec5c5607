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
# While drawing, lines that cannot be folded end at the edge instead of wrapping.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"


class _Drawn(io.StringIO):
    """Collects output for a terminal, with its colours and its width."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return the terminal's answer."""
        return True

    def fileno(self) -> int:
        """Return the terminal's descriptor, so that its width can be read; all output goes through this object."""
        return self._terminal.fileno()


def watch(show: Callable[[], int], seconds: float, clock: Clock) -> int:
    """
    Show something at intervals: on a terminal it replaces the last output, otherwise it follows it.

    If the daemon goes away, that is reported once, and it is asked again until it is back; no daemon at the start is an
    error, since the command may be wrong.

    Args:
        show: prints it; returns an exit code.
        seconds: between two times.
        clock: used for waiting.
    Returns:
        0, after Ctrl-C ends it.
    Raises:
        NoDaemonError: there is none at the start.
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
                    words = f"{error}; trying again every {seconds:g} s"
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
    """Return the complete output, so that half of it is never seen."""
    text = _Drawn(sys.stdout) if is_terminal else io.StringIO()
    with redirect_stdout(text):
        show()
    return text.getvalue()


def _draw(text: str, *, is_terminal: bool) -> None:
    if is_terminal:
        # Output that does not fit would scroll the lines above away; the last line is left for the cursor.
        lines = text.split("\n")[: shutil.get_terminal_size().lines - 1]
        text = _CUT + _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_REST + _WRAP
    print(text, end="", flush=True)
