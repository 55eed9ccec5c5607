"""
What must be true of the logs of one log dir, by the notes of its writer and readers.

The rules are the simulator's (`tests/simulation/oracle.py`). Added is what a long run needs: records that cleaning has
removed are forgotten, so that an hour fits into memory, and retention must not be late.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.simulation.found import Found, Wrong, checkpoints_of
from tests.simulation.oracle import Oracle
from tests.simulation.sent import Sent, Transaction
from tests.soak.notes import Note, digest_of, value_of

_LISTING_SECONDS = 30.0
_LATE_RETENTION_MS = 60_000
_LONGEST_ROUND_MS = 600_000  # a daemon may be stopped for minutes in the middle of a round


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class LongOracle(Oracle):
    """
    The truth about one partition, for hours.

    Args:
        directory: the partition's.
        settings: the topic's.
        scratch: a directory for copies of the partition.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str], scratch: Path) -> None:
        super().__init__(directory, settings, _now_ms)
        self._live = directory
        self._scratch = scratch
        self._highest = -1
        self._gone: set[int] = set()  # offsets that were not there when the log was judged last
        self._forgotten: dict[int, float] = {}  # numbers of records that cleaning has removed, and since when
        self._transactions: dict[int, Transaction] = {}
        self._appends_by_number: dict[int, list[Sent]] = {}
        self._last_stamped: Note | None = None
        self._expected: dict[int, Sent] = {}
        self._stable = 0
        self._began_at = 0.0
        self.rounds_begin(math.inf)

    # ---- notes -----------------------------------------------------------------------------------------------------

    def take(self, note: Note, up_since: float) -> None:
        """
        Take in a note.

        Args:
            up_since: since when the writer has been up: only while it is do readers know everything durable.
        Raises:
            Wrong: a reader was shown what it must not see, or an answer contradicts others.
        """
        match note["do"]:
            case "send":
                self._take_send(note)
            case "answer":
                records = self._appends_by_number[note["n"]]
                self.answered(records, note["at"])
                self._highest = max(self._highest, note["at"] + len(records) - 1)
            case "failed":
                for sent in self._appends_by_number.pop(note["n"]):
                    sent.has_failed = True
            case "durable":
                self.durable(self._appends_by_number[note["n"]])
            case "flushed":
                self.durable_below(note["to"])
            case "ask" | "unask":
                self._transactions[note["x"]].asked = note["commit"]
            case "ended":
                self._transactions[note["x"]].answered = note["commit"]
            case "stable":
                self._take_stable(note["x"])
            case "begins":
                (self._expected, self._stable), self._began_at = self.must_be_shown(), note["t"]
            case "shown":
                self._take_shown(note, up_since)

    def _take_send(self, note: Note) -> None:
        transaction = None
        if "x" in note:
            transaction = self._transactions.setdefault(note["x"], Transaction())
        sent = []
        sent_ms = _now_ms() - round((time.monotonic() - note["t"]) * 1000)
        for number, key in enumerate(note["keys"], note["n"]):
            value = value_of(number, key, note["pad"])
            sent.append(Sent(number, key.lower(), value, transaction, self._highest + 1, sent_ms))
            self.sent[number] = sent[-1]
        self._appends.append(sent)
        self._appends_by_number[note["n"]] = sent
        if "stamp" in note:
            self._last_stamped = note

    def _take_stable(self, name: int) -> None:
        transaction = self._transactions[name]
        transaction.is_durable = True
        self.durable([sent for sent in self.sent.values() if sent.transaction is transaction])

    def _take_shown(self, note: Note, up_since: float) -> None:
        expected: dict[int, Sent] = {}
        if note["by"] == "reader" and self._began_at >= up_since:
            # What was forgotten since may be gone.
            expected = {at: each for at, each in self._expected.items() if each.number in self.sent}
        records = []
        for offset, key, digest, number in note["seen"]:
            since = self._forgotten.get(number)
            if since is not None:
                if note["by"] == "reader" and self._began_at > since:
                    raise Wrong(f"a reader was shown record {number} at {offset} again, which cleaning had removed")
                continue
            sent = self.sent.get(number)
            value = sent.value if sent is not None and digest_of(sent.value) == digest else b"another value"
            records.append((offset, key, value, number))
        self.shown(records, expected, self._stable)

    # ---- judging ---------------------------------------------------------------------------------------------------

    def judge_files(self, log_dir: Path, topic: str, *, power_was_cut: bool) -> int:
        """
        Judge the partition's files while its writer is at rest; a cleaner may be at work. Returns how many records.

        Raises:
            Wrong: they are not what they should be.
        """
        # First: what is written meanwhile only makes it higher, and is judged the next time.
        checkpoints = checkpoints_of(log_dir, topic)
        copy_listed(self._live, self._scratch)
        self._directory = self._scratch
        try:
            self.judge(checkpoints, only_durable=power_was_cut)
            self._round_ms = (_now_ms() - _LONGEST_ROUND_MS, self._round_ms[1])
            found = Found.of(self._scratch)
            self._forget(found)
            return len(found.records)
        finally:
            self._directory = self._live
            self._transactions.clear()
            self._appends_by_number.clear()

    def last_stamped(self) -> Note | None:
        """Return the last append of an idempotent producer, to be repeated, if it is in the log."""
        note = self._last_stamped
        if note is None:
            return None
        sent = [self.sent.get(number) for number in range(note["n"], note["n"] + len(note["keys"]))]
        first = sent[0]
        if first is None or any(each is None or each.is_lost or each.offset is None for each in sent):
            return None
        return {"n": note["n"], "keys": note["keys"], "pad": note["pad"], "stamp": note["stamp"], "at": first.offset}

    def judge_retention(self) -> None:
        """
        See that a log which is not compacted loses its old segments; where it is, old records join newer ones.

        Raises:
            Wrong: a closed segment is much older than allowed.
        """
        if self._is_compacted or self.start.retention_ms is None:
            return
        oldest_ms = _now_ms() - self.start.retention_ms - _LATE_RETENTION_MS
        late = [at for at, each in self._by_offset.items() if at < self._cleaned_to and at not in self._gone]
        late = [at for at in late if self._by_offset[at].sent_ms < oldest_ms]
        if late:
            raise Wrong(f"{self._live.name}: retention is late, {min(late)} to {max(late)} are still there")

    def _forget(self, found: Found) -> None:
        """Forget what was gone at the last judging and is still: readers of then have ended or are told apart."""
        now = time.monotonic()
        gone = {at for at in self._by_offset if at not in found.records}
        for offset in gone & self._gone:
            number = self._by_offset.pop(offset).number
            self._forgotten[number] = now
            del self.sent[number]
        self._gone = gone
        for number in [number for number, sent in self.sent.items() if sent.is_lost or sent.has_failed]:
            del self.sent[number]  # in a log again, it was never sent
        self._highest = found.end - 1


