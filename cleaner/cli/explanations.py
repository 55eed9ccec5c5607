"""What a daemon says of a log, explained: what it means, whose setting it is, what to type."""

from __future__ import annotations

from shlex import quote

from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.policy.cleaning_status import CleaningStatus, Reason
from cleaner.present.formatting import ago, moment
from cleaner.present.meanings import (
    BOUNDS,
    LOCKED,
    NEEDS_RECOVERY,
    NOT_COMPACTED,
    NOTHING_DIRTY,
    ONLY_BY_DEFAULT,
    RATIO_SETTINGS,
    UNREADABLE,
    Explanation,
    due_by,
    under_ratio,
)


def explain(view: LogView, shown: ServiceSnapshot) -> Explanation:
    """
    Explain one log.

    Args:
        view: the log.
        shown: the daemon it belongs to, with its settings.
    """
    name = str(view.partition)
    if view.error:
        return Explanation(
            UNREADABLE,
            (),
            ((f"cleaner plan {quote(view.log_dir)}", "what can be seen of it"),),
        )
    if view.verdict is None:
        edit = ("cleaner reload", "after a change of the topic's settings")
        if "compact" in view.policy.split(","):
            return Explanation(ONLY_BY_DEFAULT, ("cleanup.policy", "cleaner.trust.default.policy"), (edit,))
        return Explanation(NOT_COMPACTED, ("cleanup.policy",), (edit,))
    waiting = _of_numbers(view.verdict, name) or _of_place(view, shown)
    return waiting or _of_operator(view.verdict, view, shown)


def _of_numbers(verdict: CleaningStatus, name: str) -> Explanation | None:
    """Explain what the log's own numbers decide, and the queue."""
    now = (f"cleaner now {name} --wait", "clean it all the same, and watch")
    match verdict.reason:
        case Reason.NOTHING_TO_CLEAN:
            meaning, settings = BOUNDS.get(verdict.cleanable.bounded_by, NOTHING_DIRTY)
            return Explanation(meaning, settings)
        case Reason.UNDER_RATIO:
            meaning = under_ratio(verdict.cleanable.ratio, verdict.min_ratio, verdict.overdue_in_ms)
            return Explanation(meaning, RATIO_SETTINGS, (now,))
        case Reason.REQUESTED:
            return Explanation(
                "Somebody asked for it: it comes before all others.", (), (("cleaner jobs", "watch it"),)
            )
        case Reason.CHECKPOINT_RESET:
            return Explanation(
                "Its line in cleaner-offset-checkpoint lies outside of the log; a worker sets it to offset "
                f"{verdict.cleanable.first_dirty_offset}.",
                (),
                (("cleaner status", "what the workers do"),),
            )
        case Reason.UNFINISHED_SWAP:
            return Explanation(
                "Somebody stopped in the middle of a swap; a worker completes it, or takes it back.",
                (),
                (("cleaner status", "what the workers do"),),
            )
        case Reason.OVERDUE | Reason.OVER_RATIO:
            overdue_ms = verdict.overdue_ms if verdict.reason is Reason.OVERDUE else 0
            by = due_by(verdict.cleanable.ratio, verdict.min_ratio, overdue_ms)
            place = "the next one" if verdict.place == 1 else f"number {verdict.place} in the queue"
            return Explanation(
                f"It is due, {by}, and only waits for a worker; it is {place}.",
                ("log.cleaner.threads", "cleaner.selection", "log.cleaner.io.max.bytes.per.second"),
                (("cleaner status", "what the workers do"), (f"cleaner now {name}", "put it before all others")),
            )
    return None


