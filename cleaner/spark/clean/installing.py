"""
The driver takes the files of a task, reads them back and swaps them in.

Tasks write under temporary names (`storage/segment/names.py`). The files of the attempt that the driver takes get the
names of a swap, are verified as in any other round, and are swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.passes.lane_memory import borrowed_lanes
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.cleaning.recopy.verify import verify_cleaned
from cleaner.cleaning.round.steps import install_group
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import LogDirOfflineError
from cleaner.spark.clean.recopy_task import GroupResult
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.names import (
    LOG,
    SEGMENT_SUFFIXES,
    TXN_INDEX,
    attempt_of,
    cleaned_file_name,
)
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.swap import discard_cleaned

_COPY_BYTES = 4 << 20


@dataclass(frozen=True)
class TakenSegment:
    """A written segment under the names of a swap; see `recopy.verify.Written`."""

    path: Path
    base_offset: int
    size: int
    batch_count: int
    offset_sum: int


class Installer:
    """
    Takes the files that tasks have written for one log.

    Args:
        log, topic, config, context: of the round.
    """

    def __init__(self, log: LoadedLog, topic: TopicConfig, config: CleanerConfig, context: RoundContext) -> None:
        self._log = log
        self._topic = topic
        self._context = context
        self._config = config

    def take(self, group: Sequence[Segment], result: GroupResult) -> TakenSegment:
        """
        Give the files of an attempt the names of a swap, and read them back. On failure they are removed.

        Raises:
            CorruptBatchError, CorruptIndexError: the files on disk differ from what was written.
            LogDirOfflineError: the disk failed, or the files are missing.
        """
        fs, directory, base_offset = self._context.fs, self._log.directory, group[0].base_offset
        discard_cleaned(fs, directory, base_offset)
        try:
            for suffix in SEGMENT_SUFFIXES:
                path = directory / cleaned_file_name(base_offset, suffix, result.attempt)
                like = group[0].path(suffix) if fs.exists(group[0].path(suffix)) else group[0].log_path
                if suffix != TXN_INDEX or fs.exists(path):
                    _take_file(fs, path, directory / cleaned_file_name(base_offset, suffix), like)
            fs.fsync_dir(directory)
            path = directory / cleaned_file_name(base_offset, LOG)
            taken = TakenSegment(path, base_offset, result.size, result.batch_count, result.offset_sum)
            if self._context.verify:
                self._verify(taken, result)
        except BaseException:
            discard_cleaned(fs, directory, base_offset)
            raise
        return taken

    def _verify(self, taken: TakenSegment, result: GroupResult) -> None:
        count = lanes_for(self._config.pipeline_threads)
        limit_bytes = self._config.batch_limit_bytes(self._topic)
        with borrowed_lanes(count, limit_bytes, max_kept=self._config.threads * count) as lanes:
            verify_cleaned(
                self._context.fs,
                taken,
                result.counts.messages_written if result.counts else 0,
                interval_bytes=self._topic.index_interval_bytes,
                max_index_bytes=self._topic.segment_index_bytes,
                buffers=[lane.buffer for lane in lanes],
                leaves_cache=not result.was_cold,
            )

    def swap(self, group: Sequence[Segment]) -> None:
        """Swap in the taken segment."""
        fs, directory, base_offset = self._context.fs, self._log.directory, group[0].base_offset
        new = install_group(
            self._log,
            group,
            self._context,
            discard=lambda: discard_cleaned(fs, directory, base_offset),
            threads=self._config.pipeline_threads + 1,
        )
        self._log.replace(group, new)

    def discard_attempts(self, job: str) -> None:
        """Remove the files of a job's tasks that were not taken."""
        fs, directory = self._context.fs, self._log.directory
        names = [name for name in fs.list_files(directory) if (attempt_of(name) or "").startswith(job)]
        fs.remove_all(directory, names)


def _take_file(fs: FileSystem, source: Path, target: Path, like: Path) -> None:
    """Rename a file, or copy it if it belongs to another user, as executors may run as another user."""
    try:
        mine, model = fs.stat(source), fs.stat(like)
    except FileNotFoundError as error:
        raise LogDirOfflineError(source, error) from error
    if (mine.st_uid, mine.st_gid, mine.st_mode) == (model.st_uid, model.st_gid, model.st_mode):
        fs.rename(source, target)
        return
    with fs.open(source) as old, fs.create(target, like=like) as new:
        size = old.size()
        for position in range(0, size, _COPY_BYTES):
            new.write(old.read(min(_COPY_BYTES, size - position), position), position)
        fs.set_mtime_ns(target, mine.st_mtime_ns)
        new.fsync()
    fs.remove(source)
