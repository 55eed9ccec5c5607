"""
One cleaning round of one log, spread over the tasks of Spark jobs.

The round is that of `cleaning/round/round.py` with a map that never fills, and leaves the same bytes:

    1. tasks digest the keys of ranges of batches, and a reduction by digest finds the last record of each key
       (`first_pass.py`);
    2. the driver saves the result, so that another process can go on from here (`manifest.py`);
    3. tasks recopy groups, several at a time, into temporary files (`recopy_task.py`);
    4. the driver takes these files one group at a time, in the order of the log, reads them back and swaps them in
       (`installing.py`). The order must ascend: a later group may have dropped an expired tombstone or an abort marker
       while older data that needs it is still in an earlier group;
    5. the driver writes the checkpoint.

If a process is killed at any step, every loader removes its files, and the partition's next job uses its directory.
"""

from __future__ import annotations

import os
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from cleaner.base import concurrency
from cleaner.base.key_views import NO_VIEW
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import MapBuilder, MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.lane_memory import borrowed_lanes
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.cleaning.round.round import RoundResult
from cleaner.cleaning.round.steps import groups_of, refuse_keyless, rules_of, settle_before_swaps, unread_indexes
from cleaner.config.topic_settings import KEY_VIEW_KEY
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.errors import CorruptLogError, NoSpaceError, SparkJobError, UncleanableError
from cleaner.kernels.scan_status import LARGEST_RECORD_BYTES
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.spark.clean.damage import from_value
from cleaner.spark.clean.digest_task import report_path
from cleaner.spark.clean.first_pass import FirstPass, FirstPassRunner
from cleaner.spark.clean.installing import Installer
from cleaner.spark.clean.manifest import Job, JobFiles, MapFigures, Progress, swapped_groups
from cleaner.spark.clean.plan import CopyRules, GroupPlan, JobSettings, Range, Source, with_aborts
from cleaner.spark.clean.probe import leave_probes, remove_probes
from cleaner.spark.clean.recopy_task import GroupResult, GroupWork, save_producers
from cleaner.spark.clean.spark_jobs import DigestWork, SparkJobs
from cleaner.storage.fs.space import require_room
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment

Result = TypeVar("Result")

_LOOK_UP_SECONDS = 0.1
_REPORT_EVERY_NS = 2_000_000_000
_MAP_SHARE = 0.7  # of a task's entries; the rest is the table's free slots


@dataclass(frozen=True)
class BulkOptions:
    """
    How to run bulk rounds.

    Attributes:
        work_dir: directory of the jobs' state; every executor reads and writes there.
        groups_in_flight: groups that are recopied, or wait to be swapped in, at the same time.
        task_memory_bytes: memory for the keys of one task.
        range_bytes: bytes that one task digests; None: chosen by the log's size.
        map_entries: end the round where an offset map of this many keys would; for comparison with the engine.
    """

    work_dir: Path
    groups_in_flight: int
    task_memory_bytes: int
    range_bytes: int | None = None
    map_entries: int | None = None


class BulkCleaner:
    """
    Cleans logs with Spark. Thread-safe.

    Args:
        make_jobs: creates the job runner from the settings of the process; called when the first log is cleaned.
        make_options: creates the options from the settings and the log dir.
    """

    def __init__(
        self,
        make_jobs: Callable[[CleanerConfig], SparkJobs],
        make_options: Callable[[CleanerConfig, Path], BulkOptions],
    ) -> None:
        self._make_jobs = make_jobs
        self._make_options = make_options
        self._lock = concurrency.Lock()
        self._jobs: SparkJobs | None = None  # guarded by _lock

    def side_by_side(self) -> int:
        """Return how many logs to clean at a time: one until Spark has started, then one for each task slot."""
        with self._lock:
            jobs = self._jobs
        try:
            return 1 if jobs is None else max(1, jobs.slots)
        except SparkJobError:
            return 1  # each remaining log will get the error

    def clean(
        self, log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, config: CleanerConfig, context: RoundContext
    ) -> RoundResult:
        """
        Clean one log once, or finish the round an earlier process had begun. Arguments and errors are those of
        `cleaning.round.round.clean_log`; also SparkJobError.
        """
        if topic.key_view != NO_VIEW:
            raise UncleanableError(log.directory, f"{KEY_VIEW_KEY}={topic.key_view}: rounds on Spark know no key views")
        options = self._make_options(config, log.directory.parent)
        with self._lock:
            jobs = self._jobs = self._jobs or self._make_jobs(config)
        one = _Round(jobs, options, log, cleanable, topic, config, context)
        try:
            return one.run()
        except (CorruptLogError, UncleanableError):
            one.files.remove()
            raise


