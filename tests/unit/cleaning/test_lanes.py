"""Any number of threads, and chunks cut anywhere, leave the same bytes, the same counts and the same error."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cleaner.cleaning.round.round import RoundResult
from cleaner.config.values import CleanerConfig
from cleaner.errors import CleanerError, CleaningAborted, CorruptBatchError, CorruptIndexError
from cleaner.format.batch import DEFAULT_CHUNK_BYTES
from tests.support.batch_builder import Producer, Record
from tests.support.batch_reader import split_batches
from tests.support.log_builder import LogBuilder
from tests.unit.cleaning.logs import SETTINGS, Files, clean, context, files_of, keyed_log, segment_files

pytestmark = pytest.mark.kernels

THREADS = (1, 2, 4)
ONE_BY_ONE = SETTINGS | {"internal.segment.bytes": "1"}
SMALL = 200  # bytes: one to three batches
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def packed_log() -> LogBuilder:
    """Batches of every codec, some of them large, whose keys repeat in others."""
    rng = np.random.default_rng(7)
    log = LogBuilder(index_interval_bytes=60)
    for i in range(45):
        size = 3000 if i % 11 == 5 else 40
        pairs = [(b"k%d" % ((3 * i + j) % 17), rng.bytes(size // 2) + bytes(size // 2)) for j in range(3)]
        log.append(*pairs, codec=CODECS[i % 5], last_offset=log.next_offset + 2 + i % 3)
        if i % 14 == 13:
            log.roll()
    log.roll()
    return log


def transactions_log() -> LogBuilder:
    """Committed and aborted transactions, one inside the other and across segments, among data of no transaction."""
    log = LogBuilder(index_interval_bytes=60)
    for i in range(16):
        codec = CODECS[i % 5]
        log.append(("a", f"plain {i}"), (f"k{i % 5}", "plain"), codec=codec)
        log.append(("a", f"first {i}"), (f"k{i % 7}", "first"), producer=Producer(1, 0, 2 * i, True), codec=codec)
        log.append(("b", f"second {i}"), (f"k{i % 3}", None), producer=Producer(2, 0, 2 * i, True))
        log.end_transaction(1, 0, commit=i % 3 != 0)
        if i % 4 == 3:
            log.roll()
            log.append(("c", f"between {i}"), producer=Producer(3, 0, i))
        log.end_transaction(2, 0, commit=i % 2 == 0)
    log.roll()
    return log


def old_log() -> LogBuilder:
    """Magic 0 and 1, packed and not, before and among magic 2; with tombstones."""
    log = LogBuilder(index_interval_bytes=60)
    for i in range(30):
        codec = ("none", "gzip", "snappy", "lz4")[i % 4]
        value = None if i % 6 == 0 else f"value {i}"
        log.append((f"k{i % 4}", value), (f"k{i % 9}", f"other {i}"), magic=i % 3, codec=codec)
        if i % 10 == 9:
            log.roll()
    return log


def gaps_log() -> LogBuilder:
    """Offsets missing inside of batches, at their ends, between them and between segments; empty batches."""
    log = LogBuilder(base_offset=2**40, index_interval_bytes=60)
    for i in range(24):
        first = log.next_offset
        log.append(
            Record(b"k%d" % (i % 5), b"v", first),
            Record(b"k%d" % (i % 3), b"w", first + 3),
            Record(None if i % 8 == 1 else b"x", None, first + 4),
            last_offset=first + 4 + i % 4,
        )
        if i % 5 == 4:
            log.append_empty(3, producer=Producer(9, 0, i))
        if i % 7 == 6:
            log.skip(1000)
            log.roll()
    return log


LOGS: Mapping[str, Callable[[], LogBuilder]] = {
    "plain": lambda: keyed_log(segments=3, batches=8, keys=9),
    "packed": packed_log,
    "transactions": transactions_log,
    "old": old_log,
    "gaps": gaps_log,
}


Outcome = tuple[Files, RoundResult | str]


def state_of(directory: Path) -> Files:
    """Return all files, with the times of those that copy their sources'; the others have the time of this test."""
    timed = (".log", ".index", ".timeindex")
    return {name: (data, time if name.endswith(timed) else 0) for name, (data, time) in files_of(directory).items()}


