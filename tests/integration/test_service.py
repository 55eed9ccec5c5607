"""The daemon's service on real files: what it cleans, what it leaves, and how it recovers from problems."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.daemon.log_dir_watch import DirLook, WatchedLogDir
from cleaner.daemon.scanners import Scanners
from cleaner.daemon.service import Service
from cleaner.errors import ConfigError, LogDirOfflineError, NoSpaceError, SteeringError
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from cleaner.present.html.page_now import dir_words
from cleaner.present.problems import problems_of
from cleaner.state.journal_reader import JournalReader
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock
from tests.cleaner_run import wait_until
from tests.integration.daemons import UID, WAIT_SECONDS, RunningDaemon, daemon, made, settings_for
from tests.integration.log_dirs import contents, flip_bit, keyed_log, offsets, record_offsets
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.support.metadata_builder import feature_record, write_segment

LEFTOVERS = (".cleaned", ".swap", ".deleted")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


def reasons(running: RunningDaemon) -> dict[str, Reason]:
    """Return why each log is, or is not, next."""
    return {str(view.partition): view.verdict.reason for view in running.service.snapshot().logs if view.verdict}


def hold_elsewhere(log_dir: Path) -> subprocess.Popen[str]:
    """Have another process hold a log dir's lock until its standard input ends."""
    code = (
        "import sys; from pathlib import Path; from cleaner.storage.fs.file_system import FileSystem; "
        "from cleaner.storage.lock.log_dir_lock import LogDirLock; lock = LogDirLock(FileSystem(), Path(sys.argv[1])); "
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(log_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.parametrize("case", ["two homes", "bad setting"])
def test_logs_that_cannot_be_looked_at_are_not_well(tmp_path: Path, logs: Path, case: str) -> None:
    """The reason is given once for all its logs, whether both log dirs have them or their topic's settings are bad."""
    log_dirs = [logs]
    write_log_dir(logs, keyed_log("a-0"), keyed_log("a-1"), keyed_log("good-0"))
    if case == "two homes":
        log_dirs.append(tmp_path / "others")
        write_log_dir(log_dirs[1], keyed_log("a-0"), keyed_log("a-1"))
    else:
        (logs / "cleaner-topics.properties").write_text("a.segment.bytes=garbage\n")
    with daemon(settings_for(*log_dirs, state_dir=tmp_path / "state")) as running:
        running.log.wait("cleaned", partition="good-0")
        shown = running.service.snapshot()
    # A warning about memory comes too: the test process uses more than a daemon.
    (problem,) = [each for each in problems_of(shown) if "memory" not in each.words]
    many = 4 if case == "two homes" else 2
    assert problem.words.startswith(f"a-0 and {many - 1} more cannot be read: ")
    assert ("has a directory in" if case == "two homes" else "segment.bytes=garbage") in problem.words
    assert problem.command == "cleaner explain a-0"
    assert shown.counts.standings["unreadable" if case == "two homes" else "bad_setting"] == many
    assert all(view.error not in view.why for view in shown.logs if view.error)


def test_everything_that_is_due_is_cleaned_and_reported(tmp_path: Path, logs: Path) -> None:
    """Each log once: an event, an entry in the journal, sums; nothing is left over and the locks are free."""
    names = ["a-0", "a-1", "b-0"]
    write_log_dir(logs, *map(keyed_log, names))
    with daemon(settings_for(logs, state_dir=tmp_path / "state", log_cleaner_threads="2")) as running:
        for name in names:
            event = running.log.wait("cleaned", partition=name)
            assert (event["messages_read"], event["messages_written"], event["end_offset"]) == (60, 5, 60)
        running.log.wait("cleaned", count=3)
    snapshot = running.service.snapshot()
    assert {topic: totals.rounds["done"] for topic, totals in snapshot.topics.items()} == {"a": 2, "b": 1}
    assert (sum(snapshot.round_seconds.counts), snapshot.worker_deaths) == (3, 0)
    assert offsets(logs, "cleaner") == dict.fromkeys(names, 60)
    entries = list(JournalReader(FileSystem(), tmp_path / "state").entries())
    assert sorted(entry.partition or "" for entry in entries) == names
    assert entries[0].details["settings"]
    assert not [name for name in contents(logs) if name.endswith(LEFTOVERS)]
    LogDirLock(FileSystem(), logs).release()


def test_quiet_log_is_cleaned_again_when_its_horizons_have_passed(tmp_path: Path, logs: Path) -> None:
    """Once, when the tombstone may go; after a restart the daemon looks for horizons again, and changes nothing."""
    log = LogBuilder(TopicPartition("quiet", 0))
    log.append(("a", "1"), ("b", None))
    log.roll()
    log.append(("c", "1"))
    write_log_dir(logs, log)
    settings = settings_for(logs, state_dir=tmp_path / "state", delete_retention_ms="700")
    with daemon(settings | {"cleaner.quiet.cleaning": "true"}) as running:
        first = running.log.wait("cleaned", partition="quiet-0")
        second = running.log.wait("cleaned", 2, partition="quiet-0")
        assert (first["removed"]["tombstones"], second["removed"]["tombstones"]) == (0, 1)  # type: ignore[index]
        assert second["first_dirty_offset"] == second["end_offset"] == first["end_offset"]
        wait_until(lambda: reasons(running) == {"quiet-0": Reason.NOTHING_TO_CLEAN}, "rest")
    assert offsets(logs, "cleaner") == {"quiet-0": 2}
    with daemon(settings | {"cleaner.quiet.cleaning": "true"}) as running:
        again = running.log.wait("cleaned", partition="quiet-0")
        assert again["bytes_in_place"] == again["bytes_written"] > 0
        wait_until(lambda: reasons(running) == {"quiet-0": Reason.NOTHING_TO_CLEAN}, "rest")
        assert len(running.log.find("cleaned")) == 1


def test_default_policy_trusted_by_option_counts_for_the_look_and_for_the_round(tmp_path: Path, logs: Path) -> None:
    """A log that the look finds due is cleaned by its round: both ask the same settings."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state")
    del settings["cleaner.trust.default.policy"]
    running = made(settings, trust_default_policy=True)
    running.service.start()
    try:
        running.log.wait("", partition="a-0")
        assert running.log.find("cleaned", partition="a-0")
    finally:
        assert running.service.stop(WAIT_SECONDS)


def test_interrupted_swap_is_settled_though_nothing_is_due(tmp_path: Path, logs: Path) -> None:
    """R-630 to R-632: as a broker does when it starts; a log that is clean is not cleaned again for that."""
    write_log_dir(logs, keyed_log("a-0"), cleaner_offsets={TopicPartition("a", 0): 60})
    directory = logs / "a-0"
    first = sorted(directory.glob("*.log"))[0]
    before = contents(directory)
    for suffix in (".log", ".index", ".timeindex"):
        path = first.with_suffix(suffix)
        path.rename(path.with_name(path.name + ".swap"))
    (directory / f"{20:020d}.log.cleaned").touch()
    with daemon(settings_for(logs, state_dir=tmp_path / "state")) as running:
        ends = time.monotonic() + WAIT_SECONDS
        while contents(directory) != before and time.monotonic() < ends:
            time.sleep(0.05)
        assert contents(directory) == before
        assert not running.log.find("quarantined")


def test_same_bytes_as_the_command_leaves(tmp_path: Path, logs: Path) -> None:
    """The daemon cleans as `cleaner clean` does."""
    from cleaner import clean

    other = tmp_path / "other"
    other.mkdir()
    for path in (logs, other):
        write_log_dir(path, keyed_log("a-0"))
    with daemon(settings_for(logs, state_dir=tmp_path / "state")) as running:
        running.log.wait("cleaned", partition="a-0")
    clean(other, "a-0", {"cleanup.policy": "compact"})
    assert contents(logs) == contents(other)


def test_damaged_log_stays_quarantined_and_the_rest_is_cleaned(tmp_path: Path, logs: Path) -> None:
    """Over a restart too; after repair and release it is cleaned."""
    write_log_dir(logs, keyed_log("bad-0"), keyed_log("good-0"))
    victim = next((logs / "bad-0").glob("*20.log"))
    flip_bit(victim)
    before = {name: digest for name, digest in contents(logs).items() if name.startswith("bad-0/")}
    settings = settings_for(logs, state_dir=tmp_path / "state")
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="good-0")
        event = running.log.wait("quarantined", partition="bad-0")
        assert victim.name in str(event["reason"])
    with daemon(settings) as running:
        (entry,) = running.service.snapshot().quarantine
        assert (str(entry.topic_partition), entry.file) == ("bad-0", str(victim))
        assert entry.position is not None
        assert reasons(running)["bad-0"] is Reason.QUARANTINED
        assert {name: digest for name, digest in contents(logs).items() if name.startswith("bad-0/")} == before
        flip_bit(victim)
        running.steering.release(running.partition("bad-0"), UID)
        running.log.wait("cleaned", partition="bad-0")
        assert not running.service.snapshot().quarantine


def test_each_log_dir_is_cleaned_by_the_rules_of_its_own_kafka(tmp_path: Path) -> None:
    """`auto` goes by the metadata in each log dir; page, status and journal say which it was and why."""
    old, new = tmp_path / "old", tmp_path / "new"
    for log_dir, name in ((old, "a-0"), (new, "b-0")):
        log_dir.mkdir()
        write_log_dir(log_dir, keyed_log(name))
    write_segment(new / "__cluster_metadata-0", 0, [[feature_record("metadata.version", 33)]])
    with daemon(settings_for(old, new, state_dir=tmp_path / "state")) as running:
        for name in ("a-0", "b-0"):
            running.log.wait("cleaned", partition=name)
        shown = running.service.snapshot()
    assert {Path(view.path).name: view.kafka for view in shown.log_dirs} == {"old": "4.3", "new": "4.4"}
    assert {str(view.partition): view.kafka for view in shown.rounds} == {"a-0": "4.3", "b-0": "4.4"}
    words = {Path(view.path).name: dir_words(view) for view in shown.log_dirs}
    assert "cleaned as Kafka 4.4 does (auto: metadata.version has level 33)" in words["new"]
    assert "cleaned as Kafka 4.3 does (auto: no metadata.version found)" in words["old"]
    entries = {entry.partition: entry.details for entry in JournalReader(FileSystem(), tmp_path / "state").entries()}
    assert entries["b-0"]["kafka"] == "4.4"
    assert "level 33" in str(entries["b-0"]["kafka_origin"])


def test_kafka_version_changes_with_a_reload(tmp_path: Path, logs: Path) -> None:
    """From the next round on; until then what was chosen stays."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state", cleaner_kafka_version="4.3")
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="a-0")
        settings["cleaner.kafka.version"] = "4.4"
        running.steering.reload(UID)
        running.service.turn()
        assert running.service.snapshot().log_dirs[0].kafka == "4.4"


