"""A manual page of one command, made from what its parser knows: no word stands in two places."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from tools.roff import heading, line, text

_HEADING = re.compile(r"^(?P<title>[a-z][a-z ,]*):$")


def man_page(parser: argparse.ArgumentParser, summary: str, version: str, see_also: tuple[str, ...]) -> str:
    """
    Return a page of section 1 in roff.

    Args:
        parser: of `cleaner`, or of one of its commands.
        summary: what it does, in one line.
        version: of the package.
        see_also: other pages of section 1.
    """
    lines = [
        *heading(page_name(parser), 1, version, summary),
        ".SH SYNOPSIS",
        *_synopsis(parser),
        ".SH DESCRIPTION",
        *_prose(parser.description or ""),
    ]
    for group in parser._action_groups:
        lines += _options(group)
    lines += _epilog(parser.epilog or "")
    lines += [".SH SEE ALSO", ",\n".join(f".BR {text(page)} (1)" for page in see_also).replace(",\n", " ,\n")]
    return "\n".join(lines) + "\n"


def page_name(parser: argparse.ArgumentParser) -> str:
    """Return what the page of a parser is called: cleaner-clean for `cleaner clean`."""
    return parser.prog.replace(" ", "-")


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    words = " ".join(parser.format_usage().split()).removeprefix(f"usage: {parser.prog}").strip()
    yield f".B {text(parser.prog)}"
    # One option a line in the source: the page breaks lines between them, not inside.
    for part in re.findall(r"\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]|\S+", words):
        yield line(part).replace(" ", "\\ ")


def _prose(words: str) -> Iterator[str]:
    for number, paragraph in enumerate(words.split("\n\n")):
        if number:
            yield ".PP"
        yield from map(line, paragraph.splitlines())


def _options(group: argparse._ArgumentGroup) -> Iterator[str]:
    shown = [action for action in group._group_actions if action.help is not argparse.SUPPRESS]
    if not shown:
        return
    yield f".SH {text((group.title or 'options').upper())}"
    if group.description:
        yield from _prose(group.description)
    for action in shown:
        if isinstance(action, argparse._SubParsersAction):
            yield from _commands(action)
            continue
        yield ".TP"
        yield _spelling(action)
        yield line((action.help or "").replace("%%", "%"))


def _commands(action: argparse._SubParsersAction[argparse.ArgumentParser]) -> Iterator[str]:
    for choice in action._choices_actions:
        yield ".TP"
        yield f"\\fB{text(choice.dest)}\\fR"
        yield line(choice.help or "")


def _spelling(action: argparse.Action) -> str:
    value = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices)) if action.choices else ""
        metavar = action.metavar if isinstance(action.metavar, str) else choices or action.dest.upper()
        value = f"\\fI{text(metavar)}\\fR"
    if not action.option_strings:
        return value
    return ", ".join(f"\\fB{text(option)}\\fR" for option in action.option_strings) + (f" {value}" if value else "")


def _epilog(epilog: str) -> Iterator[str]:
    """Yield the chapters of an epilog: `examples:`, `exit status:` and the like are headings, and the layout stays."""
    chapters: list[tuple[str, list[str]]] = [("NOTES", [])]
    for row in epilog.splitlines():
        title = _HEADING.match(row)
        if title:
            chapters.append((title["title"].upper(), []))
        else:
            chapters[-1][1].append(row)
    for name, rows in chapters:
        if any(row.strip() for row in rows):
            yield from (f".SH {text(name)}", ".nf", *map(line, _without_margins(rows)), ".fi")


def _without_margins(lines: list[str]) -> list[str]:
    """Return the lines without empty ones at both ends."""
    return "\n".join(lines).strip("\n").splitlines()
