"""
Rounds with a topic's own rules (`cleaner.survivor`, `cleaner.record.ttl.ms`), judged record by record.

On a copy of the logs: records come late, with times and versions in no order, and without. Then rounds go over all of
it, until tombstones have expired. Which record stays, and which expires, is found here from what the tests' own reader
has read; and `verify` has to find the same.
"""

from __future__ import annotations

import shutil
from random import Random
from typing import NamedTuple

import cleaner
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport
from cleaner.base.clock import StillClock
from cleaner.base.model import TopicPartition
from cleaner.settings.sources import Sources
from cleaner.verification.proof.findings import RefutationKind
from tests.reference.batches import Rec
from tests.simulation.bench import Bench
from tests.simulation.disk import SimFiles
from tests.simulation.found import Found, Wrong, checkpoints_of
from tests.simulation.plan import Rest
from tests.support.batch_builder import Record, data_batch
from tests.support.log_builder import HIGH_WATERMARKS, LOG_START_OFFSETS, offset_checkpoint

_VERSION = "version"
_RULES = ("timestamp", f"header:{_VERSION}", f"header:{_VERSION}", "offset")
_NUMBERS = (b"7", b"-3", b"00000012", (9).to_bytes(8, "big"), (-4).to_bytes(8, "big", signed=True), b"x", None)
_SMALLEST = -(2**63)
_LATER_MS = 6000  # `delete.retention.ms` is 0 or 5 seconds


class OwnRules(NamedTuple):
    """What the rounds go by: a survivor rule, and an age; None: nothing expires."""

    survivor: str
    ttl_ms: int | None

    def rank(self, record: Rec) -> tuple[int, int]:
        """Return what is compared of the records of a key."""
        number = 0
        if self.survivor == "timestamp":
            number = record.timestamp
        elif self.survivor != "offset":
            named = [value for name, value in record.headers if name == _VERSION.encode()]
            number = _number(named[-1]) if named else _SMALLEST
        return number, record.offset

    def settings(self) -> dict[str, str]:
        """Return them as settings."""
        ttl = {} if self.ttl_ms is None else {"cleaner.record.ttl.ms": str(self.ttl_ms)}
        return {"cleaner.survivor": self.survivor, **ttl}


