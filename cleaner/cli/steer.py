"""
The commands that send a running daemon a request and show its answer: one row each in `COMMANDS`.

    now, jobs, pause, resume, throttle, quarantine, release, reload
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleaner.base.clock import SystemClock
from cleaner.base.json_values import JsonValue
from cleaner.base.sizes import SUFFIXES_IN_WORDS, human_rate
from cleaner.cli.arguments import add_format, parse_bytes, parse_offset
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, parse_partition, state_dir_of
from cleaner.cli.logs import log_warning
from cleaner.cli.output import json_line, print_answer, print_error, say, say_all, say_table
from cleaner.cli.progress import ProgressBar
from cleaner.cli.stop import keyboard_interrupts
from cleaner.errors import CleanerError, ConfigError, NoDaemonError, UsageError
from cleaner.present.text import moment, printable
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.base.clock import Clock
    from cleaner.daemon.control.client import Control
    from cleaner.daemon.snapshot import JobView
    from cleaner.state.quarantine import QuarantinedLog

Answer = Mapping[str, "JsonValue"]

_JOB_HEADINGS = ("job", "partition", "state", "part", "asked", "by uid", "ended", "detail")
_JOB_WORDS = frozenset((1, 2, 4, 6, 7))
_QUARANTINE_HEADINGS = ("partition", "since", "log dir", "file", "at byte", "reason")
_QUARANTINE_WORDS = frozenset((0, 1, 2, 3, 5))
_POLL_SECONDS = 0.5
_NOTE_CELLS = 40  # next to the bar on one line of a terminal


@dataclass(frozen=True)
class SteeringCommand:
    """
    One command, with the attributes that `main` needs of any command's module.

    Attributes:
        SUMMARY, DESCRIPTION, EXAMPLES: its help.
        run: does it; returns the exit code.
        declare: adds its own arguments to those that all of them have.
        shown: a description of its JSON.
    """

    SUMMARY: str
    DESCRIPTION: str
    EXAMPLES: str
    run: Callable[[argparse.Namespace], int]
    declare: Callable[[argparse.ArgumentParser], object] = lambda _: None
    shown: str = "the daemon's answer, one object"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's options."""
        self.declare(parser)
        add_format(parser, self.shown)
        add_daemon(parser)


def _asker(
    verb: str,
    fields: Callable[[argparse.Namespace], Mapping[str, JsonValue]],
    line_of: Callable[[argparse.Namespace, Answer], str],
) -> Callable[[argparse.Namespace], int]:
    """Return a function that sends a daemon some fields and prints one line made from arguments and answer."""

    def run(arguments: argparse.Namespace) -> int:
        answer = control_of(arguments).ask(verb, **fields(arguments))
        if warning := answer.get("warning"):
            log_warning(str(warning))
        if arguments.format == "json":
            print_answer(answer)
        else:
            say(printable(line_of(arguments, answer)))
        return 0

    return run


def _declare_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scope", metavar="TOPIC[-PARTITION]", nargs="?", help="what (default: everything)")


def _scope_line(done: str, concerned: str, heading: str) -> Callable[[argparse.Namespace, Answer], str]:
    """Return a function that says what was done to a scope, with the names in the field `concerned` after `heading`."""

    def line(arguments: argparse.Namespace, answer: Answer) -> str:
        listed = answer.get(concerned)
        names = ", ".join(map(str, listed)) if isinstance(listed, list) else ""
        return f"{done}: {arguments.scope or 'everything'}" + (f"; {heading}: {names}" if names else "")

    return line


def _declare_rate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rate", metavar="RATE|unlimited", type=_parse_rate, help=f"bytes a second, with {SUFFIXES_IN_WORDS}"
    )
    parser.add_argument(
        "--log-dir", metavar="DIR", help="only for work in this log dir, in addition to the limit for all"
    )


def _parse_rate(text: str) -> int | str:
    return text if text == "unlimited" else parse_bytes(text)


def _rate_of(arguments: argparse.Namespace) -> int | None:
    return None if arguments.rate == "unlimited" else arguments.rate


