"""The model of the soak finds what is missing, too much, shown wrongly, or kept too long."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cleaner.errors import CleanerError
from cleaner.log.log import Log
from cleaner.log.manager import LogManager
from tests.simulation.found import Wrong
from tests.soak.model import Model, copy_listed
from tests.soak.notes import Note, digest_of, value_of
from tests.soak.writer import records_of

_COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
_DELETED = {"cleanup.policy": "delete", "delete.retention.ms": "1000", "retention.ms": "60000"}


class Scene:
    """A log with one topic of each policy, and what its writer noted."""

    def __init__(self, root: Path) -> None:
        topics = {"compacted": _COMPACTED, "deleted": _DELETED}
        self.log_dir = root / "log-dir"
        self.manager = LogManager(self.log_dir, {"log.cleaner.enable": "false"}, create=True, cleaner=False)
        for name, its in topics.items():
            self.manager.create_topic(name, settings=its)
        self.model = Model(self.log_dir, topics, root / "copies")
        self.model.up_since = time.monotonic()

    def note(self, do: str, topic: str = "compacted", *, moment: float | None = None, **note: object) -> None:
        """Have the model take a note."""
        self.model.take({"t": time.monotonic() if moment is None else moment, "do": do, "p": f"{topic}-0", **note})

    def append(self, number: int, keys: str, topic: str = "compacted", *, sent_before: float = 0.0) -> Log:
        """Append records, note all of it, and flush."""
        log = self.manager.log(topic)
        self.note("send", topic, moment=time.monotonic() - sent_before, n=number, keys=keys, pad=0)
        appended = log.append(records_of(number, keys, 0))
        self.note("answer", topic, n=number, at=appended.base_offset)
        self.note("flushed", topic, to=log.flush())
        return log

    def judge(self) -> None:
        """Judge."""
        self.model.judge(power_was_cut=False)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """A scene whose log is closed at the end."""
    found = Scene(tmp_path)
    yield found
    with contextlib.suppress(CleanerError):  # what a test has removed behind its back
        found.manager.close()


def shown(numbers_and_keys: list[tuple[int, int, str]]) -> list[list[object]]:
    """Return what a reader notes of records, by offset, number and key."""
    return [[at, key.lower(), digest_of(value_of(number, key, 0)), number] for at, number, key in numbers_and_keys]


def test_log_as_it_was_answered_is_right(scene: Scene) -> None:
    """What was sent is there, and a reader is shown it."""
    scene.append(0, "ab")
    scene.note("begins")
    scene.note("shown", by="reader", seen=shown([(0, 0, "a"), (1, 1, "b")]))
    scene.judge()
    scene.judge()
    assert scene.model.counts["records judged"] == 4


def test_record_that_was_answered_and_is_missing_is_found(scene: Scene) -> None:
    """The file is cut behind the writer's back."""
    log = scene.append(0, "ab")
    os.truncate(log.directory / f"{0:020}.log", 0)
    with pytest.raises(Wrong, match="records below 2 were answered"):
        scene.judge()


def test_record_that_nobody_sent_is_found(scene: Scene) -> None:
    """It is in the log, though no writer has noted it."""
    scene.append(0, "a").append(records_of(7, "b", 0))
    with pytest.raises(Wrong, match="never sent"):
        scene.judge()


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (shown([(0, 0, "a")]), "was not shown record 1"),
        ([*shown([(0, 0, "a")]), [1, "b", 4711, 1]], "never sent"),
        (shown([(0, 0, "a"), (2, 1, "b")]), "answered with 1"),
    ],
)
def test_reader_that_is_shown_something_else_is_found(scene: Scene, seen: list[object], reason: str) -> None:
    """A record too few, another value, another offset."""
    scene.append(0, "ab")
    scene.note("begins")
    with pytest.raises(Wrong, match=reason):
        scene.note("shown", by="reader", seen=seen)


def test_reader_without_a_writer_may_know_less(scene: Scene) -> None:
    """It goes by the checkpoint then."""
    scene.append(0, "ab")
    scene.note("begins")
    scene.model.up_since = float("inf")
    scene.note("shown", by="reader", seen=[])


def test_record_that_was_removed_may_not_come_back(scene: Scene) -> None:
    """Cleaned away, it was forgotten; a reader that begins later must not be shown it."""
    from cleaner import clean

    scene.append(0, "ab")
    scene.append(2, "ab").roll()
    scene.manager.upkeep.note_all()
    clean(scene.log_dir, "compacted-0", {"cleanup.policy": "compact", "cleaner.pipeline.threads": "1"})
    scene.judge()
    scene.judge()
    assert set(scene.model.logs["compacted"].sent) == {2, 3}
    old: list[Note] = [{"by": "reader", "seen": shown([(0, 0, "a"), (2, 2, "a"), (3, 3, "b")])}]
    scene.note("begins")
    with pytest.raises(Wrong, match="which cleaning had removed"):
        scene.note("shown", **old[0])


def test_retention_that_is_early_or_late_is_found(scene: Scene) -> None:
    """Closed segments go after `retention.ms`, and soon after."""
    log = scene.append(0, "a", "deleted", sent_before=600)
    log.roll()
    scene.append(1, "b", "deleted").roll()
    scene.judge()
    with pytest.raises(Wrong, match="retention is late, 0 to 0"):
        scene.model.judge_retention()
    for path in log.directory.glob(f"{0:020}.*"):
        path.unlink()
    scene.judge()
    scene.model.judge_retention()
    for path in log.directory.glob(f"{1:020}.*"):
        path.unlink()
    with pytest.raises(Wrong, match="the record at 1 was removed"):
        scene.judge()


def test_copy_of_a_partition_waits_for_the_end_of_a_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names in the middle of a swap are no state of a log."""
    monkeypatch.setattr("tests.soak.model._LISTING_SECONDS", 0.1)
    partition = tmp_path / "p-0"
    partition.mkdir()
    (partition / f"{0:020}.log.swap").touch()
    with pytest.raises(Wrong, match="do not come to rest"):
        copy_listed(partition, tmp_path / "copy")