def _of_place(view: LogView, shown: ServiceSnapshot) -> Explanation | None:
    """Explain what the log dir, or the state of the log's files, decides."""
    verdict, name, log_dir = view.verdict, str(view.partition), quote(view.log_dir)
    match verdict.reason if verdict else None:
        case Reason.QUARANTINED:
            entries = [entry for entry in shown.quarantine if entry.topic_partition == view.partition]
            since = f" {ago(entries[0].since_ms, shown.now_ms)}" if entries else ""
            where = f" ({entries[0].file}{_position(entries[0].position)})" if entries and entries[0].file else ""
            return Explanation(
                f"It was set aside{since} after an error another try would meet again{where}; the other logs go on.",
                (),
                (
                    ("cleaner quarantine", "all of those set aside"),
                    (f"cleaner release {name}", "once the cause is gone"),
                ),
            )
        case Reason.LOG_DIR_OFFLINE:
            return Explanation(
                "The disk of its log dir failed. Nothing there is touched until it can be read again.",
                (),
                (("dmesg | tail", "what the kernel says of the disk"), ("cleaner status", "all log dirs")),
            )
        case Reason.LOG_DIR_NEEDS_RECOVERY:
            return Explanation(
                NEEDS_RECOVERY,
                ("cleaner.recover",),
                ((f"cleaner recover {log_dir}", "recover it now"),),
            )
        case Reason.LOG_DIR_LOCKED:
            return Explanation(
                LOCKED,
                ("cleaner.lock", "log.cleaner.backoff.ms"),
                ((f"fuser -v {log_dir}/.lock", "who has it open"),),
            )
        case Reason.LOG_DIR_BUSY:
            return Explanation(
                "As many workers as may are at work in its log dir.",
                ("cleaner.log.dir.max.workers",),
                (("cleaner status", "what they do"),),
            )
    return None


def _of_operator(verdict: CleaningStatus, view: LogView, shown: ServiceSnapshot) -> Explanation:
    """Explain what somebody wanted so, or what goes on now."""
    name = str(view.partition)
    status = ("cleaner status", "how far it is")
    match verdict.reason:
        case Reason.IN_PROGRESS:
            return Explanation("A worker has it right now.", ("log.cleaner.io.max.bytes.per.second",), (status,))
        case Reason.ABORTED:
            return Explanation("Its worker was asked to stop, and does so at the next buffer.", (), (status,))
        case Reason.RETENTION:
            return Explanation("Retention removes its expired segments.", ("cleaner.retention.enable",), (status,))
        case Reason.TO_BE_LOOKED_AT:
            return Explanation(
                "A worker has just given it back. It is looked at again before it is judged.", (), (status,)
            )
        case Reason.NOT_COMPACTED:
            edit = ("cleaner reload", "after a change of the topic's settings")
            return Explanation("Its policy is without compact: it is not cleaned.", ("cleanup.policy",), (edit,))
        case Reason.PAUSED:
            paused = {words.partition(" ")[0] for words in shown.pauses}  # behind the name is how often
            scopes = [scope for scope in (name, view.partition.topic) if scope in paused] or [name]
            resume = tuple((f"cleaner resume {scope}", "take a pause back") for scope in scopes)
            return Explanation("Somebody paused it; `cleaner history` says who.", (), resume)
        case Reason.ALL_PAUSED:
            resume_all = (("cleaner resume", "take a pause back"),)
            return Explanation("Somebody paused all cleaning; `cleaner history` says who.", (), resume_all)
        case Reason.DISABLED:
            edit = ("cleaner reload", "after a change in the daemon's settings")
            return Explanation("Cleaning is switched off by a setting.", ("log.cleaner.enable",), (edit,))
        case Reason.WINDOW_CLOSED:
            opens = "" if shown.opens_at_ms is None else f" The next one opens {moment(shown.opens_at_ms)}."
            now = (f"cleaner now {name} --wait", "clean it all the same, and watch")
            keys = ("cleaner.windows", "cleaner.windows.time.zone")
            return Explanation(f"It is due, but rounds begin only in windows.{opens}", keys, (now,))
        case Reason.RETRY_LATER:
            now = (f"cleaner now {name} --wait", "try at once")
            keys = ("log.cleaner.backoff.ms", "cleaner.retry.max.ms")
            return Explanation("It failed in a way that may pass, and is tried again later.", keys, (now,))
    return Explanation("")


def _position(position: int | None) -> str:
    return "" if position is None else f" at byte {position}"