def outcome(
    log: LogBuilder,
    place: Path,
    threads: int,
    *,
    damage: Callable[[Path], None] = lambda directory: None,
    key_limit: int = 1000,
    checkpoint: int | None = None,
    settings: Mapping[str, str] = ONE_BY_ONE,
    chunk_bytes: int = SMALL,
    check_done: Callable[[], None] = lambda: None,
    max_dirty_bytes: int | None = None,
) -> Outcome:
    """Clean the log on `threads` threads; returns its files, and the counts or the error's message."""
    directory = log.write(place)
    damage(directory)
    config = CleanerConfig(
        dedupe_buffer_size=24 * key_limit, io_buffer_load_factor=1.0, configured_pipeline_threads=threads
    )
    result: RoundResult | str
    try:
        result = clean(
            directory,
            context(check_done=check_done, max_dirty_bytes=max_dirty_bytes),
            checkpoint=checkpoint,
            settings=settings,
            config=config,
            chunk_bytes=chunk_bytes,
        )
        result = replace(result, map_seconds=0, copy_seconds=0)
    except (CleanerError, CleaningAborted) as error:
        result = f"{type(error).__name__}: {error}".replace(str(place), "")
    return state_of(directory), result


def outcomes(log: LogBuilder, place: Path, **options: object) -> list[Outcome]:
    """Clean the log from the start with every number of threads."""
    return [outcome(log, place / str(threads), threads, **options) for threads in THREADS]  # type: ignore[arg-type]


def same(found: list[Outcome]) -> Outcome:
    """Return the common outcome: all must be equal."""
    assert [result for _, result in found] == [found[0][1]] * len(found)
    assert all(files == found[0][0] for files, _ in found)
    return found[0]


@pytest.mark.parametrize("kind", LOGS)
@pytest.mark.parametrize("settings", [SETTINGS, ONE_BY_ONE], ids=["one-group", "many-groups"])
@pytest.mark.parametrize("percent", [0, 40])
def test_any_number_of_threads_leaves_the_same_files(
    tmp_path: Path, kind: str, settings: dict[str, str], percent: int
) -> None:
    """Bytes, times and counts; and so does any size of chunks."""
    log = LOGS[kind]()
    first, last = log.base_offsets[0], log.base_offsets[-1]
    checkpoint = first + (last - first) * percent // 100
    found = []
    for chunk_bytes in (64, SMALL, 900, DEFAULT_CHUNK_BYTES):
        place = tmp_path / str(chunk_bytes)
        found += outcomes(log, place, settings=settings, checkpoint=checkpoint, chunk_bytes=chunk_bytes)
    _, result = same(found)
    assert isinstance(result, RoundResult)
    assert 0 < result.messages_written < result.messages_read
    assert result.map_ended_by is None


@pytest.mark.parametrize("kind", LOGS)
def test_any_number_of_threads_fills_a_small_map_in_the_same_place(tmp_path: Path, kind: str) -> None:
    """The map ends in every chunk, in the middle of one or between two."""
    log = LOGS[kind]()
    ends = []
    for key_limit in range(1, 40):
        _, result = same(outcomes(log, tmp_path / str(key_limit), key_limit=key_limit))
        assert isinstance(result, RoundResult)
        ends.append(result.end_offset)
        if result.map_ended_by is None:
            break
        assert result.map_entries == key_limit
    assert len(ends) > 3
    assert ends == sorted(ends)
    assert ends[-1] == log.base_offsets[-1]


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_any_number_of_threads_ends_at_the_same_limit(tmp_path: Path, kind: str) -> None:
    """Chunks are cut in the same places by any thread, also after a batch for which a buffer had to grow."""
    log = LOGS[kind]()
    ends = set()
    for limit in range(1, 20_000, 900):
        _, result = same(outcomes(log, tmp_path / str(limit), max_dirty_bytes=limit))
        assert isinstance(result, RoundResult)
        assert result.map_bytes_read >= limit or result.map_ended_by is None
        ends.add(result.end_offset)
    assert len(ends) > 2


def flip(offset: int, position: int) -> Callable[[Path], None]:
    """Flip a bit in the log of the segment with this base offset."""

    def change(directory: Path) -> None:
        path = directory / f"{offset:020d}.log"
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        rewrite(path, data)

    return change


def rewrite(path: Path, data: bytearray) -> None:
    """Change a file's content, not its time."""
    mtime_ns = path.stat().st_mtime_ns
    path.write_bytes(bytes(data))
    os.utime(path, ns=(mtime_ns, mtime_ns))


def both(*changes: Callable[[Path], None]) -> Callable[[Path], None]:
    """Do several."""

    def change(directory: Path) -> None:
        for one in changes:
            one(directory)

    return change


def batch_ends(log: LogBuilder) -> list[tuple[int, int]]:
    """Return base offset of the segment and position of the last byte, of every batch that may be cleaned."""
    found = []
    files = log.files()
    for base in log.base_offsets[:-1]:
        end = 0
        for batch in split_batches(files[f"{base:020d}.log"]):
            end += len(batch)
            found.append((base, end - 1))
    return found


