"""One log under watch: its facts are those of a full load, and nothing is read twice."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.daemon.log_status import LogStatus
from cleaner.daemon.log_watch import Lines, Moment, WatchedLog, proves_unchanged
from cleaner.daemon.topic_settings import WatchedTopicSettings
from cleaner.policy.cleanable import cleanable
from cleaner.policy.due import earliest_dirty_timestamp_ms
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.files.checkpoint import write_offset_checkpoint
from cleaner.storage.fs.file_system import File, FileState, FileSystem
from cleaner.storage.load.leftovers import SwapState
from cleaner.storage.lock.log_dir_lock import LockMode, LockRole, LogDirLock
from cleaner.storage.log_dir import Use
from tests.support.batch_builder import Producer
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.daemon.watching import CountingFileSystem, Watch, sources, with_sets
from tests.unit.storage.logs import TP, load

FS = FileSystem()
DAY_MS = 86_400_000


def plain_log(segments: int = 4, **options: int) -> LogBuilder:
    """Segments of ten offsets each, one record a batch; the last one is active."""
    log = LogBuilder(**options)
    for segment in range(segments):
        if segment:
            log.roll()
        for number in range(10):
            log.append((f"k{number}", f"v{segment}"))
    return log


def checkpoint(path: Path, name: str, offset: int | None) -> None:
    """Write one of a log dir's checkpoints, with one line."""
    write_offset_checkpoint(FS, path / f"{name}-offset-checkpoint", {} if offset is None else {TP: offset})


@pytest.mark.parametrize("seed", range(12))
def test_facts_are_those_of_a_full_load(tmp_path: Path, seed: int) -> None:
    """Range, bytes, bound and time of the oldest dirty segment are what a worker finds that loads the log."""
    rng = random.Random(seed)
    log = LogBuilder()
    for segment in range(6):
        if segment:
            log.roll()
        for number in range(rng.randrange(1, 12)):
            transactional = Producer(segment, 0, number, True) if rng.random() < 0.4 else Producer(9, 0, number)
            log.append((f"k{number}", "v" * rng.randrange(200)), producer=transactional)
        if rng.random() < 0.6:
            for producer in range(segment + 1):
                if log.producers.get(producer) is not None:
                    log.end_transaction(producer, 0, commit=True)
    first_dirty = rng.choice([None, 0, rng.randrange(log.next_offset)])
    write_log_dir(tmp_path, log, cleaner_offsets={} if first_dirty is None else {TP: first_dirty})
    settings = {
        "max.compaction.lag.ms": str(100 * 365 * DAY_MS),
        "min.compaction.lag.ms": str(rng.choice([0, 30 * 365 * DAY_MS])),
        "min.cleanable.dirty.ratio": rng.choice(["0.001", "1"]),
        "cleanup.policy": "compact",
    }
    watch = Watch(tmp_path, Sources(sets=[SetOption("topic", key, value) for key, value in settings.items()]))
    facts = watch.log().facts
    assert facts is not None
    loaded = load(tmp_path / "topic-0", high_watermark=log.next_offset, read_only=True, now_ms=watch.now_ms)
    topic = TopicConfig.from_mapping(settings)
    found = cleanable(loaded, first_dirty, topic, watch.now_ms)
    assert facts.cleanable == found
    if facts.cleanable.cleanable_bytes:
        assert facts.earliest_dirty_timestamp_ms == earliest_dirty_timestamp_ms(loaded, found.first_dirty_offset)


def test_second_look_opens_nothing_and_returns_the_same_value(tmp_path: Path) -> None:
    """Two questions a log, and two for each partition directory and checkpoint, is all it takes."""
    write_log_dir(tmp_path, plain_log())
    fs = CountingFileSystem()
    watch = Watch(tmp_path, fs=fs)
    first = watch.log()
    fs.calls.clear()
    assert watch.log() is first
    assert (fs.calls["list"], fs.calls["open"]) == (0, 1), "the lock file alone is not there to be opened"
    # Directory and active segment; four checkpoints and `meta.properties`; two files of settings, and where a metadata
    # log would be.
    assert fs.calls["stat"] == 2 + 5 + 3


