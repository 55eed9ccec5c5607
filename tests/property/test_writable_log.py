"""
A log written to, cleaned, cut, expired and crashed in any order, on a disk that forgets; held against a small truth.

The truth (`tests/coexistence/truth.py`) is a list of what was appended and what became of it. A crash is a power cut at
some moment of the last step, or right after it: of what was not fsynced anything may be lost, in any order. Whatever
was acknowledged as durable before has to be there when the log dir is opened again.
"""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cleaner.api.clean_log_dir import clean_log_dir
from cleaner.api.options import CleanOptions, Sources, Surroundings
from cleaner.api.reports import Refusal
from cleaner.logs.log_producer import LogProducer
from cleaner.logs.manager import LogManager
from cleaner.logs.record import Record
from cleaner.model import TopicPartition
from cleaner.storage.log import list_segments
from cleaner.storage.log_dir import LogDir
from cleaner.storage.names import LOG
from cleaner.testing.batch_reader import batch_info, read_marker, split_batches
from cleaner.testing.forgetful_fs import ForgetfulFileSystem
from cleaner.testing.manual_clock import ManualClock
from tests.coexistence.truth import Truth
from tests.scratch import scratch_directory

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

keys = st.sampled_from("abcdef")
values = st.sampled_from(("", "v", "w" * 40, "x" * 300, None))
some_records = st.lists(st.tuples(keys, values), min_size=1, max_size=6)


