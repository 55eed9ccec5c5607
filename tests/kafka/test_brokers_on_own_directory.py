"""
The main job, on a real broker's own log dir: stop the broker, run `cleaner clean`, start it again.

Its twin is a copy of the same stopped directory, cleaned by its broker's own cleaner. Consumers must get the same
records from both, before new writes and after them, when our broker's cleaner has gone on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, Client, Consumed, Outgoing, repairs_at_start, started_without_recovery
from tests.kafka.rig import Rig

pytestmark = pytest.mark.kafka

TOPIC = "stock-levels"
# A ratio of 1 is never exceeded: no broker cleans before the test says so.
NEVER = {"min.cleanable.dirty.ratio": "1.0"}
AT_ONCE = {"min.cleanable.dirty.ratio": "0.0"}
# Batches of one record have the same bytes whenever they are sent, so both brokers roll segments at the same offsets.
ONE_BY_ONE = {"batch.size": "0"}
BROKER_USER = 1001


def stock_levels(seed: int, count: int) -> list[Outgoing]:
    """Return records of 400 keys in an order without pattern, each eleventh a tombstone."""
    return [
        Outgoing(f"item-{(i * 2654435761 + seed) % 400}", None if i % 11 == 7 else f"{seed}-{i}-" + "x" * 1500)
        for i in range(count)
    ]


def transactions(count: int) -> list[Outgoing]:
    """Return transactions of seven records each, every third aborted."""
    return [
        Outgoing(f"item-{i % 90}", f"t{i}-" + "y" * 700, ("abort" if i % 3 == 0 else "commit") if i % 7 == 6 else None)
        for i in range(count)
    ]


def timeless(record: Consumed) -> Consumed:
    """Return a record without its time: both brokers were written to, but not at the same moment."""
    return record._replace(timestamp=0)


@dataclass
class Story:
    """What happened, for the tests to judge."""

    cleaned: dict[str, object]
    owners: set[tuple[int, int]]
    cleaned_end: int
    without_recovery: bool
    repairs: list[str]
    served: list[Consumed]
    served_by_twin: list[Consumed]
    served_committed: list[Consumed]
    served_committed_by_twin: list[Consumed]
    went_on_from: int
    after_writes: list[Consumed]
    after_writes_by_twin: list[Consumed]


def run_cleaner(log_dir: Path) -> dict[str, object]:
    """Run the command as an operator would: settings come from the broker's own metadata log."""
    command = [sys.executable, "-m", "cleaner", "clean", str(log_dir), f"{TOPIC}-0", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[0])
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory any user may enter; pytest's own are closed to others."""
    directory = Path(tempfile.mkdtemp(prefix="log-cleaner-broker-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def for_everyone(rig: Rig, home: Path) -> Rig:
    """Return the rig with its jars and settings copied to where another user may read them."""
    jars = home / f"jars-{rig.version}"
    if not jars.exists():
        shutil.copytree(rig.jars, jars, copy_function=shutil.copyfile)
        for settings in rig.logging.glob("log4j*.properties"):
            shutil.copyfile(settings, home / settings.name)
    return Rig(rig.version, jars, None, home)


@pytest.fixture(scope="module")
def story(cleaning_broker_rig: Rig, clients: Callable[[Rig], Client], home: Path) -> Story:
    """Run the whole story once a version; the broker runs as another user where root may arrange that."""
    user_id = BROKER_USER if os.geteuid() == 0 else None
    rig = for_everyone(cleaning_broker_rig, home) if user_id else cleaning_broker_rig
    client = clients(cleaning_broker_rig)
    ours = Broker(rig, client, home / f"ours-{rig.version}", user_id=user_id)
    with ours:
        ours.create([TOPIC], {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)} | NEVER)
        ours.write(TOPIC, stock_levels(1, 2500), {"compression.type": "lz4", "linger.ms": "20"})
        ours.write(TOPIC, transactions(700), {"transactional.id": "levels"})
        ours.write(TOPIC, stock_levels(2, 1500))
    twin = Broker(rig, client, home / f"twin-{rig.version}", user_id=user_id)
    shutil.copytree(ours.log_dir, twin.log_dir, copy_function=shutil.copy2)
    if user_id:
        for path in (twin.log_dir, *twin.log_dir.rglob("*")):
            os.chown(path, user_id, user_id)

    with twin:
        twin.alter([TOPIC], AT_ONCE)
        twin.wait_until_clean(TOPIC)
        twin.alter([TOPIC], NEVER)
        served_by_twin = twin.read([TOPIC])[TOPIC]
        served_committed_by_twin = twin.read([TOPIC], committed=True)[TOPIC]
        twin.write(TOPIC, stock_levels(3, 1500), ONE_BY_ONE)
        twin.alter([TOPIC], AT_ONCE)
        twin.wait_until_clean(TOPIC)
        after_writes_by_twin = twin.read([TOPIC])[TOPIC]

    report = run_cleaner(ours.log_dir)
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in ours.log_dir.rglob("*") if path.is_file()}
    cleaned_end = ours.cleaner_offset(TOPIC)
    assert cleaned_end is not None
    with ours:
        without_recovery, repairs = started_without_recovery(ours), repairs_at_start(ours, TOPIC)
        served = ours.read([TOPIC])[TOPIC]
        served_committed = ours.read([TOPIC], committed=True)[TOPIC]
        ours.write(TOPIC, stock_levels(3, 1500), ONE_BY_ONE)
        ours.alter([TOPIC], AT_ONCE)
        ours.wait_until_clean(TOPIC)
        after_writes = ours.read([TOPIC])[TOPIC]
        went_on_from = ours.map_ranges(TOPIC)[0][0]
    return Story(
        report,
        owners,
        cleaned_end,
        without_recovery,
        repairs,
        served,
        served_by_twin,
        served_committed,
        served_committed_by_twin,
        went_on_from,
        after_writes,
        after_writes_by_twin,
    )


