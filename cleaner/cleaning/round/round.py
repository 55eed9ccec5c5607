"""
One cleaning round of one log (R-503).

A log has two sections. The *clean* section was cleaned before and holds each key at most once; the *dirty* section,
from the first dirty offset on, may repeat keys of both. A round

    1. reads the dirty section, checks every batch, and maps each key to its last offset (`build_map.py`);
    2. divides all segments up to the end of the map into groups, each small enough to become one segment;
    3. recopies group by group, leaving out every record whose key occurs again later (`recopy/group.py`), reads the
       output back, and swaps it in so that a crash leaves the old segments or the new one (`storage/swap/swap.py`);
    4. writes the checkpoint: the next round's dirty section begins where this round's map ended.

`docs/design.md` ("What stays") lists the records and batches that stay; `kernels/batch_retention.py` and
`kernels/offset_map.py` decide.

A full map, or a limit of the caller's, ends the round early: the covered part is cleaned, the checkpoint advances that
far, and the next round continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cleaner.base.model import Removed
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import BuiltMap, MapBuilder, MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.passes.damage import NO_DAMAGE, DamagedBatch, KnownDamage
from cleaner.cleaning.passes.lane_memory import LaneMemory, borrowed_lanes
from cleaner.cleaning.passes.pipeline import lanes_for, threads_of
from cleaner.cleaning.recopy.batch_retention import ActiveProducers
from cleaner.cleaning.recopy.cleaned_segment import CleanedSegment
from cleaner.cleaning.recopy.expected_output import ExpectedOutput
from cleaner.cleaning.recopy.group import GroupRecopier
from cleaner.cleaning.recopy.survivors import MapSurvivors
from cleaner.cleaning.recopy.verify import verify_cleaned
from cleaner.cleaning.round.find_damage import find_damage
from cleaner.cleaning.round.steps import groups_of, install_group, refuse_keyless, rules_of, settle_before_swaps
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.policy.cleanable import Cleanable
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
        map_seconds, copy_seconds: durations.
        kept_damage: damaged batches that were copied unchanged.
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


def clean_log(
    log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, config: CleanerConfig, context: RoundContext
) -> RoundResult:
    """
    Clean one log once.

    Args:
        log: fully loaded; the changes of its load are written here, once the dirty section is known to be good.
        cleanable: the range to clean; it must not be empty.
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
    offset_map = context.offset_map or OffsetMap(config.key_limit, config.slots)
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
    built = MapBuilder(log, cleanable, offset_map, lanes, context, damage).build()
    mapped_ns = context.clock.monotonic_ns()
    refuse_keyless(log, built.keyless_messages, context)
    settle_before_swaps(log, context)

    recopier = _make_recopier(log, cleanable, topic, offset_map, lanes, built, context, damage)
    room = ExpectedOutput(offset_map, built.messages_by_segment)
    for group in groups_of(log, cleanable, topic, built.end_offset):
        room.require_room(context.fs, group)
        _clean_group(log, group, topic, recopier, lanes, context, damage)

    context.write_checkpoint(built.end_offset)
    copied_ns = context.clock.monotonic_ns()
    return RoundResult(
        first_dirty_offset=cleanable.first_dirty_offset,
        end_offset=built.end_offset,
        map_ended_by=built.ended_by,
        map_bytes_read=built.bytes_read,
        map_messages_read=built.messages_read,
        map_entries=offset_map.entries,
        **vars(recopier.counts),
        map_seconds=(mapped_ns - began_ns) / 1e9,
        copy_seconds=(copied_ns - mapped_ns) / 1e9,
        kept_damage=tuple(batch for batch in damage.batches if batch.segment < built.end_offset),
    )


def _make_recopier(
    log: LoadedLog,
    cleanable: Cleanable,
    topic: TopicConfig,
    offset_map: OffsetMap,
    lanes: Sequence[LaneMemory],
    built: BuiltMap,
    context: RoundContext,
    damage: KnownDamage,
) -> GroupRecopier:
    total_bytes = sum(segment.size for segment in log.segments_between(0, built.end_offset))
    done_bytes = 0

    def before_chunk(read_bytes: int) -> None:
        nonlocal done_bytes
        context.check_done()
        done_bytes += read_bytes
        context.progress("copy", done_bytes, total_bytes)

    rules = rules_of(log, cleanable, topic, context)
    return GroupRecopier(
        rules=rules,
        make_survivors=lambda: MapSurvivors(offset_map, rules.removal_ms),
        producers=ActiveProducers(log.last_records),
        collect_aborted=log.collect_aborted,
        lanes=lanes,
        before_read=context.throttle,
        before_chunk=before_chunk,
        after_write=context.throttle,
        most_bytes=context.window_bytes,
        damage=damage,
    )


def _clean_group(
    log: LoadedLog,
    group: Sequence[Segment],
    topic: TopicConfig,
    recopier: GroupRecopier,
    lanes: Sequence[LaneMemory],
    context: RoundContext,
    damage: KnownDamage,
) -> None:
    """
    Recopy a group, read the result back, and swap it in. On any failure before the swap the group is unchanged.
    """
    target = CleanedSegment(
        context.fs,
        log.directory,
        group[0].base_offset,
        like=group[0].log_path,
        interval_bytes=topic.index_interval_bytes,
        max_index_bytes=topic.segment_index_bytes,
    )
    try:
        messages_before = recopier.counts.messages_written
        aborts = recopier.recopy(group, log.end_of(group), target)
        target.finish(aborts, mtime_ns=group[-1].mtime_ms * 1_000_000)
        if context.verify:
            verify_cleaned(
                context.fs,
                target,
                recopier.counts.messages_written - messages_before,
                interval_bytes=topic.index_interval_bytes,
                max_index_bytes=topic.segment_index_bytes,
                buffers=[lane.buffer for lane in lanes],
                leaves_cache=not recopier.found_cold,
                damage=damage,
            )
    except BaseException:
        target.discard()
        raise
    # Removing files mostly waits for the disk: use one thread more than the lanes keep busy.
    install_group(log, group, context, discard=target.discard, threads=threads_of(lanes) + 1)
