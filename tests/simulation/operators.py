"""
What operators do between two lives of the writer, each command in a process of its own.

    wait        nothing: a daemon that runs has the logs for itself
    recover     `recover` of the whole log dir
    repair      an index file is lost, or none; `check --repair`
    undo        a round with `--keep-old`, and `undo`: all is as before the round
    quiet       a round, and when nothing is dirty and horizons have passed, one with `cleaner.quiet.cleaning`
    prove       `prove-erased` of everything; see `proving.py`
    replicas    `check --replicas` and `clean --safe-tombstones`; see `comparing.py`
    pack        a round, and one with `--recompress` in which nothing is dirty; now and then it is undone (`packing.py`)
    view        a round with `--keep-old` and a key view, judged, and `undo` (`viewing.py`)
    who         `plan --who`, judged by the book of what was sent (`asking.py`)
    gaps        an account of every offset, judged by the book, and one of a copy with a hole (`accounting.py`)
    erase       `erase` of some keys or offsets of a topic, perhaps after a round with `--keep-old`; see `erasing.py`

A command may be killed, or the power cut, in its middle. Then the operator gives it again. Before `recover` or `repair`
of a closed log dir, zeros may come back behind an active segment's files (D-02).
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from cleaner.app.check_log_dir import CheckOptions, check_all
from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.gaps_log_dir import GapReport, gaps_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import CleanReport, RecoverReport, Refusal
from cleaner.app.undo_clean import undo_clean
from cleaner.app.who_log_dir import WhoReport, who_log_dir
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, LogDirLockedError, LogDirOfflineError, NoSpaceError, UndoRefusedError
from cleaner.settings.sources import Sources
from cleaner.state.kept_manifest import GROUP_DIGITS
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from tests.simulation.accounting import cut_out, judge_cut, judge_gaps
from tests.simulation.asking import judge_who
from tests.simulation.bench import Bench
from tests.simulation.clients import require_closed
from tests.simulation.comparing import ComparedWorld
from tests.simulation.disk import SimFiles
from tests.simulation.erasing import Erasure
from tests.simulation.found import Found, Wrong, checkpoints_of, left_overs
from tests.simulation.oracle import Oracle
from tests.simulation.packing import LIMITS, TARGETS, PackedLog
from tests.simulation.plan import Rest
from tests.simulation.processes import Process
from tests.simulation.proving import ProvedWorld
from tests.simulation.quiet import QuietLog
from tests.simulation.topics import Topics
from tests.simulation.viewing import SET, ViewedRound

_MOST_TRIES = 4
_ZEROS = 240  # of whole entries of either index
Contents = dict[str, bytes]


class Operators:
    """
    See the head of the file.

    Args:
        bench: what all share; no writer lives.
        has_daemon: it may be at work in the logs, too.
        begin: begins a process.
        run_process: runs a process to its end.
        cut: cuts the power.
        restore: brings it back if it was cut; returns whether it was.
        judge: judges logs as an opening does.
    """

    def __init__(
        self,
        bench: Bench,
        *,
        has_daemon: bool,
        begin: Callable[[str], tuple[Process, SimFiles]],
        run_process: Callable[[Process, Callable[[], None]], None],
        cut: Callable[[], None],
        restore: Callable[[], bool],
        judge: Callable[[Collection[str]], None],
    ) -> None:
        self._bench = bench
        self._has_daemon = has_daemon
        self._begin = begin
        self._run_process = run_process
        self._cut = cut
        self._restore = restore
        self._judge = judge
        self._sources = Sources(config=bench.settings)
        self._kept = bench.log_dir.parent / "kept"
        self._damaged: dict[Path, bytes] = {}  # kept files of which the first byte is another now

    def rest(self, rest: Rest) -> None:
        """Have it happen."""
        bench = self._bench
        if rest.kind == "wait":
            bench.clock.sleep(rest.number)
            return
        bench.has_errors = bench.world.disk.trouble is not None
        can_damage = self._is_closed and not self._has_daemon and not bench.has_errors
        if rest.kind in ("recover", "repair") and can_damage:
            self._leave_zeros(rest.number, with_log=rest.kind == "recover")
        getattr(self, f"_{rest.kind}")(rest)

    def _carry_out(self, rest: Rest, command: Callable[[SimFiles], None]) -> bool:
        """Give a command until it comes to its end; returns whether it does, and no call had to fail."""
        bench = self._bench
        calm = bench.calm()
        for number in range(_MOST_TRIES):
            process, fs = self._begin(rest.kind)
            if rest.accident and number == 0:
                happen = self._cut if rest.accident == "power" else partial(bench.world.kill, process)
                process.accidents.append((rest.changes, happen))
            has_ended = False

            def main(fs: SimFiles = fs, process: Process = process) -> None:
                nonlocal has_ended
                with self._errors_explained(rest.kind, calm):
                    command(fs)
                    process.closed_in_order = has_ended = True
                require_closed(fs)

            self._run_process(process, main)
            if bench.world.scheduler.errors:
                return False
            was_cut = self._restore()
            if has_ended and not was_cut:
                bench.count(rest.kind)
                return bench.is_calm_since(calm)
        return False

    @contextlib.contextmanager
    def _errors_explained(self, kind: str, calm: int) -> Iterator[None]:
        """Count the error that ends a command's `with` block; it has to be explained by an accident since `calm`."""
        bench = self._bench
        try:
            yield
        except LogDirLockedError:
            bench.count(f"{kind}: locked")
            if not self._has_daemon:
                raise
        except (CleanerError, OSError) as error:
            bench.count(f"{kind}: {type(error).__name__}")
            if bench.is_calm_since(calm):
                raise

    def _context(self, fs: SimFiles) -> CallContext:
        return CallContext(fs=fs, clock=self._bench.clock)

    @property
    def _is_closed(self) -> bool:
        return (self._bench.log_dir / names.CLEAN_SHUTDOWN).exists()

    @property
    def _is_settled(self) -> bool:
        """Whether all topics are there, without a swap that the next load completes or takes back."""
        bench = self._bench
        return not bench.topics.missing() and not any(left_overs(bench.directory(name)) for name in bench.topics.names)

    def _files_of(self, topic: str) -> Contents:
        """
        Return a partition's logs, indexes and snapshots, without what a failed fsync has lost of them.

        The page cache may still show that, until a command drops it: nothing on the disk is changed then.
        """
        paths, journal = sorted(self._bench.directory(topic).iterdir()), self._bench.world.disk.journal
        return {path.name: journal.without_lost_pages(path) for path in paths if path.name[:20].isdigit()}

    def _leave_zeros(self, number: int, *, with_log: bool) -> None:
        """Leave zeros behind an active segment's files, as a power cut after a stop of Kafka 4.3 can."""
        directory = self._bench.directory(self._bench.topics.names[number % len(self._bench.topics.names)])
        logs = sorted(directory.glob(f"*{names.LOG}"))
        if not logs or number // 3 % 3 == 0:
            return
        suffixes = (names.INDEX, names.TIME_INDEX, *((names.LOG,) if with_log and number // 3 % 3 == 2 else ()))
        process, fs = self._begin("operator")

        def main() -> None:
            for path in (logs[-1].with_suffix(suffix) for suffix in suffixes):
                with fs.open(path, write=True) as file:
                    file.write(bytes(_ZEROS - file.size() % _ZEROS), file.size())
                    file.fsync()

        with self._undisturbed():
            self._run_process(process, main)

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Hold accidents back for a `with` block: what an operator or a disk does there is done as a whole."""
        self._bench.holds_accidents = True
        try:
            yield
        finally:
            self._bench.holds_accidents = False

    # ---- recover ---------------------------------------------------------------------------------------------------

    def _recover(self, rest: Rest) -> None:
        bench, reports = self._bench, list[RecoverReport]()

        def command(fs: SimFiles) -> None:
            save_cut = self._kept.with_name("cut") if rest.number % 2 else None
            # An interrupted swap is settled before anything is refused.
            there = [name for name in bench.topics.names if bench.directory(name).exists()]
            before = {name: self._files_of(name) for name in there if not left_overs(bench.directory(name))}
            for allows in (False, True):
                report = recover_log_dir(
                    *(bench.log_dir, None, self._sources, self._context(fs)), allow_truncate=allows, save_cut=save_cut
                )
                reports.append(report)
                for refused in report.refused if not self._has_daemon else ():
                    name = TopicPartition.parse(str(refused.partition)).topic
                    # A disk that fails stops a recovery anywhere: what is done stays, and there is no marker.
                    is_stopped = isinstance(refused.error, LogDirOfflineError | NoSpaceError)
                    if name in before and not is_stopped and self._files_of(name) != before[name]:
                        raise Wrong(f"recover has refused {refused.partition}, and changed it: {refused.error}")
                if not report.refused:
                    return

        if not self._carry_out(rest, command) or self._has_daemon:
            return
        last = reports[-1]
        if last.refused or not last.has_marker or not self._is_closed:
            raise Wrong(f"all is well, and recover says {last}")
        if not bench.topics.missing():
            self._judge(bench.topics.names)

    # ---- check -----------------------------------------------------------------------------------------------------

    def _repair(self, rest: Rest) -> None:
        bench = self._bench
        was_closed, sound = self._is_closed, list[bool]()
        suffix = ""
        if was_closed and not bench.topics.missing() and not self._has_daemon and not bench.has_errors:
            suffix = self._lose_an_index(rest.number, is_whole=not rest.accident)

        def command(fs: SimFiles) -> None:
            options = CheckOptions(repair=True, clean_section=True)
            report = check_all([bench.log_dir], self._sources, self._context(fs), options)
            sound.append(report.is_sound)
            if was_closed and not report.is_sound and not self._has_daemon and not bench.has_errors:
                raise Wrong(f"the logs were closed in order, and after a repair there is damage: {report.findings}")

        with self._undisturbed() if suffix == names.TXN_INDEX else contextlib.nullcontext():
            is_done = self._carry_out(rest, command)
        if is_done and was_closed and self._is_settled and not self._has_daemon:
            self._judge(bench.topics.names)

    def _lose_an_index(self, number: int, *, is_whole: bool) -> str:
        """
        Remove an index file, by a process that does not forget to sync; or none. Returns which kind, by its suffix.

        A transaction index only if the repair `is_whole`: before its end nothing tells that there was one.
        """
        topic = self._bench.topics.names[number % len(self._bench.topics.names)]
        suffix = (names.INDEX, names.TIME_INDEX, names.TXN_INDEX if is_whole else "", "")[number // 8 % 4]
        paths = sorted(self._bench.directory(topic).glob(f"*{suffix}"))
        if not suffix or not paths:
            return ""
        process, fs = self._begin("operator")
        path = paths[number // 32 % len(paths)]

        def main() -> None:
            with fs.hold(path.parent):
                fs.remove(path)
                fs.fsync_dir(path.parent)

        with self._undisturbed():
            self._run_process(process, main)
        return suffix

    # ---- quiet cleaning --------------------------------------------------------------------------------------------

    def _quiet(self, rest: Rest) -> None:
        bench = self._bench
        if self._has_daemon or not self._is_closed or not self._is_settled:
            return
        self._judge(bench.topics.names)  # what is where, if nobody was answered: two rounds may remove a tombstone
        if not self._carry_out(Rest(rest.kind), partial(self._clean, self._sources)):
            return
        bench.clock.sleep(rest.number % 8)  # delete.retention.ms is 0 or 5 seconds
        due_ms = bench.clock.now_ms()
        before = {name: QuietLog.of(bench.log_dir, name) for name in bench.topics.compacted}
        sources = Sources(config={**bench.settings, "cleaner.quiet.cleaning": "true"})
        if not self._carry_out(rest, partial(self._clean, sources)):
            return
        for name, log in before.items():
            log.judge(QuietLog.of(bench.log_dir, name), due_ms, is_whole=not rest.accident)
        self._judge(bench.topics.names)

    def _clean(
        self,
        sources: Sources,
        fs: SimFiles,
        options: CleanOptions | None = None,
        reports: dict[str, CleanReport] | None = None,
    ) -> None:
        """Clean all compacted topics; `reports` gets those of the topics that were."""
        topics = self._bench.topics
        partitions = [str(TopicPartition(name, 0)) for name in topics.compacted]
        outcomes = clean_log_dir(
            *(self._bench.log_dir, partitions, sources, options or CleanOptions(), self._context(fs))
        )
        with topics.rounds_run(), contextlib.closing(outcomes):
            for outcome in outcomes:
                if isinstance(outcome, Refusal):
                    raise outcome.error
                if isinstance(outcome, CleanReport) and reports is not None:
                    reports[TopicPartition.parse(outcome.partition).topic] = outcome

    # ---- recompress ------------------------------------------------------------------------------------------------

    def _pack(self, rest: Rest) -> None:
        bench = self._bench
        if self._has_daemon or not self._is_closed or not self._is_settled:
            return
        if not self._carry_out(Rest(rest.kind), partial(self._clean, self._sources)):
            return
        bench.clock.sleep(rest.number % 8)  # horizons pass, and still nothing is to be removed
        compacted = bench.topics.compacted
        target, limit = TARGETS[rest.number % len(TARGETS)], LIMITS[rest.number // 4 % len(LIMITS)]
        before = {name: PackedLog.of(bench.log_dir, name) for name in compacted}
        files = {name: self._files_of(name) for name in compacted}
        kept = self._free_place() if rest.number % 3 == 0 else None
        sources = Sources(config={**bench.settings, "message.max.bytes": limit})
        options = CleanOptions(recompress=target, keep_old=kept)
        if not self._carry_out(rest, partial(self._clean, sources, options=options)):
            return
        for name, log in before.items():
            log.judge(PackedLog.of(bench.log_dir, name), target, int(limit), is_whole=not rest.accident)
        self._judge(bench.topics.names)
        if kept is None or not self._carry_out(Rest(rest.kind), partial(self._put_back, kept)):
            return
        for name in compacted:
            if _logs(self._files_of(name)) != _logs(files[name]):
                raise Wrong(f"{name}: undo has not brought {sorted(files[name])} back")
        bench.count("pack: undone")
        self._judge(bench.topics.names)

    # ---- prove-erased ----------------------------------------------------------------------------------------------

    def _prove(self, rest: Rest) -> None:
        bench = self._bench
        if bench.topics.missing() or bench.has_errors:
            return
        world = ProvedWorld(bench, rest, has_daemon=self._has_daemon, is_closed=self._is_closed)
        self._carry_out(rest, world.command)
        if world.certificate is not None:
            bench.count(f"prove: {world.certificate.result}")

    def _replicas(self, rest: Rest) -> None:
        bench = self._bench
        if self._is_closed and self._is_settled and not self._has_daemon and not bench.has_errors:
            self._carry_out(replace(rest, accident=""), ComparedWorld(bench, rest).command)

    # ---- who -------------------------------------------------------------------------------------------------------

    def _who(self, rest: Rest) -> None:
        bench, outcomes = self._bench, list[object]()
        if not self._is_closed or not self._is_settled or self._has_daemon or bench.has_errors:
            return
        before = {name: self._files_of(name) for name in bench.topics.names}

        def command(fs: SimFiles) -> None:
            # A part of each log first: only that it says anything at all.
            for sample_bytes in (1, None):
                asked = who_log_dir(
                    bench.log_dir, self._sources, self._context(fs), sample_bytes=sample_bytes, top=1 << 20
                )
                outcomes[:] = asked

        if not self._carry_out(rest, command) or bench.world.disk.has_lost_pages:
            return
        if before != {name: self._files_of(name) for name in bench.topics.names}:
            raise Wrong("who has changed a log")
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                raise outcome.error
            assert isinstance(outcome, WhoReport)
            name = outcome.topic
            marks = checkpoints_of(bench.log_dir, name).get(names.HIGH_WATERMARK_CHECKPOINT, 0)
            is_compacted = name in bench.topics.compacted
            where = bench.directory(name)
            if judge_who(outcome, where, bench.topics.now[name], marks, is_compacted=is_compacted):
                bench.count("who: judged")

    # ---- gaps ------------------------------------------------------------------------------------------------------

    def _gaps(self, rest: Rest) -> None:
        bench, outcomes = self._bench, list[object]()
        if not self._is_closed or not self._is_settled or self._has_daemon or bench.has_errors:
            return
        before = {name: self._files_of(name) for name in bench.topics.names}

        def command(fs: SimFiles) -> None:
            outcomes[:] = gaps_log_dir(bench.log_dir, self._sources, self._context(fs))

        if not self._carry_out(rest, command) or bench.world.disk.has_lost_pages:
            return
        if before != {name: self._files_of(name) for name in bench.topics.names}:
            raise Wrong("gaps has changed a log")
        for outcome in outcomes:
            if isinstance(outcome, Refusal):
                raise outcome.error
            assert isinstance(outcome, GapReport)
            topic = outcome.partition.rpartition("-")[0]
            truth, is_compacted = bench.topics.now[topic], topic in bench.topics.compacted
            lines = checkpoints_of(bench.log_dir, topic)
            if judge_gaps(outcome, bench.directory(topic), truth, lines, is_compacted=is_compacted):
                bench.count("gaps: judged")
                self._gap_of_ones_own(outcome, truth)

    def _gap_of_ones_own(self, before: GapReport, truth: Oracle) -> None:
        """Cut a batch out of a copy: it is missed, unless an erasure has left what looks like a trace of a round."""
        bench, copy = self._bench, self._bench.log_dir.with_name("accounted")
        try:
            offsets = cut_out(bench.log_dir, copy, before.partition)
            if offsets and not any(sent.erasure for sent in truth.sent.values()):
                context = CallContext(fs=FileSystem(), clock=bench.clock)
                (after,) = gaps_log_dir(copy, self._sources, context, [before.partition])
                if isinstance(after, Refusal):
                    raise after.error
                judge_cut(before, after, offsets)
                bench.count("gaps: a cut is missed")
        finally:
            shutil.rmtree(copy)

    # ---- erase -----------------------------------------------------------------------------------------------------

    def _erase(self, rest: Rest) -> None:
        bench = self._bench
        if self._has_daemon or not self._is_closed or not self._is_settled or bench.has_errors:
            return
        self._judge(bench.topics.names)  # what is where, if nobody was answered
        kept, truth = self._free_place(), None
        if rest.number % 4 == 0:
            truth = bench.topics.copy()
            options = CleanOptions(keep_old=kept, index_dir=bench.index_dir)
            if not self._carry_out(Rest(rest.kind), lambda fs: self._clean(self._sources, fs, options)):
                return
        erasure = Erasure(bench, rest, self._sources, kept)
        self._by_hand(erasure.leave_behind)
        erasure.begin()
        is_done = self._carry_out(rest, erasure.command)
        if is_done:
            erasure.end()
        self._by_hand(erasure.clear)
        if not is_done:
            return
        self._judge(bench.topics.names)
        if not self._carry_out(Rest(rest.kind), erasure.again):
            return
        if truth is not None and kept.exists() and not rest.accident:
            self._undo_erased(rest, kept, erasure, truth)

    def _by_hand(self, work: Callable[[SimFiles], None]) -> None:
        """Do something as a whole, by a process that does not forget to sync."""
        process, fs = self._begin("operator")
        with self._undisturbed():
            self._run_process(process, partial(work, fs))

    def _undo_erased(self, rest: Rest, kept: Path, erasure: Erasure, truth: Topics) -> None:
        """Undo the round before: what it has removed is back, and what was erased is not."""

        def undo(fs: SimFiles) -> None:
            with contextlib.closing(undo_clean(kept, self._sources, self._context(fs))) as outcomes:
                for outcome in outcomes:
                    if isinstance(outcome, Refusal):
                        raise outcome.error

        if not list(kept.glob(f"*/{names.KEPT_MANIFEST}")) or not self._carry_out(Rest(rest.kind), undo):
            return
        self._bench.topics = truth
        erasure.begin()
        erasure.end()
        self._judge(self._bench.topics.names)

    def _free_place(self) -> Path:
        """Return a directory that keeps nothing: what nobody has undone is of a log as it was then."""
        places = (self._kept.with_name(f"kept-{number}") for number in itertools.count())
        return next(place for place in places if not list(place.glob(f"*/{names.KEPT_MANIFEST}")))

    # ---- undo ------------------------------------------------------------------------------------------------------

    def _view(self, rest: Rest) -> None:
        bench = self._bench
        if not self._has_daemon and self._is_closed and self._is_settled:
            plain = Rest(rest.kind)  # first, in half of them, a round that compares bytes
            if rest.number % 2 and not self._carry_out(plain, partial(self._clean, self._sources)):
                return
            names_ = bench.topics.compacted
            starts = {
                name: checkpoints_of(bench.log_dir, name).get("log-start-offset-checkpoint", 0) for name in names_
            }
            # Without an accident: until the undo, the book's rule is not that of the log.
            self._undo(
                Rest(rest.kind, rest.number),
                ViewedRound({name: Found.of(bench.directory(name)) for name in names_}, starts),
            )

    def _undo(self, rest: Rest, viewed: ViewedRound | None = None) -> None:
        bench = self._bench
        if self._has_daemon or not self._is_closed or not self._is_settled:
            return
        log_dir, topics = bench.log_dir, bench.topics
        self._kept = self._free_place()
        before = {name: self._files_of(name) for name in topics.compacted}
        lines = {name: checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint") for name in topics.compacted}
        truth = topics.copy()
        is_in_round = bool(rest.accident) and rest.number % 3 == 0
        sources = self._sources if viewed is None else replace(self._sources, sets=(SET,))

        def clean(fs: SimFiles) -> None:
            reports = None if viewed is None else viewed.reports
            self._clean(sources, fs, CleanOptions(keep_old=self._kept), reports)

        def undo(fs: SimFiles) -> None:
            if not list(self._kept.glob(f"*/{names.KEPT_MANIFEST}")):
                return
            if rest.number % 2:
                self._undo_with_damage(fs)
                self._mend(fs)
            self._put_back(self._kept, fs)

        quiet = Rest(rest.kind, rest.number)
        if is_in_round:
            process, fs = self._begin("clean")
            happen = self._cut if rest.accident == "power" else partial(bench.world.kill, process)
            process.accidents.append((rest.changes, happen))
            calm = bench.calm()

            def main() -> None:
                with self._errors_explained(rest.kind, calm):
                    clean(fs)

            self._run_process(process, main)
            self._restore()
        elif not self._carry_out(quiet, clean):
            return
        elif viewed is not None:
            for name in topics.compacted:
                if viewed.judge(name, Found.of(bench.directory(name))):
                    bench.count("view: judged")
        if not self._carry_out(quiet if is_in_round else rest, undo):
            return
        for name in topics.compacted:
            now, line = self._files_of(name), checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint")
            if _logs(now) != _logs(before[name]):
                raise Wrong(f"{name}: undo has not brought {sorted(before[name])} back: {sorted(now)}")
            if line != lines[name]:
                raise Wrong(f"{name}: after undo it is cleaned up to {line}, before the round up to {lines[name]}")
        bench.topics = truth
        self._damaged.clear()
        self._judge(bench.topics.names)

    def _put_back(self, kept: Path, fs: SimFiles) -> None:
        """Undo the rounds whose old segments are there."""
        if not list(kept.glob(f"*/{names.KEPT_MANIFEST}")):
            return
        with contextlib.closing(undo_clean(kept, self._sources, self._context(fs))) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Refusal):
                    raise outcome.error

    def _undo_with_damage(self, fs: SimFiles) -> None:
        """Try it with a kept file damaged: it is refused, and changes nothing."""
        bench = self._bench
        found = sorted(self._kept.glob(f"*/{'[0-9]' * GROUP_DIGITS}/*.log"))
        kept = [path for path in found if path.stat().st_size]
        if not kept or self._damaged:
            return
        before = {name: self._files_of(name) for name in bench.topics.names}
        first = kept[0].read_bytes()[:1]
        self._damaged[kept[0]] = first
        self._overwrite(fs, kept[0], bytes([first[0] ^ 1]))
        damaged = kept[0].read_bytes()
        outcomes = list(undo_clean(self._kept, self._sources, self._context(fs)))
        refused = [each for each in outcomes if isinstance(each, Refusal)]
        names_of = {str(each.partition).rpartition("-")[0] for each in refused}
        for each in refused:
            if not isinstance(each.error, UndoRefusedError):
                raise each.error
        changed = [name for name in names_of if self._files_of(name) != before[name]]
        if changed:
            raise Wrong(f"undo was refused, and has changed {changed}")
        if any(damaged in self._files_of(name).values() for name in bench.topics.names):
            raise Wrong(f"undo has put a damaged file back: {kept[0].name}")

    def _mend(self, fs: SimFiles) -> None:
        for path, first in self._damaged.items():
            self._overwrite(fs, path, first)

    @staticmethod
    def _overwrite(fs: SimFiles, path: Path, data: bytes) -> None:
        if not path.exists():
            return
        with fs.open(path, write=True) as file:
            file.write(data, 0)
            file.fsync()


def _logs(files: Contents) -> Contents:
    return {name: data for name, data in files.items() if name.endswith(names.LOG)}
