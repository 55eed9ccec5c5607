"""`cleaner plan`: its answer for each partition, and that it leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.lock.log_dir_lock import LogDirLock
from tests.integration.log_dirs import NOW, contents, flip_bit, keyed_log
from tests.support.log_builder import write_log_dir

COMPACT = ("--set", "topic:cleanup.policy=compact")


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, dict[str, object]], str]:
    code = main(["plan", *map(str, arguments), "--now", str(NOW), "--format", "json"])
    out, err = capsys.readouterr()
    entries = [json.loads(line) for line in out.splitlines()]
    return code, {entry["partition"]: entry for entry in entries}, err


def test_plan_lists_every_partition_with_policy_sizes_and_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sums are those of the files; the reason says why a partition is due or not."""
    at_40 = {TopicPartition("topic", 1): 40}
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), keyed_log("other-0"), cleaner_offsets=at_40)
    sizes = [p.stat().st_size for p in sorted((tmp_path / "topic-1").glob("*.log"))]
    code, found, _ = run(capsys, tmp_path, *COMPACT)
    assert code == 0
    assert list(found) == ["other-0", "topic-0", "topic-1"]
    first, second, other = found["topic-0"], found["topic-1"], found["other-0"]
    assert (first["policy"], first["policy_trusted"], first["is_due"]) == ("compact", True, True)
    assert (second["clean_bytes"], second["dirty_bytes"]) == (sizes[0] + sizes[1], sizes[2])
    assert (second["uncleanable_bytes"], second["bytes"], second["segments"]) == (sizes[3], sum(sizes), 4)
    assert (second["is_due"], second["reason"]) == (False, "ratio 0.333 not above 0.5")
    assert (other["policy"], other["is_due"], other["first_dirty_offset"]) == ("delete", False, None)


def test_plan_leaves_no_trace_and_ignores_a_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No lock is taken, no file is written."""
    write_log_dir(tmp_path, keyed_log())
    before = contents(tmp_path)
    code, _, _ = run(capsys, tmp_path, *COMPACT)
    assert (code, (tmp_path / ".lock").exists()) == (0, False)
    with LogDirLock(FileSystem(), tmp_path):
        assert run(capsys, tmp_path, *COMPACT)[0] == 0
    assert contents(tmp_path) == before


def test_plan_of_a_log_in_use_uses_names_and_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A running broker's active indexes are padded with zeros and its last batch may be half written."""
    write_log_dir(tmp_path, keyed_log(), clean_shutdown=False)
    with (tmp_path / "topic-0" / "00000000000000000060.index").open("ab") as index:
        index.write(bytes(8 * 100))
    with (tmp_path / "topic-0" / "00000000000000000060.log").open("ab") as log:
        log.write(b"half a batch")
    code, found, _ = run(capsys, tmp_path, *COMPACT)
    assert (code, found["topic-0"]["is_due"], found["topic-0"]["first_uncleanable_offset"]) == (0, True, 60)


def test_plan_of_a_damaged_partition_names_the_damage_and_lists_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A partition that cannot be read has an error, and the exit code shows it."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"))
    flip_bit(tmp_path / "topic-0" / "leader-epoch-checkpoint", 0)
    code, found, err = run(capsys, tmp_path, *COMPACT)
    assert code == 1
    assert "leader-epoch-checkpoint" in str(found["topic-0"]["error"])
    assert "leader-epoch-checkpoint" in err
    assert found["topic-1"]["is_due"] is True


def test_plan_names_the_option_when_there_is_no_high_watermark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy without checkpoints is not simply `not due`."""
    write_log_dir(tmp_path, keyed_log(), high_watermarks={})
    assert "--high-watermark end" in str(run(capsys, tmp_path, *COMPACT)[1]["topic-0"]["reason"])
    _, found, _ = run(capsys, tmp_path, *COMPACT, "--high-watermark", "end")
    assert found["topic-0"]["is_due"] is True


def test_plan_of_a_doubtful_policy_is_not_due_and_says_where_it_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sizes are shown all the same."""
    write_log_dir(tmp_path, keyed_log())
    entry = run(capsys, tmp_path, "--set", "cleanup.policy=compact")[1]["topic-0"]
    assert (entry["is_due"], entry["policy_trusted"]) == (False, False)
    assert "known only from --set" in str(entry["reason"])
    assert entry["dirty_bytes"] != 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "cleanup.policy of 2 topics is only Kafka's default: if some of them are compacted, say so"),
        (("--set", "other:cleanup.policy=compact"), "cleanup.policy of 1 topic is only Kafka's default: if it is"),
        (("--set", "other:cleanup.policy=delete", "--set", "topic:cleanup.policy=compact"), ""),
    ],
    ids=["two", "one", "all-known"],
)
def test_plan_says_when_a_policy_is_only_kafkas_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], said: str
) -> None:
    """`delete`, `not compacted` reads like a fact about the topic; `clean --all` leads here and no further."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("topic-1"), keyed_log("other-0"))
    main(["plan", str(tmp_path), "--now", str(NOW), *given])
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert ("only Kafka's default" in err) == bool(said)


def test_table_shows_a_line_a_partition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people."""
    write_log_dir(tmp_path, keyed_log(), keyed_log("other-0"))
    assert main(["plan", str(tmp_path), *COMPACT, "--now", str(NOW)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["partition", "policy"],
        ["other-0", "delete"],
        ["topic-0", "compact"],
    ]
