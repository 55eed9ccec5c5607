"""`cleaner verify --as` and `cleaner.replay`: states of internal topics, as a user sees them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cleaner
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from tests.integration.log_dirs import NOW, contents, flip_bit
from tests.support.batch_builder import Producer
from tests.support.batch_reader import split_batches
from tests.support.coordinator_records import (
    classic_group,
    current,
    group_epoch,
    member,
    offset_commit,
    target,
    target_epoch,
    transaction,
)
from tests.support.log_builder import CLEANER_OFFSETS, START_MS, LogBuilder, offset_checkpoint, write_log_dir

OFFSETS = "__consumer_offsets-0"
TRANSACTIONS = "__transaction_state-0"
FIRST = "00000000000000000000.log"
COMPACT = {"cleanup.policy": "compact"}
DAY_MS = 86_400_000
Batches = list[bytes]


def groups_log() -> LogBuilder:
    """
    One record a batch, all in one closed segment: classic `c` is gone, `g` is a consumer group in which `n` has left.

    Offsets of `g`: 0 is committed in a transaction, 1 by itself, 2 was expired, that of an abort is not there.
    """
    log = LogBuilder(TopicPartition.parse(OFFSETS))
    log.append(classic_group("c", 1, ["a"]))
    log.append(classic_group("c", None))
    for pair in (
        group_epoch("g", 1),
        member("g", "m"),
        member("g", "n"),
        target_epoch("g", 1),
        target("g", "m", [0]),
        target("g", "n", [1]),
        current("g", "m", 1, [0]),
        current("g", "n", 1, [1]),
    ):
        log.append(pair)
    log.append(offset_commit("g", "t", 1, 5))
    log.append(offset_commit("g", "t", 2, 6))
    log.append(offset_commit("g", "t", 0, 17), producer=Producer(7, 0, 0, transactional=True))
    log.end_transaction(7, 0, commit=True)
    log.append(offset_commit("g", "t", 1, 9), producer=Producer(7, 1, 0, transactional=True))
    log.end_transaction(7, 1, commit=False)
    log.append(offset_commit("g", "t", 2, None))
    for pair in (
        current("g", "n", 0, None),
        target("g", "n", None),
        member("g", "n", None),
        offset_commit("g", "t", 1, 7),
    ):
        log.append(pair)
    log.roll()
    log.append(offset_commit("other", "t", 0, 1))
    return log


def transactions_log() -> LogBuilder:
    log = LogBuilder(TopicPartition.parse(TRANSACTIONS))
    for status in (0, 1, 2, 4):
        log.append(transaction("pay", status, 3, {"t": [0]}))
    log.append(transaction("gone", 0))
    log.append(transaction("gone", None))
    log.roll()
    log.append(transaction("last", 1))
    return log


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A log dir with both topics and one of users, and the same cleaned once."""
    before, after = tmp_path / "before", tmp_path / "after"
    prices = LogBuilder(TopicPartition("prices", 0))
    prices.append(("p5", "7"))
    write_log_dir(before, groups_log(), transactions_log(), prices)
    shutil.copytree(before, after)
    for name in (OFFSETS, TRANSACTIONS):
        cleaner.clean(after, name, COMPACT, now_ms=NOW)
    return before, after


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["verify", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_same_states_are_told_and_nothing_changes(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """By the usual names, other topics are left out; also after rounds that remove tombstones and markers."""
    found = contents(pair[0]), contents(pair[1])
    code, out, err = run(capsys, "--as", "auto", *pair)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{OFFSETS}: the same groups",
        "  20 records before, 13 after: 1 group, 1 member, 3 offsets, 1 target assignment",
        f"{TRANSACTIONS}: the same transactions",
        "  7 records before, 3 after: 2 transactions",
    ]
    assert (contents(pair[0]), contents(pair[1])) == found
    for days in (2, 4):
        (pair[1] / CLEANER_OFFSETS).write_bytes(offset_checkpoint({}))  # or the next round would have nothing to do
        cleaner.clean(pair[1], OFFSETS, COMPACT, now_ms=NOW + days * DAY_MS, recover=True)
    (report,) = cleaner.replay(*pair, "groups")
    assert (report.is_same, report.kind, report.failures_after) == (True, "groups", ())
    assert report.records_after < 13


def test_partition_directories_and_what_keep_old_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Directories of partitions, of a name that says what they are or with `--as`; and no copy at all."""
    before, after = tmp_path / "before", tmp_path / "after"
    write_log_dir(before, groups_log())
    shutil.copytree(before, after)
    cleaner.clean(after, OFFSETS, COMPACT, now_ms=NOW, keep_old=tmp_path / "kept")
    assert run(capsys, "--as", "auto", before / OFFSETS, after / OFFSETS)[0] == 0
    assert run(capsys, "--as", "groups", tmp_path / "kept", after)[0] == 0
    (before / OFFSETS).rename(before / "mine-0")
    (after / OFFSETS).rename(after / "mine-0")
    assert run(capsys, "--as", "groups", before, after, "mine-0")[0] == 0
    assert run(capsys, "--as", "groups", before / "mine-0", after / "mine-0")[0] == 0


def _without(*numbers: int) -> Callable[[Batches], Batches]:
    return lambda batches: [batch for number, batch in enumerate(batches) if number not in numbers]


def _moved(number: int, to: int) -> Callable[[Batches], Batches]:
    """Move a record; offsets stay ascending: they are outside of a batch's checksum."""

    def change(batches: Batches) -> Batches:
        rest = [batch[8:] for batch in batches]
        rest.insert(to, rest.pop(number))
        return [batch[:8] + other for batch, other in zip(batches, rest, strict=True)]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without(10, 20), "group g, topic t-1: offset 7 before, none after"),
        (_without(20), "group g, topic t-1: offset 7 before, 5 after"),
        (_without(12), "group g, topic t-0: offset 17 before, none after"),
        (_without(13), "group g, topic t-0: offset 17 before, none after"),
        (_without(16), "group g, topic t-2: no offset before, 6 after"),
        (_without(17, 18, 19), "group g, member n: no id before, n after"),
        (
            _without(17),
            "group g, member n: the replay fails at offset 19: the tombstone of a member without one of its",
        ),
        (_without(3), "group g, member m: rackId"),
        (_without(6), "group g, member m: topicPartitions"),
        (_without(1), "group c: no type before, classic after"),
        (_moved(16, 11), "group g, topic t-2: no offset before, 6 after"),
        (_moved(12, 13), "group g, topic t-0: offset 17 before, none after"),
        (_moved(19, 17), "group g, member n: the replay fails at offset 17"),
        (_moved(0, 1), "group c: no type before, classic after"),
    ],
    ids=[
        *(
            "lost-offset",
            "old-offset",
            "lost-commit",
            "lost-marker",
            "lost-tombstone",
            "revived-member",
            "half-revived",
        ),
        *(
            "lost-member",
            "lost-target",
            "revived-group",
            "tombstone-early",
            "marker-early",
            "member-early",
            "group-late",
        ),
    ],
)
def test_planted_damage_is_told_in_words_of_the_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Batches], Batches], words: str
) -> None:
    """Records lost, revived, in another order: with right checksums, and with every key's last value there."""
    before, after = tmp_path / "before", tmp_path / "after"
    write_log_dir(before, groups_log())
    shutil.copytree(before, after)
    path = after / OFFSETS / FIRST
    path.write_bytes(b"".join(change(split_batches(path.read_bytes()))))
    code, out, err = run(capsys, "--as", "groups", before, after)
    assert (code, err) == (1, "")
    assert f"{OFFSETS}: OTHER groups" in out
    assert words in " ".join(out.split())


