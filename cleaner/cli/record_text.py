"""
Records as text, as Kafka's console consumer prints them.

    CreateTime:1700000000000  Partition:0  Offset:5  name:value,name:value  key  value

Properties select columns, which come in this order, with `key.separator` between them and `line.separator` after the
last. Bytes are printed unchanged, unless a deserializer turns them into a number.

Source: `DefaultMessageFormatter.java`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cleaner.base.mistakes import did_you_mean
from cleaner.cli.kafka_flags import FORMATTER_PROPERTIES, is_true
from cleaner.errors import CleanerError, UsageError
from cleaner.log.record import Record

Deserializer = Callable[[bytes], bytes]


def _as_is(data: bytes) -> bytes:
    return data


def _of_struct(form: str) -> Deserializer:
    def read(data: bytes) -> bytes:
        return str(struct.unpack(form, data)[0]).encode()

    return read


_DESERIALIZERS: dict[str, Deserializer] = {
    "": _as_is,
    "String": _as_is,
    "ByteArray": _as_is,
    "Short": _of_struct(">h"),
    "Integer": _of_struct(">i"),
    "Long": _of_struct(">q"),
    "Double": _of_struct(">d"),
    "Boolean": lambda data: str(struct.unpack(">?", data)[0]).lower().encode(),
    "UUID": lambda data: str(uuid.UUID(data.decode("ascii"))).encode(),
}


def deserializer_of(name: str) -> Deserializer:
    """
    Return the deserializer of a field; `name` is Kafka's class, with or without its package.

    Raises:
        UsageError: it is not a known one.
    """
    short = name.rpartition(".")[2].removesuffix("Deserializer")
    if short not in _DESERIALIZERS:
        known = ", ".join(f"{each}Deserializer" for each in _DESERIALIZERS if each)
        likely = did_you_mean(f"{short}Deserializer", known.split(", "))
        raise UsageError(f"{name}: no such deserializer here; there are {known}{likely}")
    return _DESERIALIZERS[short]


@dataclass(frozen=True)
class TextFormat:
    """
    How a record is printed.

    Attributes:
        columns: the names of printed columns, in order: the part after `print.`.
        timestamp_type: `CreateTime` or `LogAppendTime`, as set for the topic.
    """

    columns: tuple[str, ...]
    timestamp_type: str
    key_separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null_literal: bytes
    key: Deserializer
    value: Deserializer
    headers: Deserializer

    @staticmethod
    def of(properties: Mapping[str, str], timestamp_type: str = "CreateTime") -> TextFormat:
        """
        Take the known properties; the others are ignored here.

        Raises:
            UsageError: an unknown deserializer.
        """
        values = {name: properties.get(name, default) for name, default in FORMATTER_PROPERTIES.items()}
        columns = (name.removeprefix("print.") for name in FORMATTER_PROPERTIES if name.startswith("print."))
        return TextFormat(
            tuple(name for name in columns if is_true(values[f"print.{name}"])),
            timestamp_type,
            values["key.separator"].encode(),
            values["line.separator"].encode(),
            values["headers.separator"].encode(),
            values["null.literal"].encode(),
            deserializer_of(values["key.deserializer"]),
            deserializer_of(values["value.deserializer"]),
            deserializer_of(values["headers.deserializer"]),
        )

    def text(self, partition: int, record: Record) -> bytes:
        """
        Return a record's text, with its line end; empty if no column was asked for.

        Raises:
            CleanerError: a field does not fit its deserializer.
        """
        if not self.columns:
            return b""
        try:
            fields = [self._field(column, partition, record) for column in self.columns]
        except (struct.error, ValueError) as error:
            where = f"partition {partition}, offset {record.offset}"
            raise CleanerError(f"{where}: the deserializer cannot read it: {error}") from error
        return self.key_separator.join(fields) + self.line_separator

    def _field(self, column: str, partition: int, record: Record) -> bytes:
        match column:
            case "timestamp":
                return f"{self.timestamp_type}:{record.timestamp_ms}".encode()
            case "partition":
                return b"Partition:%d" % partition
            case "offset":
                return f"Offset:{record.offset}".encode()
            case "headers":
                return self._headers(record)
            case "key":
                return self._read(self.key, record.key)
            case "value":
                return self._read(self.value, record.value)
        return f"{column.capitalize()}:NOT_PRESENT".encode()

    def _headers(self, record: Record) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = (name.encode() + b":" + self._read(self.headers, value) for name, value in record.headers)
        return self.headers_separator.join(pairs)

    def _read(self, deserializer: Deserializer, data: bytes | None) -> bytes:
        return self.null_literal if data is None else deserializer(data)
