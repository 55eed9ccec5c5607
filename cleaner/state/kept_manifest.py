"""
The manifest of `clean --keep-old` for a partition: the segments that rounds replaced, and the new ones.

    {
     "format": "cleaner-kept-segments",
     "version": 1,
     "log_dir": "/var/lib/kafka", "partition": "prices-0",
     "checkpoint": 120000,                     the line before the first round; null for none
     "active_base": 900000, "active_bytes": 5120,      an undo requires that nothing was appended
     "erasing": false,                         true while `erase` rewrites kept files
     "groups": [                               in the order in which they were swapped
      {
       "directory": "000001",
       "old": [{"name": "00000000000000000000.log", "bytes": 1048531, "crc32": 3735928559}, ...],
       "new": [{"name": "00000000000000000000.log", ...}, ...]
      }
     ]
    }

A group is recorded before it is swapped: the last one may never have been swapped.

Once all is put back the manifest is called `undone.json`, until the kept files are removed: it tells what an undo has
left behind from kept files whose manifest was lost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from cleaner.base.json_values import JsonValue, from_json
from cleaner.errors import shortened
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names

GROUP_DIGITS = 6
VERSION = 1  # Value on disk, never changes; another meaning of a field is another version.


@dataclass(frozen=True)
class KeptFile:
    """A file: its name in the partition directory, its size in bytes, and its CRC-32."""

    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class KeptGroup:
    """
    Old segments and the one that replaced them.

    Attributes:
        directory: where the old files are, relative to the manifest.
        old: their files, including snapshots.
        new: the files of the segment that replaced them.
    """

    directory: str
    old: tuple[KeptFile, ...]
    new: tuple[KeptFile, ...]

    @property
    def old_logs(self) -> dict[int, KeptFile]:
        """The old `.log` files by base offset."""
        return _logs(self.old)

    @property
    def new_log(self) -> tuple[int, KeptFile]:
        """The new `.log` file, with its base offset."""
        ((base, file),) = _logs(self.new).items()
        return base, file


@dataclass(frozen=True)
class KeptPartition:
    """The manifest of a partition; the fields are those of the file."""

    log_dir: str
    partition: str
    checkpoint: int | None
    active_base: int
    active_bytes: int
    groups: tuple[KeptGroup, ...]
    erasing: bool = False


def is_group_name(name: str) -> bool:
    """Tell whether a directory with this name, beside a manifest, is for the files of a group."""
    return len(name) == GROUP_DIGITS and name.isdigit()


def manifest(fs: FileSystem, directory: Path, name: str = names.KEPT_MANIFEST) -> StateFile[KeptPartition]:
    """Return the manifest in a directory that keeps a partition's segments, or the one of an undo that has ended."""
    return StateFile(
        fs,
        directory / name,
        format_name="cleaner-kept-segments",
        version=VERSION,
        read=_read,
        write=asdict,
    )


def _logs(files: tuple[KeptFile, ...]) -> dict[int, KeptFile]:
    return {names.offset_of(file.name): file for file in files if file.name.endswith(names.LOG)}


def _read(_version: int, values: dict[str, JsonValue]) -> KeptPartition:
    kept = from_json(KeptPartition, values)
    _require_counts(kept.checkpoint or 0, kept.active_base, kept.active_bytes)
    for group in kept.groups:
        _require_plain_name(group.directory)
        for file in (*group.old, *group.new):
            _require_plain_name(file.name)
            parsed = names.parse_file_name(file.name)
            if parsed is None or parsed.temporary:
                raise BadStateError(f"{shortened(repr(file.name))} is not a file of a segment")
            _require_counts(file.bytes, file.crc32)
        if len(_logs(group.new)) != 1 or not _logs(group.old) or min(_logs(group.old)) != group.new_log[0]:
            raise BadStateError(f"group {group.directory}: the old segments do not begin where the new one does")
    return kept


def _require_plain_name(name: str) -> None:
    """Accept only a plain file name, because names in a manifest are joined to paths."""
    if not name or name != Path(name).name:
        raise BadStateError(f"{shortened(repr(name))} is not a file name")


def _require_counts(*counts: int) -> None:
    if min(counts) < 0:
        raise BadStateError(f"{min(counts)} is not a number of at least 0")
