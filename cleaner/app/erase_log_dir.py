"""
`erase`: removes the records of some keys, or of some offsets, from every place of a log dir; it cannot be undone.

Directory by directory: the log is loaded, all of it is read and found sound, left-overs of swaps and deletions are
removed, and each segment with something to erase is replaced. Then the log is closed, as by a clean stop: its end, its
producers and its checkpoints are as before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from cleaner.app import load_partition
from cleaner.app.clean_log_dir import with_key_indexes
from cleaner.app.erase_kept import KeptErasure, erased_file, search_cut
from cleaner.app.erase_places import LogPlace, Place, find_places, kept_alone, left_overs
from cleaner.app.erase_reports import ErasedFile, EraseOptions, EraseReport
from cleaner.app.keep_old import check_outside
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import Session, as_cleaner_errors, attempt, open_session, require_unlocked
from cleaner.base.model import TopicPartition
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.passes.lane_memory import borrowed_lanes
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.cleaning.recopy.erasure import ErasedRecords
from cleaner.cleaning.round.erase import FoundInSegment, Kept, SegmentEraser
from cleaner.cleaning.round.steps import settle_before_swaps
from cleaner.config.values import TopicConfig
from cleaner.errors import NotCleanlyShutDownError, UncleanableError
from cleaner.settings.sources import Sources
from cleaner.state.table_file import forget_table, table_directory
from cleaner.storage.fs.file_system import once_each, real_path
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.load.loader import load_log
from cleaner.storage.lock.log_dir_lock import LockMode
from cleaner.storage.log_dir import NEVER_FOLLOWED, Use
from cleaner.storage.segment.segment import Segment
from cleaner.storage.which_dir import require_existing

if TYPE_CHECKING:
    from cleaner.storage.fs.shred import Shredder

Outcome = EraseReport | Refusal


def erase_log_dir(
    log_dir: Path,
    given: Sequence[str],
    wanted: ErasedRecords,
    sources: Sources,
    options: EraseOptions,
    context: CallContext,
) -> Iterator[Outcome]:
    """
    Erase records from all directories of some topics and partitions.

    Args:
        log_dir: the directory; no process may use it.
        given: names of topics and of partitions.
        wanted: what is erased.
        sources: where settings come from.
        options: how to erase.
        context: the caller's file system, clock, progress and stop check.
    Yields:
        For each directory in turn a report, or why it was refused: then nothing in it has changed, except that segments
        which were replaced before a disk failed or a stop stay.
    Raises:
        UsageError: no such directory, topic or partition.
        NotCleanlyShutDownError: no clean-shutdown marker: the logs may be torn.
        LogDirLockedError: the log dir is in use.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound; nothing was changed.
        CleaningAborted: raised by `context.check_done`; segments already replaced stay.
    """
    mode = None if options.dry_run else LockMode.EXCLUSIVE
    with as_cleaner_errors(log_dir), ExitStack() as stack:
        if options.dry_run:
            require_unlocked(context.fs, log_dir)
        session = stack.enter_context(open_session(log_dir, sources, context, mode=mode))
        for option, directories in (("--kept", options.kept), ("--cut", options.cut)):
            for directory in directories:
                require_existing(context.fs, directory)
                check_outside(session, directory, option)
        if session.use is not Use.CLOSED:
            raise NotCleanlyShutDownError(
                f"{session.log_dir.path}: no clean-shutdown marker (.kafka_cleanshutdown), so its logs may be torn, or "
                "are in use; stop what uses them, and recover them (cleaner recover)"
            )
        # Twice the same directory would be erased twice, and its hard links taken for names that are all known.
        options = replace(options, kept=once_each(options.kept), cut=once_each(options.cut))
        places = find_places(session.log_dir, given, [real_path(each) for each in (*options.kept, *options.cut)])
        shredder = None
        if not options.dry_run:
            session = with_key_indexes(session, options.index_dir)
            shredder = stack.enter_context(context.fs.shredding()) if options.punch else None
        erasure = _Erasure(session, wanted, options, shredder)
        for place in places:
            yield from erasure.erase(place)
        yield from erasure.erase_kept_alone(given, places)


class _Erasure:
    """One call; see `erase_log_dir`."""

    def __init__(
        self, session: Session, wanted: ErasedRecords, options: EraseOptions, shredder: Shredder | None
    ) -> None:
        self._session = session
        self._fs = session.context.fs
        self._wanted = wanted
        self._options = options
        self._shredder = shredder
        self._looked_elsewhere: set[TopicPartition] = set()

    def erase(self, place: LogPlace) -> Iterator[Outcome]:
        """Erase records from a directory, and from what is kept of the partition elsewhere."""
        self._session.check_done()
        others: list[Outcome] = []
        outcome = attempt(place.topic_partition, place.directory, partial(self._erase_log, place, others))
        yield from others
        yield outcome if isinstance(outcome, EraseReport) else Refusal(place.name, outcome.error)

    def erase_kept_alone(self, given: Sequence[str], places: Sequence[LogPlace]) -> Iterator[Outcome]:
        """Erase records from what is kept of partitions that are not in the log dir, or refuse it."""
        fs, log_dir = self._fs, self._session.log_dir.path
        for above in map(real_path, self._options.kept):
            for topic_partition, directory in kept_alone(fs, above, given, places):
                self._session.check_done()
                home = attempt(topic_partition, directory, partial(self._home_of_kept, directory))
                if isinstance(home, Refusal):
                    yield Refusal(str(directory), home.error)
                elif home is None or home == log_dir or not fs.exists(home / str(topic_partition)):
                    reason = (
                        "its partition is not in the log dir: erase where that is; if it is nowhere, no undo can put "
                        f"this back: rm -r {quote(str(directory))}"
                    )
                    yield Refusal(str(directory), UncleanableError(directory, reason))
        for above in map(real_path, self._options.cut):
            for topic_partition, directory in kept_alone(fs, above, given, places):
                self._session.check_done()
                place = LogPlace("cut", topic_partition, directory)
                topic = self._session.topic(topic_partition, directory).config
                limit_bytes = self._session.settings.cleaner.batch_limit_bytes(topic)
                cut = attempt(topic_partition, directory, partial(self._erase_cut, place, directory, limit_bytes))
                yield Refusal(str(directory), cut.error) if isinstance(cut, Refusal) else cut

    def _home_of_kept(self, directory: Path) -> Path | None:
        """Return the log dir that the manifest of kept segments names; None without one."""
        with self._fs.hold(directory):
            return KeptErasure(self._fs, directory).log_dir

    def _erase_log(self, place: LogPlace, others: list[Outcome]) -> EraseReport:
        began, fs = time.monotonic(), self._fs
        if place.is_linked:
            raise UncleanableError(place.directory, f"{NEVER_FOLLOWED}: erase where it leads to")
        if self._wanted.last_offset >= 0 and place.place in ("stray", "delete"):
            raise UncleanableError(
                place.directory, "a renamed directory may be of another log, with other offsets; erase by keys"
            )
        topic, config = (
            self._session.topic(place.topic_partition, place.directory).config,
            self._session.settings.cleaner,
        )
        limit_bytes, count = config.batch_limit_bytes(topic), lanes_for(config.pipeline_threads)
        with fs.hold(place.directory), borrowed_lanes(count, limit_bytes, max_kept=config.threads * count) as lanes:
            beside = left_overs(fs, place.directory)
            log = self._load(place, topic)
            context = self._context(place)
            eraser = SegmentEraser(self._wanted, Kept.of(log), topic, lanes, context)
            keepers = self._erase_elsewhere(place, topic, eraser, limit_bytes, others)
            segments = list(log.segments)
            found = eraser.search(segments, partial(_end_of, log))
            linked = self._linked(place, map(erased_file, found))
            if not self._options.dry_run:
                self._replace(place, log, eraser, found, keepers, context)
        report = self._report(place.place, str(place.topic_partition), place.directory, map(erased_file, found), began)
        return replace(
            report,
            segments=len(segments),
            bytes=sum(segment.size for segment in segments),
            left_over_files=beside.files,
            left_over_bytes=beside.bytes,
            unknown_files=beside.unknown,
            linked_files=(*linked, *map(str, beside.linked)),
        )

    def _report(
        self, place: Place, partition: str, directory: Path, found: Iterable[ErasedFile], began: float
    ) -> EraseReport:
        """Return what all reports say; `began`: of `time.monotonic`."""
        files, shredder = tuple(found), self._shredder
        unpunched = None if shredder is None else shredder.unpunched
        return EraseReport(
            partition=partition,
            place=place,
            directory=str(directory),
            dry_run=self._options.dry_run,
            batches=sum(each.batches for each in files),
            records=sum(each.records for each in files),
            files=files,
            overwritten_bytes=0 if shredder is None else shredder.take_bytes(),
            unpunched_file=None if unpunched is None else str(unpunched),
            elapsed_seconds=time.monotonic() - began,
        )

    def _load(self, place: LogPlace, topic: TopicConfig) -> LoadedLog:
        """Load a log; of a renamed directory the checkpoints say nothing."""
        session, now_ms = self._session, self._session.context.clock.now_ms()
        if place.place == "log":
            return load_partition.load(
                *(session, place.topic_partition, place.directory, topic),
                now_ms=now_ms,
                clean_shutdown=True,
                read_only=self._options.dry_run,
            )
        return load_log(
            *(self._fs, place.directory, place.topic_partition),
            topic=topic,
            log_start_offset=0,
            recovery_point=0,
            high_watermark=None,
            clean_shutdown=True,
            producer_id_expiration_ms=session.settings.cleaner.producer_id_expiration_ms,
            now_ms=now_ms,
            allow_truncate=False,
            read_only=self._options.dry_run,
            check_done=session.check_done,
        )

    def _context(self, place: LogPlace) -> RoundContext:
        session, caller = self._session, self._session.context
        return RoundContext(
            fs=self._fs,
            clock=caller.clock,
            now_ms=caller.clock.now_ms(),
            swapping=partial(session.swapping, place.topic_partition),
            still_held=session.still_held,
            check_done=session.check_done,
            throttle=session.throttle.for_worker(session.check_done, session.log_dir.path),
            window_bytes=partial(session.throttle.window_bytes, session.log_dir.path),
            progress=lambda phase, done, total: caller.progress(f"{place.name} {phase}", done, total),
        )

    def _replace(
        self,
        place: LogPlace,
        log: LoadedLog,
        eraser: SegmentEraser,
        found: Sequence[FoundInSegment],
        keepers: Sequence[KeptErasure],
        context: RoundContext,
    ) -> None:
        """Settle the log, replace the segments with something to erase, and close the log."""
        for keeper in keepers:
            keeper.before(log, self._session.log_dir.path, found)
        # The snapshot at the log's end comes first: completing an interrupted swap takes older ones away.
        log.producers.take_snapshot()
        if found:
            settle_before_swaps(log, context)
            self._forget_key_indexes(place, found)
            eraser.erase(found, partial(_end_of, log), eraser.into_log(log))
        if place.place == "log":
            load_partition.close(self._session, log)
        else:
            log.close(self._fs, context.swapping)
        for keeper in keepers:
            keeper.after(log)
        # Also where nothing was found: what an earlier erasure has removed, and could not force, is gone for good now.
        self._fs.fsync_dir(place.directory)

    def _forget_key_indexes(self, place: LogPlace, found: Sequence[FoundInSegment]) -> None:
        """Remove the indexes of segments that are about to change, and of the log's table: made of their keys."""
        session = self._session
        if place.place == "log":
            forget_table(self._fs, table_directory(session.log_dir.path, place.topic_partition))
        if place.place != "log" or session.key_index_dir is None:
            return
        indexes = session.key_index_dir.of(session.log_dir.path, place.topic_partition)
        if indexes is not None:
            for each in found:
                indexes.remove(each.segment.base_offset)

    def _erase_elsewhere(
        self, place: LogPlace, topic: TopicConfig, eraser: SegmentEraser, limit_bytes: int, others: list[Outcome]
    ) -> list[KeptErasure]:
        """Erase records from what is kept of a partition outside of the log dir; returns the manifests to follow."""
        name, keepers = str(place.topic_partition), list[KeptErasure]()
        if place.topic_partition in self._looked_elsewhere:
            return keepers
        self._looked_elsewhere.add(place.topic_partition)
        for above in self._options.kept:
            directory = real_path(above) / name
            if self._fs.exists(directory):
                kept = attempt(
                    place.topic_partition, directory, partial(self._erase_kept, place, directory, topic, eraser)
                )
                if isinstance(kept, Refusal):
                    others.append(Refusal(str(directory), kept.error))
                else:
                    others.append(kept[0])
                    keepers += [kept[1]] if place.place == "log" else []
        for above in self._options.cut:
            directory = real_path(above) / name
            if self._fs.exists(directory):
                cut = attempt(place.topic_partition, directory, partial(self._erase_cut, place, directory, limit_bytes))
                others.append(Refusal(str(directory), cut.error) if isinstance(cut, Refusal) else cut)
        return keepers

    def _erase_kept(
        self, place: LogPlace, directory: Path, topic: TopicConfig, eraser: SegmentEraser
    ) -> tuple[EraseReport, KeptErasure]:
        began = time.monotonic()
        with self._fs.hold(directory):
            keeper = KeptErasure(self._fs, directory)
            dry_run = self._options.dry_run
            segments, files, replace_found = keeper.search(
                eraser, index_bytes=topic.segment_index_bytes, dry_run=dry_run
            )
            linked = self._linked(place, files)
            if not dry_run:
                replace_found()
            unknown = tuple(keeper.unknown_files)
        report = self._report("kept", directory.name, directory, files, began)
        size = sum(segment.size for segment in segments)
        return replace(report, segments=len(segments), bytes=size, unknown_files=unknown, linked_files=linked), keeper

    def _erase_cut(self, place: LogPlace, directory: Path, limit_bytes: int) -> EraseReport:
        began = time.monotonic()
        with self._fs.hold(directory):
            dry_run = self._options.dry_run
            count, size, files = search_cut(self._fs, directory, self._wanted, limit_bytes)
            linked = self._linked(place, files)
            if not dry_run:
                self._fs.remove_all(directory, [Path(each.path).name for each in files])
                self._fs.fsync_dir(directory)
        report = self._report("cut", directory.name, directory, files, began)
        return replace(report, segments=count, bytes=size, linked_files=linked)

    def _linked(self, place: LogPlace, found: Iterable[ErasedFile]) -> tuple[str, ...]:
        """
        Return which of some files, not yet replaced, have another name elsewhere, under which their records live on.

        A kept file may be a hard link of a segment of the log: both are searched, and both names get other files.
        """
        fs, name = self._fs, str(place.topic_partition)
        above = [real_path(each) / name for each in once_each((*self._options.kept, *self._options.cut))]
        searched = [place.directory, *(each for each in above if fs.exists(each))]
        searched += [each / inner for each in searched[1:] for inner in fs.list_dirs(each)]
        states = (fs.stat(each / inner) for each in searched for inner in fs.list_files(each))
        names = Counter((state.st_dev, state.st_ino) for state in states if state.st_nlink > 1)
        linked = []
        for each in found:
            state = fs.stat(Path(each.path))
            if state.st_nlink > max(1, names[state.st_dev, state.st_ino]):
                linked.append(each.path)
        return tuple(linked)


def _end_of(log: LoadedLog, segment: Segment) -> int:
    return log.end_of([segment])
