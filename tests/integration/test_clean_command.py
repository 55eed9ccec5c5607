"""`cleaner clean` from the command line to the files: what it cleans, what it refuses, what it says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.cli.progress import ProgressBar
from cleaner.cli.stop import StopFlag
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log, offsets, record_offsets
from tests.support.batch_builder import Producer
from tests.support.log_builder import LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")
REPORT_NAMES = {
    "partition", "first_dirty_offset", "end_offset", "bytes_read", "bytes_written", "messages_read",
    "messages_written", "map_messages_read", "invalid_messages", "removed", "rounds_remaining", "map_seconds",
    "copy_seconds", "elapsed_seconds",
}  # fmt: skip
REMOVED_NAMES = {"superseded", "tombstones", "aborted", "markers", "keyless"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[dict[str, object]], str]:
    """Run `cleaner clean --format json`; returns exit code, the objects printed, and standard error."""
    code = main(["clean", *map(str, arguments), "--now", str(NOW), "--format", "json"])
    out, err = capsys.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err


def test_named_partition_is_cleaned_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object with the documented names; the checkpoint is at the active segment; the marker stays."""
    write_log_dir(tmp_path, keyed_log())
    code, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert code == 0
    assert report.keys() >= REPORT_NAMES
    assert set(report["removed"]) == REMOVED_NAMES  # type: ignore[call-overload]
    assert (report["first_dirty_offset"], report["end_offset"], report["messages_read"]) == (0, 60, 60)
    assert (report["messages_written"], report["removed"]["superseded"]) == (5, 55)  # type: ignore[index]
    assert report["rounds_remaining"] == 0
    assert offsets(tmp_path, "cleaner") == {"topic-0": 60}
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not [name for name in contents(tmp_path) if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_that_end_in_zeros_count_in_groups_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    """D-02, R-580: as in both releases, each is a full index, and two do not fit one; the active one stays."""
    for name in ("zeros", "cut"):
        directory = write_log_dir(tmp_path / name, keyed_log()) / "topic-0"
        for path in directory.glob(f"*{suffix}") if name == "zeros" else ():
            with path.open("r+b") as file:
                file.truncate((10 << 20) // 24 * 24)
        assert run(capsys, tmp_path / name, "topic-0", *COMPACT)[0] == 0
    found = {name: sorted((tmp_path / name).glob("topic-0/*.log")) for name in ("zeros", "cut")}
    assert [len(logs) - 1 for logs in found.values()] == [3, 1]
    zeros, cut = (b"".join(path.read_bytes() for path in logs) for logs in found.values())
    assert zeros == cut
    sizes = [path.stat().st_size for path in sorted((tmp_path / "zeros" / "topic-0").glob(f"*{suffix}"))]
    assert sizes[-1] == (10 << 20) // 24 * 24
    assert max(sizes[:-1]) < 100


def test_second_run_finds_nothing_to_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to do is exit code 0, says why, and changes nothing."""
    write_log_dir(tmp_path, keyed_log())
    run(capsys, tmp_path, "topic-0", *COMPACT)
    before = contents(tmp_path)
    code, [report], err = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert (code, report["end_offset"], report["messages_read"]) == (0, 60, 0)
    assert "active segment" in err
    assert contents(tmp_path) == before


def test_partition_without_high_watermark_is_not_cleaned_and_the_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D-03: nothing is known to be replicated; with `--high-watermark end` everything is."""
    write_log_dir(tmp_path, keyed_log(), high_watermarks={})
    before = contents(tmp_path)
    code, [report], err = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert (code, report["end_offset"]) == (0, 0)
    assert "--high-watermark end" in err
    assert contents(tmp_path) == before
    code, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT, "--high-watermark", "end")
    assert (code, report["end_offset"]) == (0, 60)


def test_high_watermark_as_a_number_bounds_the_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The segment that holds the high watermark is not cleaned (R-408)."""
    write_log_dir(tmp_path, keyed_log())
    _, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT, "--high-watermark", "45")
    assert report["end_offset"] == 40


def test_bare_copy_is_cleaned_with_recover_and_high_watermark_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a partition directory: no checkpoints, no marker, no `meta.properties`; still no marker, which is said."""
    keyed_log().write(tmp_path)
    code, [report], err = run(capsys, tmp_path, "topic-0", *COMPACT, "--recover", "--high-watermark", "end")
    assert (code, report["end_offset"]) == (0, 60)
    assert "only what is named is recovered: no clean-shutdown marker is written" in err
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert offsets(tmp_path, "cleaner") == {"topic-0": 60}


def test_log_dir_without_marker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D-02: its logs may be torn; the message names the way out, and nothing changes."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    before = contents(tmp_path)
    code, reports, err = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert (code, reports) == (1, [])
    assert "--recover" in err
    assert contents(tmp_path) == before


def test_all_with_recover_recovers_the_whole_directory_and_marks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every partition was recovered in this run, so the marker may be written."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("other-0"), clean_shutdown=False)
    code, [report], _ = run(capsys, tmp_path, "--all", "--recover", *COMPACT)
    assert (code, report["partition"], report["end_offset"]) == (0, "topic-0", 60)
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_all_with_recover_says_why_there_is_no_marker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As `recover` does: the next command would refuse the log dir, and a broker recover it, with nothing said."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    stray = f"gone-0.{'0' * 32}-stray"
    keyed_log("gone-0").write(tmp_path).rename(tmp_path / stray)
    code, [report], err = run(capsys, tmp_path, "--all", "--recover", *COMPACT)
    assert (code, report["end_offset"]) == (0, 60)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert f"{stray} is never touched by this command: no clean-shutdown marker is written" in err


def test_log_dir_in_use_is_refused_with_75(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another holder of the lock keeps the command out before it touches anything."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    with LogDirLock(FileSystem(), tmp_path):
        code, reports, err = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert (code, reports) == (75, [])
    assert ".lock" in err
    assert contents(tmp_path) == before


def test_damaged_partition_is_left_alone_and_the_others_are_cleaned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, a line naming file, position and reason, the directory and its checkpoint lines unchanged."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    flip_bit(tmp_path / "topic-0" / "00000000000000000020.log")
    before = contents(tmp_path / "topic-0")
    code, [refused, report], err = run(capsys, tmp_path, "topic-0", "topic-1", *COMPACT)
    assert (code, report["partition"], report["end_offset"]) == (1, "topic-1", 60)
    assert refused.keys() == {"format", "format_version", "partition", "error", "next"}
    assert f"cleaner check {tmp_path}/topic-0" in refused["next"]
    assert "00000000000000000020.log: at byte " in err
    assert "Traceback" not in err
    assert contents(tmp_path / "topic-0") == before
    assert offsets(tmp_path, "cleaner") == {"topic-1": 60}


@pytest.mark.parametrize("name", ["cleaner", "replication", "recovery-point", "log-start"])
def test_damaged_checkpoint_refuses_the_whole_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A checkpoint holds lines of all partitions, so none of them is cleaned."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    (tmp_path / f"{name}-offset-checkpoint").write_text("0\n1\ntopic 0 plenty\n")
    before = contents(tmp_path)
    code, reports, err = run(capsys, tmp_path, "--all", *COMPACT)
    assert (code, reports) == (1, [])
    assert f"{name}-offset-checkpoint: at byte " in err
    assert contents(tmp_path) == before


def test_topic_that_is_not_compacted_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A topic without `compact` is never compacted, not even when named (D-06)."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    code, _, err = run(capsys, tmp_path, "topic-0")
    assert code == 1
    assert "cleanup.policy is delete" in err
    assert contents(tmp_path) == before


def test_all_cleans_due_logs_and_skips_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-421: the ratio decides; a log cleaned up to its active segment is not due."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), cleaner_offsets={TopicPartition("topic", 1): 60})
    code, [report], _ = run(capsys, tmp_path, "--all", *COMPACT)
    assert (code, report["partition"]) == (0, "topic-0")


@pytest.mark.parametrize(
    ("options", "is_cleaned"),
    [
        pytest.param(("--set", "cleanup.policy=compact"), False, id="unscoped-set"),
        pytest.param(("--set", "cleanup.policy=compact", "--trust-default-policy"), False, id="unscoped-set-trusted"),
        pytest.param(("--set", "log.cleanup.policy=compact"), False, id="unscoped-broker-name"),
        pytest.param(COMPACT, True, id="scoped-set"),
    ],
)
def test_all_does_not_trust_a_policy_set_for_every_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], is_cleaned: bool
) -> None:
    """Compacting a log that is not meant to be compacted destroys it."""
    write_log_dir(tmp_path, keyed_log())
    code, reports, err = run(capsys, tmp_path, "--all", *options)
    assert (code, len(reports)) == (0, int(is_cleaned))
    assert is_cleaned or "passed over" in err


