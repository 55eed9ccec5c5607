"""The records of a finished round: one event in the logs, one entry in the journal."""

from __future__ import annotations

from cleaner.base.json_values import JsonValue
from cleaner.base.logger import Logger
from cleaner.daemon.faults import Ending
from cleaner.daemon.round_task import RoundOutcome
from cleaner.daemon.snapshot import RoundView

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
    elif ending in (Ending.ABORTED, Ending.LOCKED):
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
    return figures | {
        "first_dirty_offset": view.first_dirty_offset,
        "end_offset": view.end_offset,
        "bytes_read": view.bytes_read,
        "bytes_written": view.bytes_written,
        "bytes_freed": view.bytes_freed,
        "messages_read": view.messages_read,
        "messages_written": view.messages_written,
        "map_bytes_read": view.map_bytes_read,
        "map_messages_read": view.map_messages_read,
        "map_utilization": round(view.map_utilization, 4),
        "invalid_messages": view.invalid_messages,
        "removed": dict(view.removed),
        "map_seconds": round(view.map_seconds, 3),
        "copy_seconds": round(view.copy_seconds, 3),
    }
