"""`cleaner check`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.remote_path import any_path, refuse_remote
from cleaner.base.sizes import counted, human_bytes
from cleaner.cli.arguments import add_way_of_looking, parse_bytes, sources
from cleaner.cli.check_replicas import run_replicas
from cleaner.cli.output import json_line, say
from cleaner.cli.work import prepare_work, run_work
from cleaner.errors import UsageError
from cleaner.present.text import printable
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.app.check_log_dir import CheckTotals
    from cleaner.verification.check.findings import Finding
    from cleaner.verification.check.partition import CheckedPartition
    from cleaner.verification.check.repair import RepairedFile

Say = Callable[[str], None]

SUMMARY = "read everything in log dirs or partitions, and report what is damaged, or where replicas disagree"

DESCRIPTION = """\
Reads every byte of the logs, indexes, producer snapshots, checkpoints and ids in log dirs (or in single partition
directories), compares them with each other, and reports each damaged batch, index entry and file by position and
offset; it reads on behind a damaged batch. Several log dirs are taken as those of one broker: a partition in
two of them, or ids that differ, are reported too. Without any directory it reads those in log.dirs of --config.

Takes no lock and writes nothing, so it may run beside a broker and on a read-only mount; logs that may be
written to are marked "in use while read". What a broker repairs itself at its next start (a torn end, left-over
files) is a note, not damage.

--repair rebuilds only what intact .log files determine: indexes and producer snapshots. It locks the log
dir as `cleaner clean` does. A .log file is never changed.

--replicas compares the directories with each other instead: copies of the same partitions, cleaned at different times.
It reports keys that are deleted in one and alive in another, values that are gone or stale, aborted data that came
back, lost markers, and where logs part; and the offset below which tombstones may go, for
`cleaner clean --safe-tombstones FILE`.

Directories may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner check /var/lib/kafka
  cleaner check /disk1/kafka /disk2/kafka --clean-section
  cleaner check /var/lib/kafka/prices-0 --repair
  cleaner check --config /etc/kafka/server.properties --format json | jq -r 'select(.what == "finding")'
  cleaner check --replicas /copies/broker1 /copies/broker2 /copies/broker3 --safe-tombstones /tmp/safe.json

exit status:
  0  nothing is damaged, or everything was repaired      1  something is damaged
  0  with --replicas: they agree      1  they do not
  2  usage      75  with --repair: the log dir is in use      78  a bad setting"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", metavar="LOG_DIR|PARTITION_DIR", type=any_path, nargs="*", help="what to read")
    parser.add_argument(
        "--clean-section",
        action="store_true",
        help="also look for keys that occur twice below cleaner-offset-checkpoint: another pass over the clean section",
    )
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        type=parse_bytes,
        default=None,
        help="memory for --clean-section; if it is too little, more passes are made (default: 256M); for --replicas, "
        "where the rest goes to a file (default: 1G)",
    )
    parser.add_argument("--repair", action="store_true", help="rebuild damaged indexes and producer snapshots")
    parser.add_argument(
        "--replicas",
        action="store_true",
        help="compare the directories with each other: log dirs of different brokers, or directories of one partition",
    )
    parser.add_argument(
        "--partition",
        metavar="TOPIC-PARTITION",
        dest="partitions",
        action="append",
        default=[],
        help="with --replicas: only this one; may be repeated (default: all that are in more than one)",
    )
    parser.add_argument(
        "--safe-tombstones",
        metavar="FILE",
        type=Path,
        help="with --replicas: write here below which offset tombstones may go",
    )
    add_way_of_looking(parser, "the directory's")


def run(arguments: argparse.Namespace) -> int:
    """Check; returns the exit code."""
    settings = sources(arguments)
    if arguments.replicas:
        return run_replicas(arguments, settings)
    for name in ("partitions", "safe_tombstones"):
        if getattr(arguments, name):
            option = "--partition" if name == "partitions" else "--safe-tombstones"
            raise UsageError(f"{option} goes with --replicas")

    from cleaner.app.check_log_dir import CheckOptions, check_paths, paths_to_check
    from cleaner.verification.check.twice import DEFAULT_MEMORY_BYTES

    paths = paths_to_check(FileSystem(), arguments.paths, settings)
    if arguments.repair:
        for path in paths:
            refuse_remote(path, "--repair writes")
    bar = prepare_work(*paths, stay_root=arguments.as_root)
    fs = files_for(None, *paths)
    options = CheckOptions(
        clean_section=arguments.clean_section,
        repair=arguments.repair,
        memory_bytes=arguments.memory or DEFAULT_MEMORY_BYTES,
    )
    say_it = print if arguments.format == "json" else partial(say, hang="    ")
    show = _show_checks(arguments.format, bar.speaking(say_it), is_one_path=len(arguments.paths) == 1)
    done = run_work(lambda context: check_paths(paths, settings, context, options, show), bar, arguments.now, fs)
    return show.end(done)