def _declare_now(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("partition", metavar="TOPIC-PARTITION", nargs="?", type=parse_partition, help="what to clean")
    parser.add_argument(
        "--wait", action="store_true", help="wait until it is done, with a progress bar; Ctrl-C does not stop the job"
    )
    parser.add_argument("--cancel", metavar="ID", type=parse_offset, help="cancel a job instead")


def run_now(arguments: argparse.Namespace, clock: Clock | None = None) -> int:
    """Ask for a round, and wait for its end with --wait; returns the exit code."""
    if (arguments.partition is None) == (arguments.cancel is None) or (arguments.wait and arguments.cancel is not None):
        raise UsageError("either a partition (with --wait or not), or --cancel and the id of a job")

    control = control_of(arguments)
    if arguments.cancel is not None:
        (job,) = _jobs_in(control, control.ask("cancel", job=arguments.cancel))
    else:
        (job,) = _jobs_in(control, control.ask("now", partition=str(arguments.partition)))
        if arguments.wait:
            with keyboard_interrupts():
                job = _wait(control, job, clock or SystemClock())
    _print_jobs([job], arguments.format)
    return 1 if arguments.wait and job.state != "done" else 0


def _wait(control: Control, job: JobView, clock: Clock) -> JobView:
    """Watch a job until it has ended; returns its final state."""
    with ProgressBar() as bar:
        try:
            while job.ended_ms is None:
                what = printable(f"{job.partition} {job.state}")
                bar(what, round(job.progress * 1000), 1000, printable(job.detail)[:_NOTE_CELLS])
                clock.sleep(_POLL_SECONDS)
                (job,) = _jobs_in(control, control.ask("jobs", job=job.id))
        except KeyboardInterrupt:
            bar.clear()
            print_error(f"job {job.id} goes on; cleaner now --cancel {job.id} ends it")
    return job


def _declare_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cancel", metavar="ID", type=parse_offset, help="cancel a job; a running one stops at the next buffer"
    )


def _run_jobs(arguments: argparse.Namespace) -> int:
    control = control_of(arguments)
    fields: dict[str, JsonValue] = {} if arguments.cancel is None else {"job": arguments.cancel}
    _print_jobs(_jobs_in(control, control.ask("cancel" if fields else "jobs", **fields)), arguments.format)
    return 0


def _jobs_in(control: Control, answer: Answer) -> list[JobView]:
    """Return the jobs of an answer, or its only one. Raises NoDaemonError: they are not jobs."""
    from cleaner.daemon.snapshot import JobView

    jobs = answer.get("jobs", [answer["job"]] if "job" in answer else [])
    return [control.value(JobView, {"job": job}, "job") for job in (jobs if isinstance(jobs, list) else [])]


def _print_jobs(jobs: Sequence[JobView], form: str) -> None:
    say_all(jobs, "job", form, _JOB_HEADINGS, _job_row, left=_JOB_WORDS, names=(1,))


def _job_row(job: JobView) -> tuple[str, ...]:
    return (
        str(job.id),
        printable(str(job.partition)),
        printable(job.state),
        f"{job.progress:.0%}",
        moment(job.asked_ms),
        str(job.asked_by),
        "-" if job.ended_ms is None else moment(job.ended_ms),
        printable(job.detail),
    )


