"""`cleaner verify`: its output about a cleaned log, as a user sees it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

import cleaner
from cleaner.app.options import CallContext
from cleaner.app.verify_log_dirs import VerifyOptions, VerifyReport, verify_log_dirs
from cleaner.cli.main import main
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log
from tests.support.batch_reader import split_batches
from tests.support.log_builder import LogBuilder, write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")
FIRST = "00000000000000000000.log"


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A log dir of two partitions, and the same cleaned."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write_log_dir(before, keyed_log(), keyed_log("topic-1"))
    shutil.copytree(before, after)
    for name in ("topic-0", "topic-1"):
        cleaner.clean(after, name, {"cleanup.policy": "compact"}, now_ms=NOW)
    return before, after


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["verify", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_verify_of_log_dirs_proves_each_partition_and_leaves_no_trace(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """All partitions without names, in JSON with a version; not a file changes, and no lock is taken."""
    found = contents(pair[0]), contents(pair[1])
    (pair[1] / ".lock").unlink(missing_ok=True)
    code, out, err = run(capsys, *pair, *COMPACT, "--now", str(NOW), "--format", "json")
    reports = [json.loads(line) for line in out.splitlines()]

    assert (code, err) == (0, "")
    assert [(each["partition"], each["is_proven"]) for each in reports] == [("topic-0", True), ("topic-1", True)]
    assert {(each["format"], each["format_version"]) for each in reports} == {("cleaner-verify", 1)}
    assert (reports[0]["records"], reports[0]["keys"], reports[0]["end_offset"]) == (60, 5, 60)
    assert (contents(pair[0]), contents(pair[1])) == found
    assert not (pair[1] / ".lock").exists()


def test_verify_of_partition_directories_uses_the_checkpoints_next_to_them(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two directories of a partition, with or without `--end`."""
    sides = [side / "topic-0" for side in pair]
    assert run(capsys, *sides, *COMPACT)[0] == 0
    (pair[1] / "cleaner-offset-checkpoint").unlink()
    code, out, _ = run(capsys, *sides, *COMPACT)
    assert code == 1
    assert "give the end: --end" in out
    assert run(capsys, *sides, *COMPACT, "--end", "60", "--memory", "1")[0] == 0


