"""`doctor`: the checks of a log dir, each in a thread, so that a disk that hangs is not waited for forever."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from shlex import quote
from typing import TypeVar

from cleaner.app.configuration import Loaded
from cleaner.app.doctor import Answer, failed, passed, warned
from cleaner.base import concurrency
from cleaner.base.clock import Clock, SystemClock
from cleaner.base.sizes import counted, human_bytes
from cleaner.config.values import TopicConfig
from cleaner.errors import (
    CleanerError,
    CorruptBatchError,
    CorruptLogError,
    LogChangedError,
    NoSpaceError,
    UncleanableError,
    describe,
    disk_error,
)
from cleaner.read.summary import ListedFiles, list_log_files, until_still
from cleaner.settings import SettingsResolver
from cleaner.settings.sources import Sources
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.fs.file_system import FileSystem, real_path
from cleaner.storage.fs.mounts import kind_of_file_system, missing_guarantee
from cleaner.storage.fs.ownership import Owner, can_own, code_closed_to
from cleaner.storage.fs.readable import is_zero_from
from cleaner.storage.fs.space import require_room
from cleaner.storage.lock.lock_probe import LockHolder, LockReport, probe
from cleaner.storage.log_dir import LogDir, Use, find_conflicts, must_be_recovered
from cleaner.storage.segment.indexes import OFFSET_ENTRY, TIME_ENTRY, read_entries, refuse, without_zero_tail
from cleaner.storage.segment.names import LOG, PARTITION_METADATA
from cleaner.storage.segment.segment import Segment
from cleaner.storage.which_dir import why_no_log_dir

Result = TypeVar("Result")

PATIENCE_SECONDS = 60.0
"""A look at thousands of logs takes a few seconds; a check that needs longer than this hangs."""

# Measured: a round has at most 16 open, whatever its segments; files that several threads read are added.
_DESCRIPTORS_OF_PROCESS = 32
_DESCRIPTORS_OF_ROUND = 32
# Measured: a writer has the active segment, its index and its time index of each log open.
_DESCRIPTORS_OF_WRITTEN_LOG = 3

_A_FEW = 8  # bytes: a batch seldom ends in as many zeros, so that few logs are read to see what they are

_SKEW_MS = 60_000  # synchronised clocks differ by less


class _Examination:
    """
    The checks of one log dir.

    Args:
        fs: the file system.
        path: the directory.
        loaded: the settings.
        clock: the time.
        is_named: the operator named it; otherwise it comes from the settings.

    Attributes:
        has_listed: the first check has found a log dir that is sound as a whole.
    """

    has_listed = False

    def __init__(self, fs: FileSystem, path: Path, loaded: Loaded | None, clock: Clock, *, is_named: bool) -> None:
        self._is_named = is_named
        self._fs, self._path, self._clock = fs, path, clock
        self._loaded = loaded
        self._seen: Mapping[str, ListedFiles] = {}
        self._lock = LockReport()

    def questions(self) -> Sequence[Callable[[], Answer]]:
        """Return the checks, in this order; the first one must pass."""
        of_logs = (self.directories, self.access, self.lock, self.marker)
        return (*of_logs, self.space, self.descriptors, self.clock, self.file_system)

    def directories(self) -> Answer:
        """Is it a log dir, and sound as a whole?"""
        reason = why_no_log_dir(self._fs, self._path)
        if reason is not None and not self._is_named:
            return warned("directories", reason, "see `settings`: the daemon refuses it or waits for it")
        if reason is not None:
            return failed("directories", reason, "name a log dir, or mount its disk")
        try:
            self._log_dir.check()
        except UncleanableError as error:
            return failed("directories", str(error), "move what it names out of the log dir", error)
        listing = self._log_dir.listing()
        self._seen = {str(name): list_log_files(self._fs, path) for name, path in listing.current.items()}
        bytes_ = sum(segment.size for seen in self._seen.values() for segment in seen.segments)
        segments = sum(len(seen.segments) for seen in self._seen.values())
        found = f"{counted(len(self._seen), 'partition')}, {counted(segments, 'segment')}, {human_bytes(bytes_)}"
        self.has_listed = True
        if links := listing.left_out():
            more = f"; {len(links) - 1} more" if len(links) > 1 else ""
            return warned(
                "directories", f"{found}; {links[0]}{more}", "put the directory itself there, or remove the link"
            )
        return passed("directories", found)

    def access(self) -> Answer:
        """May this user, whom root has become, read and replace all of it?"""
        if not can_own(self._fs.stat(real_path(self._path))):
            do = "start as its owner, or as root, which switches to the owner"
            return failed("access", "the log dir belongs to another user", do)
        closed = next(self._closed(), None)
        if closed is not None:
            self._fs.stat(closed)  # a topic that was deleted since is closed to nobody
            return failed("access", f"user {os.geteuid()} may not read and replace {closed}", "chown or chmod it")
        code = code_closed_to(Owner(os.geteuid(), os.getegid())) if os.geteuid() else None
        if code is not None:
            finding = f"user {os.geteuid()} cannot read the program, for {code}: `cleaner bulk` is refused"
            return warned("access", finding, "install it where every user may read, such as /opt, not below /root")
        return passed("access", f"user {os.geteuid()} may read and replace everything in it")

    def _closed(self) -> Iterator[Path]:
        directory = real_path(self._path)
        for place in (directory, *(directory / name for name in self._seen)):
            if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
                yield place
                continue
            for name in self._fs.list_files(place):
                file = place / name
                if not file.is_symlink() and file.exists() and not os.access(file, os.R_OK | os.W_OK):
                    yield file

    def lock(self) -> Answer:
        """Is it free, or whose?"""
        self._lock = probe(self._fs, self._path)
        pid = f" (process {self._lock.pid})" if self._lock.pid is not None else ""
        holder = f"held by {self._lock.holder.value}{pid}"
        if self._lock.holder is LockHolder.BROKER:
            return failed("lock", holder, "stop the broker first; its own cleaner works while it runs")
        if self._lock.holder is not LockHolder.NOBODY:
            return warned("lock", holder, "wait for it, or ask the running daemon: `cleaner status`")
        return passed("lock", "a writer holds it and admits a cleaner" if self._lock.has_writer else "free")

    def marker(self) -> Answer:
        """Was it left in order?"""
        lock, use = self._log_dir.look()
        is_held = lock.holder is not LockHolder.NOBODY
        match use:
            case Use.CLOSED if not is_held and (zeros := self._zeros_at_ends()):
                do = f"`cleaner recover --trust-no-marker {quote(str(self._path))}`: a power cut came after its stop"
                logs = [path for path in zeros if path.suffix == LOG]
                grade = failed if logs else warned
                others = f", and {len(zeros) - 1} more" if len(zeros) > 1 else ""
                first = (logs or zeros)[0]
                return grade("marker", f"zeros beside the marker, at the end of {_in_log(first)}{others}", do)
            case Use.CLOSED:
                return passed("marker", "closed cleanly: it has its clean-shutdown marker")
            case Use.TORN if must_be_recovered(use, self._seen):
                do = f"`cleaner recover {quote(str(self._path))}`, or start and stop its writer"
                return failed("marker", "not closed cleanly: no clean-shutdown marker, and no process has it open", do)
            case Use.TORN:
                return passed("marker", "none, but there is no log that could be torn")
            case _:
                return passed("marker", "none while it is open, which is normal")

    def _zeros_at_ends(self) -> list[Path]:
        """Return the files of active segments that end in zeros, which a load cuts or refuses (D-02)."""
        found: list[Path] = []
        for name, seen in self._seen.items():
            if not seen.segments:
                continue
            segment = Segment.open(self._fs, self._log_dir.path / name, seen.segments[-1].base_offset)
            # Damage of other kinds is for `check`, which reads everything.
            with suppress(CorruptLogError):
                if _ends_in_zeros(segment):
                    found.append(segment.log_path)
            for path, entry in ((segment.index_path, OFFSET_ENTRY), (segment.time_index_path, TIME_ENTRY)):
                with suppress(CorruptLogError, FileNotFoundError):
                    entries = read_entries(self._fs, path, entry, refuse, segment.size)
                    if len(without_zero_tail(entries)) < len(entries):
                        found.append(path)
        return found

    def space(self) -> Answer:
        """Is there room for the round of the largest log?"""
        found = self._fs.space(self._path)
        if found.is_read_only:
            return failed("space", "the file system is read-only", "`dmesg | tail` says why; mount it read-write")
        largest, name = max(((self._group_bytes(each), each) for each in self._seen), default=(0, ""))
        require_room(self._fs, self._path, 0)
        try:
            require_room(self._fs, self._path, largest)
        except NoSpaceError as error:
            free, most = human_bytes(found.free_bytes), human_bytes(largest)
            what = f"{free} are free, and a group of {name} may need {most} until it is swapped"
            missing = human_bytes(error.missing_bytes)
            do = f"free {missing}, or clean smaller logs first: see `cleaner plan --estimate`"
            return warned("space", what, do)
        return passed(
            "space",
            f"{human_bytes(found.free_bytes)} are free, a round needs at most {human_bytes(largest)} at a time",
        )

    def _group_bytes(self, name: str) -> int:
        """Return the most bytes that a group of a log takes besides its sources."""
        segments = self._seen[name].segments[:-1]
        limit = max([self._segment_bytes(name), *(segment.size for segment in segments)])
        return min(sum(segment.size for segment in segments), limit)

    def _segment_bytes(self, name: str) -> int:
        try:
            topic_id = read_topic_id(self._fs, self._log_dir.path / name / PARTITION_METADATA)
            return self._resolver.topic(name.rpartition("-")[0], topic_id).config.segment_bytes
        except (CleanerError, OSError):
            return TopicConfig().segment_bytes  # another check reports it

    @cached_property
    def _log_dir(self) -> LogDir:
        return LogDir(self._fs, self._path)

    @cached_property
    def _resolver(self) -> SettingsResolver:
        sources = Sources() if self._loaded is None else self._loaded.sources
        return SettingsResolver(self._fs, self._path, sources)

    def descriptors(self) -> Answer:
        """May this process open as many files as it will?"""
        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        threads = 1 if self._loaded is None else self._loaded.config.threads
        needed = _DESCRIPTORS_OF_PROCESS + threads * _DESCRIPTORS_OF_ROUND
        writing = _DESCRIPTORS_OF_PROCESS + len(self._seen) * _DESCRIPTORS_OF_WRITTEN_LOG
        do = f"`ulimit -n {max(needed, writing)}` (at most {most} here), or LimitNOFILE= of the unit"
        if limit < needed:
            return failed("descriptors", f"{limit} may be open, rounds need {needed}", do)
        if limit < writing:
            what = f"{limit} may be open: enough for rounds, not for a writer of all {len(self._seen)} logs ({writing})"
            return warned("descriptors", what, do)
        return passed("descriptors", f"{limit} may be open, rounds need {needed}, a writer of all logs {writing}")

    def clock(self) -> Answer:
        """Is the machine's time behind what is written here?"""
        now_ms, newest_ms, where = self._clock.now_ms(), 0, ""
        for name, seen in self._seen.items():
            for segment in seen.segments[-1:]:
                newest = max(segment.mtime_ns // 1_000_000, segment.largest_timestamp())
                if newest > newest_ms:
                    newest_ms, where = newest, name
        if newest_ms > now_ms + _SKEW_MS:
            what = f"{where} has records or files of {(newest_ms - now_ms) // 1000} s in the future"
            do = "see whether the clock is right (NTP); lags and retention of such records begin when their time comes"
            return warned("clock", what, do)
        return passed("clock", "nothing here is newer than now")

    def file_system(self) -> Answer:
        """Does the file system keep what renames, fsyncs and locks promise?"""
        kind = kind_of_file_system(self._fs, real_path(self._path))
        reason = missing_guarantee(kind)
        if reason:
            return warned("file-system", f"{kind}: {reason}", "keep logs on a local disk, with ext4 or XFS")
        return passed("file-system", kind or "its type is not known")


def _ends_in_zeros(segment: Segment) -> bool:
    with segment.open_log() as file:
        if not segment.size or any(file.read(_A_FEW, max(0, segment.size - _A_FEW))):
            return False
        try:
            segment.next_offset(check_order=False)
        except CorruptBatchError as damage:
            return is_zero_from(file, damage.position)
    return False


def _in_log(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def examine_log_dir(
    fs: FileSystem,
    path: Path,
    loaded: Loaded | None,
    *,
    is_named: bool = True,
    clock: Clock | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Answer]:
    """
    Run all checks of one log dir; if it is not a log dir, or does not answer, the other checks are left out.

    Args:
        loaded: the settings; None if they are invalid.
        is_named: the operator named it; otherwise it comes from the settings, and the daemon may wait for it to appear.
        patience_seconds: how long to wait for each check.
    """
    examination = _Examination(fs, path, loaded, clock or SystemClock(), is_named=is_named)
    for question in examination.questions():
        check = question.__name__.replace("_", "-")
        answer = within(patience_seconds, partial(_answer_of, check, question, path, examination.directories))
        if answer is None:
            do = f"`dmesg | tail`, `findmnt --target {quote(str(path))}`: repair the disk or the mount"
            yield replace(failed(check, f"no answer for {patience_seconds:.0f} s", do), log_dir=path)
            return
        yield replace(answer, log_dir=path)
        if not examination.has_listed:
            return


def within(seconds: float, work: Callable[[], Result]) -> Result | None:
    """Return the result of some work; None if it takes longer: its thread then ends at the latest with the process."""
    done: list[Result] = []
    thread = concurrency.Thread(target=lambda: done.append(work()), name="cleaner-doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    return done[0] if done else None


def _answer_of(check: str, question: Callable[[], Answer], path: Path, list_again: Callable[[], Answer]) -> Answer:
    """Return the answer of a check, or the error that prevented it."""

    def look() -> Answer:
        try:
            return question()
        except FileNotFoundError:
            list_again()
            raise

    try:
        return until_still(path, look)
    except LogChangedError as error:
        return warned(check, str(error), "run it again")
    except CleanerError as error:
        return failed(check, str(error), "", error)
    except OSError as error:
        named = disk_error(path, error)
        return failed(check, str(named), "", named)
    except Exception as error:  # noqa: BLE001 - even an internal error hides no other answer
        return failed(check, describe(error), "this is an internal error of the cleaner")


def examine_conflicts(fs: FileSystem, log_dirs: Sequence[Path]) -> Iterator[Answer]:
    """Check for partitions that several log dirs of one broker contain."""
    try:
        family = [LogDir(fs, path) for path in log_dirs if why_no_log_dir(fs, path) is None]
    except (CleanerError, OSError):
        return  # reported for each of them
    for conflict in find_conflicts(family, lambda _: None):  # likewise
        yield failed("directories", str(conflict), "`cleaner check` with all of them says which can go")
