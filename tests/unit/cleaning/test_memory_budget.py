"""Settings that do not fit into memory are refused by name, with a value that would fit."""

from __future__ import annotations

import re

import pytest

from cleaner.base.sizes import human_bytes
from cleaner.cleaning.round.memory_budget import BASE_BYTES, MemoryBudget, require_memory
from cleaner.config.values import MIB, CleanerConfig
from cleaner.errors import ConfigError
from cleaner.storage.fs.memory_limits import MemoryLimit

SOURCE = "/sys/fs/cgroup/memory.max"


def config(*, threads: int = 1, pipeline_threads: int = 1, dedupe: int = 128 * MIB, **others: int) -> CleanerConfig:
    return CleanerConfig(
        threads=threads,
        configured_pipeline_threads=pipeline_threads,
        dedupe_buffer_size=dedupe,
        message_max_bytes=others.get("message_max_bytes", 1_048_588),
        map_kafka_cap=bool(others.get("map_kafka_cap")),
    )


def refusal(settings: CleanerConfig, size: int) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        require_memory(settings, MemoryLimit(size, SOURCE))
    return caught.value


def allowed(error: ConfigError) -> int:
    """The value that the refusal says is enough."""
    found = re.search(r"at most ([0-9]+) here", error.reason)
    assert found is not None, error.reason
    return int(found.group(1))


def test_budget_grows_with_all_that_takes_memory() -> None:
    """The buffer is shared by the workers; lanes and the largest batch count for each of them."""
    one = MemoryBudget.of(config())
    assert (one.base, one.maps) == (BASE_BYTES, 128 * MIB)
    assert one.total == one.base + one.maps + one.workers
    three = MemoryBudget.of(config(threads=3, dedupe=300 * MIB))
    assert (three.maps, three.workers) == (300 * MIB, 3 * one.workers)
    assert MemoryBudget.of(config(pipeline_threads=4)).workers > 3 * one.workers
    assert MemoryBudget.of(config(message_max_bytes=1_048_588 + 10 * MIB)).workers == one.workers + 30 * MIB
    capped = MemoryBudget.of(config(dedupe=1 << 40, map_kafka_cap=1))
    assert capped.maps == 2**31 - 1


def test_defaults_fit_half_a_gibibyte() -> None:
    """A usual container of a sidecar, with two pipeline threads."""
    require_memory(config(pipeline_threads=2), MemoryLimit(512 * MIB, SOURCE))


def test_what_just_fits_is_not_refused() -> None:
    """But it is refused with one byte less."""
    total = MemoryBudget.of(config()).total
    require_memory(config(), MemoryLimit(total, SOURCE))
    assert refusal(config(), total - 1).exit_code == 78


def test_unknown_limit_refuses_nothing() -> None:
    """Without `/proc` the limit is the user's business."""
    require_memory(config(dedupe=1 << 50), None)


def test_dedupe_buffer_too_large_is_named_with_what_fits() -> None:
    """Key, value, why, and the largest value, which then passes."""
    error = refusal(config(dedupe=4096 * MIB), 1024 * MIB)
    assert (error.key, error.value) == ("log.cleaner.dedupe.buffer.size", 4096 * MIB)
    assert f"{SOURCE} allows 1.0 GiB" in error.reason
    assert human_bytes(MemoryBudget.of(config(dedupe=4096 * MIB)).total) in error.reason
    require_memory(config(dedupe=allowed(error)), MemoryLimit(1024 * MIB, SOURCE))
    refusal(config(dedupe=allowed(error) + 1), 1024 * MIB)


def test_too_many_workers_are_named_when_no_buffer_would_do() -> None:
    """The number named passes with a small buffer, one more does not."""
    error = refusal(config(threads=64), 1024 * MIB)
    assert (error.key, error.value) == ("log.cleaner.threads", 64)
    most = allowed(error)
    require_memory(config(threads=most, dedupe=most * MIB), MemoryLimit(1024 * MIB, SOURCE))
    assert refusal(config(threads=most + 1, dedupe=(most + 1) * MIB), 1024 * MIB).key == "log.cleaner.threads"


def test_too_many_pipeline_threads_are_named_when_one_worker_is_too_much() -> None:
    """The number named passes with a small buffer, one more does not."""
    error = refusal(config(pipeline_threads=16), 400 * MIB)
    assert (error.key, error.value) == ("cleaner.pipeline.threads", 16)
    most = allowed(error)
    require_memory(config(pipeline_threads=most, dedupe=MIB), MemoryLimit(400 * MIB, SOURCE))
    assert refusal(config(pipeline_threads=most + 1, dedupe=MIB), 400 * MIB).key == "cleaner.pipeline.threads"


def test_limit_below_any_settings_says_what_is_needed() -> None:
    """No setting would help; the limit must be raised to the size named."""
    error = refusal(config(), 64 * MIB)
    found = re.search(r"at least ([0-9]+) are needed whatever is set", error.reason)
    assert found is not None
    require_memory(config(dedupe=MIB), MemoryLimit(int(found.group(1)), SOURCE))