def test_log_under_its_ratio_waits_until_it_is_asked_for(tmp_path: Path, logs: Path) -> None:
    """`cleaner now` cleans it all the same; the job tells how it went."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state", min_cleanable_dirty_ratio="1.0")
    with daemon(settings) as running:
        assert reasons(running)["a-0"] is Reason.UNDER_RATIO
        job = running.steering.request(running.partition("a-0"), UID)
        running.log.wait("cleaned", partition="a-0")
        running.log.wait("command: now", uid=UID, partition="a-0")
    (view,) = running.service.snapshot().jobs
    assert (view.id, view.state, view.asked_by) == (job.id, "done", UID)
    with pytest.raises(SteeringError, match="no partition z-9"):
        running.steering.request(running.partition("z-9"), UID)


def test_mistake_in_the_settings_of_a_topic_stops_that_topic_until_it_is_fixed(tmp_path: Path, logs: Path) -> None:
    """Also when a reload comes in between; no log is quarantined for it, and the log dir stays in service."""
    write_log_dir(logs, keyed_log("a-0"), keyed_log("b-0"))
    topics = logs / "cleaner-topics.properties"
    settings = settings_for(logs, state_dir=tmp_path / "state", log_cleaner_enable="false")
    with daemon(settings) as running:
        topics.write_text("b.min.cleanable.dirty.ratio=seven\n")
        settings["log.cleaner.enable"] = "true"
        running.steering.reload(UID)
        running.service.turn()
        assert running.service.snapshot().log_dirs[0].condition is DirCondition.ONLINE
        running.log.wait("cleaned", partition="a-0")
        with pytest.raises(SteeringError, match=r"ratio=seven: must be a number \(cleaner-topics.properties\)"):
            running.steering.request(running.partition("b-0"), UID)
        topics.write_text("b.min.cleanable.dirty.ratio=0.5\n")
        running.log.wait("cleaned", partition="b-0")
        assert not running.log.find("quarantined")


@pytest.mark.parametrize("scope", ["a-0", "a", None])
def test_paused_logs_wait_and_go_on_when_resumed(tmp_path: Path, logs: Path, scope: str | None) -> None:
    """A partition, a topic, everything."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state", log_cleaner_enable="false")
    with daemon(settings) as running:
        assert reasons(running)["a-0"] is Reason.DISABLED
        running.steering.pause(scope, UID)
        settings["log.cleaner.enable"] = "true"
        assert running.steering.reload(UID).changed == ("log.cleaner.enable",)
        running.service.turn()
        assert reasons(running)["a-0"] in (Reason.PAUSED, Reason.ALL_PAUSED)
        assert not running.log.find("cleaned")
        running.steering.resume(scope, UID)
        running.log.wait("cleaned", partition="a-0")


