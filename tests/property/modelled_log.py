"""
A log that is written to, cleaned, cut and expired step by step, compared with a simple model.

The model (`tests/coexistence/truth.py`) is a list of the appended records and what became of them. After a crash in a
step, or behind it, `after_crash` opens the rest: every record acknowledged as durable before must be there.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import Refusal
from cleaner.base.model import TopicPartition
from cleaner.log.log_producer import LogProducer
from cleaner.log.manager import LogManager
from cleaner.log.record import Appended, Record
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment.names import LOG
from tests.coexistence.truth import Truth
from tests.support.batch_reader import batch_info, read_marker, split_batches, without_room
from tests.support.manual_clock import ManualClock

PARTITION = TopicPartition("log", 0)
SETTINGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "100000",
    "file.delete.delay.ms": "1000",
    "internal.segment.bytes": "700",
    "delete.retention.ms": "0",
    "index.interval.bytes": "100",
    "num.recovery.threads.per.data.dir": "1",
    "cleaner.pipeline.threads": "1",
    "log.cleaner.dedupe.buffer.size": "1048576",
}
_CONTROL = 0x20
_COMMIT = 1


Pairs = list[tuple[str, str | None]]


class ModelledLog:
    """
    A log dir with one log, and its truth.

    Args:
        log_dir: to be made.
        compression: of the topic.
        settings: more of them.

    Attributes:
        fs: the disk; see `new_disk`.
    """

    def __init__(self, log_dir: Path, compression: str, settings: dict[str, str] | None = None) -> None:
        self._settings = SETTINGS | (settings or {})
        self._clock = ManualClock()
        self._producer: LogProducer | None = None
        self._truth = Truth()
        self._durable = 0
        self._cleaned_to = 0  # up to where rounds may have removed something, whether they came to their end or not
        # As they were when the last step began: what was durable then, and what a cut was to take away.
        self._durable_before = 0
        self._before_cut: tuple[Truth, int] | None = None
        with LogManager(log_dir, self._settings, create=True, cleaner=False, tasks=False, clock=self._clock) as manager:
            manager.create_topic(PARTITION.topic, settings={"compression.type": compression})
        self.open(log_dir)

    def new_disk(self) -> FileSystem:
        """Return the disk for the log's next life."""
        return FileSystem()

    def open(self, log_dir: Path) -> None:
        """Open the log; a step of its own."""
        self.log_dir = log_dir
        self.fs = self.new_disk()
        self.begin_step()
        self._manager = self._managed(log_dir, self.fs)
        self._log = self._manager.log(PARTITION.topic)
        self._producer = None

    def _managed(self, log_dir: Path, fs: FileSystem | None = None) -> LogManager:
        return LogManager(log_dir, self._settings, cleaner=False, tasks=False, clock=self._clock, fs=fs)

    def abandon(self) -> None:
        """Drop the log as a killed process does."""
        self._manager.abandon()

    # ---- steps -----------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Note how things stand before a step."""
        self._durable_before = self._durable
        self._before_cut = None

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        self.begin_step()
        yield
        # What was forced to disk on the way (a roll does) is acknowledged when the step has ended.
        self._note_durable()

    def _note_durable(self) -> None:
        self._durable = max(self._durable, self._log.high_watermark)
        self._take("flush", end=self._durable)

    def _take(self, op: str, **note: Any) -> None:
        self._truth.take({"op": op, **note})

    def append(self, records: Pairs, *, wait: bool) -> None:
        """Append outside of transactions; perhaps wait until it is on disk."""
        with self._step():
            appended = self._append(records, None)
            if wait:
                appended.durable.result()
                assert self._log.high_watermark > appended.last_offset

    def append_in_transaction(self, records: Pairs) -> None:
        """Append in a transaction, which is begun if none is open."""
        with self._step():
            if self._producer is None:
                self._producer = self._log.producer("mine")
                self._note_markers()
            if not self._producer.is_in_transaction:
                self._producer.begin()
            self._append(records, self._producer)

    def _append(self, records: Pairs, producer: LogProducer | None) -> Appended:
        base = self._log.log_end_offset
        named = [(key, None if value is None else f"{value} at {base + at}") for at, (key, value) in enumerate(records)]
        producer_id = -1 if producer is None else producer.identity.producer_id
        self._take("append", base=base, records=named, producer=producer_id)
        made = [Record(key.encode(), None if value is None else value.encode()) for key, value in named]
        appended = (producer or self._log).append(made)
        assert appended.base_offset == base
        return appended

    @property
    def is_in_transaction(self) -> bool:
        """Tell whether a transaction is open."""
        return self._producer is not None and self._producer.is_in_transaction

    def end_transaction(self, commit: bool) -> None:
        """Commit or abort."""
        assert self._producer is not None
        producer_id = self._producer.identity.producer_id
        with self._step():
            self._take("marker", base=self._log.log_end_offset, producer=producer_id, commit=commit)
            (self._producer.commit() if commit else self._producer.abort()).result()

    def flush(self) -> None:
        """Have all of it acknowledged."""
        with self._step():
            assert self._log.flush() == self._log.log_end_offset

    def roll(self) -> None:
        """Begin a segment."""
        with self._step():
            self._log.roll()

    def note_offsets(self) -> None:
        """Write the checkpoints."""
        with self._step():
            self._manager.upkeep.note_all()

    def time_passes(self, seconds: int) -> None:
        """Let time pass, expire what has become too old, and remove what has waited long enough."""
        self._clock.move_on(seconds)
        with self._step():
            # A crash on the way may have it either way.
            self._truth.start = max(self._truth.start, self._highest_start())
            self._manager.upkeep.retain()
            assert self._log.log_start_offset <= self._truth.start
            self._manager.upkeep.remove_due()

    def _highest_start(self) -> int:
        """Return up to where retention may delete: the first batch that is not too old."""
        oldest_kept_ms = self._clock.now_ms() - 100_000
        kept = [info.base_offset for info in self._batches() if info.max_timestamp_ms >= oldest_kept_ms]
        return min(kept, default=self._log.log_end_offset)

    def clean(self) -> None:
        """Clean while the writer is at work, as another process would."""
        self._manager.upkeep.note_high_watermarks()
        self._cleaned_to = max(self._cleaned_to, list_segments(self.fs, self.log_dir / str(PARTITION))[-1].base_offset)
        sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
        lent = CallContext(fs=self.fs, clock=self._clock)
        with self._step():
            for outcome in clean_log_dir(self.log_dir, [str(PARTITION)], sources, CleanOptions(), lent):
                if isinstance(outcome, Refusal):
                    raise outcome.error
        self.judge()

    def cut(self, share: float) -> None:
        """Cut the log at some batch; what was replicated may go too."""
        places = sorted({info.base_offset for info in self._batches()} | {self._log.log_end_offset})
        places = [place for place in places if place >= self._log.log_start_offset]
        to = places[int(share * (len(places) - 1))]
        with self._step():
            self._before_cut = copy.deepcopy(self._truth), self._cleaned_to
            self._durable = min(self._durable, to)
            # What cleaning has left of the records below may end before them.
            left = [info.last_offset + 1 for info in self._batches() if info.last_offset < to]
            self._durable_before = min(self._durable, max(left, default=0))
            self._take("open", end=to)
            self._log.truncate_to(to)
            end = self._end_of_what_was_written()
            assert end <= to
            self._durable = self._durable_before = min(self._durable, end)
            self._cleaned_to = min(self._cleaned_to, end)
            self._take("open", end=end)
            self._note_markers()
        self._producer = None

    def stop_and_start(self) -> None:
        """Close in order, and open again."""
        self.begin_step()
        self._manager.close()
        self._note_markers()
        end = self._log.log_end_offset
        self._durable = end
        self._take("flush", end=end)
        self.judge()
        self.has_stopped()
        self._manager.abandon()
        self.open(self.log_dir)
        self._after_opening(least=end)

    def has_stopped(self) -> None:
        """Look at what a clean stop has left; the marker promises that nothing of it is forgotten any more."""

    def opens_whole(self, log_dir: Path) -> bool:
        """Tell whether a log dir opens with every acknowledged record."""
        with self._managed(log_dir) as manager:
            return manager.log(PARTITION.topic).log_end_offset >= self._durable

    def min_after_crash(self, *, is_in_step: bool) -> int:
        """Return the least offset that the log must reach after a crash in the last step, or behind it."""
        return self._durable_before if is_in_step else self._durable

    def after_crash(self, log_dir: Path, *, is_in_step: bool) -> None:
        """Open the log that a crash in the last step, or behind it, has left."""
        self._durable = least = self.min_after_crash(is_in_step=is_in_step)
        if self._before_cut is not None and is_in_step:
            self._truth, self._cleaned_to = self._before_cut
        self.open(log_dir)
        self._after_opening(least=least)
        self.judge()

    def _after_opening(self, *, least: int) -> None:
        """Nothing acknowledged is missing, nothing is there that nobody wrote; transactions left open are aborted."""
        end = self._end_of_what_was_written()
        assert least <= end <= max((*self._truth.entries, *self._truth.markers, -1)) + 1
        assert self._log.last_stable_offset == self._log.high_watermark == self._log.log_end_offset
        self._truth.take({"op": "open", "end": end})
        self._note_markers()
        self._note_durable()

    def _end_of_what_was_written(self) -> int:
        """Return the log's end without the markers that an opening or a cut has put there by itself."""
        controls = {info.base_offset for info in self._batches() if info.attributes & _CONTROL}
        return min({self._log.log_end_offset} | (controls - self._truth.markers.keys()))

    # ---- what is there ---------------------------------------------------------------------------------------------

    def _batches(self) -> list[Any]:
        directory = self.log_dir / str(PARTITION)
        return [
            batch_info(batch)
            for path in sorted(directory.glob(f"*{LOG}"))
            for batch in split_batches(without_room(path.read_bytes()))
        ]

    def _note_markers(self) -> None:
        """Note the markers that the writer has put there by itself."""
        directory = self.log_dir / str(PARTITION)
        for path in sorted(directory.glob(f"*{LOG}")):
            for batch in split_batches(without_room(path.read_bytes())):
                info = batch_info(batch)
                if info.attributes & _CONTROL and info.record_count:
                    committed = read_marker(batch)[0] == _COMMIT
                    self._truth.markers[info.base_offset] = (info.producer.producer_id, committed)

    def judge(self) -> None:
        """Hold the whole log against the truth."""
        self._clock.move_on(1)
        if not self._log.is_closed:
            self._manager.upkeep.remove_due()
        checkpoint = LogDir(self.fs, self.log_dir).cleaner_offsets.get(PARTITION, 0)
        directory = self.log_dir / str(PARTITION)
        for path in directory.glob("*.deleted"):
            path.unlink()  # those of an earlier life, which a load has removed, or a round will
        self._truth.judge(directory, checkpoint, head_from=max(checkpoint, self._cleaned_to))

    def close(self) -> None:
        """Close it, and judge."""
        self._manager.close()
        self.judge()
