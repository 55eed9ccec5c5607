"""A round controlled from outside: stopping, watching, throttling, limits, the lock, and damage during the round."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.base.model import AbortedTxn
from cleaner.cleaning.context import RoundContext
from cleaner.cleaning.map.build_map import MapEnd
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.config.values import CleanerConfig
from cleaner.errors import (
    CleanerError,
    CleaningAborted,
    CorruptBatchError,
    CorruptIndexError,
    LogDirLockedError,
    LogDirOfflineError,
    NoSpaceError,
    PolicyRefusedError,
)
from cleaner.policy.kafka_version import KAFKA_VERSIONS
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import read_txn_index
from tests.reference.batches import read_batches
from tests.support.batch_builder import Producer, Record, data_batch
from tests.support.log_builder import START_MS, LogBuilder
from tests.support.manual_clock import ManualClock
from tests.support.watched_fs import FailingFileSystem, Operation, WatchedFileSystem
from tests.unit.cleaning.logs import (
    NOW_MS,
    SETTINGS,
    base_offsets,
    clean,
    context,
    files_of,
    keyed_log,
    newest,
    records_in,
    segment_files,
)
from tests.unit.kernels.collisions import colliding_keys
from tests.unit.small_disk import SmallDisk

pytestmark = pytest.mark.kernels

KAFKA_4_3, KAFKA_4_4 = KAFKA_VERSIONS
# Every segment is its own group, so that a round has several swaps.
ONE_BY_ONE = SETTINGS | {"internal.segment.bytes": "1"}
# A few batches, so that a segment takes several chunks.
SMALL = 500


class Counter:
    """A callback of a round; raises at its n-th call."""

    def __init__(self, fail_at: int = -1, error: Callable[[], BaseException] = CleaningAborted) -> None:
        self.calls = 0
        self._fail_at = fail_at
        self._error = error

    def __call__(self, *_: object) -> None:
        """Count the call."""
        self.calls += 1
        if self.calls - 1 == self._fail_at:
            raise self._error()


def locked() -> LogDirLockedError:
    """Return the error of a lost lock."""
    return LogDirLockedError("somebody else holds it")


def test_round_keeps_the_last_value_of_each_key(tmp_path: Path) -> None:
    """What readers see of every key is unchanged; no key below the new checkpoint occurs twice."""
    directory = keyed_log().write(tmp_path)
    before = records_in(directory)
    result = clean(directory)
    after = records_in(directory)
    assert newest(after) == newest(before)
    assert len(after) == len(newest(before)) == result.messages_written + 1
    assert result.removed.superseded == len(before) - len(after)
    assert (result.first_dirty_offset, result.end_offset, result.map_ended_by) == (0, before[-1].offset, None)
    assert base_offsets(directory) == [0, before[-1].offset]
    assert not [name for name in files_of(directory) if name.endswith((".cleaned", ".swap", ".deleted"))]


def states_of(directory: Path) -> tuple[set[int], bool]:
    """Return the base offsets of segments, and whether temporary files are left."""
    names = [path.name for path in directory.iterdir()]
    return set(base_offsets(directory)), any(name.endswith((".cleaned", ".swap", ".deleted")) for name in names)


@pytest.mark.parametrize("settings", [SETTINGS, ONE_BY_ONE], ids=["one-group", "four-groups"])
def test_every_call_of_check_done_may_abort(tmp_path: Path, settings: dict[str, str]) -> None:
    """The log is unchanged, or whole groups are swapped in order; no temporary file is left, no checkpoint written."""
    whole = Counter()
    done = tmp_path / "whole"
    clean(keyed_log().write(done), context(check_done=whole), settings=settings, chunk_bytes=SMALL)
    cleaned = segment_files(files_of(done / "topic-0"))
    assert whole.calls > 10
    seen = set()
    for fail_at in range(whole.calls):
        directory = keyed_log().write(tmp_path / str(fail_at))
        before = segment_files(files_of(directory))
        checkpoint = Counter()
        around = context(check_done=Counter(fail_at), write_checkpoint=checkpoint)
        with pytest.raises(CleaningAborted):
            clean(directory, around, settings=settings, chunk_bytes=SMALL)
        after = segment_files(files_of(directory))
        assert checkpoint.calls == 0
        swapped = [name for name in after if after[name] != before.get(name)]
        expected = {name: cleaned[name] if name in swapped else before[name] for name in after}
        assert after == expected
        logs = [name for name in before if name.endswith(".log")]
        states = [name in swapped for name in logs]
        assert states == sorted(states, reverse=True)
        seen.add(sum(states))
        assert not states_of(directory)[1]
    assert seen == ({0} if settings is SETTINGS else {0, 1, 2, 3})


def test_aborted_round_is_finished_by_the_next(tmp_path: Path) -> None:
    """An interrupted round costs only work."""
    directory = keyed_log().write(tmp_path / "one")
    other = keyed_log().write(tmp_path / "other")
    with pytest.raises(CleaningAborted):
        clean(directory, context(check_done=Counter(6)), settings=ONE_BY_ONE)
    clean(directory, settings=ONE_BY_ONE)
    clean(other, settings=ONE_BY_ONE)
    assert newest(records_in(directory)) == newest(records_in(other))
    assert not states_of(directory)[1]


@pytest.mark.parametrize("lost_at", [0, 1])
def test_lost_lock_stops_before_the_groups_first_rename(tmp_path: Path, lost_at: int) -> None:
    """Groups before it are swapped, this one is untouched, no checkpoint follows, and nothing is cleaned up either."""
    directory = keyed_log().write(tmp_path)
    before = segment_files(files_of(directory))
    checkpoint = Counter()
    with pytest.raises(LogDirLockedError):
        clean(
            directory,
            context(still_held=Counter(lost_at, locked), write_checkpoint=checkpoint),
            settings=ONE_BY_ONE,
        )
    after = segment_files(files_of(directory))
    changed = [name for name in before if name.endswith(".log") and after[name] != before[name]]
    assert changed == [name for name in before if name.endswith(".log")][:lost_at]
    group = sorted({name[:20] for name in before})[lost_at]
    # The directory belongs to another process now, even our `.cleaned` files in it.
    assert {name for name in after if name not in before} == {
        f"{group}.{extension}.cleaned" for extension in ("log", "index", "timeindex")
    }
    assert checkpoint.calls == 0


def test_checkpoint_is_written_once_at_the_end(tmp_path: Path) -> None:
    """After the last swap, with the end of the map (R-503)."""
    directory = keyed_log().write(tmp_path)
    written: list[tuple[int, bool]] = []
    result = clean(
        directory,
        context(write_checkpoint=lambda offset: written.append((offset, states_of(directory)[1]))),
        settings=ONE_BY_ONE,
    )
    assert written == [(result.end_offset, False)]


def test_throttle_gets_every_byte_read_and_written(tmp_path: Path) -> None:
    """The reads of both passes and everything that is written (R-715)."""
    directory = keyed_log().write(tmp_path)
    reported: list[int] = []
    result = clean(directory, context(throttle=reported.append), chunk_bytes=SMALL)
    assert sum(reported) == result.map_bytes_read + result.bytes_read + result.bytes_written
    assert result.bytes_written == (directory / f"{0:020d}.log").stat().st_size
    assert max(reported) <= 500


def test_progress_never_goes_back_and_ends_at_its_total(tmp_path: Path) -> None:
    """First the map, then the copy."""
    directory = keyed_log().write(tmp_path)
    reported: list[tuple[str, int, int]] = []
    around = context(progress=lambda *step: reported.append(step))
    clean(directory, around, settings=ONE_BY_ONE, chunk_bytes=SMALL)
    phases = [phase for phase, _, _ in reported]
    assert phases == sorted(phases, reverse=True)
    assert set(phases) == {"map", "copy"}
    for phase in ("map", "copy"):
        steps = [(done, total) for named, done, total in reported if named == phase]
        assert [done for done, _ in steps] == sorted(done for done, _ in steps)
        assert len({total for _, total in steps}) == 1
        assert steps[-1][0] == steps[-1][1]


def test_dirty_bytes_limit_ends_the_map_early_and_the_checkpoint_advances(tmp_path: Path) -> None:
    """As a smaller map would: the covered part is cleaned, rounds go on from there, and the result is the same."""
    directory = keyed_log(segments=3, batches=8).write(tmp_path / "limited")
    whole = keyed_log(segments=3, batches=8).write(tmp_path / "whole")
    clean(whole)
    checkpoint, ends = 0, []
    for _ in range(50):
        result = clean(directory, context(max_dirty_bytes=600), checkpoint=checkpoint, chunk_bytes=SMALL)
        assert result.end_offset > checkpoint
        assert result.map_bytes_read < 600 + 500
        assert newest(records_in(directory)) == newest(records_in(whole))
        checkpoint = result.end_offset
        ends.append(result.map_ended_by)
        if result.map_ended_by is None:
            break
    assert len(ends) >= 3
    assert checkpoint == records_in(whole)[-1].offset
    assert set(ends[:-1]) == {MapEnd.DIRTY_BYTES}
    assert records_in(directory) == records_in(whole)


def test_seconds_limit_ends_the_map_early(tmp_path: Path) -> None:
    """Time is checked after every chunk; there is always some progress."""
    directory = keyed_log().write(tmp_path)
    clock = ManualClock()
    around = context(clock=clock, max_seconds=10.0, throttle=lambda _: clock.sleep(4.0))
    result = clean(directory, around, chunk_bytes=SMALL)
    assert result.map_ended_by is MapEnd.SECONDS
    assert 0 < result.end_offset < records_in(directory)[-1].offset
    late = keyed_log().write(tmp_path / "late")
    around = context(clock=ManualClock(), max_seconds=0.0)
    assert clean(late, around, chunk_bytes=SMALL).end_offset > 0


@pytest.mark.parametrize("key_limit", [1, 2, 3, 4])
def test_full_map_ends_the_round_where_kafkas_does(tmp_path: Path, key_limit: int) -> None:
    """The first keyed record for which there is no room is the first of the next round (R-511, R-513)."""
    directory = keyed_log(segments=2).write(tmp_path)
    config = CleanerConfig(dedupe_buffer_size=24 * key_limit, io_buffer_load_factor=1.0)
    result = clean(directory, config=config)
    # Five keys repeat in turn, so the map is full after as many records as it has room for.
    assert (result.end_offset, result.map_ended_by, result.map_entries) == (key_limit, MapEnd.FULL, key_limit)


def test_rounds_with_a_full_map_reach_the_end(tmp_path: Path) -> None:
    """Each continues from the checkpoint of the one before."""
    directory = keyed_log(segments=2, keys=7).write(tmp_path)
    expected = newest(records_in(directory))
    config = CleanerConfig(dedupe_buffer_size=24 * 4, io_buffer_load_factor=1.0)
    checkpoint, rounds, has_ended = 0, 0, False
    while not has_ended:
        result = clean(directory, config=config, checkpoint=checkpoint)
        assert result.end_offset > checkpoint
        checkpoint, rounds = result.end_offset, rounds + 1
        has_ended = result.map_ended_by is None
    assert rounds > 3
    assert newest(records_in(directory)) == expected


def test_callers_map_is_used_again(tmp_path: Path) -> None:
    """A daemon owns it; a second round gives the same as with a new one."""
    offset_map = OffsetMap(1000, 1000)
    first = keyed_log().write(tmp_path / "first")
    second = keyed_log(keys=3).write(tmp_path / "second")
    fresh = keyed_log(keys=3).write(tmp_path / "fresh")
    clean(first, context(offset_map=offset_map), chunk_bytes=700)
    result = clean(second, context(offset_map=offset_map), chunk_bytes=700)
    clean(fresh)
    assert offset_map.entries == result.map_entries == 3
    assert records_in(second) == records_in(fresh)


def test_keyless_records_stop_a_round_that_refuses_them(tmp_path: Path) -> None:
    """The topic was hardly meant to be compacted: nothing is changed; otherwise they are removed and counted."""
    log = keyed_log()
    log.append((None, "without a key"), ("k", "v"))
    log.roll()
    directory = log.write(tmp_path)
    before = files_of(directory)
    with pytest.raises(PolicyRefusedError, match="1 records without a key"):
        clean(directory, context(refuse_keyless=True))
    assert files_of(directory) == before
    assert clean(directory).removed.keyless == 1


def test_keyless_records_stop_a_round_whose_map_is_full(tmp_path: Path) -> None:
    """Also those in the chunk in which the map ends: they would be removed."""
    log = LogBuilder()
    log.append((None, "without a key"), ("a", "v"), ("b", "v"))
    log.roll()
    directory = log.write(tmp_path)
    before = files_of(directory)
    config = CleanerConfig(dedupe_buffer_size=24, io_buffer_load_factor=1.0)
    with pytest.raises(PolicyRefusedError, match="1 records without a key"):
        clean(directory, context(refuse_keyless=True), config=config)
    assert files_of(directory) == before


def test_room_for_the_expected_output_is_checked_before_writing(tmp_path: Path) -> None:
    """The records that stay by the map must fit, not the sources (rule C-3)."""
    log = LogBuilder()
    for _ in range(2000):
        log.append(("k", "a value" * 30))
    log.roll()
    directory = log.write(tmp_path)
    before = files_of(directory)
    with pytest.raises(NoSpaceError):
        clean(directory, context(SmallDisk(1000)))
    assert segment_files(files_of(directory)) == segment_files(before)
    size = (directory / f"{0:020d}.log").stat().st_size
    around = context(SmallDisk(size // 2 + (17 << 20)))
    assert clean(directory, around).messages_written == 1


def damaged_log(tmp_path: Path, position: int) -> Path:
    """Write a log with a flipped bit in the last batch of its segment number `position`."""
    log = keyed_log()
    directory = log.write(tmp_path)
    path = directory / f"{log.base_offsets[position]:020d}.log"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))
    return directory


def test_damage_in_the_dirty_section_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """All of it is checked before the first swap; the error names file and batch."""
    directory = damaged_log(tmp_path, 3)
    before = files_of(directory)
    with pytest.raises(CorruptBatchError) as raised:
        clean(directory, settings=ONE_BY_ONE)
    assert raised.value.path == directory / f"{54:020d}.log"
    assert files_of(directory) == before


def test_damage_behind_a_full_map_in_the_same_segment_is_found_before_any_swap(tmp_path: Path) -> None:
    """That segment will be recopied, so it is read to its end although the map has ended."""
    directory = damaged_log(tmp_path, 0)
    before = files_of(directory)
    config = CleanerConfig(dedupe_buffer_size=24 * 2, io_buffer_load_factor=1.0)
    with pytest.raises(CorruptBatchError):
        clean(directory, config=config)
    assert files_of(directory) == before


def test_damage_in_the_clean_section_stops_at_its_group(tmp_path: Path) -> None:
    """Groups before it are swapped, each sound by itself; this one and later ones are untouched."""
    directory = damaged_log(tmp_path, 1)
    before = segment_files(files_of(directory))
    checkpoint = Counter()
    with pytest.raises(CorruptBatchError):
        clean(directory, context(write_checkpoint=checkpoint), checkpoint=50, settings=ONE_BY_ONE)
    after = segment_files(files_of(directory))
    logs = sorted(name for name in before if name.endswith(".log"))
    assert [after[name] != before[name] for name in logs] == [True, False, False, False, False]
    assert checkpoint.calls == 0


class MeddlingFileSystem(WatchedFileSystem):
    """A disk that changes one file when it is fsynced under a name with this ending."""

    def __init__(self, ending: str, change: Callable[[bytes], bytes]) -> None:
        self._ending = ending
        self._change = change
        self.meddled = 0

    def after(self, operation: Operation) -> None:
        """Damage the file."""
        if operation.kind == "fsync" and operation.path.name.endswith(self._ending):
            about = operation.path.stat()
            operation.path.write_bytes(self._change(operation.path.read_bytes()))
            assert operation.path.stat().st_ino == about.st_ino
            self.meddled += 1


def flip(position: int) -> Callable[[bytes], bytes]:
    """Flip one bit."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position] ^= 4
        return bytes(changed)

    return change


