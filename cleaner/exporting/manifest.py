"""
The manifest of an export: the files that are its table, and those that say what changed since the export before.

    {
     "format": "cleaner-export",
     "version": 1,
     "topic": "prices", "source": "/var/lib/kafka",
     "form": "parquet",                        or "jsonl"
     "number": 7, "made_ms": 1700000000000,
     "since": 6,                               of which export the changes are; null: of none, all rows are upserts
     "partitions": [
      {
       "partition": 0,
       "next_offset": 120,                     the table has what is committed below it
       "table": {"name": "000007/table-00000.parquet", "rows": 100, "bytes": 2048, "crc32": 373},
       "upserts": {...}, "deletes": {...}      null: made without `--changes`
      }
     ]
    }

It is replaced last, and as a whole: a crash leaves the old export or the new one.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from cleaner.base.json_values import JsonValue, from_json
from cleaner.errors import CorruptCheckpointError, shortened
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import FileSystem

MANIFEST = "manifest.json"
FORMS = ("parquet", "jsonl")
ICEBERG = "iceberg"
"""A form without a manifest: all is in the table (`iceberg.py`)."""
METADATA_FILE = re.compile(r"v([1-9][0-9]{0,17})\.metadata\.json")
"""Of an Iceberg table, with its number."""
DIRECTORY = re.compile(r"[0-9]{6,18}")
"""The directory of an export's files: its number."""
FILE = re.compile(rf"(table|upserts|deletes)-[0-9]{{5,10}}\.({'|'.join(FORMS)})")
VERSION = 1  # Value on disk, never changes; another meaning of a field is another version.


@dataclass(frozen=True)
class ExportedFile:
    """A file: its name below the manifest's directory, its rows, its size in bytes, and its CRC-32."""

    name: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class ExportedPartition:
    """
    The files of a partition.

    Attributes:
        partition: its number.
        next_offset: the table is the state at this offset.
        table: the latest value of each key.
        upserts: the rows of it that are new or changed; None: changes were not asked for.
        deletes: keys that are no longer in it; likewise.
    """

    partition: int
    next_offset: int
    table: ExportedFile
    upserts: ExportedFile | None = None
    deletes: ExportedFile | None = None

    @property
    def files(self) -> list[ExportedFile]:
        """All of them."""
        return [each for each in (self.table, self.upserts, self.deletes) if each is not None]


@dataclass(frozen=True)
class Export:
    """
    One export of a topic; the fields are those of the manifest.

    Attributes:
        topic: its name.
        source: the log dir.
        form: one of `FORMS`.
        number: 1 for the first in its directory.
        made_ms: when.
        since: the export that the changes begin from; None: there was none, or changes were not asked for.
        partitions: ascending.
    """

    topic: str
    source: str
    form: str
    number: int
    made_ms: int
    since: int | None
    partitions: tuple[ExportedPartition, ...]

    @property
    def rows(self) -> int:
        """How many keys have a value."""
        return sum(each.table.rows for each in self.partitions)

    @property
    def bytes(self) -> int:
        """How large all files are."""
        return sum(file.bytes for each in self.partitions for file in each.files)

    @property
    def upserts(self) -> int | None:
        """How many rows are new or changed; None: not asked for."""
        counts = [each.upserts.rows for each in self.partitions if each.upserts is not None]
        return sum(counts) if counts else None

    @property
    def deletes(self) -> int | None:
        """How many keys are gone; None: not asked for."""
        counts = [each.deletes.rows for each in self.partitions if each.deletes is not None]
        return sum(counts) if counts else None


@dataclass(frozen=True)
class ExportedTable:
    """
    An export of a topic as an Iceberg table.

    Attributes:
        topic: its name.
        source: the log dir.
        number: of the table's metadata file, `metadata/v<number>.metadata.json`.
        since: the export that the changes begin from; None: there was none.
        rows: of the table.
        bytes: of its data files.
        upserts, deletes: how many rows were put, and keys deleted.
        partitions: numbers and next offsets, ascending: the table has what is committed below them.
    """

    topic: str
    source: str
    number: int
    since: int | None
    rows: int
    bytes: int
    upserts: int
    deletes: int
    partitions: tuple[tuple[int, int], ...]


def version_in(fs: FileSystem, place: Path) -> int:
    """Return the number of the table's last export; 0: there is no table."""
    if not fs.exists(place / "metadata"):
        return 0
    return max(
        (int(found[1]) for found in map(METADATA_FILE.fullmatch, fs.list_dir(place / "metadata")) if found), default=0
    )


def manifest_in(fs: FileSystem, directory: Path) -> StateFile[Export]:
    """Return the manifest of a directory of exports."""
    return StateFile(fs, directory / MANIFEST, format_name="cleaner-export", version=VERSION, read=_read, write=asdict)


def last_export(fs: FileSystem, directory: Path) -> Export | None:
    """
    Return the export that is in a directory; None if there is none.

    Raises:
        CorruptCheckpointError: the manifest is damaged, or of a later release.
    """
    try:
        return manifest_in(fs, directory).peek()
    except BadStateError as error:
        reason = f"{error}; an export into another directory begins anew"
        raise CorruptCheckpointError(directory / MANIFEST, 0, reason) from error


def _read(_version: int, values: dict[str, JsonValue]) -> Export:
    found = from_json(Export, values)
    numbers = [each.partition for each in found.partitions]
    if found.form not in FORMS or found.number < 1 or numbers != sorted(set(numbers)):
        raise BadStateError("not the manifest of an export")
    for each in found.partitions:
        for file in each.files:
            directory, _, name = file.name.partition("/")
            # Names in a manifest are joined to paths.
            if not DIRECTORY.fullmatch(directory) or not FILE.fullmatch(name):
                raise BadStateError(f"{shortened(repr(file.name))} is not a file of an export")
            if min(file.rows, file.bytes, file.crc32, each.next_offset, each.partition) < 0:
                raise BadStateError(f"{file.name}: a number below 0")
    return found
