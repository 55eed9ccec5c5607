"""`cleaner plan` and `cleaner explain LOG_DIR`: each reason with its numbers, its setting and what to type next."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cleaner.app import inspect_log
from cleaner.app import plan_log_dir as plan_module
from cleaner.app.inspect_log import Inspection, PlanTarget
from cleaner.app.options import CallContext
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.app.plan_report import PlanEntry
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.errors import CorruptBatchError
from cleaner.read.summary import ListedFiles
from cleaner.settings.sources import SetOption, Sources
from cleaner.storage.fs.file_system import DirectoryEntry, File, FileState, FileSystem
from tests.integration.log_dirs import NOW, flip_bit, keyed_log
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are folded where a terminal ends."""
    monkeypatch.delenv("COLUMNS", raising=False)


def with_transaction() -> LogBuilder:
    """A log whose first transaction is still open."""
    log = LogBuilder(TopicPartition("topic", 0))
    log.append(("t", "v"), producer=Producer(7, 3, 0, True), timestamp_ms=NOW - 90_000)
    for segment in range(3):
        log.roll()
        log.append((f"k{segment}", "v"))
    return log


def one_segment() -> LogBuilder:
    return keyed_log(segments=0)


# Reason, log, file missing from the log dir, options, words of the reason, its setting, next command.
CASES = {
    "over_ratio": (keyed_log, "", (), "ratio 1.000 above 0.5", "min.cleanable.dirty.ratio", "clean {dir} topic-0"),
    "overdue": (
        keyed_log, "", ("--set", "max.compaction.lag.ms=1000"), "over max.compaction.lag.ms by 16 min 38 s",
        "min.cleanable.dirty.ratio", "clean {dir} topic-0 --set topic:cleanup.policy=compact --set max.compaction.lag",
    ),
    "under_ratio": (
        keyed_log, "", ("--set", "min.cleanable.dirty.ratio=1"), "ratio 1.000 not above 1", "min.cleanable.dirty.ratio",
        "clean {dir} topic-0",
    ),
    "nothing_to_clean active segment": (
        one_segment, "", (), "active segment at offset 0 of 20", "segment.ms", "--add-config segment.ms=",
    ),
    "nothing_to_clean min.compaction.lag.ms": (
        keyed_log, "", ("--set", "min.compaction.lag.ms=1000000"), "too young for 20 ms more", "min.compaction.lag.ms",
        "--set topic:min.compaction.lag.ms=0",
    ),
    "nothing_to_clean high watermark": (
        keyed_log, "", ("--high-watermark", "0"), "high watermark at offset 0 of 80", None, "--high-watermark end",
    ),
    "nothing_to_clean last stable offset": (
        with_transaction, "", (), "a transaction of producer 7, epoch 3 is open for 1 min 30 s", None,
        "abort --topic topic --partition 0 --start-offset 0",
    ),
    "horizon_passed": (
        keyed_log, "", ("--set", "topic:cleaner.record.ttl.ms=1"), "nothing dirty", "cleaner.quiet.cleaning",
        "clean {dir} topic-0",
    ),
    "no_high_watermark": (
        keyed_log, "replication-offset-checkpoint", (), "no line", None, "clean {dir} topic-0 --set topic:cleanup"
    ),
    "not_compacted": (
        keyed_log, "", ("--set", "topic:cleanup.policy=delete"), "so it is not compacted", "cleanup.policy",
        "--set topic:cleanup.policy=compact",
    ),
    "needs_recovery": (
        keyed_log, ".kafka_cleanshutdown", (), "the log dir has to be recovered", None, "cleaner recover {dir}",
    ),
}  # fmt: skip


def write_case(name: str, log_dir: Path) -> None:
    """Write the log dir of a case; one without anything dirty was cleaned up to its active segment."""
    make, missing = CASES[name][:2]
    cleaned = {TopicPartition("topic", 0): 60} if name == "horizon_passed" else None
    write_log_dir(log_dir, make(), cleaner_offsets=cleaned)
    if missing:
        (log_dir / missing).unlink()