def test_damaged_file_of_settings_is_logged_once(tmp_path: Path, logs: Path) -> None:
    """Which file, and that the earlier settings stay in force; another error is reported again."""
    write_log_dir(logs, keyed_log("a-0"))
    bad = logs / "cleaner-topics.properties"
    with daemon(settings_for(logs, state_dir=tmp_path / "state")) as running:
        for count in (1, 2):
            bad.write_bytes(b"\n" * count + b"a.segment.bytes=\\u00zz\n")
            told = running.log.wait("log dir needs attention", count=count)
            assert (told["log_dir"], told["level"]) == (str(logs), "warning")
            assert bad.name in str(told["reason"])
            assert f"line {count + 1}: " in str(told["reason"])
            assert "stay in force" in str(told["reason"])
    assert len(running.log.find("log dir needs attention")) == 2


def test_reload_takes_all_or_nothing(tmp_path: Path, logs: Path) -> None:
    """Every error is reported; settings that need a restart are named and wait."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state")
    with daemon(settings) as running:
        settings |= {"log.cleaner.threads": "many", "cleaner.windows": "25:00-26:00"}
        result = running.steering.reload(UID)
        assert len(result.errors) == 2
        config = running.service.snapshot().config
        assert (config.is_last_reload_good, config.errors) == (False, result.errors)
        settings |= {"log.cleaner.threads": "3", "cleaner.windows": "", "cleaner.lock": "hold"}
        settings |= {"log.cleaner.io.max.bytes.per.second": "5000000"}
        result = running.steering.reload(UID)
        assert result.errors == ()
        assert set(result.changed) == {"log.cleaner.threads", "log.cleaner.io.max.bytes.per.second"}
        assert result.needs_restart == ("cleaner.lock",)
        snapshot = running.service.snapshot()
        assert (len(snapshot.workers), snapshot.throttle.bytes_per_second) == (3, 5_000_000)
        assert (snapshot.config.is_last_reload_good, snapshot.config.needs_restart) == (True, ("cleaner.lock",))


def test_reload_says_that_a_restart_would_be_refused(tmp_path: Path, logs: Path) -> None:
    """For a new directory that is missing, and for one that has gone: the next unplanned restart would be the first."""
    write_log_dir(logs, keyed_log("a-0"))
    settings = settings_for(logs, state_dir=tmp_path / "state")
    with daemon(settings) as running:
        assert running.steering.reload(UID).warnings == ()
        settings |= {"log.dirs": f"{logs},{tmp_path}/nowhere"}
        result = running.steering.reload(UID)
        assert (result.errors, result.needs_restart, len(result.warnings)) == ((), ("log.dirs",), 1)
        assert f"a restart would be refused: log.dirs={tmp_path}/nowhere: no such directory" in result.warnings[0]
        settings |= {"cleaner.log.dirs.wait": "true"}
        assert running.steering.reload(UID).warnings == ()
        settings |= {"log.dirs": str(logs), "cleaner.log.dirs.wait": "false"}
        logs.rename(tmp_path / "unmounted")
        running.log.wait("log dir is offline")
        (warning,) = running.steering.reload(UID).warnings
        assert f"log.dirs={logs}" in warning


def test_speed_limit_is_changed_by_command(tmp_path: Path, logs: Path) -> None:
    """Of all workers or of one log dir; another directory is refused."""
    write_log_dir(logs)
    with daemon(settings_for(logs, state_dir=tmp_path / "state")) as running:
        running.steering.throttle(1e6, None, UID)
        running.steering.throttle(5e5, str(logs), UID)
        shown = running.service.snapshot().throttle
        assert (shown.bytes_per_second, dict(shown.log_dirs)) == (1e6, {str(logs.resolve()): 5e5})
        running.steering.throttle(None, None, UID)
        running.steering.throttle(None, str(logs), UID)
        shown = running.service.snapshot().throttle
        assert (shown.bytes_per_second, dict(shown.log_dirs)) == (None, {})
        with pytest.raises(SteeringError, match="no log dir of this daemon"):
            running.steering.throttle(1.0, "/somewhere/else", UID)
        with pytest.raises(SteeringError, match="above 0"):
            running.steering.throttle(0.0, None, UID)


def test_log_dir_of_another_process_is_left_alone_until_it_is_free(tmp_path: Path, logs: Path) -> None:
    """It shows as in use and delays no other log dir."""
    other = tmp_path / "other"
    other.mkdir()
    write_log_dir(logs, keyed_log("a-0"))
    write_log_dir(other, keyed_log("b-0"))
    before = contents(logs)
    holder = hold_elsewhere(logs)
    with daemon(settings_for(logs, other, state_dir=tmp_path / "state")) as running:
        running.log.wait("cleaned", partition="b-0")
        conditions = {view.path: view.condition for view in running.service.snapshot().log_dirs}
        assert conditions == {str(logs): DirCondition.LOCKED, str(other): DirCondition.ONLINE}
        assert contents(logs) == before
        holder.communicate("")
        running.log.wait("cleaned", partition="a-0")


def test_held_lock_keeps_a_broker_out_between_rounds(tmp_path: Path, logs: Path) -> None:
    """With cleaner.lock=hold; and the daemon does not take its own lock for another's."""
    write_log_dir(logs, keyed_log("a-0"))
    with daemon(settings_for(logs, state_dir=tmp_path / "state", cleaner_lock="hold")) as running:
        running.log.wait("cleaned", partition="a-0")
        running.service.turn()
        assert running.service.snapshot().log_dirs[0].condition is DirCondition.ONLINE
        with pytest.raises(Exception, match="another cleaner"):
            LogDirLock(FileSystem(), logs)


