"""What a client reads: batches, offsets by time, ends of leader epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cleaner.base import concurrency
from cleaner.errors import CleanerError
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code, code_of
from cleaner.serve.partition import FileRecords, Partition
from cleaner.storage.fs.remote import RemoteFile

MAX_ANSWER_BYTES = 64 << 20
"""The most records of an answer, whatever a client asks for; more only for one batch that is larger."""

REMOTE_ANSWER_BYTES = 8 << 20
"""The same of partitions in a bucket, whose records are read before the answer begins: only then can it be an error."""

_REMOTE_BYTES = 64 << 20  # of such answers at a time, of all clients
_LONGEST_WAIT_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.02
_LONGEST_PAUSE_SECONDS = 0.2
_COMMITTED = 1


@dataclass
class Wanted:
    """A partition of a Fetch; `partition` is None if it is not here, and then there is a code."""

    number: int
    partition: Partition | None
    code: Code
    offset: int
    max_bytes: int


class Room:
    """How much memory records may take that were read and are not sent yet; for any thread."""

    def __init__(self, size: int) -> None:
        self._guard = concurrency.Lock()
        self._size, self._taken = size, 0

    def take(self, size: int) -> bool:
        """Take some bytes; False: there is no room now. A batch that is larger than all of it is alone in it."""
        with self._guard:
            has_room = not self._taken or self._taken + size <= self._size
            self._taken += size if has_room else 0
            return has_room

    def free(self, size: int) -> None:
        """Give them back."""
        with self._guard:
            self._taken -= size


class ReadRecords:
    """Records in memory, which take room until they are closed."""

    def __init__(self, data: bytes, room: Room, size: int) -> None:
        self.data, self.size = data, len(data)
        self._room, self._taken = room, size

    def close(self) -> None:
        """Free the room; a second call does nothing."""
        self._room.free(self._taken)
        self._taken, self.data = 0, b""


@dataclass
class Fetched:
    """An answer to a Fetch; `records` are open, and the caller closes them."""

    values: dict[str, Any] = field(default_factory=dict)
    records: list[FileRecords | ReadRecords] = field(default_factory=list)
    bytes: int = 0
    has_error: bool = False

    def close(self) -> None:
        """Close what is open."""
        for each in self.records:
            each.close()


class Reader:
    """Answers from the partitions of a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._room = Room(_REMOTE_BYTES)

    async def fetch(self, request: dict[str, Any], version: int, is_gone: Callable[[], bool]) -> Fetched:
        """
        Answer Fetch; waits for records up to the client's time if there are too few.

        Sessions are not kept: the answer says so, and every request names all its partitions.

        Args:
            is_gone: tells whether the client has closed its connection.
        Raises:
            ConnectionError: it has, while it waited.
        """
        if request.get("sessionId", 0) != 0:
            return Fetched({"errorCode": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []})
        wanted = [(topic, list(self._wanted(topic, version))) for topic in request["topics"]]
        committed = request["isolationLevel"] == _COMMITTED
        max_bytes = min(max(request["maxBytes"], 0), MAX_ANSWER_BYTES)
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(request["maxWaitMs"], 0) / 1000, _LONGEST_WAIT_SECONDS)
        pause = _FIRST_PAUSE_SECONDS
        fetched: Fetched | None = None
        while True:
            if fetched is None or not self._is_all_read(wanted, committed):
                if fetched is not None:
                    fetched.close()
                fetched = await asyncio.to_thread(self._fetch, wanted, committed, max_bytes)
                if fetched.has_error or fetched.bytes >= request["minBytes"]:
                    return fetched
            left = until - loop.time()
            if left <= 0:
                return fetched
            try:
                await asyncio.sleep(min(pause, left))
                if is_gone():
                    raise ConnectionError("the client has gone")
            except BaseException:
                fetched.close()
                raise
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _wanted(self, topic: dict[str, Any], version: int) -> Iterator[Wanted]:
        is_by_id = version >= 13
        found = self._catalog.by_id.get(topic["topicId"]) if is_by_id else self._catalog.topics.get(topic["topic"])
        unknown = Code.UNKNOWN_TOPIC_ID if is_by_id and found is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        for each in topic["partitions"]:
            number = each["partition"]
            partition = None if found is None else found.partitions.get(number)
            code = Code.NONE if partition is not None else unknown
            yield Wanted(number, partition, code, each["fetchOffset"], max(each["partitionMaxBytes"], 0))

    @staticmethod
    def _is_all_read(wanted: list[tuple[dict[str, Any], list[Wanted]]], committed: bool) -> bool:
        """Tell, without reading, whether a moment ago there was nothing behind the wanted offsets."""
        return all(
            each.partition is not None and each.partition.fresh_end(committed=committed) == each.offset
            for _, partitions in wanted
            for each in partitions
        )

    def _fetch(self, wanted: list[tuple[dict[str, Any], list[Wanted]]], committed: bool, max_bytes: int) -> Fetched:
        fetched = Fetched()
        responses = []
        try:
            for topic, partitions in wanted:
                rows = [_fetch_one(each, committed, max_bytes, fetched, self._room) for each in partitions]
                named: dict[str, Any] = {name: topic[name] for name in ("topic", "topicId") if name in topic}
                responses.append({**named, "partitions": rows})
        except BaseException:
            fetched.close()
            raise
        fetched.values = {"responses": responses}
        return fetched

    def list_offsets(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer ListOffsets; reads the disk."""
        committed = request.get("isolationLevel", 0) == _COMMITTED

        def answer(partition: Partition, asked: dict[str, Any]) -> dict[str, Any]:
            offset, timestamp = _find_offset(partition, asked["timestamp"], committed)
            return {"offset": offset, "timestamp": timestamp, "leaderEpoch": partition.latest_epoch()}

        return self._each(request, ("name", "partitionIndex"), answer)

    def epochs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer OffsetForLeaderEpoch; reads the disk."""

        def answer(partition: Partition, asked: dict[str, Any]) -> dict[str, Any]:
            end = partition.end_of_epoch(asked["leaderEpoch"])
            return {"leaderEpoch": end.epoch, "endOffset": end.end_offset}

        return self._each(request, ("topic", "partition"), answer)

    def _each(
        self,
        request: dict[str, Any],
        names: tuple[str, str],
        answer: Callable[[Partition, dict[str, Any]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Answer for each partition of a request; `names` are those of the fields with topic and number."""
        topics = []
        for topic in request["topics"]:
            rows = []
            for asked in topic["partitions"]:
                row = {names[1]: asked[names[1]]}
                partition = self._catalog.find(topic[names[0]], asked[names[1]])
                try:
                    unknown = {"errorCode": Code.UNKNOWN_TOPIC_OR_PARTITION}
                    row |= unknown if partition is None else answer(partition, asked)
                except CleanerError as error:
                    row["errorCode"] = code_of(error)
                rows.append(row)
            topics.append({names[0]: topic[names[0]], "partitions": rows})
        return {"topics": topics}


def _find_offset(partition: Partition, timestamp: int, committed: bool) -> tuple[int, int]:
    """Return an offset and its timestamp, -1 for special ones."""
    match timestamp:
        case -1:
            return partition.reach(committed=committed).end(committed=committed), -1
        case -2 | -4:
            return partition.reach(committed=False).start, -1
        case -3:
            return partition.latest_by_time()
        case _ if timestamp < 0:
            return -1, -1  # of tiered storage, which is not here
    return partition.by_time(timestamp, committed=committed)


def _fetch_one(wanted: Wanted, committed: bool, max_bytes: int, fetched: Fetched, memory: Room) -> dict[str, Any]:
    """Return the answer for a partition; adds its records, in a file or in memory, where they took room."""
    row: dict[str, Any] = {"partitionIndex": wanted.number, "highWatermark": -1, "records": b""}
    partition = wanted.partition
    if partition is None:
        fetched.has_error = True
        return {**row, "errorCode": wanted.code}
    try:
        reach = partition.reach(committed=committed)
        row |= {
            "highWatermark": reach.high_watermark,
            "lastStableOffset": -1 if reach.last_stable is None else reach.last_stable,
            "logStartOffset": reach.start,
            "abortedTransactions": [] if committed else None,
        }
        if not partition.has(wanted.offset, reach):
            fetched.has_error = True
            return {**row, "errorCode": Code.OFFSET_OUT_OF_RANGE}
        max_bytes = min(max_bytes, REMOTE_ANSWER_BYTES) if partition.is_remote else max_bytes
        room = min(wanted.max_bytes, max_bytes - fetched.bytes)
        if wanted.offset >= reach.end(committed=committed) or (room <= 0 and fetched.bytes):
            return row
        # The first batch of an answer is whole, however large: else a reader would never get past it.
        found, aborted = partition.extent(
            wanted.offset, reach, room, committed=committed, whole_batch=not fetched.bytes
        )
        records = found if found is None or not partition.is_remote else _read(found, memory)
    except CleanerError as error:
        fetched.has_error = True
        return {**row, "errorCode": code_of(error)}
    if records is None:
        return row
    fetched.records.append(records)
    fetched.bytes += records.size
    row["records"] = records
    row["abortedTransactions"] = (
        [{"producerId": producer, "firstOffset": first} for producer, first in aborted] if committed else None
    )
    return row


def _read(found: FileRecords, room: Room) -> FileRecords | ReadRecords | None:
    """
    Read records that are in a bucket, and close them; None: there is no room for them now, so ask again.

    Those of a joined log dir that are on this machine's disk stay where they are.

    Raises:
        CleanerError: the bucket does not answer, or the object was replaced.
    """
    file = found.extent.segment.file
    if not isinstance(file, RemoteFile):
        return found
    try:
        if not room.take(found.size):
            return None
        try:
            data = file.read(found.size, found.extent.position)
        except BaseException:
            room.free(found.size)
            raise
        return ReadRecords(data, room, found.size)
    finally:
        found.close()
