"""
Fits output to the terminal: how long lines may be, and how text, commands and tables are folded.

A line may be as long as the terminal is wide, or as COLUMNS says. In a pipe or a file, and with `--wide`, it has any
length: a row is one line and names are whole, for `grep` and `less -S`. Even in a pipe help has 80 columns, and the
page of `explain` 100. JSON, records and the lines of `dump`, whose form is Kafka's, are never folded.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TextIO

HELP_COLUMNS, PAGE_COLUMNS = 80, 100
_MIN_COLUMNS = 40
_MIN_NAME, _MIN_WORDS, _MIN_FOLDED = 16, 20, 8
_MAX_LINES_BESIDE = 3
_GAP = "  "

_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;]*m")
# Text in backticks is meant to be copied: it stays in one line, or gets lines of its own.
_WORD = re.compile(r"(\s*)([^\s`]*`[^`]+`[^\s`]*|\S+|\Z)")
_SHELL_WORD = re.compile(r"(?:[^\s'\"\\]|'[^']*'|\"[^\"]*\"|\\.)+")


class _Choice:
    """The choice of `--wide`, during a command."""

    is_wide = False


@contextlib.contextmanager
def wide(*, chosen: bool) -> Iterator[None]:
    """Do not limit lines during a `with` block, if that was chosen."""
    before, _Choice.is_wide = _Choice.is_wide, chosen
    try:
        yield
    finally:
        _Choice.is_wide = before


def columns(stream: TextIO | None = None) -> int | None:
    """Return how long a line on a stream (None: standard output) may be; None: no limit."""
    if _Choice.is_wide:
        return None
    named = os.environ.get("COLUMNS", "")
    if named.isascii() and named.isdigit() and int(named) > 0:
        return max(_MIN_COLUMNS, int(named))
    stream = sys.stdout if stream is None else stream
    try:
        # A terminal that does not know its size gives 0.
        return max(_MIN_COLUMNS, os.get_terminal_size(stream.fileno()).columns or HELP_COLUMNS)
    except (OSError, ValueError):
        return None


def flush_printed() -> None:
    """Flush standard output, so that it comes before later standard error if both go to one file."""
    # A missing reader is noticed at the command's end; errors before that are still printed.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()


def page_columns() -> int | None:
    """Return the width of a page of words and drawings, which unlike a table is not read line by line."""
    return columns() or (None if _Choice.is_wide else PAGE_COLUMNS)


def seen(text: str) -> int:
    """Return how many cells a text takes; terminal codes take none."""
    return len(_TERMINAL_CODE.sub("", text))


def fold(text: str, width: int | None, hang: str = "  ") -> list[str]:
    """
    Break a line at its spaces if it is too long.

    Args:
        text: one line; it may begin with blanks, and have terminal codes.
        width: cells a line may take; None: any number.
        hang: the start of the lines after the first.
    """
    if width is None or seen(text) <= width:
        return [text]
    width = max(width, _MIN_FOLDED)
    hang = hang[: width - _MIN_FOLDED]
    text = text[max(0, len(text) - len(text.lstrip()) - (width - _MIN_FOLDED)) :]
    lines: list[str] = []
    line, is_begun = "", False
    for blanks, word in _WORD.findall(text.rstrip()):
        gap = blanks if is_begun or not lines else ""
        is_too_long = seen(line) + len(gap) + seen(word) > width
        # A word that is too long for any line begins on the current line.
        if is_begun and is_too_long and seen(word) <= width - len(hang):
            lines.append(line)
            line, gap, is_begun = hang, "", False
        if "`" in word and seen(line) + len(gap) + seen(word) > width:
            before, command, after = word.split("`", 2)
            lines += [line + gap + before] if (line + before).strip() else []
            lines += fold_command(command, width, hang)
            line, is_begun = hang + after, bool(after)
            continue
        line, is_begun = line + gap + word, True
        while seen(line) > width:
            at = _end_of(line, width)
            lines.append(line[:at])
            line = hang + line[at:]
    return [*lines, line] if line.strip() else lines


def _end_of(line: str, width: int) -> int:
    """Return the position in a line after this many cells: never within a terminal code, which takes none."""
    at = cells = 0
    for code in _TERMINAL_CODE.finditer(line):
        if cells + code.start() - at >= width:
            break
        cells += code.start() - at
        at = code.end()
    return at + width - cells


def fold_command(command: str, width: int | None, indent: str = "") -> list[str]:
    """
    Break a command so that a shell reads its lines as the same command: they can be copied and pasted.

    Args:
        command: as typed, quoted.
        width: cells a line may take; None: any number.
        indent: the start of the first line; the others are indented further.
    """
    if width is None or len(indent) + len(command) <= width:
        return [indent + command]
    indent = indent[: max(0, width - _MIN_NAME)]
    lines, line = [], indent
    for word in _with_values(_SHELL_WORD.findall(command), width - len(indent) - 6):
        if line.strip() and len(line) + 1 + len(word) > width - 2:
            lines.append(line + " \\")
            line = " " * (len(indent) + 4)
        line += f" {word}" if line.strip() else word
        while len(line) > width - 2:
            # After a cut within a word the next line has no indent: blanks would end the word.
            head, line = _split_word(line, word, min(width, len(line)) - 1)
            if not line:
                line = head
                break
            lines.append(head + "\\")
            word = line
    return [*lines, line]


def _with_values(words: Iterable[str], most: int) -> Iterator[str]:
    """Keep an option and its value together if both fit in a line."""
    option = ""
    for word in words:
        if option and (word.startswith("-") or len(option) + 1 + len(word) > most):
            yield option
            option = ""
        if option or not word.startswith("--") or "=" in word:
            yield f"{option} {word}".lstrip()
            option = ""
        else:
            option = word
    if option:
        yield option


def _split_word(line: str, word: str, width: int) -> tuple[str, str]:
    """Cut the last word of a line into two halves that a shell joins again; an empty second half: it cannot be cut."""
    try:
        (plain,) = shlex.split(word)
    except ValueError:
        return line, ""
    start = line[: len(line) - len(word)]
    for count in range(min(len(plain), width - len(start)), 0, -1):
        head = start + shlex.quote(plain[:count])
        if len(head) <= width:
            return head, shlex.quote(plain[count:]) if plain[count:] else ""
    return line, ""


def shortened(text: str, width: int) -> str:
    """Return a text with its middle left out if it is too long: both ends of a partition's name matter."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[int] = frozenset((0,)),
    most: int | None = None,
    names: Collection[int] = (0,),
) -> str:
    """
    Lay out a table; numbers are right-aligned, the columns in `left` left-aligned.

    If lines would be too long, the last column, if of words, is folded, then names are shortened in their middle, then
    words go below their row, and finally each row becomes a paragraph.

    Args:
        headings: one per column.
        rows: each with as many texts.
        left: columns of words.
        most: how long a line may be; None: no limit.
        names: columns whose texts may be shortened.
    """
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    if most is None or _total(widths) <= most:
        return "\n".join(_row(line, widths, left) for line in lines)
    last = len(headings) - 1
    if last not in left:
        fitting = _narrowed(widths, most, names)
        return (
            _stacked(lines, most, names) if fitting is None else "\n".join(_row(line, fitting, left) for line in lines)
        )
    least = min(widths[last], _MIN_WORDS)
    fitting = _narrowed([*widths[:last], least], most, set(names) - {last})
    if fitting is not None:
        fitting[last] = most - _total(fitting[:last]) - len(_GAP)
        if all(len(fold(line[last], fitting[last], "")) <= _MAX_LINES_BESIDE for line in lines):
            return "\n".join(_row_beside(line, fitting, left) for line in lines)
    fitting = _narrowed(widths[:last], most, set(names) - {last})
    if fitting is None:
        return _stacked(lines, most, names)
    return "\n".join(_row_above(line, fitting, left, most) for line in lines)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _narrowed(widths: Sequence[int], most: int, names: Collection[int]) -> list[int] | None:
    """Return widths with which lines fit, with the widest names shortened first; None if there are none."""
    found = list(widths)
    while _total(found) > most:
        able = [column for column in names if found[column] > _MIN_NAME]
        if not able:
            return None
        found[max(able, key=found.__getitem__)] -= 1
    return found


