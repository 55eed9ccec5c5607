"""The items that a dump of a log's files shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True)
class ShownBatch:
    """
    A batch, by its header. For magic 0 and 1 only `last_offset` and the fields after `delete_horizon_ms` are known.

    Attributes:
        timestamp_type: `CreateTime`, `LogAppendTime`, or `NoTimestampType` for magic 0.
        delete_horizon_ms: None without one.
        is_valid: its checksum is correct.
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
        legacy: whether its own checksum is correct, and the checksum; None in a batch of magic 2.
        control: a control record's message, name and fields; None for a data record.
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
    """Called with the items of files, one after the other."""

    def on_file(self, path: str) -> None:
        """A file begins; `path` as given."""

    def on_log(self, words: str, /, **fields: int) -> None:
        """The file is a `.log`, or a snapshot of KRaft's metadata log; `words` says what it starts with."""

    def on_batch(self, batch: ShownBatch) -> None:
        """A batch."""

    def on_record(self, record: ShownRecord) -> None:
        """A record of the last batch."""

    def on_trailing_bytes(self, path: str, count: int, /) -> None:
        """`count` bytes at the end of a log are not a whole batch."""

    def on_entry(self, kind: str, /, **fields: object) -> None:
        """An entry of an index, a snapshot, a checkpoint or another small file; `kind` says which."""

    def on_verdict(self, path: str, words: str, verdict: str, /) -> None:
        """The result for an index as a whole; `words` is the text to show."""

    def on_mistake(self, heading: str, lines: list[str]) -> None:
        """Inconsistencies, reported after all files."""

    def on_damage(self, message: str) -> None:
        """An item cannot be read; later ones can."""
