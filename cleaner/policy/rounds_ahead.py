"""How many rounds a dirty section needs with a dedupe buffer, and which buffer is enough for one (R-511, R-512)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cleaner.config.values import KAFKA_MAP_CAP_BYTES, MAP_ENTRY_BYTES, CleanerConfig, TopicConfig


@dataclass(frozen=True)
class RoundsAhead:
    """
    The rounds that one log needs.

    Attributes:
        buffer_bytes: one thread's share of `log.cleaner.dedupe.buffer.size`.
        slots: entries that fit into it.
        most_keys: distinct keys a round takes; with more, the round ends and the next one continues.
        keys: distinct keys of the dirty section; without an estimate the maximum: one an offset.
        head_bytes: how much of the dirty section a round takes; without an estimate a lower bound, assuming that bytes
            are spread evenly over the offsets.
        count: rounds; without an estimate an upper bound.
        one_round_buffer_size: the least `log.cleaner.dedupe.buffer.size` for a single round; without an estimate, less
            may be enough. None if `cleaner.map.kafka.cap` forbids it.
    """

    buffer_bytes: int
    slots: int
    most_keys: int
    keys: int
    head_bytes: int
    count: int
    one_round_buffer_size: int | None


def rounds_ahead(
    config: CleanerConfig, topic: TopicConfig, *, keys: int, dirty_bytes: int, head_part: float | None = None
) -> RoundsAhead:
    """
    Estimate the rounds from the number of distinct keys.

    Args:
        config, topic: the settings.
        keys: the most distinct keys that the dirty section can have.
        dirty_bytes: its bytes.
        head_part: the part of it with as many keys as a round takes; None: assume that no key occurs twice.
    """
    # A full map ends the round even if no new key follows, so one more entry is needed.
    most_keys = config.key_limit_of(topic)
    share = min(1.0, most_keys / (keys + 1) if head_part is None or keys < most_keys else head_part)
    return RoundsAhead(
        buffer_bytes=config.map_bytes,
        slots=config.slots_of(topic),
        most_keys=most_keys,
        keys=keys,
        head_bytes=int(dirty_bytes * share),
        count=math.ceil(1 / share) if dirty_bytes else 0,
        one_round_buffer_size=buffer_for(config, keys + 1, topic.map_entry_bytes),
    )


def buffer_for(config: CleanerConfig, keys: int, entry_bytes: int = MAP_ENTRY_BYTES) -> int | None:
    """Return the least dedupe buffer whose share for a thread holds this many keys; None if the cap forbids it."""
    load_factor = min(1.0, config.io_buffer_load_factor)
    slots = math.ceil(keys / load_factor)
    slots += int(slots * load_factor) < keys  # if the product is too small by its last bit
    if config.map_kafka_cap and slots * entry_bytes > KAFKA_MAP_CAP_BYTES:
        return None
    return slots * entry_bytes * config.threads
