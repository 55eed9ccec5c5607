"""Reads and writes the fields of Kafka's messages, one by one: numbers, varints, strings, array lengths, ids."""

from __future__ import annotations

import struct
from typing import Protocol
from uuid import UUID

_DOUBLE = struct.Struct(">d")


class FieldReader:
    """
    Reads fields from the front of some bytes.

    Every method raises ValueError if the bytes end too early, a varint is longer than ten bytes, or a text is null
    where it may not be, or is not UTF-8.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        if not 0 <= size <= self.left:
            raise ValueError(f"a field of {size} bytes where {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def integer(self, size: int, *, signed: bool = True) -> int:
        """Return a number of `size` bytes, big-endian."""
        return int.from_bytes(self.take(size), "big", signed=signed)

    def double(self) -> float:
        """Return a floating-point number of 8 bytes."""
        return float(_DOUBLE.unpack(self.take(8))[0])

    def varint(self) -> int:
        """Return an unsigned varint of at most ten bytes."""
        value = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a varint of more than ten bytes")

    def zigzag(self) -> int:
        """Return a signed varint."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def length(self, size: int, *, compact: bool) -> int:
        """Return a length, -1 for null: a varint of length + 1 if `compact`, else a number of `size` bytes."""
        return self.varint() - 1 if compact else self.integer(size)

    def nullable_text(self, *, compact: bool = True) -> str | None:
        """Return a string; None for null."""
        size = self.length(2, compact=compact)
        return None if size < 0 else self.take(size).decode("utf-8")

    def count(self) -> int | None:
        """Return the number of items of a compact list; None for null."""
        count = self.varint()
        return None if count == 0 else count - 1

    def tagged_fields(self) -> dict[int, bytes]:
        """Return the tagged fields at a record's end, by tag."""
        found = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.take(self.varint())
        return found

    def text(self) -> str:
        """Return a compact string that may not be null."""
        text = self.nullable_text()
        if text is None:
            raise ValueError("null where a text must be")
        return text

    def uuid(self) -> UUID:
        """Return an id of 16 bytes."""
        return UUID(bytes=self.take(16))


class Sized(Protocol):
    """Bytes that are elsewhere, such as records in a file."""

    @property
    def size(self) -> int:
        """How many."""


Piece = bytes | Sized


class FieldWriter:
    """Writes fields one behind the other; what is elsewhere stays there, and is a piece of its own."""

    def __init__(self) -> None:
        self._done: list[Piece] = []
        self._open = bytearray()

    def integer(self, value: int, size: int, *, signed: bool = True) -> None:
        """Write a number of `size` bytes, big-endian."""
        self._open += int(value).to_bytes(size, "big", signed=signed)

    def double(self, value: float) -> None:
        """Write a floating-point number of 8 bytes."""
        self._open += _DOUBLE.pack(value)

    def varint(self, value: int) -> None:
        """Write an unsigned varint."""
        while value > 0x7F:
            self._open.append(value & 0x7F | 0x80)
            value >>= 7
        self._open.append(value)

    def length(self, value: int, size: int, *, compact: bool) -> None:
        """Write a length, -1 for null, as `FieldReader.length` reads it."""
        if compact:
            self.varint(value + 1)
        else:
            self.integer(value, size)

    def put(self, data: Piece) -> None:
        """Write bytes as they are."""
        if isinstance(data, bytes):
            self._open += data
        else:
            self._done += [bytes(self._open), data]
            self._open = bytearray()

    def pieces(self) -> list[Piece]:
        """Return what was written, in order."""
        return [*self._done, bytes(self._open)] if self._open or not self._done else self._done
