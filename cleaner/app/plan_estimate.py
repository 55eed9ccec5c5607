"""`plan --estimate`: a log that was looked at, handed to the estimate with what it needs; kernels are loaded here."""

from __future__ import annotations

from pathlib import Path

from cleaner.app.inspect_log import Inspection
from cleaner.app.session import Session
from cleaner.config.values import TopicConfig
from cleaner.policy.estimate import Estimate
from cleaner.policy.rounds_ahead import RoundsAhead
from cleaner.storage.segment.segment import Segment


def estimate_look(
    session: Session, directory: Path, look: Inspection, topic: TopicConfig, now_ms: int, sample_bytes: int | None
) -> tuple[Estimate, RoundsAhead]:
    """
    Foretell what cleaning a log would do; arguments and errors are those of `engine.estimate`.

    The log must have something to clean.
    """
    from cleaner.cleaning.estimate.estimate import estimate  # loads kernels: not for those who only ask
    from cleaner.cleaning.estimate.trial_recopy import Subject

    lent, bound = session.surroundings, look.found.first_uncleanable_offset
    segments = [
        Segment(lent.fs, directory, seen.base_offset, size=seen.size, mtime_ns=seen.mtime_ns)
        for seen in look.log.segments
        if seen.base_offset < bound
    ]
    config = session.settings.cleaner
    subject = Subject(lent.fs, lent.clock, segments, look.found, topic, config, now_ms, session.check_done)
    return estimate(subject, sample_bytes)
