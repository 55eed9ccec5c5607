"""
Every error the cleaner raises on purpose, and the exit code a command ends with.

    CleanerError                      1
    |- CorruptLogError                1   damaged bytes on disk; names file, position, reason
    |  |- CorruptBatchError               a record batch of a `.log`
    |  |  |- ZeroTailError                   zeros behind the batches, beside a clean-shutdown marker
    |  |- CorruptIndexError               an offset, time or transaction index
    |  |- CorruptCheckpointError          a checkpoint, snapshot, marker or metadata file
    |- UncleanableError               1   a log or directory that cannot be worked on although no byte is damaged
    |  |- OffsetsOutOfOrderError          two entries of an index would not ascend
    |  |- RecordAboveLimitError           a compressed record above `max.decompressed.message.bytes`
    |- NotCleanlyShutDownError        1   no clean-shutdown marker: recovery must come first
    |- TruncationRefusedError         1   recovery would cut more than a torn tail
    |- PolicyRefusedError             1   the topic's policy forbids it or is not known
    |- UndoRefusedError               1   the log has changed since the round, or the kept files are damaged
    |- HandoverRefusedError           1   a log that cannot replace a broker's empty one
    |- NoSpaceError                   1   too little room for a group's output; says how many bytes are missing
    |- LogDirOfflineError             1   the disk failed: nothing more is tried in this log dir
    |  |- ForeignDirectoryError           another user's directory, or for root one that others can change
    |- UnreadableCodeError            1   a module that this process may not read since it gave up root
    |- OutOfDescriptorsError          1   this process has no file descriptor left; nothing is wrong with the disk
    |- OutOfThreadsError              1   the system starts no more threads for this process
    |- SparkJobError                  1   Spark is missing, or a job failed; swapped groups stay
    |- CleaningAborted                1   asked to stop; swapped groups stay, temporary files are removed
    |  |- WriterWaitingError              a writer wants to load the logs: rounds release the lock
    |- LogChangedError                1   another process changed the log at the same time: try again
    |- TopicError                     1   an operation on a topic that is refused
    |  |- InvalidTopicError               a name or a number of partitions that Kafka refuses
    |  |- TopicExistsError                the topic exists already
    |  |- UnknownTopicError               the topic does not exist, or has no such partition
    |  |- TopicSettingsError              settings that cannot be distinguished from those of another topic
    |- InputError                     1   a line of input that is not a record; says which
    |- UnsupportedPlatformError       1   logs are written on Linux only; reading works elsewhere too
    |- LogWriteError                  1   an append or read that a log refuses; the log is unchanged
    |  |- OffsetOutOfRangeError           an offset below the log start or beyond the log end
    |  |  |- LogTruncatedError               the log was cut below what a reader has read
    |  |- RecordTooLargeError             a batch above `max.message.bytes`, or above a segment
    |  |- KeylessRecordError              a record without a key for a compacted topic
    |  |- InvalidTimestampError           a record whose time is too far from the log's clock
    |  |- OutOfOrderSequenceError         a producer's sequence numbers leave a gap
    |  |- ProducerFencedError             a newer instance of the producer, or the log itself, raised its epoch
    |  |- UndecodableRecordError          a record that a topic's serdes do not read
    |  |- InvalidTxnStateError            begin, append, commit or abort where the transaction does not allow it
    |- LogClosedError                 1   nothing more is accepted
    |  |- FailedFsyncError                after a failed fsync, until the log is opened again (rule C-2)
    |  |- ForkedError                     the log was opened by this process's parent
    |- ClockError                     1   the machine's clock is not set: it shows a time before 1970
    |- UsageError                     2   a command or call that cannot be understood
    |- SteeringError                  1   a request that the daemon refuses
    |- NoDaemonError                 69   no daemon listens at the control socket, or it does not answer
    |- ListenError                   69   the address of the status server is taken, or not this machine's
    |- LogDirLockedError             75   another process (a live broker) holds the log dir
    |- StateDirLockedError           75   another daemon has the state directory, or the control socket
    |- NotPermittedError             77   the control socket is for other users
    |- ConfigError                   78   a setting with a bad key or value
    |  |- ConfigErrors                    several of them, one line each

Some packages have their own exceptions, all `ValueError`s except `InvalidTransitionError` (an internal error). Callers
convert them to one of these, with file and position. None of them leaves a public call.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from cleaner.base.sizes import human_bytes

ErrorT = TypeVar("ErrorT", bound=BaseException)

_NO_SPACE_ERRNOS = frozenset((errno.ENOSPC, errno.EDQUOT))
_NO_DESCRIPTOR_ERRNOS = frozenset((errno.EMFILE, errno.ENFILE))
# Errors of the disk itself, not of one file.
_DISK_ERRNOS = frozenset((errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ESHUTDOWN))

_HEAP_TYPE = 1 << 9  # of a class's flags: it was made by a `class` statement
_MAX_SHOWN = 80  # characters of external text


def shortened(text: str) -> str:
    """Shorten external text for a message: keep both its ends."""
    if len(text) <= _MAX_SHOWN:
        return text
    return f"{text[: _MAX_SHOWN // 2]}...{text[-_MAX_SHOWN // 2 :]} ({len(text)} characters)"


class CleanerError(Exception):
    """Base of all errors raised on purpose; the message is for the operator and needs no traceback."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle what the error is, and not how it was made: the classes take other arguments than `args`.

        A pool of processes breaks down as a whole where a worker's error cannot be read.
        """
        base: Any = super().__reduce__()  # what the built-in base says: an OSError's file name, too
        _, args, *state = base
        return _made_again, (type(self), args), (state[0] if state else None) or {}


def _made_again(kind: type[CleanerError], args: tuple[object, ...]) -> CleanerError:
    """Make an error as its built-in base does: without the constructors of classes in Python, whatever those take."""
    exceptions = (base for base in kind.__mro__ if issubclass(base, BaseException))
    built_in = next(base for base in exceptions if not base.__flags__ & _HEAP_TYPE)
    error: CleanerError = built_in.__new__(kind, *args)
    built_in.__init__(error, *args)
    return error


def describe(error: Exception) -> str:
    """Return an error's message; an error that was not raised on purpose is marked unexpected, with its class."""
    return str(error) if isinstance(error, CleanerError) else f"unexpected {type(error).__name__}: {error}"


