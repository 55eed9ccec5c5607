"""
`handover`: puts our logs in the place of a stopped broker's empty ones, under the ids the cluster gave their topics.

    1. both log dirs are locked, and no other process uses them; a dry run only checks this, and writes nothing at all
    2. every partition of the topics is looked at in both log dirs, and compared with the cluster's metadata; if one of
       them is refused, or there is no room for all, nothing is done
    3. partition by partition: the log is loaded and closed, copied, and the copy takes the broker's place
       (`storage/handover.py`); a partition refused only now, for a damaged batch, does not stop the others

The broker's own empty directory must exist: it shows that this broker has the partition, in this log dir, under this
topic id. A broker would rename any other directory (R-107), or refuse to start with it (R-105).

A crash leaves each partition handed over or not begun; the same command finishes. Our own logs are left unchanged.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import UUID

from cleaner.app import load_partition
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.session import Session, as_cleaner_errors, attempt, open_session, require_unlocked, with_progress
from cleaner.base.mistakes import did_you_mean
from cleaner.base.model import TopicPartition
from cleaner.base.sizes import counted
from cleaner.errors import HandoverRefusedError, NotCleanlyShutDownError, UsageError
from cleaner.settings.cluster import Cluster
from cleaner.settings.files import read_cleaner_topics
from cleaner.settings.sources import Sources
from cleaner.storage.files.kafka_uuid import format_uuid
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.space import require_room
from cleaner.storage.handover import (
    bytes_to_write,
    hand_over_partition,
    is_same_log,
    moved_broker_log,
    settle_handover,
)
from cleaner.storage.load.loaded_log import LoadedLog, list_segments
from cleaner.storage.lock.log_dir_lock import LockMode
from cleaner.storage.log_dir import NEVER_FOLLOWED, LogDir, OffsetKind
from cleaner.storage.segment import names

WAS_THERE = "was there"
HANDED_OVER = "handed over"
TO_BE_HANDED_OVER = "to be handed over"
NOT_BEGUN = "not begun"

_PARTS = (names.LEADER_EPOCHS, names.PARTITION_METADATA)
"""Also files of a log; written again in the broker's directory."""


@dataclass(frozen=True)
class HandedOver:
    """
    The outcome for one partition.

    Attributes:
        partition: as its directory is named.
        topic_id: as Kafka writes it.
        log_start_offset, log_end_offset: of the log.
        bytes: of its `.log` files.
        state: `handed over`, `was there` (an earlier call has done it), in a dry run `to be handed over`, or
            `not begun`, since another partition was refused.
        elapsed_seconds: for this partition.
    """

    partition: str
    topic_id: str
    log_start_offset: int
    log_end_offset: int
    bytes: int
    state: str
    elapsed_seconds: float


@dataclass(frozen=True)
class HandoverReport:
    """What was handed over, in order of names, and what was refused; if a look refused one, nothing was handed over."""

    partitions: tuple[HandedOver, ...]
    refused: tuple[Refusal, ...] = ()


def hand_over(
    from_dir: Path,
    to_dir: Path,
    topic_ids: Mapping[str, UUID],
    sources: Sources,
    context: CallContext,
    *,
    dry_run: bool = False,
) -> HandoverReport:
    """
    Hand all partitions of some topics over to a stopped broker.

    Args:
        from_dir: a log dir that was closed in order.
        to_dir: one of the broker's `log.dirs`.
        topic_ids: the ids that the cluster gave the topics.
        sources: the broker's: its `server.properties`, and where its metadata log is.
        context: the caller's; `warn` is called with what the broker will do differently.
        dry_run: only look, and write nothing; damaged batches are found only when they are copied.
    Raises:
        UsageError: no such directory or topic, or both directories are the same.
        LogDirLockedError: one of them is in use.
        NotCleanlyShutDownError: `from_dir` was not closed in order.
        HandoverRefusedError: `to_dir` is not a broker's.
        NoSpaceError: `to_dir` has no room for all of them; nothing is done.
        CorruptCheckpointError, UncleanableError: one of them as a whole is not sound.
        CleaningAborted: raised by `context.check_done`.
    """
    for directory in (from_dir, to_dir):
        if not directory.is_dir():
            raise UsageError(f"{directory}: no such directory")
    if real_path(from_dir) == real_path(to_dir):
        raise UsageError(f"{from_dir}: the log dir to hand over from and the broker's are the same")
    mode = None if dry_run else LockMode.EXCLUSIVE
    with as_cleaner_errors(to_dir):
        if dry_run:
            for directory in (from_dir, to_dir):
                require_unlocked(context.fs, directory)
        with (
            open_session(from_dir, Sources(), context, mode=mode) as ours,
            open_session(to_dir, sources, context, mode=mode) as theirs,
        ):
            return _Handover(ours, theirs, topic_ids, sources).run(dry_run=dry_run)


