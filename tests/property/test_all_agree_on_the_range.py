"""`plan`, `clean`, the daemon's look and round, and the twin agree on the range of a log and why it is not cleaned."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

import cleaner
from cleaner.app import inspect_log
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.doctor import Grade
from cleaner.app.doctor_log_dir import examine_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.plan_log_dir import plan_log_dir
from cleaner.app.reports import CleanReport, Refusal, Skipped
from cleaner.base.clock import StillClock
from cleaner.base.model import TopicPartition
from cleaner.cli.main import main
from cleaner.config.values import CleanerConfig
from cleaner.daemon.choices import Choices
from cleaner.daemon.snapshot import Counts, LogView
from cleaner.daemon.views import log_view
from cleaner.errors import UncleanableError
from cleaner.policy.cleanable import Cleanable
from cleaner.policy.reasons import Reason
from cleaner.policy.selection_context import DirCondition
from cleaner.present.explanations import explain_entry
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.state.quarantine import Quarantine
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.leftovers import SwapState
from tests.integration.daemons import WAIT_SECONDS, daemon, settings_for
from tests.integration.log_dirs import keyed_log, offsets
from tests.property.closed_logs import load_by_twin, write
from tests.reference.log_state import LogState, Settings, cleanable_range
from tests.support.batch_builder import Producer
from tests.support.batch_reader import batch_info, split_batches
from tests.support.log_builder import START_MS, LogBuilder, write_log_dir
from tests.unit.daemon.watching import Watch

MIN_RATIO = 0.2
SETTINGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": str(MIN_RATIO)}
NOW_MS = START_MS + 10_000
COUNT = int(os.environ.get("AGREE_COUNT", "40"))


def batches(directory: Path) -> list[tuple[str, int, int, int]]:
    """List the batches of a partition: segment, offsets, records. Delete horizons depend on the moment."""
    found = []
    for path in sorted(directory.glob("*.log")):
        for info in map(batch_info, split_batches(path.read_bytes())):
            found.append((path.name, info.base_offset, info.last_offset, info.record_count))
    return found


def ratio(state: LogState, first_dirty_offset: int, cleanable_bytes: int) -> float:
    """R-409, R-410."""
    clean_bytes = sum(len(segment.log) for segment in state.between(-1, first_dirty_offset))
    return cleanable_bytes / (clean_bytes + cleanable_bytes) if cleanable_bytes else 0.0


@pytest.mark.parametrize("lag_ms", [0, 9_970])
@pytest.mark.parametrize("seed", range(5))
def test_looks_at_a_closed_log_find_the_range_of_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, lag_ms: int
) -> None:
    """
    R-405 to R-410: `plan`, by a load and from outside, and the daemon's look give range, bound and ratio of a load.

    Of logs that are not due, too: an open transaction keeps its segments out of what is shown as dirty.
    """
    logs, lines = write(tmp_path, 1000 * seed + lag_ms, COUNT)
    settings = {**SETTINGS, "min.compaction.lag.ms": str(lag_ms)}
    entries = {entry.partition: entry for entry in cleaner.plan(tmp_path, settings, now_ms=NOW_MS)}
    monkeypatch.setattr(inspect_log, "MAX_LOADED_SEGMENTS", 0)
    outside = {entry.partition: entry for entry in cleaner.plan(tmp_path, settings, now_ms=NOW_MS)}
    given = Sources(config={**settings, "cleaner.trust.default.policy": "true"})
    looked = {str(log.partition): log for log in Watch(tmp_path, given, now_ms=NOW_MS).look(0).logs}
    twin_settings = Settings(slots=1, min_compaction_lag_ms=lag_ms)
    for log in logs:
        name, line = str(log.topic_partition), lines[log.topic_partition]
        if (line.log_start_offset or 0) > log.next_offset:
            continue
        state = load_by_twin(tmp_path / name, line, twin_settings)
        first, end, size = cleanable_range(state, twin_settings, line.cleaner_offset, NOW_MS)
        is_reset = line.cleaner_offset is not None and not state.log_start <= line.cleaner_offset <= state.log_end
        wanted = (first, end, size, is_reset)
        for entry in (entries[name], outside[name]):
            assert not entry.error
            found = entry.first_dirty_offset, entry.first_uncleanable_offset, entry.dirty_bytes
            assert (*found, entry.is_checkpoint_reset) == wanted, (name, line)
            assert entry.ratio == ratio(state, first, size), (name, line)
        assert entries[name].last_stable_offset == state.last_stable, (name, line)
        facts = looked[name].facts
        assert facts is not None, looked[name]
        seen: Cleanable = facts.cleanable
        range_ = seen.first_dirty_offset, seen.first_uncleanable_offset, seen.cleanable_bytes, seen.force_checkpoint
        assert range_ == wanted, (name, line, seen)
        assert (seen.ratio, seen.bounded_by) == (ratio(state, first, size), entries[name].bounded_by), (name, line)
        assert outside[name].bounded_by == seen.bounded_by, (name, line)


@pytest.mark.parametrize("seed", range(2))
def test_daemon_leaves_what_the_command_leaves(tmp_path: Path, seed: int) -> None:
    """R-405, R-420, R-421: the same logs, cleaned as far, and the same lines in the checkpoint, of empty logs too."""
    ours, theirs = tmp_path / "daemon", tmp_path / "command"
    write(ours, 7_000 + seed, COUNT, lost_indexes=0.2)
    shutil.copytree(ours, theirs, copy_function=shutil.copy2)
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"topic:{key}={value}")]
    main(["clean", str(theirs), "--all", *sets])  # a log that ends below its start is refused by both
    wanted = offsets(theirs, "cleaner")
    assert offsets(ours, "cleaner") != wanted
    settings = settings_for(ours, state_dir=tmp_path / "state", min_cleanable_dirty_ratio=str(MIN_RATIO))
    with daemon(settings) as running:
        ends = time.monotonic() + WAIT_SECONDS
        while offsets(ours, "cleaner") != wanted and time.monotonic() < ends:
            running.service.snapshot()
            time.sleep(0.05)
    assert offsets(ours, "cleaner") == wanted
    for partition in sorted(path.name for path in theirs.glob("topic-*")):
        assert batches(ours / partition) == batches(theirs / partition), partition


@pytest.mark.parametrize("seed", range(2))
def test_look_at_a_log_that_has_lost_an_index_is_that_of_a_load(tmp_path: Path, seed: int) -> None:
    """R-330, R-635, R-652: the index is made anew and with it producers and times, to `plan` as to the daemon."""
    logs, _ = write(tmp_path, 9_000 + seed, COUNT, lost_indexes=1.0)
    entries = {entry.partition: entry for entry in cleaner.plan(tmp_path, SETTINGS, now_ms=NOW_MS)}
    given = Sources(config={**SETTINGS, "cleaner.trust.default.policy": "true"})
    looked = {str(log.partition): log for log in Watch(tmp_path, given, now_ms=NOW_MS).look(0).logs}
    for name in (str(log.topic_partition) for log in logs):
        entry, facts = entries[name], looked[name].facts
        if entry.error:
            continue
        assert facts is not None, looked[name]
        wanted = (entry.first_dirty_offset, entry.first_uncleanable_offset, entry.dirty_bytes)
        seen = facts.cleanable
        assert (seen.first_dirty_offset, seen.first_uncleanable_offset, seen.cleanable_bytes) == wanted, name


def views_of(log_dir: Path, given: Sources, now_ms: int = NOW_MS) -> dict[str, LogView]:
    """Show each log of a log dir as a daemon does before its first round."""
    config = SettingsResolver(FileSystem(), None, given).cleaner
    choices = Choices(StillClock(now_ms), Quarantine(FileSystem(), log_dir.parent / "state", pytest.fail), config)
    choices.take_looks({str(log_dir): Watch(log_dir, given, config, now_ms=now_ms).look(0)})
    verdicts = {verdict.partition: verdict for verdict in choices.survey().verdicts}
    return {str(log.partition): log_view(log, verdicts.get(log.partition), None) for log in choices.logs}


def test_plan_daemon_and_clean_give_one_reason(tmp_path: Path) -> None:
    """The same code, in the same words, also where there is nothing to choose about."""
    log_dir, topics_dir = tmp_path / "logs", tmp_path / "topics"
    topics_dir.mkdir()
    named = {"bad": "cleanup.policy=compacted", "deleted": "cleanup.policy=delete", "clean": "cleanup.policy=compact"}
    named |= {"alone": "cleanup.policy=compact", "dirty": "cleanup.policy=compact"}
    for topic, line in named.items():
        (topics_dir / f"{topic}.properties").write_text(f"{line}\n")
    logs = {topic: keyed_log(f"{topic}-0") for topic in (*named, "default")}
    ends = {log.topic_partition: log.next_offset for topic, log in logs.items() if topic != "alone"}
    write_log_dir(log_dir, *logs.values(), high_watermarks=ends, cleaner_offsets={TopicPartition("clean", 0): 60})
    given = Sources(config={"cleanup.policy": "compact"}, topics_dir=topics_dir)
    entries = {entry.partition: entry for entry in plan_log_dir(log_dir, given, CallContext.of(now_ms=NOW_MS))}
    views = views_of(log_dir, given)
    wanted = {
        "alone-0": Reason.NO_HIGH_WATERMARK,
        "bad-0": Reason.BAD_SETTING,
        "clean-0": Reason.NOTHING_TO_CLEAN,
        "default-0": Reason.POLICY_NOT_TRUSTED,
        "deleted-0": Reason.NOT_COMPACTED,
        "dirty-0": Reason.OVER_RATIO,
    }
    assert {name: entry.why for name, entry in entries.items()} == wanted
    assert {name: view.reason for name, view in views.items()} == wanted
    assert Counts.of(list(views.values())).standings == {reason.value: 1 for reason in wanted.values()}
    assert (views["bad-0"].error, views["bad-0"].why) == (entries["bad-0"].error, entries["bad-0"].reason)
    skipped = list(clean_log_dir(log_dir, None, given, CleanOptions(), CallContext.of(now_ms=NOW_MS)))
    words = {each.partition: each.reason for each in skipped if isinstance(each, Skipped)}
    assert words.keys() == {"alone-0", "clean-0", "default-0", "deleted-0"}
    for name, reason in words.items():
        assert views[name].why == reason, name
        assert entries[name].reason.startswith(reason), name


@pytest.mark.parametrize("quiet", [{"cleaner.quiet.cleaning": "true"}, {"cleaner.record.ttl.ms": "5000"}])
@pytest.mark.parametrize("seed", range(3))
def test_daemon_has_quiet_rounds_where_a_round_finds_nothing_dirty_and_a_clean_section(
    tmp_path: Path, seed: int, quiet: dict[str, str]
) -> None:
    """D-16, D-19: elsewhere a round would not look for horizons, and the log would be picked again at every turn."""
    write(tmp_path / "logs", 11_000 + seed, COUNT)
    settings = {**SETTINGS, "cleaner.trust.default.policy": "true", **quiet}
    given = Sources(config=settings)
    views = views_of(tmp_path / "logs", given)
    kinds: Counter[bool] = Counter()
    for entry in plan_log_dir(tmp_path / "logs", given, CallContext.of(now_ms=NOW_MS)):
        if entry.error or entry.is_checkpoint_reset or entry.first_dirty_offset is None:
            continue
        end = min(entry.high_watermark or 0, entry.first_uncleanable_offset or 0)
        is_quiet = not entry.dirty_bytes and (entry.log_start_offset or 0) < entry.first_dirty_offset <= end
        assert (views[entry.partition].reason is Reason.HORIZON_PASSED) == is_quiet, entry
        kinds[is_quiet] += entry.first_dirty_offset > 0 and not entry.dirty_bytes
    assert all(kinds[is_quiet] for is_quiet in (False, True))


def test_daemon_has_a_quiet_round_of_a_log_in_which_only_an_open_transaction_is_dirty(tmp_path: Path) -> None:
    """R-407, D-16: without the transaction it would be under its ratio, and would wait for as long as that is open."""
    log = LogBuilder(TopicPartition("topic", 0))
    log.append(*((f"k{number}", "v") for number in range(9)))
    log.roll()
    log.append(("k", "v"), producer=Producer(7, 0, 0, True))
    log.roll()
    log.append(("k", "v"))
    write_log_dir(tmp_path / "logs", log, cleaner_offsets={log.topic_partition: 9})
    settings = {**SETTINGS, "min.cleanable.dirty.ratio": "1", "cleaner.quiet.cleaning": "true"}
    given = Sources(config={**settings, "cleaner.trust.default.policy": "true"})
    (entry,) = plan_log_dir(tmp_path / "logs", given, CallContext.of(now_ms=NOW_MS))
    assert (entry.bounded_by, entry.dirty_bytes) == ("last stable offset", 0)
    assert views_of(tmp_path / "logs", given)["topic-0"].reason is Reason.HORIZON_PASSED


def test_closed_log_without_files_is_an_empty_one(tmp_path: Path) -> None:
    """R-641: `clean` begins it anew, as a broker does; neither `plan` nor the daemon takes it for a damaged one."""
    write_log_dir(tmp_path / "logs", keyed_log())
    (tmp_path / "logs" / "topic-1").mkdir()
    given = Sources(config={**SETTINGS, "cleaner.trust.default.policy": "true"})
    context = CallContext.of(now_ms=NOW_MS)
    entry = plan_log_dir(tmp_path / "logs", given, context, partitions=["topic-1"], as_if_all=True)[0]
    view = views_of(tmp_path / "logs", given)["topic-1"]
    assert (entry.why, entry.error) == (view.reason, view.error) == (Reason.NO_HIGH_WATERMARK, "")
    outcomes = {each.partition: each for each in clean_log_dir(tmp_path / "logs", None, given, CleanOptions(), context)}
    skipped = outcomes["topic-1"]
    assert isinstance(skipped, Skipped)
    assert skipped.reason == view.why == entry.reason


def test_log_dir_without_logs_needs_no_recovery(tmp_path: Path) -> None:
    """There is no log that could be torn, neither to `doctor` nor to the daemon nor to `clean --all`."""
    log_dir = write_log_dir(tmp_path / "logs", clean_shutdown=False)
    answers = {answer.check: answer.grade for answer in examine_log_dir(FileSystem(), log_dir, None)}
    assert answers["marker"] is Grade.PASS
    assert Watch(log_dir, now_ms=NOW_MS).look(0).facts.condition is DirCondition.ONLINE
    assert list(clean_log_dir(log_dir, None, Sources(), CleanOptions(), CallContext.of(now_ms=NOW_MS))) == []


INTERRUPTED = {
    # In the order of a swap: before it, before it is decided, and behind that.
    SwapState.REMOVED: (f"{0:020d}.log.cleaned", f"{0:020d}.index.cleaned"),
    SwapState.TAKEN_BACK: (f"{20:020d}.log.swap", f"{0:020d}.log.cleaned"),
    SwapState.COMPLETED: (f"{0:020d}.log.swap", f"{0:020d}.index.swap"),
}


@pytest.mark.parametrize("state", INTERRUPTED)
def test_interrupted_swap_is_the_same_to_all_and_settled_by_clean(tmp_path: Path, state: SwapState) -> None:
    """R-630 to R-632: one reason in one sentence; `check` says of each file what becomes of it; `verify` waits."""
    log_dir, partition = tmp_path / "logs", TopicPartition("topic", 0)
    write_log_dir(log_dir, keyed_log(), cleaner_offsets={partition: 60})
    directory, left = log_dir / "topic-0", INTERRUPTED[state]
    shutil.copytree(log_dir, tmp_path / "before")
    for name in left:
        stem = name.rpartition(".")[0]
        shutil.copy(directory / stem, directory / name)
    given = Sources(config={**SETTINGS, "cleaner.trust.default.policy": "true"})
    context = CallContext.of(now_ms=NOW_MS)
    (entry,) = plan_log_dir(log_dir, given, context)
    view = views_of(log_dir, given)["topic-0"]
    assert (entry.why, entry.is_due, entry.error) == (view.reason, True, "") == (Reason.UNFINISHED_SWAP, True, "")
    assert view.why == f"next: {entry.reason.partition(' at offset')[0]}"
    assert entry.reason.startswith(f"{state.value}; nothing to clean")
    assert explain_entry(entry, log_dir).meaning == entry.why.words.meaning
    (checked,) = cleaner.check(log_dir).partitions
    said = {finding.path.name: finding.reason for finding in checked.findings}
    assert set(said) == set(left)
    assert all(reason in {each.value for each in SwapState} for reason in said.values())
    assert said[left[0]] == state.value
    assert state is SwapState.COMPLETED or said[left[1]] == SwapState.REMOVED.value
    if state is SwapState.COMPLETED:
        with pytest.raises(UncleanableError, match=state.value):
            cleaner.verify(tmp_path / "before", log_dir, "topic-0", SETTINGS)
    else:
        assert cleaner.verify(tmp_path / "before", log_dir, "topic-0", SETTINGS).is_proven
    list(clean_log_dir(log_dir, None, given, CleanOptions(), context))
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned")]
    (entry,) = plan_log_dir(log_dir, given, context)
    assert (entry.why, entry.is_due) == (views_of(log_dir, given)["topic-0"].reason, False)
    assert entry.why is Reason.NOTHING_TO_CLEAN


def test_partition_in_two_log_dirs_is_left_alone_by_all_in_the_same_words(
    tmp_path: Path,
) -> None:
    """D-14, R-105: by name, too. The others are cleaned, and a future copy in the other log dir is no second one."""
    dirs = [tmp_path / "one", tmp_path / "two"]
    write_log_dir(dirs[0], *map(keyed_log, ("twice-0", "alone-0", "moving-0")))
    write_log_dir(dirs[1], *map(keyed_log, ("twice-0", "other-0")))
    shutil.copytree(dirs[0] / "moving-0", dirs[1] / f"moving-0.{'0' * 32}-future")
    given = Sources(config={**SETTINGS, "cleaner.trust.default.policy": "true", "log.dirs": ",".join(map(str, dirs))})
    words = f"a directory in {dirs[0]} and {dirs[1]}: a broker would not start"
    choices = Choices(StillClock(NOW_MS), Quarantine(FileSystem(), tmp_path / "state", pytest.fail), CleanerConfig())
    choices.take_looks({str(path): Watch(path, given, now_ms=NOW_MS).look(0) for path in dirs})
    left = [log for log in choices.logs if words in log.error]
    assert [(str(log.partition), log.held_by, log.facts) for log in left] == [("twice-0", Reason.UNREADABLE, None)] * 2
    context = CallContext.of(now_ms=NOW_MS)
    for path in dirs:
        entries = {entry.partition: entry for entry in plan_log_dir(path, given, context)}
        assert (entries["twice-0"].why, entries["twice-0"].is_due) == (Reason.UNREADABLE, False)
        assert entries["twice-0"].error == f"{path}/twice-0: {left[0].error}"
        assert all(entry.is_due for name, entry in entries.items() if name != "twice-0")
        before = batches(path / "twice-0")
        for named in (["twice-0"], None):
            outcomes = {each.partition: each for each in clean_log_dir(path, named, given, CleanOptions(), context)}
            refused = outcomes.pop("twice-0")
            assert isinstance(refused, Refusal)
            assert str(refused.error) == entries["twice-0"].error
            assert batches(path / "twice-0") == before
        assert outcomes
        assert all(isinstance(each, CleanReport) for each in outcomes.values())


@pytest.mark.parametrize("fault", ["checkpoint", "directory"])
def test_fault_of_one_log_dir_keeps_no_command_from_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    """As the daemon cleans the others; the fault is named, and what the others share is found all the same (D-14)."""
    bad, *good = (write_log_dir(tmp_path / name, keyed_log(f"{name}-0")) for name in ("bad", "one", "two"))
    shutil.copytree(good[0] / "one-0", good[1] / "one-0")
    shutil.copytree(good[0] / "one-0", bad / "one-0")
    if fault == "checkpoint":
        (bad / "cleaner-offset-checkpoint").write_text("nonsense")
    else:
        (bad / "foreign").mkdir()
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={bad},{good[0]},{good[1]},{tmp_path}/gone\ncleanup.policy=compact\n")
    places = [bad, *good] if fault == "checkpoint" else good  # a directory is there whatever the checkpoint says
    twice = f"one-0 has a directory in {' and '.join(map(str, places))}"
    for command in (["plan", str(good[1]), "two-0"], ["gaps", str(good[1])], ["clean", str(good[1]), "two-0"]):
        assert main([*command, "--config", str(config)]) == 0, command
        err = capsys.readouterr().err
        assert f"not searched for the same partitions: {bad}" in err
        assert twice in err
    assert main(["plan", str(bad), "--config", str(config)]) == 1
    assert main(["doctor", "--config", str(config)]) == 1
    assert twice in "".join(capsys.readouterr().out)