def forget_frames(error: BaseException) -> None:
    """
    Free the local variables of the functions that an error came through.

    The traceback stays. Without this, whole chunks would stay in memory as long as the error is kept, or, where a chunk
    refers to the error, until the cyclic collector runs.
    """
    for found in _chain_of(error):
        traceback.clear_frames(found.__traceback__)


def as_value(error: ErrorT) -> ErrorT:
    """
    Return a caught error as a value that can be kept or passed on: without its traceback.

    Only internal errors keep their traceback; for all others the message is enough.
    """
    forget_frames(error)
    for found in _chain_of(error):
        if isinstance(found, CleanerError | OSError):
            found.__traceback__ = None
    return error


def _chain_of(error: BaseException) -> list[BaseException]:
    """Return an error, its causes and its contexts."""
    chain, left = [], [error]
    while left:
        found = left.pop()
        if found not in chain:
            chain.append(found)
            left += [other for other in (found.__cause__, found.__context__) if other is not None]
    return chain


class CorruptLogError(CleanerError):
    """
    Damaged bytes on disk.

    Args:
        path: the damaged file.
        position: byte position in that file where the damage was found.
        reason: what is wrong, without the path.
    """

    def __init__(self, path: Path | str, position: int, reason: str) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.position = position
        self.reason = reason
        super().__init__(f"{self.path}: at byte {position}: {reason}")


class CorruptBatchError(CorruptLogError):
    """A damaged record batch of a `.log` file."""


class ZeroTailError(CorruptBatchError):
    """
    The active `.log` of a log dir with a clean-shutdown marker ends in zeros: preallocated room that is not cut off.

    A power cut can leave that after a clean stop of Kafka up to 4.3, which cuts after its last fsync (D-02).
    """


class CorruptIndexError(CorruptLogError):
    """
    An offset, time or transaction index that does not fit its log.

    Attributes:
        others: positions of the entries right behind this one that have the same fault.
    """

    others: range = range(0)


class CorruptCheckpointError(CorruptLogError):
    """A checkpoint, snapshot, marker or metadata file that cannot be read."""


