"""`dump`: shows the content of log files; locks and changes nothing."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cleaner.base.remote_path import any_path
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.dump.dump_items import Viewer
from cleaner.dump.indexes import IndexDump
from cleaner.dump.small_files import KNOWN, show_small_file, show_snapshot
from cleaner.errors import CorruptLogError, LogDirOfflineError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from cleaner.storage.which_dir import Nature, nature_of

_KRAFT_SNAPSHOT = ".checkpoint"
_BOOTSTRAP = "bootstrap.checkpoint"


@dataclass(frozen=True)
class DumpOptions:
    """
    What to show.

    Attributes:
        with_records: of a `.log` also records, not only batches.
        sanity_only: of an index only whether a starting broker would accept it.
        verify_only: of an index only entries that do not match its log.
        max_bytes: of each `.log`; None: all of it.
        limit_bytes: the most bytes a batch may unpack to.
    """

    with_records: bool = False
    sanity_only: bool = False
    verify_only: bool = False
    max_bytes: int | None = None
    limit_bytes: int = CleanerConfig().batch_limit_bytes(TopicConfig())


def dump_files(fs: FileSystem, paths: Sequence[str], options: DumpOptions, viewer: Viewer) -> int:
    """
    Show files, one after another.

    Args:
        fs: the file system.
        paths: as given by the caller.
        options: what to show.
        viewer: called with everything.
    Returns:
        How many of them could not be shown completely.
    """
    indexes = IndexDump(fs, viewer, options.sanity_only, options.verify_only, options.limit_bytes)
    failed = 0
    for shown_path in paths:
        viewer.on_file(shown_path)
        try:
            _show(fs, shown_path, options, viewer, indexes)
        except (CorruptLogError, LogDirOfflineError) as error:
            failed += 1
            viewer.on_damage(str(error))
        except FileNotFoundError as error:
            failed += 1
            viewer.on_damage(f"{error.filename or error}: no such file")
        except ValueError as error:
            failed += 1
            viewer.on_damage(f"{shown_path}: {error}")
    indexes.finish()
    return failed


def _show(fs: FileSystem, shown_path: str, options: DumpOptions, viewer: Viewer, indexes: IndexDump) -> None:
    path = any_path(shown_path)
    if _is_directory(fs, path):
        raise ValueError(_suggest_files(fs, path))
    match path.suffix:
        case names.LOG | ".checkpoint":
            _show_log(fs, path, shown_path, options, viewer)
        case names.INDEX:
            indexes.show_offset_index(path, shown_path)
        case names.TIME_INDEX:
            indexes.show_time_index(path, shown_path)
        case names.TXN_INDEX:
            indexes.show_txn_index(path)
        case names.SNAPSHOT:
            show_snapshot(fs, path, viewer)
        case _ if path.name in KNOWN:
            show_small_file(fs, path, viewer)
        case _ if not fs.exists(path):
            raise FileNotFoundError(shown_path)
        case _:
            viewer.on_damage(f"Ignoring unknown file {shown_path}")


def _is_directory(fs: FileSystem, path: Path) -> bool:
    try:
        return stat.S_ISDIR(fs.stat_followed(path).st_mode)
    except (FileNotFoundError, LogDirOfflineError):
        return False  # whoever opens it says what is wrong


def _suggest_files(fs: FileSystem, directory: Path) -> str:
    """Suggest files to name instead of a directory."""
    nature = nature_of(fs, directory)
    wanted = fs.list_files(directory)
    if nature is Nature.LOG_DIR:
        wanted = [name for name in wanted if name in KNOWN]
    else:
        wanted = [name for name in wanted if name.endswith(names.LOG)]
    example = f", such as {directory / wanted[-1]}" if wanted else ""
    return f"{nature.value}; name files{example}"


def _show_log(fs: FileSystem, path: Path, shown_path: str, options: DumpOptions, viewer: Viewer) -> None:
    if path.name == _BOOTSTRAP:
        viewer.on_log("KRaft bootstrap snapshot")
    elif path.suffix == _KRAFT_SNAPSHOT:
        offset, epoch = (int(part) for part in path.stem.split("-"))
        viewer.on_log(f"Snapshot end offset: {offset}, epoch: {epoch}", end_offset=offset, epoch=epoch)
    else:
        base_offset = names.offset_of(path.name)
        viewer.on_log(f"Log starting offset: {base_offset}", base_offset=base_offset)
    from cleaner.dump.log_file import LogDump  # loads the kernels

    with fs.open(path) as file:
        LogDump(file, shown_path, options.limit_bytes, options.max_bytes, options.with_records, viewer).run()
