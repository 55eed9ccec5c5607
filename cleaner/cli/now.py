"""`cleaner now`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_format, parse_offset
from cleaner.cli.daemon_options import EXIT_CODES, add_daemon, control_of, parse_partition
from cleaner.errors import UsageError

if TYPE_CHECKING:
    from cleaner.base.clock import Clock
    from cleaner.daemon.control.client import Control
    from cleaner.daemon.snapshot import JobView

SUMMARY = "have the daemon clean a partition next"

DESCRIPTION = """\
Asks a running daemon to clean one partition before all others, whatever its dirty ratio, outside of windows too. It
does not wait for a retry delay, but neither pause nor quarantine is lifted. Says which job that is; a partition that
is already asked for has the job it has. One that is just being cleaned has the round under way; --cancel stops it."""

EXAMPLES = f"""\
examples:
  cleaner now orders-0 --wait
  cleaner now orders-0 --format json | jq .id
  cleaner now --cancel 7

exit status:
  0  asked for; with --wait: cleaned      1  refused; with --wait: it failed or was cancelled      2  usage
  {EXIT_CODES}"""

_POLL_SECONDS = 0.5
_NOTE_CELLS = 40  # beside the bar on one line of a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("partition", metavar="TOPIC-PARTITION", nargs="?", type=parse_partition, help="what to clean")
    parser.add_argument(
        "--wait", action="store_true", help="until it is done, with a progress bar; Ctrl-C leaves the job alone"
    )
    parser.add_argument("--cancel", metavar="ID", type=parse_offset, help="take a job back instead")
    add_format(parser, "the job, one object; with --wait as it ended")
    add_daemon(parser)


def run(arguments: argparse.Namespace, clock: Clock | None = None) -> int:
    """Ask, and wait if told to; returns the exit code."""
    if (arguments.partition is None) == (arguments.cancel is None) or (arguments.wait and arguments.cancel is not None):
        raise UsageError("either a partition (with --wait or not), or --cancel and the id of a job")

    from cleaner.base.clock import SystemClock
    from cleaner.cli.show_jobs import print_jobs
    from cleaner.cli.stop import keyboard_interrupts
    from cleaner.daemon.snapshot import JobView

    control = control_of(arguments)
    if arguments.cancel is not None:
        job = control.value(JobView, control.ask("cancel", job=arguments.cancel), "job")
    else:
        job = control.value(JobView, control.ask("now", partition=str(arguments.partition)), "job")
        if arguments.wait:
            with keyboard_interrupts():
                job = _wait(control, job, clock or SystemClock())
    print_jobs([job], arguments.format)
    return 1 if arguments.wait and job.state != "done" else 0


def _wait(control: Control, job: JobView, clock: Clock) -> JobView:
    """Watch a job until it has ended; returns how."""
    from cleaner.cli.output import print_error
    from cleaner.cli.progress import ProgressBar
    from cleaner.cli.show_jobs import read_jobs
    from cleaner.present.formatting import printable

    with ProgressBar() as bar:
        try:
            while job.ended_ms is None:
                what = printable(f"{job.partition} {job.state}")
                bar(what, round(job.progress * 1000), 1000, printable(job.detail)[:_NOTE_CELLS])
                clock.sleep(_POLL_SECONDS)
                job = read_jobs(control, control.ask("jobs", job=job.id))[0]
        except KeyboardInterrupt:
            bar.clear()
            print_error(f"job {job.id} goes on without being watched; cleaner now --cancel {job.id} ends it")
    return job
