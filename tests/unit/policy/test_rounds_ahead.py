"""Rounds ahead: what a round takes, how many there are, and the buffer that is large enough."""

from __future__ import annotations

import pytest

from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.policy.rounds_ahead import buffer_for, rounds_ahead


def config(size: int, *, threads: int = 1, load_factor: float = 0.9, cap: bool = False) -> CleanerConfig:
    return CleanerConfig(dedupe_buffer_size=size, threads=threads, io_buffer_load_factor=load_factor, map_kafka_cap=cap)


@pytest.mark.parametrize(
    ("keys", "count", "head_bytes"),
    [
        pytest.param(89, 1, 1000, id="one-place-left"),
        pytest.param(90, 2, 989, id="full-before-it-is-known-that-nothing-follows"),
        pytest.param(899, 10, 100, id="ten-rounds"),
    ],
)
def test_rounds_of_a_map_with_90_keys(keys: int, count: int, head_bytes: int) -> None:
    """100 slots of 24 bytes, nine tenths of them used (R-512)."""
    found = rounds_ahead(config(2400), TopicConfig(), keys=keys, dirty_bytes=1000)
    assert (found.slots, found.most_keys, found.count, found.head_bytes) == (100, 90, count, head_bytes)


def test_rounds_go_by_the_part_of_the_dirty_section_that_fills_the_map() -> None:
    """Where keys come again, more of it than where none does."""
    found = rounds_ahead(config(2400), TopicConfig(), keys=900, dirty_bytes=1000, head_part=0.4)
    assert (found.count, found.head_bytes) == (3, 400)


@pytest.mark.parametrize("keys", [1, 89, 90, 1000, 12_345])
@pytest.mark.parametrize(("threads", "load_factor"), [(1, 0.9), (3, 0.75), (2, 1.5)])
def test_buffer_for_so_many_keys_is_the_least(keys: int, threads: int, load_factor: float) -> None:
    """One slot a thread less would not do."""
    size = buffer_for(config(2400, threads=threads, load_factor=load_factor), keys)
    assert size is not None
    assert config(size, threads=threads, load_factor=load_factor).key_limit >= keys
    assert config(size - 24 * threads, threads=threads, load_factor=load_factor).key_limit < keys


def test_buffer_beyond_kafkas_cap_is_none_where_the_cap_holds() -> None:
    """2 GiB a thread are 89 million slots."""
    assert buffer_for(config(2400, cap=True), 10**8) is None
    assert buffer_for(config(2400), 10**8) is not None
    assert rounds_ahead(config(2400, cap=True), TopicConfig(), keys=10**8, dirty_bytes=1).one_round_buffer_size is None