class UncleanableError(CleanerError):
    """
    A log or directory that cannot be worked on although no byte is damaged.

    Data that Kafka's cleaner refuses, too (R-311, R-546, R-576, R-597), a directory name that is not Kafka's, a swap
    that is not finished; with a `__cause__`, an internal error.

    Args:
        path: the file or partition directory concerned.
        reason: why.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.reason = reason
        super().__init__(f"{self.path}: {reason}")


class OffsetsOutOfOrderError(UncleanableError):
    """An index entry would not be above the previous one (R-312)."""


class RecordAboveLimitError(UncleanableError):
    """
    A record of a compressed batch is larger than `max.decompressed.message.bytes`; Kafka 4.4 refuses it, too (R-511).

    The batch is sound and can be read: only a cleaning refuses it.

    Args:
        path: the `.log`.
        position: of the batch in that file.
        reason: which limit, without the path.
    """

    def __init__(self, path: Path | str, position: int, reason: str) -> None:
        super().__init__(path, f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


def unexpected(path: Path | str, error: Exception) -> UncleanableError:
    """Wrap an internal error in one that names the path; the cause is kept."""
    named = UncleanableError(path, describe(error))
    named.__cause__ = error
    return named


class NotCleanlyShutDownError(CleanerError):
    """The log dir has no clean-shutdown marker, so its logs must be recovered before they are cleaned (D-02)."""


class TruncationRefusedError(CleanerError):
    """Recovery would cut more than the torn end of the last segment; says what, and names `--allow-truncate`."""


class PolicyRefusedError(CleanerError):
    """
    The topic is not compacted, or its policy is only an unconfirmed default.

    Args:
        message: why.
        topic: the topic for which setting the policy would help; empty if it would not.
        advice: what may be done instead; empty: what helps against a policy.
    """

    def __init__(self, message: str, topic: str = "", advice: str = "") -> None:
        self.topic = topic
        self.advice = advice
        super().__init__(message)


class UndoRefusedError(CleanerError):
    """
    A cleaning that cannot be undone; nothing has changed.

    Args:
        path: the wrong file.
        reason: what is wrong with it.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.reason = reason
        super().__init__(f"{self.path}: {reason}")


class HandoverRefusedError(CleanerError):
    """
    A log that cannot replace a broker's empty one; nothing has changed.

    Args:
        path: the directory or file that prevents it.
        reason: why, and what to do.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.reason = reason
        super().__init__(f"{self.path}: {reason}")


class NoSpaceError(CleanerError):
    """
    Too little free space for the next step.

    Args:
        path: the directory for the output.
        missing_bytes: how many bytes more are needed.
    """

    def __init__(self, path: Path | str, missing_bytes: int) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.missing_bytes = missing_bytes
        super().__init__(f"{self.path}: {human_bytes(missing_bytes)} more free space is needed")


class LogDirOfflineError(CleanerError):
    """
    An I/O error in a log dir. After a failed fsync nothing written to that file can be trusted (rule C-2).

    Args:
        path: the file or directory concerned.
        cause: the operating system's error.
    """

    def __init__(self, path: Path | str, cause: OSError) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.cause = cause
        super().__init__(f"{self.path}: {self.reason}")

    @property
    def reason(self) -> str:
        """The system's error in words, without the path."""
        return self.cause.strerror or str(self.cause)


class OutOfDescriptorsError(CleanerError):
    """
    This process, or the system, has reached its limit of open files; the disk is sound, and a later try may succeed.

    Args:
        path: the file that could not be opened.
        cause: the operating system's error.
    """

    def __init__(self, path: Path | str, cause: OSError) -> None:
        self.path = path if isinstance(path, Path) else Path(path)
        self.cause = cause
        whose = "this process (ulimit -n)" if cause.errno == errno.EMFILE else "the system"
        super().__init__(f"{self.path}: no file descriptor is left for {whose}: {cause.strerror or cause}")


class OutOfThreadsError(CleanerError, RuntimeError):
    """The system starts no more threads for this process; a later try may succeed. Python's own error is the latter."""

    def __init__(self) -> None:
        super().__init__("no thread is left for this process (ulimit -u, or pids.max of its control group)")


def disk_error(path: Path | str, error: OSError, wanted_bytes: int = 0) -> CleanerError:
    """
    Convert an `OSError` of a file operation.

    Args:
        path: the file or directory concerned.
        wanted_bytes: how many bytes should be written.
    """
    if error.errno in _NO_SPACE_ERRNOS:
        return NoSpaceError(path, wanted_bytes)
    if error.errno in _NO_DESCRIPTOR_ERRNOS:
        return OutOfDescriptorsError(path, error)
    return LogDirOfflineError(path, error)


