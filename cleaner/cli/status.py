"""`cleaner status`."""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, TextIO

from cleaner.base.clock import Clock, SystemClock
from cleaner.base.json_values import format_json
from cleaner.base.sizes import duration, human_bytes, human_rate
from cleaner.cli.arguments import add_format, parse_offset_or_all
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, options_given, with_options
from cleaner.cli.fitting import columns, fold, fold_command
from cleaner.cli.output import Paint, print_error, say, say_table
from cleaner.cli.stop import keyboard_interrupts
from cleaner.errors import NoDaemonError, UsageError
from cleaner.policy.reasons import Reason
from cleaner.present.text import ago, moment, printable

if TYPE_CHECKING:
    from cleaner.daemon.control.client import Control
    from cleaner.daemon.snapshot import Counts, Forecast, ServiceSnapshot

SUMMARY = "show the state of the running daemon and its current work"

DESCRIPTION = """\
Shows a running daemon: whether all is well, what its workers do, what waits and why, its log dirs, the dirtiest
logs and the last rounds. Problems come first, each with the next command to type.

With --watch it is shown every two seconds, or in the interval given: on a terminal in the same place, otherwise one
below the other. Ctrl-C ends it. If the daemon goes away, the command waits for it."""

EXAMPLES = f"""\
examples:
  cleaner status
  cleaner status --config /etc/cleaner/cleaner.properties
  cleaner status --watch 5
  cleaner status --probe live                          in a container's health check
  cleaner status --logs all --format json | jq '.logs[] | select(.verdict.reason == "overdue") | .partition'

exit status:
  0  all is well      1  there is a problem: quarantine, a log dir offline, a log that failed or cannot be read,
     a refused reload, no progress; --probe: not live, or not ready; --watch ends with 0 on Ctrl-C
  {EXIT_CODES}"""

_BAR_CELLS = 20
_MAX_QUEUED = 8
_MAX_ROUNDS = 8


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds, from 0.1 to 86400")
    return seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "--logs",
        metavar="N|all",
        type=parse_offset_or_all,
        default=10,
        help="how many logs, the dirtiest first (default: 10)",
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        type=_parse_seconds,
        nargs="?",
        const=2.0,
        help="show it every SECONDS until Ctrl-C (default: 2)",
    )
    add_format(parser, "the whole snapshot, one object")
    parser.add_argument(
        "--probe",
        choices=("live", "ready"),
        help="show nothing, for health checks. live: it answers and moves, whatever its logs are like; ready: it has "
        "also looked at every log dir, and is not stopping",
    )
    add_daemon(parser)


def _probe_passes(probe: str, shown: ServiceSnapshot) -> bool:
    if probe == "live":
        return shown.is_progressing
    return shown.is_progressing and shown.is_ready and shown.state == "running"


def run(arguments: argparse.Namespace, clock: Clock | None = None) -> int:
    """Show the daemon; returns the exit code."""
    from cleaner.daemon.snapshot import ServiceSnapshot

    control = control_of(arguments)
    if arguments.watch is not None:
        if arguments.probe is not None:
            raise UsageError("--probe asks once; it cannot be used with --watch")
        return watch(lambda: _show(control, arguments), arguments.watch, clock or SystemClock())
    if arguments.probe is not None:
        answer = control.ask("status", logs=0, topics=False, config=False)
        return 0 if _probe_passes(arguments.probe, control.value(ServiceSnapshot, answer, "snapshot")) else 1
    return _show(control, arguments)


def _show(control: Control, arguments: argparse.Namespace) -> int:
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.present.problems import problems_of

    is_json = arguments.format == "json"
    answer = control.ask("status", logs=arguments.logs, topics=is_json, config=is_json)
    shown = control.value(ServiceSnapshot, answer, "snapshot")
    if is_json:
        # As it was sent, including fields of a later release that this one does not know.
        snapshot = answer["snapshot"]
        print(format_json(snapshot if isinstance(snapshot, dict) else {}))
    else:
        show_status(shown, options_given(arguments))
    return 1 if problems_of(shown) else 0


def show_status(shown: ServiceSnapshot, options: str) -> None:
    """
    Print a daemon.

    Args:
        shown: the daemon.
        options: see `options_given`.
    """
    from cleaner.present.problems import problems_of

    paint = Paint(sys.stdout)
    wrong = problems_of(shown)
    verdict = paint("red", f"{len(wrong)} not well") if wrong else paint("green", "all is well")
    doing = f"{shown.state} for {duration(shown.now_ms - shown.started_ms)}"
    say(f"cleaner {printable(shown.version)}, {printable(doing)}: {verdict}")
    for problem in wrong:
        say(f"  {paint('red', '!')} {printable(problem.words)}", hang="    ")
        if problem.command:
            for line in fold_command(printable(with_options(problem.command, options)), columns(), " " * 6):
                say(paint("bold", line))
    for name, words in _facts(shown):
        say(f"  {name:<10}  {printable(words)}", hang=" " * 14)
    _show_table("log dirs", ("log dir", "condition", "logs", "workers", "free", "of", "looked at"), _dir_rows(shown))
    _show_table("workers", ("worker", "partition", "phase", "", "part", "left", "for"), _worker_rows(shown))
    _show_table("logs, the dirtiest first", ("partition", "ratio", "dirty", "of", "why"), _log_rows(shown))
    headings = ("partition", "result", "ended", "took", "read", "freed", "detail")
    _show_table("last rounds", headings, _round_rows(shown))


