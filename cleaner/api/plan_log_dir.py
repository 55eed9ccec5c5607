"""`plan`: what each partition of a log dir is like and whether it is due; nothing is locked, nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cleaner.api import load as loading
from cleaner.api.options import HighWatermark, Sources, Surroundings
from cleaner.api.reports import PlanEntry
from cleaner.api.session import Session, as_cleaner_errors, choose_partitions, open_session, parse_names
from cleaner.api.trust import origin_of_policy, policy_words, standing
from cleaner.config import TopicConfig
from cleaner.errors import CleanerError
from cleaner.model import TopicPartition
from cleaner.policy.cleanable import LogView, cleanable
from cleaner.policy.due import due
from cleaner.storage.glance import glance, look_through
from cleaner.storage.log_dir import StillLogDir


def plan_log_dir(
    log_dir: Path,
    sources: Sources,
    surroundings: Surroundings,
    *,
    partitions: Sequence[str] | None = None,
    high_watermark: HighWatermark = "checkpoint",
) -> list[PlanEntry]:
    """
    Look at every partition of a log dir.

    A live broker may be at work in it: files that come and go under the eye end up as the entry's `error`.

    Args:
        log_dir: the directory.
        sources: where settings come from.
        surroundings: the caller's clock and the like.
        partitions: names, judged as the operator's choice; None: all of them, judged as by `clean --all`.
        high_watermark: up to where records count as replicated.
    Raises:
        UsageError: no such directory or partition.
        CorruptCheckpointError, UncleanableError: the directory as a whole is not sound.
        ConfigError: a bad setting of the process.
    """
    with as_cleaner_errors(log_dir), open_session(log_dir, sources, surroundings, mode=None) as session:
        named = None if partitions is None else parse_names(partitions)
        entries = []
        session = replace(session, log_dir=StillLogDir(surroundings.fs, session.log_dir.path))
        for topic_partition, directory in choose_partitions(session, named).items():
            surroundings.check_done()
            view = _View(session, topic_partition, directory, named is not None, high_watermark)
            entries.append(view.entry())
        return entries


@dataclass(frozen=True)
class _View:
    """One partition that is being looked at."""

    session: Session
    topic_partition: TopicPartition
    directory: Path
    is_named: bool
    high_watermark: HighWatermark

    def entry(self) -> PlanEntry:
        """Return what there is to see, or what keeps it from being seen."""
        entry = PlanEntry(partition=str(self.topic_partition))
        try:
            with as_cleaner_errors(self.directory):
                segments = look_through(self.session.surroundings.fs, self.directory).segments
                entry = replace(entry, segments=len(segments), bytes=sum(segment.size for segment in segments))
                resolved = self.session.topic(self.topic_partition, self.directory)
                entry = replace(
                    entry,
                    policy=policy_words(resolved.config),
                    policy_origin=origin_of_policy(resolved),
                    policy_trusted=resolved.policy_trusted,
                )
                trust_default = self.session.trusts_default_policy
                verdict = standing(resolved, is_named=self.is_named, trust_default=trust_default)
                if resolved.config.compact:
                    entry = self._weigh(entry, resolved.config)
                return entry if verdict.is_allowed else replace(entry, is_due=False, reason=verdict.reason)
        except CleanerError as error:
            return replace(entry, error=str(error), reason="cannot be looked at")

    def _weigh(self, entry: PlanEntry, topic: TopicConfig) -> PlanEntry:
        """Find the cleanable range and what it weighs."""
        session, topic_partition = self.session, self.topic_partition
        now_ms = session.surroundings.clock.now_ms()
        log = self._load(topic, now_ms) if session.log_dir.has_clean_shutdown_marker() else self._glance()
        found = cleanable(log, session.log_dir.cleaner_offsets.get(topic_partition), topic, now_ms)
        answer = due(log, found, topic, now_ms)
        reason = answer.reason
        if found.cleanable_bytes == 0 and loading.lacks_high_watermark(session, topic_partition, self.high_watermark):
            reason = loading.NO_HIGH_WATERMARK
        return replace(
            entry,
            first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=found.first_uncleanable_offset,
            clean_bytes=found.clean_bytes,
            dirty_bytes=found.cleanable_bytes,
            uncleanable_bytes=found.uncleanable_bytes,
            ratio=found.ratio,
            is_due=answer.is_due,
            reason=reason,
        )

    def _load(self, topic: TopicConfig, now_ms: int) -> LogView:
        return loading.load(
            self.session,
            self.topic_partition,
            self.directory,
            topic,
            now_ms=now_ms,
            clean_shutdown=True,
            high_watermark=self.high_watermark,
            read_only=True,
        )

    def _glance(self) -> LogView:
        """Look at a log that is in use or was not closed in order; open transactions are not seen."""
        log_dir, tp = self.session.log_dir, self.topic_partition
        return glance(
            self.directory,
            look_through(self.session.surroundings.fs, self.directory).segments,
            log_start_offset=log_dir.log_start_offsets.get(tp, 0),
            high_watermark=loading.high_watermark_of(self.session, tp, self.high_watermark),
        )