def test_append_to_the_active_segment_is_seen_without_a_listing(tmp_path: Path) -> None:
    """Only the size changes; the directory does not."""
    log = plain_log()
    write_log_dir(tmp_path, log)
    fs = CountingFileSystem()
    watch = Watch(tmp_path, fs=fs)
    before = watch.log()
    fs.calls.clear()
    with max((tmp_path / "topic-0").glob("*.log")).open("ab") as file:
        file.write(bytes(100))
    after = watch.log()
    assert before.sections is not None
    assert after.sections is not None
    assert after.sections.active_bytes == before.sections.active_bytes + 100
    assert fs.calls["list"] == 0


def test_roll_is_seen_and_old_segments_are_not_read_again(tmp_path: Path) -> None:
    """Timestamps of segments that are the same still are kept."""
    write_log_dir(tmp_path / "logs", plain_log(3), high_watermarks={TP: 100})
    fs = CountingFileSystem()
    given = with_sets(sources(topic="compact"), "topic", max_compaction_lag_ms=str(10**15))
    watch = Watch(tmp_path / "logs", given, fs=fs)
    assert watch.log().segments == 3
    longer = plain_log(5).write(tmp_path / "longer")
    for path in sorted(longer.iterdir()):
        if path.name >= f"{30:020d}":
            path.rename(tmp_path / "logs" / "topic-0" / path.name)
    fs.calls.clear()
    after = watch.log()
    assert (after.segments, fs.calls["list"]) == (5, 1)
    assert after.facts is not None
    assert after.facts.cleanable.cleanable_bytes == 4 * after.facts.cleanable.uncleanable_bytes
    # The first batches of two segments that were not inactive before; `partition.metadata`; the lock file. As it may be
    # due: where the log ends, by its active segment alone, which is short; and the producer snapshot there.
    assert fs.calls["open"] == 2 + 1 + 1 + 2


def test_a_change_of_the_high_watermark_is_seen(tmp_path: Path) -> None:
    """Only offsets below the checkpointed one are cleaned; without a line nothing is, and the reason is reported."""
    write_log_dir(tmp_path, plain_log(), high_watermarks={})
    watch = Watch(tmp_path)
    log = watch.log()
    assert log.facts is not None
    assert (log.facts.cleanable.cleanable_bytes, log.facts.lacks_high_watermark) == (0, True)
    checkpoint(tmp_path, "replication", 25)
    log = watch.log()
    assert log.facts is not None
    assert (log.facts.cleanable.first_uncleanable_offset, log.facts.lacks_high_watermark) == (20, False)


def test_minimum_lag_expires_to_the_millisecond(tmp_path: Path) -> None:
    """R-406: the segment becomes cleanable at its largest timestamp plus the lag, with nothing changed on disk."""
    log = LogBuilder(timestamp_ms=START_MS)
    log.append(("k", "v"), timestamp_ms=START_MS + 5)
    log.roll()
    log.append(("k", "w"), timestamp_ms=START_MS + 6)
    write_log_dir(tmp_path, log)
    lag_ms = 400 * 365 * DAY_MS
    watch = Watch(tmp_path, with_sets(sources(topic="compact"), "topic", min_compaction_lag_ms=str(lag_ms)))
    assert _dirty(watch.log()) == 0
    watch.now_ms = START_MS + 5 + lag_ms - 1
    assert _dirty(watch.log(after_ms=0)) == 0
    assert _dirty(watch.log(after_ms=1)) > 0


def _dirty(log: LogStatus) -> int:
    assert log.facts is not None
    return log.facts.cleanable.cleanable_bytes


def test_clock_set_back_is_judged_again(tmp_path: Path) -> None:
    """What was old enough by the wrong clock is not by the right one."""
    log = plain_log()
    write_log_dir(tmp_path, log)
    watch = Watch(tmp_path, with_sets(sources(topic="compact"), "topic", min_compaction_lag_ms=str(DAY_MS)))
    assert _dirty(watch.log()) > 0
    watch.now_ms = START_MS
    assert _dirty(watch.log(after_ms=0)) == 0