class ForeignDirectoryError(LogDirOfflineError):
    """
    A directory in which this process must not work: another user's, or for root one in which others can exchange files.

    Args:
        path: the directory.
        reason: its owner, and what to change.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, PermissionError(errno.EPERM, reason))


class UnreadableCodeError(CleanerError, ImportError):
    """
    A module cannot be imported because its files are not readable for the user that this process has become.

    Args:
        module: its name.
        path: the file or directory that the user may not read.
        user: for the message.
    """

    def __init__(self, module: str, path: Path, user: str) -> None:
        super().__init__(
            f"{module} is not loaded: {path} is not readable for {user}, the user this process switched to from root; "
            "install it where every user may read (/opt/cleaner), or use --as-root"
        )


def is_disk_failure(error: Exception) -> bool:
    """Tell whether the disk itself failed, so that nothing more should be tried in its log dir."""
    cause = error.cause if isinstance(error, LogDirOfflineError) else error
    return isinstance(cause, OSError) and cause.errno in _DISK_ERRNOS


class SparkJobError(CleanerError):
    """Spark cannot be used here, or a job failed for a reason other than the log; unfinished work is not used."""


class CleaningAborted(CleanerError):
    """Asked to stop. Groups already swapped stay; the unfinished `.cleaned` files are removed (R-595)."""


class WriterWaitingError(CleaningAborted):
    """A writer waits to load the logs, which needs exclusive access: all rounds in the log dir end."""


class LogChangedError(CleanerError):
    """
    Another process cut, deleted, replaced or kept locked a log that was being cleaned or read. No damage: try again.
    """


MAY_PASS = (LogDirOfflineError, OutOfDescriptorsError, LogChangedError)
"""Errors after which the same call may succeed: what they kept from being read or given is tried at the next look."""


class TopicError(CleanerError):
    """
    An operation that a topic does not allow; nothing has changed.

    Args:
        topic: its name, as given.
        reason: what is wrong, without the name.
    """

    def __init__(self, topic: str, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"topic {topic!r}: {reason}")


class InvalidTopicError(TopicError):
    """A name, or a number of partitions, that Kafka refuses."""


class TopicExistsError(TopicError):
    """The topic exists already."""


class UnknownTopicError(TopicError):
    """The topic does not exist, or has no such partition."""


class TopicSettingsError(TopicError):
    """Settings that, once written, could not be distinguished from those of another topic."""


class InputError(CleanerError):
    """
    A line of input that is not a record.

    Args:
        line_number: from 1.
        reason: what is wrong with it.
    """

    def __init__(self, line_number: int, reason: str) -> None:
        self.line_number = line_number
        self.reason = reason
        super().__init__(f"line {line_number}: {reason}")


class UnsupportedPlatformError(CleanerError):
    """Writing logs needs locks and calls that only Linux has."""


class LogWriteError(CleanerError):
    """
    A call that a log refuses; nothing has changed, and the log stays usable.

    Args:
        where: the partition's directory, or its name.
        reason: what is wrong, without the place.
    """

    def __init__(self, where: Path | str, reason: str) -> None:
        self.where = str(where)
        self.reason = reason
        super().__init__(f"{self.where}: {reason}")


class OffsetOutOfRangeError(LogWriteError):
    """
    An offset that the log does not have.

    Args:
        offset: the requested offset.
        start_offset, end_offset: the log's offsets, the end exclusive.
    """

    def __init__(self, where: Path | str, offset: int, start_offset: int, end_offset: int) -> None:
        self.offset = offset
        self.start_offset = start_offset
        self.end_offset = end_offset
        super().__init__(where, f"offset {offset} is not within {start_offset} and {end_offset}")


class LogTruncatedError(OffsetOutOfRangeError):
    """
    The log was cut below its reader's position, or replaced; records at and above the cut are no longer the same.

    Args:
        offset: the reader's position.
        is_another: the log was deleted, and another created under its name.
    """

    def __init__(self, where: Path | str, offset: int, *, is_another: bool = False) -> None:
        self.offset = offset
        reason = f"cut below offset {offset}, up to which it was read"
        if is_another:
            reason = f"deleted and created again: not the log that was read up to offset {offset}"
        LogWriteError.__init__(self, where, reason)


class RecordTooLargeError(LogWriteError):
    """A batch larger than `max.message.bytes`, or than a whole segment; nothing was written."""


class KeylessRecordError(LogWriteError):
    """A record without a key for a compacted topic, where no record could ever supersede it; nothing was written."""


class InvalidTimestampError(LogWriteError):
    """A record whose time is too far from the log's clock for its topic; nothing was written."""