def test_all_differences_are_in_json_and_some_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten of a kind are told; keys of producers cannot control the terminal."""
    before, after = LogBuilder(TopicPartition.parse(OFFSETS)), LogBuilder(TopicPartition.parse(OFFSETS))
    for number in range(30):
        before.append(offset_commit(f"g{number}\x1b[2J", "t", 0, 1))
        after.append(offset_commit(f"g{number}\x1b[2J", "t", 0, 2))
    places = write_log_dir(tmp_path / "before", before), write_log_dir(tmp_path / "after", after)
    code, out, _ = run(capsys, "--as", "groups", *places)
    assert code == 1
    assert out.count("offset 1 before, 2 after") == 10
    assert "and 20 more of kind offset: --format json has all" in out
    assert "\x1b" not in out
    code, out, _ = run(capsys, "--as", "groups", *places, "--format", "json")
    report = json.loads(out)
    assert (report["format"], report["is_same"], len(report["differences"])) == ("cleaner-replay", False, 30)
    assert report["differences"][0] == {
        "kind": "offset",
        "name": "group g0\x1b[2J, topic t-0",
        "field": "offset",
        "before": "1",
        "after": "2",
    }


def test_failures_and_what_is_passed_over_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that both logs have are no difference."""
    log = LogBuilder(TopicPartition.parse(OFFSETS))
    log.append((b"\x01\x00", b"x"), (b"\0\2\0\1g", b"\0\x09"))
    place = write_log_dir(tmp_path / "before", log)
    code, out, _ = run(capsys, "--as", "groups", place, place)
    words = " ".join(out.split())
    assert code == 0
    assert (
        "before, 1 record could not be applied, the first at offset 1: group g: a record that cannot be read" in words
    )
    assert "after, records passed over, as by those who read the topic: 1 (unknown record type 256)" in words


def test_damage_refuses_its_partition_alone(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """File and position; the other partition is compared."""
    flip_bit(pair[1] / OFFSETS / FIRST)
    code, out, err = run(capsys, "--as", "auto", *pair)
    assert code == 1
    assert f"{pair[1] / OFFSETS / FIRST}: at byte" in err
    assert f"{TRANSACTIONS}: the same transactions" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--as", "schemas"), "no topic of the usual names for --as schemas; name its partitions"),
        (("--as", "groups", "--end", "5"), "--as compares states, for which --end says nothing; leave it out"),
        (("--as", "auto", "--now", str(START_MS)), "for which --now says nothing"),
    ],
    ids=["no-topic", "end", "now"],
)
def test_usage(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    """What cannot be meant is refused, with what to do instead."""
    code, _, err = run(capsys, *arguments, *pair)
    assert code == 2
    assert words in " ".join(err.split())


def test_unknown_name_is_refused(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """A topic of users has no readers that are known."""
    code, _, err = run(capsys, "--as", "auto", *pair, "prices-0")
    assert code == 2
    assert "prices-0: not the usual name of an internal topic" in " ".join(err.split())