class RuledWorld:
    """
    What happens to the copy in one rest.

    Args:
        bench: what all share; its logs were closed in order.
        rest: its number says which rules.
    """

    def __init__(self, bench: Bench, rest: Rest) -> None:
        self._bench = bench
        self._rng = Random(rest.number)
        self._copy = bench.log_dir.with_name("ruled")
        self._before = bench.log_dir.with_name("ruled-before")
        self._rules = OwnRules(self._rng.choice(_RULES), self._rng.choice((None, 0, 2000, 5000, 8000)))

    def command(self, _fs: SimFiles) -> None:
        """Make the copy, and have it cleaned and judged; on the machine's disk, which knows files that were copied."""
        shutil.copytree(self._bench.log_dir, self._copy)
        try:
            now_ms = self._bench.clock.now_ms() + self._rng.choice((0, 3000))
            for number in range(4):
                for name in self._bench.topics.compacted:
                    if number < 2:
                        self._come_late(name, now_ms)
                    self._clean(name, now_ms)
                now_ms += _LATER_MS
        finally:
            for path in (self._copy, self._before):
                shutil.rmtree(path, ignore_errors=True)

    def _come_late(self, name: str, now_ms: int) -> None:
        """Append records of the log's own keys, and begin a segment behind them."""
        directory, rng = self._copy / f"{name}-0", self._rng
        found = Found.of(directory)
        keys = sorted({record.key for record in found.records.values() if record.key}) or [b"a"]
        log, end, epoch = max(directory.glob("*.log")), found.end, max((each for each, _ in found.epochs), default=0)
        with log.open("ab") as file:
            for _ in range(rng.randrange(1, 6)):
                records = [self._record(rng.choice(keys), now_ms) for _ in range(rng.randrange(1, 5))]
                codec = rng.choice(("none", "lz4", "gzip"))
                file.write(data_batch(records, end, timestamp_ms=now_ms, codec=codec, leader_epoch=epoch))
                end += len(records)
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{end:020d}{suffix}").touch()
        path = self._copy / HIGH_WATERMARKS
        lines = {each: checkpoints_of(self._copy, each).get(HIGH_WATERMARKS) for each in self._bench.topics.names}
        offsets = {
            TopicPartition(each, 0): offset for each, offset in (lines | {name: end}).items() if offset is not None
        }
        path.write_bytes(offset_checkpoint(offsets))

    def _record(self, key: bytes, now_ms: int) -> Record:
        rng = self._rng
        numbers = [value for value in (rng.choice(_NUMBERS) for _ in range(rng.choice((0, 1, 1, 2)))) if value]
        headers = tuple((_VERSION.encode(), value) for value in numbers)
        time = rng.choice((-1, now_ms - rng.randrange(12_000), now_ms + rng.randrange(4000)))
        return Record(key, rng.choice((None, b"late", b"late too")), None, time, headers)

    def _clean(self, name: str, now_ms: int) -> None:
        """Clean a topic, and judge what is left."""
        bench, directory = self._bench, self._copy / f"{name}-0"
        shutil.rmtree(self._before, ignore_errors=True)
        shutil.copytree(self._copy, self._before)
        before, start = Found.of(directory), checkpoints_of(self._copy, name).get(LOG_START_OFFSETS, 0)
        sources = Sources(config={**bench.settings, **self._rules.settings()})
        context = CallContext(clock=StillClock(now_ms))
        (report,) = clean_log_dir(self._copy, [f"{name}-0"], sources, CleanOptions(), context)
        if not isinstance(report, CleanReport):
            raise report.error
        bench.count(f"rule: {'judged' if report.rounds else 'nothing to clean'}")
        if not report.rounds or report.note.startswith("nothing dirty"):
            return
        self._judge(name, report, before, Found.of(directory), start, now_ms)
        settings = {**bench.settings, **self._rules.settings()}
        proof = cleaner.verify(self._before, self._copy, f"{name}-0", settings, now_ms=now_ms)
        # Without a snapshot at the new end only the load knows which producers a jump of the clock has ended.
        wrong = [found for found in proof.findings if found.kind is not RefutationKind.PRODUCER]
        if wrong:
            raise Wrong(f"{name}: verify refutes a round by its own rules: {wrong[:3]}")

    def _judge(self, name: str, report: CleanReport, before: Found, after: Found, start: int, now_ms: int) -> None:
        rules, end = self._rules, report.end_offset
        first = start if rules.survivor != "offset" else max(start, report.first_dirty_offset)
        last: dict[bytes, tuple[int, int]] = {}
        for offset, record in before.records.items():
            if first <= offset < end and record.key is not None and _is_committed(before, offset):
                last[record.key] = max(rules.rank(record), last.get(record.key, (_SMALLEST, -1)))
        expired = 0
        for offset, record in before.records.items():
            left = after.records.get(offset)
            if left is not None and left._replace(value=None) != record._replace(value=None):
                raise Wrong(f"{name}: the round has changed the record at {offset}: {record} {left}")
            if offset >= end:
                if left != record:
                    raise Wrong(f"{name}: the record at {offset} is behind the round's end {end}: {left}")
                continue
            if offset < start or record.key is None:
                continue
            stays = _is_committed(before, offset) and rules.rank(record) >= last.get(record.key, (_SMALLEST, -1))
            if rules.survivor == "offset" and record.key in last:
                stays = _is_committed(before, offset) and offset >= last[record.key][1]
            if left is not None and not stays:
                raise Wrong(f"{name}: {record.key!r} at {offset} is not the one that stays, {last}, and is there")
            if not stays or record.value is None:
                continue
            if left is None:
                raise Wrong(f"{name}: {record.key!r} at {offset} is the one that stays, and is gone")
            is_old = rules.ttl_ms is not None and 0 <= record.timestamp <= now_ms - rules.ttl_ms
            expired += is_old
            if is_old != (left.value is None) or (not is_old and left.value != record.value):
                raise Wrong(
                    f"{name}: {record.key!r} at {offset}, of {record.timestamp}, has {left.value!r} at {now_ms}"
                )
            if is_old and (after.horizons[offset] or 0) < now_ms:
                raise Wrong(f"{name}: the horizon of {offset}, which has expired at {now_ms}, {after.horizons[offset]}")
        if after.records.keys() - before.records.keys():
            raise Wrong(f"{name}: the round has invented records")
        if report.expired_records != expired:
            raise Wrong(f"{name}: {expired} records have expired, the report says {report.expired_records}")


def _is_committed(found: Found, offset: int) -> bool:
    """Tell whether a record counts: the next marker of its producer decides its transaction."""
    return not found.producers[offset][1] or found.outcome(offset) is True


def _number(value: bytes | None) -> int:
    try:
        number = int((value or b"").decode("ascii"))
    except ValueError:
        return int.from_bytes(value, "big", signed=True) if value and len(value) == 8 else _SMALLEST
    return number
