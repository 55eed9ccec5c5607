"""Rounds that pack what they keep in another way: the same records, in the batches that the slow twin makes."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.config.forms import parse_recompression
from cleaner.errors import UncleanableError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.compression import compress
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, cases
from tests.property.rounds import cleaner_checkpoint, loaded, partition_files, replicated_at, write_case
from tests.reference.batches import CODECS, Rec, read_records
from tests.reference.log_state import LogState
from tests.reference.recompress import Pack, repacked
from tests.scratch import scratch_directory
from tests.support.log_builder import HIGH_WATERMARKS, offset_checkpoint

targets = st.sampled_from(["zstd", "zstd:1", "zstd:19", "lz4", "none"])
limits = st.sampled_from(["150", "400", "1048588", "1048588"])


def packing(target: str) -> tuple[str, Pack, bool]:
    """Return the codec that a text asks for, what packs with it, and whether a level is asked for."""
    found = parse_recompression(target)
    assert found is not None

    def pack(records: bytes) -> bytes:
        out = GrowingBuffer()
        return out.view[: compress(found.codec, memoryview(bytearray(records)), out, 0, found.level)].tobytes()

    return CODECS[found.codec], pack, found.level is not None


def all_records(state: LogState) -> list[tuple[Rec, bool, int, int, int | None]]:
    """Return all records in order, with what their batches say of each: marker or not, producer, epoch, horizon."""
    return [
        (record, batch.control, batch.producer_id, batch.leader_epoch, batch.delete_horizon)
        for segment in state.segments
        for batch in segment.batches
        for record in read_records(batch)
    ]


def clean(case: Case, log_dir: Path, limit: str, recompress: str | None) -> cleaner.CleanReport:
    """Clean a case's log dir once."""
    values = case.settings | {"max.message.bytes": limit}
    return cleaner.clean(log_dir, str(PARTITION), values, now_ms=FIRST_ROUND_MS, recompress=recompress)


def prove(case: Case, before: Path, after: Path, *, recompressed: bool = False) -> list[tuple[str, int]]:
    """Return what `verify` finds, without the places."""
    values = {key: value for key, value in case.settings.items() if key != "cleaner.kafka.version"}
    report = cleaner.verify(
        before, after, str(PARTITION), values, now_ms=FIRST_ROUND_MS, recompressed=recompressed, memory_bytes=1 << 22
    )
    return [(finding.kind, finding.offset) for finding in report.findings]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), targets, limits)
def test_packing_is_what_the_twin_makes_of_a_usual_round(case: Case, target: str, limit: str) -> None:
    """Byte for byte; a second time nothing is packed again."""
    with scratch_directory() as root:
        usual, packed = root / "usual", root / "packed"
        log = write_case(case, usual)
        marks = offset_checkpoint({PARTITION: replicated_at(case, log, case.replicated_percent[0])})
        (usual / HIGH_WATERMARKS).write_bytes(marks)
        shutil.copytree(usual, packed)
        shutil.copytree(usual, root / "before")
        try:
            report = clean(case, usual, limit, None)
            other = clean(case, packed, limit, target)
        except UncleanableError:
            assume(False)
        assert cleaner_checkpoint(packed) == cleaner_checkpoint(usual)
        assert other.removed == report.removed
        codec, pack, again = packing(target)
        files, times = partition_files(usual)
        packed_files, packed_times = partition_files(packed)
        assert all_records(loaded(packed, case)) == all_records(loaded(usual, case))
        if other.rounds and len(packed_times) == len(times):
            end = other.end_offset
            expected = {
                name: repacked(data, codec, pack, int(limit), again=again) if int(name[:20]) < end else data
                for name, data in files.items()
                if name.endswith(".log")
            }
            assert {name: packed_files[name] for name in expected} == expected
            assert packed_times == times
        if not prove(case, root / "before", usual):
            assert not prove(case, root / "before", packed, recompressed=True)
        if other.rounds_remaining:
            return
        try:
            second = clean(case, packed, limit, target)
        except UncleanableError as error:  # what is unpacked may have more index entries than fit
            assert "segment.index.bytes" in str(error)
            return
        again_files, again_times = partition_files(packed)
        assert all_records(loaded(packed, case)) == all_records(loaded(usual, case))
        if len(again_times) == len(packed_times):
            kept = {name: data for name, data in packed_files.items() if name.endswith((".log", ".txnindex"))}
            assert {name: again_files.get(name) for name in kept} == kept
            assert second.batches_packed == 0
