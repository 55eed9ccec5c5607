"""Key indexes of segments: their file, and their directory."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaner.base.model import TopicPartition
from cleaner.cleaning.offset_map import OffsetMap
from cleaner.errors import ConfigError, LogDirOfflineError, NoSpaceError
from cleaner.format.key_digests import secret_words
from cleaner.policy.unread import NO_HORIZON, FileIdentity, ReadSettings, SegmentFacts, SegmentIdentity, Worth
from cleaner.state.digest_runs import DigestRuns
from cleaner.state.key_index import DamagedIndexError, KeyIndexFile, bucket_bits_of, index_bytes, write_key_index
from cleaner.state.key_index_dir import KEY_NAME, KeyIndexDir, LogKeyIndexes
from cleaner.storage.fs.file_system import FileSystem
from tests.reference.key_index import may_have_common
from tests.scratch import scratch_directory
from tests.support.batch_builder import Record, data_batch
from tests.unit.kernels.digesting import digest

LOG = TopicPartition("prices", 0)
PINNED = [2147498191439762412, 8664588127584976330, 12016699739463359525]
FACTS = SegmentFacts(
    identity=SegmentIdentity(
        log=FileIdentity(2**64 - 1, 2**63, 1000, 5),
        offset_index=FileIdentity(),
        time_index=FileIdentity(1, 2, 12, 6),
        first_header=bytes(range(61)),
        last_header=bytes(range(100, 161)),
        last_position=900,
    ),
    key_id=b"12345678",
    read_ms=1_700_000_000_000,
    earliest_horizon_ms=NO_HORIZON,
    last_offset=77,
    keys=0,
    settings=ReadSettings(1, 2, 3, 4),
)


def write(path: Path, digests: Sequence[int], run_keys: int = 1 << 20) -> int:
    fs = FileSystem()
    with DigestRuns(fs, path.with_suffix(".runs"), run_keys) as runs:
        array = np.array(digests, np.uint64)
        for part in np.array_split(array, 3):
            runs.add(part)
        return write_key_index(fs, path, replace(FACTS, keys=len(digests)), runs)


def map_of(digests: Sequence[int]) -> OffsetMap:
    """Return a map that has some digests."""
    offset_map = OffsetMap(max(1, len(digests)), 2 * len(digests) + 1)
    rows = np.array([(digest, 1, n + 1, n) for n, digest in enumerate(digests)], np.uint64).reshape(-1, 4)
    assert offset_map.put(rows) == len(digests)
    return offset_map


def ask(path: Path, digests: Sequence[int]) -> bool:
    """Tell what an index answers about a map."""
    offset_map = map_of(digests)
    with KeyIndexFile(FileSystem(), path) as index:
        answers = [offset_map.has_any(block) for block in index.blocks()]  # to the end, where the checksum is
        return any(answers)


# Digests that share their first bits are as likely as others.
DIGESTS = st.lists(
    st.one_of(
        st.integers(0, 2**64 - 1),
        st.builds(lambda high, low: high << 29 | low, st.integers(0, 3), st.integers(0, 2**29 - 1)),
        st.builds(lambda low: 2**64 - 1 - low, st.integers(0, 2**30)),
    ),
    min_size=1,
    max_size=300,
    unique=True,
)


@given(DIGESTS, DIGESTS, st.sampled_from([7, 1 << 20]))
@settings(max_examples=150, deadline=None)
def test_index_answers_as_sets_of_digests(indexed: list[int], dirty: list[int], run_keys: int) -> None:
    """An index knows of a key in common exactly if the sets of their digests' first bits have one."""
    with scratch_directory() as directory:
        path = directory / "0.keys"
        assert write(path, indexed, run_keys) == path.stat().st_size == index_bytes(len(indexed))
        assert ask(path, dirty) == may_have_common(indexed, dirty, bucket_bits_of(len(indexed)))
        assert sorted(each.name for each in directory.iterdir()) == ["0.keys"]


