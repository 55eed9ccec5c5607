"""`erase` leaves the files that the slow twin leaves, whatever is in a log and whatever is erased."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from tests.golden.comparison import contents, differences
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, build, cases
from tests.property.rounds import comparable, offset_at, partition_files, twin_settings
from tests.reference.batches import Unbuildable, read_batches
from tests.reference.erasing import Wanted, erase_segment
from tests.reference.log_state import LogState, Segment, load
from tests.reference.segment_writer import IndexFull
from tests.scratch import scratch_directory
from tests.support.log_builder import write_log_dir

pytestmark = pytest.mark.kernels

choices = st.one_of(
    st.tuples(st.just("keys"), st.sets(st.sampled_from([b"", *(b"k%d" % i for i in range(8))]), min_size=1)),
    st.tuples(st.just("prefixes"), st.sampled_from([{b"k"}, {b"k1", b"k2"}, {b"k3", b"nothing"}])),
    st.tuples(st.just("offsets"), st.tuples(st.integers(0, 100), st.integers(0, 100)).map(sorted)),
)


def wanted_of(kind: str, what: Collection[object], state: LogState, offsets: tuple[int, int]) -> Wanted:
    """Return what is erased, for the twin."""
    known = state.producers.values()
    ends = {state.log_end - 1, *(each.last_data_offset for each in known)}
    return Wanted(
        is_key=lambda key: kind != "offsets" and (key in what if kind == "keys" else key.startswith(tuple(what))),  # type: ignore[arg-type]
        is_offset=lambda offset: kind == "offsets" and offsets[0] <= offset <= offsets[1],
        kept_ends=ends - {-1},
        kept_starts={each.txn_first_offset for each in known} - {-1},
    )


def files_of(segment: Segment) -> dict[str, bytes]:
    """Return a segment's files by name."""
    name = f"{segment.base_offset:020d}"
    found = {".log": segment.log, ".index": segment.index, ".timeindex": segment.time_index}
    return {name + suffix: data for suffix, data in found.items()}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(), rolls_last=st.booleans(), choice=choices)
def test_erase_leaves_the_twins_files(case: Case, rolls_last: bool, choice: tuple[str, Collection[object]]) -> None:
    """Every file and time; a second call changes nothing; and nothing is left for the proof to find."""
    kind, what = choice
    with scratch_directory() as root:
        log_dir = Path(root) / "logs"
        log = build(case.operations, case.settings, case.base_offset, rolls_last=rolls_last)
        start = {} if case.start_percent is None else {PARTITION: offset_at(log, case.start_percent)}
        checkpoint = {PARTITION: log.next_offset // 2}
        write_log_dir(log_dir, log, log_start_offsets=start, cleaner_offsets=checkpoint)
        files, times = partition_files(log_dir)
        twin = twin_settings(case.settings)
        state = load(files, times, twin, FIRST_ROUND_MS, start.get(PARTITION, 0), None)
        first, last = (offset_at(log, each) for each in what) if kind == "offsets" else (0, 0)  # type: ignore[arg-type]
        wanted = wanted_of(kind, what, state, (first, last))
        expected, is_refused = dict(files), False
        try:
            for segment in state.segments:
                erased = erase_segment(segment, wanted, twin)
                expected |= {} if erased is None else files_of(erased)
        except (IndexFull, Unbuildable):
            is_refused = True

        before = contents(log_dir)
        arguments = {"offsets": (first, last)} if kind == "offsets" else {kind: what}

        def erase(**options: object) -> cleaner.EraseReport | cleaner.Refusal:
            named: dict[str, Any] = {"settings": case.settings, "now_ms": FIRST_ROUND_MS, **arguments, **options}
            (outcome,) = cleaner.erase(log_dir, ["topic-0"], **named)
            return outcome

        counted = erase(dry_run=True)
        assert contents(log_dir) == before
        outcome = erase()
        if is_refused:
            assert isinstance(outcome, cleaner.Refusal) and isinstance(counted, cleaner.Refusal)
            assert contents(log_dir) == before
            return
        assert isinstance(outcome, cleaner.EraseReport) and isinstance(counted, cleaner.EraseReport), outcome
        assert outcome.files == counted.files
        after, times_after = partition_files(log_dir)
        source = {b.raw for name, data in files.items() if name.endswith(".log") for b in read_batches(data)}
        assert not differences(
            comparable(expected, start.get(PARTITION, 0)),
            comparable(after, start.get(PARTITION, 0)),
            compressed=True,
            source_batches=source,
            index_interval_bytes=twin.index_interval_bytes,
        )
        assert times_after == times
        assert {each.path for each in outcome.files} == {
            str(log_dir.resolve() / "topic-0" / name)
            for name in files
            if name.endswith(".log") and files[name] != expected[name]
        }
        again = contents(log_dir)
        assert erase().records == 0  # type: ignore[union-attr]
        assert contents(log_dir) == again
        if kind != "offsets":
            found = cleaner.prove_erased([log_dir], **{kind: what}, mentions="off")  # type: ignore[arg-type]
            assert found.result == "proven", found.found
        assert not [each for each in cleaner.check(log_dir, settings=case.settings).findings if each.is_damage]