def test_log_dir_without_marker_needs_recovery(tmp_path: Path, logs: Path) -> None:
    """Nothing in it is touched, unless cleaner.recover is set: then it is recovered, marked and cleaned."""
    write_log_dir(logs, keyed_log("a-0"))
    (logs / ".kafka_cleanshutdown").unlink()
    before = contents(logs)
    settings = settings_for(logs, state_dir=tmp_path / "state")
    with daemon(settings) as running:
        assert reasons(running)["a-0"] is Reason.LOG_DIR_NEEDS_RECOVERY
    assert contents(logs) == before
    settings["cleaner.recover"] = "true"
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="a-0")
    assert (logs / ".kafka_cleanshutdown").exists()


def test_log_that_cannot_be_recovered_keeps_no_other_from_being_cleaned(tmp_path: Path, logs: Path) -> None:
    """No marker is written, so that a broker recovers by itself; until the end no other process gets the log dir."""
    write_log_dir(logs, keyed_log("bad-0"), keyed_log("good-0"))
    topic_id = uuid.uuid4()
    (logs / "bad-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(topic_id)}\n")
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").unlink()
    flip_bit(next((logs / "bad-0").glob("*20.log")))
    with daemon(settings_for(logs, state_dir=tmp_path / "state", cleaner_recover="true")) as running:
        running.log.wait("cleaned", partition="good-0")
        (entry,) = running.service.snapshot().quarantine
        assert (str(entry.topic_partition), entry.topic_id) == ("bad-0", format_uuid(topic_id))
        with pytest.raises(Exception, match="another cleaner"):
            LogDirLock(FileSystem(), logs)
    assert not (logs / ".kafka_cleanshutdown").exists()
    LogDirLock(FileSystem(), logs).release()


