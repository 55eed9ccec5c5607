"""`cleaner handover`, as an operator uses it; `tests/kafka/` starts a real broker on the result."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest

from cleaner import LogManager, Record
from cleaner.app.handover import hand_over
from cleaner.app.options import CallContext
from cleaner.base.model import TopicPartition
from cleaner.cli.advice import advice
from cleaner.cli.main import main
from cleaner.errors import NoSpaceError, disk_error
from cleaner.settings.sources import Sources
from cleaner.storage.files.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.fs.file_system import File, FileSystem
from cleaner.storage.handover import bytes_to_write, hand_over_partition, handover_dirs
from cleaner.storage.load.loaded_log import list_segments
from cleaner.storage.lock.log_dir_lock import LockMode, LogDirLock
from cleaner.storage.log_dir import LogDir, OffsetKind
from tests.integration.log_dirs import flip_bit, locked_elsewhere
from tests.integration.two_dirs import (
    END,
    FIRST,
    FS,
    PRICES,
    START,
    TOPIC_ID,
    contents,
    directories,
    lines,
    records,
    topic_id_of,
    write_brokers,
    write_ours,
)
from tests.unit.small_disk import SmallDisk

ID = format_uuid(TOPIC_ID)
OTHER_ID = format_uuid(UUID(int=7))
Run = Callable[..., tuple[int, str, str]]


class _Full(FileSystem):
    """A disk that fills up in the middle of a copy."""

    def create(self, path: Path, *, like: Path | None) -> File:
        """Refuse segments."""
        if path.suffix == ".log":
            raise disk_error(path, OSError(errno.ENOSPC, "no space"), 1)
        return super().create(path, like=like)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what hands over from `ours` to `brokers`: exit code, output and errors."""

    def command(ours: Path, brokers: Path, *more: str | Path) -> tuple[int, str, str]:
        given = ["handover", "--from", ours, "--to", brokers, "--topic-id", f"{PRICES}={ID}", *more]
        code = main([str(word) for word in given])
        return code, *capsys.readouterr()

    return command


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both log dirs, to be copied."""
    home = tmp_path_factory.mktemp("written")
    write_ours(home / "ours")
    write_brokers(home / "brokers")
    return home


@pytest.fixture
def ours(written: Path, tmp_path: Path) -> Path:
    """Our log dir."""
    return Path(shutil.copytree(written / "ours", tmp_path / "ours"))


@pytest.fixture
def brokers(written: Path, tmp_path: Path) -> Path:
    """The broker's log dir."""
    return Path(shutil.copytree(written / "brokers", tmp_path / "brokers"))


def epochs_of_batches(log_dir: Path) -> set[int]:
    """Return the leader epochs that a partition's batches name."""
    return {
        int(epoch)
        for segment in list_segments(FS, log_dir / str(FIRST))
        for chunk in segment.chunks()
        for epoch in chunk.batches["leader_epoch"]
    }


