"""What every rest between two lives needs: a command in a process of its own, perhaps killed, and given again."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

from cleaner.app.clean_log_dir import clean_log_dir
from cleaner.app.options import CallContext, CleanOptions
from cleaner.app.reports import CleanReport, Refusal
from cleaner.base.model import TopicPartition
from cleaner.errors import CleanerError, LogDirLockedError
from cleaner.settings.sources import Sources
from cleaner.storage.segment import names
from tests.simulation.bench import Bench
from tests.simulation.clients import require_closed
from tests.simulation.disk import SimFiles
from tests.simulation.found import left_overs
from tests.simulation.plan import Rest
from tests.simulation.processes import Process

_MOST_TRIES = 4
Contents = dict[str, bytes]


class OperatorsHand:
    """
    Carries commands out; `Operators` has those that there are.

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

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Hold accidents back for a `with` block: what an operator or a disk does there is done as a whole."""
        self._bench.holds_accidents = True
        try:
            yield
        finally:
            self._bench.holds_accidents = False

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

    def _by_hand(self, work: Callable[[SimFiles], None]) -> None:
        """Do something as a whole, by a process that does not forget to sync."""
        process, fs = self._begin("operator")
        with self._undisturbed():
            self._run_process(process, partial(work, fs))

    def _free_place(self) -> Path:
        """Return a directory that keeps nothing: what nobody has undone is of a log as it was then."""
        places = (self._kept.with_name(f"kept-{number}") for number in itertools.count())
        return next(place for place in places if not list(place.glob(f"*/{names.KEPT_MANIFEST}")))
