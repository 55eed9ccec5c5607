"""
Records as lines of text, as Kafka's console producer reads them.

    headers <headers.delimiter> key <key.separator> value
    name <headers.key.separator> value <headers.separator> name ...

A line stays bytes: bytes that are not UTF-8 pass unchanged. Properties have Kafka's names and defaults; a separator is
text, never a pattern. A line is split at the first separator, so a value may contain it.

Source: `LineMessageReader.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from cleaner.cli.kafka_flags import READER_PROPERTIES, is_true
from cleaner.errors import InputError, UsageError
from cleaner.log.record import Record

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class LineFormat:
    """
    How a line is read; fields are named like the properties.

    Attributes:
        ignore_error: a line without a separator is a value; a header without one has none.
        null_marker: a key, a value, a header's value or the whole headers part that equals it is null.
    """

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @staticmethod
    def of(properties: Mapping[str, str]) -> LineFormat:
        """
        Take the known properties; the others are ignored here.

        Raises:
            UsageError: two properties that must differ are equal.
        """
        values = {name: properties.get(name, default) for name, default in READER_PROPERTIES.items()}
        texts = {name: value.encode() for name, value in values.items() if value is not None}
        # Kafka compares these, and the key's separator only with the null marker.
        telling = ("headers.delimiter", "headers.separator", "headers.key.separator")
        for one, other in (*combinations(telling, 2), *(("null.marker", name) for name in ("key.separator", *telling))):
            if one in texts and texts[one] == texts[other]:
                raise UsageError(f"{one} and {other} may not be equal")
        return LineFormat(
            parse_key=is_true(values["parse.key"]),
            parse_headers=is_true(values["parse.headers"]),
            ignore_error=is_true(values["ignore.error"]),
            key_separator=texts["key.separator"],
            headers_delimiter=texts["headers.delimiter"],
            headers_separator=texts["headers.separator"],
            headers_key_separator=texts["headers.key.separator"],
            null_marker=texts.get("null.marker"),
        )

    def record(self, line: bytes, line_number: int) -> Record:
        """
        Read one line, without its end.

        Raises:
            InputError: a separator is missing, or a header's name is invalid.
        """
        rest = line
        headers: Headers = ()
        key: bytes | None = None
        if self.parse_headers:
            text, rest = self._split(line, rest, self.headers_delimiter, "headers delimiter", line_number)
            if text is not None and text != self.null_marker:
                headers = self._headers(text, line_number)
        if self.parse_key:
            key, rest = self._split(line, rest, self.key_separator, "key separator", line_number)
        return Record(self._or_null(key), self._or_null(rest), headers)

    def _or_null(self, field: bytes | None) -> bytes | None:
        return None if field == self.null_marker else field

    def _split(
        self, line: bytes, rest: bytes, separator: bytes, what: str, line_number: int
    ) -> tuple[bytes | None, bytes]:
        at = rest.find(separator)
        if at >= 0:
            return rest[:at], rest[at + len(separator) :]
        if self.ignore_error:
            return None, rest
        raise InputError(line_number, f"no {what} {shown(separator)} in {shown(line)}")

    def _headers(self, text: bytes, line_number: int) -> Headers:
        pairs = text.split(self.headers_separator)
        while len(pairs) > 1 and not pairs[-1]:  # as Java splits: empty parts at the end do not count
            pairs.pop()
        return tuple(self._header(pair, line_number) for pair in pairs)

    def _header(self, pair: bytes, line_number: int) -> tuple[str, bytes | None]:
        name, separator, value = pair.partition(self.headers_key_separator)
        if not separator and not self.ignore_error:
            raise InputError(line_number, f"no {shown(self.headers_key_separator)} in header {shown(pair)}")
        if name == self.null_marker:
            raise InputError(
                line_number, f"the name of header {shown(pair)} is the null marker, and no name can be null"
            )
        try:
            return name.decode(), self._or_null(value) if separator else None
        except UnicodeDecodeError:
            raise InputError(line_number, f"the name of header {shown(pair)} is no UTF-8") from None


def shown(text: bytes) -> str:
    """Return untrusted bytes for a message: quoted, escaped, shortened."""
    return repr(text[:80].decode(errors="replace")) + ("..." if len(text) > 80 else "")
