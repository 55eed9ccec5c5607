"""
The state of `__consumer_offsets` before and after rounds, and what the coordinator that wrote the log knows.

The coordinator's model is the truth: it never reads a log. Replays with a planted defect must disagree with it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cleaner
from cleaner.app.options import CallContext
from cleaner.app.replay_log_dirs import ReplayReport, replay_log_dirs
from cleaner.settings.sources import Sources
from cleaner.storage.fs.file_system import FileSystem
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replay import groups, kinds, offsets, records
from cleaner.verification.replay.group_types import Groups
from cleaner.verification.replay.kinds import replay
from cleaner.verification.replay.state import Facts
from tests.scratch import scratch_directory
from tests.support.coordinator_model import OFFSETS_TOPIC, CoordinatorModel
from tests.support.log_builder import CLEANER_OFFSETS, offset_checkpoint, write_log_dir

DAY_MS = 86_400_000
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "86400000"}
OPERATIONS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 5), st.integers(0, 5)), min_size=5, max_size=60)


def state_of(directory: Path) -> dict[str, Facts]:
    state, _ = replay("groups", LogSide(FileSystem(), directory), 1 << 30, lambda _: None)
    assert state.notes.failures == []
    return {f"{thing.kind}: {thing.name}": facts for thing, facts in state.things()}


def disagreement(model: CoordinatorModel, found: dict[str, Facts]) -> list[str]:
    """Return in what a replayed state is not that of the coordinator."""
    expected: dict[str, object] = {f"offset: group {g}, topic t-{p}": value for (g, p), value in model.offsets.items()}
    for producer, pending in model.pending.items():
        for (g, p), (_, value) in pending.items():
            expected[f"pending offset: group {g}, topic t-{p}, producer {producer}"] = value
    for name, group in model.groups.items():
        expected[f"group: group {name}"] = group.type, group.epoch
        for member, owned in group.members.items():
            expected[f"member: group {name}, member {member}"] = owned
            if group.type == "consumer":
                expected[f"target assignment: group {name}, member {member}"] = owned
    shown = {name: _essence(name, facts) for name, facts in found.items()}
    return sorted(
        f"{name}: {expected.get(name)}, {shown.get(name)}"
        for name in expected.keys() | shown.keys()
        if expected.get(name) != shown.get(name)
    )


def _essence(name: str, facts: Facts) -> object:
    if "offset: " in name:
        return facts["offset"]
    if name.startswith("group: "):
        return facts["type"], facts["generation" if facts["type"] == "classic" else "epoch"]
    field = "topicPartitions" if name.startswith("target") else "assignedPartitions"
    listed = facts.get(field) or []
    return tuple(number for each in listed for number in each["partitions"])


def cleaned(log_dir: Path, model: CoordinatorModel, now_ms: int, rounds: int) -> None:
    """Clean as often as tombstones and markers need to go."""
    for number in range(rounds):
        (log_dir / CLEANER_OFFSETS).write_bytes(offset_checkpoint({}))  # or a second round would have nothing to do
        cleaner.clean(log_dir, str(OFFSETS_TOPIC), COMPACT, now_ms=now_ms + number * 2 * DAY_MS)
        (log_dir / ".kafka_cleanshutdown").touch()


@settings(max_examples=25, deadline=None)
@given(OPERATIONS, st.integers(0, 3))
def test_cleaned_log_has_the_state_of_its_coordinator(operations: list[tuple[int, int, int]], rounds: int) -> None:
    """Before any round and after each: the same offsets, pending ones, groups, members and assignments."""
    model = CoordinatorModel()
    for operation in operations:
        model.run(*operation)
    if model.log.next_offset == 0:
        return
    with scratch_directory() as place:
        write_log_dir(place / "before", model.log)
        shutil.copytree(place / "before", place / "after")
        assert disagreement(model, state_of(place / "before" / str(OFFSETS_TOPIC))) == []
        cleaned(place / "after", model, model.log.timestamp_ms + 1, rounds)
        assert disagreement(model, state_of(place / "after" / str(OFFSETS_TOPIC))) == []
        (report,) = replay_log_dirs(
            place / "before", place / "after", "auto", Sources(), CallContext.of(None, None, None, None)
        )
        assert isinstance(report, ReplayReport)
        assert (report.is_same, report.differences) == (True, ())


# ---- planted defects -----------------------------------------------------------------------------------------------


def _ignores_tombstones(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offsets.CommittedOffsets, "delete", lambda *_: None)


def _ignores_the_order_of_records(patch: pytest.MonkeyPatch) -> None:
    read_all = records.read_all
    patch.setattr(kinds, "read_all", lambda *given, **more: reversed(list(read_all(*given, **more))))


def _ignores_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(groups.GroupReplay, "marker", lambda *_: None)


def _takes_aborts_for_commits(patch: pytest.MonkeyPatch) -> None:
    end = offsets.CommittedOffsets.end
    patch.setattr(offsets.CommittedOffsets, "end", lambda self, producer, _: end(self, producer, True))


def _lets_the_later_marker_win(patch: pytest.MonkeyPatch) -> None:
    commit = offsets.CommittedOffsets.commit
    patch.setattr(
        offsets.CommittedOffsets,
        "commit",
        lambda self, at, producer, *rest: commit(self, -(producer < 0), producer, *rest),
    )


def _keeps_upgraded_groups_classic(patch: pytest.MonkeyPatch) -> None:
    classic = Groups.classic
    patch.setattr(Groups, "classic", lambda self, name, value: None if value is None else classic(self, name, value))


def _keeps_members_that_left(patch: pytest.MonkeyPatch) -> None:
    member = Groups.member
    patch.setattr(
        Groups,
        "member",
        lambda self, kind, name, member_id, value: (
            None if value is None else member(self, kind, name, member_id, value)
        ),
    )


DEFECTS = (
    _ignores_tombstones,
    _ignores_the_order_of_records,
    _ignores_markers,
    _takes_aborts_for_commits,
    _lets_the_later_marker_win,
    _keeps_upgraded_groups_classic,
    _keeps_members_that_left,
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[CoordinatorModel, Path]]:
    """A few coordinators and their logs, on which a sound replay agrees with them."""
    found = []
    for seed in range(12):
        numbers, model = random.Random(seed), CoordinatorModel()
        for _ in range(50):
            model.run(numbers.randrange(9), numbers.randrange(6), numbers.randrange(6))
        place = tmp_path_factory.mktemp("logs")
        write_log_dir(place, model.log)
        found.append((model, place / str(OFFSETS_TOPIC)))
        assert disagreement(model, state_of(found[-1][1])) == []
    return found


def _is_found(model: CoordinatorModel, directory: Path) -> bool:
    try:
        return bool(disagreement(model, state_of(directory)))
    except AssertionError:  # the replay has failures, where the log is sound
        return True


@pytest.mark.parametrize("plant", DEFECTS, ids=lambda plant: plant.__name__.strip("_"))
def test_defect_in_the_replay_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    logs: list[tuple[CoordinatorModel, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By one of the logs."""
    plant(monkeypatch)
    assert any(_is_found(*each) for each in logs)