def test_verify_of_a_log_that_lost_a_record_says_where_and_no_key(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """File, position, offset and reason; 1 is the exit code; the other partition is proven."""
    path = pair[1] / "topic-0" / FIRST
    batches = split_batches(path.read_bytes())
    path.write_bytes(b"".join(batches[:-3] + batches[-2:]))
    code, out, _ = run(capsys, *pair, *COMPACT)

    assert code == 1
    lines = out.splitlines()
    assert lines[0] == "topic-0: REFUTED, 1 findings"
    assert lines[2] == "  offset 57: lost: the last record of its key, and missing"
    assert lines[3].startswith(f"    {pair[0] / 'topic-0' / '00000000000000000040.log'}: at byte ")
    assert "topic-1: proven" in lines
    assert "k2" not in out.replace(str(pair[0]), "")


def test_verify_with_damage_refutes_what_is_cleaned_and_refuses_the_source(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged result is a finding; by a damaged source nothing can be proven."""
    flip_bit(pair[1] / "topic-0" / FIRST)
    code, out, _ = run(capsys, *pair, "topic-0", *COMPACT)
    assert code == 1
    assert "damaged: the CRC-32C does not match" in out
    flip_bit(pair[0] / "topic-1" / FIRST)
    code, _, err = run(capsys, *pair, "topic-1", *COMPACT)
    assert code == 1
    assert f"{pair[0] / 'topic-1' / FIRST}: at byte" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "after"), "nowhere: no such directory"),
        (("before", "after", "topic-7"), "no partition topic-7"),
        (("before/topic-0", "after/topic-0", "topic-0"), "two partition directories and names"),
        (("before/topic-0", "after"), "give two log dirs, or two directories"),
    ],
    ids=["no-directory", "no-partition", "names-too-many", "mixed"],
)
def test_verify_of_a_missing_log_is_refused(
    pair: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    """Usage errors name what is wrong."""
    monkeypatch.chdir(pair[0].parent)
    code, _, err = run(capsys, *arguments, *COMPACT)
    assert code == 2
    assert words in err


def test_verify_takes_what_clean_has_kept_as_the_log_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over two rounds, the second of which replaced the output of the first; a lost record is still found."""
    (tmp_path / "logs").mkdir()
    log_dir = write_log_dir(tmp_path / "logs", keyed_log(), keyed_log("topic-1"))
    kept = tmp_path / "kept"
    for max_bytes in ("1", "1G"):
        words = ("--now", str(NOW), "--keep-old", str(kept), "--max-dirty-bytes", max_bytes)
        assert main(["clean", str(log_dir), "topic-0", *COMPACT, *words]) == 0
    capsys.readouterr()
    code, out, err = run(capsys, kept, log_dir, *COMPACT, "--now", str(NOW), "--format", "json")
    (report,) = [json.loads(line) for line in out.splitlines()]

    assert (code, err, report["partition"]) == (0, "", "topic-0")
    assert (report["first_dirty_offset"], report["end_offset"], report["records"]) == (0, 60, 60)
    shutil.copytree(kept / "topic-0", kept / "copy of topic-0")  # not a partition's name: left out
    assert run(capsys, kept, log_dir, *COMPACT, "--now", str(NOW), "--format", "json") == (code, out, err)
    segment = log_dir / "topic-0" / FIRST
    segment.write_bytes(b"".join(split_batches(segment.read_bytes())[1:]))
    assert run(capsys, kept, log_dir, *COMPACT)[0] == 1


def test_segments_that_stayed_in_place_are_of_the_log_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only replaced segments are kept; the others, below and between them, are where they were."""
    log = LogBuilder()
    for number in range(5):
        log.append((f"a{number}", "v" * 300), (f"b{number}", "v" * 100))
        log.roll()
    log.append(("a2", "later"))
    log.roll()
    log.append(("z", "z"))
    (tmp_path / "logs").mkdir()
    log_dir, kept = write_log_dir(tmp_path / "logs", log), tmp_path / "kept"
    settings = ("--set", "topic:cleanup.policy=compact", "--set", "topic:internal.segment.bytes=600")
    assert main(["clean", str(log_dir), "topic-0", *settings, "--keep-old", str(kept), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes_in_place"] == 3 * 483
    assert run(capsys, kept, log_dir, *settings)[0] == 0
    segment = log_dir / "topic-0" / "00000000000000000004.log"
    segment.write_bytes(b"")
    assert run(capsys, kept, log_dir, *settings)[0] == 1


class _Noting(FileSystem):
    """Notes what a file and its directory are like when it is removed."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def remove(self, path: Path) -> None:
        self.seen.append((path.stat().st_uid, path.stat().st_size, stat.S_IMODE(path.parent.stat().st_mode)))
        super().remove(path)


def test_file_for_sorting_is_private_where_all_may_write(tmp_path: Path) -> None:
    """As in `/tmp`: neither open to all as that is nor, which only root could make, its owner's; no name is left."""
    write_log_dir(tmp_path / "logs", keyed_log(records=400))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    if os.geteuid() == 0:
        os.chown(shared, 4711, 4711)
    fs = _Noting()
    options = VerifyOptions(end_offset=1200, memory_bytes=1, temp_dir=shared)
    (outcome,) = verify_log_dirs(
        tmp_path / "logs", tmp_path / "logs", Sources(), CallContext.of(fs=fs, now_ms=NOW), options, []
    )
    assert isinstance(outcome, VerifyReport)
    assert fs.seen == [(os.geteuid(), 0, 0o700)] * 2  # the second one is the lock of the directory
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize(
    ("cleaned_as", "high_watermark", "fits"),
    [("4.3", 19, ["4.3"]), ("4.4", 19, ["4.4"]), ("4.3", 18, ["4.3", "4.4"]), ("4.4", 18, ["4.3", "4.4"])],
)
def test_verify_says_which_kafka_s_rules_a_log_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cleaned_as: str, high_watermark: int, fits: list[str]
) -> None:
    """They differ where the batch that ends the range has lost its records and the high watermark lies behind it."""
    log = LogBuilder()
    log.append(*[(f"k{i}", "value") for i in range(17)])
    log.append((None, "without a key"))
    log.roll()
    log.append(("k1", "later"), ("k2", "later"))
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write_log_dir(before, log, high_watermarks={log.topic_partition: high_watermark})
    shutil.copytree(before, after)
    given = {"cleanup.policy": "compact", "cleaner.kafka.version": cleaned_as}
    report = cleaner.clean(after, "topic-0", given, now_ms=NOW)
    assert (report.kafka, report.end_offset) == (cleaned_as, 18)
    code, out, _ = run(capsys, before, after, *COMPACT, "--now", str(NOW), "--format", "json")
    assert (code, json.loads(out)["kafka"]) == (0, fits)
    for version in ("4.3", "4.4"):
        code, out, _ = run(capsys, before, after, *COMPACT, "--now", str(NOW), "--as-kafka", version)
        assert code == (0 if version in fits else 1)
        assert ("REFUTED" in out) is (version not in fits)


def test_verify_of_a_log_that_retention_has_emptied_is_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log then starts where it ends, at its only producer snapshot, which is there."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write_log_dir(before, keyed_log())
    policy = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    cleaner.clean(before, "topic-0", policy, now_ms=NOW)
    shutil.copytree(before, after)
    later = NOW + 1_000_000_000
    report = cleaner.clean(after, "topic-0", policy, now_ms=later, retention=True)
    assert report.retention_deleted_segments > 0
    assert [path.stat().st_size for path in (after / "topic-0").glob("*.log")] == [0]
    assert list((after / "topic-0").glob("*.snapshot"))
    settings = [word for key, value in policy.items() for word in ("--set", f"topic:{key}={value}")]
    code, out, _ = run(capsys, before, after, *settings, "--now", str(later))
    assert (code, out.splitlines()[0]) == (0, "topic-0: proven")