class _Round:
    """One round."""

    def __init__(
        self,
        jobs: SparkJobs,
        options: BulkOptions,
        log: LoadedLog,
        cleanable: Cleanable,
        topic: TopicConfig,
        config: CleanerConfig,
        context: RoundContext,
    ) -> None:
        self.files = JobFiles(context.fs, options.work_dir, log.directory)
        self._jobs = jobs
        self._options = options
        self._log = log
        self._cleanable = cleanable
        self._topic = topic
        self._config = config
        self._record_limit_bytes = topic.max_decompressed_message_bytes
        self._context = context
        self._name = os.urandom(8).hex()
        self._installer = Installer(log, topic, config, context)

    def run(self) -> RoundResult:
        """Run the round, or go on with one that an earlier process left; raises as a round in one process does."""
        clock = self._context.clock
        began_ns = clock.monotonic_ns()
        job, progress = self._resume() or (None, Progress.none())
        if job is not None:
            refuse_keyless(self._log, job.figures.keyless, self._context)  # it was planned for who had named the log
        settings = self._settings(job)
        if job is None:
            self.files.begin()
        leave_probes(self._context.fs, settings)
        try:
            if job is None:
                job = self._first_pass(settings, began_ns)
            settle_before_swaps(self._log, self._context)
            mapped_ns = clock.monotonic_ns()
            progress = self._copy(job, progress, settings)
        finally:
            self._installer.discard_attempts(self._name)
            remove_probes(self._context.fs, settings)
        self._context.write_checkpoint(job.end_offset)
        self.files.remove()
        return _result(job, progress.counts, (clock.monotonic_ns() - mapped_ns) / 1e9, self._cleanable)

    def _settings(self, job: Job | None) -> JobSettings:
        entries = int(self._options.task_memory_bytes * _MAP_SHARE) // self._topic.map_entry_bytes
        slots = max(1, self._jobs.slots)
        return JobSettings(
            directory=self._log.directory,
            work_dir=self.files.path,
            probe=self._name,
            digest_key=int.from_bytes(os.urandom(16), "little") if job is None else job.digest_key,
            first_dirty_offset=self._cleanable.first_dirty_offset,
            latest_offset=self._end_offset() - 1 if job is None else job.end_offset - 1,
            batch_limit_bytes=self._config.batch_limit_bytes(self._topic),
            # A map of `map_entries` was built with the limit, and stopped looking where it ended.
            record_limit_bytes=LARGEST_RECORD_BYTES if self._options.map_entries else self._record_limit_bytes,
            task_entries=max(1, entries),
            bytes_per_second=self._config.io_max_bytes_per_second / slots,
            rule=survivor_rule_of(self._topic.survivor),
        )

    def _end_offset(self) -> int:
        """Return the round's end offset: that of the cleanable range, or where a map of `map_entries` would be full."""
        if self._options.map_entries is None:
            return self._cleanable.first_uncleanable_offset
        limit = self._config.batch_limit_bytes(self._topic)
        count = lanes_for(self._config.pipeline_threads)
        offset_map = OffsetMap(self._options.map_entries, self._options.map_entries)
        with borrowed_lanes(count, limit, max_kept=self._config.threads * count) as lanes:
            unread = unread_indexes(self._log, self._cleanable, self._topic, self._context)
            builder = MapBuilder(self._log, self._cleanable, offset_map, lanes, self._context, unread_indexes=unread)
            builder.record_limit_bytes = self._record_limit_bytes
            return builder.build().end_offset

    def _resume(self) -> tuple[Job, Progress] | None:
        """Return the state that an earlier process left of this same round; None: begin a new job."""
        found = self.files.load()
        if found is None:
            return None
        job, progress = found
        same = (
            job.directory == str(self._log.directory)
            and job.cleanable.first_dirty_offset == self._cleanable.first_dirty_offset
            and job.end_offset <= self._cleanable.first_uncleanable_offset
            and dict(job.settings) == self._result_settings()
            and job.rules.log_start_offset == self._log.log_start_offset
        )
        swapped = swapped_groups(job, progress, self._log) if same else None
        if swapped is None:
            return None
        if swapped == len(progress.sizes):
            return job, replace(progress, swapped=swapped)
        # A group that was taken and not swapped is recopied; its counts are taken back.
        return job, Progress(progress.sizes[:swapped], swapped, progress.before, CopyCounts())

    def _result_settings(self) -> dict[str, int | str]:
        """Return the settings that the result depends on."""
        topic = self._topic
        return {
            "segment.bytes": topic.segment_bytes,
            "segment.index.bytes": topic.segment_index_bytes,
            "index.interval.bytes": topic.index_interval_bytes,
            "delete.retention.ms": topic.delete_retention_ms,
            "max.decompressed.message.bytes": self._record_limit_bytes,
            "cleaner.survivor": topic.survivor,
            "cleaner.record.ttl.ms": topic.record_ttl_ms,
            "keep.tombstones": int(self._context.keep_tombstones),
            "held.from": -1 if self._context.held_from is None else self._context.held_from,
            "kafka.version": self._context.kafka.name,
            "map.entries": self._options.map_entries or 0,
        }

    def _first_pass(self, settings: JobSettings, began_ns: int) -> Job:
        """Find the survivors, and save the job."""
        log, context = self._log, self._context
        end_offset = settings.latest_offset + 1
        groups = groups_of(log, self._cleanable, self._topic, end_offset)
        runner = FirstPassRunner(
            context.fs,
            log,
            self._cleanable,
            groups,
            settings,
            lambda work: self._wait(lambda: self._jobs.digest(work, self._name), work),
            self._options.range_bytes,
            unread_indexes(log, self._cleanable, self._topic, context),
        )
        found = runner.run()
        refuse_keyless(log, found.keyless, context)
        save_producers(context.fs, self.files.path, np.asarray(log.last_records, np.int64))
        first_dirty = next(each for each in found.ranges if each.is_dirty)
        ranges: defaultdict[int, list[Range]] = defaultdict(list)
        for each in found.ranges:
            ranges[each.group].append(each)
        job = Job(
            directory=str(log.directory),
            digest_key=settings.digest_key,
            cleanable=self._cleanable,
            end_offset=end_offset,
            settings=self._result_settings(),
            rules=CopyRules(
                rules=rules_of(log, self._cleanable, self._topic, context),
                interval_bytes=self._topic.index_interval_bytes,
                max_index_bytes=self._topic.segment_index_bytes,
                log_start_offset=log.log_start_offset,
                with_aborts=with_aborts(log),
                first_dirty_base=first_dirty.base_offset,
                first_dirty_position=first_dirty.start,
            ),
            works=tuple(_work(found, number, group, log.end_of(group)) for number, group in enumerate(groups)),
            expected_bytes=tuple(
                _expected_bytes(found, number, group, ranges[number]) for number, group in enumerate(groups)
            ),
            figures=MapFigures(
                bytes_read=found.bytes_read,
                messages=found.messages,
                seconds=(context.clock.monotonic_ns() - began_ns) / 1e9,
                keyless=found.keyless,
            ),
            damaged=found.damaged,
            damage=found.damage,
        )
        self.files.save(job)
        return job

    def _copy(self, job: Job, progress: Progress, settings: JobSettings) -> Progress:
        """Recopy the remaining groups and swap them in, one after the other."""
        waiting = deque(job.works[progress.swapped :])
        under_way: deque[tuple[GroupWork, concurrency.Future[GroupResult]]] = deque()
        total_bytes = sum(work.group.size for work in job.works)
        done_bytes = sum(work.group.size for work in job.works[: progress.swapped])
        most = self._options.groups_in_flight
        with concurrency.ThreadPoolExecutor(most, thread_name_prefix="cleaner-bulk") as pool:
            try:
                while waiting or under_way:
                    while waiting and len(under_way) < most:
                        if not self._has_room(job, [work for work, _ in under_way] + [waiting[0]]):
                            break
                        work = waiting.popleft()
                        task = pool.submit(self._jobs.recopy, settings, job.rules, work, self._name)
                        under_way.append((work, task))
                        if work.group.number == job.damaged:
                            waiting.clear()  # it will fail, and nothing after it is swapped in
                    work, task = under_way[0]
                    result = self._result_of(task, partial(self._context.progress, "copy", done_bytes, total_bytes))
                    if result.error is None and work.group.number == job.damaged and job.damage is not None:
                        raise from_value(dict(job.damage))
                    progress = self._install(work, result, progress)
                    under_way.popleft()
                    done_bytes += work.group.size
                    self._context.progress("copy", done_bytes, total_bytes)
            except BaseException:
                self._jobs.cancel(self._name)  # also if an interrupt came before the first task was noted
                raise
        return progress

    def _has_room(self, job: Job, works: Sequence[GroupWork]) -> bool:
        """Tell whether the output of some groups fits on the disk. Raises NoSpaceError if it is only one group."""
        wanted = sum(job.expected_bytes[work.group.number] for work in works)
        try:
            require_room(self._context.fs, self._log.directory, wanted)
        except NoSpaceError:
            if len(works) == 1:
                raise
            return False
        return True

    def _install(self, work: GroupWork, result: GroupResult, progress: Progress) -> Progress:
        """Take a task's output and swap it in; save the progress before and after."""
        if result.error is not None or result.counts is None:
            raise from_value(result.error or {})
        sources = work.group.sources  # neighbours
        group = self._log.segments_between(sources[0].base_offset, sources[-1].base_offset + 1)
        self._installer.take(group, result)
        counts = CopyCounts.total((progress.counts, result.counts))
        progress = Progress((*progress.sizes, result.size), progress.swapped, counts, before=progress.counts)
        self.files.save_progress(progress)
        self._installer.swap(group)
        progress = replace(progress, swapped=len(progress.sizes))
        self.files.save_progress(progress)
        return progress

    def _wait(self, job: Callable[[], Result], work: DigestWork) -> Result:
        """Run a Spark job in another thread and report its progress; cancel it if the round has to stop."""
        total_bytes = sum(start.range.bytes for start in work.starts)

        def report_progress() -> None:
            names = set(self._context.fs.list_files(self.files.path))
            done = [each.range.bytes for each in work.starts if report_path(Path(), each.range.number).name in names]
            self._context.progress("map", sum(done), total_bytes)

        with concurrency.ThreadPoolExecutor(1, thread_name_prefix="cleaner-bulk") as pool:
            task = pool.submit(job)
            try:
                return self._result_of(task, report_progress)
            except BaseException:
                self._jobs.cancel(self._name)
                raise

    def _result_of(self, task: concurrency.Future[Result], report_progress: Callable[[], None]) -> Result:
        """Wait for a task; check for a stop, and call `report_progress` now and then to report progress."""
        reported_ns = -_REPORT_EVERY_NS
        while True:
            self._context.check_done()
            now_ns = self._context.clock.monotonic_ns()
            if now_ns - reported_ns >= _REPORT_EVERY_NS:
                reported_ns = now_ns
                report_progress()
            concurrency.wait([task], _LOOK_UP_SECONDS)
            if task.done():
                return task.result()


