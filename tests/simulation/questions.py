"""
What operators ask between two lives, judged: `prove-erased`, `check --replicas`, `plan --who` and `gaps`.

None of these commands changes anything.
"""

from __future__ import annotations

import shutil
from dataclasses import replace

from cleaner.app.gaps_log_dir import GapReport, gaps_log_dir
from cleaner.app.options import CallContext
from cleaner.app.reports import Refusal
from cleaner.app.who_log_dir import WhoReport, who_log_dir
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment import names
from tests.simulation.accounting import cut_out, judge_cut, judge_gaps
from tests.simulation.asking import judge_who
from tests.simulation.comparing import ComparedWorld
from tests.simulation.disk import SimFiles
from tests.simulation.found import Wrong, checkpoints_of
from tests.simulation.hand import OperatorsHand
from tests.simulation.oracle import Oracle
from tests.simulation.plan import Rest
from tests.simulation.proving import ProvedWorld
from tests.simulation.ruling import RuledWorld


class Questions(OperatorsHand):
    """Rests in which operators only ask; see `Operators`."""

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

    def _rule(self, rest: Rest) -> None:
        bench = self._bench
        if not self._is_closed or not self._is_settled or self._has_daemon or bench.has_errors:
            return
        if not any(bench.topics.now[name].rots.names for name in bench.topics.compacted):
            self._carry_out(replace(rest, accident=""), RuledWorld(bench, rest).command)

    def _who(self, rest: Rest) -> None:
        bench, outcomes = self._bench, list[object]()
        if not self._is_closed or not self._is_settled or self._has_daemon or bench.has_errors:
            return
        before = {}

        def command(fs: SimFiles) -> None:
            # Of this try: a power cut in one before may have brought back what was removed earlier.
            before.update({name: self._files_of(name) for name in bench.topics.names})
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

    def _gaps(self, rest: Rest) -> None:
        bench, outcomes = self._bench, list[object]()
        if not self._is_closed or not self._is_settled or self._has_daemon or bench.has_errors:
            return
        before = {}

        def command(fs: SimFiles) -> None:
            # Of this try: a power cut in one before may have brought back what was removed earlier.
            before.update({name: self._files_of(name) for name in bench.topics.names})
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
