"""Checks the other files of a partition: producer snapshots, leader epochs, topic id, leftovers and unknown files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cleaner.errors import CorruptCheckpointError, CorruptLogError, LogDirOfflineError
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.files.producer_snapshot import read_snapshot
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load.leftovers import SwapState, find_leftovers, swap_states
from cleaner.storage.segment import names
from cleaner.verification.check.findings import Finding, FindingKind

_INDEXES = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX)
# Ours, and those of KRaft's metadata log.
_KNOWN = ("cleaner-transactional-ids", "quorum-state", "bootstrap.checkpoint")
_KNOWN_ENDINGS = (".checkpoint", ".checkpoint.deleted")
_TEMPORARY = ".tmp"


def check_small_files(fs: FileSystem, directory: Path, log_end_offset: int, is_in_use: bool) -> Iterator[Finding]:
    """
    Check the files of a partition directory that do not belong to a segment.

    Args:
        log_end_offset: after the last batch that could be read.
        is_in_use: a broker or a cleaner may be active: their temporary files are no leftovers.
    """
    try:
        files = fs.list_files(directory)
    except FileNotFoundError:
        return
    present = set(files)
    foreign = {name: reason for name in files if (reason := _foreign_reason(directory, name)) is not None}
    states = swap_states([name for name in files if name not in foreign])
    for name in files:
        if name in foreign:
            yield Finding(FindingKind.FOREIGN_FILE, directory / name, foreign[name])
            continue
        for finding in _check(fs, directory / name, log_end_offset, present, states.get(name)):
            if finding.is_damage or finding.kind is FindingKind.FOREIGN_FILE or not is_in_use:
                yield finding


def _foreign_reason(directory: Path, name: str) -> str | None:
    """Return why a load refuses a name; None: it does not."""
    try:
        find_leftovers(directory, [name])
    except CorruptLogError as error:
        return error.reason
    return None


def _check(
    fs: FileSystem, path: Path, log_end_offset: int, present: set[str], state: SwapState | None
) -> Iterator[Finding]:
    name = path.name
    if state is not None:
        yield _note(FindingKind.LEFTOVER, path, state.value)
    elif names.is_deleted(name):
        # A broker that stops in order leaves what it deleted in its last file.delete.delay.ms.
        yield _note(FindingKind.LEFTOVER, path, "deleted, and not yet removed; the next start removes it")
    elif name.endswith(_TEMPORARY):
        yield _note(FindingKind.LEFTOVER, path, "left by a process that ended early; the next start removes it")
    elif name.endswith(_INDEXES):
        if names.segment_file_name(names.offset_of(name), names.LOG) not in present:
            yield _note(FindingKind.LEFTOVER, path, "an index without a log; the next start removes it")
    elif name.endswith(names.SNAPSHOT):
        yield from _check_snapshot(fs, path, log_end_offset)
    elif name == names.LEADER_EPOCHS:
        yield from _check_epochs(fs, path, log_end_offset)
    elif name == names.PARTITION_METADATA:
        yield from read_as(FindingKind.PARTITION_METADATA, path, lambda: read_topic_id(fs, path))
    elif not name.endswith((names.LOG, *_KNOWN_ENDINGS)) and name not in _KNOWN:
        yield _note(FindingKind.FOREIGN_FILE, path, "not a file of a log; brokers ignore it")


def read_as(kind: FindingKind, path: Path, read: Callable[[], object]) -> list[Finding]:
    """Read a small file; returns the findings. A missing file is no finding."""
    for _ in range(2):
        try:
            read()
        except FileNotFoundError:
            return []
        except CorruptCheckpointError as error:
            # If a broker is writing it now, the second read finds it complete.
            found = [Finding(kind, path, error.reason, error.position)]
        except LogDirOfflineError as error:
            found = [Finding(FindingKind.UNREADABLE, path, error.reason)]
        else:
            return []
    return found


def _check_snapshot(fs: FileSystem, path: Path, log_end_offset: int) -> Iterator[Finding]:
    yield from read_as(FindingKind.SNAPSHOT, path, lambda: read_snapshot(fs, path))
    if names.offset_of(path.name) > log_end_offset:
        yield _note(FindingKind.LEFTOVER, path, f"beyond the log's end, {log_end_offset}; the next start removes it")


def _check_epochs(fs: FileSystem, path: Path, log_end_offset: int) -> Iterator[Finding]:
    found = read_as(FindingKind.LEADER_EPOCHS, path, lambda: read_leader_epochs(fs, path))
    yield from found
    if not found:
        for epoch, start_offset in read_leader_epochs(fs, path):
            if start_offset > log_end_offset:
                reason = f"epoch {epoch} begins at {start_offset}, beyond the log's end; the next start cuts it off"
                yield replace(_note(FindingKind.LEADER_EPOCHS, path, reason), offset=start_offset)


def _note(kind: FindingKind, path: Path, reason: str) -> Finding:
    return Finding(kind, path, reason, is_damage=False)