def _run_quarantine(arguments: argparse.Namespace) -> int:
    entries = _quarantined(arguments)
    if arguments.format == "json":
        for entry in entries:
            # With the names that all commands use.
            fields = {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
            print(json_line("quarantine", {"partition": fields.pop("topic_partition"), **fields}))
    elif entries:
        say_table(_QUARANTINE_HEADINGS, _quarantine_rows(entries), left=_QUARANTINE_WORDS, names=(0, 2, 3))
    return 1 if entries else 0


def _quarantined(arguments: argparse.Namespace) -> Sequence[QuarantinedLog]:
    """Ask the daemon; if none is running, read its state directory."""
    from cleaner.daemon.snapshot import ServiceSnapshot
    from cleaner.state.quarantine import read_quarantine
    from cleaner.state.state_file import BadStateError

    control = control_of(arguments)
    try:
        return control.value(ServiceSnapshot, control.ask("status", logs=0), "snapshot").quarantine
    except NoDaemonError:
        # If only a socket is given, only that daemon can answer, not a directory that may belong to another one.
        if arguments.socket is not None and arguments.state_dir is None and arguments.config is None:
            raise
    state_dir = state_dir_of(arguments)
    if not state_dir.is_dir():
        raise NoDaemonError(f"no daemon is running, and there is no state directory {state_dir}")
    try:
        return read_quarantine(FileSystem(), state_dir)
    except BadStateError as error:
        raise CleanerError(f"{state_dir}: the quarantine cannot be read: {error}") from error


def _quarantine_rows(entries: Sequence[QuarantinedLog]) -> Iterator[tuple[str, ...]]:
    for entry in entries:
        position = "-" if entry.position is None else str(entry.position)
        words = (entry.log_dir, entry.file or "-", position, entry.reason)
        yield printable(str(entry.topic_partition)), moment(entry.since_ms), *map(printable, words)


def _run_reload(arguments: argparse.Namespace) -> int:
    from cleaner.daemon.steering import ReloadResult

    control = control_of(arguments)
    answer = control.ask("reload")
    result = control.value(ReloadResult, {"result": answer}, "result")
    if arguments.format == "json":
        print_answer(answer)
    elif not result.errors:
        say(printable(f"changed: {', '.join(result.changed) or 'nothing'}"))
        if result.needs_restart:
            say(printable(f"only after a restart: {', '.join(result.needs_restart)}"))
    for mistake in (*result.errors, *result.warnings):
        print_error(mistake)
    return ConfigError.exit_code if result.errors else 0


COMMANDS: Mapping[str, SteeringCommand] = {
    "now": SteeringCommand(
        "make the daemon clean a partition next",
        """\
Asks a running daemon to clean one partition before all others, whatever its dirty ratio, outside of windows too. It
does not wait for a retry delay, but pause and quarantine stay in force. Prints the job; asking again for the same
partition returns the same job. For a partition that is being cleaned it is the running round; --cancel stops it.""",
        f"""\
examples:
  cleaner now orders-0 --wait
  cleaner now orders-0 --format json | jq .id
  cleaner now --cancel 7

exit status:
  0  asked for; with --wait: cleaned      1  refused; with --wait: it failed or was cancelled      2  usage
  {EXIT_CODES}""",
        run_now,
        declare=_declare_now,
        shown="the job, one object; with --wait as it ended",
    ),
    "jobs": SteeringCommand(
        "list the jobs of `cleaner now` and their progress",
        """\
Lists the jobs of a running daemon, the newest first: those that wait or run, and the last ones that ended.""",
        f"""\
examples:
  cleaner jobs
  cleaner jobs --cancel 7

exit status:
  0  listed, or cancelled      1  no such job, or it has ended
  {EXIT_CODES}""",
        _run_jobs,
        declare=_declare_jobs,
        shown="one job a line",
    ),
    "pause": SteeringCommand(
        "stop cleaning: everything, a topic or a partition",
        """\
Stops a running daemon from cleaning the given topic or partition, or everything. A running round stops at its next
buffer; groups of segments that it has swapped stay swapped. Pauses nest: what was paused twice has to be resumed
twice. They last until then, or until the daemon ends.""",
        f"""\
examples:
  cleaner pause                   everything
  cleaner pause orders            all partitions of a topic
  cleaner pause orders-0

exit status:
  0  paused      1  refused
  {EXIT_CODES}""",
        _asker("pause", lambda a: {"scope": a.scope}, _scope_line("paused", "stopping", "asked to stop")),
        declare=_declare_scope,
    ),
    "resume": SteeringCommand(
        "end a pause",
        """\
Ends one pause of the given topic or partition, or of everything. Name what was paused: resuming a partition does not
end the pause of its topic. `cleaner status` lists the pauses.""",
        f"""\
examples:
  cleaner resume
  cleaner resume orders

exit status:
  0  resumed      1  refused
  {EXIT_CODES}""",
        _asker("resume", lambda a: {"scope": a.scope}, _scope_line("resumed", "pauses", "still paused")),
        declare=_declare_scope,
    ),
    "throttle": SteeringCommand(
        "change how fast the daemon may read and write",
        """\
Changes the speed limit of a running daemon: bytes read and written a second, of all its workers together, or of those
in one log dir. It takes effect at once, and lasts until the settings are reloaded or the daemon ends.
A rate below 1M draws a warning: 50 is 50 bytes a second.""",
        f"""\
examples:
  cleaner throttle 50M
  cleaner throttle 5M --log-dir /mnt/disk2/kafka
  cleaner throttle unlimited

exit status:
  0  changed      1  refused      2  usage
  {EXIT_CODES}""",
        _asker(
            "throttle",
            lambda a: {"bytes_per_second": _rate_of(a), "log_dir": a.log_dir},
            lambda a, _: f"throttle: {human_rate(_rate_of(a))}" + (f" in {a.log_dir}" if a.log_dir else ""),
        ),
        declare=_declare_rate,
    ),
    "quarantine": SteeringCommand(
        "list the logs in quarantine, and why",
        """\
Lists the logs that the daemon no longer cleans after an error that would occur again: what was wrong, in which file
and where, and since when. Asks the daemon, or reads its state directory if none is running.""",
        """\
examples:
  cleaner quarantine
  cleaner quarantine --format json | jq -r .partition
  cleaner release orders-0        once the cause is gone

exit status:
  0  none      1  one or more, or the list cannot be read      77  the daemon's socket is not for this user""",
        _run_quarantine,
        shown="one log a line",
    ),
    "release": SteeringCommand(
        "take a partition out of quarantine",
        """\
Makes a running daemon clean a partition in quarantine again, and forget its failures. If the cause is not gone, the
next round quarantines it again.""",
        f"""\
examples:
  cleaner quarantine              what is in quarantine, and why
  cleaner release orders-0

exit status:
  0  released      1  it is not in quarantine
  {EXIT_CODES}""",
        _asker("release", lambda a: {"partition": str(a.partition)}, lambda a, _: f"released: {a.partition}"),
        declare=lambda parser: parser.add_argument(
            "partition", metavar="TOPIC-PARTITION", type=parse_partition, help="which"
        ),
    ),
    "reload": SteeringCommand(
        "make the daemon reload its settings",
        """\
Makes a running daemon reload its settings, as SIGHUP does. It applies all of them, or none if one is wrong, and names
those that need a restart. Runtime changes (`cleaner throttle`) are forgotten.""",
        f"""\
examples:
  cleaner reload

exit status:
  0  applied      78  a bad setting: nothing has changed, one line for each
  {EXIT_CODES}""",
        _run_reload,
    ),
}