class WritableLog(RuleBasedStateMachine):
    """See the head of the file."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._root = self._stack.enter_context(scratch_directory())
        self._clock = ManualClock()
        self._crashes = 0
        self._producer: LogProducer | None = None
        self._truth = Truth()
        self._durable = 0
        self._cleaned_to = 0  # up to where rounds may have removed something, whether they came to their end or not
        # As they were when the last step began: the journal, what was durable then, and what a cut was to take away.
        self._step_at = 0
        self._durable_before = 0
        self._before_cut: tuple[Truth, int] | None = None

    @initialize(compression=st.sampled_from(("producer", "lz4")))
    def create(self, compression: str) -> None:
        """Make the topic; the disk begins to forget after that."""
        log_dir = self._root / "0"
        with LogManager(log_dir, SETTINGS, create=True, cleaner=False, tasks=False, clock=self._clock) as manager:
            manager.create_topic(PARTITION.topic, settings={"compression.type": compression})
        self._reopen(log_dir)

    def _reopen(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._fs = ForgetfulFileSystem(log_dir)
        self._manager = LogManager(log_dir, SETTINGS, cleaner=False, tasks=False, clock=self._clock, fs=self._fs)
        self._log = self._manager.log(PARTITION.topic)
        self._producer = None
        # Opening is a step of its own.
        self._step_at, self._durable_before, self._before_cut = 0, self._durable, None

    # ---- steps -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _step(self) -> Iterator[None]:
        self._step_at = len(self._fs.journal)
        self._durable_before = self._durable
        self._before_cut = None
        yield
        # What was forced to disk on the way (a roll does) is acknowledged when the step has ended.
        self._note_durable()

    def _note_durable(self) -> None:
        self._durable = max(self._durable, self._log.high_watermark)
        self._take("flush", end=self._durable)

    def _take(self, op: str, **note: Any) -> None:
        self._truth.take({"op": op, **note})

    @rule(records=some_records)
    def append(self, records: list[tuple[str, str | None]]) -> None:
        """Append outside of transactions."""
        with self._step():
            self._append(records, None)

    @rule(records=some_records)
    def append_in_transaction(self, records: list[tuple[str, str | None]]) -> None:
        """Append in a transaction, which is begun if none is open."""
        with self._step():
            if self._producer is None:
                self._producer = self._log.producer("mine")
                self._note_markers()
            if not self._producer.is_in_transaction:
                self._producer.begin()
            self._append(records, self._producer)

    def _append(self, records: list[tuple[str, str | None]], producer: LogProducer | None) -> None:
        base = self._log.log_end_offset
        named = [(key, None if value is None else f"{value} at {base + at}") for at, (key, value) in enumerate(records)]
        producer_id = -1 if producer is None else producer.identity.producer_id
        self._take("append", base=base, records=named, producer=producer_id)
        made = [Record(key.encode(), None if value is None else value.encode()) for key, value in named]
        assert (producer or self._log).append(made).base_offset == base

    @precondition(lambda self: self._producer is not None and self._producer.is_in_transaction)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        """Commit or abort."""
        assert self._producer is not None
        producer_id = self._producer.identity.producer_id
        with self._step():
            self._take("marker", base=self._log.log_end_offset, producer=producer_id, commit=commit)
            (self._producer.commit() if commit else self._producer.abort()).result()

    @rule()
    def flush(self) -> None:
        """Have all of it acknowledged."""
        with self._step():
            assert self._log.flush() == self._log.log_end_offset

    @rule()
    def roll(self) -> None:
        """Begin a segment."""
        with self._step():
            self._log.roll()

    @rule()
    def note_offsets(self) -> None:
        """Write the checkpoints."""
        with self._step():
            self._manager.upkeep.note_all()

    @rule(seconds=st.sampled_from((1, 20, 70)))
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

    @rule()
    def clean(self) -> None:
        """Clean beside the writer, as another process would."""
        self._manager.upkeep.note_high_watermarks()
        self._cleaned_to = max(
            self._cleaned_to, list_segments(self._fs, self._log_dir / str(PARTITION))[-1].base_offset
        )
        sources = Sources.of_call(PARTITION.topic, SETTINGS, None, None)
        lent = Surroundings(fs=self._fs, clock=self._clock)
        with self._step():
            for outcome in clean_log_dir(self._log_dir, [str(PARTITION)], sources, CleanOptions(), lent):
                assert not isinstance(outcome, Refusal), outcome
        self._judge()

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """Cut the log at some batch; what was replicated may go too."""
        places = sorted({info.base_offset for info in self._batches()} | {self._log.log_end_offset})
        places = [place for place in places if place >= self._log.log_start_offset]
        to = places[int(share * (len(places) - 1))]
        with self._step():
            self._before_cut = copy.deepcopy(self._truth), self._cleaned_to
            self._durable = self._durable_before = min(self._durable, to)
            self._take("open", end=to)
            self._log.truncate_to(to)
            end = self._end_of_what_was_written()
            assert end <= to
            # What cleaning has left of the records below may end before them.
            self._durable = self._durable_before = min(self._durable, end)
            self._cleaned_to = min(self._cleaned_to, end)
            self._take("open", end=end)
            self._note_markers()
        self._producer = None

    @rule()
    def stop_and_start(self) -> None:
        """Close in order, and open again."""
        self._manager.close()
        self._note_markers()
        end = self._log.log_end_offset
        self._durable = end
        self._take("flush", end=end)
        self._judge()
        self._fs_of_a_clean_stop_forgets_nothing()
        self._manager.abandon()
        self._reopen(self._log_dir)
        assert self._log.leader_epoch >= 0
        self._after_opening(least=end)

    def _fs_of_a_clean_stop_forgets_nothing(self) -> None:
        """Whatever the disk may forget now, the marker promises that a start without recovery finds all of it."""
        point = len(self._fs.journal)
        for number, state in enumerate(self._fs.states_at(point, limit=4, seed=self._crashes)):
            crashed = self._root / f"stopped-{self._crashes}-{number}"
            state.write_to(crashed)
            with LogManager(crashed, SETTINGS, cleaner=False, tasks=False, clock=self._clock) as manager:
                assert manager.log(PARTITION.topic).log_end_offset >= self._durable, state.note
            shutil.rmtree(crashed)

    @rule(moment=st.floats(0, 1), choice=st.floats(0, 1), seed=st.integers(0, 1 << 30))
    def crash(self, moment: float, choice: float, seed: int) -> None:
        """Cut the power, in the last step or after it, and open what is left."""
        points = [point for point in self._fs.crash_points() if point >= self._step_at]
        point = points[int(moment * (len(points) - 1))]
        least = self._durable if point == len(self._fs.journal) else self._durable_before
        states = list(self._fs.states_at(point, limit=8, seed=seed))
        state = states[int(choice * (len(states) - 1))]
        note(f"{state.note}; at least {least} is durable")
        self._manager.abandon()
        self._crashes += 1
        log_dir = self._root / str(self._crashes)
        state.write_to(log_dir)
        shutil.rmtree(self._log_dir)
        self._durable = least
        if self._before_cut is not None and point < len(self._fs.journal):
            self._truth, self._cleaned_to = self._before_cut
        self._reopen(log_dir)
        self._after_opening(least=least)
        self._judge()

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
        directory = self._log_dir / str(PARTITION)
        return [
            batch_info(batch)
            for path in sorted(directory.glob(f"*{LOG}"))
            for batch in split_batches(path.read_bytes())
        ]

    def _note_markers(self) -> None:
        """Note the markers that the writer has put there by itself."""
        directory = self._log_dir / str(PARTITION)
        for path in sorted(directory.glob(f"*{LOG}")):
            for batch in split_batches(path.read_bytes()):
                info = batch_info(batch)
                if info.attributes & _CONTROL and info.record_count:
                    committed = read_marker(batch)[0] == _COMMIT
                    self._truth.markers[info.base_offset] = (info.producer.producer_id, committed)

    @rule()
    def judge(self) -> None:
        """Hold the whole log against the truth."""
        self._judge()

    def _judge(self) -> None:
        self._clock.move_on(1)
        if not self._log.is_closed:
            self._manager.upkeep.remove_due()
        checkpoint = LogDir(self._fs, self._log_dir).cleaner_offsets.get(PARTITION, 0)
        directory = self._log_dir / str(PARTITION)
        for path in directory.glob("*.deleted"):
            path.unlink()  # those of an earlier life, which a load has removed, or a round will
        self._truth.judge(directory, checkpoint, head_from=max(checkpoint, self._cleaned_to))

    def teardown(self) -> None:
        """Judge, and let go."""
        try:
            if hasattr(self, "_manager"):
                self._manager.close()
                self._judge()
        finally:
            self._stack.close()


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_log_holds_what_was_acknowledged_whatever_happens() -> None:
    """No step and no crash in it loses what was durable, brings back what was superseded, or leaves a hole."""
    run_state_machine_as_test(WritableLog, settings=_settings(40, 30))


@pytest.mark.slow
def test_log_holds_what_was_acknowledged_whatever_happens_long_form() -> None:
    """Thousands of steps."""
    run_state_machine_as_test(WritableLog, settings=_settings(300, 50))