@pytest.mark.parametrize("run_keys", [1 << 20, 40_000])
def test_large_index_finds_each_of_its_keys(tmp_path: Path, run_keys: int) -> None:
    """With many blocks, from memory or from a file of runs, every key is found and no other."""
    random = np.random.default_rng(5)
    digests = random.integers(0, 2**64, 1 << 20, np.uint64)
    few = random.choice(digests, 50)
    if run_keys < len(digests):
        digests = digests[: 1 << 19]
        few = random.choice(digests, 50)
    write(tmp_path / "0.keys", digests.tolist(), run_keys)
    for each in few.tolist():
        assert ask(tmp_path / "0.keys", [each])
        assert not ask(tmp_path / "0.keys", [each ^ (1 << 20)])


def test_index_returns_its_facts(tmp_path: Path) -> None:
    """What was noted of the segment comes back."""
    write(tmp_path / "0.keys", [5, 6, 7])
    with KeyIndexFile(FileSystem(), tmp_path / "0.keys") as index:
        assert index.facts == replace(FACTS, keys=3)


def test_torn_index_is_damaged_wherever_it_ends(tmp_path: Path) -> None:
    """A file cut, or changed, at any byte is noticed before it can say that there is no key in common."""
    path = tmp_path / "0.keys"
    write(path, [n * 0x9E3779B97F4A7C15 % 2**64 for n in range(40)])
    whole = path.read_bytes()
    for cut in range(len(whole)):
        for content in (whole[:cut], whole[:cut] + bytes(len(whole) - cut), _flipped(whole, cut)):
            if content == whole:
                continue
            path.write_bytes(content)
            with pytest.raises(DamagedIndexError):
                ask(path, [3])


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_crowded_bucket_gives_no_index(tmp_path: Path) -> None:
    """Where digests are no random numbers, nothing is written."""
    assert write(tmp_path / "0.keys", list(range(70_000))) == 0
    assert list(tmp_path.iterdir()) == []


def indexes(directory: Path, warned: list[str], log_dir: Path | None = None) -> LogKeyIndexes:
    found = KeyIndexDir(FileSystem(), directory, [], warned.append).of(log_dir or directory.parent, LOG)
    assert found is not None
    return found


def test_key_stays_the_same_and_is_its_owners_alone(tmp_path: Path) -> None:
    """Two processes digest with one key, which others cannot read."""
    first, second = indexes(tmp_path / "index", []), indexes(tmp_path / "index", [])
    assert first.keys.tobytes() == second.keys.tobytes()
    assert first.key_id == second.key_id
    assert (tmp_path / "index" / KEY_NAME).stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(20), bytes(21)])
def test_lost_or_damaged_key_is_replaced(tmp_path: Path, content: bytes | None) -> None:
    """A new key is drawn, so that all indexes are another key's; damage is told."""
    warned: list[str] = []
    first = indexes(tmp_path / "index", warned)
    key = tmp_path / "index" / KEY_NAME
    if content is None:
        key.unlink()
    else:
        key.write_bytes(content)
    second = indexes(tmp_path / "index", warned)
    assert first.key_id != second.key_id
    assert first.keys.tobytes() != second.keys.tobytes()
    assert len(warned) == (content is not None)


