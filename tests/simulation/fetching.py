"""
A consumer of committed records that asks `cleaner serve`, beside writer, rounds and accidents.

What is answered to a Fetch is decided by a catalog and a reader without sockets, in a process of its own; they are
given the requests of a consumer that follows the protocol to the letter. What it makes of the answers is shown.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from random import Random

from cleaner.errors import CleanerError, LogChangedError, OffsetOutOfRangeError
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code
from cleaner.serve.partition import FileRecords
from cleaner.serve.reading import Reader
from tests.reference.batches import read_batches, read_records
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import number_of
from tests.support.codecs import crc32c

Shown = tuple[int, str, bytes | None, int]
"""Offset, key, value and number of a record."""

_CRC = slice(17, 21)
_SIZES = (1, 300, 3000, 1 << 20)
_END_BYTES = 100


def fetched(bench: Bench, fs: SimFiles, topic: str, pause: float) -> Iterator[Shown]:
    """Fetch a log from its start to its end; `pause`: seconds, behind the first answer."""
    chance = Random(bench.done)
    with contextlib.closing(Catalog(fs, [bench.log_dir], bench.clock, lambda _: None)) as catalog:
        partition = catalog.find(topic, 0)
        if partition is None:
            raise CleanerError(f"{topic} is not there")
        offset = partition.reach(committed=True).start
        while True:
            size = chance.choice(_SIZES)
            asked = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": size}
            request = {"isolationLevel": 1, "maxBytes": size, "topics": [{"topic": topic, "partitions": [asked]}]}
            with contextlib.closing(Reader(catalog)._fetch(request)) as answer:
                row = answer.values["responses"][0]["partitions"][0]
                try:
                    data = b"".join(_sent(each) for each in answer.records if isinstance(each, FileRecords))
                except LogChangedError:
                    continue  # the connection ends within the answer, and the client asks again
            if row.get("errorCode") is Code.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRangeError(partition.directory, offset, row["logStartOffset"], row["highWatermark"])
            if row.get("errorCode"):
                raise CleanerError(f"a fetch from {offset} is answered with {row['errorCode'].name}")
            before = offset
            for next_offset, record in _records(data, row["abortedTransactions"], before):
                offset = next_offset
                if record is not None:
                    yield record
            if offset == before:
                return
            if pause:
                bench.clock.sleep(pause)
                pause = 0


def _sent(records: FileRecords) -> bytes:
    """Read records as the server does: the end only when all before it is read."""
    end = min(_END_BYTES, records.size)
    before = records.extent.segment.file.read(records.size - end, records.extent.position)
    return before + records.read_end(end)


def _records(data: bytes, aborted: list[dict[str, int]] | None, wanted: int) -> Iterator[tuple[int, Shown | None]]:
    """Yield for each record, and for the end of each batch, the next offset to ask for."""
    begins = sorted((each["firstOffset"], each["producerId"]) for each in aborted or ())
    hidden: set[int] = set()
    try:
        batches = read_batches(data)
    except (ValueError, struct.error) as error:
        raise CleanerError("a client finds bytes that are no batch") from error
    for batch in batches:
        if int.from_bytes(batch.raw[_CRC], "big") != crc32c(batch.raw[_CRC.stop :]):
            raise CleanerError(f"a client finds a wrong checksum in the batch at {batch.base_offset}")
        while begins and begins[0][0] <= batch.last_offset:
            hidden.add(begins.pop(0)[1])
        if batch.control:
            hidden.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in hidden):
            for record in read_records(batch):
                if record.offset >= wanted:
                    key = (record.key or b"").decode()
                    yield record.offset + 1, (record.offset, key, record.value, number_of(record.headers))
        yield batch.last_offset + 1, None
