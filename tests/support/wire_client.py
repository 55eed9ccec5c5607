"""A client of the wire protocol that says exactly what it is told, with the messages of kafka-python."""

from __future__ import annotations

import importlib
import socket
import struct
from functools import cache
from typing import Any

from kafka.record import MemoryRecords

_ROOMS = ("metadata", "consumer", "admin", "producer", "sasl")


@cache
def message_class(name: str) -> Any:
    """Return kafka-python's class of a message, such as `FetchRequest`."""
    for room in _ROOMS:
        found = getattr(importlib.import_module(f"kafka.protocol.{room}"), name, None)
        if found is not None:
            return found
    raise LookupError(name)


def frame_of(name: str, version: int, values: dict[str, Any], correlation_id: int = 7) -> bytes:
    """Return the frame of a request; `name` without `Request`."""
    message = message_class(f"{name}Request")(version=version, **values)
    message.with_header(correlation_id=correlation_id, client_id="test")
    return bytes(message.encode(header=True, framed=True))


def parsed(name: str, version: int, frame: bytes) -> Any:
    """Return the fields of an answer, without its length; `name` without `Response`."""
    found = message_class(f"{name}Response")
    answer = found.decode(frame, version=version, header=True)
    assert answer.header.correlation_id == 7
    return answer


def records_of(answer: Any, offset: int, *, committed: bool) -> tuple[list[tuple[int, bytes | None]], int]:
    """
    Return offsets and keys of the records in an answer, and the next offset to ask for.

    They are what a consumer finds that follows the protocol to the letter.
    """
    begins = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    hidden: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    records, wanted = MemoryRecords(bytes(answer.records or b"")), offset
    while records.has_next():
        batch: Any = records.next_batch()
        last = batch.base_offset + batch.last_offset_delta
        while begins and begins[0][0] <= last:
            hidden.add(begins.pop(0)[1])
        if batch.is_control_batch:
            hidden.discard(batch.producer_id)
        elif not (committed and batch.is_transactional and batch.producer_id in hidden):
            found += [(each.offset, each.key) for each in batch if each.offset >= wanted]
        offset = last + 1
    return found, offset


class WireClient:
    """One connection. Close it, or use it in a `with` block."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0))

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, name: str, version: int, **values: Any) -> Any:
        """Send a request and return the answer's fields."""
        self.socket.sendall(frame_of(name, version, values))
        return parsed(name, version, self.frame())

    def frame(self) -> bytes:
        """Return the next frame; raises EOFError if the server has closed the connection."""
        (size,) = struct.unpack(">i", self._take(4))
        return self._take(size)

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def fetch(self, topic: str, offset: int, version: int = 12, partition: int = 0, **more: Any) -> Any:
        """Fetch from one partition; returns its part of the answer."""
        one = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more.pop("one", {})}
        request = message_class("FetchRequest")
        topics = [{("topic_id" if version >= 13 else "topic"): topic, "partitions": [one]}]
        answer = self.ask(
            "Fetch",
            version,
            **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0, **more},
            topics=[
                request.FetchTopic(**{**each, "partitions": [request.FetchTopic.FetchPartition(**one)]})
                for each in topics
            ],
        )
        return answer.responses[0].partitions[0] if answer.responses else answer
