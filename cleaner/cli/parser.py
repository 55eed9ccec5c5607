"""The command line's parser: help that fits the terminal, and errors with suggestions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from cleaner.base.mistakes import did_you_mean, nearest
from cleaner.base.remote_path import any_path
from cleaner.cli.fitting import HELP_COLUMNS, columns, fold, fold_command

_WIDEST_HELP = 110
_OPTION_COLUMNS = 32
_SEPARATOR = "   "  # between parts of a line that may be put on separate lines
_REMARK = " " * 8  # before what is said of a command that has a line of its own: further in than its folded lines


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the layout of descriptions and examples as far as the terminal's width allows."""

    def __init__(self, prog: str) -> None:
        width = min(_WIDEST_HELP, columns() or HELP_COLUMNS)
        super().__init__(prog, max_help_position=min(_OPTION_COLUMNS, width // 3), width=width)

    def format_help(self) -> str:
        """Return the help; folds also what argparse never folds: a group's name or a part of the usage."""
        lines = super().format_help().splitlines()
        hangs = [" " * (len(line) - len(line.lstrip()) + 2) for line in lines]
        folded = [part for line, hang in zip(lines, hangs, strict=True) for part in fold(line, self._width, hang)]
        return "".join(f"{line}\n" for line in folded)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Fold an option's help; names with dashes in them stay whole."""
        return fold(" ".join(text.split()), width, "")

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Refold paragraphs, and fold each laid-out line by itself."""
        paragraph: list[str] = []
        lines: list[str] = []
        for line in [*text.splitlines(), ""]:
            if line and not line.startswith(" ") and not line.endswith(":"):
                paragraph.append(line)
                continue
            lines += fold(indent + " ".join(paragraph), width, indent) if paragraph else []
            paragraph.clear()
            lines += self._laid_out(indent + line, width) if line else [""]
        return "\n".join(lines[:-1])

    @staticmethod
    def _laid_out(line: str, width: int) -> Iterator[str]:
        """Yield a line of examples or of exit codes, its parts below each other if they do not fit."""
        if len(line) <= width:
            yield line
            return
        start = line[: len(line) - len(line.lstrip())]
        if _SEPARATOR in start:  # what is said of the command in the line above
            start = _REMARK
        for part in filter(None, (part.strip() for part in line.strip().split(_SEPARATOR))):
            if part.startswith(("cleaner ", "CLEANER_")):
                yield from fold_command(part, width, start)
                start = _REMARK
            else:
                yield from fold(start + part, width, start + "   ")


def _any_path(text: str) -> Path:
    """Read a path, which may lead into a bucket; empty texts and others are refused as for `Path`."""
    return any_path(_path(text) and text)


def _path(text: str) -> Path:
    """Return a path; refuses empty text: with an unset variable of a script it would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("a path is empty")
    return Path(text)


class Parser(argparse.ArgumentParser):
    """
    A parser that suggests what was probably meant. It accepts no abbreviations: a new option would change their
    meaning.

    Every command has `--wide`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._typed: list[str] = []
        options.setdefault("formatter_class", HelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **options)
        self.register("type", Path, _path)
        self.register("type", any_path, _any_path)
        self.add_argument(
            "--wide",
            action="store_true",
            default=argparse.SUPPRESS,
            help="do not shorten names or fold lines: for a pager (less -S)",
        )

    def parse_known_args(  # type: ignore[override]  # argparse's has overloads for its own namespaces
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and remember what was typed."""
        self._typed = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            likely = did_you_mean(str(value), known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{likely}")

    def error(self, message: str) -> NoReturn:
        """Print the error, with unknown options and suggestions, and end with 2."""
        for word in self._typed:
            if word == "--":
                break
            name = word.partition("=")[0]
            if name.startswith("--") and name not in self.options():
                likely = nearest(name, sorted(self.options()))
                message += f"; there is no {name}" + (f": did you mean {likely}?" if likely else "")
        self.print_usage(sys.stderr)
        self.exit(2, "\n".join(fold(f"{self.prog}: error: {message}", columns(sys.stderr))) + "\n")

    def options(self) -> set[str]:
        """Return the options of this command, and of its actions."""
        return set(self._option_string_actions).union(*(each.options() for each in self.commands().values()))

    def commands(self) -> dict[str, Parser]:
        """Return the commands, or actions, below this one."""
        return {
            name: below
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for name, below in action.choices.items()
        }
