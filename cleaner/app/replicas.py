"""`check --replicas`: whether copies of partitions still say the same of every key; locks and changes nothing."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cleaner.app.options import CallContext
from cleaner.app.replicas_report import ComparedReplica, Parting, ReplicaDifference, ReplicasReport
from cleaner.app.reports import Refusal
from cleaner.app.safe_tombstones import SafePoint, SeenReplica, require_place, write_safe_tombstones
from cleaner.app.session import as_cleaner_errors, attempt, parse_names
from cleaner.app.spilled_rows import make_unlinked
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.errors import CorruptCheckpointError, UncleanableError, UsageError
from cleaner.read.summary import look_again
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import once_each, real_path
from cleaner.storage.log_dir import NEVER_FOLLOWED, CachedLogDir
from cleaner.storage.segment import names
from cleaner.storage.which_dir import Nature, nature_of, require_log_dir
from cleaner.verification.check.log_dirs import is_in_use
from cleaner.verification.proof.side import LogSide
from cleaner.verification.replicas.compare import Comparison, compare
from cleaner.verification.replicas.decided import Replica
from cleaner.verification.replicas.findings import Disagreement, ReplicaFinding
from cleaner.verification.replicas.keys import MOST_REPLICAS

DEFAULT_MEMORY_BYTES = 1 << 30

IN_USE = "{path} was in use while it was read: the comparison is that of a moment"
TORN = "{path} was not closed in order: what follows its last whole batch, at offset {end}, did not count"
ABOVE_WATERMARK = (
    "the logs part above the high watermark: those records were never committed, and brokers cut them off when they "
    "follow the leader again"
)
NO_WATERMARK = "{path} has no high watermark beside it: all of its log counts as replicated"


@dataclass(frozen=True)
class ReplicaOptions:
    """
    How to compare.

    Attributes:
        memory_bytes: for sorting; the rest goes to a file.
        temp_dir: where that file is made; it is unlinked at once.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    temp_dir: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))


@dataclass(frozen=True)
class ReplicaPlaces:
    """A partition and its directories."""

    topic_partition: TopicPartition
    directories: tuple[Path, ...]


def replicas_of(
    context: CallContext, directories: Sequence[Path], partitions: Sequence[str] = ()
) -> list[ReplicaPlaces]:
    """
    Return the partitions to compare: those that are in more than one of the directories. None is read.

    Args:
        directories: log dirs, or directories of one partition.
        partitions: names; if empty, all.
    Raises:
        UsageError: no such directory or partition, fewer than two replicas, or too many.
    """
    fs = context.fs
    directories = once_each(directories)
    if len(directories) < 2:
        raise UsageError("name two or more directories with replicas of the same partitions")
    natures = [nature_of(fs, directory) for directory in directories]
    for directory, nature in zip(directories, natures, strict=True):
        if nature is not Nature.PARTITION:
            require_log_dir(fs, directory)
    if len(directories) > MOST_REPLICAS:
        raise UsageError(f"{len(directories)} directories; at most {MOST_REPLICAS} can be compared at once")
    if Nature.PARTITION in natures:
        other = next((at for at, nature in enumerate(natures) if nature is not Nature.PARTITION), None)
        if other is not None:
            raise UsageError(
                f"{directories[other]} is {natures[other].value}, others are directories of a partition: give log "
                "dirs, or directories of one partition"
            )
        if partitions:
            raise UsageError("directories of one partition and names of partitions; give log dirs, or no names")
        return [_of_directories([real_path(each) for each in directories])]
    listed = [CachedLogDir(fs, directory).listing() for directory in directories]
    listings = [each.current for each in listed]
    places = {
        name: ReplicaPlaces(name, tuple(listing[name] for listing in listings if name in listing))
        for name in sorted({name for listing in listings for name in listing})
    }
    if not partitions:
        for sentence in (each for listing in listed for each in listing.left_out()):
            context.warn(sentence)
        found = [each for each in places.values() if len(each.directories) > 1]
        if not found:
            raise UsageError("no partition is in more than one of these log dirs: there is nothing to compare")
        return found
    for name in (wanted := parse_names(partitions)):
        if (link := next((each.linked[name] for each in listed if name in each.linked), None)) is not None:
            raise UsageError(f"{link}: {NEVER_FOLLOWED}")
        if name not in places:
            raise UsageError(f"no partition {name} in these log dirs{did_you_mean(str(name), map(str, places))}")
        if len(places[name].directories) < 2:
            raise UsageError(f"{name} is only in {places[name].directories[0].parent}: there is nothing to compare")
    return [places[name] for name in wanted]