def broker_default(tmp_path: Path) -> Path:
    """A `server.properties` whose default for all topics is to compact."""
    path = tmp_path / "server.properties"
    path.write_text("log.cleanup.policy=compact\n")
    return path


def test_default_policy_is_trusted_only_with_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker's default is no decision about this topic; naming the partition or trusting the default is."""
    log_dir = write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"))
    config = broker_default(tmp_path)
    assert run(capsys, log_dir, "--all", "--config", config)[1] == []
    assert [r["partition"] for r in run(capsys, log_dir, "topic-1", "--config", config)[1]] == ["topic-1"]
    _, reports, _ = run(capsys, log_dir, "--all", "--config", config, "--trust-default-policy")
    assert [r["partition"] for r in reports] == ["topic-0"]


def typed(err: str) -> list[str]:
    """Return the arguments of the offered command, as a shell reads them, without `cleaner`."""
    command = err.partition("  next: ")[2].partition("rules of Kafka")[0]
    done = subprocess.run(
        ["bash", "-c", f'cleaner() {{ printf "%s\\0" "$@"; }}; {command}'], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("columns", [None, "40", "80"])
def test_refused_policy_comes_with_the_command_that_sets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    """Everything typed stays, except other partitions; names with blanks are quoted; folded lines can be pasted."""
    log_dir = write_log_dir(tmp_path / "two words and more of them $HOME", keyed_log(), keyed_log("other-1"))
    words = ["clean", str(log_dir), "topic-0", "other-1", "--set", "other:cleanup.policy=compact", "--now", str(NOW)]
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert main(words) == 1
    words.remove("other-1")
    offered = typed(capsys.readouterr().err)
    assert offered == [*words, "--set", "topic:cleanup.policy=compact"]
    assert main(offered) == 0


def test_policies_that_are_only_defaults_come_with_the_command_that_confirms_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `--all`: one command for all topics, or of many the option for all defaults."""
    log_dir = write_log_dir(tmp_path / "logs", *(keyed_log(f"t{number}-0") for number in range(4)))
    words = ["clean", str(log_dir), "--all", "--config", str(broker_default(tmp_path))]
    assert main(words) == 0
    assert typed(capsys.readouterr().err) == [*words, "--trust-default-policy"]
    given = [word for number in range(3) for word in ("--set", f"t{number}:cleanup.policy=compact")]
    assert main([*words, *given]) == 0
    offered = typed(capsys.readouterr().err)
    assert offered == [*words, *given, "--set", "t3:cleanup.policy=compact"]
    assert main(offered) == 0
    assert "t3-0" in capsys.readouterr().out


def test_keyless_records_stop_a_topic_compacted_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They show that the topic was not compacted while it was written; the partition must be named."""
    log = keyed_log(segments=1)
    log.append((None, "no key"))
    log.roll()
    log.append(("k", "v"))
    log_dir = write_log_dir(tmp_path / "logs", log)
    before = contents(log_dir)
    config = broker_default(tmp_path)
    code, _, err = run(capsys, log_dir, "--all", "--config", config, "--trust-default-policy")
    assert code == 1
    assert "1 records without a key" in err
    assert contents(log_dir) == before
    code, [report], _ = run(capsys, log_dir, "topic-0", "--config", config)
    assert (code, report["invalid_messages"]) == (0, 1)


SMALL_MAP = ("--set", "log.cleaner.dedupe.buffer.size=96")  # four slots, three keys


def test_replicated_log_draws_a_warning_and_keeps_its_tombstones_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A follower that was away may still need a tombstone or a marker whose horizon has passed (D-13)."""
    log = LogBuilder(TopicPartition("topic", 0))
    log.append(("gone", None), delete_horizon_ms=NOW - 1)
    log.end_transaction(7, 0, commit=True, delete_horizon_ms=NOW - 1)
    log.append(("new", None))
    log.roll()
    log.append(("k", "v"))
    config = tmp_path / "server.properties"
    config.write_text("default.replication.factor=3\n")
    counts = []
    for number, options in enumerate((("--keep-tombstones",), ())):
        log_dir = write_log_dir(tmp_path / str(number), log)
        code, [report], err = run(capsys, log_dir, "topic-0", *COMPACT, "--config", config, *options)
        removed = report["removed"]
        counts.append((code, removed["tombstones"], removed["markers"], report["messages_written"]))  # type: ignore[index]
        assert ("3 replicas (default.replication.factor)" in err) == (not options)
    assert counts == [(0, 0, 0, 3), (0, 1, 1, 1)]


def test_small_map_ends_the_round_early_and_reports_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint is where the map was full (R-513), and the rounds left are estimated."""
    write_log_dir(tmp_path, keyed_log())
    code, [report], err = run(capsys, tmp_path, "topic-0", *COMPACT, *SMALL_MAP)
    assert (code, report["end_offset"]) == (0, 3)
    assert report["rounds_remaining"] > 1  # type: ignore[operator]
    assert str(report["note"]).startswith("the offset map was full at offset 3 of 60: ")
    assert "--rounds all" in err
    assert offsets(tmp_path, "cleaner") == {"topic-0": 3}


def test_rounds_all_continues_until_the_range_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three keys a round: 20 rounds for 60 records; the last record of each key and the active segment stay."""
    write_log_dir(tmp_path, keyed_log())
    code, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT, *SMALL_MAP, "--rounds", "all")
    assert (code, report["end_offset"], report["rounds_remaining"]) == (0, 60, 0)
    assert report["rounds"] == 20
    assert record_offsets(tmp_path / "topic-0") == list(range(55, 80))


def test_limit_on_dirty_bytes_lets_the_checkpoint_advance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A round that ends early is a whole round: it swaps and moves the checkpoint, never past what it read."""
    write_log_dir(tmp_path, keyed_log())
    _, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT, "--max-dirty-bytes", "1")
    assert 0 < report["end_offset"] < 60  # type: ignore[operator]
    assert str(report["note"]).startswith("the round ended at --max-dirty-bytes at offset ")
    assert offsets(tmp_path, "cleaner") == {"topic-0": report["end_offset"]}