def _show_checks(form: str, say: Say, *, is_one_path: bool) -> _Words | _Lines:
    """Return a printer of results, in words (with full paths if there are several) or as JSON lines."""
    return _Lines(say) if form == "json" else _Words(say, is_one_path=is_one_path)


class _Words:
    """For people: one line per finding, and one at the end."""

    def __init__(self, say: Say, *, is_one_path: bool) -> None:
        self._say = say
        self._is_one_path = is_one_path

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        """Print the findings of a log dir as a whole."""
        for finding in findings:
            self._say(self._line(finding, path))

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        """Print the findings of a partition, and what was repaired."""
        for file in repaired:
            name = self._place(file.path, partition.directory.parent)
            self._say(printable(f"not repaired  {name}: {file.error}" if file.error else f"repaired  {name}"))
        for finding in partition.findings:
            in_use = "  (in use while read)" if partition.in_use else ""
            self._say(self._line(finding, partition.directory.parent) + in_use)

    def _line(self, finding: Finding, log_dir: Path) -> str:
        where = [f"byte {finding.position}"] if finding.position is not None else []
        where += [f"offset {finding.offset}"] if finding.offset is not None else []
        at = f" at {', '.join(where)}" if where else ""
        weight, place = "damage" if finding.is_damage else "note", self._place(finding.path, log_dir)
        return printable(f"{weight}  {finding.kind.value}  {place}{at}: {finding.reason}")

    def _place(self, path: Path, log_dir: Path) -> str:
        return str(path.relative_to(log_dir) if self._is_one_path and path.is_relative_to(log_dir) else path)

    def end(self, totals: CheckTotals) -> int:
        """Print the result; returns the exit code."""
        read = f"{counted(totals.partitions, 'partition')}, {counted(totals.segments, 'segment')}"
        words = [
            f"{read}, {human_bytes(totals.bytes)} read",
            f"{totals.damages} damaged" if totals.damages else "nothing is damaged",
        ]
        if totals.notes:
            words.append(counted(totals.notes, "note"))
        if totals.repaired or totals.not_repaired:
            words.append(f"{counted(totals.repaired, 'file')} repaired, {totals.not_repaired} not")
        if totals.in_use:
            words.append("in use while read")
        self._say("; ".join(words))
        if totals.repairable and not totals.not_repaired:
            self._say(f"next: cleaner check --repair rebuilds {totals.repairable} of the damaged files")
        return _exit_code(totals)


class _Lines:
    """For programs: one object per line; its `what` names its kind."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        """Print a log dir and its findings as a whole."""
        self._put("log_dir", path=str(path))
        self._put_findings(None, findings)

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        """Print a partition, what was repaired in it, and its findings."""
        values = dataclasses.asdict(dataclasses.replace(partition, findings=()))
        del values["findings"]
        self._put("partition", **{**values, "directory": str(partition.directory)})
        for file in repaired:
            self._put("repair", partition=partition.partition, path=str(file.path), error=file.error or None)
        self._put_findings(partition.partition, partition.findings)

    def end(self, totals: CheckTotals) -> int:
        """Print the sums; returns the exit code."""
        self._put("end", **dataclasses.asdict(totals))
        return _exit_code(totals)

    def _put_findings(self, partition: str | None, findings: Sequence[Finding]) -> None:
        for finding in findings:
            values = {"partition": partition, **dataclasses.asdict(finding)}
            self._put("finding", **{**values, "kind": finding.kind.value, "path": str(finding.path)})

    def _put(self, what: str, **values: object) -> None:
        self._say(json_line("check", {"what": what, **values}))


def _exit_code(totals: CheckTotals) -> int:
    return 1 if totals.damages or totals.not_repaired else 0
