"""What a command says before it compiles kernels, so that the wait is not taken for a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cleaner.kernels.announce import ABOUT_SECONDS, before_compiling


def announce_compiling(say: Callable[[str], None]) -> None:
    """Have `say` called with one line if kernels have to be compiled."""

    def tell(kept_in: Path | None) -> None:
        if kept_in is not None:
            often = "once on this machine; `cleaner warm` does it beforehand"
        else:
            often = "at every start, as there is no place to keep them: see `cleaner warm --help`"
        say(f"compiling kernels, about {ABOUT_SECONDS} seconds, {often}")

    before_compiling(tell)