def _of_directories(directories: Sequence[Path]) -> ReplicaPlaces:
    found = []
    for directory in directories:
        try:
            found.append(TopicPartition.parse(directory.name))
        except ValueError:
            continue
    if len(set(found)) > 1:
        raise UsageError(f"{found[0]} and {next(each for each in found if each != found[0])}: two partitions")
    return ReplicaPlaces(found[0] if found else TopicPartition(directories[0].name, 0), tuple(directories))


def compare_replicas(
    places: Sequence[ReplicaPlaces], sources: Sources, context: CallContext, options: ReplicaOptions
) -> Iterator[ReplicasReport | Refusal]:
    """
    Compare partition by partition.

    Args:
        places: of `replicas_of`.
        sources: where settings come from; the log dir is that of the first replica.
        context: the caller's file system, clock, progress and stop check.
        options: how to compare.
    Raises:
        CorruptCheckpointError, UncleanableError: a log dir as a whole is not sound.
        ConfigError: a bad setting.
    """
    fs = context.fs
    paths = {directory.parent for each in places for directory in each.directories}
    with as_cleaner_errors(places[0].directories[0]):
        homes = {path: CachedLogDir(fs, path) for path in paths}
        settings = {
            path: SettingsResolver(fs, path, sources) for path in {each.directories[0].parent for each in places}
        }
    for each in places:
        work = _Work(each, homes, settings[each.directories[0].parent], context, options)
        yield attempt(each.topic_partition, each.directories[0], work.report)


def compare_all(
    directories: Sequence[Path],
    partitions: Sequence[str],
    sources: Sources,
    context: CallContext,
    options: ReplicaOptions,
    safe_tombstones: Path | None = None,
    on_outcome: Callable[[ReplicasReport | Refusal], None] = lambda _: None,
) -> list[ReplicasReport | Refusal]:
    """
    Compare all partitions, and write the file of safe offsets; a partition that was refused is not in it.

    Args:
        directories, partitions: as for `replicas_of`.
        sources, context, options: as for `compare_replicas`.
        safe_tombstones: the file; None: none.
        on_outcome: called with each result as it comes.
    Raises:
        UsageError: as `replicas_of`; the file cannot be written there.
        CleanerError: as `compare_replicas`.
    """
    places = replicas_of(context, directories, partitions)
    if safe_tombstones is not None:
        require_place(context.fs, safe_tombstones)
    made_ms = context.clock.now_ms()
    found = []
    for outcome in compare_replicas(places, sources, context, options):
        on_outcome(outcome)
        found.append(outcome)
    points = [outcome.safe for outcome in found if isinstance(outcome, ReplicasReport)]
    if safe_tombstones is not None and points:
        write_safe_tombstones(context.fs, safe_tombstones, made_ms, points)
    return found