def _row(line: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    cells = [
        shortened(text, width).ljust(width) if column in left else shortened(text, width).rjust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return _GAP.join(cells).rstrip()


def _row_beside(line: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    """Lay out a row whose last cell may have several lines."""
    first, *others = fold(line[-1], widths[-1], "")
    start = _row(line[:-1], widths[:-1], left).ljust(_total(widths[:-1])) + _GAP
    return "\n".join([(start + first).rstrip(), *(" " * len(start) + other for other in others)])


def _row_above(line: Sequence[str], widths: Sequence[int], left: Collection[int], most: int) -> str:
    """Lay out a row with its last cell below."""
    below = fold("    " + line[-1], most, "    ") if line[-1].strip() else []
    return "\n".join([_row(line[:-1], widths, left), *below])


def _stacked(lines: Sequence[Sequence[str]], most: int, names: Collection[int]) -> str:
    """Lay out each row as a paragraph: its first cell, then each heading with its text."""
    headings, *rows = lines
    found = []
    for first, *others in rows:
        pairs = []
        for column, (heading, text) in enumerate(zip(headings[1:], others, strict=True), 1):
            value = shortened(text, most - len(heading) - 4) if column in names else text
            pairs += [f"{heading} {value}".strip()] if text else []
        found.append(shortened(first, most))
        line = " "
        for number, pair in enumerate(pairs):
            pair += "," if number + 1 < len(pairs) else ""
            if line.strip() and len(line) + 1 + len(pair) > most:
                found.append(line)
                line = " "
            *whole, line = fold(f"{line} {pair}", most, "    ")
            found += whole
        found += [line] if line.strip() else []
    return "\n".join(found)
