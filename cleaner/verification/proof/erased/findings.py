"""What a search finds, and what it cannot search."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Level(enum.StrEnum):
    """How a key was found."""

    RECORD = "record"
    """A record has it as its key."""
    RAW = "raw"
    """Its bytes are in a file, or a part of one, that is no sound batch."""
    MENTION = "mention"
    """Its bytes are in the value or the headers of a record with another key."""


class Doubt(enum.StrEnum):
    """Why nothing is proven."""

    UNREADABLE = "unreadable"
    CHANGED = "changed"
    DAMAGED = "damaged"
    NOT_SEARCHED = "not_searched"
    SYMLINK = "symlink"
    SPECIAL_FILE = "special_file"
    OTHER_FILE_SYSTEM = "other_file_system"


@dataclass(frozen=True)
class LeftOver:
    """
    A place of a key.

    Attributes:
        level: how it was found.
        position: in the file: of the batch if it is in one, else of the key's first byte.
        offset: of the record; None for bytes.
        number: of the key in `WantedKeys.texts`.
    """

    level: Level
    position: int
    offset: int | None
    number: int


@dataclass(frozen=True)
class Unsure:
    """
    Something that was not, or not surely, searched.

    Attributes:
        doubt: the kind.
        position: in the file; None if it concerns the whole file.
        reason: in words.
    """

    doubt: Doubt
    position: int | None
    reason: str


@dataclass
class FileAccount:
    """
    How a file was read.

    Attributes:
        size: bytes read and hashed.
        sha256: of these bytes.
        batches, records: read as such; records of any kind, markers included.
        codecs: of the batches.
        structured_bytes: that were in batches.
        raw_bytes: that were searched as mere bytes.
        zero_bytes: of these, in stretches of nothing else.
        unsure: what was not, or not surely, searched.
    """

    size: int = 0
    sha256: str = ""
    batches: int = 0
    records: int = 0
    codecs: set[str] = field(default_factory=set)
    structured_bytes: int = 0
    raw_bytes: int = 0
    zero_bytes: int = 0
    unsure: list[Unsure] = field(default_factory=list)
