"""How jobs are read from an answer, and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cleaner.cli.output import json_line, say_table
from cleaner.daemon.control.client import Control
from cleaner.daemon.snapshot import JobView
from cleaner.present.formatting import moment, printable
from cleaner.state.json_text import JsonValue

_HEADINGS = ("job", "partition", "state", "part", "asked", "by uid", "ended", "detail")
_WORDS = frozenset((1, 2, 4, 6, 7))


def read_jobs(control: Control, answer: Mapping[str, JsonValue]) -> list[JobView]:
    """
    Return the jobs of an answer.

    Raises:
        NoDaemonError: they are none.
    """
    jobs = answer.get("jobs")
    return [control.value(JobView, {"job": job}, "job") for job in (jobs if isinstance(jobs, list) else [])]


def print_jobs(jobs: Sequence[JobView], form: str) -> None:
    """Print jobs as a table, or one object a line."""
    if form == "json":
        for job in jobs:
            print(json_line("job", job))
    elif jobs:
        say_table(_HEADINGS, map(_row, jobs), left=_WORDS, names=(1,))


def _row(job: JobView) -> tuple[str, ...]:
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