def repeat_last_bytes(data: bytes) -> bytes:
    """Write a part twice."""
    return data + data[-20:]


@pytest.mark.parametrize(
    ("ending", "change", "error"),
    [
        pytest.param(".log.cleaned", flip(-1), CorruptBatchError, id="bit-flipped-in-a-record"),
        pytest.param(".log.cleaned", flip(60), CorruptBatchError, id="bit-flipped-in-a-header"),
        pytest.param(".log.cleaned", flip(7), CorruptBatchError, id="bit-flipped-in-an-offset"),
        pytest.param(".log.cleaned", lambda data: data[:-1], CorruptBatchError, id="byte-lost"),
        pytest.param(".log.cleaned", lambda data: b"", CorruptBatchError, id="all-lost"),
        pytest.param(".log.cleaned", repeat_last_bytes, CorruptBatchError, id="bytes-twice"),
        pytest.param(".log.cleaned", lambda data: data + data, CorruptBatchError, id="all-twice"),
        pytest.param(".index.cleaned", flip(-1), CorruptIndexError, id="offset-index-bit"),
        pytest.param(".index.cleaned", lambda data: data[:-8], CorruptIndexError, id="offset-index-entry-lost"),
        pytest.param(".timeindex.cleaned", flip(-1), CorruptIndexError, id="time-index-bit"),
        pytest.param(".timeindex.cleaned", lambda data: data + data[-12:], CorruptIndexError, id="time-index-twice"),
    ],
)
def test_cleaned_segment_that_differs_on_disk_is_not_swapped_in(
    tmp_path: Path, ending: str, change: Callable[[bytes], bytes], error: type[CleanerError]
) -> None:
    """It is read back while the old data exists (rule C-6); the group is unchanged, no temporary file is left."""
    directory = keyed_log(keys=40).write(tmp_path)
    before = segment_files(files_of(directory))
    fs = MeddlingFileSystem(ending, change)
    with pytest.raises(error):
        clean(directory, context(fs))
    assert fs.meddled == 1
    assert segment_files(files_of(directory)) == before


