"""
Failures found by the fuzzer (`tests/fuzz`) and by others, each as the smallest file that shows it: an answer, an exit
code, no traceback, and all other partitions done.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaner.cli.main import main
from tests.fuzz.change_records import sealed
from tests.integration.log_dirs import NOW, contents, keyed_log, offsets
from tests.support.batch_builder import Producer, Record, data_batch, legacy_batch
from tests.support.batch_reader import split_batches
from tests.support.log_builder import LogBuilder, write_log_dir

FIRST = f"{0:020d}.log"
TOPIC = ("topic-0", "topic-1")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return what runs a command on a topic that has its policy from a file: exit code, output and errors."""
    topics = tmp_path / "topics"
    topics.mkdir()
    (topics / "topic.properties").write_text("cleanup.policy=compact\nmin.cleanable.dirty.ratio=0.01\n")

    def command(name: str, *arguments: str | Path) -> tuple[int, str, str]:
        given = [name, *map(str, arguments), "--topics-dir", str(topics)]
        if name in ("clean", "plan", "check", "verify"):
            given += ["--now", str(NOW)]
        code = main(given)
        said = capsys.readouterr()
        assert "unexpected" not in said.out + said.err
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return command


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir of two partitions, both with something to clean."""
    (tmp_path / "logs").mkdir()
    return write_log_dir(tmp_path / "logs", *map(keyed_log, TOPIC))


def unreadable_legacy(offset: int, magic: int) -> bytes:
    """An entry of magic 0 or 1 whose key is longer than itself, under a right checksum."""
    entry = legacy_batch([Record(b"key", b"value")], offset, magic, timestamp_ms=NOW)
    at = 18 if magic == 0 else 26
    return sealed(entry[:at] + struct.pack(">i", 1000) + entry[at + 4 :])


def with_batch(log_dir: Path, number: int, change: Callable[[bytes], bytes]) -> None:
    """Change one batch of topic-0."""
    path = log_dir / "topic-0" / FIRST
    batches = split_batches(path.read_bytes())
    batches[number] = change(batches[number])
    path.write_bytes(b"".join(batches))


# ---- loops that try again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_verify_of_an_unreadable_legacy_batch_in_both_logs_passes_it_over(tmp_path: Path, run: Run, magic: int) -> None:
    """It is the same bytes in both logs, and only that can be proven; the rest is read."""
    log = LogBuilder()
    log.append(("a", "v"), ("b", "v"), magic=magic)
    log.append_raw(unreadable_legacy(log.next_offset, magic))
    log.append(("c", "v"))
    log.roll()
    log.append(("active", "v"))
    write_log_dir(tmp_path / "before", log)
    write_log_dir(tmp_path / "after", log, cleaner_offsets={log.topic_partition: log.base_offsets[-1]})
    code, out, err = run("verify", tmp_path / "before", tmp_path / "after", "--format", "json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["is_proven"], said["damaged"]) == (True, 1)


def test_verify_of_an_unreadable_legacy_batch_that_has_changed_ends(tmp_path: Path, run: Run) -> None:
    """Damage in the log before proves nothing."""
    log = LogBuilder()
    log.append_raw(unreadable_legacy(0, 1))
    log.roll()
    log.append(("active", "v"))
    write_log_dir(tmp_path / "before", log)
    write_log_dir(tmp_path / "after", log, cleaner_offsets={log.topic_partition: log.base_offsets[-1]})
    with_batch(tmp_path / "after", 0, lambda batch: sealed(batch[:-1] + b"!"))
    code, _, err = run("verify", tmp_path / "before", tmp_path / "after")
    assert code == 1
    assert "a key is longer than its record" in err


# ---- headers ---------------------------------------------------------------------------------------------------------


def test_estimate_of_a_batch_with_a_negative_count_is_refused_alone(log_dir: Path, run: Run) -> None:
    """Arrays for its neighbours' records are not made smaller by it."""
    with_batch(log_dir, 3, lambda batch: sealed(batch[:57] + struct.pack(">i", -1000) + batch[61:]))
    code, out, err = run("plan", log_dir, "--estimate", "--format", "json")
    entries = {entry["partition"]: entry for entry in map(json.loads, out.splitlines())}
    assert code == 1
    assert "a negative number of records" in err + entries["topic-0"]["error"]
    assert entries["topic-1"]["estimate"]["bytes_after"] > 0


def test_estimate_of_an_index_that_leads_into_a_batch_is_refused_alone(log_dir: Path, run: Run) -> None:
    """The bytes there are no batch."""
    log = LogBuilder(index_interval_bytes=100)
    for number in range(2000):
        log.append((f"k{number % 50}", "v" * 20))
    log.roll()
    log.append(("active", "v"))
    log.write(log_dir)
    path = log_dir / "topic-0" / f"{0:020d}.index"
    entries = bytearray(path.read_bytes())
    for at in range(4, len(entries), 8):
        struct.pack_into(">i", entries, at, struct.unpack_from(">i", entries, at)[0] + 1)
    path.write_bytes(entries)
    shutil.rmtree(log_dir / "topic-1")
    keyed_log("topic-1").write(log_dir)
    (log_dir / ".kafka_cleanshutdown").unlink()
    code, out, _ = run("plan", log_dir, "--estimate", "--format", "json")
    errors = {entry["partition"]: bool(entry["error"]) for entry in map(json.loads, out.splitlines())}
    assert (code, errors) == (1, {"topic-0": True, "topic-1": False})


