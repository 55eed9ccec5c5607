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
    rule        rounds with a topic's own rules, on a copy to which records came late (`ruling.py`)
    who         `plan --who`, judged by the book of what was sent (`asking.py`)
    gaps        an account of every offset, judged by the book, and one of a copy with a hole (`accounting.py`)
    export      a topic of its own, written, cleaned and exported by turns, with changes (`exporting.py`)
    table       a service that looks keys up, in a log dir of its own (`lookups.py`)
    erase       `erase` of some keys or offsets of a topic, perhaps after a round with `--keep-old`; see `erasing.py`

A command may be killed, or the power cut, in its middle. Then the operator gives it again. Before `recover` or `repair`
of a closed log dir, zeros may come back behind an active segment's files (D-02).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
from pathlib import Path

from cleaner.app.check_log_dir import CheckOptions, check_all
from cleaner.app.options import CleanOptions
from cleaner.app.recover_log_dir import recover_log_dir
from cleaner.app.reports import RecoverReport, Refusal
from cleaner.app.undo_clean import undo_clean
from cleaner.base.model import TopicPartition
from cleaner.errors import LogDirOfflineError, NoSpaceError, UndoRefusedError
from cleaner.settings.sources import Sources
from cleaner.state.kept_manifest import GROUP_DIGITS
from cleaner.storage.segment import names
from tests.simulation.clients import records_of
from tests.simulation.disk import SimFiles
from tests.simulation.erasing import Erasure
from tests.simulation.exporting import EXPORTS, Exporting
from tests.simulation.found import Found, Wrong, checkpoints_of, left_overs
from tests.simulation.hand import Contents
from tests.simulation.lookups import Lookups
from tests.simulation.packing import LIMITS, TARGETS, PackedLog
from tests.simulation.plan import Rest
from tests.simulation.questions import Questions
from tests.simulation.quiet import QuietLog
from tests.simulation.sent import Transaction
from tests.simulation.serving import Serving
from tests.simulation.topics import MAIN, Topics
from tests.simulation.viewing import SET, ViewedRound

_ZEROS = 240  # of whole entries of either index


class Operators(Questions):
    """See the head of the file, and `OperatorsHand` for the arguments."""

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

    def _serve(self, rest: Rest) -> None:
        """Have a service live some lives in a log dir of its own."""
        Serving(self._bench, rest).run(self._begin, self._run_process, self._cut, self._restore)

    def _export(self, rest: Rest) -> None:
        """Have a topic of its own written and exported by turns."""
        bench = self._bench
        if self._has_daemon or bench.has_errors:
            return
        exporting = Exporting(bench, rest)
        for number in range(EXPORTS):
            self._by_hand(exporting.write)
            # The first one is there before anything happens.
            if not self._carry_out(rest if number else Rest(rest.kind), exporting.command):
                return
            exporting.judge(is_done=True)

    def _table(self, rest: Rest) -> None:
        """Have a service look keys up in a log dir of its own, for some lives."""
        Lookups(self._bench, rest).run(self._begin, self._run_process, self._cut, self._restore)

    # ---- recover ---------------------------------------------------------------------------------------------------

    def _recover(self, rest: Rest) -> None:
        bench, reports = self._bench, list[RecoverReport]()

        def command(fs: SimFiles) -> None:
            save_cut = self._kept.with_name("cut") if rest.number % 2 else None
            # An interrupted swap is settled before anything is refused.
            there = [name for name in bench.topics.names if bench.directory(name).exists()]
            before = {name: self._files_of(name) for name in there if not left_overs(bench.directory(name))}
            for allows in (False, True):
                if allows:
                    bench.topics.forget_ends()
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
        if truth is None and rest.number % 4 < 3:
            self._leave_a_transaction_open()
            self._judge(bench.topics.names)
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

    def _leave_a_transaction_open(self) -> None:
        """Have a writer killed in a transaction of several batches, and the logs recovered: nobody has ended it."""
        bench = self._bench

        def write(fs: SimFiles) -> None:
            manager = bench.open(fs)
            self._judge(bench.loaded(manager))
            truth, log, transaction = bench.topics.now[MAIN], manager.log(MAIN), Transaction()
            producer = log.producer("left open")
            producer.begin()
            for key in "aba":
                sent = truth.send(key, 0, transaction)
                truth.answered(sent, producer.append(records_of(sent)).base_offset)

        self._by_hand(write)
        self._by_hand(lambda fs: recover_log_dir(bench.log_dir, None, self._sources, self._context(fs)))

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

    # ---- undo ------------------------------------------------------------------------------------------------------

    def _view(self, rest: Rest) -> None:
        bench = self._bench
        is_well = bench.world.disk.trouble is None  # else the round may end half-way, and cannot be undone
        if not self._has_daemon and self._is_closed and self._is_settled and is_well:
            plain = Rest(rest.kind)  # first, in half of them, a round that compares bytes
            if rest.number % 2 and not self._carry_out(plain, partial(self._clean, self._sources)):
                return
            names_ = bench.topics.compacted
            starts = {
                name: checkpoints_of(bench.log_dir, name).get("log-start-offset-checkpoint", 0) for name in names_
            }
            # Without an accident: until the undo, the book's rule is not that of the log.
            viewed = ViewedRound({name: Found.of(bench.directory(name)) for name in names_}, starts)
            with self._undisturbed():
                self._undo(Rest(rest.kind, rest.number), viewed)

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
            if not _has_kept(self._kept):
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
        replaced = {path.parent.name.rpartition("-")[0] for path in self._kept.glob(f"*/{names.KEPT_MANIFEST}")}
        if not self._carry_out(quiet if is_in_round else rest, undo):
            return
        for name in topics.compacted:
            now, line = self._files_of(name), checkpoints_of(log_dir, name).get("cleaner-offset-checkpoint")
            if _logs(now) != _logs(before[name]):
                raise Wrong(f"{name}: undo has not brought {sorted(before[name])} back: {sorted(now)}")
            # A round that found nothing to change has moved the line alone, and nothing is undone.
            if line != lines[name] and name in replaced:
                raise Wrong(f"{name}: after undo it is cleaned up to {line}, before the round up to {lines[name]}")
        left = [path for name in replaced for path in self._kept.glob(f"{name}-0/{'[0-9]' * GROUP_DIGITS}/*")]
        if left:
            raise Wrong(f"all is undone, and {left[0]} was left")
        bench.topics = truth
        self._damaged.clear()
        self._judge(bench.topics.names)

    def _put_back(self, kept: Path, fs: SimFiles) -> None:
        """Undo the rounds whose old segments are there; what a round has left beside no manifest is refused."""
        if not _has_kept(kept):
            return
        with contextlib.closing(undo_clean(kept, self._sources, self._context(fs))) as outcomes:
            for outcome in outcomes:
                if not isinstance(outcome, Refusal):
                    continue
                own = (kept / outcome.partition / name for name in (names.KEPT_MANIFEST, names.UNDONE_MANIFEST))
                if any(path.exists() for path in own) or not isinstance(outcome.error, UndoRefusedError):
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


def _has_kept(kept: Path) -> bool:
    return any(any(kept.glob(f"*/{name}")) for name in (names.KEPT_MANIFEST, names.UNDONE_MANIFEST))


def _logs(files: Contents) -> Contents:
    return {name: data for name, data in files.items() if name.endswith(names.LOG)}