class Problem(FileSystem):
    """A disk that fails to create files of one log, a given number of times."""

    def __init__(self, error: Exception, times: int) -> None:
        super().__init__()
        self.error = error
        self.left = times
        self._lock = threading.Lock()

    def create(self, path: Path, *, like: Path | None) -> File:
        with self._lock:
            is_struck = self.left > 0 and path.parent.name == "a-0"
            self.left -= is_struck
        if is_struck:
            raise self.error
        return super().create(path, like=like)


def test_full_disk_is_tried_again_with_growing_delay(tmp_path: Path, logs: Path) -> None:
    """The error says how many bytes are missing, and the other logs are cleaned."""
    write_log_dir(logs, keyed_log("a-0"), keyed_log("b-0"))
    fs = Problem(NoSpaceError(logs, 12345), times=2)
    with daemon(settings_for(logs, state_dir=tmp_path / "state", log_cleaner_backoff_ms="10"), fs) as running:
        running.log.wait("failed, will be tried again", count=2, partition="a-0")
        running.log.wait("cleaned", partition="b-0")
        running.log.wait("cleaned", partition="a-0")
        event = running.log.find("failed, will be tried again")[0]
    assert "12.1 KiB more" in str(event["reason"])
    assert record_offsets(logs / "a-0") == record_offsets(logs / "b-0")


