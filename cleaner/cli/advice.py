"""What to do next about an error: the line that follows it on a terminal."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from cleaner.base.remote_path import RemotePath, tiered_place
from cleaner.errors import (
    CleanerError,
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptIndexError,
    ForeignDirectoryError,
    LogDirLockedError,
    LogDirOfflineError,
    NoDaemonError,
    NoSpaceError,
    NotPermittedError,
    PolicyRefusedError,
    RecordAboveLimitError,
    StateDirLockedError,
    TruncationRefusedError,
    UndoRefusedError,
    UnknownTopicError,
    ZeroTailError,
)


def advice(error: CleanerError) -> str:
    """Return what to do about an error, in one line; empty if its message says it, or nothing is known to help."""
    for kind, words in _ADVICE:
        if isinstance(error, kind):
            return words(error)
    return ""


def _of_batch(error: CleanerError) -> str:
    directory = _place(error)
    return (
        f"`cleaner check {directory}` lists all damage there; restore the partition from a replica or a "
        "backup, or clean around it: `cleaner clean --damaged keep`"
    )


def _of_index(error: CleanerError) -> str:
    return (
        f"`cleaner check --repair {_place(error)}` rebuilds the indexes from the segments; after a power cut, "
        "`cleaner recover --trust-no-marker LOG_DIR` those of all logs"
    )


def _of_checkpoint(error: CleanerError) -> str:
    """Losing a file of a log dir has different costs; a recovery rebuilds the files of a partition."""
    from cleaner.settings.metadata_log import METADATA_LOG

    path = error.path if isinstance(error, CorruptCheckpointError) else Path()
    match path.name:
        case "cleaner-offset-checkpoint":
            return f"`rm {quote(str(path))}` loses no record: the next round of each log starts from its beginning"
        case "recovery-point-offset-checkpoint":
            return f"`rm {quote(str(path))}`, then `cleaner recover {_place(error)}`: every segment is read again"
        case "replication-offset-checkpoint":
            return f"restore it, or `rm {quote(str(path))}` and clean with --high-watermark end if all is replicated"
        case "log-start-offset-checkpoint":
            return f"restore it, or `rm {quote(str(path))}`: records that were deleted by offset may be seen again"
        case "meta.properties":
            return "restore it from another log dir of the same broker"
    if path.parent.name == METADATA_LOG:
        return (
            "settings and levels are read from it: --metadata-dir DIR names an intact copy, of another node or a backup"
        )
    log_dir = quote(str(path.parent.parent))
    return f"`cleaner recover {log_dir}` rebuilds it if the segments hold its contents"


def _place(error: CleanerError) -> str:
    """Return the directory that holds an error's file, quoted for a shell."""
    path = getattr(error, "path", None)
    return quote(str(path.parent)) if isinstance(path, Path) else "LOG_DIR"


def _of_limit(error: CleanerError) -> str:
    """Name the topic, which the directory of the file is named after."""
    path = getattr(error, "path", Path("TOPIC-0"))
    topic = path.parent.name.rpartition("-")[0] or "TOPIC"
    one = quote(f"{topic}:max.decompressed.message.bytes=BYTES")
    return f"`--set {one}` raises it for this run; a broker of 4.4 needs it in the topic's own settings"


def _of_policy(error: CleanerError) -> str:
    advice = error.advice if isinstance(error, PolicyRefusedError) else ""
    return advice or "`cleaner plan LOG_DIR` shows each policy and its source; --set TOPIC:KEY=VALUE gives one"


def _of_space(error: CleanerError) -> str:
    return f"`df -h {_existing_path(error)}`; free space there and try again"


def _existing_path(error: CleanerError) -> str:
    """Return an error's path, or its nearest existing parent, quoted for a shell."""
    return quote(str(_nearest(error)))


def _nearest(error: CleanerError) -> Path:
    path = Path(getattr(error, "path", ""))
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), path)


def _of_disk(error: CleanerError) -> str:
    """Return advice by the operating system's error number: most are no fault of the disk."""
    cause = error.cause if isinstance(error, LogDirOfflineError) else None
    path = getattr(error, "path", None)
    if isinstance(path, RemotePath):
        tiered = tiered_place(path)
        moved = path if tiered is None else tiered.moved
        if not isinstance(moved, RemotePath):
            return f"`ls -ld {moved}` and `findmnt --target {moved}` show what has become of the moved segments' place"
        scheme = str(moved).partition(":")[0]
        tool = {"s3": "aws s3 ls", "gs": "gcloud storage ls", "hdfs": "hdfs dfs -ls", "webhdfs": "hdfs dfs -ls"}.get(
            scheme, "rclone lsf"
        )
        return f"`{tool}` with its URL shows whether this machine may read it, and whether it answers"
    place = _existing_path(error)
    match cause.errno if cause is not None else None:
        case errno.EACCES | errno.EPERM:
            return _of_permission(_nearest(error))
        case errno.EROFS:
            return f"`findmnt --target {place}` and `dmesg | tail` say why it is read-only; mount it read-write"
        case errno.ENOENT | errno.ENOTDIR | errno.EISDIR | errno.ELOOP | errno.EINVAL | errno.EFBIG:
            return f"`ls -ld {place}` shows what this path is now"
    return f"`dmesg | tail` and `findmnt --target {place}` say why; try again once fixed, as only fsynced changes count"


def _of_permission(path: Path) -> str:
    """Return which user must run it, or which permission to change, by the owner of the file or directory."""
    place, me = quote(str(path)), os.geteuid()
    try:
        owner, owner_above = path.lstat().st_uid, path.parent.lstat().st_uid
    except OSError:
        owner = owner_above = 0
    if me not in (0, owner):
        if owner_above == me:
            return f"`chown --reference={quote(str(path.parent))} {place}`: its owner is not its directory's owner"
        return f"start as its owner (`ls -ld {place}`), or as root, which switches to the owner"
    if me != 0 and not os.access(path, os.R_OK | os.W_OK):
        return f"`chmod u+rwX {place}`: its owner may not read and write it"
    return f"`ls -ld {place}` and `lsattr -d {place}` show what denies access to its owner"


def _fixed(words: str) -> Callable[[CleanerError], str]:
    """Return advice that is the same for all errors of a kind."""
    return lambda _: words


# The first kind that fits counts, so special ones come first.
_ADVICE: tuple[tuple[type[CleanerError], Callable[[CleanerError], str]], ...] = (
    (ZeroTailError, lambda _: ""),
    (CorruptBatchError, _of_batch),
    (CorruptIndexError, _of_index),
    (RecordAboveLimitError, _of_limit),
    (CorruptCheckpointError, _of_checkpoint),
    (
        TruncationRefusedError,
        _fixed("`cleaner recover --save-cut DIR --allow-truncate` saves what it cuts; a replica may have everything"),
    ),
    (PolicyRefusedError, _of_policy),
    (UndoRefusedError, _fixed("`cleaner verify BEFORE AFTER` shows the differences; the kept files are unchanged")),
    (NoSpaceError, _of_space),
    (ForeignDirectoryError, _fixed("")),
    (LogDirOfflineError, _of_disk),
    (LogDirLockedError, _fixed("`fuser -v LOG_DIR/.lock` names the process that holds it; never remove the file")),
    (StateDirLockedError, _fixed("`cleaner status` asks the running daemon")),
    (NoDaemonError, _fixed("`systemctl status cleaner`; `cleaner plan LOG_DIR` needs no daemon")),
    (NotPermittedError, _fixed("run it as that user: `sudo -u USER cleaner ...`")),
    (UnknownTopicError, _fixed("`cleaner topics list --log-dir DIR` lists the topics")),
)