def test_retention_deletes_expired_segments_after_the_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compact,delete`: segments older than `retention.ms` are removed, up to the first that is not."""
    write_log_dir(tmp_path, keyed_log())
    settings = ("--set", "topic:cleanup.policy=compact,delete", "--set", "topic:retention.ms=1000")
    code, [report], _ = run(capsys, tmp_path, "topic-0", *settings, "--retention")
    assert code == 0
    assert report["retention_deleted_segments"] == 2  # the cleaned one and, by its age, the active one
    assert [p.name for p in (tmp_path / "topic-0").glob("*.log")] == ["00000000000000000080.log"]


def test_checkpoint_outside_the_log_is_corrected_though_nothing_is_cleaned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-405 (testCheckpointUpdatedForInvalidOffsetNoCleaning)."""
    write_log_dir(tmp_path, keyed_log(segments=0), cleaner_offsets={TopicPartition("topic", 0): 999})
    run(capsys, tmp_path, "topic-0", *COMPACT)
    assert offsets(tmp_path, "cleaner") == {"topic-0": 0}


def test_checkpoint_lines_of_absent_partitions_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """D-12: a line without a directory here would kill the cleaner of a broker with two log dirs (R-442)."""
    gone, kept = TopicPartition("gone", 0), TopicPartition("topic", 1)
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), cleaner_offsets={gone: 5, kept: 60})
    run(capsys, tmp_path, "topic-0", *COMPACT)
    assert offsets(tmp_path, "cleaner") == {"topic-0": 60, "topic-1": 60}


def test_dry_run_says_what_would_be_done_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not even a lock file is left."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    code, [entry], _ = run(capsys, tmp_path, "topic-0", *COMPACT, "--dry-run")
    assert (code, entry["first_dirty_offset"], entry["first_uncleanable_offset"]) == (0, 0, 60)
    assert contents(tmp_path) == before
    assert not (tmp_path / ".lock").exists()


def test_open_transaction_bounds_the_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R-407: nothing from the segment with its first record on is cleaned."""
    log = keyed_log(segments=1)
    log.append(("k", "undecided"), producer=Producer(7, 0, 0, transactional=True))
    log.roll()
    log.append(("k", "later"))
    write_log_dir(tmp_path, log)
    _, [report], _ = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert report["end_offset"] == 20


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        pytest.param(("nowhere-0",), 2, "no partition nowhere-0", id="no-such-partition"),
        pytest.param(("nonsense",), 2, "nonsense", id="not-a-name"),
        pytest.param((), 2, "--all", id="neither-names-nor-all"),
        pytest.param(("topic-0", "--all"), 2, "--all", id="names-and-all"),
        pytest.param(("topic-0", "--set", "nothing"), 2, "KEY=VALUE", id="set-without-value"),
        pytest.param(("topic-0", "--set", "topic:segment.bytes=x"), 78, "segment.bytes=x", id="bad-value"),
        pytest.param(("topic-0", "--set", "log.cleaner.thread=2"), 78, "log.cleaner.threads", id="misspelt"),
        pytest.param(("topic-0", "--config", "/nowhere"), 78, "/nowhere", id="no-such-config"),
    ],
)
def test_bad_command_lines_end_with_their_code_and_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, word: str
) -> None:
    """2 for usage, 78 for settings; one line that names what is wrong."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    found, reports, err = run(capsys, tmp_path, *arguments)
    assert (found, [r for r in reports if "error" not in r]) == (code, [])
    assert word.lower() in err.lower()
    assert contents(tmp_path) == before


def test_missing_log_dir_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is created in its place."""
    assert run(capsys, tmp_path / "nowhere", "--all")[0] == 2
    assert not (tmp_path / "nowhere").exists()


def test_table_has_a_row_a_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: headings and one line each, numbers under their headings."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    assert main(["clean", str(tmp_path), "--all", *COMPACT, "--now", str(NOW)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["partition", "topic-0", "topic-1"]
    assert len({len(line) for line in lines}) == 1


def test_partition_directory_that_is_a_link_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link may lead anywhere; it is never followed."""
    elsewhere = LogBuilder.write(keyed_log(), tmp_path / "elsewhere")
    log_dir = write_log_dir(tmp_path / "logs", keyed_log("topic-1"))
    (log_dir / "topic-0").symlink_to(elsewhere)
    code, _, err = run(capsys, log_dir, "topic-0", *COMPACT)
    assert code == 2
    assert "symbolic link" in err


@pytest.mark.parametrize("phase", ["map", "copy"])
def test_sigterm_stops_within_a_buffer_and_says_what_remains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    """No temporary file is left, the checkpoint does not move, the exit code is 1."""
    write_log_dir(tmp_path, keyed_log())
    heard = threading.Event()
    set_flag = StopFlag.set
    monkeypatch.setattr(StopFlag, "set", lambda flag, name: (set_flag(flag, name), heard.set()))

    def kill(_bar: ProgressBar, name: str, _done: int, _total: int) -> None:
        if name.endswith(phase) and not heard.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
            heard.wait()

    monkeypatch.setattr(ProgressBar, "__call__", kill)
    code, reports, err = run(capsys, tmp_path, "topic-0", *COMPACT)
    assert (code, reports) == (1, [])
    assert "topic-0: stopped by SIGTERM" in err
    assert "offsets 0 to 60 remain" in err
    assert offsets(tmp_path, "cleaner") == {}
    assert not [name for name in contents(tmp_path) if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that other users may enter; pytest's own are for the user who runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
@pytest.mark.parametrize("options", [(), ("--as-root",)], ids=["as-owner", "as-root"])
def test_files_stay_the_owner_s_when_root_cleans(open_directory: Path, options: tuple[str, ...]) -> None:
    """Segments, checkpoints and `.lock` belong to uid 1001, as the log dir does."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    log_dir = write_log_dir(open_directory / "logs", keyed_log())
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, 1001, 1001)
    command = [sys.executable, "-m", "cleaner", "clean", str(log_dir), "topic-0", *COMPACT, *options, "--now", str(NOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    usual = ("cleaner: compiling kernels", "rules of Kafka")
    said = [line for line in done.stderr.splitlines() if not line.startswith(usual)]
    assert (done.returncode, said) == (0, [])
    assert {(path.stat().st_uid, path.stat().st_gid) for path in log_dir.rglob("*")} == {(1001, 1001)}
    assert (log_dir / ".lock").exists()
    assert offsets(log_dir, "cleaner") == {"topic-0": 60}
