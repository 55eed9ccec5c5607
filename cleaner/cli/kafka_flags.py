"""
Flags shared with Kafka's console tools: properties, and flags that have no meaning without a network.

A command copied from a tutorial or script for Kafka works here with `--log-dir` added: flags that say how to reach
brokers, replicate or buffer are accepted, ignored, and named in one note. Properties of input lines and printed text
have Kafka's names and defaults.

Source: `LineMessageReader.java`, `DefaultMessageFormatter.java`.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cleaner.base.mistakes import did_you_mean
from cleaner.base.remote_path import any_path
from cleaner.cli.arguments import add_as_root
from cleaner.cli.output import print_error
from cleaner.errors import UsageError

_DEST = "ignored_flags"

READER_PROPERTIES: dict[str, str | None] = {
    "parse.key": "false",
    "parse.headers": "false",
    "ignore.error": "false",
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": None,
}
"""Of input lines; `null.marker` has no default."""

FORMATTER_PROPERTIES = {
    "print.timestamp": "false",
    "print.partition": "false",
    "print.offset": "false",
    "print.delivery": "false",
    "print.epoch": "false",
    "print.headers": "false",
    "print.key": "false",
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
    "key.deserializer": "",
    "value.deserializer": "",
    "headers.deserializer": "",
}
"""Of printed text."""


class _Ignore(argparse.Action):
    """Accepts a flag, with its value if it has one, and remembers that it was given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Remember the flag's name."""
        found = getattr(namespace, _DEST, ())
        setattr(namespace, _DEST, (*found, option_string) if option_string not in found else found)


def add_log_dir(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--log-dir`, and `--as-root`."""
    parser.add_argument("--log-dir", metavar="DIR", type=any_path, required=True, help=what)
    add_as_root(parser)


def add_ignored(parser: argparse.ArgumentParser, with_value: Iterable[str], alone: Iterable[str] = ()) -> None:
    """Add flags that are accepted and ignored."""
    parser.set_defaults(**{_DEST: ()})
    group = parser.add_argument_group("flags of a networked Kafka: accepted, and ignored with a note")
    for flag in with_value:
        group.add_argument(flag, action=_Ignore, dest=_DEST, metavar="...", help=argparse.SUPPRESS)
    for flag in alone:
        group.add_argument(flag, action=_Ignore, dest=_DEST, nargs=0, help=argparse.SUPPRESS)
    group.description = ", ".join((*with_value, *alone))


def note_ignored(arguments: argparse.Namespace) -> None:
    """Name the ignored flags, if there were any."""
    flags = getattr(arguments, _DEST, ())
    if flags:
        print_error(f"flags for the network are ignored here: {', '.join(flags)}")


def add_properties(parser: argparse.ArgumentParser, flags: Sequence[str], names: Collection[str]) -> None:
    """Add the flags that give properties, all into `properties`."""
    text = f"how lines are read or written; may be repeated: {', '.join(names)}"
    parser.add_argument(*flags, dest="properties", metavar="NAME=VALUE", action="append", default=[], help=text)


def properties_of(given: Sequence[str], known: Mapping[str, str | None]) -> dict[str, str]:
    """
    Read `name=value` texts; a later one wins. Unknown names are reported: they may be mistakes.

    Raises:
        UsageError: a text without `=`.
    """
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"property {text!r}: it takes name=value")
        found[name] = value
    if unknown := [name for name in found if name not in known]:
        likely = did_you_mean(unknown[0], known)
        print_error(f"unknown property: {', '.join(unknown)}; known: {', '.join(known)}{likely}")
    return found


def is_true(text: str | None) -> bool:
    """Tell whether a property says `true`, in any case."""
    return text is not None and text.strip().lower() == "true"


def assignments_of(given: Sequence[str]) -> dict[str, str]:
    """
    Read `--config`: `key=value`, several with commas between them as `kafka-configs` takes them, lists in brackets.

    Raises:
        UsageError: a part is not an assignment, or a bracket is not closed.
    """
    found: dict[str, str] = {}
    for text in given:
        for part in _split(text):
            key, separator, value = part.partition("=")
            if not separator or not key.strip():
                raise UsageError(f"--config {text!r}: it takes key=value")
            found[key.strip()] = value.removeprefix("[").removesuffix("]") if value.startswith("[") else value
    return found


def _split(text: str) -> list[str]:
    """Split at commas that come before another `key=`, or are outside of brackets."""
    parts: list[str] = []
    depth = begin = 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0 and "=" in text[at:].split(",")[1]:
            parts.append(text[begin:at])
            begin = at + 1
    if depth:
        raise UsageError(f"--config {text!r}: unbalanced brackets")
    return [*parts, text[begin:]]