def test_round_without_verification_does_not_read_back(tmp_path: Path) -> None:
    """Without verification the damage is not found: so it is the verification that finds it."""
    directory = keyed_log(keys=40).write(tmp_path)
    clean(directory, context(MeddlingFileSystem(".timeindex.cleaned", flip(-1)), verify=False))
    assert len(base_offsets(directory)) == 2


@pytest.mark.parametrize("kind", ["create", "write", "fsync"])
@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, NoSpaceError), (errno.EIO, LogDirOfflineError)], ids=["no-space", "io-error"]
)
def test_failing_disk_while_a_group_is_written_leaves_the_group(
    tmp_path: Path, kind: str, code: int, error: type[CleanerError]
) -> None:
    """Every call that changes something may fail: no temporary file is left."""
    kinds = frozenset((kind,))
    whole = FailingFileSystem(None, code, kinds=kinds)  # type: ignore[arg-type]
    clean(keyed_log().write(tmp_path / "whole"), context(whole), settings=SETTINGS)
    assert whole.calls >= 3
    for fail_at in range(whole.calls):
        directory = keyed_log().write(tmp_path / str(fail_at))
        before = segment_files(files_of(directory))
        with pytest.raises(error):
            clean(directory, context(FailingFileSystem(fail_at, code, kinds=kinds)))  # type: ignore[arg-type]
        assert segment_files(files_of(directory)) == before