def test_dump_of_a_batch_that_counts_billions_asks_for_no_such_memory(
    log_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch of 70 bytes cannot hold 2**31 - 1 records, whatever its header says."""
    with_batch(log_dir, 3, lambda batch: sealed(batch[:57] + struct.pack(">i", 2**31 - 1) + batch[61:]))
    main(["dump", "--deep-iteration", str(log_dir / "topic-0" / FIRST)])
    said = capsys.readouterr()
    assert "the batch ends before its last record" in said.err
    assert "unexpected" not in said.err
    assert "| offset: 19 " in said.out


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batch_at_the_highest_offset_is_damage_to_everybody(tmp_path: Path, run: Run, magic: int) -> None:
    """No offset is left for the next record; sums of it would wrap, and stand for "none" where they are compared."""
    highest = 2**63 - 1
    log = LogBuilder()
    log.append(("a", "v"))
    if magic == 2:
        log.append_damaged(data_batch([Record(b"b", b"v")], highest, timestamp_ms=NOW))
    else:
        log.append_damaged(legacy_batch([Record(b"b", b"v")], highest, magic, timestamp_ms=NOW))
    log.roll()
    log.append(("active", "v"))
    (tmp_path / "logs").mkdir()
    write_log_dir(tmp_path / "logs", log, keyed_log("topic-1"))
    code, out, _ = run("check", tmp_path / "logs")
    assert (code, "batch-header" in out) == (1, True)
    code, _, err = run("clean", tmp_path / "logs", *TOPIC)
    assert (code, "above all" in err) == (1, True)
    assert offsets(tmp_path / "logs", "cleaner") == {"topic-1": 60}


def test_check_of_keys_in_batches_out_of_order_counts_those_in_order(tmp_path: Path, run: Run) -> None:
    """A record of a batch out of order is not taken for one of its neighbours'."""
    log = LogBuilder()
    for number in range(6):
        log.append((f"k{number}", "v"), magic=1, codec="gzip")
    log.roll()
    log.append(("active", "v"))
    (tmp_path / "logs").mkdir()
    write_log_dir(tmp_path / "logs", log, cleaner_offsets={log.topic_partition: 6})
    path = tmp_path / "logs" / "topic-0" / FIRST
    first, *rest, last = split_batches(path.read_bytes())
    path.write_bytes(b"".join([last, first, *rest]))
    code, out, _ = run("check", tmp_path / "logs", "--clean-section")
    assert code == 1
    assert out.count("batch-offsets") == 5


def test_round_whose_aborts_would_be_indexed_out_of_order_is_refused(tmp_path: Path, run: Run) -> None:
    """A marker that lost its producer leaves an abort to a later marker; Kafka cannot write such an index either."""
    log = LogBuilder()
    for number in range(2):
        log.append(("t", "aborted"), producer=Producer(3, 0, number, True))
        log.append(("u", "aborted"), producer=Producer(2, 0, number, True))
        log.end_transaction(3, 0, commit=False)
        log.end_transaction(2, 0, commit=False)
    log.roll()
    log.append(("active", "v"))
    (tmp_path / "logs").mkdir()
    write_log_dir(tmp_path / "logs", log)
    with_batch(tmp_path / "logs", 2, lambda batch: sealed(batch[:43] + struct.pack(">q", 13) + batch[51:]))
    before = contents(tmp_path / "logs" / "topic-0")
    code, _, err = run("clean", tmp_path / "logs", "topic-0")
    assert code == 1
    assert "in that order" in err
    assert contents(tmp_path / "logs" / "topic-0") == before


# ---- names -----------------------------------------------------------------------------------------------------------

_NAMES = [
    b"-0000000000000000001.index",
    b"-1.timeindex",
    b"-9223372036854775808.txnindex",
    b"-1.log.swap",
    b"-00000000000000000001.log.cleaned",
    b"99999999999999999999.log",
    b"x\xff\xfe.log",
    "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٣.log".encode(),
]


@pytest.mark.parametrize("name", _NAMES, ids=ascii)
def test_stray_name_is_one_refused_partition(log_dir: Path, run: Run, name: bytes) -> None:
    """In every command; the other partition is planned, checked and cleaned."""
    (log_dir / "topic-0" / os.fsdecode(name)).write_bytes(b"")
    for command in ("plan", "check"):
        code, out, err = run(command, log_dir)
        assert code == 1, (out, err)
        assert "topic-0" in out
        assert "2 partitions" in out or "topic-1" in out
    code, _, err = run("clean", log_dir, "--all")
    assert (code, "topic-0" in err) == (1, True)
    assert offsets(log_dir, "cleaner") == {"topic-1": 60}


def test_socket_in_the_place_of_a_file_is_no_failed_disk(log_dir: Path, run: Run) -> None:
    """The system says of both "no such device or address"; the other partition is cleaned."""
    path = log_dir / "topic-0" / FIRST.replace(".log", ".txnindex")
    home = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{home}/{path.name}")
    os.close(home)
    code, _, err = run("clean", log_dir, "--all")
    assert (code, "not a regular file" in err) == (1, True)
    assert offsets(log_dir, "cleaner") == {"topic-1": 60}


def test_links_that_lead_in_a_circle_are_no_log(log_dir: Path, run: Run, tmp_path: Path) -> None:
    """As a partition's directory, a topic's file, or a directory that settings name."""
    (log_dir / "loop-0").symlink_to("loop-0")
    (tmp_path / "topics" / "loop.properties").symlink_to("loop.properties")
    code, _, err = run("config", "check", "--set", f"log.dirs={log_dir},{log_dir / 'loop-0'}")
    assert code == 78
    assert "loop.properties" in err
    assert run("check", log_dir)[0] == 0


@pytest.mark.parametrize("command", ["clean --all", "plan", "check", "recover", "undo"])
def test_link_in_a_circle_given_as_a_directory_is_one_line(tmp_path: Path, run: Run, command: str) -> None:
    """In every command; and it is not reported as an internal error."""
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    name, *options = command.split()
    code, _, err = run(name, loop, *options)
    assert code != 0
    assert "unexpected" not in err
    assert str(loop) in err


def test_name_that_is_no_text_is_printed_as_an_escape(log_dir: Path) -> None:
    """In its own process, whose output is as strict as a pipe's."""
    odd = os.fsencode(log_dir / "topic-0") + b"/\xff\xfe.log"
    Path(os.fsdecode(odd)).write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "cleaner", "dump", odd, log_dir / "topic-0" / FIRST], capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"\\udcff\\udcfe.log" in done.stdout
    assert b"Log starting offset: 0" in done.stdout
    assert b"Traceback" not in done.stderr


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["log.dirs", "cleaner.state.dir", "metadata.log.dir"])
def test_setting_with_a_nul_character_is_a_bad_setting(tmp_path: Path, run: Run, key: str) -> None:
    """No name can hold one."""
    (tmp_path / "server.properties").write_text(f"{key}=/a\0b\n")
    code, _, err = run("config", "check", "--config", tmp_path / "server.properties")
    assert (code, "NUL" in err) == (78, True)


