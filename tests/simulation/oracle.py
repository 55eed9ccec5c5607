"""
What must be true of a log, told by what its clients were answered: nothing here asks the product.

Each record carries a number in a header, so it is known wherever it turns up. `Oracle` notes what was sent, what was
answered, and what a reader was shown; `judge` reads the files with the tests' own reader of batches and compares.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path

from tests.simulation.found import HIGH_WATERMARKS, RECOVERY_POINTS, Found, Wrong, number_of, topic_id_of
from tests.simulation.retained import LOG_STARTS, LogStart
from tests.simulation.rot import Rots
from tests.simulation.sent import Sent, Transaction, is_committed, is_undecided, may_count


class Oracle:
    """
    The truth about one partition.

    Args:
        directory: its directory.
        settings: of its topic.
        now_ms: returns the wall clock.
        first: the number of its first record.
        topic_id: of its topic.
        rots: the damage to its files; None: there is none.
    Attributes:
        is_made: its topic was made, as far as anybody was answered.
        is_deleted_soon: somebody has asked to delete its topic.
        is_deleted: that was answered.
        has_shrunk: records were erased, or the log was cut, since it was last judged.
        cuts: how many cuts have begun, and how many have ended.
        known_end: up to here the checkpoints said that all is on disk, at an opening since the log was last judged: no
            damage lets one cut below.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        now_ms: Callable[[], int],
        first: int = 0,
        topic_id: uuid.UUID | None = None,
        *,
        rots: Rots | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._retention_ms = int(settings["delete.retention.ms"])
        self._is_compacted = "compact" in settings["cleanup.policy"]
        self._first = first
        self._topic_id = topic_id
        self.rots = Rots(set()) if rots is None else rots
        self.is_made = self.is_deleted_soon = self.is_deleted = self.has_shrunk = False
        self.known_end = 0
        self.start = LogStart(directory, settings, now_ms)
        self._now_ms = now_ms
        self._rounds = 0
        # Since the log was last judged: how many rounds there were, at the earliest and at the latest when.
        self._round_count = 0.0
        self._round_ms = (1 << 62, -1)
        self._horizons: dict[int, int | None] = {}  # of tombstones and markers, as the log was last judged
        self._appends: list[list[Sent]] = []  # since the log was last judged
        self._last_ends: dict[int, int] = {}  # as `Found` has it, when the log was last judged
        self._open_from: dict[int, int] = {}
        self.sent: dict[int, Sent] = {}
        self._by_offset: dict[int, Sent] = {}
        self._cleaned_to = 0  # up to where rounds may have removed something
        self.cuts = 0
        self._cut_from: int | None = None  # a cut has begun there, and nobody was answered since

    # ---- what clients do -------------------------------------------------------------------------------------------

    def send(self, keys: str, padding: int, transaction: Transaction | None) -> list[Sent]:
        """Note records that are about to be sent in one append; an upper-case key: a tombstone."""
        at_least, first = max(self._by_offset, default=-1) + 1, self._first + len(self.sent)
        sent, now_ms = [], self._now_ms()
        for number, key in enumerate(keys, first):
            value = None if key.isupper() else f"{number}:{key}".encode() + b"." * padding
            sent.append(Sent(number, key.lower(), value, transaction, at_least, now_ms))
            self.sent[number] = sent[-1]
        self._appends.append(sent)
        return sent

    def answered(self, records: list[Sent], base_offset: int) -> None:
        """Note the answer to an append."""
        for offset, sent in enumerate(records, base_offset):
            before = self._by_offset.get(offset)
            if before is not None and before is not sent:
                raise Wrong(f"offset {offset} was given to record {before.number}, and now to {sent.number}")
            if sent.offset is not None and sent.offset != offset:
                raise Wrong(f"record {sent.number} was at offset {sent.offset}, and is answered with {offset}")
            sent.offset, sent.is_answered = offset, True
            self._by_offset[offset] = sent

    def durable(self, records: list[Sent]) -> None:
        """Note that records were answered as durable."""
        for sent in records:
            sent.is_durable = True

    def durable_below(self, offset: int) -> None:
        """Note that all below an offset was answered as durable."""
        for at, sent in self._by_offset.items():
            if at < offset:
                sent.is_durable = True

    def highest_durable(self) -> int:
        """Return the first offset behind all that has to survive a power cut."""
        return max((at + 1 for at, sent in self._by_offset.items() if sent.is_durable), default=0)

    def rounds_begin(self, count: float = 1) -> None:
        """Note that rounds may remove records below the active segment from now on: the one when they look."""
        self._rounds += 1
        self._round_count += count
        self.note_time()

    def rounds_end(self) -> None:
        """Note that they do so no longer."""
        self._note_cleaned()
        self.note_time()
        self._rounds -= 1

    def note_time(self) -> None:
        """Note the wall clock; called before and after each jump."""
        self.start.note_time()
        for append in self._appends[-8:]:
            for each in append:
                each.sent_ms = min(each.sent_ms, self._now_ms())
        if self._rounds:
            now_ms, (first, last) = self._now_ms(), self._round_ms
            self._round_ms = min(first, now_ms), max(last, now_ms)

    def horizons(self) -> list[int]:
        """Return the delete horizons that were in the log when it was last judged."""
        return sorted({horizon for horizon in self._horizons.values() if horizon is not None})

    def begin_erasure(self, erased: Collection[Sent]) -> None:
        """Note that some records may be gone from now on."""
        self._note_cleaned()
        for sent in erased:
            sent.erasure = "asked"
            sent.was_cleaned |= sent.offset is not None and sent.offset < self._cleaned_to

    def end_erasure(self, erased: Iterable[Sent]) -> None:
        """Note that they are gone."""
        for sent in erased:
            sent.erasure = "done"
        self.has_shrunk = True

    def begin_of_append(self, number: int) -> int | None:
        """Return where one of the last appends begins, most often of the last three; None: none is known."""
        begins = [sent.offset for append in self._appends[-8:] for sent in append[:1] if sent.offset in self._by_offset]
        begins = begins if number % 8 == 0 else begins[-3:]
        return begins[number // 8 % len(begins)] if begins else None

    def begin_cut(self, offset: int) -> None:
        """Note that the client of the log, who has no call under way, cuts it: what is at an offset or above may go."""
        self._note_cleaned()
        self.cuts += 1
        self.has_shrunk, self._cut_from = True, offset
        gone = [sent for at, sent in self._by_offset.items() if at >= offset]
        superseded = {sent.key: sent.offset or 0 for sent in gone if (sent.offset or 0) < self._cleaned_to}
        for sent in self._by_offset.values():
            transaction = sent.transaction
            if transaction is not None and not (transaction.answered is not None and transaction.end <= offset):
                transaction.answered, transaction.is_durable = None, False  # its marker may go, and it is aborted then
            if sent.key in superseded:
                sent.was_compacted = True  # by a record that goes
        for sent in gone:
            sent.is_answered = sent.is_durable = False

    def end_cut(self, end: int) -> None:
        """Note that a cut was answered, or is known to be done: the log went on at this offset."""
        self._note_cleaned()
        self.cuts += 1
        self._cut_from = None
        self._cleaned_to = min(self._cleaned_to, end)
        self._horizons = {at: horizon for at, horizon in self._horizons.items() if at < end}
        self._last_ends = {producer: last for producer, last in self._last_ends.items() if last < end}
        self._open_from = {producer: first for producer, first in self._open_from.items() if first < end}
        for offset in [offset for offset in self._by_offset if offset >= end]:
            self._by_offset.pop(offset).is_lost = True

    def _note_cleaned(self) -> None:
        directory = self._directory
        if self.is_deleted_soon and topic_id_of(directory) != self._topic_id:
            # It waits for its removal under another name; a power cut may bring the old name back.
            others = sorted(directory.parent.glob(f"{directory.name}.*"))
            found = [path for path in others if topic_id_of(path) == self._topic_id]
            if not found:
                return
            directory = found[0]
        else:
            self.start.look()
        if self._rounds:
            bases = [int(path.name.partition(".")[0]) for path in directory.glob("*.log")]
            self._cleaned_to = max([self._cleaned_to, *bases])

    def opens(self, checkpoints: dict[str, int]) -> None:
        """Note the lines of the partition: the log is about to be opened, and may be recovered."""
        sound = (name for name in (RECOVERY_POINTS, HIGH_WATERMARKS) if name not in self.rots.names)
        self.known_end = max(self.known_end, *(checkpoints.get(name, 0) for name in ("", *sound)))

    # ---- what readers are shown ------------------------------------------------------------------------------------

    def must_be_shown(self) -> tuple[dict[int, Sent], int]:
        """Return what a reader of committed records that begins now has to be shown, by offset; and up to where."""
        # Where a reader ends who knows no more: what is above may be cleaned while it reads, and supersede others.
        end = max((at for at, sent in self._by_offset.items() if sent.is_durable), default=-1) + 1
        undecided = [
            sent.at_least if sent.offset is None else sent.offset
            for sent in self.sent.values()
            if is_undecided(sent) and not sent.has_failed and not sent.is_lost
        ]
        stable = min([end, *undecided])
        return {
            at: sent
            for at, sent in self._by_offset.items()
            if at < stable and sent.is_durable and is_committed(sent) and not sent.erasure
        }, stable

    def shown(
        self,
        records: list[tuple[int, str, bytes | None, int]],
        expected: dict[int, Sent],
        stable: int = 1 << 62,
        *,
        was_cut: bool = False,
        is_told: bool = False,
    ) -> None:
        """
        Judge what a committed reader in another process was shown: offset, key, value and number of each record.

        Args:
            expected, stable: as `must_be_shown` returned when it began. What is at `stable` or above may supersede a
                record, in a round that ran while it read, and not be shown.
            was_cut: since it began: what it was shown before is lost.
            is_told: of a cut below what it was shown, before anything else is.
        Raises:
            Wrong: it must not have been shown, or something is missing.
        """
        self._note_cleaned()
        last, cut_off = -1, None
        for offset, key, value, number in records:
            sent = self.sent.get(number)
            if sent is None or (sent.key, sent.value) != (key, value):
                raise Wrong(f"a reader was shown {key}={value!r} at {offset}, which was never sent")
            if offset <= last:
                raise Wrong(f"a reader was shown offset {offset} after {last}")
            last = offset
            if sent.is_answered and sent.offset != offset:
                raise Wrong(f"a reader was shown record {number} at {offset}, it was answered with {sent.offset}")
            if was_cut and (sent.is_lost or (self._cut_from is not None and offset >= self._cut_from)):
                cut_off = sent
                continue
            if cut_off is not None and is_told:
                raise Wrong(f"a reader was shown record {number} after {cut_off.number}, which had been cut off")
            if sent.has_failed or sent.is_lost:
                raise Wrong(f"a reader was shown record {number}, which was answered with an error or lost")
            if sent.transaction is not None and sent.transaction.asked is not True:
                raise Wrong(f"a committed reader was shown record {number} of a transaction that was not committed")
            self._place(sent, offset)
            sent.is_durable = True
            if sent.transaction is not None and not was_cut:
                # Its marker is below the end of committed readers, and thereby on disk.
                sent.transaction.answered = sent.transaction.is_durable = True
        seen = {offset for offset, *_ in records}
        last_of_keys = self._last_of_keys(seen | {offset for offset in self._by_offset if offset >= stable})
        for offset, sent in expected.items():
            if offset not in seen and not self._may_be_gone(sent, last_of_keys):
                raise Wrong(f"a committed reader was not shown record {sent.number} at {offset}")

    def _place(self, sent: Sent, offset: int) -> None:
        other = self._by_offset.get(offset)
        if other is not None and other is not sent:
            raise Wrong(f"offset {offset} holds record {sent.number}, and was given to {other.number}")
        sent.offset = offset
        self._by_offset[offset] = sent

    # ---- the files -------------------------------------------------------------------------------------------------

    def judge(self, checkpoints: dict[str, int], *, only_durable: bool) -> None:
        """
        Judge a partition's files when the log has been opened: what survived is the truth from now on.

        Args:
            checkpoints: of the log dir, the partition's lines.
            only_durable: only that must have survived: the power was cut, or an fsync has failed.
        Raises:
            Wrong: something durable is missing, something is there that was not sent, or a checkpoint is ahead.
        """
        rots = self.rots
        found = Found.of(self._directory, rots)
        self._note_cleaned()
        line = checkpoints.get(LOG_STARTS, 0)
        if rots.has_hit(LOG_STARTS):
            below_start = self.start.judge_damaged(line, max(self._by_offset, default=-1) + 1)
        else:
            # Less is left if something else has removed records since: a power cut, a round, a cut of damage.
            is_less = only_durable or rots.has_hit(".log") or (self._round_count and self._is_compacted)
            is_less, self.has_shrunk = is_less or self.has_shrunk, False
            below_start = self.start.judge(line, None if is_less else found.size)
        self._judge_presence(found)
        for append in self._appends:
            offsets = [sent.offset for sent in append]
            whole = [offset for offset in offsets if offset is not None]
            least_whole = max(self._cleaned_to, self.start.offset)
            if None in offsets and whole and min(whole) >= least_whole and not rots.has_hit(".log"):
                raise Wrong(f"an append of {len(append)} records is there in part, at {whole}")
        self._appends.clear()
        least, cut_from = 0, self._cut_from
        superseded = {} if cut_from is None else self._last_of_keys(found.records.keys())
        for offset, sent in self._by_offset.items():
            if cut_from is not None and self._may_be_gone(sent, superseded):
                continue  # a cut may end the log below what a round has removed
            if sent.is_durable or (sent.is_answered and not only_durable):
                least = max(least, offset + 1)
        # The opening may have put markers, of transactions that it has aborted, where lost records were.
        end = min([found.end, *(at for at, _, _ in found.markers if at in self._by_offset)])
        if end < least:
            # Recovery has cut damage off, and all that came after it; it may have put markers there, also at an opening
            # before this one, whose checkpoints count them.
            known = found.end if rots.has_hit(".log") else end
            if known < self.known_end:
                raise Wrong(
                    f"the log ends at {known}, and its checkpoints said that all below {self.known_end} is on disk"
                )
            cut = rots.first_lost(max(found.records, default=-1) + 1)
            least, end = min(least, cut), min(end, cut)
        if end < least:
            raise Wrong(f"the log ends at {end}, though records below {least} were answered")
        for offset in [offset for offset in self._by_offset if offset >= end]:
            self._by_offset.pop(offset).is_lost = True
        rots.cut(end)
        self.known_end = 0
        for sent in self.sent.values():
            if not sent.is_answered and sent.offset is None and rots.last_lost() < 0:
                sent.is_lost = True  # it did not come to the disk, and will not
        # Opening a log forces it to disk.
        for sent in self._by_offset.values():
            sent.is_durable = True
        present = found.records.keys() | {offset for offset in self._by_offset if rots.is_lost(offset)}
        last_of_keys = self._last_of_keys(present)
        for offset, sent in self._by_offset.items():
            if offset in present or not sent.is_answered:
                continue
            if not self._may_be_gone(sent, last_of_keys):
                raise Wrong(f"record {sent.number} ({sent.key} at {sent.offset}) is missing")
            sent.was_compacted = rots.has_hit(".log")
        if not rots.has_hit(LOG_STARTS):
            self._judge_removed(below_start)
        self._judge_transactions(found)
        if not rots.has_hit(".log"):
            if not rots.has_hit(".txnindex"):
                found.judge_aborts(self.start.offset)
            self._judge_horizons(found)
            self._judge_producers(found)
        self._cut_from = None
        if not rots.has_hit("leader-epoch-checkpoint"):
            found.judge_epochs(self._directory, self.start.offset)
        self._judge_checkpoints(found, {name: at for name, at in checkpoints.items() if name not in rots.names})

    def _judge_removed(self, offsets: range) -> None:
        """Judge what retention has removed, except for what a round may have removed before."""
        last: dict[str, int] = {}
        for offset, sent in self._by_offset.items():
            if offset < self._cleaned_to and may_count(sent):
                last[sent.key] = max(last.get(sent.key, -1), offset)
        removed = [self._by_offset[offset] for offset in offsets if offset in self._by_offset]
        if self.rots.has_hit(".timeindex"):
            return  # which has no checksum, and says how old a segment is
        self.start.judge_gone(
            (sent.offset or 0, sent.sent_ms)
            for sent in removed
            if sent.is_answered and not self._may_be_compacted(sent, last)
        )

    def _judge_horizons(self, found: Found) -> None:
        """Judge tombstones and markers: they stay until their horizon, which is set once, by the first round."""
        self.note_time()
        first, last = self._round_ms
        last_of_keys = self._last_of_keys(set(found.records))
        cut_from = 1 << 62 if self._cut_from is None else self._cut_from
        for offset, horizon in self._horizons.items():
            if offset >= min(found.end, cut_from) or offset < self.start.offset:
                continue
            sent = self._by_offset.get(offset)
            is_superseded = sent is not None and (not may_count(sent) or offset < last_of_keys.get(sent.key, -1))
            is_superseded |= sent is not None and bool(sent.erasure)
            may_go = (
                last >= horizon
                if horizon is not None
                else (self._round_count > 1 and last >= first + self._retention_ms)
            )
            if offset not in found.horizons and not is_superseded and not may_go:
                raise Wrong(f"the tombstone or marker at {offset} is gone, its horizon was {horizon}, now {last}")
            now = found.horizons.get(offset, horizon)
            if now != horizon and (horizon is not None or now is None or not first <= now - self._retention_ms <= last):
                raise Wrong(f"the horizon of {offset} was {horizon}, and is {now}; rounds ran from {first} to {last}")
        for offset, horizon in found.horizons.items():
            is_new = offset not in self._horizons and horizon is not None
            if is_new and offset < cut_from and not first <= horizon - self._retention_ms <= last:
                raise Wrong(f"the horizon of {offset} is {horizon}; rounds ran from {first} to {last}")
        self._horizons = dict(found.horizons)
        if not self._rounds:
            self._round_count, self._round_ms = 0, (1 << 62, -1)

    def _judge_producers(self, found: Found) -> None:
        """Judge that no round or erasure has removed a batch that tells of a producer, if it lost its records."""
        there = range(self.start.offset, found.end if self._cut_from is None else min(found.end, self._cut_from))
        for producer, last in self._last_ends.items():
            if last in there and found.last_ends.get(producer, -1) < last:
                raise Wrong(f"the last batch of producer {producer}, which ended at {last}, is gone")
        for producer, first in self._open_from.items():
            is_open = producer in found.open_from
            # What a round has removed with its marker was open once, too.
            is_open |= first >= self._cleaned_to and found.marker_after(first, producer) is None
            if first in there and is_open and first not in found.bases:
                raise Wrong(f"the first batch of the open transaction of producer {producer}, at {first}, is gone")
        self._last_ends, self._open_from = found.last_ends, found.open_from

    def copy(self) -> Oracle:
        """Return an independent copy, to judge files that may not be the ones that stay."""
        other = Oracle(
            self._directory, self._settings, self._now_ms, self._first, self._topic_id, rots=self.rots.copy()
        )
        other.is_made, other.is_deleted_soon, other.is_deleted = self.is_made, self.is_deleted_soon, self.is_deleted
        other.has_shrunk, other.known_end = self.has_shrunk, self.known_end
        other.start = self.start.copy()
        other._round_count, other._round_ms, other._horizons = self._round_count, self._round_ms, self._horizons
        transactions = {
            id(sent.transaction): replace(sent.transaction) for sent in self.sent.values() if sent.transaction
        }
        other.sent = {number: sent.copy(transactions.get(id(sent.transaction))) for number, sent in self.sent.items()}
        other._appends = [[other.sent[sent.number] for sent in append] for append in self._appends]
        other._by_offset = {offset: other.sent[sent.number] for offset, sent in self._by_offset.items()}
        other._last_ends, other._open_from = self._last_ends, self._open_from
        other._cleaned_to, other.cuts, other._cut_from = self._cleaned_to, self.cuts, self._cut_from
        return other

    def _judge_presence(self, found: Found) -> None:
        numbers: set[int] = set()
        for offset, record in found.records.items():
            number = number_of(record.headers)
            sent = self.sent.get(number)
            if sent is None or record.key is None or (sent.key, sent.value) != (record.key.decode(), record.value):
                raise Wrong(f"the log holds {record.key!r}={record.value!r} at {offset}, which was never sent")
            if number in numbers:
                raise Wrong(f"record {number} is in the log twice, the second time at {offset}")
            numbers.add(number)
            if sent.has_failed or sent.is_lost or sent.erasure == "done":
                raise Wrong(f"record {number} is in the log, though its append failed, or it was lost or erased before")
            if sent.offset is not None and sent.offset != offset:
                raise Wrong(f"record {number} is at {offset}, and was at {sent.offset}")
            self._place(sent, offset)

    def _may_be_gone(self, sent: Sent, last: dict[str, int]) -> bool:
        """
        Tell whether cleaning may have removed a record.

        Args:
            last: of each key, the highest offset below which its records may be gone: a record of it that is there, or
                a tombstone, which may be gone itself.
        """
        if sent.offset is None:
            return False
        return sent.offset < self.start.offset or self._may_be_compacted(sent, last)

    def _may_be_compacted(self, sent: Sent, last: dict[str, int]) -> bool:
        if sent.erasure or sent.was_compacted:
            return True
        if sent.offset is None or sent.offset >= self._cleaned_to or not self._is_compacted:
            return False
        is_hidden = self._may_count_wrongly and sent.transaction is not None
        # Of a commit that was not answered the timeout may have made an abort since.
        may_be_aborted = sent.transaction is not None and sent.transaction.answered is not True
        return sent.value is None or is_hidden or may_be_aborted or sent.offset < last.get(sent.key, -1)

    @property
    def _may_count_wrongly(self) -> bool:
        """Whether a round may have taken aborted records for committed ones, or the other way: only indexes tell it."""
        return self.rots.has_hit(".txnindex")

    def _last_of_keys(self, present: Set[int]) -> dict[str, int]:
        """Return `last` for `_may_be_gone`: only what a round could see supersedes."""
        last: dict[str, int] = {}
        for offset, sent in self._by_offset.items():
            can_supersede = may_count(sent) or self._may_count_wrongly
            is_seen = sent.value is None or offset in present or sent.was_cleaned
            if offset < self._cleaned_to and can_supersede and is_seen:
                last[sent.key] = max(last.get(sent.key, -1), offset)
        return last

    def _judge_transactions(self, found: Found) -> None:
        for offset in found.records:
            if offset < self.start.offset:
                continue  # a power cut may leave some segments below the log start, and not those of their markers
            sent = self._by_offset[offset]
            transaction = sent.transaction
            if (transaction is not None) != found.producers[offset][1]:
                raise Wrong(f"record {sent.number} at {offset} is in a transaction, or in none, unlike when sent")
            if transaction is None:
                continue
            outcome = found.outcome(offset)
            if self.rots.last_ever_hit >= offset:
                # Its marker may be cut off; while the damage is there, another may seem to be its marker.
                if outcome is not None and self.rots.last_lost() < 0:
                    transaction.answered = transaction.asked = outcome
                continue
            if outcome is True and transaction.asked is not True:
                raise Wrong(f"record {sent.number} at {offset} is committed, which nobody asked for")
            if outcome is not True and transaction.answered is True and transaction.is_durable:
                raise Wrong(f"record {sent.number} at {offset} is not committed, though that was answered as durable")
            transaction.answered = transaction.asked = bool(outcome)
            transaction.is_durable = True

    def _judge_checkpoints(self, found: Found, checkpoints: dict[str, int]) -> None:
        for name, offset in checkpoints.items():
            if offset > found.end:
                raise Wrong(f"{name} says {offset}, but the log ends at {found.end}")
        clean_to = 0 if self.rots.has_hit(".log") else checkpoints.get("cleaner-offset-checkpoint", 0)
        if clean_to > max(self._cleaned_to, self.start.offset):
            raise Wrong(f"it says that it is cleaned up to {clean_to}, rounds came to {self._cleaned_to} at most")
        keys: dict[bytes | None, int] = {}
        for offset, record in found.records.items():
            if self._may_count_wrongly and self._by_offset[offset].transaction is not None:
                continue
            if self.start.offset <= offset < clean_to:
                if record.key in keys:
                    raise Wrong(f"{record.key!r} is at {keys[record.key]} and {offset}, both below {clean_to}")
                keys[record.key] = offset
