"""
One round of one log in a worker of the daemon: lock, load, look again, clean, close, release the lock.

The facts by which the log was picked may be minutes old, and another process may have worked on it since, so everything
is read again under the lock. Every error becomes a `Fault`; only exceptions that end the process are raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import PACKED_SUMS, CleanReport
from cleaner.app.rounds import clean_and_close, open_work
from cleaner.app.session import Session, SettingsLike, as_cleaner_errors
from cleaner.app.trust import standing
from cleaner.base.clock import Clock
from cleaner.base.io_throttle import IoThrottle
from cleaner.base.json_values import JsonValue
from cleaner.base.logger import Logger
from cleaner.daemon.dir_locks import DirLocks
from cleaner.daemon.faults import Ending, Fault, judge_failure
from cleaner.daemon.manager import Assignment
from cleaner.daemon.snapshot import RoundView
from cleaner.errors import CleanerError, NotCleanlyShutDownError, unexpected
from cleaner.policy.selection_context import Horizons
from cleaner.spark.clean.large_logs import LargeLogs
from cleaner.state.key_index_dir import KeyIndexDir
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock
from cleaner.storage.log_dir import LogDir, Use


@dataclass(frozen=True)
class RoundTools:
    """
    The objects that all rounds of this process share.

    Attributes:
        fs, clock: the disk and the time.
        locks: of all log dirs.
        log_dir_of: returns a log dir by its path; rounds share the object, or they would undo each other's checkpoint
            lines.
        throttle: the speed limit of all workers.
        settings_of: the settings of a log dir (its path, links followed), as of the last look: a file that is being
            written does not count until it is complete.
        warn: called with warnings.
        large_logs: which logs Spark cleans, and how.
        key_index_dir: of key indexes; None: everything is read.
    """

    fs: FileSystem
    clock: Clock
    locks: DirLocks
    log_dir_of: Callable[[Path], LogDir]
    throttle: IoThrottle
    settings_of: Callable[[Path], SettingsLike]
    warn: Callable[[str], None]
    large_logs: LargeLogs = field(default_factory=LargeLogs)
    key_index_dir: KeyIndexDir | None = None


_NO_FAILURES = (Ending.ABORTED, Ending.LOCKED)


@dataclass(frozen=True)
class RoundOutcome:
    """
    How a round ended.

    Attributes:
        view: the values shown.
        fault: None after a successful one.
        settings: the topic's settings that are not Kafka's defaults, with their origin.
        horizons: what it has found of delete horizons; None: it has not looked for them.
    """

    view: RoundView
    fault: Fault | None
    settings: Mapping[str, str] = field(default_factory=dict)
    horizons: Horizons | None = None

    @property
    def failure(self) -> str:
        """Why it failed; empty if it did not, or only had to leave the log to somebody else."""
        return "" if self.fault is None or self.fault.ending in _NO_FAILURES else self.fault.detail


def run_round(
    assignment: Assignment,
    tools: RoundTools,
    check_done: Callable[[], None],
    note_progress: Callable[[str, int, int], None],
) -> RoundOutcome:
    """
    Clean a log once, if it is still due (or was asked for).

    Args:
        assignment: which log.
        tools: see `RoundTools`.
        check_done: called before each buffer; raises CleaningAborted to stop.
        note_progress: called with phase, bytes done and total bytes.
    """
    log = assignment.log
    began_ns, began_ms = tools.clock.monotonic_ns(), tools.clock.now_ms()
    report, fault = None, None
    settings: dict[str, str] = {}
    try:
        with as_cleaner_errors(log.directory), tools.locks.using(log.directory.parent) as lock:
            context = CallContext(
                fs=tools.fs,
                clock=tools.clock,
                progress=lambda what, done, total: note_progress(what.rpartition(" ")[2], done, total),
                check_done=check_done,
                warn=tools.warn,
            )
            report = _clean(assignment, tools, context, lock, settings)
    except (CleanerError, MemoryError) as error:
        fault = judge_failure(error, log.directory.parent)
    except Exception as error:  # noqa: BLE001 - any failure of one log, even an internal error (R-452)
        fault = judge_failure(unexpected(log.directory, error), log.directory.parent)
    seconds = (tools.clock.monotonic_ns() - began_ns) / 1e9
    view = _view(assignment, report, fault, tools.clock.now_ms(), seconds)
    horizons = None
    if report is not None and report.next_horizon_ms is not None:
        horizons = Horizons(report.end_offset, began_ms, report.next_horizon_ms, report.record_ttl_ms)
    return RoundOutcome(view, fault, settings, horizons)


def _clean(
    assignment: Assignment, tools: RoundTools, context: CallContext, lock: LogDirLock, origins: dict[str, str]
) -> CleanReport:
    """Do the round; the topic's settings go into `origins` as soon as they are known."""
    log = assignment.log
    log_dir = tools.log_dir_of(log.directory.parent)
    found_settings = tools.settings_of(log_dir.path)
    session = Session(log_dir, found_settings, context, tools.throttle, lock, key_index_dir=tools.key_index_dir)
    session.check_done()
    if not tools.locks.is_kept(log_dir.path) and session.use is Use.TORN:
        raise NotCleanlyShutDownError(f"{log_dir.path}: no clean-shutdown marker (.kafka_cleanshutdown)")
    resolved = session.topic(log.partition, log.directory)
    origins.update(resolved.origins)
    verdict = standing(resolved, is_named=False, trust_default=found_settings.trusts_default_policy)
    nothing = CleanReport(str(log.partition), 0, 0, 0)
    if not verdict.is_allowed:
        return replace(nothing, note=verdict.reason)
    with open_work(
        session,
        log.partition,
        log.directory,
        resolved.config,
        CleanOptions(),
        clean_shutdown=True,
        refuses_keyless=verdict.refuses_keyless,
    ) as work:
        answer = work.due()
        has_work = work.found.cleanable_bytes > 0 and (answer.is_due or assignment.is_requested)
        if not has_work and not work.is_quiet:
            work.settle_uncleaned()  # or it would be picked again because of files left by a stop
            return replace(nothing, note=answer.reason)
        clean_round, how = None, ""
        if work.view is None:  # rounds on Spark know no key views
            clean_round, how = tools.large_logs.choose(work.found, found_settings.cleaner)
        options = CleanOptions(clean_round=clean_round)
        report = clean_and_close(replace(work, options=options, settled_ms=assignment.settled_ms))
    return replace(report, note="; ".join(filter(None, (how, report.note))))