class OutOfOrderSequenceError(LogWriteError):
    """A producer's sequence numbers do not follow the last known ones, and do not repeat them."""


class ProducerFencedError(LogWriteError):
    """The producer's epoch is over: a newer instance took its id, or its transaction was aborted for it."""


class InvalidTxnStateError(LogWriteError):
    """A step that the state of the producer's transaction does not allow."""


class UndecodableRecordError(LogWriteError):
    """
    A record that a topic's serdes do not read; the log is sound.

    Args:
        where: the partition.
        offset: of the record.
        field: `key` or `value`.
        reason: what the serde says.
    """

    def __init__(self, where: str, offset: int, field: str, reason: str) -> None:
        self.offset = offset
        super().__init__(where, f"the {field} of offset {offset} cannot be read: {reason}; seek behind it, or as bytes")


class LogClosedError(CleanerError):
    """
    The log is closed: nothing is accepted any more.

    Args:
        where: the partition's directory, or its name.
        reason: why, if it was not closed on request.
    """

    def __init__(self, where: Path | str, reason: str = "the log is closed") -> None:
        self.where = str(where)
        super().__init__(f"{self.where}: {reason}")


class FailedFsyncError(LogClosedError):
    """
    An fsync failed, so it is unknown what is on disk; nothing is accepted until the log is opened again (C-2).

    Args:
        cause: the error of the failed call.
    """

    def __init__(self, where: Path | str, cause: Exception) -> None:
        self.cause = cause
        super().__init__(where, f"closed after an fsync that failed ({cause}); open the log again")


class ForkedError(LogClosedError):
    """The log belongs to this process's parent; a child that used it would overwrite the parent's records."""

    def __init__(self, where: Path | str, pid: int) -> None:
        super().__init__(where, f"opened by process {pid}, of which this one is a fork; open it again here")


class UsageError(CleanerError):
    """A command line or a call that cannot be understood."""

    exit_code = 2


class LogDirLockedError(CleanerError):
    """Another process holds the log dir's lock: a live broker, a writer or another cleaner."""

    exit_code = 75


class SteeringError(CleanerError):
    """A request that the daemon refuses (no such partition or job, not paused, ...); the message says why."""


class ListenError(CleanerError):
    """The server cannot listen on the address: another process uses it, or it is not this machine's."""

    exit_code = 69


class NoDaemonError(CleanerError):
    """No daemon listens at the control socket, or it does not answer in time."""

    exit_code = 69


class StateDirLockedError(CleanerError):
    """Another process has the state directory, or listens at the control socket; names it if known."""

    exit_code = 75


class NotPermittedError(CleanerError):
    """The caller may not steer the daemon: the control socket belongs to other users."""

    exit_code = 77


class ClockError(CleanerError):
    """The machine's clock is not set: times written now would be wrong later."""

    def __init__(self) -> None:
        super().__init__("the clock of this machine shows a time before 1970: set it; nothing was written")


class ConfigError(CleanerError):
    """
    A setting that cannot be used.

    Args:
        key: the setting's name; the path, of a file that cannot be read.
        value: the given value, shortened in the message; None: do not show it.
        reason: the bound or rule it breaks.
    """

    exit_code = 78

    def __init__(self, key: str | Path, value: object, reason: str) -> None:
        self.key = str(key)
        self.value = value
        self.reason = reason
        # A path comes from the operator; a text may come from a file, with any content and length.
        shown = value if isinstance(value, Path) else shortened(str(value))
        name = key if isinstance(key, Path) else shortened(key)
        super().__init__(f"{name}: {reason}" if value is None else f"{name}={shown}: {reason}")

    @property
    def mistakes(self) -> tuple[ConfigError, ...]:
        """The errors of single settings, each with its own key."""
        return (self,)


class ConfigErrors(ConfigError):
    """
    Several settings that cannot be used, one line each; `key`, `value` and `reason` are those of the first.

    Args:
        mistakes: at least one.
    """

    def __init__(self, mistakes: Iterable[ConfigError]) -> None:
        self._mistakes = tuple(mistakes)
        first = self._mistakes[0]
        super().__init__(first.key, first.value, first.reason)
        self.args = ("\n".join(str(mistake) for mistake in self._mistakes),)

    @property
    def mistakes(self) -> tuple[ConfigError, ...]:
        """The errors, in the order they were found."""
        return self._mistakes