def test_open_transaction_holds_its_segments_back(tmp_path: Path) -> None:
    """R-407, R-408: the range ends before the segment the transaction began in, until its marker is replicated."""
    log = plain_log(2)
    log.append(("t", "v"), producer=Producer(5, 0, 0, True))
    log.roll()
    log.append(("u", "v"))
    log.roll()
    log.append(("u", "w"))
    marker = log.end_transaction(5, 0, commit=True)
    write_log_dir(tmp_path, log, high_watermarks={TP: marker})
    # The snapshot at the log end says that nothing is open; only who reads the marker knows that it is not replicated.
    max((tmp_path / "topic-0").glob("*.snapshot")).unlink()
    watch = Watch(tmp_path)
    facts = watch.log().facts
    assert facts is not None
    assert (facts.cleanable.first_uncleanable_offset, facts.cleanable.bounded_by) == (10, "last stable offset")
    checkpoint(tmp_path, "replication", marker + 1)
    facts = watch.log().facts
    assert facts is not None
    assert (facts.cleanable.first_uncleanable_offset, facts.cleanable.bounded_by) == (22, "active segment")


def test_marker_above_the_high_watermark_decides_in_a_log_that_was_closed(tmp_path: Path) -> None:
    """R-407, R-652: the snapshot at the log end says so, to a load as to a look."""
    log = plain_log(2)
    log.append(("t", "v"), producer=Producer(5, 0, 0, True))
    log.roll()
    log.append(("u", "v"))
    log.roll()
    log.end_transaction(5, 0, commit=True)
    write_log_dir(tmp_path, log, high_watermarks={TP: 21})
    facts = Watch(tmp_path).log().facts
    assert facts is not None
    assert (facts.cleanable.first_uncleanable_offset, facts.cleanable.bounded_by) == (21, "high watermark")


def test_marker_in_the_active_segment_does_not_count_with_a_writer(tmp_path: Path) -> None:
    """A round sees a log as it was when its active segment began; a look that saw more would send it in vain."""
    log = plain_log(2)
    log.append(("t", "v"), producer=Producer(5, 0, 0, True))
    log.roll()
    marker = log.end_transaction(5, 0, commit=True)
    write_log_dir(tmp_path, log, high_watermarks={TP: marker + 1})
    watch = Watch(tmp_path)
    ends = []
    for is_written_to in (False, True, False):
        with contextlib.ExitStack() as stack:
            if is_written_to:
                stack.enter_context(LogDirLock(FileSystem(), tmp_path, LockMode.SHARED, LockRole.WRITER))
            facts = watch.log().facts
        assert facts is not None
        ends.append((facts.cleanable.first_uncleanable_offset, facts.cleanable.bounded_by))
    assert ends == [(marker, "active segment"), (10, "last stable offset"), (marker, "active segment")]


def test_marker_that_is_cut_off_again_decides_nothing(tmp_path: Path) -> None:
    """A follower is cut back to its leader's log, before its high watermark is written anew."""
    log = plain_log(2)
    log.append(("t", "v"), producer=Producer(5, 0, 0, True))
    log.roll()
    log.append(("u", "v"))
    marker = log.end_transaction(5, 0, commit=True)
    write_log_dir(tmp_path, log)
    max((tmp_path / "topic-0").glob("*.snapshot")).unlink()
    settings = WatchedTopicSettings(FS, tmp_path, sources(topic="compact"))
    settings.refresh(("topic-0",), 0)
    watched = WatchedLog(TP, str(tmp_path), tmp_path / "topic-0")
    active = max((tmp_path / "topic-0").glob("*.log"))
    size = active.stat().st_size

    def first_uncleanable() -> int:
        now_ms = time.time_ns() // 1_000_000 + 600_000
        found = watched.look(Moment(FS, settings, now_ms, use=Use.SERVED), Lines(high_watermark=marker + 1))
        assert found is not None
        assert found.facts is not None
        return found.facts.cleanable.first_uncleanable_offset

    assert first_uncleanable() == 21
    os.truncate(active, size - 1)
    assert first_uncleanable() == 10
    (tmp_path / "topic-0" / "changes the directory").touch()
    assert first_uncleanable() == 10


