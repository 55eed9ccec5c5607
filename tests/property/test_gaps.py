"""`gaps` says of every offset what the slow twin says, and of offsets whose fate is known what became of them."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cleaner
from cleaner import GapReason, GapReport, LogManager, Record
from cleaner.errors import UncleanableError
from tests.golden.comparison import contents
from tests.property.logs import FIRST_ROUND_MS, PARTITION, Case, Gap, cases
from tests.property.rounds import cleaner_checkpoint, write_case
from tests.reference.batches import read_batches, read_records
from tests.reference.gaps import Known, account
from tests.scratch import scratch_directory
from tests.support.manual_clock import ManualClock

MOST = 40  # offsets in a row that no batch has: the twin looks at each


class Loss(NamedTuple):
    """What is taken out of a log: a segment, or one of its batches; places are in percent."""

    segment: int
    batch: int | None


losses = st.lists(
    st.builds(Loss, segment=st.integers(0, 99), batch=st.one_of(st.none(), st.integers(0, 99))), max_size=2
)


def shortened(case: Case) -> Case:
    """Return a case without wide gaps."""
    operations = tuple(Gap(each.offsets % MOST + 1) if isinstance(each, Gap) else each for each in case.operations)
    return case._replace(operations=operations)


def lose(directory: Path, loss: Loss) -> None:
    """Take a segment or a batch out of a partition; its last segment stays."""
    logs = sorted(directory.glob("*.log"))
    path = logs[loss.segment * len(logs) // 100]
    if loss.batch is None:
        if len(logs) > 1:
            for suffix in (".log", ".index", ".timeindex", ".txnindex"):
                path.with_suffix(suffix).unlink(missing_ok=True)
        return
    data = path.read_bytes()
    batches = read_batches(data)
    if batches:
        gone = batches[loss.batch * len(batches) // 100]
        path.write_bytes(data[: gone.position] + data[gone.position + len(gone.raw) :])


def only(found: list[object]) -> GapReport:
    """Return the account of the only partition."""
    (report,) = found
    assert isinstance(report, GapReport), report
    return report


def reasons_of(report: GapReport) -> tuple[dict[int, str], list[tuple[int, int, int, str]]]:
    """Return the reason of each offset that has one, and what is only known of a range."""
    exact: dict[int, str] = {}
    vague = []
    for gap in report.gaps:
        assert sum(each.count for each in gap.listed) == gap.offsets
        assert len(gap.listed) == gap.ranges
        for each in gap.listed:
            if not each.is_whole:
                vague.append((each.first, each.last, each.count, gap.reason.name.lower()))
            elif gap.reason is not GapReason.RETENTION:
                for offset in range(each.first, each.last + 1):
                    assert offset not in exact, offset
                    exact[offset] = gap.reason.name.lower()
    return exact, vague


def differences(report: GapReport, files: dict[str, bytes], known: Known) -> list[str]:
    """List what the report says otherwise than the twin."""
    twin = account(files, known)
    counted = Counter({gap.reason.name.lower(): gap.offsets for gap in report.gaps}) + Counter(
        {"record": report.records}
    )
    wanted = Counter(twin.reasons.values()) + Counter(twin.below)
    if counted != wanted:
        return [f"{dict(counted)}, twin {dict(wanted)}"]
    exact, vague = reasons_of(report)
    found = [
        f"{offset}: {reason}, twin {twin.reasons.get(offset)}"
        for offset, reason in exact.items()
        if offset >= twin.start and twin.reasons.get(offset) != reason
    ]
    for first, last, count, reason in vague:
        there = sum(twin.reasons.get(offset) == reason for offset in range(first, last + 1))
        if there != count:
            found.append(f"{first}-{last}: {count} {reason}, twin {there}")
    return found


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases().map(shortened), losses, st.integers(0, 2), st.sampled_from(["compact", "delete"]))
def test_gaps_are_those_of_the_twin(case: Case, lost: list[Loss], rounds: int, policy: str) -> None:
    """Whatever was written, cleaned and taken away."""
    with scratch_directory() as log_dir:
        log = write_case(case, log_dir)
        directory = log_dir / str(PARTITION)
        with contextlib.suppress(UncleanableError):
            for number in range(rounds):
                cleaner.clean(log_dir, str(PARTITION), case.settings, now_ms=FIRST_ROUND_MS + 5000 * number)
        for loss in lost:
            lose(directory, loss)
        files = contents(directory)
        checkpoint = cleaner_checkpoint(log_dir)
        snapshots = (int(name[:20]) for name in files if name.endswith(".snapshot"))
        start = (log_dir / "log-start-offset-checkpoint").read_text().split()
        known = Known(
            log_start=int(start[-1]) if len(start) > 2 else None,
            cleaned=checkpoint,
            reached=max([log.next_offset, *snapshots]),
            never_compacted=policy == "delete" and checkpoint is None,
        )
        before = contents(log_dir)
        report = only(cleaner.gaps(log_dir, str(PARTITION), {"cleanup.policy": policy}))
        assert contents(log_dir) == before
        assert report.records + sum(gap.offsets for gap in report.gaps) == report.end_offset
        assert report.damage == ()
        assert differences(report, files, known) == []


class Write(NamedTuple):
    """A transaction, or a batch outside of one; `then_roll` ends the segment."""

    keys: tuple[int, ...]
    transaction: bool = False
    commit: bool = True
    then_roll: bool = False


class Phase(NamedTuple):
    """Some writes, and what is done to the log then."""

    writes: tuple[Write, ...]
    then: str


phases = st.lists(
    st.builds(
        Phase,
        writes=st.lists(
            st.builds(
                Write,
                keys=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple),
                transaction=st.booleans(),
                commit=st.booleans(),
                then_roll=st.booleans(),
            ),
            min_size=1,
            max_size=8,
        ).map(tuple),
        then=st.sampled_from(["nothing", "clean", "clean", "expire"]),
    ),
    min_size=1,
    max_size=4,
)


class Present(NamedTuple):
    """What is in a log: the offsets of its records and markers, and its first segment's base offset."""

    records: frozenset[int]
    markers: frozenset[int]
    start: int

    @property
    def every(self) -> frozenset[int]:
        """Both."""
        return self.records | self.markers