def _facts(shown: ServiceSnapshot) -> Iterator[tuple[str, str]]:
    """Yield the facts about the daemon as a whole, name and words; usual states are left out."""
    from cleaner.policy.selection_context import DirCondition

    if shown.turn_ended_ms is not None and shown.turn_seconds is not None:
        took = duration(shown.turn_seconds * 1000)
        soon = None if shown.next_turn_ms is None else max(0, shown.next_turn_ms - shown.now_ms)
        then = "" if soon is None else f"; next in {duration(soon)}"
        yield "last turn", f"{ago(shown.turn_ended_ms, shown.now_ms)}, took {took}{then}"
    config = shown.config
    after = f"; only after a restart: {', '.join(config.needs_restart)}" if config.needs_restart else ""
    yield "settings", f"{config.file or 'no file'}, loaded {ago(config.loaded_ms, shown.now_ms)}{after}"
    yield "throttle", _throttle(shown)
    for versions in dict.fromkeys((each.kafka, each.kafka_origin) for each in shown.log_dirs if each.kafka):
        yield "rules", f"Kafka {versions[0]} ({versions[1]})"
    if shown.opens_at_ms is not None:
        yield "window", f"closed; the next one opens {moment(shown.opens_at_ms)}"
    if shown.pauses:
        yield "paused", ", ".join(shown.pauses)
    for log_dir in shown.log_dirs:
        if log_dir.looked_at_ms is None and log_dir.condition is DirCondition.ONLINE:
            yield "looking", f"{log_dir.path}: {log_dir.detail}"
    yield "logs", "none is read yet" if shown.state == "starting" and not shown.counts.logs else _counts(shown.counts)
    if shown.queue:
        more = f" and {len(shown.queue) - _MAX_QUEUED} more" if len(shown.queue) > _MAX_QUEUED else ""
        yield "queue", ", ".join(map(str, shown.queue[:_MAX_QUEUED])) + more
    if shown.forecast.due:
        yield "due", _forecast(shown.forecast)
    if shown.overdue:
        yield "overdue", f"{shown.overdue}, the longest by {duration(shown.max_overdue_ms)}"
    running = [job for job in shown.jobs if job.ended_ms is None]
    if running:
        yield "jobs", ", ".join(f"{job.id}: {job.partition} {job.state} {job.progress:.0%}" for job in running)
    if shown.worker_deaths:
        yield "died", f"workers: {shown.worker_deaths}, by an internal error of the cleaner; see its log"


def _throttle(shown: ServiceSnapshot) -> str:
    throttle = shown.throttle
    waited = f", workers waited {duration(throttle.waited_seconds * 1000)}" if throttle.waited_seconds >= 1 else ""
    parts = [f"{path}: {human_rate(rate)}" for path, rate in throttle.log_dirs.items()]
    return "; ".join([f"{human_rate(throttle.bytes_per_second)}{waited}", *parts])


def _forecast(forecast: Forecast) -> str:
    due = f"{forecast.due}, {human_bytes(forecast.left_bytes)} to read"
    if forecast.is_growing:
        return f"{due}; growing: more arrives than is cleaned"
    if forecast.about_seconds is None or forecast.bytes_per_second is None:
        return f"{due}; the time it takes is not known yet"
    return f"{due}; empty in about {duration(forecast.about_seconds * 1000)}"


def _counts(counts: Counts) -> str:
    """Say how many logs there are in which state, the most frequent first."""
    # A later release may have reasons that this one has no label for.
    labels = {reason.value: reason.words.label for reason in Reason}
    standings = sorted(counts.standings.items(), key=lambda item: -item[1])
    words = [f"{count} {labels.get(code, code)}" for code, count in standings]
    return f"{counts.logs}: {', '.join(words)}" if words else "none"


def _dir_rows(shown: ServiceSnapshot) -> Iterator[Sequence[str]]:
    for log_dir in shown.log_dirs:
        yield (
            log_dir.path,
            log_dir.condition.value + (" (beside a writer)" if log_dir.beside_writer else ""),
            str(log_dir.partitions),
            str(log_dir.workers),
            "-" if log_dir.free_bytes is None else human_bytes(log_dir.free_bytes),
            "-" if log_dir.total_bytes is None else human_bytes(log_dir.total_bytes),
            ago(log_dir.looked_at_ms, shown.now_ms),
        )


