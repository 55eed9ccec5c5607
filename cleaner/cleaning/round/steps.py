"""The steps that all rounds share, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from shlex import quote

from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.cleaning.recopy.group import RecopyRules
from cleaner.config.forms import SURVIVOR_KEY
from cleaner.config.values import TopicConfig
from cleaner.errors import CleaningAborted, LogChangedError, PolicyRefusedError
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.grouping import group_segments, unread_sources
from cleaner.policy.sections import legacy_delete_horizon_ms
from cleaner.storage.load.loaded_log import LoadedLog
from cleaner.storage.segment.segment import Segment
from cleaner.storage.swap.swap import fsync_sources, remove_deleted, replace_segments

_NEVER_MS = -(2**63)  # before every horizon


def refuse_keyless(log: LoadedLog, keyless_messages: int, context: RoundContext) -> None:
    """
    Raise PolicyRefusedError for records without a key, if the caller does not want them removed.

    Call it before `settle_before_swaps`: it promises that nothing has changed.
    """
    if context.refuse_keyless and keyless_messages:
        reason = f"{keyless_messages} records without a key would be removed; name the partition to clean it"
        raise PolicyRefusedError(f"{log.directory}: {reason}")


def require_whole(log: LoadedLog, topic: TopicConfig, ended_by: MapEnd | None, offset_map: OffsetMap) -> None:
    """
    Raise PolicyRefusedError if a round by numbers has not compared all records: the one that stays may be beyond.

    Call it before `settle_before_swaps`: it promises that nothing has changed.
    """
    if offset_map.rule.numbers is not None and ended_by is not None:
        rule = f"{SURVIVOR_KEY}={topic.survivor} compares all records of a key in one round"
        room = f"it holds {offset_map.key_limit} keys, at 32 bytes each"
        way = f"raise log.cleaner.dedupe.buffer.size ({room})"
        if ended_by is not MapEnd.FULL:
            way = "let a round cover the whole log"
        place = f"{quote(str(log.directory.parent))} {log.directory.name}"
        raise PolicyRefusedError(
            f"{log.directory}: {rule}, and {ended_by.value}: {way}. Nothing has changed",
            advice=f"`cleaner plan {place} --estimate` says which buffer is enough for one round",
        )


def settle_before_swaps(log: LoadedLog, context: RoundContext) -> None:
    """
    Force the sources to disk and write the changes of the load, once the dirty section is known to be sound.

    A swap drops older values for newer ones: the newer ones, and all names, must be on disk first (D-10). So must the
    rest of a log that was only copied here: otherwise a power cut could leave only the swapped segments. If a writer is
    active, the active segment is left to it.
    """
    sources = log.segments[:-1] if log.is_beside_writer else log.segments
    fsync_sources(context.fs, log.directory, [segment.base_offset for segment in sources])
    log.settle(context.fs, context.swapping)


def groups_of(log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, end_offset: int) -> list[list[Segment]]:
    """Divide the segments up to the end of the round into the groups that become one segment each."""
    return group_segments(
        log.segments_between(0, end_offset),
        max_log_bytes=topic.segment_bytes,
        max_index_bytes=topic.segment_index_bytes,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
    )


def unread_indexes(log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, context: RoundContext) -> frozenset[int]:
    """Return the base offsets of sources whose last index entry may be wrong: Kafka does not read it (R-538)."""
    if context.kafka.reads_every_index:
        return frozenset()
    groups = groups_of(log, cleanable, topic, cleanable.first_uncleanable_offset)
    return unread_sources(groups, reads_every_index=False)


def rules_of(log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, context: RoundContext) -> RecopyRules:
    """
    Return the rules for the retention of batches; call before the first swap.

    With `keep_tombstones`, tombstones and markers get horizons, but stay even after them: replicas that were offline
    may not have read them (D-13). With `held_from`, that holds for those from an offset on (D-17).
    """
    clean = log.segments_between(0, cleanable.first_dirty_offset)
    last_clean_ms = clean[-1].mtime_ms if clean else None
    legacy_horizon_ms = legacy_delete_horizon_ms(last_clean_ms, topic.delete_retention_ms)
    return RecopyRules(
        kept_end_offset=context.kafka.kept_end_offset(cleanable.first_uncleanable_offset, log.high_watermark),
        reads_every_index=context.kafka.reads_every_index,
        legacy_horizon_ms=_NEVER_MS if context.keep_tombstones else legacy_horizon_ms,
        now_ms=context.now_ms,
        removal_ms=_NEVER_MS if context.keep_tombstones else context.now_ms,
        delete_retention_ms=topic.delete_retention_ms,
        record_limit_bytes=topic.max_decompressed_message_bytes,
        held_from=context.held_from,
        settled_ms=_NEVER_MS if context.keep_tombstones or context.held_from is not None else context.now_ms,
        removes_nothing=context.removes_nothing,
        expire_before_ms=topic.expire_before_ms(context.now_ms),
        keeps_legacy_end=bool(topic.own_survivor),
    )


def install_group(
    log: LoadedLog, group: Sequence[Segment], context: RoundContext, *, discard: Callable[[], None], threads: int
) -> Segment:
    """
    Swap in the finished `.cleaned` segment of a group; returns it, for `log.replace`.

    Old files are removed after the partition is released: where there are many, that takes longer than all renames.

    Args:
        discard: removes the `.cleaned` files; called if the old segments could not be kept, or the log has changed.
        threads: how many may remove files.
    """
    new_base = group[0].base_offset
    old_bases = [segment.base_offset for segment in group]
    try:
        context.keep_old(group)
    except BaseException:
        discard()
        raise
    with ExitStack() as stack:
        try:
            stack.enter_context(context.swapping())
            log.require_unchanged(group)
        except (CleaningAborted, LogChangedError):
            discard()
            raise
        replace_segments(
            context.fs,
            log.directory,
            new_base=new_base,
            old_bases=old_bases,
            still_held=context.still_held,
            keep_deleted=True,
        )
        new = Segment.open(context.fs, log.directory, new_base)
    remove_deleted(context.fs, log.directory, old_bases, threads=threads)
    return new
