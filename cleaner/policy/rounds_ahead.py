"""How many rounds a dirty section takes with a dedupe buffer, and how large a buffer takes it in one (R-511, R-512)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cleaner.config.values import KAFKA_MAP_CAP_BYTES, MAP_ENTRY_BYTES, CleanerConfig


@dataclass(frozen=True)
class RoundsAhead:
    """
    What is ahead of one log.

    Attributes:
        buffer_bytes: one thread's share of `log.cleaner.dedupe.buffer.size`.
        slots: entries it has room for.
        most_keys: distinct keys a round takes; beyond, the round ends and the next one goes on.
        keys: distinct keys of the dirty section; without an estimate the most there can be: one an offset.
        head_bytes: how much of the dirty section a round takes; without an estimate at least so much, were all bytes
            spread evenly over the offsets.
        count: rounds; without an estimate at most so many.
        one_round_buffer_size: the least `log.cleaner.dedupe.buffer.size` that takes all in one round; without an
            estimate it may be less. None where `cleaner.map.kafka.cap` forbids it.
    """

    buffer_bytes: int
    slots: int
    most_keys: int
    keys: int
    head_bytes: int
    count: int
    one_round_buffer_size: int | None


def rounds_ahead(config: CleanerConfig, *, keys: int, dirty_bytes: int, head_part: float | None = None) -> RoundsAhead:
    """
    Foretell rounds from how many distinct keys there may be.

    Args:
        config: the process's settings.
        keys: distinct keys of the dirty section, at most.
        dirty_bytes: what it weighs.
        head_part: which part of it has as many keys as a round takes; None: as if no key came twice.
    """
    # A full map ends the round before anybody knows that what follows holds no new key: room for one more is needed.
    share = min(1.0, config.key_limit / (keys + 1) if head_part is None or keys < config.key_limit else head_part)
    return RoundsAhead(
        buffer_bytes=config.map_bytes,
        slots=config.slots,
        most_keys=config.key_limit,
        keys=keys,
        head_bytes=int(dirty_bytes * share),
        count=math.ceil(1 / share) if dirty_bytes else 0,
        one_round_buffer_size=buffer_for(config, keys + 1),
    )


def buffer_for(config: CleanerConfig, keys: int) -> int | None:
    """Return the least dedupe buffer of which a thread's share takes so many keys; None where the cap forbids it."""
    load_factor = min(1.0, config.io_buffer_load_factor)
    slots = math.ceil(keys / load_factor)
    slots += int(slots * load_factor) < keys  # where the product falls short by its last bit
    if config.map_kafka_cap and slots * MAP_ENTRY_BYTES > KAFKA_MAP_CAP_BYTES:
        return None
    return slots * MAP_ENTRY_BYTES * config.threads