def test_broker_on_cleaned_directory_starts_without_recovery(story: Story) -> None:
    """The clean-shutdown marker is honoured, and nothing of the topic is repaired or renamed."""
    assert story.without_recovery
    assert story.repairs == []


def test_broker_on_cleaned_directory_serves_the_records_its_own_cleaner_keeps(story: Story) -> None:
    """A consumer is given the same records by our directory and by the twin its broker cleaned."""
    assert 400 < len(story.served) < 4700
    assert story.served_by_twin == story.served


def test_committed_reader_of_cleaned_directory_sees_the_records_its_own_cleaner_keeps(story: Story) -> None:
    """Aborted data stays invisible, committed data visible, as with the broker's own cleaning."""
    assert story.served_committed_by_twin == story.served_committed


def test_broker_on_cleaned_directory_takes_new_writes_and_cleans_on(story: Story) -> None:
    """New records are taken, and a further round of the broker's own cleaner leaves the same as on the twin."""
    assert story.after_writes[-1].offset > story.served[-1].offset + 1400
    assert [timeless(record) for record in story.after_writes_by_twin] == [timeless(r) for r in story.after_writes]


def test_cleaner_took_the_rules_of_the_broker_that_formatted_the_directory(
    story: Story, cleaning_broker_rig: Rig
) -> None:
    """`auto` reads the level of metadata.version."""
    assert story.cleaned["kafka"] == cleaning_broker_rig.version


def test_brokers_cleaner_goes_on_from_our_checkpoint(story: Story) -> None:
    """The first offset map the broker builds begins where our round ended."""
    assert story.cleaned["end_offset"] == story.cleaned_end == story.went_on_from


@pytest.mark.root
def test_cleaning_as_root_leaves_every_file_to_its_owner(story: Story) -> None:
    """Started as root on a directory of uid 1001, no file changes its owner."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to clean a directory that belongs to somebody else")
    assert story.owners == {(BROKER_USER, BROKER_USER)}
