"""
A round with a key view (`cleaner.key.view`), judged by what was in the log before it, record by record.

The view of these worlds takes neighbouring letters for one key: `b` and `c`, `d` and `e`. What a round leaves is read
with the tests' own reader, and which record is the last of its key is found here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cleaner.app.reports import CleanReport
from cleaner.base.key_views import register_key_view
from cleaner.settings.sources import SetOption
from tests.simulation.found import Found, Wrong

_NAME = "neighbours"


class _Neighbours:
    """The view."""

    name = _NAME

    def canonical(self, key: bytes) -> bytes:
        """Return the first letter of the pair."""
        return bytes((key[0] & 0xFE, *key[1:])) if key else key


register_key_view(_Neighbours())
SET = SetOption(None, "cleaner.key.view", _NAME)


@dataclass
class ViewedRound:
    """
    What rounds with the view are given and leave.

    Attributes:
        before: each topic's log as it was.
        starts: their log start offsets.
        reports: of the topics that were cleaned to the end, by name.
    """

    before: dict[str, Found]
    starts: dict[str, int]
    reports: dict[str, CleanReport] = field(default_factory=dict)

    def judge(self, name: str, after: Found) -> bool:
        """
        Judge what is left of a topic; returns whether it was cleaned.

        Raises:
            Wrong: a record is missing, or there, or changed, or the report says something else.
        """
        report, before = self.reports.get(name), self.before[name]
        if report is None:
            return False
        if report.key_view != _NAME:
            raise Wrong(f"{name}: the round had the view, and its report says {report.key_view!r}")
        if not report.rounds:
            if after.records != before.records:
                raise Wrong(f"{name}: no round, and other records")
            return False
        end = report.end_offset
        committed = {at: each for at, each in before.records.items() if at < end and self._is_committed(before, at)}
        by_bytes, last = set[bytes](), dict[bytes, int]()
        for offset, record in sorted(committed.items()):
            if offset >= self.starts[name] and record.key is not None:
                by_bytes.add(record.key)
                last[_folded(record.key)] = offset
        for offset, record in before.records.items():
            is_there = offset in after.records
            if is_there and (after.records[offset].key, after.records[offset].value) != (record.key, record.value):
                raise Wrong(f"{name}: the round has changed the record at {offset}")
            if offset >= end and not is_there:
                raise Wrong(f"{name}: the record at {offset} is behind the round's end {end}, and is gone")
            if offset >= end or offset < self.starts[name] or record.key is None:
                continue
            is_last = offset in committed and last[_folded(record.key)] == offset
            if is_there and not is_last:
                raise Wrong(f"{name}: {record.key!r} at {offset} is not the last of its key, {last}, and is there")
            if is_last and not is_there and record.value is not None:
                raise Wrong(f"{name}: {record.key!r} at {offset} is the last of its key, and is gone")
        if after.records.keys() - before.records.keys():
            raise Wrong(f"{name}: the round has invented records")
        if not report.rounds_remaining and report.merged_keys != len(by_bytes) - len(last):
            raise Wrong(f"{name}: {len(by_bytes)} keys are {len(last)}, the report says {report.merged_keys} less")
        return True

    @staticmethod
    def _is_committed(found: Found, offset: int) -> bool:
        """Tell whether a record counts: the next marker of its producer decides its transaction."""
        producer, is_transactional = found.producers[offset]
        if not is_transactional:
            return True
        following = [commits for at, whose, commits in sorted(found.markers) if whose == producer and at > offset]
        return bool(following and following[0])


def _folded(key: bytes) -> bytes:
    return bytes((key[0] - key[0] % 2,)) + key[1:]
