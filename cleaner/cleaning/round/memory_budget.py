"""
Checks at the start, not in the middle of a round, that there is enough memory for the settings.

    base                            the interpreter, libraries, compiled kernels, and the state of the logs
    + log.cleaner.dedupe.buffer.size     offset maps of all workers, if there are enough keys to fill them
    + for each worker               its map's bits and first small tables, and the keys of a segment's index
    + for each worker's lanes       windows, unpacked batches, digests, output: see `cleaning/passes/pipeline.py`

The sum is a bound for batches that unpack to at most 1 MiB, or to `message.max.bytes` if that is more;
`tests/integration/test_memory_budget.py` holds commands to it. A batch may unpack to more, up to
`cleaner.max.decompressed.batch.bytes`: that takes three times as much for each lane, and up to seventeen times if its
records are tiny. This is not in the sum, so as not to refuse normal settings.
"""

from __future__ import annotations

from dataclasses import dataclass

from cleaner.base.sizes import human_bytes
from cleaner.cleaning.passes.pipeline import lanes_for
from cleaner.config.values import MIB, CleanerConfig
from cleaner.errors import ConfigError
from cleaner.storage.fs.memory_limits import MemoryLimit

# Measured: a command with its kernels has 160 MB resident; a few thousand logs add some kilobytes each.
BASE_BYTES = 192 * MIB
# The bits of the latest offsets, at most 16 MiB, the smaller tables, up to 16 MiB, that a map has grown through, and
# the bits of outranked keys, at most 8 MiB.
_BESIDE_MAP_BYTES = 40 * MIB
# One run of `state/digest_runs.py`, and what sorting the parts of several takes.
_KEY_INDEX_BYTES = 12 * MIB
# Measured with batches of one record, which need most: 22 MB a lane. If windows or blocks grow, measure again.
_LANE_BYTES = 24 * MIB
# A window's carried part, the unpacked records and the rebuilt batch grow with the largest batch.
_LANE_COPIES_OF_LARGEST_BATCH = 3
_USUAL_BATCH_BYTES = 1_048_588  # Kafka's default of message.max.bytes; included in the measurement
_MIN_MAP_BYTES = MIB

_MAP_KEY = "log.cleaner.dedupe.buffer.size"
_THREADS_KEY = "log.cleaner.threads"
_PIPELINE_KEY = "cleaner.pipeline.threads"


@dataclass(frozen=True)
class MemoryBudget:
    """
    The most memory a process needs, in bytes.

    Attributes:
        base: independent of the settings.
        maps: offset maps of all workers.
        workers: everything else of all workers.
    """

    base: int
    maps: int
    workers: int

    @property
    def total(self) -> int:
        """The sum."""
        return self.base + self.maps + self.workers

    @staticmethod
    def of(config: CleanerConfig) -> MemoryBudget:
        """Compute the budget of some settings."""
        workers = config.threads * _worker_bytes(config, config.pipeline_threads)
        return MemoryBudget(BASE_BYTES, config.threads * config.map_bytes, workers)


def _worker_bytes(config: CleanerConfig, pipeline_threads: int) -> int:
    """Return the bytes that a worker needs besides its map."""
    larger_batch_bytes = max(0, config.message_max_bytes - _USUAL_BATCH_BYTES)
    lane_bytes = _LANE_BYTES + _LANE_COPIES_OF_LARGEST_BATCH * larger_batch_bytes
    return _BESIDE_MAP_BYTES + _KEY_INDEX_BYTES + lanes_for(pipeline_threads) * lane_bytes


def require_memory(config: CleanerConfig, limit: MemoryLimit | None) -> None:
    """
    Refuse settings that need more memory than the process may have.

    Args:
        config: the settings.
        limit: of the process; None: unknown, nothing is refused.
    Raises:
        ConfigError: names one setting whose change is enough, preferably the dedupe buffer, and its largest value.
    """
    needed = MemoryBudget.of(config)
    if limit is None or needed.total <= limit.size:
        return
    threads, pipeline_threads = config.threads, config.pipeline_threads
    why = f"the process may need {human_bytes(needed.total)}, and {limit.source} allows {human_bytes(limit.size)}"
    for_maps = limit.size - needed.base - needed.workers
    if for_maps >= threads * _MIN_MAP_BYTES:
        raise ConfigError(_MAP_KEY, config.dedupe_buffer_size, f"{why}: at most {for_maps} here")
    fitting = (limit.size - needed.base) // (_worker_bytes(config, pipeline_threads) + _MIN_MAP_BYTES)
    if fitting >= 1:
        # The other settings may still need too much; then the next attempt reports that.
        raise ConfigError(_THREADS_KEY, threads, f"{why}: at most {fitting} here")
    for fewer in range(pipeline_threads - 1, 0, -1):
        if needed.base + _worker_bytes(config, fewer) + _MIN_MAP_BYTES <= limit.size:
            raise ConfigError(_PIPELINE_KEY, pipeline_threads, f"{why}: at most {fewer} here")
    least = needed.base + _worker_bytes(config, 1) + _MIN_MAP_BYTES
    raise ConfigError(_MAP_KEY, config.dedupe_buffer_size, f"{why}: at least {least} are needed whatever is set")