def test_recovery_without_space_is_tried_again_and_quarantines_nothing(tmp_path: Path, logs: Path) -> None:
    """A full disk is no fault of the logs: once there is room all are recovered and cleaned."""
    write_log_dir(logs, keyed_log("a-0"), keyed_log("b-0"))
    (logs / ".kafka_cleanshutdown").unlink()
    (logs / "recovery-point-offset-checkpoint").unlink()
    fs = Problem(NoSpaceError(logs, 12345), times=2)
    settings = settings_for(logs, state_dir=tmp_path / "state", log_cleaner_backoff_ms="10", cleaner_recover="true")
    with daemon(settings, fs) as running:
        event = running.log.wait(f"{logs}: cannot be recovered now", count=2)
        assert "12.1 KiB more" in str(event["event"])
        running.log.wait("cleaned", partition="a-0")
        running.log.wait("cleaned", partition="b-0")
        assert not running.service.snapshot().quarantine
    assert (logs / ".kafka_cleanshutdown").exists()


def test_failing_disk_is_offline_and_comes_back(tmp_path: Path, logs: Path) -> None:
    """Its log dir alone; both changes are reported."""
    other = tmp_path / "other"
    other.mkdir()
    write_log_dir(logs, keyed_log("a-0"))
    write_log_dir(other, keyed_log("b-0"))
    fs = Problem(LogDirOfflineError(logs, OSError(errno.EIO, "I/O error")), times=1)
    # Long enough for a turn on a busy machine: a retry before a turn would never be seen offline.
    settings = settings_for(logs, other, state_dir=tmp_path / "state", log_cleaner_backoff_ms="1000")
    with daemon(settings, fs) as running:
        running.log.wait("log dir failed", partition="a-0")
        running.log.wait("log dir is offline", log_dir=str(logs))
        running.log.wait("cleaned", partition="b-0")
        running.log.wait("cleaned", partition="a-0")
        running.log.wait("log dir is online", log_dir=str(logs))


