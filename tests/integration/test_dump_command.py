"""`cleaner dump`: what it shows, hides and does with damage; tests/kafka compares its lines with Kafka's."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from cleaner.cli.main import main
from tests.integration.log_dirs import contents, flip_bit
from tests.support.batch_builder import Producer, Record
from tests.support.log_builder import LogBuilder, write_log_dir
from tests.unit.verification_check.checking import positions

BASE = "00000000000000000000"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log = LogBuilder(index_interval_bytes=100)
    log.append(Record(b"secret-key", b"secret\x1b[2J value", headers=((b"h\x1b1", b"x"),)), ("k2", None))
    log.append((b"\xff\xfe", b"\x00\x80"), producer=Producer(7, 1, 5, transactional=True))
    log.end_transaction(7, 1, commit=False)
    log.append(("k3", "v" * 100), codec="gzip")
    log.roll()
    log.append(("c", "d"))
    return write_log_dir(tmp_path, log) / "topic-0"


def dump(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[str], str]:
    code = main(["dump", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out.split("\n")[:-1], err


def objects(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, object]]:
    found = [json.loads(line) for line in dump(capsys, *arguments, "--format", "json")[1]]
    assert {(each["format"], each["format_version"]) for each in found} == {("cleaner-dump", 1)}
    return found


def test_keys_and_values_are_shown_only_where_they_are_asked_for(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches, then records, then their contents."""
    log = directory / f"{BASE}.log"
    for options, records in (([], 0), (["--deep-iteration"], 5)):
        code, lines, err = dump(capsys, log, *options)
        assert (code, err, len(lines)) == (0, "", 2 + 4 + records)
        assert "secret" not in str(lines)
    shown = dump(capsys, log, "--print-data-log")[1]
    assert shown[3].endswith("key: secret-key payload: secret\x1b[2J value")
    assert shown[4].endswith(" key: k2")


def test_batch_that_is_kept_empty_has_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cleaning leaves such batches; the records of the others follow."""
    log = LogBuilder()
    log.append_empty(3)
    log.append(("k", "v"))
    code, lines, err = dump(capsys, write_log_dir(tmp_path, log) / "topic-0" / f"{BASE}.log", "--print-data-log")
    assert (code, len(lines)) == (0, 2 + 2 + 1)
    assert err.splitlines()[1:] == ["  -1 is followed by 3"]  # Kafka's dump says so, too
    assert lines[-1].endswith("key: k payload: v")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_made_visible_on_a_terminal(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value must not be able to clear the screen, or look like another line."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["dump", str(directory / f"{BASE}.log"), "--print-data-log"]) == 0
    assert r"payload: secret\x1b[2J value" in terminal.getvalue()
    assert r"headerKeys: [h\x1b1]" in terminal.getvalue()


def test_json_has_the_same_for_programs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are no text are base64, control records have a name."""
    log = directory / f"{BASE}.log"
    found = objects(capsys, log, "--print-data-log")
    assert [each["what"] for each in found][:4] == ["log", "batch", "record", "record"]
    records = [each for each in found if each["what"] == "record"]
    assert (records[0]["key"], records[1]["value"], records[0]["header_names"]) == ("secret-key", None, ["h\x1b1"])
    assert records[2]["key"] == {"base64": "//4="}
    assert records[3]["control"] == {"name": "endTxnMarker", "type": "ABORT", "coordinatorEpoch": 0}
    assert [each["offset"] for each in records] == [0, 1, 2, 3, 4]
    assert all("key" not in each for each in objects(capsys, log, "--deep-iteration"))


def test_every_small_file_is_shown(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Indexes, snapshots, the checkpoints of a partition and of its log dir, ids."""
    names = [f"{BASE}.index", f"{BASE}.timeindex", f"{BASE}.txnindex", "leader-epoch-checkpoint", "partition.metadata"]
    log_dir = directory.parent
    paths = [directory / name for name in names] + [max(directory.glob("*.snapshot"))]
    paths += [log_dir / "replication-offset-checkpoint", log_dir / "meta.properties"]
    code, lines, err = dump(capsys, "--files", ",".join(map(str, paths)))
    assert (code, err) == (0, "")
    for line in (
        "version: 0 producerId: 7 firstOffset: 2 lastOffset: 3 lastStableOffset: 4",
        "epoch: 0 startOffset: 0",
        "topicId: AAAAAAAAQACAAAAAAAAAAQ",
        "topic: topic partition: 0 offset: 6",
        "version: 1 clusterId: testcluster nodeId: 1 directoryId: AAAAAAAAQACAAAAAAAAAAg",
    ):
        assert line in lines
    kinds = {each["what"] for each in objects(capsys, *paths)}
    assert kinds >= {"offset", "time", "transaction", "leader_epoch", "topic_id", "producer", "checkpoint"}


def test_dump_of_a_transaction_index_reports_unknown_versions(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-303: only version 0 is known; the entry is shown all the same."""
    index = directory / f"{BASE}.txnindex"
    index.write_bytes(b"\xff\xfe" + index.read_bytes()[2:])
    _, lines, err = dump(capsys, index)
    assert lines[-1].startswith("version: -2 producerId: 7")
    assert "unknown version" in err
    assert "Position: 0, version: -2" in err


def test_dump_goes_on_behind_damage(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong checksum is shown as such, an impossible length is reported, and what follows is shown."""
    log = directory / f"{BASE}.log"
    begins = positions(log.read_bytes())
    flip_bit(log, begins[1] + 62)
    data = bytearray(log.read_bytes())
    data[begins[2] + 8] = 0x7F
    log.write_bytes(data)
    _, lines, err = dump(capsys, log)
    batches = [line for line in lines if line.startswith("baseOffset")]
    assert [line.rpartition("isvalid: ")[2] for line in batches] == ["true", "false", "true"]
    assert f"at byte {begins[2]}: a batch of" in err
    log.write_bytes(data[: begins[1] + 9])
    assert dump(capsys, log)[1][-1] == f"Found 9 invalid bytes at the end of {BASE}.log"


def test_file_that_cannot_be_read_ends_with_1_and_the_others_are_shown(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged snapshot, a missing one; an unknown file is skipped; no file at all is a usage error."""
    snapshot = max(directory.glob("*.snapshot"))
    flip_bit(snapshot)
    code, lines, err = dump(capsys, snapshot, directory / "none.log", directory / f"{BASE}.index")
    assert (code, lines[-1].startswith("offset: ")) == (1, True)
    assert "checksum" in err
    assert "none.log" in err
    (directory / "notes.txt").write_text("x")
    code, _, err = dump(capsys, directory / "notes.txt")
    assert (code, "Ignoring unknown file" in err) == (0, True)
    assert main(["dump"]) == 2


def test_dump_leaves_no_trace(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is locked or written."""
    before = contents(directory.parent)
    dump(capsys, *sorted(directory.iterdir()), "--print-data-log")
    assert contents(directory.parent) == before
    assert not (directory.parent / ".lock").exists()