def _worker_rows(shown: ServiceSnapshot) -> Iterator[Sequence[str]]:
    for worker in shown.workers:
        if worker.partition is None:
            yield (worker.name, "-", "waits", "", "", "", "")
            continue
        part = min(1.0, worker.done_bytes / worker.total_bytes) if worker.total_bytes > 0 else 0.0
        yield (
            worker.name,
            str(worker.partition),
            worker.phase + (", stopping" if worker.is_stopping else ""),
            "[" + "#" * round(part * _BAR_CELLS) + "." * (_BAR_CELLS - round(part * _BAR_CELLS)) + "]",
            f"{part:.0%}",
            "-" if worker.remaining_seconds is None else duration(worker.remaining_seconds * 1000),
            duration(max(0, shown.now_ms - worker.since_ms)),
        )


def _log_rows(shown: ServiceSnapshot) -> Iterator[Sequence[str]]:
    for view in shown.logs:
        dirty = "-" if view.sections is None else human_bytes(view.sections.dirty_bytes)
        total = "-" if view.sections is None else human_bytes(view.sections.total_bytes)
        ratio = "-" if view.ratio is None else f"{view.ratio:.3f}"
        yield (str(view.partition), ratio, dirty, total, f"{view.why}: {view.error}" if view.error else view.why)


def _round_rows(shown: ServiceSnapshot) -> Iterator[Sequence[str]]:
    for ended in shown.rounds[:_MAX_ROUNDS]:
        yield (
            str(ended.partition),
            ended.result,
            ago(ended.ended_ms, shown.now_ms),
            duration(ended.seconds * 1000),
            human_bytes(ended.bytes_read),
            human_bytes(max(0, ended.bytes_freed)),
            ended.detail,
        )


def _show_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        return
    say()
    say(Paint(sys.stdout)("bold", title))
    # Words are left-aligned, numbers right-aligned, by the first row's cell: all cells of a column are of one kind.
    left = {column for column in range(len(headings)) if not _is_number(cells, column)}
    name = headings.index("partition") if "partition" in headings else 0
    say_table(headings, cells, left=frozenset(left), names=(name,))


def _is_number(cells: Sequence[Sequence[str]], column: int) -> bool:
    filled = [row[column] for row in cells if row[column] not in ("", "-")]
    return bool(filled) and all(cell[:1].isdigit() for cell in filled)


_HOME, _CLEAR_REST, _CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
# While drawing, lines that cannot be folded end at the edge instead of wrapping.
_CUT, _WRAP = "\x1b[?7l", "\x1b[?7h"


class _Drawn(io.StringIO):
    """Collects output for a terminal, with its colours and its width."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return the terminal's answer."""
        return True

    def fileno(self) -> int:
        """Return the terminal's descriptor, so that its width can be read; all output goes through this object."""
        return self._terminal.fileno()


def watch(show: Callable[[], int], seconds: float, clock: Clock) -> int:
    """
    Show something at intervals: on a terminal it replaces the last output, otherwise it follows it.

    If the daemon goes away, that is reported once, and it is asked again until it is back; no daemon at the start is an
    error, since the command may be wrong.

    Args:
        show: prints it; returns an exit code.
        seconds: between two times.
        clock: used for waiting.
    Returns:
        0, after Ctrl-C ends it.
    Raises:
        NoDaemonError: there is none at the start.
    """
    is_terminal = sys.stdout.isatty()
    is_there = has_begun = False
    try:
        with keyboard_interrupts():
            while True:
                try:
                    text = _printed(show, is_terminal=is_terminal)
                    is_there = has_begun = True
                    _draw(text, is_terminal=is_terminal)
                except NoDaemonError as error:
                    if not has_begun:
                        raise
                    words = f"{error}; trying again every {seconds:g} s"
                    if is_terminal:
                        lines = fold(f"cleaner: {printable(words)}", columns())
                        _draw("\n".join([*lines, ""]), is_terminal=True)
                    elif is_there:
                        print_error(words)
                    is_there = False
                clock.sleep(seconds)
    except KeyboardInterrupt:
        return 0


def _printed(show: Callable[[], int], *, is_terminal: bool) -> str:
    """Return the complete output, so that half of it is never seen."""
    text = _Drawn(sys.stdout) if is_terminal else io.StringIO()
    with redirect_stdout(text):
        show()
    return text.getvalue()


def _draw(text: str, *, is_terminal: bool) -> None:
    if is_terminal:
        # Output that does not fit would scroll the lines above away; the last line is left for the cursor.
        lines = text.split("\n")[: shutil.get_terminal_size().lines - 1]
        text = _CUT + _HOME + "".join(f"{line}{_CLEAR_LINE}\n" for line in lines) + _CLEAR_REST + _WRAP
    print(text, end="", flush=True)
