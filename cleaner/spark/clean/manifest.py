"""
The state of a job, with which another process can finish it: two files in the job's directory.

    job.json        the range, the time, the digest key, the groups with their sources and the verdicts on them;
                    written once, before the first group is swapped
    progress.json   how many groups are swapped in, and the size of each; replaced for each group

There is one directory for each partition of each log dir, outside of all log dirs. If it is lost, only the work done so
far is lost: groups that were swapped in are sound by themselves, and the next round starts again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cleaner.base.json_values import from_json
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.policy.cleanable import Cleanable
from cleaner.spark.clean.plan import CopyRules, Source
from cleaner.spark.clean.recopy_task import GroupWork
from cleaner.state.state_file import BadStateError, StateFile
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import LoadedLog

JOB_NAME = "job.json"
PROGRESS_NAME = "progress.json"


@dataclass(frozen=True)
class MapFigures:
    """Figures of the first pass (R-718); `keyless`: records without a key, which the round removes."""

    bytes_read: int = 0
    messages: int = 0
    seconds: float = 0.0
    keyless: int = 0


@dataclass(frozen=True)
class Job:
    """
    A job whose verdicts are known.

    Attributes:
        directory: of the partition.
        digest_key: what keys are digested under, as one number; drawn for this job.
        cleanable: the cleanable range when the job began.
        end_offset: first offset that is not covered.
        settings: the topic's settings that the result depends on.
        rules: of the recopying; they hold the job's time.
        works: the groups and the tasks' input for them.
        expected_bytes: estimated output size of each group.
        figures: of the first pass.
        damaged: number of the first group that the first pass found damaged; usually None.
        damage: its error, as `damage.to_value` returns it.
    """

    directory: str
    digest_key: int
    cleanable: Cleanable
    end_offset: int
    settings: Mapping[str, int | str]
    rules: CopyRules
    works: tuple[GroupWork, ...]
    expected_bytes: tuple[int, ...]
    figures: MapFigures
    damaged: int | None = None
    damage: Mapping[str, str | int] | None = None


@dataclass(frozen=True)
class Progress:
    """
    Progress of a job.

    Attributes:
        sizes: of the new segments, in the order of the groups; the last one may not have been swapped in.
        swapped: how many were certainly swapped in.
        counts: sum over the groups in `sizes`.
        before: the same sum without the last group.
    """

    sizes: tuple[int, ...]
    swapped: int
    counts: CopyCounts
    before: CopyCounts

    @staticmethod
    def none() -> Progress:
        """Return that of a job that has just begun."""
        return Progress((), 0, CopyCounts(), CopyCounts())


class JobFiles:
    """
    The files of one partition's job.

    Args:
        fs: access to the disk.
        work_dir: the directory of all jobs.
        directory: of the partition.
    """

    def __init__(self, fs: FileSystem, work_dir: Path, directory: Path) -> None:
        place = hashlib.sha256(bytes(directory)).hexdigest()[:16]
        self.path = work_dir / f"{directory.name}-{place}"
        self._fs = fs
        self._job = StateFile(
            fs, self.path / JOB_NAME, format_name="cleaner-bulk-job", version=2, read=_read_job, write=_write_job
        )
        self._progress = StateFile(
            fs,
            self.path / PROGRESS_NAME,
            format_name="cleaner-bulk-progress",
            version=1,
            read=_read_progress,
            write=asdict,
        )

    def load(self) -> tuple[Job, Progress] | None:
        """Return the job that an earlier process left; None if there is none that can be used."""
        if not self._fs.exists(self.path):
            return None
        job, progress = self._job.load().content, self._progress.load().content
        return None if job is None or progress is None else (job, progress)

    def begin(self) -> None:
        """Create the directory, empty; files of an earlier job are removed."""
        self.remove()
        # Executors may run as other users: give it the permissions of the directory of all jobs.
        mode = self._fs.stat(self.path.parent).st_mode & 0o777
        self._fs.make_dir(self.path, mode)

    def save(self, job: Job) -> None:
        """Save a new job, with no group swapped in."""
        self._progress.save(Progress.none())
        self._job.save(job)

    def save_progress(self, progress: Progress) -> None:
        """Save the progress."""
        self._progress.save(progress)

    def remove(self) -> None:
        """
        Remove the directory with its files.

        Raises:
            LogDirOfflineError: it is not a directory, but perhaps a link, which is not followed.
        """
        if self._fs.exists(self.path):
            with self._fs.hold(self.path):
                self._fs.remove_all(self.path, self._fs.list_files(self.path))
            self._fs.remove_dir(self.path)


def swapped_groups(job: Job, progress: Progress, log: LoadedLog) -> int | None:
    """
    Return how many groups are swapped in, by the log's segments; None if the job was planned for another log.

    The process may have died between a swap and saving the progress, or during the swap, which loading the log has
    completed or undone since.
    """
    found = [Source(segment.base_offset, segment.size, segment.mtime_ns) for segment in log.segments]
    for swapped in (progress.swapped, progress.swapped + 1):
        if swapped <= len(progress.sizes) and _is_as_expected(job, progress.sizes[:swapped], found):
            return swapped
    return None


def _is_as_expected(job: Job, sizes: Sequence[int], found: Sequence[Source]) -> bool:
    done = [(work.group.base_offset, size) for work, size in zip(job.works, sizes, strict=False)]
    left = [source for work in job.works[len(done) :] for source in work.group.sources]
    if [(each.base_offset, each.size) for each in found[: len(done)]] != done:
        return False
    return list(found[len(done) : len(done) + len(left)]) == left


def _write_job(job: Job) -> Mapping[str, object]:
    return asdict(replace(job, digest_key=0)) | {"digest_key": f"{job.digest_key:032x}"}


def _read_job(_version: int, values: dict[str, Any]) -> Job:
    try:
        return from_json(Job, values | {"digest_key": int(values["digest_key"], 16)})
    except (KeyError, TypeError, ValueError) as error:
        raise BadStateError(f"not a job: {type(error).__name__}: {error}") from error


def _read_progress(_version: int, values: dict[str, Any]) -> Progress:
    return from_json(Progress, values)