def _work(found: FirstPass, number: int, group: Sequence[Segment], end_offset: int) -> GroupWork:
    plan = GroupPlan(number, tuple(Source.of(segment) for segment in group), end_offset)
    return GroupWork(plan, found.bits.get(number), found.copied[number], found.mapped[number])


def _expected_bytes(found: FirstPass, number: int, group: Sequence[Segment], ranges: Sequence[Range]) -> int:
    """Estimate the size of a group's output; for a dirty group, the bits give the number of retained records."""
    size = sum(segment.size for segment in group)
    index_bytes = sum(segment.index_bytes + segment.time_index_bytes for segment in group)
    messages = sum(found.reports[each.number].messages for each in ranges)
    if not messages or not all(each.is_dirty for each in ranges):
        return size + index_bytes
    bits = found.bits.get(number)
    return min(size, size * (bits.count if bits else 0) // messages) + index_bytes


def _result(job: Job, counts: CopyCounts, copy_seconds: float, cleanable: Cleanable) -> RoundResult:
    ended_by = MapEnd.FULL if job.settings["map.entries"] else MapEnd.RESUMED_JOB
    return RoundResult(
        first_dirty_offset=job.cleanable.first_dirty_offset,
        end_offset=job.end_offset,
        map_ended_by=ended_by if job.end_offset < cleanable.first_uncleanable_offset else None,
        map_bytes_read=job.figures.bytes_read,
        map_messages_read=job.figures.messages,
        map_entries=0,
        outranked_records=sum(work.bits.outranked for work in job.works if work.bits is not None),
        **vars(counts),
        map_seconds=job.figures.seconds,
        copy_seconds=copy_seconds,
    )
