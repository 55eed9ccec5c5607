"""How `cleaner explain` shows a log."""

from __future__ import annotations

from collections.abc import Iterator

from cleaner.base.sizes import duration, human_bytes
from cleaner.cli.daemon_options import with_options
from cleaner.cli.explanations import explain
from cleaner.cli.log_page import LogPage
from cleaner.config.table import TOPIC_SETTINGS
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.policy.cleaning_status import Reason
from cleaner.present.formatting import ago


def show_explain(view: LogView, shown: ServiceSnapshot, options: str) -> None:
    """Print all there is to say of a log; for `options` see `options_given`."""
    page = LogPage()
    page.head(str(view.partition), view.log_dir, _facts(view, shown))
    if view.sections is not None:
        page.sections(view.sections)
    found = explain(view, shown)
    print()
    page.words("why", f"{view.why}: {view.error}" if view.error else view.why, _colour(view))
    page.words("meaning", found.meaning)
    for number, setting in enumerate(found.settings):
        page.words("" if number else "settings", setting + _value(setting, view, shown))
    for name, words in _work(view, shown):
        page.words(name, words)
    for warning in view.warnings:
        page.words("warning", warning, "yellow")
    page.commands((with_options(command, options), what) for command, what in found.commands)


def _facts(view: LogView, shown: ServiceSnapshot) -> Iterator[str]:
    yield f"cleanup.policy={view.policy} ({view.policy_origin})"
    yield f"{view.segments} segments"
    if view.sections is not None:
        yield human_bytes(view.sections.total_bytes)
    if view.last_round_ms is not None:
        yield f"last round {ago(view.last_round_ms, shown.now_ms)}"


def _colour(view: LogView) -> str:
    """Return the colour of a log's reason: green for what goes well, red for what needs somebody."""
    reason = view.verdict.reason if view.verdict else None
    if view.error or reason in (Reason.QUARANTINED, Reason.LOG_DIR_OFFLINE, Reason.LOG_DIR_NEEDS_RECOVERY):
        return "red"
    if reason in (Reason.RETRY_LATER, Reason.PAUSED, Reason.ALL_PAUSED, Reason.DISABLED, Reason.LOG_DIR_LOCKED):
        return "yellow"
    return "green"


def _value(setting: str, view: LogView, shown: ServiceSnapshot) -> str:
    """Return what a setting is set to; one of a topic as it is for this topic, and nothing where that is not known."""
    own = [(each.value, each.origin) for each in view.settings if each.key == setting]
    of_process = () if setting in TOPIC_SETTINGS else shown.config.values
    found = own or [(value, origin) for key, value, origin in of_process if key == setting]
    return f"={found[0][0]} ({found[0][1]})" if found else ""


def _work(view: LogView, shown: ServiceSnapshot) -> Iterator[tuple[str, str]]:
    """Yield what is at work on a log, and how its last round went."""
    for worker in shown.workers:
        if worker.partition == view.partition and worker.log_dir in (None, view.log_dir):
            part = f" {worker.done_bytes / worker.total_bytes:.0%}" if worker.total_bytes > 0 else ""
            yield "worker", f"{worker.name}: {worker.phase}{part}, for {duration(shown.now_ms - worker.since_ms)}"
    for ended in shown.rounds:
        if (ended.partition, ended.log_dir) == (view.partition, view.log_dir):
            freed = f", freed {human_bytes(ended.bytes_freed)}" if ended.bytes_freed > 0 else ""
            detail = f": {ended.detail}" if ended.detail else ""
            yield "last round", f"{ago(ended.ended_ms, shown.now_ms)}, {ended.result}{freed}{detail}"
            return