@pytest.mark.parametrize("set_back", ["mtime_ns", "none"])
@pytest.mark.parametrize(("age_ns", "proves"), [(10**6, False), (2 * 10**9, False), (4 * 10**9, True)])
def test_young_change_proves_nothing(set_back: str, age_ns: int, proves: bool) -> None:
    """Another change may follow within a tick of the file system's clock, also if the time of this one was set back."""
    now_ms = 1_700_000_000_000
    then_ns = now_ms * 1_000_000 - age_ns
    state = FileState(1, 1, then_ns, then_ns)
    assert proves_unchanged(state._replace(mtime_ns=0) if set_back == "mtime_ns" else state, now_ms) is proves


@pytest.mark.parametrize(
    ("config", "sets", "trusts", "allowed"),
    [
        pytest.param({}, [], False, False, id="kafkas-default"),
        pytest.param({}, [SetOption("topic", "cleanup.policy", "delete")], False, False, id="said-not-compacted"),
        pytest.param({}, [SetOption("topic", "cleanup.policy", "compact")], False, True, id="said-of-the-topic"),
        pytest.param({"cleanup.policy": "compact"}, [], False, False, id="said-of-all"),
        pytest.param({"cleanup.policy": "compact"}, [], True, True, id="said-of-all-and-trusted"),
        pytest.param(
            {"cleanup.policy": "compact", "cleaner.trust.default.policy": "true"}, [], False, True, id="by-setting"
        ),
        pytest.param({}, [SetOption(None, "cleanup.policy", "compact")], True, False, id="set-without-a-topic"),
    ],
)
def test_only_trusted_compact_policies_have_facts(
    tmp_path: Path, config: dict[str, str], sets: list[SetOption], trusts: bool, allowed: bool
) -> None:
    """As `clean --all` has it: who may be cleaned has facts, all others a reason; all have sections."""
    write_log_dir(tmp_path, plain_log())
    log = Watch(tmp_path, Sources(config=config, sets=sets, trust_default_policy=trusts)).log()
    assert (log.facts is not None, log.why == "") == (allowed, allowed)
    assert log.sections is not None
    assert log.policy
    assert log.policy_origin


def test_log_that_cannot_be_seen_is_an_error_of_its_own(tmp_path: Path) -> None:
    """A damaged topic id, a link: each has its words, and the good ones among them, one of them empty, their facts."""
    good = plain_log()
    other = LogBuilder(TopicPartition("topic", 3))
    other.append(("k", "v"))
    write_log_dir(tmp_path / "logs", good, other)
    logs = tmp_path / "logs"
    (logs / "topic-1").mkdir()
    (logs / "topic-2").symlink_to(logs / "topic-0")
    (logs / "topic-3" / "partition.metadata").write_text("nonsense")
    watch = Watch(logs)
    looked = {str(log.partition): log for log in watch.look().logs}
    good_ones = ("topic-0", "topic-1")
    assert all(looked[name].facts is not None for name in good_ones)
    assert "symbolic link" in looked["topic-2"].error
    assert "version" in looked["topic-3"].error
    assert {log.why for name, log in looked.items() if name not in good_ones} == {"cannot be read"}
    (logs / "topic-3" / "partition.metadata").unlink()
    assert watch.log("topic-3").error == ""


def test_bad_setting_of_a_topic_is_that_topics_error(tmp_path: Path) -> None:
    """Key, value and place are named; other topics go on."""
    other = LogBuilder(TopicPartition("other", 0))
    other.append(("k", "v"))
    write_log_dir(tmp_path / "logs", plain_log(), other)
    (tmp_path / "topics").mkdir()
    (tmp_path / "topics" / "topic.properties").write_text("segment.bytes=many\n")
    watch = Watch(tmp_path / "logs", Sources(topics_dir=tmp_path / "topics"))
    looked = {log.partition.topic: log for log in watch.look().logs}
    assert "segment.bytes=many" in looked["topic"].error
    assert looked["other"].error == ""


