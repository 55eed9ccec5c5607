"""The output for a batch: copied, rebuilt field by field, kept empty, or refused (R-560 to R-578)."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleaner.base.model import Removed
from cleaner.cleaning.recopy import retained as retained_module
from cleaner.cleaning.recopy.retained import CopyCounts, RetainedWriter
from cleaner.cleaning.recopy.survivors import BlockRetention
from cleaner.errors import CorruptBatchError, UncleanableError
from cleaner.format.records import Unpacker
from cleaner.kernels import retain as kernel
from cleaner.kernels.offset_map import DISCARDED, EXPIRED_TOMBSTONE, KEEP, KEEP_TOMBSTONE, KEYLESS, SUPERSEDED
from tests.reference.batches import read_batches, read_records, rebuild_empty
from tests.reference.record_filter import BatchRetention
from tests.support.batch_builder import (
    Producer,
    Record,
    data_batch,
    empty_batch,
    encode_record,
    legacy_batch,
    legacy_entry,
    marker_batch,
    varint,
)
from tests.support.batch_reader import split_batches
from tests.support.codecs import CODEC_IDS, compress
from tests.unit.cleaning.retaining import NOW_MS, PATH, keeping, only_chunk, records_of, retain, slow_rebuild

pytestmark = pytest.mark.kernels

CODECS = tuple(CODEC_IDS)
TIME = 1_700_000_000_000
RECORDS = [
    Record(b"a", b"one", 100, TIME + 5),
    Record(b"b", None, 101, TIME + 9, ((b"h", b"x"), (b"h", None))),
    Record(b"c", b"three" * 50, 104, TIME + 2),
    Record(b"d", b"", 106, TIME + 7),
]


def full_batch(codec: str = "none", **options: object) -> bytes:
    """Build a batch with a value in every field."""
    values: dict[str, object] = {
        "codec": codec,
        "producer": Producer(4711, 3, 17, True),
        "leader_epoch": 12,
        "last_offset": 109,
    }
    return data_batch(RECORDS, 100, **(values | options))  # type: ignore[arg-type]


def equal_except_packing(found: bytes, expected: bytes) -> bool:
    """Compare two batches: all fields except length and CRC, and the records; all bytes if nothing is packed."""
    (one,), (other,) = read_batches(found), read_batches(expected)
    if one.codec == "none":
        return found == expected
    same_header = found[:8] + found[12:17] + found[21:61] == expected[:8] + expected[12:17] + expected[21:61]
    return same_header and read_records(one) == read_records(other)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("attributes", [0, 0x80, 0x7F00])
def test_batch_that_keeps_all_is_copied_verbatim(codec: str, attributes: int) -> None:
    """Every byte, also unused attribute bits (R-562)."""
    batch = data_batch(RECORDS[2:], 100, codec=codec, overrides={"attributes": CODEC_IDS[codec] | attributes})
    found = retain(batch, [keeping(batch, 0, 1)])
    assert found.data == batch
    assert found.rows == [(len(batch), 106, TIME + 7)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [(0,), (2,), (3,), (0, 2), (0, 3), (2, 3), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("append_time_ms", [None, TIME + 60_000], ids=["create-time", "append-time"])
def test_rebuilt_batch_is_the_slow_builders(codec: str, kept: tuple[int, ...], append_time_ms: int | None) -> None:
    """Every field of R-570 to R-574: offsets, epochs, sequence, flags, both timestamps, deltas, count, CRC."""
    batch = full_batch(codec, append_time_ms=append_time_ms)
    found = retain(batch, [keeping(batch, *kept)])
    assert equal_except_packing(found.data, slow_rebuild(batch, kept))
    (rebuilt,) = found.batches
    assert (rebuilt.base_offset, rebuilt.last_offset, rebuilt.leader_epoch) == (100, 109, 12)
    assert (rebuilt.producer_id, rebuilt.producer_epoch, rebuilt.base_sequence) == (4711, 3, 17)
    assert (rebuilt.transactional, rebuilt.control, rebuilt.codec) == (True, False, codec)
    assert rebuilt.count == len(kept)
    times = [RECORDS[i].timestamp_ms or 0 for i in kept]
    if append_time_ms is None:
        assert (rebuilt.base_timestamp, rebuilt.max_timestamp) == (times[0], max(times))
    else:
        assert (rebuilt.base_timestamp, rebuilt.max_timestamp) == (append_time_ms, append_time_ms)
    assert found.rows == [(len(found.data), 109, rebuilt.max_timestamp)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [(1,), (0, 1), (0, 1, 2, 3)], ids=str)
def test_kept_tombstone_gives_the_batch_a_horizon(codec: str, kept: tuple[int, ...]) -> None:
    """Also if all records stay: bit 6, the horizon as base timestamp, deltas from there (R-561, R-563, R-573)."""
    batch = full_batch(codec)
    found = retain(batch, [keeping(batch, *kept)], new_horizon_ms=NOW_MS + 1)
    assert equal_except_packing(found.data, slow_rebuild(batch, kept, NOW_MS + 1))
    assert found.batches[0].delete_horizon == NOW_MS + 1


def test_horizon_a_batch_has_is_kept_and_not_moved() -> None:
    """Neither a tombstone nor its removal changes it (R-563)."""
    batch = full_batch(delete_horizon_ms=TIME + 333)
    for kept in [(0, 1), (0,)]:
        found = retain(batch, [keeping(batch, *kept)])
        assert found.data == slow_rebuild(batch, kept, TIME + 333)
        assert found.batches[0].delete_horizon == TIME + 333
    assert retain(batch, [keeping(batch, 0, 1, 2, 3)]).data == batch


def test_negative_new_horizon_rebuilds_without_one() -> None:
    """now + delete.retention.ms wrapped around: no flag is written, yet the batch is rebuilt (R-568)."""
    batch = full_batch(overrides={"attributes": 0x7F10})
    found = retain(batch, [keeping(batch, 0, 1, 2, 3)], new_horizon_ms=-5)
    assert found.data == slow_rebuild(batch, (0, 1, 2, 3))
    assert found.data != batch
    assert found.batches[0].delete_horizon is None


def test_marker_without_data_gets_a_horizon() -> None:
    """It may go from then on (R-542, R-561); one that has a horizon is copied."""
    marker = marker_batch(7, 1, 0, commit=False)
    found = retain(marker, [[KEEP]], is_empty_marker=[1])
    assert found.data == slow_rebuild(marker, (0,), NOW_MS)
    again = retain(found.data, [[KEEP]], is_empty_marker=[1], new_horizon_ms=NOW_MS + 9)
    assert again.data == found.data


def test_unused_attribute_bits_are_lost_in_a_rebuild() -> None:
    """A rewritten header has zeros in bits 7 to 15 (R-210, R-571)."""
    batch = data_batch(RECORDS, 100, overrides={"attributes": 0x7F80 | 0x08})
    found = retain(batch, [keeping(batch, 0)])
    assert found.data[21:23] == b"\x00\x08"
    assert found.data == slow_rebuild(batch, (0,))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "batch_options",
    [{}, {"append_time_ms": TIME + 9}, {"delete_horizon_ms": TIME + 4}, {"control": True}],
    ids=["plain", "append-time", "horizon", "control"],
)
def test_empty_header_keeps_identity_and_drops_codec_and_horizon(codec: str, batch_options: dict[str, object]) -> None:
    """61 bytes: offsets, epoch, producer, sequence, maximum timestamp and three flags (R-575)."""
    batch = full_batch(codec, **batch_options)
    found = retain(batch, [[SUPERSEDED] * 4], retention=[BatchRetention.KEEP_EVEN_EMPTY])
    (read,) = read_batches(batch)
    assert found.data == rebuild_empty(read)
    assert len(found.data) == 61
    assert found.rows == [(61, 109, read.max_timestamp)]
    assert found.largest_offset == 109


def test_empty_batch_read_again_is_unchanged_or_removed() -> None:
    """It is treated like any other batch without survivors (R-564)."""
    batch = empty_batch(50, 59, producer=Producer(1, 0, 5), leader_epoch=2, log_append_time=True)
    assert retain(batch, [[]], retention=[BatchRetention.KEEP_EVEN_EMPTY]).data == batch
    assert retain(batch, [[]]).data == b""


def test_batch_that_keeps_nothing_goes() -> None:
    """Nothing of it is written (R-564); a dropped batch is not even read (R-541)."""
    log = full_batch() + data_batch([Record(b"z", b"z")], 110)
    found = retain(log, [[SUPERSEDED] * 4, [KEEP]])
    assert found.data == log[len(full_batch()) :]
    dropped = retain(log, [[], [KEEP]], retention=[BatchRetention.DROP, BatchRetention.KEEP_IF_NOT_EMPTY])
    assert dropped.data == found.data
    assert dropped.counts.removed.aborted == 4
    assert dropped.counts.messages_read == 1
    assert dropped.counts.bytes_read == len(log)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_counts_of_read_retained_and_removed_records_add_up(codec: str) -> None:
    """Each verdict has a counter; discarded records of a control batch are markers (R-560, R-718)."""
    records = [Record(b"k%d" % i, b"v") for i in range(6)]
    batch = data_batch(records, 0, codec=codec)
    marker = marker_batch(6, 1, 0, commit=True, delete_horizon_ms=TIME)
    verdicts = [[KEEP, SUPERSEDED, EXPIRED_TOMBSTONE, KEYLESS, DISCARDED, SUPERSEDED], [DISCARDED]]
    found = retain(batch + marker, verdicts)
    counts = found.counts
    assert (counts.messages_read, counts.messages_written) == (7, 1)
    assert (counts.bytes_read, counts.bytes_written) == (len(batch + marker), len(found.data))
    removed = counts.removed
    assert (removed.superseded, removed.tombstones, removed.keyless) == (2, 1, 1)
    assert (removed.aborted, removed.markers) == (1, 1)


REFUSED = [
    pytest.param({"producer": Producer(-1, -1, -1, True)}, "no producer id", id="transactional-without-producer"),
    pytest.param({"producer": Producer(5, -1, 3)}, "no producer epoch", id="no-epoch"),
    pytest.param({"producer": Producer(5, 1, -1)}, "no sequence", id="no-sequence"),
    pytest.param({"producer": Producer(5, 1, -(2**31))}, "no sequence", id="sequence-negative"),
    pytest.param({"append_time_ms": -2}, "negative timestamp", id="append-time-negative"),
]


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize(("options", "reason"), REFUSED)
def test_rebuild_that_kafka_refuses_is_refused(codec: str, options: dict[str, object], reason: str) -> None:
    """Its builder raises for such a batch; copied whole or kept empty, the same batch passes (R-576)."""
    batch = full_batch(codec, **options)
    with pytest.raises(UncleanableError, match=reason):
        retain(batch, [keeping(batch, 0)])
    copied = data_batch(RECORDS[2:], 100, codec=codec, **options)  # type: ignore[arg-type]
    assert retain(copied, [[KEEP, KEEP]]).data == copied
    assert len(retain(batch, [[SUPERSEDED] * 4], retention=[BatchRetention.KEEP_EVEN_EMPTY]).data) == 61


@pytest.mark.parametrize("time", [-2, -(2**62)])
def test_record_with_negative_timestamp_is_refused_in_a_rebuild(time: int) -> None:
    """Only -1 means none; a removed record may have any (R-576)."""
    batch = data_batch([Record(b"a", b"v", 0, time), Record(b"b", b"v", 1, TIME)], 0)
    with pytest.raises(UncleanableError, match=r"negative timestamp \(R-576\)"):
        retain(batch, [keeping(batch, 0)])
    assert retain(batch, [keeping(batch, 1)]).data == slow_rebuild(batch, (1,))


def test_record_without_timestamp_is_rebuilt() -> None:
    """-1 is allowed and makes base and maximum -1 (R-573, R-574)."""
    batch = data_batch([Record(b"a", b"v", 0, -1), Record(b"b", b"v", 1, TIME)], 0)
    found = retain(batch, [keeping(batch, 0)])
    assert found.data == slow_rebuild(batch, (0,))
    assert (found.batches[0].base_timestamp, found.batches[0].max_timestamp) == (-1, -1)


def test_control_batch_without_sequence_is_rebuilt() -> None:
    """Markers never have one (R-576)."""
    marker = marker_batch(7, 1, 0, commit=True)
    assert retain(marker, [[KEEP]], is_empty_marker=[1]).batches[0].base_sequence == -1


def test_legacy_batch_too_far_spread_is_refused() -> None:
    """Its offsets must fit one batch once converted (R-576)."""
    inner = legacy_entry(0, b"a", b"v", 1, TIME) + legacy_entry(2**31, b"b", b"v", 1, TIME)
    wrapper = legacy_wrapper(inner, 2**31, 1)
    with pytest.raises(CorruptBatchError, match=r"2\*\*31 - 1 apart"):
        retain(wrapper, [[KEEP, KEEP]])


def test_every_refusal_of_the_kernel_has_words() -> None:
    """Each names the rule by which Kafka's own cleaner would fail."""
    refusals = {
        value
        for name, value in vars(kernel).items()
        if name.startswith("RETAIN_") and value > kernel.RETAIN_ODD_BYTES
    }  # fmt: skip
    assert set(retained_module._REFUSALS) == refusals
    assert all(re.search(r"R-[5]\d\d", words) for words in retained_module._REFUSALS.values())


