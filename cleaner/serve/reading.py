"""What a client reads: batches, offsets by time, ends of leader epochs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from cleaner.base import concurrency
from cleaner.errors import CleanerError
from cleaner.serve.catalog import Catalog
from cleaner.serve.codes import Code
from cleaner.serve.login import Call
from cleaner.serve.partition import FileRecords, Partition
from cleaner.serve.wire import Values, for_each_partition
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


class Room:
    """How much memory requests, or records that were read and are not sent yet, may take; for any thread."""

    def __init__(self, size: int) -> None:
        self._guard = concurrency.Lock()
        self._size, self._taken = size, 0

    def take(self, size: int) -> bool:
        """Take some bytes; False: there is no room now. What is larger than all of it is alone in it."""
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

    def __init__(self, data: bytes, room: Room, taken: int) -> None:
        self.size = len(data)
        self._data, self._room, self._taken = data, room, taken

    def read(self, position: int, size: int) -> bytes:
        """Return some of the bytes."""
        return self._data[position : position + size]

    def read_end(self, size: int) -> bytes:
        """Return the last bytes."""
        return self.read(self.size - size, size)

    def close(self) -> None:
        """Free the room; a second call does nothing."""
        self._room.free(self._taken)
        self._taken, self._data = 0, b""


@dataclass
class Fetched:
    """An answer to a Fetch; `records` are open, and the caller closes them."""

    values: Values = field(default_factory=dict)
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

    async def fetch(self, request: Values, call: Call) -> Values:
        """
        Answer Fetch; waits for records up to the client's time if there are too few.

        Sessions are not kept: the answer says so, and every request names all its partitions.

        Raises:
            ConnectionError: the client has closed its connection while it waited.
        """
        if request.get("sessionId", 0) != 0:
            return {"errorCode": Code.FETCH_SESSION_ID_NOT_FOUND, "responses": []}
        now = asyncio.get_running_loop().time
        until = now() + min(max(request["maxWaitMs"], 0) / 1000, _LONGEST_WAIT_SECONDS)
        pause = _FIRST_PAUSE_SECONDS
        while True:
            fetched = await asyncio.to_thread(self._fetch, request)
            call.opened.callback(fetched.close)
            left = until - now()
            if fetched.has_error or fetched.bytes >= request["minBytes"] or left <= 0:
                return fetched.values
            call.opened.close()
            await asyncio.sleep(min(pause, left))
            if call.is_gone():
                raise ConnectionError("the client has gone")
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _fetch(self, request: Values) -> Fetched:
        fetched = Fetched()
        try:
            responses = [self._fetch_topic(topic, request, fetched) for topic in request["topics"]]
        except BaseException:
            fetched.close()
            raise
        fetched.values = {"responses": responses}
        return fetched

    def _fetch_topic(self, topic: Values, request: Values, fetched: Fetched) -> Values:
        is_by_id = "topicId" in topic
        found = self._catalog.by_id.get(topic["topicId"]) if is_by_id else self._catalog.topics.get(topic["topic"])
        unknown = Code.UNKNOWN_TOPIC_ID if is_by_id and found is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        rows = []
        for asked in topic["partitions"]:
            row: Values = {"partitionIndex": asked["partition"], "highWatermark": -1, "records": b""}
            partition = None if found is None else found.partitions.get(asked["partition"])
            row |= self._of(partition, unknown, partial(self._fetch_one, asked=asked, request=request, fetched=fetched))
            fetched.has_error |= bool(row.get("errorCode"))
            rows.append(row)
        return {**{name: topic[name] for name in ("topic", "topicId") if name in topic}, "partitions": rows}

    def _fetch_one(self, partition: Partition, asked: Values, request: Values, fetched: Fetched) -> Values:
        """Return the answer for a partition; adds its records, in a file or in memory, where they took room."""
        offset, committed = asked["fetchOffset"], request["isolationLevel"] == _COMMITTED
        reach = partition.reach(committed=committed)
        row: Values = {
            "highWatermark": reach.high_watermark,
            "lastStableOffset": -1 if reach.last_stable is None else reach.last_stable,
            "logStartOffset": reach.start,
            "abortedTransactions": [] if committed else None,
        }
        if not partition.has(offset, reach):
            return {**row, "errorCode": Code.OFFSET_OUT_OF_RANGE}
        limit = min(request["maxBytes"], REMOTE_ANSWER_BYTES if partition.is_remote else MAX_ANSWER_BYTES)
        room = max(min(asked["partitionMaxBytes"], limit - fetched.bytes), 0)
        if offset >= reach.end or (room <= 0 and fetched.bytes):
            return row
        # The first batch of an answer is whole, however large: else a reader would never get past it.
        found, aborted = partition.extent(offset, reach, room, whole_batch=not fetched.bytes)
        records = None if found is None else _read(found, self._room)
        if records is None:
            return row
        fetched.records.append(records)
        fetched.bytes += records.size
        told = [{"producerId": producer, "firstOffset": first} for producer, first in aborted] if committed else None
        return {**row, "records": records, "abortedTransactions": told}

    def list_offsets(self, request: Values) -> Values:
        """Answer ListOffsets; reads the disk."""
        committed = request.get("isolationLevel", 0) == _COMMITTED

        def answer(partition: Partition, asked: Values) -> Values:
            offset, timestamp = partition.offset_at(asked["timestamp"], committed=committed)
            return {"offset": offset, "timestamp": timestamp, "leaderEpoch": partition.latest_epoch()}

        return self._each(request, ("name", "partitionIndex"), answer)

    def epochs(self, request: Values) -> Values:
        """Answer OffsetForLeaderEpoch; reads the disk."""

        def answer(partition: Partition, asked: Values) -> Values:
            end = partition.end_of_epoch(asked["leaderEpoch"])
            return {"leaderEpoch": end.epoch, "endOffset": end.end_offset}

        return self._each(request, ("topic", "partition"), answer)

    def _each(
        self,
        request: Values,
        names: tuple[str, str],
        answer: Callable[..., Values],
    ) -> Values:
        """Answer for each partition of a request; `names` are those of the fields with topic and number."""

        def row(topic: str, asked: Values) -> Values:
            partition = self._catalog.find(topic, asked[names[1]])
            return self._of(partition, Code.UNKNOWN_TOPIC_OR_PARTITION, partial(answer, asked=asked))

        return for_each_partition(request, names, row)

    def _of(self, partition: Partition | None, unknown: Code, answer: Callable[[Partition], Values]) -> Values:
        """Answer for a partition, or with the code of an error."""
        if partition is None:
            return {"errorCode": unknown}
        try:
            return answer(partition)
        except CleanerError as error:
            return {"errorCode": self._catalog.told(partition, error)}


def _read(found: FileRecords, room: Room) -> FileRecords | ReadRecords | None:
    """
    Read records that are in a bucket, and close them; None: there is no room for them now, so ask again.

    Those of a joined log dir that are on this machine's disk stay where they are.

    Raises:
        CleanerError: the bucket does not answer, or the object was replaced.
    """
    if not isinstance(found.extent.segment.file, RemoteFile):
        return found
    with contextlib.closing(found):
        if not room.take(found.size):
            return None
        try:
            return ReadRecords(found.read(0, found.size), room, found.size)
        except BaseException:
            room.free(found.size)
            raise