def plan(capsys: Capture, *arguments: str | Path) -> dict[str, object]:
    """Plan a log dir with one partition; returns its entry."""
    main(["plan", *map(str, arguments), "--now", str(NOW), "--format", "json"])
    (entry,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert isinstance(entry, dict)
    return entry


@pytest.mark.parametrize("name", CASES)
def test_plan_says_why_with_figures_setting_and_next_command(name: str, tmp_path: Path, capsys: Capture) -> None:
    """The reason in one word and in a sentence with its numbers, the setting behind it, a command to type."""
    options, words, setting, command = CASES[name][2:]
    write_case(name, tmp_path)
    entry = plan(capsys, tmp_path, *COMPACT, *options)
    why, _, bound = name.partition(" ")
    assert (entry["format"], entry["format_version"], entry["why"]) == ("cleaner-plan", 1, why)
    assert words in str(entry["reason"])
    assert entry["settings_behind"] == [] if setting is None else entry["settings_behind"][0] == setting  # type: ignore[index]
    assert command.format(dir=tmp_path) in entry["next"][0]["command"]  # type: ignore[index]
    assert not bound or entry["bounded_by"] == bound


@pytest.mark.parametrize("name", CASES)
def test_explain_shows_the_same_as_a_page(name: str, tmp_path: Path, capsys: Capture) -> None:
    """Without a daemon: the picture, each bound with its figure, the words and the command of `plan`."""
    options, words, _, command = CASES[name][2:]
    write_case(name, tmp_path)
    code = main(["explain", str(tmp_path), "topic-0", *COMPACT, *options, "--now", str(NOW)])
    page = capsys.readouterr().out
    flat = " ".join(page.split())
    assert code == 0
    assert words in flat
    assert command.format(dir=tmp_path) in flat
    if name != "not_compacted":
        for bound in ("first dirty offset", "active segment", "high watermark", "last stable offset", "dirty ratio"):
            assert f"\n  {bound} " in page
        assert "~" in page


def test_damaged_partition_is_explained_with_what_lists_the_damage(tmp_path: Path, capsys: Capture) -> None:
    """Its policy is shown all the same."""
    write_log_dir(tmp_path, keyed_log())
    flip_bit(tmp_path / "topic-0" / "leader-epoch-checkpoint", 0)
    assert main(["explain", str(tmp_path), "topic-0", *COMPACT]) == 1
    page = capsys.readouterr().out
    assert "leader-epoch-checkpoint" in "".join(page.split())  # a long path is folded
    assert f"cleaner check {tmp_path}/topic-0" in page
    assert "cleanup.policy=compact" in page


def test_checkpoint_outside_of_the_log_is_reported(tmp_path: Path, capsys: Capture) -> None:
    """It does not count, and everything is dirty again (R-405)."""
    write_log_dir(tmp_path, keyed_log(), cleaner_offsets={TopicPartition("topic", 0): 999})
    entry = plan(capsys, tmp_path, *COMPACT)
    assert (entry["is_checkpoint_reset"], entry["checkpoint_offset"], entry["first_dirty_offset"]) == (True, 999, 0)
    main(["explain", str(tmp_path), "topic-0", *COMPACT])
    assert "its line, 999, is outside of the log" in capsys.readouterr().out


def test_policy_of_a_default_is_shown_as_such_until_the_partition_is_named(tmp_path: Path, capsys: Capture) -> None:
    """`clean` of a named partition needs nothing else; so that is the next command."""
    write_log_dir(tmp_path, keyed_log())
    entry = plan(capsys, tmp_path, "--set", "cleanup.policy=compact")
    assert entry["why"] == "policy_not_trusted"
    assert entry["next"][0]["command"] == f"cleaner clean {tmp_path} topic-0 --set cleanup.policy=compact"  # type: ignore[index]
    main(["explain", str(tmp_path), "topic-0", "--set", "cleanup.policy=compact"])
    assert "it has to be confirmed" in " ".join(capsys.readouterr().out.split())


def test_small_buffer_is_shown_with_its_rounds_and_the_buffer_for_one_round(tmp_path: Path, capsys: Capture) -> None:
    """60 offsets are at most 60 keys; with the buffer named, one round really does."""
    log = LogBuilder(TopicPartition("topic", 0))
    for n in range(60):
        log.append((f"k{n}", "v"))
    log.roll()
    log.append(("last", "v"))
    write_log_dir(tmp_path, log)
    small = ("--set", "log.cleaner.dedupe.buffer.size=600")
    entry = plan(capsys, tmp_path, *COMPACT, *small)
    rounds: dict[str, int] = entry["rounds"]  # type: ignore[assignment]
    assert (rounds["slots"], rounds["most_keys"], rounds["keys"], rounds["count"]) == (25, 22, 60, 3)
    assert 0 < rounds["head_bytes"] < entry["dirty_bytes"]  # type: ignore[operator]
    one = rounds["one_round_buffer_size"]
    command = entry["next"][1]["command"]  # type: ignore[index]
    assert f"--set log.cleaner.dedupe.buffer.size={one}" in command
    main(["clean", *command.split()[2:], "--now", str(NOW), "--format", "json", "--no-verify"])
    report = json.loads(capsys.readouterr().out)
    assert (report["rounds"], report["rounds_remaining"], report["end_offset"]) == (1, 0, 60)


@contextmanager
def broker_lock(log_dir: Path) -> Iterator[int]:
    """Hold `.lock` as a JVM does; yields the process's number."""
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 2**63 - 1);"
        "print('held', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", script, str(log_dir / ".lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder.pid
        holder.communicate()


def test_plan_with_a_running_broker_names_it_and_marks_what_was_read(tmp_path: Path, capsys: Capture) -> None:
    """Its torn last batch is being written, not to be recovered; the log is due, but locked."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    with (tmp_path / "topic-0" / f"{60:020d}.log").open("ab") as log:
        log.write(b"half a batch")
    with broker_lock(tmp_path) as pid:
        entry = plan(capsys, tmp_path, *COMPACT)
        main(["plan", str(tmp_path), *COMPACT])
        out, err = capsys.readouterr()
    assert (entry["is_due"], entry["why"], entry["in_use"]) == (True, "locked", f"a live broker (process {pid})")
    assert (entry["log_end_offset"], entry["first_uncleanable_offset"]) == (80, 60)
    assert entry["next"][0]["command"] == f"fuser -v {tmp_path}/.lock"  # type: ignore[index]
    assert "in use by a live broker" in out
    assert "in use while read" in err
    assert not plan(capsys, tmp_path, *COMPACT)["in_use"]


class Vanishing(FileSystem):
    """Lists a segment that is gone when it is opened, a given number of times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def scan_dir(self, directory: Path, suffixes: tuple[str, ...]) -> list[DirectoryEntry]:
        found = super().scan_dir(directory, suffixes)
        if self.times:
            self.times -= 1
            found.append(DirectoryEntry(f"{70:020d}.log", FileState(1, 100)))
        return found


@pytest.mark.parametrize("times", [1, 9, 10])
def test_plan_lists_again_when_a_file_vanishes(times: int, tmp_path: Path) -> None:
    """A few times; the log counts as in use, and one that changes all the time is a separate error."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    (entry,) = _plan(tmp_path, Vanishing(times))
    if times < 10:  # five looks, and each lists a second time, to see whether files were exchanged
        assert (entry.error, entry.segments, entry.first_uncleanable_offset) == ("", 4, 60)
    else:
        assert f"{70:020d}.log" in entry.error
    assert entry.in_use


def test_damage_in_a_log_that_is_in_use_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that its broker has just replaced has another size; one that stays too short is damaged."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    failures = iter([True, True, False])

    def inspect(place: PlanTarget, files: ListedFiles) -> Inspection:
        if next(failures):
            raise CorruptBatchError(place.directory, 0, "the file became shorter while it was read")
        return inspect_log.inspect_log(place, files)

    monkeypatch.setattr(plan_module, "inspect_log", inspect)
    with broker_lock(tmp_path):
        (entry,) = _plan(tmp_path, FileSystem())
    assert (entry.error, entry.is_due) == ("", True)
    failures = iter([True, False])
    (entry,) = _plan(tmp_path, FileSystem())
    assert "became shorter" in entry.error


def _plan(log_dir: Path, fs: FileSystem) -> list[PlanEntry]:
    sources = Sources(sets=(SetOption("topic", "cleanup.policy", "compact"),))
    return plan_log_dir(log_dir, sources, CallContext.of(fs, NOW))


class ReadOnly(FileSystem):
    """A file system mounted read-only; counts what is opened."""

    opened = 0

    def open(self, path: Path, *, write: bool = False) -> File:
        assert not write
        self.opened += 1
        return super().open(path)

    def _refuse(self, *_: object, **__: object) -> None:
        raise AssertionError("a change")

    create = rename = remove = rename_all = remove_all = make_dir = _refuse  # type: ignore[assignment]
    remove_dir = set_mode = set_mtime_ns = write_atomically = fsync_all = fsync_dir = _refuse


@pytest.mark.parametrize("clean_shutdown", [True, False])
@pytest.mark.parametrize("make", [keyed_log, with_transaction, one_segment])
def test_plan_opens_nothing_for_writing(make: Callable[[], LogBuilder], clean_shutdown: bool, tmp_path: Path) -> None:
    """Whether or not the log must be recovered; a missing index is not made."""
    write_log_dir(tmp_path, make(), clean_shutdown=clean_shutdown)
    (tmp_path / "topic-0" / f"{0:020d}.index").unlink()
    (entry,) = _plan(tmp_path, ReadOnly())
    assert entry.error == ""


def test_torn_log_is_planned_as_its_recovery_will_leave_it(tmp_path: Path) -> None:
    """The bytes that would be cut are reported and not counted."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False, recovery_points={})
    damaged = tmp_path / "topic-0" / f"{40:020d}.log"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    cut = (tmp_path / "topic-0" / f"{60:020d}.log").stat().st_size
    (entry,) = _plan(tmp_path, ReadOnly())
    assert (entry.log_end_offset, entry.first_uncleanable_offset) == (59, 40)
    assert entry.cut_bytes > cut


def many_segments(log_dir: Path, count: int) -> None:
    """A log dir with a log of so many segments, each of one batch."""
    log = LogBuilder(TopicPartition("topic", 0))
    log.append(("k", "v"))
    files = log.files()
    directory = log_dir / "topic-0"
    write_log_dir(log_dir, log, high_watermarks={TopicPartition("topic", 0): count})
    batch = files[f"{0:020d}.log"]
    (directory / f"{count - 1:020d}.snapshot").write_bytes(log.snapshot())
    for base in range(1, count):
        (directory / f"{base:020d}.log").write_bytes(base.to_bytes(8, "big") + batch[8:])


def test_log_of_very_many_segments_is_seen_without_opening_them(tmp_path: Path) -> None:
    """Names and sizes tell enough."""
    many_segments(tmp_path, 3000)
    fs = ReadOnly()
    (entry,) = _plan(tmp_path, fs)
    assert (entry.segments, entry.first_uncleanable_offset, entry.is_due) == (3000, 2999, True)
    assert fs.opened < 20


def test_table_is_no_wider_than_the_terminal(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of topics are shortened in their middle, and the partition's number stays."""
    name = "a." + "long." * 40 + "topic-1234567"
    write_log_dir(tmp_path, keyed_log(name), with_transaction())
    assert main(["plan", str(tmp_path), *COMPACT, "--now", str(NOW)]) == 0
    assert name in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["plan", str(tmp_path), *COMPACT, "--now", str(NOW)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" in lines[1]
    assert "-1234567 " in lines[1]
    assert lines[-1].strip() == "min 30 s"


@pytest.mark.parametrize("arguments", [["a", "b", "topic-0"], ["LOG_DIR", "topic"], ["topic-0", "--set", "a=b"], []])
def test_explain_without_a_log_to_look_at_is_a_usage_error(arguments: list[str], capsys: Capture) -> None:
    """Too many names, none of a partition, options of a look without a log dir."""
    try:
        code = main(["explain", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("clean", "--all"),
        ("clean", "--all", "--dry-run"),
        ("plan",),
        ("bulk", "--all", "--dry-run"),
        ("explain", "topic-0"),
    ],
    ids=" ".join,
)
def test_bad_setting_of_a_topic_ends_every_command_with_its_code(
    tmp_path: Path, capsys: Capture, command: tuple[str, ...]
) -> None:
    """Commands that only read report the same as commands that clean."""
    write_log_dir(tmp_path, keyed_log())
    name, *more = command
    code = main([name, str(tmp_path), *more, *COMPACT, "--set", "topic:segment.bytes=garbage"])
    told = "".join(capsys.readouterr())
    assert (code, "segment.bytes=garbage" in told, "cannot be read" in told) == (78, True, False)


def test_bad_setting_is_explained_by_a_command_that_shows_settings(tmp_path: Path, capsys: Capture) -> None:
    """No log is damaged; the suggested command shows the bad setting."""
    write_log_dir(tmp_path, keyed_log())
    given = ("--set", "topic:segment.bytes=garbage")
    assert main(["explain", str(tmp_path), "topic-0", "--format", "json", *given]) == 78
    entry = json.loads(capsys.readouterr().out)
    assert entry["why"] == "bad_setting"
    (command,) = (each["command"] for each in entry["next"])
    assert main(shlex.split(command)[1:]) == 78
    assert "segment.bytes=garbage" in "".join(capsys.readouterr())


def test_bad_setting_and_a_damaged_log_end_with_the_code_of_the_setting(tmp_path: Path, capsys: Capture) -> None:
    """As `clean` does: the largest counts."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("other-0"))
    flip_bit(tmp_path / "topic-0" / "leader-epoch-checkpoint", 0)
    assert main(["plan", str(tmp_path), *COMPACT]) == 1
    assert main(["plan", str(tmp_path), *COMPACT, "--set", "other:segment.bytes=garbage"]) == 78
    capsys.readouterr()