def legacy_wrapper(inner: bytes, offset: int, magic: int) -> bytes:
    """Wrap entries into one compressed entry."""
    return legacy_entry(offset, None, compress("gzip", inner, magic), magic, TIME, CODEC_IDS["gzip"])


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[:4])
@pytest.mark.parametrize("kept", [(0, 1, 2), (1,), (0, 2)], ids=str)
def test_legacy_batch_becomes_one_of_magic_2(magic: int, codec: str, kept: tuple[int, ...]) -> None:
    """Also if all records stay; base and last offset are those of the first and last kept (R-577, R-578)."""
    records = [Record(b"k%d" % i, b"v%d" % i, 100 + 2 * i, TIME + i) for i in range(3)]
    batch = legacy_batch(records, 100, magic, codec=codec)
    entries = read_batches(batch)
    per_entry = len(entries) > 1
    verdicts = [[KEEP if i in kept else SUPERSEDED] for i in range(3)] if per_entry else [keeping(batch, *kept)]
    found = retain(batch, verdicts)
    if per_entry:
        expected = b"".join(slow_rebuild(entries[i].raw, (0,)) for i in kept)
        assert found.data == expected
    else:
        assert equal_except_packing(found.data, slow_rebuild(batch, kept))
        (rebuilt,) = found.batches
        assert (rebuilt.base_offset, rebuilt.last_offset) == (100 + 2 * kept[0], 100 + 2 * kept[-1])
    assert {b.magic for b in found.batches} == {2}
    assert {b.leader_epoch for b in found.batches} == {-1}


