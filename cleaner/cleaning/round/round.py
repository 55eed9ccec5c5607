"""
One cleaning round of one log (R-503).

A log has two sections. The *clean* section was cleaned before and holds each key at most once; the *dirty* section,
from the first dirty offset on, may repeat keys of both. A round

    1. reads the dirty section, checks every batch, and maps each key to its last offset (`build_map.py`);
    2. divides all segments up to the end of the map into groups, each small enough to become one segment;
    3. recopies group by group, leaving out every record whose key occurs again later (`recopy/group.py`), reads the
       output back, and swaps it in so that a crash leaves the old segments or the new one (`storage/swap/swap.py`);
       while a group ends, the next one is recopied (`group_end.py`), and one that does not change stays in place;
    4. writes the checkpoint: the next round's dirty section begins where this round's map ended.

`docs/design.md` ("What stays") lists the records and batches that stay; `kernels/batch_retention.py` and
`kernels/offset_map.py` decide.

A full map, or a limit of the caller's, ends the round early: the covered part is cleaned, the checkpoint advances that
far, and the next round continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cleaner.base.key_views import key_view_of
from cleaner.base.model import Removed
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import MapBuilder, MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.damage import NO_DAMAGE, DamagedBatch, KnownDamage
from cleaner.cleaning.passes.lane_memory import LaneMemory, borrowed_lanes
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.cleaning.recopy.batch_retention import ActiveProducers
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.expected_output import ExpectedOutput
from cleaner.cleaning.recopy.expiry import Expiry
from cleaner.cleaning.recopy.group import GroupRecopier, RecopyRules
from cleaner.cleaning.recopy.recompress import RecompressCounts, Recompressor
from cleaner.cleaning.recopy.retained import CopyCounts
from cleaner.cleaning.recopy.survivors import MapSurvivors
from cleaner.cleaning.recopy.verify import verify_cleaned
from cleaner.cleaning.round.find_damage import find_damage
from cleaner.cleaning.round.group_end import GroupEnd, GroupEnds, Note
from cleaner.cleaning.round.steps import (
    groups_of,
    install_group,
    refuse_keyless,
    require_whole,
    rules_of,
    settle_before_swaps,
    unread_indexes,
)
from cleaner.cleaning.round.unread import UnreadSegments
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.format.parallel_reader import WindowBuffer
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.survivor_rule import survivor_rule_of
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment


@dataclass(frozen=True)
class RoundResult:
    """
    The result of a round (R-718).

    Attributes:
        first_dirty_offset, end_offset: the dirty section covered; `end_offset` is the new checkpoint.
        map_ended_by: what ended the map before the end of the cleanable section, so that another round is due; None if
            it reached that.
        map_bytes_read, map_messages_read, map_entries: of the first pass.
        bytes_read, bytes_written, messages_read, messages_written: of the second.
        removed: removed records, by reason.
        held_tombstones, held_markers: stayed only because of `RoundContext.held_from`.
        expired_records: became tombstones, by `cleaner.record.ttl.ms`.
        outranked_records: last records of their keys left out for one before them, by `cleaner.survivor`.
        map_seconds, copy_seconds: durations.
        kept_damage: damaged batches that were copied unchanged.
        bytes_in_place: of `bytes_written`, those of segments in which nothing changed: nothing was written for them.
        bytes_read_once: of `bytes_read`, those of segments that only the first pass has read: it had found that nothing
            in them changes.
        segments_unread, bytes_unread: left as they were by their key indexes.
        index_bytes_read, index_bytes_written: of key indexes.
        batches_packed, batches_joined, packed_bytes_before, packed_bytes_after: see `RecompressCounts`.
    """

    first_dirty_offset: int
    end_offset: int
    map_ended_by: MapEnd | None
    map_bytes_read: int
    map_messages_read: int
    map_entries: int
    bytes_read: int
    bytes_written: int
    messages_read: int
    messages_written: int
    removed: Removed
    map_seconds: float
    copy_seconds: float
    kept_damage: tuple[DamagedBatch, ...] = ()
    bytes_in_place: int = 0
    bytes_read_once: int = 0
    segments_unread: int = 0
    bytes_unread: int = 0
    index_bytes_read: int = 0
    index_bytes_written: int = 0
    held_tombstones: int = 0
    held_markers: int = 0
    expired_records: int = 0
    outranked_records: int = 0
    batches_packed: int = 0
    batches_joined: int = 0
    packed_bytes_before: int = 0
    packed_bytes_after: int = 0


def clean_log(
    log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, config: CleanerConfig, context: RoundContext
) -> RoundResult:
    """
    Clean one log once.

    Args:
        log: fully loaded; the changes of its load are written here, once the dirty section is known to be good.
        cleanable: the range to clean; empty only with `RoundContext.only`.
        topic, config: the settings.
        context: of the round.
    Raises:
        CorruptLogError: damage. In the dirty section: nothing was changed. In the clean section: the groups before it
            are swapped in, each sound by itself.
        UncleanableError: Kafka's cleaner could not clean it either; state as for damage in the clean section.
        CleaningAborted: stopped; swapped groups stay.
        LogChangedError: a writer has truncated the log; swapped groups stay.
        PolicyRefusedError: see `RoundContext.refuse_keyless`.
        NoSpaceError, LogDirOfflineError: the disk refused.
    """
    count = lanes_for(config.pipeline_threads)
    offset_map = context.offset_map or OffsetMap(
        config.key_limit_of(topic), config.slots_of(topic), survivor_rule_of(topic.survivor)
    )
    with borrowed_lanes(count, config.batch_limit_bytes(topic), max_kept=config.threads * count) as lanes:
        return _clean(log, cleanable, topic, lanes, context, offset_map)


def _clean(
    log: LoadedLog,
    cleanable: Cleanable,
    topic: TopicConfig,
    lanes: Sequence[LaneMemory],
    context: RoundContext,
    offset_map: OffsetMap,
) -> RoundResult:
    began_ns = context.clock.monotonic_ns()
    damage = NO_DAMAGE
    if context.keep_damaged:
        end = cleanable.first_uncleanable_offset
        damage = find_damage(log.segments_between(0, end), end, lanes[0], context)
    view = key_view_of(topic.key_view)
    rules = rules_of(log, cleanable, topic, context)
    unread = UnreadSegments(log, cleanable, topic, rules, context, offset_map, lanes[0].unpacker.limit_bytes)
    built = MapBuilder(
        *(log, cleanable, offset_map, lanes, context, damage, unread_indexes(log, cleanable, topic, context)),
        record_limit_bytes=topic.max_decompressed_message_bytes,
        all_latest=unread.first_pass(),
        view=view,
    ).build()
    mapped_ns = context.clock.monotonic_ns()
    require_whole(log, topic, built.ended_by, offset_map)
    refuse_keyless(log, built.keyless_messages, context)
    settle_before_swaps(log, context)

    groups = groups_of(log, cleanable, topic, built.end_offset)
    if context.only is not None:
        groups = [[s] for s in log.segments_between(0, built.end_offset) if s.base_offset in context.only]
    progress = _Progress(context, sum(segment.size for group in groups for segment in group))
    recopier = _make_recopier(
        *(
            log,
            topic,
            rules,
            lambda: MapSurvivors(offset_map, rules.removal_ms, view),
            lanes,
            context,
            damage,
            progress,
        ),
        rules.expiry(offset_map.latest_offset),
    )
    room = ExpectedOutput(offset_map, built.messages_by_segment)
    with unread, GroupEnds() as ends:
        cleaning = _GroupCleaning(log, topic, recopier, lanes, context, damage, room, ends, unread)
        for group in groups:
            if unread.may_stay(group):
                progress.add(group[0].size)
            else:
                cleaning.clean(group, is_last=group is groups[-1])
    unread.finish()

    context.write_checkpoint(built.end_offset)
    copied_ns = context.clock.monotonic_ns()
    return RoundResult(
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=built.end_offset,
        map_ended_by=built.ended_by,
        map_bytes_read=built.bytes_read,
        map_messages_read=built.messages_read,
        map_entries=offset_map.entries,
        **vars(CopyCounts.total((recopier.counts, unread.read_once))),
        **vars(RecompressCounts() if recopier.recompressor is None else recopier.recompressor.counts),
        outranked_records=offset_map.outranked,
        bytes_in_place=cleaning.bytes_in_place + unread.read_once.bytes_written,
        bytes_read_once=unread.read_once.bytes_read,
        segments_unread=unread.segments,
        bytes_unread=unread.bytes,
        index_bytes_read=unread.index_bytes_read,
        index_bytes_written=unread.index_bytes_written,
        map_seconds=(mapped_ns - began_ns) / 1e9,
        copy_seconds=(copied_ns - mapped_ns) / 1e9,
        kept_damage=tuple(batch for batch in damage.batches if batch.segment < built.end_offset),
    )


@dataclass
class _Progress:
    """Of the second pass; bytes."""

    context: RoundContext
    total: int
    done: int = 0

    def add(self, size: int) -> None:
        """Report more bytes; raises CleaningAborted to stop."""
        self.context.check_done()
        self.done += size
        self.context.progress("copy", self.done, self.total)


def _make_recopier(
    log: LoadedLog,
    topic: TopicConfig,
    rules: RecopyRules,
    make_survivors: Callable[[], MapSurvivors],
    lanes: Sequence[LaneMemory],
    context: RoundContext,
    damage: KnownDamage,
    progress: _Progress,
    expiry: Expiry | None,
) -> GroupRecopier:
    return GroupRecopier(
        rules=rules,
        make_survivors=make_survivors,
        producers=ActiveProducers(log.last_records),
        collect_aborted=log.collect_aborted,
        lanes=lanes,
        before_read=context.throttle,
        before_chunk=progress.add,
        after_write=context.throttle,
        most_bytes=context.window_bytes,
        damage=damage,
        expiry=expiry,
        recompressor=None
        if context.recompress is None
        else Recompressor(context.recompress, topic.max_message_bytes, lanes[0].unpacker.limit_bytes),
    )


@dataclass
class _GroupCleaning:
    """Cleans the groups of a round, one after the other; the end of each, except the last, runs in the background."""

    log: LoadedLog
    topic: TopicConfig
    recopier: GroupRecopier
    lanes: Sequence[LaneMemory]
    context: RoundContext
    damage: KnownDamage
    room: ExpectedOutput
    ends: GroupEnds
    unread: UnreadSegments
    bytes_in_place: int = 0

    def clean(self, group: Sequence[Segment], *, is_last: bool) -> None:
        """
        Recopy a group, read the result back, and swap it in. On any failure before the swap the group is unchanged.

        A group of one segment in which nothing changes stays as it is.
        """
        log, context, topic = self.log, self.context, self.topic
        target = CleanedSegment(
            context.fs,
            log.directory,
            group[0].base_offset,
            like=group[0].log_path,
            interval_bytes=topic.index_interval_bytes,
            max_index_bytes=topic.segment_index_bytes,
            source=group[0] if len(group) == 1 else None,
            before_write=lambda: self._require_room(group),
            after_copy=self._after_copy,
        )

        def recopy() -> GroupEnd | None:
            messages_before = self.recopier.counts.messages_written - self.recopier.uncounted
            keys = self.unread.begin(group)
            aborts = self.recopier.recopy(group, log.end_of(group), target, keys)
            messages = self.recopier.counts.messages_written - self.recopier.uncounted - messages_before
            if target.equals_source(aborts):
                self.bytes_in_place += target.size
                self.unread.left_in_place(group)
                return None
            new_keys = self.unread.changes(group)
            leaves_cache = not self.recopier.found_cold

            def finish(buffers: Sequence[WindowBuffer]) -> None:
                target.finish(aborts, mtime_ns=group[-1].mtime_ms * 1_000_000)
                if context.verify:
                    verify_cleaned(
                        context.fs,
                        target,
                        messages,
                        interval_bytes=topic.index_interval_bytes,
                        max_index_bytes=topic.segment_index_bytes,
                        buffers=buffers,
                        leaves_cache=leaves_cache,
                        damage=self.damage,
                        facts=new_keys.written,
                    )

            def install(threads: int) -> Note:
                return partial(note, install_group(log, group, context, discard=target.discard, threads=threads))

            def note(new: Segment) -> None:
                log.replace(group, new)
                self.unread.replaced(new, new_keys)

            return GroupEnd(finish, install)

        self.ends.recopy(target, recopy, self.lanes, is_last=is_last)

    def _after_copy(self, size: int) -> None:
        self.context.check_done()
        self.context.throttle(size)

    def _require_room(self, group: Sequence[Segment]) -> None:
        """Require room for a group's output; unless there is plenty, wait until the last group's files are gone."""
        context = self.context
        self.ends.linger_unless_plenty(context.fs, self.log.directory, sum(segment.size for segment in group))
        self.room.require_room(context.fs, group)
