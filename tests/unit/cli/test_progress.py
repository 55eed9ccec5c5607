"""The progress bar, on a terminal and elsewhere."""

from __future__ import annotations

import io

from cleaner.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_on_a_terminal_shows_phase_part_and_bytes_and_goes_away() -> None:
    """One line, redrawn in place, gone at the end."""
    stream = Terminal()
    with ProgressBar(stream) as bar:
        bar("prices-0 copy", 512 << 10, 1 << 20)
        assert "prices-0 copy [############............]  50%  512.0 KiB" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_bar_is_redrawn_for_a_new_phase_and_at_the_end_but_not_each_time() -> None:
    """A callback a buffer must cost nothing."""
    stream = Terminal()
    bar = ProgressBar(stream)
    for done in range(100):
        bar("map", done, 100)
    drawn = stream.getvalue().count("map [")
    assert drawn < 50
    bar("map", 100, 100)
    bar("copy", 0, 100)
    assert stream.getvalue().count("map [") == drawn + 1
    assert stream.getvalue().count("copy [") == 1


def test_bar_is_silent_where_there_is_no_terminal() -> None:
    """Nothing but errors and logs goes into a file."""
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar("copy", 1, 2)
    assert stream.getvalue() == ""


def test_bar_is_cleared_before_other_output() -> None:
    """The line would be mixed up with the bar otherwise."""
    stream = Terminal()
    bar = ProgressBar(stream)
    bar("copy", 1, 2)
    bar.speaking(stream.write)("warning")
    assert stream.getvalue().endswith("\r\x1b[Kwarning")