_Work = Callable[[TopicPartition, Path], HandedOver]


class _Handover:
    """Two log dirs, both locked, and the cluster's metadata of the topics."""

    def __init__(self, ours: Session, theirs: Session, topic_ids: Mapping[str, UUID], sources: Sources) -> None:
        self._ours = ours
        self._theirs = theirs
        self._topic_ids = topic_ids
        self._fs: FileSystem = ours.context.fs
        self._cluster = Cluster(self._fs, theirs.log_dir.path, sources.metadata_dir, sources.config)
        others = [real_path(Path(text)) for text in theirs.settings.cleaner.log_dirs]
        self._wanted_bytes = 0
        self._others = [LogDir(self._fs, path) for path in others if path != theirs.log_dir.path and path.is_dir()]

    def run(self, *, dry_run: bool) -> HandoverReport:
        """Look at all partitions, and hand them over unless one is refused or this is a dry run."""
        if not self._ours.log_dir.has_clean_shutdown_marker():
            path = self._ours.log_dir.path
            raise NotCleanlyShutDownError(
                f"{path}: not closed cleanly: there is no clean-shutdown marker; run `cleaner recover {path}` first"
            )
        if self._theirs.log_dir.meta_properties() is None:
            raise HandoverRefusedError(
                self._theirs.log_dir.path, "not the log dir of a broker: there is no meta.properties in it"
            )
        partitions = self._partitions()
        self._warn(partitions)
        done, refused = self._each(partitions, self._look)
        if not refused:
            require_room(self._fs, self._theirs.log_dir.path, self._wanted_bytes, overhead_bytes=0)
        if dry_run:
            return HandoverReport(tuple(done), tuple(refused))
        if refused:
            done = [replace(each, state=NOT_BEGUN) if each.state == TO_BE_HANDED_OVER else each for each in done]
        else:
            done, refused = self._each(partitions, self._hand_over)
        return HandoverReport(tuple(done), tuple(refused))

    def _each(self, partitions: Mapping[TopicPartition, Path], work: _Work) -> tuple[list[HandedOver], list[Refusal]]:
        done: list[HandedOver] = []
        refused: list[Refusal] = []
        for topic_partition, directory in with_progress(self._ours, partitions, "hand over"):
            outcome = attempt(topic_partition, directory, partial(work, topic_partition, directory))
            if isinstance(outcome, Refusal):
                refused.append(outcome)
            else:
                done.append(outcome)
        return done, refused

    def _partitions(self) -> dict[TopicPartition, Path]:
        """Return the partitions of the topics, by name. Raises UsageError: a topic has none."""
        found = self._ours.log_dir.listing()
        there = {each.topic for each in (*found.current, *found.linked)}
        for topic in self._topic_ids:
            if topic not in there:
                raise UsageError(
                    f"{self._ours.log_dir.path}: no partition of topic {topic}{did_you_mean(topic, there)}"
                )
        for each, path in found.linked.items():
            if each.topic in self._topic_ids:
                raise UsageError(f"{path}: {NEVER_FOLLOWED}")
        return {each: path for each, path in sorted(found.current.items()) if each.topic in self._topic_ids}

    # ---- looking ---------------------------------------------------------------------------------------------------

    def _look(self, topic_partition: TopicPartition, directory: Path) -> HandedOver:
        began = time.monotonic()
        self._check_cluster(topic_partition)
        with self._fs.hold(directory):
            self._check_files(directory)
            log = self._load(topic_partition, directory, read_only=True)
            if log.producers.first_unstable_offset() is not None:
                raise HandoverRefusedError(
                    directory,
                    f"a transaction is open at offset {log.producers.first_unstable_offset()}, and no client of the "
                    "broker could end it; open the log dir to write (cleaner produce, LogManager), which aborts it",
                )
            was_there = self._check_place(topic_partition, directory)
            if not was_there:
                topic_id = self._topic_ids[topic_partition.topic]
                self._wanted_bytes += bytes_to_write(self._theirs.log_dir, topic_partition, topic_id, directory)
        return self._report(topic_partition, log, WAS_THERE if was_there else TO_BE_HANDED_OVER, began)

    def _check_cluster(self, topic_partition: TopicPartition) -> None:
        """Refuse a partition that contradicts the cluster's metadata, if that is known."""
        cluster, topic = self._cluster, topic_partition.topic
        if not cluster.is_known:
            return
        place, topic_id = self._theirs.log_dir.path, self._topic_ids[topic]
        known = cluster.image.topic_ids.get(topic)
        if known is None:
            raise HandoverRefusedError(place, f"the cluster has no topic {topic}; create it at the broker first")
        if known != topic_id:
            raise HandoverRefusedError(
                place, f"the cluster's topic {topic} has the id {format_uuid(known)}, not {format_uuid(topic_id)}"
            )
        replicas = cluster.image.replicas.get(topic_id, {})
        if topic_partition.partition not in replicas:
            raise HandoverRefusedError(
                place,
                f"the cluster's topic {topic} has {counted(len(replicas), 'partition')}, 0 to {len(replicas) - 1}; add "
                "partitions at the broker, and start it once",
            )
        if replicas[topic_partition.partition] > 1:
            raise HandoverRefusedError(
                place,
                f"{topic_partition} has {replicas[topic_partition.partition]} replicas: the others do not have "
                "this log, and would truncate it as leaders; hand it over to one replica, then add others",
            )

    def _check_files(self, directory: Path) -> None:
        """
        Refuse files that are not regular or have another owner than the directory; warn of files that are no part of a
        log.
        """
        owner, foreign = self._fs.stat(directory).st_uid, []
        for name in self._fs.list_dir(directory):
            about = self._fs.stat(directory / name)
            parsed = names.parse_file_name(name)
            if parsed is None and name not in _PARTS:
                foreign.append(name)
            elif not stat.S_ISREG(about.st_mode):
                raise HandoverRefusedError(directory / name, "not a regular file")
            elif about.st_uid != owner:
                raise HandoverRefusedError(
                    directory / name, f"belongs to user {about.st_uid}, and its directory to user {owner}"
                )
        if foreign:
            self._ours.context.warn(f"{directory}: not part of the log, not handed over: {', '.join(foreign)}")

    def _check_place(self, topic_partition: TopicPartition, directory: Path) -> bool:
        """Tell whether the log is already in its place. Raises HandoverRefusedError: it has no place there."""
        theirs, topic_id = self._theirs.log_dir, self._topic_ids[topic_partition.topic]
        home = theirs.path / str(topic_partition)
        place = moved_broker_log(theirs, topic_partition, topic_id) or home
        found = theirs.listing()
        if topic_partition in found.linked or topic_partition in found.future:
            raise HandoverRefusedError(
                home, "a symbolic link, or being moved to another log dir: not a plain partition directory"
            )
        if not self._fs.exists(place):
            others = [other.path for other in self._others if topic_partition in other.partitions()]
            where = f"; it is in {others[0]}" if others else ""
            raise HandoverRefusedError(
                home,
                "the broker has no such partition here: create the topic, and let the broker create its directories; "
                f"each log is handed over to the one of its log.dirs that has it{where}",
            )
        there = read_topic_id(self._fs, place / names.PARTITION_METADATA)
        if there != topic_id:
            has = "no topic id" if there is None else f"the topic id {format_uuid(there)}"
            raise HandoverRefusedError(place, f"has {has}, not {format_uuid(topic_id)}")
        segments = list_segments(self._fs, place)
        if not any(segment.size or segment.base_offset for segment in segments):
            return False
        if is_same_log(self._fs, directory, place):
            return True
        raise HandoverRefusedError(
            place, "the broker's log is not empty, or had records before; delete the topic and create it again"
        )

    def _warn(self, partitions: Mapping[TopicPartition, Path]) -> None:
        """Warn of what the broker will do differently."""
        warn, cluster = self._ours.context.warn, self._cluster
        if not cluster.is_known:
            warn(
                f"{self._theirs.log_dir.path}: no metadata log here, so topic ids and numbers of partitions and "
                "replicas are not checked: give --metadata-dir, or --config with the broker's server.properties"
            )
        warnings: list[str] = []
        settings = read_cleaner_topics(
            self._fs, self._ours.log_dir.path, {each.topic for each in self._ours.log_dir.listing().current}, warnings
        )
        for topic, topic_id in self._topic_ids.items():
            theirs = cluster.image.topic_configs.get(topic, {})
            missing = {key: value for key, value in settings.get(topic, {}).items() if theirs.get(key) != value}
            if missing:
                listed = ",".join(f"{key}=[{v}]" if "," in v else f"{key}={v}" for key, v in missing.items())
                warn(
                    f"topic {topic}: a broker uses its own settings, and may delete old records by them. To set those "
                    "it had here: kafka-configs.sh --bootstrap-server ... --alter --entity-type topics "
                    f"--entity-name {topic} --add-config {listed}"
                )
            mine, count = (
                [each for each in partitions if each.topic == topic],
                len(cluster.image.replicas.get(topic_id, {})),
            )
            if count > len(mine):
                warn(
                    f"topic {topic}: {counted(len(mine), 'partition')} here, {count} at the broker: keys may move to "
                    "others"
                )

    # ---- doing -----------------------------------------------------------------------------------------------------

    def _hand_over(self, topic_partition: TopicPartition, directory: Path) -> HandedOver:
        began = time.monotonic()
        theirs, topic_id = self._theirs.log_dir, self._topic_ids[topic_partition.topic]
        settle_handover(theirs, topic_partition, topic_id)
        with self._fs.hold(directory):
            was_there = self._check_place(topic_partition, directory)
            log = self._load(topic_partition, directory, read_only=False)
            if was_there:
                return self._report(topic_partition, log, WAS_THERE, began)
            load_partition.close(self._ours, log)
            ours = self._ours.log_dir
            hand_over_partition(
                theirs,
                topic_partition,
                topic_id,
                directory,
                {
                    OffsetKind.RECOVERY_POINT: log.log_end_offset,
                    OffsetKind.HIGH_WATERMARK: ours.high_watermarks.get(topic_partition),
                    OffsetKind.CLEANER: ours.cleaner_offsets.get(topic_partition),
                    OffsetKind.LOG_START: log.log_start_checkpoint,
                },
                log_start_offset=log.log_start_offset,
                still_held=self._still_held,
                check_done=self._ours.check_done,
            )
        return self._report(topic_partition, log, HANDED_OVER, began)

    def _still_held(self) -> None:
        self._ours.still_held()
        self._theirs.still_held()

    def _load(self, topic_partition: TopicPartition, directory: Path, *, read_only: bool) -> LoadedLog:
        return load_partition.load(
            self._ours,
            topic_partition,
            directory,
            self._ours.topic(topic_partition, directory).config,
            now_ms=self._ours.context.clock.now_ms(),
            clean_shutdown=True,
            read_only=read_only,
        )

    def _report(self, topic_partition: TopicPartition, log: LoadedLog, state: str, began: float) -> HandedOver:
        return HandedOver(
            partition=str(topic_partition),
            topic_id=format_uuid(self._topic_ids[topic_partition.topic]),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            bytes=log.size,
            state=state,
            elapsed_seconds=time.monotonic() - began,
        )