class Model:
    """
    All partitions of a log dir.

    Attributes:
        up_since: since when the writer has been up, on the monotonic clock; infinite: it is not.
        counts: of notes, records and judgements.
    """

    def __init__(self, log_dir: Path, topics: Mapping[str, Mapping[str, str]], scratch: Path) -> None:
        self._log_dir = log_dir
        self.logs = {
            topic: LongOracle(log_dir / f"{topic}-0", its, scratch / f"{topic}-copy") for topic, its in topics.items()
        }
        self.up_since = math.inf
        self.counts: Counter[str] = Counter()

    def take(self, note: Note) -> None:
        """Take in a note of the writer or a reader."""
        self.counts["notes"] += 1
        self.counts["records sent"] += len(note.get("keys", ""))
        self.counts["records shown"] += len(note.get("seen", ()))
        topic = note["p"].rpartition("-")[0]
        try:
            self.logs[topic].take(note, self.up_since)
        except Wrong as wrong:
            raise Wrong(f"{note['p']}: {wrong}; noted as {str(note)[:500]}") from wrong

    def judge(self, *, power_was_cut: bool) -> None:
        """Judge all files. Raises Wrong."""
        self.counts["judgements"] += 1
        for topic, oracle in self.logs.items():
            try:
                found = oracle.judge_files(self._log_dir, topic, power_was_cut=power_was_cut)
            except Wrong as wrong:
                raise Wrong(f"{topic}-0: {wrong}") from wrong
            self.counts["records judged"] += found

    def judge_retention(self) -> None:
        """Judge, while the writer is at rest, that it deletes what is too old. Raises Wrong."""
        for oracle in self.logs.values():
            oracle.judge_retention()

    def last_stamped(self) -> dict[str, Note]:
        """Return, by partition, appends of idempotent producers that are in the log, to be repeated."""
        found = {f"{topic}-0": oracle.last_stamped() for topic, oracle in self.logs.items()}
        return {name: note for name, note in found.items() if note is not None}


def copy_listed(directory: Path, copy: Path) -> None:
    """
    Copy a partition as it is at one moment, though a cleaner may be swapping segments.

    Raises:
        Wrong: its names do not come to rest.
    """
    until = time.monotonic() + _LISTING_SECONDS
    while time.monotonic() < until:
        before = _listed(directory)
        if any(name.endswith(".swap") for name in before):
            time.sleep(0.02)
            continue
        opened = {}
        try:
            for name in before:
                if not name.endswith((".cleaned", ".deleted", ".tmp")):
                    opened[name] = os.open(directory / name, os.O_RDONLY)
            if _listed(directory) == before:
                shutil.rmtree(copy, ignore_errors=True)
                copy.mkdir(parents=True)
                for name, descriptor in opened.items():
                    with (copy / name).open("wb") as file:
                        while data := os.read(descriptor, 1 << 20):
                            file.write(data)
                return
        except FileNotFoundError:
            continue
        finally:
            for descriptor in opened.values():
                os.close(descriptor)
    raise Wrong(f"the names in {directory} do not come to rest: {sorted(before)}")


def _listed(directory: Path) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in entries}