def test_path_that_is_too_long_is_one_line(tmp_path: Path, run: Run) -> None:
    """The system's error message, and no traceback."""
    (tmp_path / "server.properties").write_text(f"log.dirs=/{'x' * 5000}\n")
    code, _, err = run("config", "check", "--config", tmp_path / "server.properties")
    assert (code, err.count("\n")) == (78, 1)
    assert "too long" in err


def test_checksums_of_the_legacy_entries_made_here_are_right() -> None:
    """The tested bytes are not refused for their checksum."""
    for magic in (0, 1):
        entry = unreadable_legacy(5, magic)
        assert struct.unpack_from(">I", entry, 12)[0] == zlib.crc32(entry[16:])


_KINDS = (
    "cleaner-offset-checkpoint",
    "replication-offset-checkpoint",
    "meta.properties",
    "topic-0/leader-epoch-checkpoint",
    "topic-0/partition.metadata",
    "topic-0/00000000000000000020.snapshot",
    "topic-0/00000000000000000000.log",
    "topic-0/00000000000000000000.index",
    "topic-0/00000000000000000000.timeindex",
    "topic-0/00000000000000000000.txnindex",
)


@pytest.mark.parametrize("kind", _KINDS)
def test_sparse_file_takes_neither_memory_nor_time(log_dir: Path, run: Run, kind: str) -> None:
    """Such a file has a terabyte of zeros and takes no room on the disk; its owner makes it in a moment."""
    with (log_dir / kind).open("ab") as file:
        file.truncate(1 << 40)
    tracemalloc.start()
    try:
        for command in (("plan", log_dir), ("clean", log_dir, "--all")):
            code, _, err = run(*command)
            assert (code in (0, 1), "Traceback" in err, "internal" in err) == (True, False, False), err
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 128 << 20


@pytest.mark.parametrize("kind", _KINDS)
def test_pipe_in_the_place_of_a_file_keeps_no_command_waiting(log_dir: Path, run: Run, kind: str) -> None:
    """Opening one would wait for its other end forever."""
    (log_dir / kind).unlink(missing_ok=True)
    os.mkfifo(log_dir / kind)
    for command in (("plan", log_dir), ("check", log_dir), ("clean", log_dir, "--all")):
        code, _, err = run(*command)
        assert (code in (0, 1), "Traceback" in err, "internal" in err) == (True, False, False), err