def test_legacy_batch_with_log_append_time_keeps_its_type() -> None:
    """All records carry the wrapper's time (R-578)."""
    records = [Record(b"k%d" % i, b"v", 100 + i, TIME + i) for i in range(3)]
    batch = legacy_batch(records, 100, 1, codec="gzip", append_time_ms=TIME + 500)
    (rebuilt,) = retain(batch, [keeping(batch, 0, 2)]).batches
    assert (rebuilt.timestamp_type, rebuilt.base_timestamp, rebuilt.max_timestamp) == (1, TIME + 500, TIME + 500)


def test_legacy_tombstone_gets_its_horizon_when_converted() -> None:
    """In the same round that converts it (R-561)."""
    batch = legacy_batch([Record(b"k", None, 5, TIME)], 5, 1)
    assert retain(batch, [[KEEP_TOMBSTONE]]).data == slow_rebuild(batch, (0,), NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
def test_legacy_batch_cannot_be_kept_empty(magic: int) -> None:
    """Empty batches need magic 2 (R-546)."""
    batch = legacy_batch([Record(b"k", b"v", 5, TIME)], 5, magic)
    with pytest.raises(UncleanableError, match="R-546"):
        retain(batch, [[SUPERSEDED]], retention=[BatchRetention.KEEP_EVEN_EMPTY])


def odd_record(form: str) -> bytes:
    """Build a record whose bytes a rewrite changes, with offset delta 1 and key `b`."""
    headers = b"\x02" + varint(3) + b"\xed\xa0\x80" + varint(1) + b"x"
    content = {
        "attributes": b"\x05\x04\x02\x02b\x02v\x00",
        "long-time-delta": b"\x00\x84\x00\x02\x02b\x02v\x00",
        "long-offset-delta": b"\x00\x04\x82\x00\x02b\x02v\x00",
        "long-key-length": b"\x00\x04\x02\x82\x80\x00b\x02v\x00",
        "long-value-length": b"\x00\x04\x02\x02b\x82\x00v\x00",
        "long-header-count": b"\x00\x04\x02\x02b\x02v\x80\x00",
        "malformed-header-key": b"\x00\x04\x02\x02b\x02v" + headers,
        "null-value-long": b"\x00\x04\x02\x02b\x81\x00\x00",
        "long-length": b"\x00\x04\x02\x02b\x02v\x00",
    }[form]
    size = varint(len(content))
    return size[:-1] + bytes([size[-1] | 0x80]) + b"\0" + content if form == "long-length" else size + content


FORMS = [
    "attributes", "long-time-delta", "long-offset-delta", "long-key-length", "long-value-length", "long-header-count",
    "malformed-header-key", "null-value-long", "long-length",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_record_with_odd_bytes_is_written_as_kafka_writes_it(form: str, codec: str) -> None:
    """Shortest numbers, attributes 0, header keys as Java reads them (R-220, R-223); its neighbours are unchanged."""
    plain = encode_record(Record(b"a", b"v"), 0, 0), encode_record(Record(b"c", b"v"), 2, 1)
    payload = compress(codec, plain[0] + odd_record(form) + plain[1])
    batch = data_batch(
        [], 10, last_offset=12, payload=payload,
        overrides={"count": 3, "base_timestamp": TIME, "max_timestamp": TIME + 2, "attributes": CODEC_IDS[codec]},
    )  # fmt: skip
    neighbours = data_batch([Record(b"x", b"v"), Record(b"y", b"w")], 5), data_batch([Record(b"z", b"v")], 20)
    log = neighbours[0] + batch + neighbours[1]
    tombstone = form == "null-value-long"
    found = retain(log, [[SUPERSEDED, KEEP], [SUPERSEDED, KEEP_TOMBSTONE if tombstone else KEEP, KEEP], [KEEP]])
    expected = slow_rebuild(batch, (1, 2), NOW_MS if tombstone else -1)
    parts = [read.raw for read in found.batches]
    assert parts[0] == slow_rebuild(neighbours[0], (1,))
    assert equal_except_packing(parts[1], expected)
    assert parts[2] == neighbours[1]
    assert found.counts.messages_read == 6
    assert found.counts.messages_written == 4
    untouched = retain(batch, [[KEEP, KEEP, KEEP]])
    assert untouched.data == batch


def test_odd_bytes_of_a_removed_record_do_not_matter() -> None:
    """Only retained records are written."""
    batch = data_batch([Record(b"a", b"v", attributes=9), Record(b"b", b"v")], 10)
    assert retain(batch, [keeping(batch, 1)]).data == slow_rebuild(batch, (1,))


def test_output_larger_than_its_buffer_arrives_whole() -> None:
    """Many large batches, and one larger than the buffer: all bytes arrive in order."""
    rng = np.random.default_rng(1)
    batches, offset = [], 0
    for size in [300_000] * 9 + [5_000_000] + [700_000] * 3:
        values = [rng.bytes(size), b"small"]
        batches.append(data_batch([Record(b"k%d" % offset, value) for value in values], offset))
        offset += 2
    kept = [(0, 1), (0,), (1,)]
    verdicts = [keeping(batch, *kept[i % 3]) for i, batch in enumerate(batches)]
    found = retain(b"".join(batches), verdicts)
    expected = [
        batch if i % 3 == 0 else slow_rebuild(batch, kept[i % 3]) for i, batch in enumerate(batches)
    ]  # fmt: skip
    assert found.data == b"".join(expected)
    assert [row[0] for row in found.rows] == [len(batch) for batch in expected]
    assert found.counts.bytes_written == len(found.data)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_packed_output_larger_than_its_buffers_arrives_whole(codec: str) -> None:
    """Batches larger than what was rebuilt or written before, of bytes that packing makes longer."""
    rng = np.random.default_rng(1)
    batches = []
    for i, size in enumerate([50_000, 700_000, 700_000, 700_000, 3_000_000, 100_000]):
        values = [rng.bytes(size), b"small", rng.bytes(size)]
        records = [Record(b"k%d" % j, value) for j, value in enumerate(values)]
        batches.append(data_batch(records, 3 * i, codec=codec))
    kept = [(0, 2), (1, 2), (0, 1, 2)]
    found = retain(b"".join(batches), [keeping(batch, *kept[i % 3]) for i, batch in enumerate(batches)])
    written = split_batches(found.data)
    assert [row[0] for row in found.rows] == [len(batch) for batch in written]
    for i, (batch, result) in enumerate(zip(batches, written, strict=True)):
        if i % 3 == 2:
            assert result == batch
        else:
            assert equal_except_packing(result, slow_rebuild(batch, kept[i % 3]))


def test_writer_resets_for_each_chunk_and_sums_all_counts() -> None:
    """The next chunk's output begins at its first byte; the output of a failed chunk is gone, too."""
    good = data_batch([Record(b"a", b"v"), Record(b"b", b"w")], 0)
    bad = full_batch(producer=Producer(5, -1, 3))
    writer = RetainedWriter(NOW_MS)
    for round_number in range(1, 4):
        assert write_chunk(writer, good, keeping(good, 1)) == slow_rebuild(good, (1,))
        with pytest.raises(UncleanableError):
            write_chunk(writer, bad, keeping(bad, 0))
        assert write_chunk(writer, good, [SUPERSEDED] * 2) == b""
        assert (writer.counts.messages_read, writer.counts.messages_written) == (4 * round_number, round_number)
        assert writer.counts.removed.superseded == 3 * round_number


def write_chunk(writer: RetainedWriter, log: bytes, verdicts: list[int]) -> bytes:
    """Write the retained part of one batch as its own chunk."""
    chunk = only_chunk(log)
    none = np.zeros(1, np.uint8)
    writer.begin(1)
    for block in Unpacker(1 << 24).blocks(PATH, chunk):
        retention = BlockRetention(np.full(1, BatchRetention.KEEP_IF_NOT_EMPTY, np.int8), none, none, none, True)
        writer.write(PATH, block, retention, np.array(verdicts, np.uint8))
    output = writer.end()
    assert len(output.written) == bool(output.data)
    return bytes(output.data)


def test_counts_of_several_writers_add_up() -> None:
    """Each lane counts for itself."""
    one = CopyCounts(1, 2, 3, 4, Removed(5, 6, 7, 8, 9))
    other = CopyCounts(10, 20, 30, 40, Removed(50, 60, 70, 80, 90))
    assert CopyCounts.total([one, other]) == CopyCounts(11, 22, 33, 44, Removed(55, 66, 77, 88, 99))
    assert CopyCounts.total([]) == CopyCounts()
    assert one == CopyCounts(1, 2, 3, 4, Removed(5, 6, 7, 8, 9))


def test_batch_of_many_small_records_may_grow() -> None:
    """A horizon far from the timestamps makes every record longer (R-567, R-573)."""
    records = [Record(None, None, timestamp_ms=TIME + i % 3) for i in range(5000)]
    batch = data_batch(records, 0)
    found = retain(batch, [[KEEP_TOMBSTONE] * 5000], new_horizon_ms=2**62)
    assert found.data == slow_rebuild(batch, range(5000), 2**62)
    assert len(found.data) > len(batch) + 5000 * 7


times = st.one_of(st.integers(-1, 10), st.integers(0, 2**62), st.just(TIME))
records = st.builds(
    Record,
    key=st.one_of(st.none(), st.binary(max_size=70)),
    value=st.one_of(st.none(), st.binary(max_size=200)),
    timestamp_ms=times,
    headers=st.lists(
        st.tuples(st.binary(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=2
    ).map(tuple),
    attributes=st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip


@given(
    records=st.lists(records, min_size=1, max_size=8),
    steps=st.lists(st.sampled_from([1, 1, 2, 100, 2**28]), min_size=8, max_size=8),
    choice=st.integers(0, 255),
    codec=st.sampled_from(["none", "none", "none", "snappy"]),
    append_time_ms=st.one_of(st.none(), times),
    horizon_ms=st.one_of(st.none(), times.filter(lambda time: time >= 0)),
    new_horizon_ms=st.one_of(times, st.just(-5)),
)
def test_any_batch_is_written_as_the_slow_builder_writes_it(
    records: list[Record],
    steps: list[int],
    choice: int,
    codec: str,
    append_time_ms: int | None,
    horizon_ms: int | None,
    new_horizon_ms: int,
) -> None:
    """Any records, times and gaps: verbatim, rebuilt or gone, byte for byte."""
    placed = [record._replace(offset=50 + sum(steps[:i])) for i, record in enumerate(records)]
    batch = data_batch(
        placed, 50, codec=codec, append_time_ms=append_time_ms, delete_horizon_ms=horizon_ms,
        producer=Producer(9, 1, 4), leader_epoch=3,
    )  # fmt: skip
    kept = [i for i in range(len(placed)) if choice >> i & 1]
    found = retain(batch, [keeping(batch, *kept)], new_horizon_ms=new_horizon_ms)
    needs_horizon = horizon_ms is None and any(placed[i].value is None for i in kept)
    if not kept:
        assert found.data == b""
    elif len(kept) == len(placed) and not needs_horizon:
        assert found.data == batch
    else:
        horizon = new_horizon_ms if needs_horizon else -1 if horizon_ms is None else horizon_ms
        assert equal_except_packing(found.data, slow_rebuild(batch, kept, horizon))
        assert [record.offset for record in records_of(found.data)] == [placed[i].offset for i in kept]