def test_log_dir_that_vanishes_is_offline_and_comes_back(tmp_path: Path, logs: Path) -> None:
    """As with a disk that is unmounted while the daemon runs, and mounted again; no command is needed."""
    write_log_dir(logs, keyed_log("a-0"))
    with daemon(settings_for(logs, state_dir=tmp_path / "state")) as running:
        running.log.wait("cleaned", partition="a-0")
        logs.rename(tmp_path / "unmounted")
        running.log.wait("log dir is offline", log_dir=str(logs))
        write_log_dir(tmp_path / "unmounted", keyed_log("b-0"))
        (tmp_path / "unmounted").rename(logs)
        running.log.wait("cleaned", partition="b-0")


def test_internal_error_quarantines_the_log_with_its_traceback(tmp_path: Path, logs: Path) -> None:
    """Neither the worker nor the other logs suffer."""
    write_log_dir(logs, keyed_log("a-0"), keyed_log("b-0"))
    fs = Problem(ZeroDivisionError("a mistake"), times=1)
    with daemon(settings_for(logs, state_dir=tmp_path / "state"), fs) as running:
        event = running.log.wait("quarantined", partition="a-0")
        running.log.wait("cleaned", partition="b-0")
    assert "unexpected ZeroDivisionError" in str(event["reason"])
    assert isinstance(event["exc_info"], Exception)
    assert running.service.snapshot().worker_deaths == 0


def test_stop_ends_a_round_at_its_next_buffer(tmp_path: Path, logs: Path) -> None:
    """The log is unchanged, nothing is left over, and the next daemon cleans it."""
    write_log_dir(logs, keyed_log("a-0"))
    before = contents(logs)
    settings = settings_for(logs, state_dir=tmp_path / "state", log_cleaner_io_max_bytes_per_second="1")
    with daemon(settings) as running:
        while not any(view.partition for view in running.service.snapshot().workers):
            running.service.turn()
    running.log.wait("stopped", partition="a-0")
    after = contents(logs)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if name.endswith(LEFTOVERS)]
    settings["log.cleaner.io.max.bytes.per.second"] = "1e9"
    with daemon(settings) as running:
        running.log.wait("cleaned", partition="a-0")


def test_settings_that_cannot_work_are_refused_at_the_start(tmp_path: Path, logs: Path) -> None:
    """No log dir; more memory than there is."""
    settings = settings_for(state_dir=tmp_path / "state")
    del settings["log.dirs"]
    with pytest.raises(ConfigError, match=r"log\.dirs"), daemon(settings):
        pass
    settings = settings_for(logs, state_dir=tmp_path / "state", log_cleaner_dedupe_buffer_size=str(1 << 50))
    with pytest.raises(ConfigError, match=r"dedupe\.buffer\.size"), daemon(settings):
        pass


def test_expired_segments_go_only_where_retention_is_enabled(tmp_path: Path, logs: Path) -> None:
    """By size here; the active segment stays, and the files are gone when their delay is over."""
    write_log_dir(logs, keyed_log("old-0"))
    settings = settings_for(
        logs,
        state_dir=tmp_path / "state",
        cleanup_policy="delete",
        retention_bytes="10",
        retention_ms="-1",
        file_delete_delay_ms="0",
        log_initial_task_delay_ms="0",
        log_retention_check_interval_ms="20",
    )
    before = contents(logs)
    with daemon(settings) as running:
        running.service.turn()
        running.service.turn()
    assert contents(logs) == before
    settings["cleaner.retention.enable"] = "true"
    with daemon(settings) as running:
        event = running.log.wait("segments expired", partition="old-0")
        assert (event["segments"], event["log_start_offset"], event["reason"]) == (3, 60, "retention.bytes")
        totals = running.service.snapshot().topics["old"]
        assert (totals.retention_segments, totals.retention_bytes) == (3, event["bytes"])
    assert sorted(path.name for path in (logs / "old-0").glob("*.log")) == [f"{60:020d}.log"]
    kinds = [entry.kind for entry in JournalReader(FileSystem(), tmp_path / "state").entries()]
    assert kinds == ["retention"]