@dataclass(frozen=True)
class _Work:
    """One partition's comparison."""

    places: ReplicaPlaces
    homes: dict[Path, CachedLogDir]
    settings: SettingsResolver
    context: CallContext
    options: ReplicaOptions

    def report(self) -> ReplicasReport:
        """
        Compare them.

        Raises:
            LogChangedError: a process that is at work in one of them keeps changing it.
        """
        return look_again(self.context.fs, self.places.directories, self._compared)

    def _compared(self, _: object) -> ReplicasReport:
        fs, name = self.context.fs, self.places.topic_partition
        replicas = [self._open(directory) for directory in self.places.directories]
        watermarks = [self.homes[each.parent].high_watermarks.get(name) for each in self.places.directories]
        topic_ids = [read_topic_id(fs, each / names.PARTITION_METADATA) for each in self.places.directories]
        known_ids = {each for each in topic_ids if each is not None}
        if len(known_ids) > 1:
            words = " and ".join(sorted(map(format_uuid, known_ids)))
            raise UncleanableError(
                self.places.directories[0],
                f"topic ids {words}: the topic was deleted and created again, these are logs of two topics",
            )
        topic = self.settings.topic(name.topic, next(iter(known_ids), None)).config
        total = 2 * sum(replica.side.size for replica in replicas)
        done = 0

        def step(read_bytes: int) -> None:
            nonlocal done
            self.context.check_done()
            done += read_bytes
            self.context.progress(f"{name} replicas", min(done, total), total)

        found = compare(
            replicas,
            limit_bytes=self.settings.cleaner.batch_limit_bytes(topic),
            memory_bytes=self.options.memory_bytes,
            make_file=lambda: make_unlinked(fs, self.options.temp_dir, "cleaner-replicas"),
            step=step,
        )
        topic_id = next(map(format_uuid, known_ids), None)
        return self._described(found, watermarks, topic_id)

    def _open(self, directory: Path) -> Replica:
        fs, home = self.context.fs, self.homes[directory.parent]
        side = LogSide(fs, directory, home.log_start_offsets.get(self.places.topic_partition))
        try:
            epochs = read_leader_epochs(fs, directory / names.LEADER_EPOCHS)
        except CorruptCheckpointError as error:
            self.context.warn(f"{error}: not used")
            epochs = []
        return Replica(side, epochs, may_be_torn=not home.has_clean_shutdown_marker() or is_in_use(fs, home.path))

    def _described(self, found: Comparison, watermarks: Sequence[int | None], topic_id: str | None) -> ReplicasReport:
        paths = [str(each) for each in self.places.directories]
        # A replica without a watermark counts as replicated up to its end.
        replicated = [
            each.end_offset if watermark is None else watermark
            for each, watermark in zip(found.replicas, watermarks, strict=True)
        ]
        parting = None
        if found.divergence is not None:
            first, second = found.divergence.replicas
            is_above = found.divergence.offset >= max(replicated)
            parting = Parting(found.divergence.offset, (paths[first], paths[second]), found.divergence.reason, is_above)
        needed = {each.replica: each for each in found.needed}
        return ReplicasReport(
            partition=str(self.places.topic_partition),
            agrees=not found.totals and (parting is None or parting.is_above_high_watermark),
            end_offset=found.end_offset,
            keys=found.keys,
            replicas=tuple(
                ComparedReplica(
                    paths[number],
                    each.start_offset,
                    each.end_offset,
                    watermarks[number],
                    each.records,
                    each.bytes,
                    needed[number].count if number in needed else 0,
                    needed[number].first_offset if number in needed else None,
                )
                for number, each in enumerate(found.replicas)
            ),
            parting=parting,
            differences=tuple(_difference(each, paths) for each in found.findings),
            total_differences={kind.name.lower(): found.totals[kind] for kind in Disagreement if kind in found.totals},
            safe=self._safe(found, watermarks, paths, topic_id),
            notes=tuple(self._notes(found, watermarks, parting)),
        )

    def _safe(
        self, found: Comparison, watermarks: Sequence[int | None], paths: Sequence[str], topic_id: str | None
    ) -> SafePoint:
        """Return the offset below which every replica has seen every tombstone: it has it, or had it and cleaned."""
        bounds = []
        for path, watermark, each in zip(paths, watermarks, found.replicas, strict=True):
            bounds.append((each.end_offset, f"{path} ends there"))
            if watermark is not None:
                bounds.append((watermark, f"the high watermark of {path}"))
        if found.divergence is not None:
            bounds.append((found.divergence.offset, "the replicas stop agreeing there"))
        if found.unseen_offset is not None:
            bounds.append((found.unseen_offset, "a replica has passed this tombstone or marker and does not have it"))
        offset, why = min(bounds, key=lambda bound: bound[0])
        seen = tuple(
            SeenReplica(path, each.start_offset, each.end_offset, watermark)
            for path, watermark, each in zip(paths, watermarks, found.replicas, strict=True)
        )
        return SafePoint(self.places.topic_partition, offset, why, topic_id, seen)

    def _notes(self, found: Comparison, watermarks: Sequence[int | None], parting: Parting | None) -> Iterator[str]:
        for directory, watermark, each in zip(self.places.directories, watermarks, found.replicas, strict=True):
            if is_in_use(self.context.fs, directory.parent):
                yield IN_USE.format(path=directory)
            elif each.is_torn:
                yield TORN.format(path=directory, end=each.end_offset)
            if watermark is None:
                yield NO_WATERMARK.format(path=directory)
        if parting is not None and parting.is_above_high_watermark:
            yield ABOVE_WATERMARK


def _difference(found: ReplicaFinding, paths: Sequence[str]) -> ReplicaDifference:
    return ReplicaDifference(
        found.kind,
        found.kind.value,
        found.offset,
        paths[found.has_it],
        paths[found.departs],
        found.other_offset,
        None if found.key is None else found.key.decode("utf-8", "backslashreplace"),
        None if found.key is None else base64.b64encode(found.key).decode("ascii"),
    )
