"""The names that keys of coordinators' topics stand for, and the transactional ids of producers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cleaner.app.session import Session
from cleaner.cleaning.estimate.who import KEY, Namer
from cleaner.dump.decoders import DECODERS, Decoder
from cleaner.errors import CleanerError
from cleaner.format.coordinator_records import CONSUMER_OFFSETS, TRANSACTION_STATE
from cleaner.format.key_digests import NO_OFFSET
from cleaner.format.layout import cut_out, lay_out
from cleaner.format.records import Unpacker
from cleaner.read.partition_files import MAX_BATCH_BYTES
from cleaner.read.summary import list_log_files
from cleaner.storage.segment.segment import Segment

GROUP, CONSUMED_TOPIC, TRANSACTIONAL_ID = "group", "consumed_topic", "transactional_id"
NAMED_BY: Mapping[str, tuple[str, ...]] = {
    CONSUMER_OFFSETS: (GROUP, CONSUMED_TOPIC),
    TRANSACTION_STATE: (TRANSACTIONAL_ID,),
}
NOT_DECODED, NOT_COMMITS = b"(not decoded)", b"(groups and members)"
_DECODERS: Mapping[str, Decoder] = {
    CONSUMER_OFFSETS: DECODERS["offsets"],
    TRANSACTION_STATE: DECODERS["transaction-log"],
}
_MOST_BYTES = 64 << 20  # of the transaction log that are read for names


def namer_of(topic: str) -> Namer | None:
    """Return what names the keys of a coordinator's topic; None for other topics."""
    if topic == CONSUMER_OFFSETS:
        return _names_of_commit
    return _names_of_transaction if topic == TRANSACTION_STATE else None


def shown(topic: str, by: str, name: bytes) -> str:
    """Return a name as text; bytes that are not UTF-8 are escaped."""
    if by == KEY and topic in _DECODERS and (data := _decoded(topic, name)):
        return " ".join(map(str, data.values()))
    return name.decode("utf-8", "backslashreplace")


def _decoded(topic: str, key: bytes) -> dict[str, Any]:
    """Return the fields of a key; none if it is of an unknown type or damaged."""
    text, _ = _DECODERS[topic](0, key, None)
    if text is None or not text.startswith("{"):
        return {}  # the decoder says in words what is wrong
    data: dict[str, Any] = json.loads(text)["data"]
    return data


def _names_of_commit(key: bytes) -> Mapping[str, bytes]:
    data = _decoded(CONSUMER_OFFSETS, key)
    group = data.get("group", data.get("groupId"))
    if group is None:
        return {GROUP: NOT_DECODED, CONSUMED_TOPIC: NOT_DECODED}
    is_commit = "topic" in data and "partition" in data
    return {GROUP: _bytes(group), CONSUMED_TOPIC: _bytes(data["topic"]) if is_commit else NOT_COMMITS}


def _names_of_transaction(key: bytes) -> Mapping[str, bytes]:
    found = _decoded(TRANSACTION_STATE, key).get("transactionalId")
    return {TRANSACTIONAL_ID: NOT_DECODED if found is None else _bytes(found)}


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "backslashreplace")


def name_producers(session: Session, producers: Sequence[str]) -> Mapping[str, str]:
    """
    Return the transactional ids of producers, as far as partitions of the transaction log are in the same log dir.

    What cannot be read there names nobody: the report is about other logs.
    """
    wanted, found = frozenset(producers), dict[str, str]()
    for topic_partition, directory in session.log_dir.listing().current.items():
        if topic_partition.topic == TRANSACTION_STATE and wanted - found.keys():
            try:
                found |= _ids_in(session, directory, wanted)
            except (CleanerError, OSError):
                session.context.warn(f"{directory}: transactional ids are left out; `cleaner check` says what is wrong")
    return found


def _ids_in(session: Session, directory: Path, wanted: frozenset[str]) -> dict[str, str]:
    fs, found, read = session.context.fs, dict[str, str](), 0
    unpacker = Unpacker(MAX_BATCH_BYTES)
    for seen in reversed(list_log_files(fs, directory).segments):
        if read >= _MOST_BYTES:
            break
        read += seen.size
        segment = Segment(fs, directory, seen.base_offset, size=seen.size, mtime_ns=seen.mtime_ns)
        of_segment = dict[str, str]()
        for chunk in segment.chunks():
            session.check_done()
            for block in unpacker.blocks(segment.log_path, chunk):
                layout = lay_out(segment.log_path, block, np.zeros(len(block.batches), np.uint8), 0, NO_OFFSET)
                keys = cut_out(layout.data, layout.key_starts, layout.key_sizes)
                values = cut_out(layout.data, layout.value_starts, layout.value_sizes)
                of_segment |= _ids_of(keys, values, wanted)
        found = of_segment | found  # later segments count
    return found


def _ids_of(keys: Sequence[bytes | None], values: Sequence[bytes | None], wanted: frozenset[str]) -> dict[str, str]:
    found = dict[str, str]()
    for key, value in zip(keys, values, strict=True):
        shown_key, shown_value = _DECODERS[TRANSACTION_STATE](0, key, value)
        if shown_key and shown_value and shown_key.startswith("{") and shown_value.startswith("{"):
            producer = str(json.loads(shown_value)["data"]["producerId"])
            if producer in wanted:
                found[producer] = json.loads(shown_key)["data"]["transactionalId"]
    return found
