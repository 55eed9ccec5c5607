"""How `cleaner explain` shows a log."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator

from cleaner.cli.daemon_options import with_options
from cleaner.cli.explanations import explain
from cleaner.cli.output import table
from cleaner.cli.picture import parts_of, picture
from cleaner.cli.progress import human_bytes
from cleaner.cli.words import Paint, ago, duration, printable
from cleaner.daemon.snapshot import LogView, ServiceSnapshot
from cleaner.policy.sections import Sections
from cleaner.policy.verdict import Reason

_MOST_COLUMNS = 120
_LABEL = 12  # width of `last round` and two spaces


def show_explain(view: LogView, shown: ServiceSnapshot, options: str) -> None:
    """Print all there is to say of a log; for `options` see `options_given`."""
    paint = Paint(sys.stdout)
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size((100, 24)).columns)
    print(paint("bold", printable(str(view.partition))) + printable(f" in {view.log_dir}"))
    print(printable(", ".join(_facts(view, shown))))
    if view.sections is not None:
        _show_sections(view.sections, columns, paint)
    found = explain(view, shown)
    print()
    words = f"{view.why}: {view.error}" if view.error else view.why
    _show("why", words, columns, paint, _colour(view))
    _show("meaning", found.meaning, columns, paint)
    for number, setting in enumerate(found.settings):
        _show("" if number else "settings", setting + _value(setting, view, shown), columns, paint)
    for name, words in _work(view, shown):
        _show(name, words, columns, paint)
    for warning in view.warnings:
        _show("warning", warning, columns, paint, "yellow")
    commands = [(printable(with_options(command, options)), what) for command, what in found.commands]
    width = max((len(command) for command, _ in commands), default=0)
    for number, (command, what) in enumerate(commands):
        print(f"{'' if number else 'next':<{_LABEL}}{paint('bold', command.ljust(width))}  {what}")


def _facts(view: LogView, shown: ServiceSnapshot) -> Iterator[str]:
    yield f"cleanup.policy={view.policy} ({view.policy_origin})"
    yield f"{view.segments} segments"
    if view.sections is not None:
        yield human_bytes(view.sections.total_bytes)
    if view.last_round_ms is not None:
        yield f"last round {ago(view.last_round_ms, shown.now_ms)}"


def _show_sections(log: Sections, columns: int, paint: Paint) -> None:
    drawn = picture(log, columns - 2, paint)
    if drawn:
        print()
    for line in drawn:
        print("  " + line)
    print()
    rows = [
        (part.sign, part.name, f"{part.start_offset}", f"{part.end_offset}", human_bytes(part.size))
        for part in parts_of(log)
    ]
    headings = ("", "part", "from offset", "to", "size")
    print(textwrap.indent(table(headings, rows, left=frozenset((0, 1))), "  "))


def _colour(view: LogView) -> str:
    """Return the colour of a log's reason: green for what goes well, red for what needs somebody."""
    reason = view.verdict.reason if view.verdict else None
    if view.error or reason in (Reason.QUARANTINED, Reason.LOG_DIR_OFFLINE, Reason.LOG_DIR_NEEDS_RECOVERY):
        return "red"
    if reason in (Reason.RETRY_LATER, Reason.PAUSED, Reason.ALL_PAUSED, Reason.DISABLED, Reason.LOG_DIR_LOCKED):
        return "yellow"
    return "green"


def _value(setting: str, view: LogView, shown: ServiceSnapshot) -> str:
    """Return what a setting is set to: the topic's where the daemon says so, else the process's."""
    if setting == "cleanup.policy":
        return f"={view.policy} ({view.policy_origin})"
    if setting == "min.cleanable.dirty.ratio" and view.verdict is not None:
        return f"={view.verdict.min_ratio:g}"
    found = [(value, origin) for key, value, origin in shown.config.values if key == setting]
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


def _show(label: str, words: str, columns: int, paint: Paint, colour: str = "") -> None:
    if not words:
        return
    lines = textwrap.wrap(printable(words), max(40, columns - _LABEL)) or [""]
    for number, line in enumerate(lines):
        print(f"{'' if number else label:<{_LABEL}}{paint(colour, line) if colour else line}")
