"""
Chooses which of a daemon's logs are cleaned with Spark: logs above a size, in a child process, if Spark is installed.

If a log is large enough and the engine cleans it anyway, the log line of its round gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cleaner.base import concurrency
from cleaner.spark.clean.available import why_not_available

if TYPE_CHECKING:  # a daemon without large logs must not load them
    from cleaner.cleaning.context import RoundContext
    from cleaner.cleaning.round.round import RoundResult
    from cleaner.config.values import CleanerConfig, TopicConfig
    from cleaner.policy.cleanable import Cleanable
    from cleaner.spark.clean.child import ChildJobs
    from cleaner.storage.load.loaded_log import LoadedLog

    CleanRound = Callable[[LoadedLog, Cleanable, TopicConfig, CleanerConfig, RoundContext], RoundResult]


class LargeLogs:
    """
    Chooses for each log, and owns the child process that all large logs share. Thread-safe.

    Args:
        why_not: returns why Spark cannot be used, or an empty text; called for each log that is large enough.
    """

    def __init__(self, why_not: Callable[[], str] = why_not_available) -> None:
        self._why_not = why_not
        self._lock = concurrency.Lock()
        self._jobs: ChildJobs | None = None  # guarded by _lock

    def choose(self, found: Cleanable, config: CleanerConfig) -> tuple[CleanRound | None, str]:
        """Return the function that runs a log's rounds (None: the engine), and a note for the operator if large."""
        if found.clean_bytes + found.cleanable_bytes < config.bulk_min_bytes:
            return None, ""
        if not config.bulk_enable:
            return None, "without Spark: cleaner.bulk.enable is false"
        reason = self._why_not()
        return (None, f"without Spark: {reason}") if reason else (self._clean, "with Spark")

    def _clean(
        self, log: LoadedLog, cleanable: Cleanable, topic: TopicConfig, config: CleanerConfig, context: RoundContext
    ) -> RoundResult:
        from cleaner.spark.clean.child import ChildJobs
        from cleaner.spark.clean.round import BulkCleaner
        from cleaner.spark.clean.work_dir import options_of

        options = options_of(config, log.directory.parent, None, None)
        with self._lock:
            if self._jobs is None:
                self._jobs = ChildJobs(dict(config.spark), options.work_dir)
            self._jobs.given = dict(config.spark)  # for the next child: a running one has its session already
            jobs = self._jobs
        return BulkCleaner(lambda _: jobs, lambda _config, _log_dir: options).clean(
            log, cleanable, topic, config, context
        )

    def close(self) -> None:
        """End the child process."""
        with self._lock:
            jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.close()