@pytest.mark.parametrize("kind", ["plain", "packed", "transactions", "old"])
def test_damage_in_any_chunk_of_the_dirty_section_is_the_same_error(tmp_path: Path, kind: str) -> None:
    """On any number of threads; nothing is changed."""
    log = LOGS[kind]()
    words = set()
    ends = batch_ends(log)
    ends = ends[:: 1 + len(ends) // 30]
    for number, (base, position) in enumerate(ends):
        place = tmp_path / str(number)
        files, result = same(outcomes(log, place, damage=flip(base, position)))
        assert isinstance(result, str)
        assert result.startswith(CorruptBatchError.__name__)
        before = log.write(tmp_path / "whole" / str(number))
        flip(base, position)(before)
        assert segment_files(files) == segment_files(state_of(before))
        words.add(result)
    assert len(words) == len(ends)


@pytest.mark.parametrize("kind", ["plain", "packed", "transactions", "old"])
def test_damage_in_any_chunk_of_the_clean_section_is_the_same_error(tmp_path: Path, kind: str) -> None:
    """Groups before it are swapped, this one and later ones are not."""
    log = LOGS[kind]()
    words, swapped = set(), set()
    checkpoint = log.base_offsets[-2]
    ends = [(base, position) for base, position in batch_ends(log) if base < checkpoint]
    ends = ends[:: 1 + len(ends) // 30]
    for number, (base, position) in enumerate(ends):
        place = tmp_path / str(number)
        files, result = same(outcomes(log, place, damage=flip(base, position), checkpoint=checkpoint))
        assert isinstance(result, str)
        assert result.startswith(CorruptBatchError.__name__)
        assert not [name for name in files if name.endswith((".cleaned", ".swap", ".deleted"))]
        words.add(result)
        swapped.add(base)
    assert len(words) == len(ends)
    assert len(swapped) > 1


@pytest.mark.parametrize("percent", [0, 99])
def test_damage_in_two_chunks_is_the_error_of_the_first(tmp_path: Path, percent: int) -> None:
    """At any two places, in either pass."""
    log = LOGS["plain"]()
    checkpoint = log.base_offsets[-2] if percent else 0
    ends = [(base, position) for base, position in batch_ends(log) if not percent or base < checkpoint]
    last_batches = dict(ends)
    for number, (one, other) in enumerate(pairwise(ends)):
        if percent and other == (other[0], last_batches[other[0]]):
            continue  # a segment's last batch is read before the others, for its offset
        place = tmp_path / str(number)
        _, alone = outcome(log, place / "alone", 1, damage=flip(*one), checkpoint=checkpoint)
        _, result = same(outcomes(log, place, damage=both(flip(*one), flip(*other)), checkpoint=checkpoint))
        assert isinstance(alone, str)
        assert result == alone


def test_damage_around_the_end_of_a_full_map_is_the_same_error_or_none(tmp_path: Path) -> None:
    """Segments after the one in which the map ends are not part of this round, though other threads may read them."""
    log = LOGS["plain"]()
    ends = batch_ends(log)
    refused = set()
    for key_limit in (2, 5, 8):
        for number, (base, position) in enumerate(ends[:14:2]):
            place = tmp_path / f"{key_limit}-{number}"
            _, result = same(outcomes(log, place, damage=flip(base, position), key_limit=key_limit))
            assert isinstance(result, str) == (base == 0)
            refused.add(isinstance(result, str))
    assert refused == {True, False}


def test_index_that_does_not_fit_behind_a_full_map_is_no_concern_of_the_round(tmp_path: Path) -> None:
    """Even if another thread has found it; the index of the segment in which the map ends does count."""

    def make_index_wrong(base: int) -> Callable[[Path], None]:
        def change(directory: Path) -> None:
            path = directory / f"{base:020d}.index"
            data = bytearray(path.read_bytes())
            data[7] += 1
            rewrite(path, data)

        return change

    log = LOGS["plain"]()
    first, second = log.base_offsets[:2]
    _, result = same(outcomes(log, tmp_path / "behind", damage=make_index_wrong(second), key_limit=2))
    assert isinstance(result, RoundResult)
    _, result = same(outcomes(log, tmp_path / "within", damage=make_index_wrong(first), key_limit=2))
    assert isinstance(result, str)
    assert result.startswith(CorruptIndexError.__name__)


class StopAt:
    """Stops at its n-th call."""

    def __init__(self, call: int) -> None:
        self._left = call

    def __call__(self) -> None:
        """Count down."""
        self._left -= 1
        if self._left < 0:
            raise CleaningAborted


@pytest.mark.parametrize("kind", ["plain", "packed"])
def test_round_stopped_anywhere_leaves_the_same_files(tmp_path: Path, kind: str) -> None:
    """It is called once for each chunk, in order, with any number of threads."""
    log = LOGS[kind]()
    for call in range(0, 200, 3):
        found = [outcome(log, tmp_path / f"{call}-{threads}", threads, check_done=StopAt(call)) for threads in THREADS]
        _, result = same(found)
        if isinstance(result, RoundResult):
            break
    assert isinstance(result, RoundResult)
    assert call > 15