def test_logs_are_handed_over_with_their_id_and_their_lines(ours: Path, brokers: Path, run: Run) -> None:
    """Records, times of segments, the four checkpoints; another topic's files and lines stay, and so does ours."""
    other, before = TopicPartition("other", 0), contents(ours)
    others_lines = lines(brokers, other)
    code, out, err = run(ours, brokers)
    assert code == 0, err
    assert [line.split()[0] for line in out.splitlines()] == ["partition", "prices-0", "prices-1"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert {key: data for key, data in contents(ours).items() if key in before} == before
    for number in range(2):
        partition = TopicPartition(PRICES, number)
        assert topic_id_of(brokers, partition) == TOPIC_ID
        assert records(brokers, partition) == records(ours, partition)
        assert records(brokers, partition)[0][0] == START
        assert lines(brokers, partition) == lines(ours, partition)
        assert lines(brokers, partition)[OffsetKind.LOG_START] == START
        assert lines(brokers, partition)[OffsetKind.RECOVERY_POINT] == END
        for segment in list_segments(FS, ours / str(partition)):
            copy = brokers / str(partition) / segment.log_path.name
            assert copy.stat().st_mtime_ns == segment.log_path.stat().st_mtime_ns
            assert copy.stat().st_ino != segment.log_path.stat().st_ino
    assert lines(brokers, other) == others_lines
    assert directories(brokers) == {"__cluster_metadata-0", "other-0", "prices-0", "prices-1"}
    assert (brokers / ".kafka_cleanshutdown").exists()
    with LogManager(brokers, tasks=False, cleaner=False) as manager:
        assert manager.log(PRICES).append([Record(b"k", b"more")]).base_offset == END


def test_leader_epochs_start_again(ours: Path, brokers: Path, run: Run) -> None:
    """A cluster counts them from 0: a leader would not know higher ones in batches, and could not answer followers."""
    assert max(epochs_of_batches(ours)) > 0
    assert run(ours, brokers)[0] == 0
    assert epochs_of_batches(brokers) == {0}
    found = read_leader_epochs(FS, brokers / str(FIRST) / "leader-epoch-checkpoint")
    assert [(entry.epoch, entry.start_offset) for entry in found] == [(0, START)]
    assert max(epochs_of_batches(ours)) > 0


def test_json_has_each_partition(ours: Path, brokers: Path, run: Run) -> None:
    """One object a partition, with format and version; a second run finds them there."""
    for state in ("handed over", "was there"):
        code, out, _ = run(ours, brokers, "--format", "json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        assert [(row["format"], row["format_version"]) for row in rows] == [("cleaner-handover", 1)] * 2
        assert [row["state"] for row in rows] == [state] * 2
        assert (rows[0]["log_start_offset"], rows[0]["log_end_offset"], rows[0]["topic_id"]) == (START, END, ID)


def test_progress_is_shown_in_bytes(ours: Path, brokers: Path) -> None:
    """The logs' steps, when they are checked and again when they are handed over."""
    seen: list[tuple[str, int, int]] = []
    lent = CallContext(progress=lambda *step: seen.append(step))
    done = hand_over(ours, brokers, {PRICES: TOPIC_ID}, Sources(), lent).partitions
    sizes = [each.bytes for each in done]
    assert seen == 2 * [(f"{each.partition} hand over", sum(sizes[:n]), sum(sizes)) for n, each in enumerate(done)]
    assert sum(sizes) > 1000


def test_dry_run_looks_and_changes_nothing(ours: Path, brokers: Path, run: Run) -> None:
    """Everything that a handover would refuse is refused."""
    before = contents(ours), contents(brokers)
    for log_dir in (ours, brokers):
        (log_dir / ".lock").unlink()
    code, out, _ = run(ours, brokers, "--dry-run")
    assert (code, out.count("to be handed over")) == (0, 2)
    assert (contents(ours), contents(brokers)) == before
    assert not (ours / ".lock").exists()
    assert not (brokers / ".lock").exists()


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "real"])
def test_room_is_asked_for_all_partitions_before_anything_is_done(ours: Path, dry_run: bool) -> None:
    """One of the two would fit; a file system without clones, as both are on one."""
    with TemporaryDirectory(dir="/dev/shm") as there:
        brokers = write_brokers(Path(there) / "brokers")
        before = contents(brokers)
        one = sum(path.stat().st_size for path in (ours / "prices-0").iterdir())
        lent = CallContext.of(fs=SmallDisk(one * 3 // 2))
        with pytest.raises(NoSpaceError) as caught:
            hand_over(ours, brokers, {PRICES: TOPIC_ID}, Sources(), lent, dry_run=dry_run)
        assert (caught.value.path, caught.value.missing_bytes > 0) == (brokers, True)
        assert contents(brokers) == before
        assert "--retention" not in advice(caught.value)


def test_what_an_earlier_try_left_is_room_for_the_next(ours: Path) -> None:
    """After a crash in the middle of a copy that just fitted, the same command finishes."""
    with TemporaryDirectory(dir="/dev/shm") as there:
        brokers = LogDir(FS, write_brokers(Path(there) / "brokers"))
        source = ours / str(FIRST)
        whole = bytes_to_write(brokers, FIRST, TOPIC_ID, source)
        copy, _ = handover_dirs(brokers.path, FIRST, TOPIC_ID)
        copy.mkdir()
        name = f"{20:020}.log"
        shutil.copy(source / name, copy)
        assert bytes_to_write(brokers, FIRST, TOPIC_ID, source) == whole - (source / name).stat().st_size


def test_space_that_runs_out_while_copying_is_reported_for_the_brokers_directory(ours: Path, brokers: Path) -> None:
    """The copy is gone by then, so a name in it would be of no use."""
    with pytest.raises(NoSpaceError) as caught:
        hand_over_partition(
            LogDir(_Full(), brokers),
            FIRST,
            TOPIC_ID,
            ours / str(FIRST),
            dict.fromkeys(OffsetKind),
            log_start_offset=START,
            still_held=lambda: None,
            check_done=lambda: None,
        )
    assert caught.value.path == brokers


def test_partitions_with_a_refused_one_are_reported_as_not_begun(ours: Path, brokers: Path, run: Run) -> None:
    """`to be handed over` is what a dry run says of them."""
    not_there(ours, brokers)
    for more, state in (((), "not begun"), (("--dry-run",), "to be handed over")):
        code, out, _ = run(ours, brokers, "--format", "json", *more)
        rows = [json.loads(line) for line in out.splitlines()]
        assert (code, [row["state"] for row in rows if "state" in row]) == (1, [state])


def test_dry_run_reports_a_log_dir_in_use(ours: Path, brokers: Path, run: Run) -> None:
    """Without a lock of its own."""
    with locked_elsewhere(brokers):
        code, _, err = run(ours, brokers, "--dry-run")
    assert (code, f"{brokers}/.lock: locked by" in err) == (75, True)


def test_lines_of_partitions_without_a_directory_go_as_they_do_at_a_broker(ours: Path, brokers: Path, run: Run) -> None:
    """Its own checkpoints name the partitions it has; those of others that have a directory stay."""
    gone, path = TopicPartition("gone", 3), brokers / OffsetKind.LOG_START.value
    write_offset_checkpoint(FS, path, {gone: 7, TopicPartition("other", 0): 0})
    assert run(ours, brokers)[0] == 0
    found = read_offset_checkpoint(FS, path)
    assert gone not in found
    assert found[TopicPartition("other", 0)] == 0


def test_settings_that_are_not_handed_over_are_reported(ours: Path, brokers: Path, run: Run) -> None:
    """A broker with other settings deletes old records: the topic's settings here are printed as command options."""
    _, _, err = run(ours, brokers, "--dry-run")
    assert "--entity-name prices --add-config cleanup.policy=[compact,delete]" in err


def no_marker(ours: Path, _: Path) -> None:
    """Leave our log dir as a killed writer does."""
    (ours / ".kafka_cleanshutdown").unlink()


def no_broker(_: Path, brokers: Path) -> None:
    """Leave a directory that no broker knows."""
    (brokers / "meta.properties").unlink()


def other_id(_: Path, brokers: Path) -> None:
    """Give the broker's partition another topic's id."""
    (brokers / "prices-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")


def not_there(_: Path, brokers: Path) -> None:
    """The broker has the partition elsewhere."""
    shutil.rmtree(brokers / "prices-1")


def not_empty(_: Path, brokers: Path) -> None:
    """A producer wrote to the topic."""
    with LogManager(brokers, tasks=False, cleaner=False) as manager:
        manager.log(PRICES).append([Record(b"k", b"theirs")])
    (brokers / "cleaner-topics.properties").unlink(missing_ok=True)


def was_deleted(_: Path, brokers: Path) -> None:
    """The broker's log is empty, and begins after records it once had."""
    for path in (brokers / "prices-0").glob("0*"):
        path.rename(path.with_name(path.name.replace("0" * 20, "0" * 18 + "12")))


def replicated(_: Path, brokers: Path) -> None:
    """Two more brokers have the topic."""
    shutil.rmtree(brokers / "__cluster_metadata-0")
    shutil.copytree(
        write_brokers(brokers.parent / "more", replicas=3) / "__cluster_metadata-0", brokers / "__cluster_metadata-0"
    )


def fewer_partitions(_: Path, brokers: Path) -> None:
    """The cluster's topic has one partition."""
    shutil.rmtree(brokers / "__cluster_metadata-0")
    shutil.rmtree(brokers / "prices-1")
    shutil.copytree(
        write_brokers(brokers.parent / "more", partitions=1) / "__cluster_metadata-0", brokers / "__cluster_metadata-0"
    )


def foreign_owner(ours: Path, _: Path) -> None:
    """One of our files belongs to another user."""
    os.chown(ours / "prices-0" / f"{0:020}.log", 12345, 12345)


def a_link(ours: Path, _: Path) -> None:
    """A segment leads elsewhere."""
    (ours / "prices-0" / f"{0:020}.log").rename(ours.parent / "elsewhere")
    (ours / "prices-0" / f"{0:020}.log").symlink_to(ours.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_marker, "not closed cleanly"),
        (no_broker, "not the log dir of a broker"),
        (other_id, f"has the topic id {OTHER_ID}, not {ID}"),
        (not_there, "the broker has no such partition here"),
        (not_empty, "the broker's log is not empty"),
        (was_deleted, "the broker's log is not empty, or had records before"),
        (replicated, "has 3 replicas"),
        (fewer_partitions, "the cluster's topic prices has 1 partition"),
        pytest.param(foreign_owner, "belongs to user 12345", marks=pytest.mark.root),
        (a_link, "not a regular file"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_broker_would_not_take_is_refused(
    ours: Path, brokers: Path, run: Run, change: Callable[[Path, Path], None], words: str
) -> None:
    """Nothing is changed, not even in the partitions that would succeed."""
    change(ours, brokers)
    before = contents(brokers)
    code, _, err = run(ours, brokers)
    assert code == 1
    assert words in err
    assert contents(brokers) == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (f"prices={OTHER_ID}", f"has the id {ID}, not {OTHER_ID}"),
        (f"absent={ID}", "no partition of topic absent"),
        (f"prics={ID}", "no partition of topic prics; did you mean prices?"),
    ],
    ids=["wrong-id", "unknown-here", "mistyped"],
)
def test_wrong_topic_is_refused(
    ours: Path, brokers: Path, capsys: pytest.CaptureFixture[str], given: str, words: str
) -> None:
    """By the cluster's metadata, and by our own topics."""
    before = contents(brokers)
    code = main(["handover", "--from", str(ours), "--to", str(brokers), "--topic-id", given])
    assert code in (1, 2)
    assert words in capsys.readouterr().err
    assert contents(brokers) == before


def test_topic_that_the_cluster_does_not_know_is_refused(
    ours: Path, brokers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """However the directories look."""
    with LogManager(ours, tasks=False, cleaner=False) as manager:
        manager.create_topic("unknown", 1)
    assert main(["handover", "--from", str(ours), "--to", str(brokers), "--topic-id", f"unknown={ID}"]) == 1
    assert "the cluster has no topic unknown" in capsys.readouterr().err


def test_partition_in_another_log_dir_of_the_broker_is_named(ours: Path, brokers: Path, run: Run) -> None:
    """The broker put it there: `--config` names the broker's other log dirs and its metadata log."""
    first = brokers.parent / "first"
    first.mkdir()
    for name in ("meta.properties", "prices-1", "__cluster_metadata-0"):
        shutil.move(brokers / name, first / name)
    shutil.copy(first / "meta.properties", brokers)
    config = brokers.parent / "server.properties"
    config.write_text(f"log.dirs={first},{brokers}\n")
    code, _, err = run(ours, brokers, "--config", config)
    assert (code, "prices-1: the broker has no such partition here" in err) == (1, True)
    assert f"; it is in {first}" in err
    assert "no metadata log" not in err


def test_damaged_batch_is_not_handed_over(ours: Path, brokers: Path, run: Run) -> None:
    """Each batch is checked as it is copied; the broker's own log stays."""
    flip_bit(ours / "prices-0" / f"{20:020}.log", 80)
    before = contents(brokers)
    code, _, err = run(ours, brokers)
    damaged = ours / "prices-0" / f"{20:020}.log"
    words = " ".join(err.split())
    assert (code, "the CRC-32C does not match" in err) == (1, True)
    assert f"{damaged}: at byte" in words
    assert f"cleaner check {damaged.parent}" in words
    assert "-delete" not in err
    after = contents(brokers)
    assert {path: data for path, data in after.items() if "prices-1" not in path and "checkpoint" not in path} == {
        path: data for path, data in before.items() if "prices-1" not in path and "checkpoint" not in path
    }
    assert lines(brokers)[OffsetKind.LOG_START] is None


def test_id_of_a_topic_that_is_there_leads_to_this_command(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Altering a topic refuses to change it, and says what does."""
    given = ["topics", "alter", "--log-dir", str(ours), "--topic", PRICES, "--topic-id", ID]
    assert main(given) == 2
    assert "--topic-id cannot be used with alter; `cleaner handover` gives logs the id" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["ours", "brokers"])
def test_log_dir_in_use_is_refused(
    ours: Path, brokers: Path, run: Run, which: str, request: pytest.FixtureRequest
) -> None:
    """A live broker keeps its lock for itself, as this does."""
    with LogDirLock(FS, request.getfixturevalue(which), LockMode.EXCLUSIVE):
        code, _, err = run(ours, brokers)
    assert (code, "locked" in err) == (75, True)


def test_open_transaction_is_refused(ours: Path, brokers: Path, run: Run) -> None:
    """No process could end it at the broker, and its consumers would wait forever."""
    with LogManager(ours, tasks=False, cleaner=False) as manager:
        producer = manager.log(PRICES).producer("late")
        producer.begin()
        producer.append([Record(b"k", b"v")])
        manager.log(PRICES).flush()
        manager.abandon()
    assert main(["recover", str(ours)]) == 0
    code, _, err = run(ours, brokers)
    assert (code, "a transaction is open at offset" in err) == (1, True)


@pytest.mark.parametrize("text", ["prices", "=x", "prices=short", f"prices={'A' * 22}"])
def test_topic_id_that_is_none_is_a_usage_error(
    ours: Path, brokers: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """With what was expected."""
    assert main(["handover", "--from", str(ours), "--to", str(brokers), "--topic-id", text]) == 2
    assert f"--topic-id {text}: " in capsys.readouterr().err


@pytest.mark.root
def test_new_files_belong_to_the_owner_of_the_brokers_directory(ours: Path, brokers: Path, run: Run) -> None:
    """Started as root for log dirs of two owners: directories and files alike."""
    for path in (brokers, *brokers.rglob("*")):
        os.chown(path, 12345, 12346)
    code, _, err = run(ours, brokers)
    assert (code, "--as-root" in err) == (1, True)
    assert run(ours, brokers, "--as-root")[0] == 0
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in (brokers, *brokers.rglob("*"))}
    assert owners == {(12345, 12346)}


def test_files_that_are_no_part_of_a_log_stay_behind(ours: Path, brokers: Path, run: Run) -> None:
    """Label by name."""
    (ours / "prices-0" / "notes.txt").write_text("mine")
    code, _, err = run(ours, brokers)
    assert (code, "not handed over: cleaner-transactional-ids, notes.txt" in err) == (0, True)
    assert not (brokers / "prices-0" / "notes.txt").exists()


def test_library_call_without_metadata_warns(ours: Path, brokers: Path) -> None:
    """It then uses only the broker's own directories, and says so."""
    shutil.rmtree(brokers / "__cluster_metadata-0")
    told: list[str] = []
    report = hand_over(ours, brokers, {PRICES: TOPIC_ID}, Sources(), CallContext.of(warn=told.append))
    assert [each.state for each in report.partitions] == ["handed over"] * 2
    assert any("--metadata-dir" in line for line in told)


def test_commands_of_the_page_do_what_it_says(ours: Path, brokers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The check, the handover, and the removal of our log."""
    page = (Path(__file__).parents[2] / "docs" / "handover.md").read_text()
    (look,) = re.findall(r"^ *```\n *cleaner (handover .*?)\n *```", page, re.DOTALL | re.MULTILINE)
    (end,) = re.findall(r"`cleaner (topics delete .*?)`", page)
    places = {"/srv/prices": str(ours), "/var/lib/kafka": str(brokers), "prices=IvGBsEpRQHy0e2ZFbihfbw": f"prices={ID}"}
    words = [[places.get(word, word) for word in text.replace("\\\n", "").split()] for text in (look, end)]
    assert words[0][-1] == "--dry-run"
    for command in (words[0], words[0][:-1], words[1]):
        assert main(command) == 0, capsys.readouterr().err
    assert records(brokers)[-1][0] == END - 1
    assert not (ours / str(FIRST)).exists()
