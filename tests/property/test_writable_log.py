"""
A log written to, cleaned, cut, expired and crashed in any order, on a disk that forgets; compared with a simple model.

A crash is a power cut at some moment of the last step, or right after it: any changes that were not fsynced may be
lost, in any order. `modelled_log.py` has the rules that must hold then.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.property.modelled_log import ModelledLog, Pairs
from tests.scratch import scratch_directory
from tests.support.forgetful_fs import ForgetfulFileSystem

keys = st.sampled_from("abcdef")
values = st.sampled_from(("", "v", "w" * 40, "x" * 300, None))
some_records = st.lists(st.tuples(keys, values), min_size=1, max_size=6)


class ForgottenLog(ModelledLog):
    """A log on a disk that forgets."""

    fs: ForgetfulFileSystem

    def __init__(self, root: Path, compression: str, preallocate: str) -> None:
        self._root = root
        self._crashes = 0
        self._step_at = 0
        super().__init__(root / "0", compression, {"preallocate": preallocate})

    def new_disk(self) -> ForgetfulFileSystem:
        """Return a disk that remembers what was there before."""
        return ForgetfulFileSystem(self.log_dir)

    def begin_step(self) -> None:
        """Note how things stand before a step."""
        super().begin_step()
        self._step_at = len(self.fs.journal)

    def has_stopped(self) -> None:
        """Whatever the disk may forget now, a start without recovery finds all of it."""
        point = len(self.fs.journal)
        for number, state in enumerate(self.fs.states_at(point, limit=4, seed=self._crashes)):
            stopped = self._root / f"stopped-{self._crashes}-{number}"
            state.write_to(stopped)
            assert self.opens_whole(stopped), state.note
            shutil.rmtree(stopped)

    def crash(self, moment: float, choice: float, seed: int) -> None:
        """Cut the power, in the last step or after it, and open what is left."""
        points = [point for point in self.fs.crash_points() if point >= self._step_at]
        point = points[int(moment * (len(points) - 1))]
        states = list(self.fs.states_at(point, limit=8, seed=seed))
        state = states[int(choice * (len(states) - 1))]
        is_in_step = point < len(self.fs.journal)
        note(f"{state.note}; at least {self.min_after_crash(is_in_step=is_in_step)} is durable")
        self.abandon()
        self._crashes += 1
        crashed = self._root / str(self._crashes)
        state.write_to(crashed)
        shutil.rmtree(self.log_dir)
        self.after_crash(crashed, is_in_step=is_in_step)


class WritableLog(RuleBasedStateMachine):
    """Its steps in any order."""

    log: ForgottenLog

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()

    @initialize(compression=st.sampled_from(("producer", "lz4")), preallocate=st.sampled_from(("false", "true")))
    def create(self, compression: str, preallocate: str) -> None:
        """Make the topic; the disk begins to forget after that."""
        self.log = ForgottenLog(self._stack.enter_context(scratch_directory()), compression, preallocate)

    @rule(records=some_records, wait=st.booleans())
    def append(self, records: Pairs, wait: bool) -> None:
        """Append."""
        self.log.append(records, wait=wait)

    @rule(records=some_records)
    def append_in_transaction(self, records: Pairs) -> None:
        """Begin a transaction, if none is open, and append."""
        self.log.append_in_transaction(records)

    @precondition(lambda self: self.log.is_in_transaction)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        """Commit or abort."""
        self.log.end_transaction(commit)

    @rule()
    def flush(self) -> None:
        """Have all of it acknowledged."""
        self.log.flush()

    @rule()
    def roll(self) -> None:
        """Begin a segment."""
        self.log.roll()

    @rule()
    def note_offsets(self) -> None:
        """Write the checkpoints."""
        self.log.note_offsets()

    @rule()
    def clean(self) -> None:
        """Clean while the writer is at work."""
        self.log.clean()

    @rule()
    def stop_and_start(self) -> None:
        """Close in order, and open again."""
        self.log.stop_and_start()

    @rule()
    def judge(self) -> None:
        """Hold the log against the truth."""
        self.log.judge()

    @rule(seconds=st.sampled_from((1, 20, 70)))
    def time_passes(self, seconds: int) -> None:
        """Let time pass, and what has become too old go."""
        self.log.time_passes(seconds)

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        """Cut the log."""
        self.log.cut(share)

    @rule(moment=st.floats(0, 1), choice=st.floats(0, 1), seed=st.integers(0, 1 << 30))
    def crash(self, moment: float, choice: float, seed: int) -> None:
        """Cut the power."""
        self.log.crash(moment, choice, seed)

    def teardown(self) -> None:
        """Judge and close."""
        try:
            if hasattr(self, "log"):
                self.log.close()
        finally:
            self._stack.close()


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_log_keeps_every_acknowledged_record() -> None:
    """No step and no crash in it loses what was durable, brings back what was superseded, or leaves a hole."""
    run_state_machine_as_test(WritableLog, settings=_settings(40, 30))


@pytest.mark.slow
def test_log_keeps_every_acknowledged_record_long_form() -> None:
    """Thousands of steps."""
    run_state_machine_as_test(WritableLog, settings=_settings(300, 50))
