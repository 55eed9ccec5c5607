"""The pieces that files of a log consist of, as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class ShownBatch:
    """
    A batch, by its header. Of magic 0 and 1 only `last_offset` and what follows `delete_horizon_ms` is known.

    Attributes:
        timestamp_type: `CreateTime`, `LogAppendTime`, or `NoTimestampType` for magic 0.
        delete_horizon_ms: None without one.
        is_valid: its checksum is right.
    """

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp: int
    size: int
    magic: int
    codec: str
    crc: int
    is_valid: bool


class ShownRecord(NamedTuple):
    """
    A record of a batch. A tuple, as there are very many.

    Attributes:
        header_names: of its headers.
        legacy: whether its own checksum is right, and that; None in a batch of magic 2.
        control: what a control record says, a name and fields; None of a data record.
    """

    batch: ShownBatch
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    sequence: int
    header_names: tuple[str, ...]
    legacy: tuple[bool, int] | None
    control: tuple[str, dict[str, Any]] | None


class Viewer(Protocol):
    """Shown the pieces of files, one after the other."""

    def on_file(self, path: str) -> None:
        """A file begins; `path` as it was given."""

    def on_log(self, words: str, /, **fields: int) -> None:
        """It is a `.log`, or a snapshot of KRaft's metadata log: `words` says of what."""

    def on_batch(self, batch: ShownBatch) -> None:
        """A batch."""

    def on_record(self, record: ShownRecord) -> None:
        """A record of the batch before."""

    def on_trailing_bytes(self, path: str, count: int, /) -> None:
        """So many bytes at the end of a log hold no whole batch."""

    def on_entry(self, kind: str, /, **fields: object) -> None:
        """An entry of an index, a snapshot, a checkpoint or another small file; `kind` says of which."""

    def on_verdict(self, path: str, words: str, verdict: str, /) -> None:
        """An index as a whole: `words` say it."""

    def on_mistake(self, heading: str, lines: list[str]) -> None:
        """What does not fit, told when all files were shown."""

    def on_damage(self, message: str) -> None:
        """Something cannot be read; what follows can."""
