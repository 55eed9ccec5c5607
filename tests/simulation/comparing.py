"""
`check --replicas` and `clean --safe-tombstones` between two lives, judged by the slow twin, which reads the files.

An operator has three replicas: the logs as they are, a copy that was cleaned later, when all tombstones had expired,
and a copy that is behind, or has lost a batch, a marker or a tombstone, or was written in another leader's epoch. Then
he cleans a fourth by the file that the comparison has written.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.replicas import ReplicaOptions, compare_all
from cleaner.app.replicas_report import ReplicasReport
from cleaner.app.reports import Refusal
from cleaner.base.clock import StillClock
from cleaner.base.model import TopicPartition
from cleaner.settings.sources import Sources
from tests.reference.batches import Batch, read_batches, read_records
from tests.reference.replicas import Copy, Entry, Verdict, compare
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong, checkpoints_of
from tests.simulation.plan import Rest
from tests.support.log_builder import HIGH_WATERMARKS, LOG_START_OFFSETS

_LATER_MS = 40 * 86_400_000
_LEADER_EPOCH = slice(12, 16)
_KINDS = ("none", "behind", "batch", "marker", "tombstone", "epoch")
_HOLDING = ("behind", "tombstone")
_TRIES = 5


class ComparedWorld:
    """
    What is compared in one rest.

    Args:
        bench: what all share; its logs were closed in order.
        rest: its number says what is wrong with the third replica.
    """

    def __init__(self, bench: Bench, rest: Rest) -> None:
        self._bench = bench
        self._rng = Random(rest.number + bench.done)
        self._home = bench.log_dir.parent / "replicas"
        self._sources = Sources(config={**bench.settings, "cleaner.quiet.cleaning": "true"})

    def command(self, fs: SimFiles) -> None:
        """Make the replicas, and have them compared and cleaned."""
        shutil.rmtree(self._home, ignore_errors=True)
        self._home.mkdir()
        try:
            later = self._copy("later")
            self._clean(later, CleanOptions())
            for number in range(_TRIES):
                last = number == _TRIES - 1
                self._compare(fs, later, f"other {number}", _HOLDING if last else _KINDS, is_held=last)
        finally:
            shutil.rmtree(self._home, ignore_errors=True)

    def _compare(self, fs: SimFiles, later: Path, other_name: str, kinds: Sequence[str], *, is_held: bool) -> None:
        bench, other = self._bench, self._copy(other_name)
        for name in bench.topics.compacted:
            self._disturb(other / f"{name}-0", self._rng.choice(kinds))
        paths = [bench.log_dir, later, other]
        self._rng.shuffle(paths)
        safe = self._home / "safe.json"
        names = [str(TopicPartition(name, 0)) for name in bench.topics.compacted]
        options = ReplicaOptions(memory_bytes=self._rng.choice((1, 1 << 30)), temp_dir=self._home)
        context = CallContext(fs=fs, clock=bench.clock)
        found = {
            _report(each).partition: _report(each)
            for each in compare_all(paths, names, self._sources, context, options, safe)
        }
        for name in bench.topics.compacted:
            self._judge(found[f"{name}-0"], name, paths)
        if is_held:
            held = self._copy("held")
            self._clean(held, CleanOptions(safe_tombstones=safe))
            for name in bench.topics.compacted:
                self._judge_held(found[f"{name}-0"], name, held)

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._bench.log_dir, self._home / name))

    def _clean(self, log_dir: Path, options: CleanOptions) -> None:
        """Clean twice: first tombstones get their horizons, then these have passed."""
        partitions = [str(TopicPartition(name, 0)) for name in self._bench.topics.compacted]
        for number in (1, 2):
            clock = StillClock(self._bench.clock.now_ms() + number * _LATER_MS)
            context = CallContext(clock=clock)  # the machine's disk: it does not know files that were copied
            for outcome in clean_log_dir(log_dir, partitions, self._sources, options, context):
                if isinstance(outcome, Refusal):
                    raise outcome.error

    # ---- what is wrong ---------------------------------------------------------------------------------------------

    def _disturb(self, directory: Path, kind: str) -> None:
        """Make a copy one that is behind, or wrong."""
        rng = self._rng
        logs = sorted(directory.glob("*.log"))
        self._bench.count(f"replicas: {kind}")
        batches = [(path, batch) for path in logs for batch in read_batches(path.read_bytes())]
        if kind == "tombstone" or (kind == "behind" and rng.random() < 0.7):
            wanted = _tombstones_above_values(batches)
            batches = [(path, batch) for path, batch in batches if batch.base_offset in wanted]
            if any(path != logs[-1] for path, _ in batches):  # no round comes to the active segment
                batches = [(path, batch) for path, batch in batches if path != logs[-1]]
        elif kind == "marker":
            batches = [(path, batch) for path, batch in batches if batch.control]
        if not batches or kind == "none":
            return
        path, batch = rng.choice(batches)
        data = path.read_bytes()
        if kind == "behind":
            path.write_bytes(data[: batch.position])
            for log in logs[logs.index(path) + 1 :]:
                log.unlink()
            return
        if kind != "epoch":
            if batch.control:  # what it has aborted is in the index, too
                path.with_suffix(".txnindex").unlink(missing_ok=True)
            path.write_bytes(data[: batch.position] + data[batch.position + len(batch.raw) :])
            return
        for path, each in batches:
            if each.base_offset >= batch.base_offset:
                content = bytearray(path.read_bytes())
                raw = content[each.position : each.position + len(each.raw)]
                raw[_LEADER_EPOCH] = (each.leader_epoch + 1).to_bytes(4, "big")
                content[each.position : each.position + len(each.raw)] = raw
                path.write_bytes(content)

    # ---- what must be found ----------------------------------------------------------------------------------------

    def _judge(self, report: ReplicasReport, name: str, paths: list[Path]) -> None:
        copies = [read_copy(path, name) for path in paths]
        expected = compare(copies)
        number = {str((path / f"{name}-0").resolve()): at for at, path in enumerate(paths)}
        found = Verdict(
            report.end_offset,
            None if report.parting is None else report.parting.offset,
            frozenset(
                (each.kind.name, each.offset, number[each.departs], each.other_offset) for each in report.differences
            ),
            {
                at: (each.needs_tombstones, each.first_needed_offset)
                for at, each in enumerate(report.replicas)
                if each.first_needed_offset is not None
            },
            expected.unseen,
        )
        if found != expected:
            raise Wrong(f"replicas of {name}: it says {found}; the twin: {expected}")
        marks = [checkpoints_of(path, name).get(HIGH_WATERMARKS) for path in paths]
        bounds = [expected.end, expected.unseen, *marks]
        if report.safe.safe_offset != min(bound for bound in bounds if bound is not None):
            raise Wrong(f"replicas of {name}: the safe offset {report.safe.safe_offset}, of {bounds}")
        self._bench.count("replicas: agree" if report.agrees else "replicas: disagree")

    def _judge_held(self, report: ReplicasReport, name: str, held: Path) -> None:
        """Require that every tombstone and marker is still there that some replica has not seen."""
        before, after = read_copy(self._bench.log_dir, name), read_copy(held, name)
        there = {entry.offset for entry in after.entries}
        last: dict[str | None, Entry] = {}
        for entry in before.entries:
            if entry.is_marker:
                last[f"marker {entry.offset}"] = entry
            elif entry.producer is None:
                last[f"key {entry.key}"] = entry
            else:
                # Whether it counts is not asked: what may be superseded is left out of the question.
                last.pop(f"key {entry.key}", None)
        for entry in last.values():
            is_tombstone = entry.is_marker or entry.value is None
            if is_tombstone and entry.offset >= report.safe.safe_offset and entry.offset not in there:
                raise Wrong(f"{name}: the tombstone or marker at {entry.offset} is gone; safe is {report.safe}")
            if is_tombstone and entry.offset >= report.safe.safe_offset:
                self._bench.count("replicas: held")


def read_copy(log_dir: Path, name: str) -> Copy:
    """Read a topic's log as the twin takes it."""
    directory = log_dir / f"{name}-0"
    logs = sorted(directory.glob("*.log"))
    start = max(int(logs[0].stem), checkpoints_of(log_dir, name).get(LOG_START_OFFSETS, 0))
    end, entries = max(start, int(logs[-1].stem)), list[Entry]()
    for path in logs:
        for batch in read_batches(path.read_bytes()):
            end = max(end, batch.last_offset + 1)
            entries += _entries_of(batch)
    return Copy(end, tuple(entry for entry in entries if entry.offset >= start), start)


def _entries_of(batch: Batch) -> list[Entry]:
    producer = batch.producer_id if batch.transactional else None
    made = []
    for record in read_records(batch):
        if batch.control:
            how = "commit" if record.key is not None and record.key[3] else "abort"
            made.append(Entry(record.offset, "", how, batch.producer_id, is_marker=True, epoch=batch.leader_epoch))
            continue
        key = None if record.key is None else record.key.decode("latin-1")
        value = None if record.value is None else f"{record.timestamp} {record.value!r}"
        made.append(Entry(record.offset, key, value, producer, epoch=batch.leader_epoch))
    return made


def _tombstones_above_values(batches: list[tuple[Path, Batch]]) -> set[int]:
    """Return the base offsets of batches with a tombstone of a key that has an older value."""
    found, with_value = set[int](), set[bytes | None]()
    for _, batch in batches:
        for record in [] if batch.control else read_records(batch):
            if record.value is not None:
                with_value.add(record.key)
            elif record.key in with_value:
                found.add(batch.base_offset)
    return found


def _report(outcome: ReplicasReport | Refusal) -> ReplicasReport:
    if isinstance(outcome, Refusal):
        raise outcome.error
    return outcome