def test_directory_of_others_is_refused(tmp_path: Path) -> None:
    """Where others can write, or in a log dir, there is no index."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="others may write"):
        KeyIndexDir(FileSystem(), tmp_path / "open", [], print)
    with pytest.raises(ConfigError, match="inside the log dir"):
        KeyIndexDir(FileSystem(), tmp_path / "log" / "index", [tmp_path / "log"], print)


def test_indexes_of_gone_partitions_and_segments_are_removed(tmp_path: Path) -> None:
    """A partition without a directory has no indexes any more; of a log only those of its segments stay."""
    log_dir = tmp_path / "logs"
    (log_dir / str(LOG)).mkdir(parents=True)
    mine = indexes(tmp_path / "index", [], log_dir)
    assert mine.make_room()
    for base in (0, 10, 20):
        write(mine.path(base), [base])
    (mine.directory / "left.tmp").write_bytes(b"")
    mine.save_worth(Worth(1, 2))
    mine.keep_only({0, 20})
    assert sorted(path.name for path in mine.directory.iterdir()) == [
        "00000000000000000000.keys",
        "00000000000000000020.keys",
        "worth.json",
    ]
    assert indexes(tmp_path / "index", [], log_dir).load_worth() == Worth(1, 2)
    (log_dir / str(LOG)).rmdir()
    indexes(tmp_path / "index", [], log_dir)
    assert not mine.directory.exists()


class _Refusing(FileSystem):
    """Nothing can be listed, or removed, for a while."""

    refuses = ""

    def list_dirs(self, path: Path) -> list[str]:
        if self.refuses == "list":
            raise LogDirOfflineError(path, OSError(errno.EIO, os.strerror(errno.EIO)))
        return super().list_dirs(path)

    def remove_all(self, directory: Path, names: Sequence[str], threads: int = 1) -> None:
        if self.refuses == "remove":
            raise LogDirOfflineError(directory, OSError(errno.EIO, os.strerror(errno.EIO)))
        super().remove_all(directory, names, threads)


@pytest.mark.parametrize("refuses", ["list", "remove"])
def test_indexes_of_gone_partitions_are_removed_once_the_disk_lets_them(tmp_path: Path, refuses: str) -> None:
    """With one warning; the indexes of the others are used meanwhile."""
    log_dir = tmp_path / "logs"
    (log_dir / str(LOG)).mkdir(parents=True)
    gone = indexes(tmp_path / "index", [], log_dir)
    assert gone.make_room()
    write(gone.path(0), [0])
    (log_dir / str(LOG)).rmdir()
    fs, warned = _Refusing(), list[str]()
    found = KeyIndexDir(fs, tmp_path / "index", [], warned.append)
    fs.refuses = refuses
    for _ in range(2):
        assert found.of(log_dir, TopicPartition("other", 0)) is not None
    assert len(warned) == 1 and gone.directory.exists()
    fs.refuses = ""
    found.of(log_dir, TopicPartition("other", 0))
    assert not gone.directory.exists()


class _OthersClearUp(FileSystem):
    """Another process, or an operator, removes each directory of indexes right before it is listed."""

    def list_files(self, path: Path) -> list[str]:
        shutil.rmtree(path)
        return super().list_files(path)


def test_directories_that_vanish_are_no_error(tmp_path: Path) -> None:
    """Those of a partition that is gone, and of a log that is cleaned."""
    log_dir = tmp_path / "logs"
    (log_dir / str(LOG)).mkdir(parents=True)
    gone = indexes(tmp_path / "index", [], log_dir)
    assert gone.make_room()
    (log_dir / str(LOG)).rmdir()
    warned: list[str] = []
    mine = KeyIndexDir(_OthersClearUp(), tmp_path / "index", [], warned.append).of(log_dir, TopicPartition("other", 0))
    assert mine is not None
    assert not gone.directory.exists()
    assert mine.make_room()
    mine.keep_only({0})
    assert not mine.directory.exists()
    assert warned == []


def test_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be written is told, and nothing is left of it."""
    warned: list[str] = []
    mine = indexes(tmp_path / "index", warned)
    assert mine.make_room()

    def refuse(_fs: FileSystem, path: Path, **_named: object) -> None:
        raise NoSpaceError(path, 0)

    monkeypatch.setattr(FileSystem, "create", refuse)
    with mine.runs(0) as runs:
        runs.add(np.array([1, 2, 3], np.uint64))
        assert mine.write(0, replace(FACTS, keys=3), runs) == 0
    mine.save_worth(Worth(1, 2))
    assert len(warned) == 2
    assert all("read again" in each for each in warned)
    assert list(mine.directory.iterdir()) == []


def test_digests_that_the_key_names_stay_the_same() -> None:
    """Another digest of a key under the same secret needs another `_DIGESTS`, or old indexes would be believed."""
    found = []
    for key in (b"k", b"k" * 32, b"k" * 33):
        log = data_batch([Record(key, b"")], 0, timestamp_ms=0)
        found.append(int(digest(log, secret_words(bytes(range(16)))).digests[0]))
    assert found == PINNED