def test_keys_made_to_collide_in_murmur_hash_all_survive(tmp_path: Path) -> None:
    """A producer cannot delete others' records by choosing keys."""
    keys = colliding_keys(12)
    log = LogBuilder()
    for start in range(0, len(keys), 256):
        log.append(*[(key, b"value %d" % (start + i)) for i, key in enumerate(keys[start : start + 256])])
    log.roll()
    directory = log.write(tmp_path)
    before = newest(records_in(directory))
    result = clean(directory, config=CleanerConfig(dedupe_buffer_size=24 * 10_000))
    assert result.map_entries == len(keys)
    assert newest(records_in(directory)) == before
    assert len({value for _, value in before.values()}) == 4096


def transactional_log() -> LogBuilder:
    """Build a log with a committed and an aborted transaction."""
    log = LogBuilder(index_interval_bytes=60)
    log.append(("a", "old"), ("b", "old"))
    log.append(("a", "committed"), producer=Producer(1, 0, 0, True))
    log.append(("b", "aborted"), producer=Producer(2, 0, 0, True))
    log.end_transaction(1, 0, commit=True)
    log.end_transaction(2, 0, commit=False)
    log.append(("c", "v"), producer=Producer(1, 0, 1, True))
    log.append(("c", "v"), producer=Producer(2, 0, 1, True))
    log.roll()
    log.end_transaction(1, 0, commit=True)
    log.end_transaction(2, 0, commit=True)
    log.roll()
    return log


