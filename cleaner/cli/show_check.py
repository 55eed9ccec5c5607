"""How `cleaner check` shows what it finds, as it finds it; the JSON is described in `docs/check.md`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from cleaner.app.check_log_dir import CheckTotals
from cleaner.base.sizes import human_bytes
from cleaner.cli.output import json_line
from cleaner.present.formatting import printable
from cleaner.verification.check.findings import Finding
from cleaner.verification.check.partition import CheckedPartition
from cleaner.verification.check.repair import RepairedFile

Say = Callable[[str], None]


def show_checks(form: str, say: Say, *, is_one_path: bool) -> _Words | _Lines:
    """Return who is told of results, and says them in words (paths in full, but for a single one) or as JSON lines."""
    return _Lines(say) if form == "json" else _Words(say, is_one_path=is_one_path)


class _Words:
    """For people: a line a finding, and one at the end."""

    def __init__(self, say: Say, *, is_one_path: bool) -> None:
        self._say = say
        self._is_one_path = is_one_path

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        """Say what is wrong with a log dir as a whole."""
        for finding in findings:
            self._say(self._line(finding, path))

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        """Say what is wrong with a partition, and what was repaired."""
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
        """Say how it ended; returns the exit code."""
        read = f"{totals.partitions} partitions, {totals.segments} segments, {human_bytes(totals.bytes)} read"
        words = [read, f"{totals.damages} damaged" if totals.damages else "nothing is damaged"]
        if totals.notes:
            words.append(f"{totals.notes} notes")
        if totals.repaired or totals.not_repaired:
            words.append(f"{totals.repaired} files repaired, {totals.not_repaired} not")
        if totals.in_use:
            words.append("in use while read")
        self._say("; ".join(words))
        if totals.repairable and not totals.not_repaired:
            self._say(f"next: cleaner check --repair makes {totals.repairable} of the damaged files anew")
        return _exit_code(totals)


class _Lines:
    """For programs: one object a line; `what` says what it is about."""

    def __init__(self, say: Say) -> None:
        self._say = say

    def on_log_dir(self, path: Path, findings: Sequence[Finding]) -> None:
        """Put a log dir and what is wrong with it as a whole."""
        self._put("log_dir", path=str(path))
        self._put_findings(None, findings)

    def on_partition(self, partition: CheckedPartition, repaired: Sequence[RepairedFile]) -> None:
        """Put a partition, what was repaired in it and what is wrong with it."""
        values = dataclasses.asdict(dataclasses.replace(partition, findings=()))
        del values["findings"]
        self._put("partition", **{**values, "directory": str(partition.directory)})
        for file in repaired:
            self._put("repair", partition=partition.partition, path=str(file.path), error=file.error or None)
        self._put_findings(partition.partition, partition.findings)

    def end(self, totals: CheckTotals) -> int:
        """Put the sums; returns the exit code."""
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
