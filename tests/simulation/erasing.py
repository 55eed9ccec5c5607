"""
`erase` between two lives: somebody is to be forgotten, and the book of what was sent says which records go.

An operator chooses keys or offsets of one topic, and may have left something of them behind: a renamed segment, an
unfinished one, a renamed directory, what a round with `--keep-old` has kept. The command may be killed, or the power
cut, in its middle; then it is given again. Afterwards no file has the records any more, neither as such nor as bytes,
and all else is judged as when a log is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from random import Random

from cleaner.app.erase_log_dir import Outcome, erase_log_dir
from cleaner.app.erase_reports import EraseOptions, EraseReport, wanted_records
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.settings.sources import Sources
from tests.reference.batches import read_batches, read_records
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong, number_of
from tests.simulation.oracle import Oracle
from tests.simulation.plan import KEYS, Rest
from tests.simulation.sent import Sent
from tests.support.batch_builder import varint

_UNIQUE = "0123456789abcdef" * 2


class Erasure:
    """
    What is erased in one rest.

    Args:
        bench: what all share; the log dir was closed in order.
        rest: its number says what, and what is left behind.
        sources: of settings.
        kept: a directory that `clean --keep-old` has filled; it may not be there.
    Attributes:
        topic: of which.
    """

    def __init__(self, bench: Bench, rest: Rest, sources: Sources, kept: Path) -> None:
        self._bench = bench
        self._sources = sources
        self._kept = kept
        rng = self._rng = Random(rest.number + bench.done)  # something else in each rest
        self.topic = rng.choice(bench.topics.names)
        self._name = rng.choice((self.topic, f"{self.topic}-0"))
        self._keys = rng.sample(KEYS, rng.choice((1, 1, 2, 4)))
        self._offsets: tuple[int, int] | None = None
        truth = self._truth
        # All of an open transaction, more often than by chance.
        begun = [each for each in truth.sent.values() if each.transaction and each.transaction.asked is None]
        begun = [each for each in begun if each.offset is not None and not each.is_lost]
        if begun and Random(f"{rest.number}/begun").random() < 0.5:
            first = min(begun, key=lambda each: each.offset or 0).transaction
            self._keys += [each.key for each in begun if each.transaction is first and each.key not in self._keys]
        placed = sorted(sent.offset for sent in truth.sent.values() if sent.offset is not None and not sent.is_lost)
        if placed and rng.random() < 0.25:
            last = rng.choice((placed[-1], rng.choice(placed)))  # the end of the log more often than by chance
            self._offsets, self._name = (rng.choice([each for each in placed if each <= last]), last), f"{self.topic}-0"
        punch = rng.random() < 0.3
        self._options = EraseOptions(
            punch=punch,
            kept=(kept,) if kept.exists() else (),
            index_dir=bench.index_dir,
        )
        self._records = 0  # erased, as answered
        self._changed = set[str]()  # names of the log's segments that were replaced

    @property
    def _truth(self) -> Oracle:
        return self._bench.topics.now[self.topic]

    def is_erased(self, sent: Sent) -> bool:
        """Tell whether a record of the topic is to go."""
        if self._offsets is not None:
            return sent.offset is not None and self._offsets[0] <= sent.offset <= self._offsets[1]
        return sent.key in self._keys

    def leave_behind(self, fs: SimFiles) -> None:
        """Leave something of the log behind, as a cleaner, a broker or an operator may."""
        directory = self._bench.directory(self.topic)
        path = self._rng.choice(sorted(directory.glob("*.log")))
        kind = self._rng.choice(("nothing", "nothing", "deleted", "cleaned", "stray"))
        if kind == "deleted":
            _copy(fs, path, path.with_name(f"{path.name}.deleted"))
        elif kind == "cleaned":
            _copy(fs, path, path.with_name(f"{path.name}.cleaned"))
        elif kind == "stray" and self._offsets is None:
            stray = directory.with_name(f"{directory.name}.{_UNIQUE}-stray")
            fs.make_dir(stray, 0o755)
            for each in sorted(directory.iterdir()):
                _copy(fs, each, stray / each.name)
            fs.fsync_dir(stray.parent)

    def command(self, fs: SimFiles) -> None:
        """Give the command."""
        keys = [] if self._offsets is not None else [key.encode() for key in self._keys]
        wanted = wanted_records(keys, (), self._offsets, [self._name])
        context = CallContext(fs=fs, clock=self._bench.clock)
        outcomes = erase_log_dir(self._bench.log_dir, [self._name], wanted, self._sources, self._options, context)
        with contextlib.closing(outcomes):
            self._take(outcomes)

    def _take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                if not str(outcome.partition).endswith("-delete"):  # whose deletion was interrupted: it may be torn
                    raise outcome.error
                self._bench.count("erase: refused a deleted topic")
            elif not outcome.is_complete:
                raise Wrong(f"erase is not complete: {outcome}")
            else:
                self._records += outcome.records
                self._judge_report(outcome)

    def again(self, fs: SimFiles) -> None:
        """Give it once more: nothing is left to do."""
        self._records = 0
        self.command(fs)
        if self._records:
            raise Wrong(f"erase has found {self._records} records that it had erased")

    def _judge_report(self, report: EraseReport) -> None:
        if report.place == "log":
            self._changed |= {Path(each.path).stem for each in report.files}
        if report.records != sum(each.records for each in report.files):
            raise Wrong(f"erase says {report.records} records, and of files {report.files}")

    def begin(self) -> None:
        """Note that the records may be gone from now on."""
        self._truth.begin_erasure(self._erased())

    def end(self) -> None:
        """
        Note that they are gone.

        Raises:
            Wrong: a file has one.
        """
        self._truth.end_erasure(self._erased())
        here = [path for path in self._bench.log_dir.rglob("*") if path.is_file() and self._is_searched(path)]
        there = [path for path in self._kept.rglob("*") if path.is_file() and path.parents[1].name == f"{self.topic}-0"]
        for path in (*here, *there):
            self._search(path)
        index_dir = self._options.index_dir
        for index in [] if index_dir is None else index_dir.rglob("*"):
            if index.parent.name == f"{self.topic}-0" and index.name.partition(".")[0] in self._changed:
                raise Wrong(f"{index.name} is an index of what was erased")

    def clear(self, fs: SimFiles) -> None:
        """Remove the renamed directory again, which no broker serves."""
        for directory in self._bench.log_dir.glob(f"*.{_UNIQUE}-stray"):
            for path in sorted(directory.iterdir()):
                fs.remove(path)
            fs.remove_dir(directory)
        fs.fsync_dir(self._bench.log_dir)

    def _erased(self) -> list[Sent]:
        return [sent for sent in self._truth.sent.values() if self.is_erased(sent)]

    def _is_searched(self, path: Path) -> bool:
        """Tell whether a file is of the topic, or of none."""
        directory = path.parent.name
        return path.parent == self._bench.log_dir or (
            directory.startswith(f"{self.topic}-0") and not directory.endswith("-delete")
        )

    def _search(self, path: Path) -> None:
        data = path.read_bytes()
        for batch in read_batches(data) if ".log" in path.name else ():
            for record in read_records(batch) if not batch.control else ():
                sent = self._truth.sent.get(number_of(record.headers))
                if sent is not None and self.is_erased(sent):
                    raise Wrong(f"{path.name} still has record {sent.number} at {record.offset}, which was erased")
        for sent in self._erased():
            if sent.value is not None and _as_written(sent.key.encode(), sent.value) in data:
                raise Wrong(f"{path.name} still has the bytes of record {sent.number}, which was erased")


def _copy(fs: SimFiles, source: Path, target: Path) -> None:
    with fs.create(target, like=source) as file:
        file.write(source.read_bytes(), 0)
        file.fsync()
    fs.fsync_dir(target.parent)


def _as_written(key: bytes, value: bytes) -> bytes:
    """Return a part of an uncompressed record that no other record has."""
    return varint(len(key)) + key + varint(len(value)) + value
