"""The kinds of topics that can be replayed, and the replay of both logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from cleaner.format.coordinator_records import CONSUMER_OFFSETS, TRANSACTION_STATE
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replay.connect import ConnectReplay
from cleaner.verification.replay.groups import GroupReplay
from cleaner.verification.replay.records import Marker, read_all
from cleaner.verification.replay.schemas import SchemaReplay
from cleaner.verification.replay.share_state import ShareStateReplay
from cleaner.verification.replay.state import Replay
from cleaner.verification.replay.transactions import TransactionReplay

REPLAYS: Mapping[str, Callable[[], Replay]] = {
    "groups": GroupReplay,
    "share-state": ShareStateReplay,
    "transactions": TransactionReplay,
    "schemas": SchemaReplay,
    "connect": ConnectReplay,
}
"""By the name of the kind."""

_KINDS = {
    CONSUMER_OFFSETS: "groups",
    "__share_group_state": "share-state",
    TRANSACTION_STATE: "transactions",
    "_schemas": "schemas",
}
_CONNECT = re.compile(r"(.*[-_.])?connect[-_.]?(offsets|configs?|status|statuses)")


def kind_of(topic: str) -> str | None:
    """Return the kind that a topic has by its usual name; None for others."""
    return _KINDS.get(topic) or ("connect" if _CONNECT.fullmatch(topic) else None)


def replay(kind: str, side: LogSide, limit_bytes: int, step: Callable[[int], None]) -> tuple[Replay, int]:
    """
    Replay a log; returns the state, and how many records there were.

    Args:
        kind: of `REPLAYS`.
        limit_bytes: the most a batch may unpack to.
        step: called with the bytes read since the last call; raises to stop.
    Raises:
        CorruptBatchError: damage.
    """
    state = REPLAYS[kind]()
    records = 0
    for item in read_all(side, limit_bytes, step, committed=state.committed):
        if isinstance(item, Marker):
            state.marker(item.producer_id, item.is_commit)
        else:
            state.record(*item)
            records += 1
    return state, records
