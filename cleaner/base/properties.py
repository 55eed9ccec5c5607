"""
Java properties files, read and written as `java.util.Properties` does.

Kafka keeps its settings (`server.properties`) and `meta.properties` in this format, so everything that a broker accepts
must mean the same here: ISO-8859-1, `\\uXXXX` escapes, `=`, `:` or white space between key and value, lines joined by a
final backslash, and the last of two equal keys.

A given file may not be in this format at all, so there are limits that Java does not have, and time and memory are
proportional to the file. No error repeats a value: it may be a password.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from cleaner.base.byte_order import byte_order_mark
from cleaner.errors import ConfigError

MAX_LINE_CHARACTERS = 1 << 20
"""Longest line, with the lines joined to it: a certificate chain has a tenth of this."""

MAX_SETTINGS = 200_000
"""Most settings in a file: some for each of fifty thousand topics."""

_BLANKS = " \t\f"
_LINE = re.compile(r"([^\r\n]*+)(\r\n|\r|\n|\Z)")
# A key ends at the first '=', ':' or blank that is not escaped by a backslash.
_KEY_SIGN = re.compile(r"\\.?|[=: \t\f]", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*+(?:[=:][ \t\f]*+)?")
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.)|\Z)", re.DOTALL)
_FOUR_HEX_DIGITS = re.compile(r"[0-9a-fA-F]{4}\Z")
_CONTROL_LETTERS = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_LETTER_OF_CONTROL = {control: letter for letter, control in _CONTROL_LETTERS.items()}


def parse_properties(text: bytes, source: str) -> dict[str, str]:
    """
    Parse a properties file; of two equal keys the last one counts.

    Values keep their trailing blanks, as in Java: code that parses numbers trims them.

    Args:
        text: the file's bytes.
        source: the file's name, for error messages.
    Raises:
        ConfigError: a `\\u` that is not followed by four hexadecimal digits (Java refuses the whole file too), a line
            longer than `MAX_LINE_CHARACTERS`, or more than `MAX_SETTINGS`; a byte-order mark, with which the first key
            would be another, one that no program knows (a comment may have it).
    """
    values: dict[str, str] = {}
    mark = byte_order_mark(text)
    if mark == "UTF-16":
        raise _at_line(
            source, 1, "UTF-16, in which no program reads settings; save it as UTF-8 without a byte-order mark"
        )
    for number, line in _logical_lines(text.removeprefix(codecs.BOM_UTF8).decode("iso-8859-1"), source):
        if mark and number == 1:
            reason = "a byte-order mark (UTF-8) would be part of the first key; save it without one"
            raise _at_line(source, number, reason)
        key_end = _key_end(line)
        separator = _SEPARATOR.match(line, key_end)
        assert separator is not None  # noqa: S101 - the pattern matches the empty string
        values[_unescape(line[:key_end], source, number)] = _unescape(line[separator.end() :], source, number)
        if len(values) > MAX_SETTINGS:
            raise _at_line(source, number, f"more than {MAX_SETTINGS} settings: this is not a configuration")
    return values


def _key_end(line: str) -> int:
    for sign in _KEY_SIGN.finditer(line):
        if line[sign.start()] != "\\":
            return sign.start()
    return len(line)


def split_properties(text: bytes) -> Iterator[tuple[bytes, str | None]]:
    """
    Split a properties file without losing a byte: yields each setting's lines and its key; None for comments, blank
    lines and other lines without a setting.

    Raises:
        ConfigError: as `parse_properties`.
    """
    lines: list[bytes] = []
    for line in text.splitlines(keepends=True):
        is_continued = bool(lines)
        lines.append(line)
        stripped = line.rstrip(b"\r\n")
        is_comment = not is_continued and (not stripped.strip() or stripped.lstrip()[:1] in (b"#", b"!"))
        backslashes = len(stripped) - len(stripped.rstrip(b"\\"))
        if backslashes % 2 and not is_comment:
            continue
        raw = b"".join(lines)
        yield raw, _only_key(raw)
        lines = []
    if lines:
        raw = b"".join(lines)
        yield raw, _only_key(raw)


def _only_key(raw: bytes) -> str | None:
    return next(iter(parse_properties(raw, "properties")), None)


def format_properties(values: Mapping[str, str]) -> bytes:
    """Return a properties file that Java (and `parse_properties`) reads as the same keys and values, one a line."""
    lines = [_escape(key, protect="=:#! ") + "=" + _escape_value(value) for key, value in values.items()]
    return "".join(line + "\n" for line in lines).encode("ascii")


def _logical_lines(text: str, source: str) -> Iterator[tuple[int, str]]:
    """
    Yield lines with content and the number of their first line: without comments and blank lines, and with lines that
    end in a backslash joined.
    """
    # Java checks for the end of the file after the first character of a line end, so CR LF hides it.
    hides_end = text.endswith("\r\n")
    parts: list[str] = []
    characters = first = position = number = 0
    while position < len(text):
        natural = _LINE.match(text, position)
        assert natural is not None  # noqa: S101 - the pattern matches the empty string
        position, number = natural.end(), number + 1
        if natural.end(1) - natural.start(1) > MAX_LINE_CHARACTERS:
            raise _too_long(source, number)
        line = natural.group(1).lstrip(_BLANKS)
        # Java asks "is anything collected yet?", not "is this a continuation?". So it recognises a comment after a
        # line with only a backslash.
        if not characters:
            if not line or line[0] in "#!":
                continue
            parts, first = [], number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        is_last = position == len(text) and not hides_end
        parts.append(line[:-1] if is_continued else line)
        characters += len(parts[-1])
        if characters > MAX_LINE_CHARACTERS:
            raise _too_long(source, first)
        if not is_continued or is_last:
            yield first, "".join(parts)
            parts, characters = [], 0
    if characters:
        yield first, "".join(parts)


def _too_long(source: str, number: int) -> ConfigError:
    reason = f"longer than {MAX_LINE_CHARACTERS} characters: this is not a configuration"
    return _at_line(source, number, reason)


def _at_line(source: str, number: int, reason: str) -> ConfigError:
    return ConfigError(Path(source), None, f"line {number}: {reason}")


def _unescape(text: str, source: str, number: int) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        digits, letter = match.groups()
        if digits is not None:
            if not _FOUR_HEX_DIGITS.match(digits):
                raise _at_line(source, number, "\\u must be followed by four hexadecimal digits")
            return chr(int(digits, 16))
        return _CONTROL_LETTERS.get(letter or "", letter or "")

    unescaped = _ESCAPE.sub(replace, text)
    # Characters above U+FFFF are written as two escapes, the halves of a UTF-16 pair.
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape_value(value: str) -> str:
    escaped = _escape(value, protect="=:#!")
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(text: str, protect: str) -> str:
    return "".join(_escape_character(character, protect) for character in text)


def _escape_character(character: str, protect: str) -> str:
    if character == "\\":
        return "\\\\"
    if character in _LETTER_OF_CONTROL:
        return "\\" + _LETTER_OF_CONTROL[character]
    if " " <= character <= "~":
        return "\\" + character if character in protect else character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{int.from_bytes(units[at : at + 2], 'big'):04X}" for at in range(0, len(units), 2))