class Gone(FileSystem):
    """So many time indexes are removed between being listed and being opened."""

    def __init__(self, times: int) -> None:
        self.left = times

    def open(self, path: Path, *, write: bool = False) -> File:
        """Open, or find nothing."""
        if path.name.endswith(".timeindex") and self.left:
            self.left -= 1
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return super().open(path, write=write)


def test_files_that_go_under_the_eye_are_looked_at_again(tmp_path: Path) -> None:
    """Retention and swaps of others leave no error behind; what never holds still is an error only until it does."""
    write_log_dir(tmp_path, plain_log())
    given = with_sets(sources(topic="compact"), "topic", min_compaction_lag_ms="1")
    assert Watch(tmp_path, given, fs=Gone(2)).log().error == ""
    fs = Gone(10**6)
    watch = Watch(tmp_path, given, fs=fs)
    assert "come and go" in watch.log().error
    fs.left = 0
    assert watch.log().error == ""


def test_partition_that_is_removed_disappears(tmp_path: Path) -> None:
    """Between the listing and the look, too."""
    write_log_dir(tmp_path / "logs", plain_log())
    watch = Watch(tmp_path / "logs")
    assert [str(log.partition) for log in watch.look().logs] == ["topic-0"]
    (tmp_path / "logs" / "topic-0").rename(tmp_path / "elsewhere")
    assert watch.look().logs == ()


def test_retention_is_seen_where_it_is_enabled(tmp_path: Path) -> None:
    """By time, to the millisecond; the active segment never counts; without the setting nothing does."""
    log = plain_log(3)
    write_log_dir(tmp_path, log)
    given = with_sets(sources(topic="delete"), "topic", retention_ms=str(400 * 365 * DAY_MS))
    watch = Watch(tmp_path, given, CleanerConfig(retention_enable=True))
    assert not watch.log().has_segments_to_delete
    largest = load(tmp_path / "topic-0").segments[0].largest_timestamp()
    watch.now_ms = largest + 400 * 365 * DAY_MS
    assert not watch.log(after_ms=0).has_segments_to_delete
    assert watch.log(after_ms=1).has_segments_to_delete
    given = with_sets(sources(topic="delete"), "topic", retention_ms="1")
    assert Watch(tmp_path, given, CleanerConfig(retention_enable=True)).log().has_segments_to_delete
    assert not Watch(tmp_path, given).log().has_segments_to_delete


def test_retention_by_a_default_policy_deletes_nothing(tmp_path: Path) -> None:
    """An archive without settings keeps records older than Kafka's week, unless the operator says otherwise."""
    write_log_dir(tmp_path, plain_log(3))
    enabled = CleanerConfig(retention_enable=True)
    assert not Watch(tmp_path, Sources(), enabled).log().has_segments_to_delete
    assert Watch(tmp_path, Sources(trust_default_policy=True), enabled).log().has_segments_to_delete
    set_for_all = Sources(sets=[SetOption(None, "cleanup.policy", "delete")], trust_default_policy=True)
    assert not Watch(tmp_path, set_for_all, enabled).log().has_segments_to_delete
    write_offset_checkpoint(FS, tmp_path / "log-start-offset-checkpoint", {TP: 15})
    assert Watch(tmp_path, Sources(), enabled).log().has_segments_to_delete


def test_left_over_files_are_reported(tmp_path: Path) -> None:
    """Of an interrupted swap, and of removals that wait."""
    write_log_dir(tmp_path, plain_log())
    for name in ("00000000000000000000.log.swap", "00000000000000000090.log.deleted", "7.index.deleted"):
        (tmp_path / "topic-0" / name).touch()
    log = Watch(tmp_path).log()
    assert log.facts is not None
    assert (log.facts.unfinished_swap, log.deleted_files) == (SwapState.COMPLETED.value, 2)
