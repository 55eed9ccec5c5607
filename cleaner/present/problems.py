"""
Finds the problems of a daemon, and what to do about them, for everything that shows them.

With any problem, `cleaner status` ends with 1; the page names problems in its title, `/healthz` among its warnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import NamedTuple

from cleaner.base.sizes import duration, human_bytes
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition

_MAX_NAMED = 5


class Problem(NamedTuple):
    """
    One problem.

    Attributes:
        words: not escaped for a terminal.
        command: the next one to type; empty if there is none.
        is_stuck: a worker or the scheduler makes no progress.
    """

    words: str
    command: str = ""
    is_stuck: bool = False


def problems_of(shown: ServiceSnapshot) -> list[Problem]:
    """Return all problems, the worst first."""
    return [*_of_the_process(shown), *_of_log_dirs(shown), *_of_logs(shown)]


def _of_the_process(shown: ServiceSnapshot) -> Iterator[Problem]:
    for words in shown.stuck:
        yield Problem(f"stuck: {words}", is_stuck=True)
    if not shown.is_progressing and not shown.stuck:
        yield Problem("stuck: the scheduler does not turn", is_stuck=True)
    if shown.state == "running" and not shown.is_ready:
        yield Problem("not ready: not every log dir was read yet")
    if shown.has_too_much_memory:
        has, needs = human_bytes(shown.anonymous_bytes or 0), human_bytes(shown.needed_bytes or 0)
        yield Problem(f"{has} of memory, its settings need {needs}; if that lasts, a restart frees it")
    if not shown.config.is_last_reload_good:
        mistakes = "; ".join(shown.config.errors)
        yield Problem(f"the last reload was refused: {mistakes}", "cleaner reload")


def _of_log_dirs(shown: ServiceSnapshot) -> Iterator[Problem]:
    for log_dir in shown.log_dirs:
        since = duration(shown.now_ms - log_dir.since_ms)
        detail = f": {log_dir.detail}" if log_dir.detail else ""
        if log_dir.condition is DirCondition.OFFLINE:
            yield Problem(f"{log_dir.path} is offline for {since}{detail}")
        elif log_dir.condition is DirCondition.UNREAD:
            yield Problem(f"{log_dir.path} is not read yet{detail}")
        elif log_dir.condition is DirCondition.NEEDS_RECOVERY:
            yield Problem(f"{log_dir.path} needs recovery{detail}", f"cleaner recover {quote(log_dir.path)}")


def _of_logs(shown: ServiceSnapshot) -> Iterator[Problem]:
    for alike in shown.counts.unreadable:
        others = f" and {alike.count - 1} more" if alike.count > 1 else ""
        words = f"{alike.first}{others} cannot be read: {alike.error}"
        yield Problem(words, f"cleaner explain {quote(str(alike.first))}")
    errors = sum(shown.counts.standings.get(reason.value, 0) for reason in Reason if reason.is_error)
    more = errors - sum(alike.count for alike in shown.counts.unreadable)
    if more > 0:
        yield Problem(f"{more} more cannot be read")
    for entry in shown.quarantine[:_MAX_NAMED]:
        yield Problem(f"{entry.topic_partition} is in quarantine: {entry.reason}", "cleaner quarantine")
    if len(shown.quarantine) > _MAX_NAMED:
        yield Problem(f"{len(shown.quarantine) - _MAX_NAMED} more are in quarantine", "cleaner quarantine")
    for partition, retry in list(shown.retries.items())[:_MAX_NAMED]:
        wait = duration(retry.remaining_ms(shown.now_ms))
        words = f"{partition} failed {retry.failures} times in a row, tried again in {wait}: {retry.cause}"
        yield Problem(words, f"cleaner explain {quote(str(partition))}")
    if len(shown.retries) > _MAX_NAMED:
        yield Problem(f"{len(shown.retries) - _MAX_NAMED} more failed")
