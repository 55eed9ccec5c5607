"""Whatever clients send, and whatever a log holds: the endpoint stays, and gives what our own readers give."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.serve.api import load_apis
from cleaner.serve.server import Limits
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.served import serving
from tests.support.wire_client import WireClient, frame_of, message_class, records_of

SECONDS = float(os.environ.get("SERVE_FUZZ_SECONDS", "1"))
"""How long frames are sent: `make fuzz-serve` sends them for an hour."""

TOPIC = TopicPartition("topic", 0)
_CODECS = ("none", "gzip")


def random_log(chance: random.Random) -> LogBuilder:
    """Return a log with holes, several segments, packed batches, and transactions of each outcome."""
    log = LogBuilder(TOPIC, segment_bytes=chance.choice((500, 3000)), index_interval_bytes=chance.choice((1, 400)))
    sequences = {1: 0, 2: 0}
    is_open = set()
    for number in range(chance.randint(5, 60)):
        match chance.randrange(5):
            case 0:
                log.skip(chance.randint(1, 9))
            case 1:
                producer = chance.choice((1, 2))
                log.append((f"t{number}", "x"), producer=Producer(producer, 0, sequences[producer], transactional=True))
                sequences[producer] += 1
                is_open.add(producer)
            case 2 if is_open:
                producer = is_open.pop()
                log.end_transaction(producer, 0, commit=chance.random() < 0.5)
            case _:
                pairs = [(f"k{chance.randrange(9)}", "v" * chance.randrange(80)) for _ in range(chance.randint(1, 6))]
                log.append(*pairs, codec=chance.choice(_CODECS))
    return log


def consumed(client: WireClient, *, committed: bool, chance: random.Random) -> list[tuple[int, bytes | None]]:
    """Return offsets and keys as a consumer finds them that follows the protocol by the letter."""
    offset = 0
    found: list[tuple[int, bytes | None]] = []
    while True:
        limit = chance.choice((1, 100, 700, 1 << 20))
        answer = client.fetch(
            "topic", offset, isolation_level=int(committed), one={"partition_max_bytes": limit}, max_bytes=1 << 20
        )
        assert answer.error_code == 0
        before = offset
        more, offset = records_of(answer, offset, committed=committed)
        found += more
        # At the end, or before a hole at the end: its offsets have no batch that could be sent.
        if offset == before:
            return found


@pytest.mark.parametrize("seed", range(12))
def test_served_is_what_readers_read(tmp_path: Path, seed: int) -> None:
    """Every record once, in order, with answers of any size; of committed records those that are decided."""
    chance = random.Random(seed)
    write_log_dir(tmp_path, random_log(chance))
    with serving(tmp_path) as port, WireClient(port) as client:
        for isolation in ("read_uncommitted", "read_committed"):
            with cleaner.open_reader(tmp_path, "topic", 0) as reader:
                expected = [(record.offset, record.key) for record in reader.read(0, isolation=isolation)]
            assert consumed(client, committed=isolation == "read_committed", chance=chance) == expected


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log_dir = tmp_path_factory.mktemp("served")
    write_log_dir(log_dir, random_log(random.Random(1)))
    errors: list[str] = []
    limits = Limits(frame_seconds=0.2, frame_bytes=1 << 16, connections=8)
    with serving(log_dir, limits=limits, warn=errors.append) as port:
        yield port
    assert not errors, "a hostile frame reached code that did not expect it"


def sound_frames() -> list[bytes]:
    """Return requests of all kinds and versions, most of them empty, and some that ask for something."""
    frames = []
    for api in load_apis().values():
        name = api.request.name.removesuffix("Request")
        for version in range(api.versions[0], api.versions[1] + 1):
            frames.append(frame_of(name, version, {}))
    fetch = message_class("FetchRequest").FetchTopic
    offsets = message_class("ListOffsetsRequest").ListOffsetsTopic
    one = fetch.FetchPartition(partition=0, fetch_offset=3, partition_max_bytes=5000)
    frames.append(frame_of("Fetch", 12, {"topics": [fetch(topic="topic", partitions=[one])], "max_wait_ms": 0}))
    at = offsets.ListOffsetsPartition(partition_index=0, timestamp=5)
    frames.append(frame_of("ListOffsets", 5, {"topics": [offsets(name="topic", partitions=[at])]}))
    return frames


def spoilt(frame: bytes, chance: random.Random) -> bytes:
    """Return a frame with its length right or wrong, and with bytes changed, lost or added."""
    body = bytearray(frame[4:])
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body)) if body else 0
        match chance.randrange(5):
            case 0 if body:
                body[at] = chance.randrange(256)
            case 1:
                body[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
            case 2:
                del body[at : at + chance.randint(1, 8)]
            case 3:
                body[at : at + 4] = struct.pack(">i", chance.choice((-1, 2**31 - 1, -(2**31), 65535)))
            case _:
                body[at:at] = b"\xff" * chance.randint(1, 2000)
    size = len(body) if chance.random() < 0.9 else chance.choice((-1, 0, 3, 2**31 - 1, len(body) + 5))
    return struct.pack(">i", size) + bytes(body)


def test_hostile_frames_end_their_connection_only(port: int) -> None:
    """Spoilt frames get an answer or the end of their connection; one that asks properly is always answered."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    frames = sound_frames()
    until = time.monotonic() + SECONDS
    sent = ended = 0
    with WireClient(port) as neighbour:
        # A frame that asks to wait takes a second of the time: there are some in any case.
        while time.monotonic() < until or (sent <= 50 and time.monotonic() < until + 20):
            with WireClient(port) as hostile:
                for _ in range(20):
                    hostile.socket.settimeout(0.02 if chance.random() < 0.05 else 1.0)
                    sent += 1
                    try:
                        hostile.socket.sendall(spoilt(chance.choice(frames), chance))
                        hostile.frame()
                    except (EOFError, ConnectionError, TimeoutError):
                        ended += 1
                        break
            assert neighbour.fetch("topic", 0).error_code == 0, f"seed {seed}"
            assert neighbour.ask("ApiVersions", 3).api_keys, f"seed {seed}"
    assert sent > 50 and ended > 10, f"seed {seed}: {sent} frames, {ended} connections ended"


def test_too_many_connections(port: int) -> None:
    """One more than allowed is closed at once, the others are served, and room is made when one goes."""
    time.sleep(0.3)  # the server notices that the connections of other tests have gone
    clients = [WireClient(port) for _ in range(8)]
    try:
        assert all(each.ask("ApiVersions", 0).api_keys for each in clients)
        with WireClient(port) as extra, pytest.raises(EOFError):
            extra.ask("ApiVersions", 0)
        clients.pop().socket.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                with WireClient(port) as extra:
                    assert extra.ask("ApiVersions", 0).api_keys
                    break
            except EOFError:
                assert time.monotonic() < deadline
    finally:
        for each in clients:
            each.socket.close()


def test_a_frame_that_does_not_end(port: int) -> None:
    """A client that stops within a frame is cut off after the time for a frame; its bytes are free again."""
    with WireClient(port) as slow:
        slow.socket.sendall(struct.pack(">i", 60000) + b"\0" * 100)
        with pytest.raises(EOFError):
            slow.frame()