# What a round's view shows of its report, unchanged and in this order.
_OF_REPORTS = {each.name for each in fields(CleanReport)} - {"partition", "removed"}
_FIGURES = tuple(each.name for each in fields(RoundView) if each.name in _OF_REPORTS)
# Rules of the topic's own and what they did: named where there is such a rule, since batches are then not Kafka's.
_OWN_RULES = {
    "key_view": ("merged_keys",),
    "survivor": ("outranked_records",),
    "record_ttl_ms": ("expired_records",),
    "recompress": PACKED_SUMS,
}


def _view(
    assignment: Assignment, report: CleanReport | None, fault: Fault | None, now_ms: int, seconds: float
) -> RoundView:
    log = assignment.log
    if report is None:
        ending, detail = (fault.ending, fault.detail) if fault else (Ending.NOTHING, "")
        return RoundView(log.partition, log.log_dir, assignment.worker, ending.value, detail, now_ms, seconds)
    return RoundView(
        partition=log.partition,
        log_dir=log.log_dir,
        worker=assignment.worker,
        result=(Ending.DONE if report.rounds else Ending.NOTHING).value,
        detail=report.note,
        ended_ms=now_ms,
        seconds=seconds,
        **{name: getattr(report, name) for name in _FIGURES},
        removed=asdict(report.removed),
    )


_WORDS = {
    Ending.DONE: "cleaned",
    Ending.NOTHING: "nothing to clean",
    Ending.ABORTED: "stopped",
    Ending.LOCKED: "log dir in use by another process",
    Ending.OFFLINE: "log dir failed",
    Ending.RETRY: "failed, will be tried again",
    Ending.QUARANTINED: "quarantined",
}


def log_round(log: Logger, outcome: RoundOutcome) -> None:
    """Log a round: one event, with the numbers of Kafka's statistics."""
    view, fault = outcome.view, outcome.fault
    ending = Ending(view.result)
    values = {"partition": str(view.partition), "log_dir": view.log_dir, "worker": view.worker}
    if fault is None:
        log.info(_WORDS[ending], **values, **_figures(view))
    elif ending in _NO_FAILURES:
        log.info(_WORDS[ending], **values, reason=fault.detail, seconds=round(view.seconds, 3))
    elif ending is Ending.QUARANTINED:
        exc_info = {"exc_info": fault.error} if fault.is_unexpected else {}
        log.error(_WORDS[ending], **values, reason=fault.detail, **exc_info)
    else:
        log.warning(_WORDS[ending], **values, reason=fault.detail, seconds=round(view.seconds, 3))


def journal_details(outcome: RoundOutcome) -> dict[str, JsonValue]:
    """Return a round's journal entry."""
    view = outcome.view
    return {
        "log_dir": view.log_dir,
        "result": view.result,
        "detail": view.detail,
        **_figures(view),
        "settings": dict(outcome.settings),
    }


def _figures(view: RoundView) -> dict[str, JsonValue]:
    """Return the numbers of a round; if nothing was cleaned, only the time."""
    figures: dict[str, JsonValue] = {"seconds": round(view.seconds, 3)}
    if view.result != Ending.DONE.value:
        return figures | ({"reason": view.detail} if view.detail else {})
    absent = {rule for rule in _OWN_RULES if getattr(view, rule) in (None, "")}
    left_out = absent.union(*(_OWN_RULES[rule] for rule in absent))
    values = {name: getattr(view, name) for name in _FIGURES if name not in left_out}
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
    return figures | rounded | {"bytes_freed": view.bytes_freed, "removed": dict(view.removed)}