def test_aborted_data_is_removed_one_round_before_its_marker(tmp_path: Path) -> None:
    """The abort stays in the transaction index with its marker, and leaves it once its data is gone (R-534)."""
    directory = transactional_log().write(tmp_path)
    index_path = directory / f"{0:020d}.txnindex"
    entry = AbortedTxn(2, 3, 5, 6)
    assert read_txn_index(FileSystem(), index_path, log_bytes=1 << 20).tolist() == [list(entry)]
    first = clean(directory)
    assert newest(records_in(directory)) == {b"a": (2, b"committed"), b"b": (1, b"old"), b"c": (7, b"v")}
    assert read_txn_index(FileSystem(), index_path, log_bytes=1 << 20).tolist() == [list(entry)]
    assert first.removed.aborted == 1
    log = transactional_log()
    clean(directory, checkpoint=log.next_offset - 2, settings=SETTINGS)
    assert not index_path.exists()


def test_batch_that_claims_billions_of_records_is_refused_in_the_clean_section(tmp_path: Path) -> None:
    """No memory is allocated for records that cannot exist."""
    log = LogBuilder(index_interval_bytes=1 << 20)
    for i in range(100):
        liar = {"count": 2**30, "last_offset_delta": 2**30 - 1}
        log.append_raw(data_batch([Record(b"k", b"v")], i * 2**30, timestamp_ms=START_MS, overrides=liar))
    log.roll()
    end = log.next_offset
    log.append(("k", "v"))
    log.roll()
    directory = log.write(tmp_path)
    with pytest.raises(CorruptBatchError, match="more records than its bytes can hold"):
        clean(directory, checkpoint=end)