def present(directory: Path) -> Present:
    """Read all offsets of a partition, plainly."""
    batches = [batch for path in directory.glob("*.log") for batch in read_batches(path.read_bytes())]
    found = [(record.offset, batch.control) for batch in batches for record in read_records(batch)]
    start = min(int(path.name[:20]) for path in directory.glob("*.log"))
    return Present(
        frozenset(offset for offset, is_control in found if not is_control),
        frozenset(offset for offset, is_control in found if is_control),
        start,
    )


class Fates:
    """A log that our own writer writes, and what became of each of its offsets."""

    def __init__(self, log_dir: Path, policy: str) -> None:
        self.log_dir = log_dir
        self.directory = log_dir / "topic-0"
        self.policy = policy
        self.clock = ManualClock()
        self.aborted: set[int] = set()
        self.cleaned: set[int] = set()
        self.expired: set[int] = set()
        with self.manager(create=True) as manager:
            manager.create_topic("topic", settings={"cleanup.policy": policy, "retention.ms": "100000"})

    def manager(self, *, create: bool = False) -> LogManager:
        """Open the log dir."""
        values = {"file.delete.delay.ms": "0", "delete.retention.ms": "0", "cleaner.pipeline.threads": "1"}
        return LogManager(self.log_dir, values, create=create, cleaner=False, tasks=False, clock=self.clock)

    def run(self, phase: Phase) -> None:
        """Write, and clean or expire."""
        with self.manager() as manager:
            log = manager.log("topic")
            for write in phase.writes:
                self.clock.move_on(1)
                records = [Record(b"k%d" % key, b"v") for key in write.keys]
                if write.transaction:
                    producer = log.producer("mine")
                    producer.begin()
                    appended = producer.append(records)
                    if not write.commit:
                        self.aborted.update(range(appended.base_offset, appended.last_offset + 1))
                    (producer.commit() if write.commit else producer.abort()).result()
                else:
                    log.append(records)
                if write.then_roll:
                    log.roll()
            log.flush()
            before = present(self.directory)
            if phase.then == "expire":
                self.clock.move_on(200)
                manager.upkeep.retain()
                manager.upkeep.remove_due()
                self.expired |= before.every - present(self.directory).every
        before = present(self.directory)
        if phase.then == "clean" and self.policy != "delete":
            cleaner.clean(self.log_dir, "topic-0", now_ms=self.clock.now_ms())
            self.cleaned |= before.every - present(self.directory).every


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(phases, losses, st.sampled_from(["delete", "compact,delete"]))
def test_gaps_are_what_became_of_the_offsets(done: list[Phase], lost: list[Loss], policy: str) -> None:
    """Cleaning and retention are no loss; what is taken away is one, or is said to be open to doubt."""
    with scratch_directory() as scratch:
        log_dir = scratch / "logs"
        fates = Fates(log_dir, policy)
        for phase in done:
            fates.run(phase)
        whole = present(fates.directory)
        for loss in lost:
            lose(fates.directory, loss)
        left = present(fates.directory)
        taken = whole.every - left.every
        report = only(cleaner.gaps(log_dir, "topic-0"))
        assert report.policy == policy and report.policy_trusted
        assert report.end_offset == max(whole.every | fates.expired | fates.cleaned) + 1
        hidden = left.records & fates.aborted
        assert report.records == len(left.records - hidden)
        said: dict[str, set[int]] = {}
        exact, vague = reasons_of(report)
        for offset, reason in exact.items():
            said.setdefault(reason, set()).add(offset)
        assert said.get("hidden", set()) == hidden
        assert said.get("markers", set()) == set(left.markers)
        # A batch that has lost records says how many, and of which offsets.
        for first, last, count, reason in vague:
            gone = {offset for offset in range(first, last + 1) if offset not in left.every}
            assert reason in ("compacted", "aborted") and len(gone) == count and gone <= fates.cleaned
        doubtful = said.get("lost", set()) | said.get("unexplained", set())
        # Of a segment that is missing at either end nobody knows what had been removed from it before.
        outside = {each for each in doubtful if not left.start <= each < report.log_end_offset}
        assert doubtful <= taken | (fates.cleaned & outside)
        removed = said.get("compacted", set()) | said.get("aborted", set())
        assert removed <= fates.cleaned | taken
        assert fates.cleaned.isdisjoint(doubtful - outside)
        if policy == "delete":
            assert doubtful == said.get("lost", set()) == taken
            assert report.is_complete == (not taken)
        elif taken:
            # Below the checkpoint, and below a trace of cleaning, a loss cannot be told from cleaning.
            known = max(report.checkpoint_offset or 0, report.traces_end_offset or 0)
            assert {offset for offset in taken if offset >= known} <= doubtful
