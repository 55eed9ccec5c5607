"""`verify --as`: replays internal topics before and after cleaning, and compares what their readers make of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.log_pairs import LogPair, homes_of, pairs_of, sides_of
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import as_cleaner_errors, attempt
from cleaner.errors import UsageError
from cleaner.read.summary import look_again
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.log_dir import LogDir
from cleaner.storage.segment import names
from cleaner.verification.replay.kinds import REPLAYS, kind_of, replay
from cleaner.verification.replay.state import Failure, StateDifference, differences

AUTO = "auto"

KINDS = (*REPLAYS, AUTO)
"""What `--as` takes."""


@dataclass(frozen=True)
class ReplayReport:
    """
    The comparison of one partition.

    Attributes:
        partition: as its directory is named.
        kind: how it was replayed: `groups`, `transactions`, `schemas` or `connect`.
        is_same: its readers make the same of both logs.
        records_before, records_after: replayed.
        things: how many the state has by the log after, by kind: `offset`, `group`, `member`, ...
        differences: all of them, by kind and name.
        failures_before, failures_after: records that those who read the log fail on, of which each log may have some;
            at most a thousand.
        total_failures_before, total_failures_after: how many there are.
        passed_over_before, passed_over_after: records that they skip, by reason.
    """

    partition: str
    kind: str
    is_same: bool
    records_before: int
    records_after: int
    things: Mapping[str, int]
    differences: tuple[StateDifference, ...] = ()
    failures_before: tuple[Failure, ...] = ()
    failures_after: tuple[Failure, ...] = ()
    total_failures_before: int = 0
    total_failures_after: int = 0
    passed_over_before: Mapping[str, int] = field(default_factory=dict)
    passed_over_after: Mapping[str, int] = field(default_factory=dict)


def replay_log_dirs(
    before: Path,
    after: Path,
    kind: str,
    sources: Sources,
    context: CallContext,
    partitions: Sequence[str] = (),
) -> Iterator[ReplayReport | Refusal]:
    """
    Compare partition by partition what the readers of an internal topic make of two logs.

    Args:
        before, after: as for `verify_log_dirs`.
        kind: of `KINDS`; `auto`: each topic by its usual name.
        sources: where settings come from; the log dir is that of `after`.
        partitions: names; if empty, all of the kind that are in either log dir.
    Raises:
        UsageError: no such directory or partition, or none of the kind.
        CorruptCheckpointError, UncleanableError: one of the log dirs as a whole is not sound.
        ConfigError: a bad setting.
    """
    fs = context.fs
    usual = [*REPLAYS] if kind == AUTO else [kind]
    with as_cleaner_errors(after):
        found = pairs_of(context, before, after, partitions, lambda each: kind_of(each.topic) in usual)
        if not found:
            raise UsageError(f"{after}: no topic of the usual names for --as {kind}; name its partitions")
        pairs = [(pair, _kind_of(pair, kind)) for pair in found]
        homes = homes_of(fs, found)
        settings = {path: SettingsResolver(fs, path, sources) for path in {pair.after.parent for pair, _ in pairs}}
    for pair, its_kind in pairs:
        work = _Work(context, settings[pair.after.parent])
        yield attempt(
            pair.topic_partition,
            pair.after,
            lambda pair=pair, its_kind=its_kind, work=work: look_again(  # type: ignore[misc]
                fs,
                [pair.before, pair.after],
                lambda _: work.compare(pair, its_kind, homes),
                is_sound=lambda report: report.is_same,
            ),
        )


def _kind_of(pair: LogPair, kind: str) -> str:
    found = kind_of(pair.topic_partition.topic) if kind == AUTO else kind
    if found is None:
        raise UsageError(
            f"{pair.topic_partition}: not the usual name of an internal topic; say what it is, "
            f"--as {' or '.join(REPLAYS)}"
        )
    return found


@dataclass(frozen=True)
class _Work:
    """One partition's comparison."""

    context: CallContext
    settings: SettingsResolver

    def compare(self, pair: LogPair, kind: str, homes: Mapping[Path, LogDir]) -> ReplayReport:
        """Replay both logs as readers of that kind do, and compare their states."""
        fs = self.context.fs
        before, after, _ = sides_of(fs, pair, homes)
        topic_id = read_topic_id(fs, pair.after / names.PARTITION_METADATA)
        topic = self.settings.topic(pair.topic_partition.topic, topic_id).config
        limit_bytes = self.settings.cleaner.batch_limit_bytes(topic)
        total = before.size + after.size
        done = 0

        def step(read_bytes: int) -> None:
            nonlocal done
            self.context.check_done()
            done += read_bytes
            self.context.progress("replay", done, total)

        old, records_before = replay(kind, before, limit_bytes, step)
        new, records_after = replay(kind, after, limit_bytes, step)
        found = tuple(differences(old, new))
        things: dict[str, int] = {}
        for thing, _ in new.things():
            things[thing.kind] = things.get(thing.kind, 0) + 1
        return ReplayReport(
            partition=str(pair.topic_partition),
            kind=kind,
            is_same=not found,
            records_before=records_before,
            records_after=records_after,
            things=things,
            differences=found,
            failures_before=tuple(old.notes.failures),
            failures_after=tuple(new.notes.failures),
            total_failures_before=old.notes.total_failures,
            total_failures_after=new.notes.total_failures,
            passed_over_before=dict(old.notes.passed_over),
            passed_over_after=dict(new.notes.passed_over),
        )