def test_round_without_callbacks_runs() -> None:
    """The defaults do not stop, throttle or watch."""
    around = RoundContext(FileSystem(), ManualClock(), NOW_MS)
    around.check_done()
    around.still_held()
    around.throttle(5)
    around.progress("map", 1, 2)
    around.write_checkpoint(3)
    assert around.verify


def point_into_a_batch(index: Path) -> None:
    """Let the last entry of an offset index point into the middle of its batch."""
    data = bytearray(index.read_bytes())
    data[-4:] = (int.from_bytes(data[-4:], "big") - 5).to_bytes(4, "big")
    index.write_bytes(data)


@pytest.mark.parametrize("first_dirty", [0, 36], ids=["dirty", "clean"])
def test_4_4_does_not_read_the_index_of_an_earlier_source(tmp_path: Path, first_dirty: int) -> None:
    """R-538: in a group only the last source's index counts; 4.3 read the last entry of each, and failed."""
    directory = keyed_log().write(tmp_path / "damaged")
    sound = keyed_log().write(tmp_path / "sound")
    point_into_a_batch(directory / f"{18:020}.index")
    before = files_of(directory)
    with pytest.raises(CorruptIndexError, match="into the middle of a batch"):
        clean(directory, context(kafka=KAFKA_4_3), checkpoint=first_dirty or None)
    assert files_of(directory) == before
    clean(directory, context(kafka=KAFKA_4_4), checkpoint=first_dirty or None)
    clean(sound, context(kafka=KAFKA_4_4), checkpoint=first_dirty or None)
    assert segment_files(files_of(directory)).keys() == segment_files(files_of(sound)).keys()
    assert records_in(directory) == records_in(sound)


def test_4_4_reads_the_index_of_a_group_s_last_source(tmp_path: Path) -> None:
    """Kafka needs its end; the round is refused before anything changes."""
    directory = keyed_log().write(tmp_path)
    point_into_a_batch(directory / f"{54:020}.index")
    before = files_of(directory)
    with pytest.raises(CorruptIndexError, match="into the middle of a batch"):
        clean(directory, context(kafka=KAFKA_4_4))
    assert files_of(directory) == before


@pytest.mark.parametrize(("high_watermark", "kept_in_4_4"), [(18, True), (19, False)])
def test_emptied_batch_at_the_range_end_stays_by_version(
    tmp_path: Path, high_watermark: int, kept_in_4_4: bool
) -> None:
    """R-541 (b): 4.3 keeps its header wherever the high watermark is, 4.4 only where the range ends at it."""
    ends = {}
    for kafka in (KAFKA_4_3, KAFKA_4_4):
        log = LogBuilder(index_interval_bytes=60)
        log.append(*[(f"k{i}", "value") for i in range(17)])
        log.append((None, "without a key"))
        log.roll()
        log.append(("k1", "later"), ("k2", "later"))
        directory = log.write(tmp_path / kafka.name)
        clean(directory, context(kafka=kafka), high_watermark=high_watermark)
        ends[kafka.name] = [b.last_offset for b in read_batches((directory / f"{0:020}.log").read_bytes())][-1]
    assert ends == {"4.3": 17, "4.4": 17 if kept_in_4_4 else 16}