def test_rounds_of_one_log_dir_lose_no_line_of_its_checkpoint(tmp_path: Path, logs: Path) -> None:
    """Eight workers end their rounds at once, and each adds a line to the same file."""
    names = [f"t-{number}" for number in range(40)]
    write_log_dir(logs, *map(keyed_log, names))
    with daemon(settings_for(logs, state_dir=tmp_path / "state", log_cleaner_threads="8")) as running:
        running.log.wait("cleaned", count=len(names))
    assert offsets(logs, "cleaner") == dict.fromkeys(sorted(names), 60)


def test_service_that_is_stopped_while_it_starts_begins_nothing(tmp_path: Path, logs: Path) -> None:
    """The first look at thousands of logs may take longer than the scanners wait."""
    write_log_dir(logs, keyed_log("a-0"))
    before = contents(logs)
    running = made(settings_for(logs, state_dir=tmp_path / "state"))
    assert running.service.stop(1.0)
    running.service.start()
    assert running.service.snapshot().state == "stopping"
    assert not running.service.snapshot().workers
    assert contents(logs) == before


class LongLook(WatchedLogDir):
    """A log dir whose first look makes progress, and ends after its progress was read often enough."""

    def begin(self, service: Service) -> None:
        """Note the service's state during the look."""
        self.ended = threading.Event()
        self.seen: list[tuple[str, bool, str]] = []
        self._service = service

    @property
    def progress(self) -> tuple[int, int]:
        """Another number each time."""
        shown = self._service.snapshot()
        self.seen.append((shown.state, shown.is_ready, shown.log_dirs[0].detail if shown.log_dirs else ""))
        if len(self.seen) == 6:
            self.ended.set()
        return len(self.seen), 20_000

    def look(self, now_ms: int) -> DirLook:
        """Wait for that."""
        assert self.ended.wait(WAIT_SECONDS)
        return super().look(now_ms)


def test_service_has_started_when_the_first_look_is_over_however_long_it_takes(tmp_path: Path, logs: Path) -> None:
    """Until then it says how far it is; a disk that answers has not failed."""
    write_log_dir(logs, keyed_log("a-0"), keyed_log("a-1"))
    settings = settings_for(logs, state_dir=tmp_path / "state")
    running = made(settings)
    service = running.service
    loaded = service._settings
    slow = LongLook(service._fs, service._clock, logs, loaded.config, loaded.sources)
    slow.begin(service)
    service._watched = [slow]
    service._scanners = Scanners(service._clock, patience_seconds=0.01)
    service.start()
    shown = service.snapshot()
    assert (shown.state, shown.is_ready, shown.counts.logs) == ("running", True, 2)
    assert {(state, is_ready) for state, is_ready, _ in slow.seen} == {("starting", False)}
    assert slow.seen[-1][2] == "5 of 20000 logs read so far"
    assert running.log.find("log dir is") == []
    assert service.stop(WAIT_SECONDS)


def test_quiet_log_is_looked_at_again_when_its_records_expire_sooner(tmp_path: Path, logs: Path) -> None:
    """What a longer age has settled says nothing of a shorter one, which comes with a reload."""
    log = LogBuilder(TopicPartition("quiet", 0))
    log.append(("a", "1"))
    log.roll()
    log.append(("c", "1"))
    write_log_dir(logs, log)
    century_ms, day_ms = 100 * 365 * 86_400_000, 86_400_000
    settings = settings_for(logs, state_dir=tmp_path / "state", cleaner_record_ttl_ms=str(century_ms))
    with daemon(settings) as running:
        assert running.log.wait("cleaned", partition="quiet-0")["expired_records"] == 0
        wait_until(lambda: reasons(running) == {"quiet-0": Reason.NOTHING_TO_CLEAN}, "rest")
        running.settings["cleaner.record.ttl.ms"] = str(day_ms)
        assert not running.steering.reload(0).errors
        assert running.log.wait("cleaned", 2, partition="quiet-0")["expired_records"] == 1
