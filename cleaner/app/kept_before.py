"""The log before cleaning, put together from segments that `clean --keep-old` kept and untouched segments."""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Sequence
from pathlib import Path

from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError
from cleaner.state.kept_manifest import KeptPartition, manifest
from cleaner.state.state_file import BadStateError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.names import KEPT_MANIFEST
from cleaner.storage.segment.segment import Segment


def is_kept(fs: FileSystem, directory: Path) -> bool:
    """Tell whether a directory holds the segments of a partition that `--keep-old` kept."""
    return KEPT_MANIFEST in fs.list_files(directory)


def kept_partitions(fs: FileSystem, keep_dir: Path) -> dict[TopicPartition, Path]:
    """Return the partitions of which a directory given to `--keep-old` keeps segments; empty for other directories."""
    found = {}
    for name in fs.list_dir(keep_dir):
        directory = keep_dir / name
        with contextlib.suppress(ValueError):  # a directory with another name, such as a copy, is left out
            partition = TopicPartition.parse(name)
            if stat.S_ISDIR(fs.stat_followed(directory).st_mode) and is_kept(fs, directory):
                found[partition] = directory
    return found


def kept_log(fs: FileSystem, directory: Path, after: Sequence[Segment]) -> tuple[list[Segment], KeptPartition]:
    """
    Return the segments from before the first round, ascending, and the manifest.

    A later round may have replaced a segment that an earlier one wrote: that is not a segment of the log before.

    Args:
        directory: where the partition's segments are kept.
        after: the segments of the cleaned log; those that no round wrote are of the log before, too.
    Raises:
        CorruptCheckpointError: the manifest cannot be read.
    """
    kept = _read(fs, directory)
    made = {group.new_log for group in kept.groups}
    segments = [
        Segment.open(fs, directory / group.directory, base)
        for group in kept.groups
        for base, file in group.old_logs.items()
        if (base, file) not in made
    ]
    written = {base for base, _ in made}
    segments += [segment for segment in after if segment.base_offset not in written]
    return sorted(segments, key=lambda segment: segment.base_offset), kept


def _read(fs: FileSystem, directory: Path) -> KeptPartition:
    try:
        kept = manifest(fs, directory).peek()
    except BadStateError as error:
        raise CorruptCheckpointError(directory / KEPT_MANIFEST, 0, str(error)) from error
    if kept is None:
        raise CorruptCheckpointError(directory / KEPT_MANIFEST, 0, "it has gone")
    return kept
