"""What may happen to the processes and disks of a run."""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.cleaner_run import REPOSITORY, CleanerRun, settings_text
from tests.simulation.found import Wrong
from tests.soak.disk import SmallDisk
from tests.soak.site import DAEMON, Site, Trouble

_TICK_SECONDS = 0.25
_LOCKED_WORDS = "LogDirLockedError"
_OF_CLEAN = ("cleanup.policy", "log.cleaner.dedupe.buffer.size", "min.cleanable.dirty.ratio")
_OPEN_BRIEFLY = "import sys; from cleaner import LogManager; LogManager(sys.argv[1], cleaner=False)"


@dataclass(frozen=True)
class Plan:
    """
    How long a run is, and how full.

    Attributes:
        seed: the same seed makes the same choices; not the same moments.
        seconds: until the end begins, from when all processes run.
        pause_seconds: between accidents, on average.
        measure_seconds: between two samples of what processes hold.
        calm: also run a log dir with a daemon, and one whose writer cleans by itself, where no process is killed.
        longest_freeze_seconds: of SIGSTOP, and of a full or failing disk.
        first: accidents that come first, by name.
    """

    seed: int
    seconds: float
    pause_seconds: float = 8.0
    measure_seconds: float = 10.0
    calm: bool = True
    longest_freeze_seconds: float = 90.0
    first: tuple[str, ...] = ()


@dataclass
class Accidents:
    """
    What may happen in a run; a method each.

    Args:
        plan: what to do.
        root: an empty directory that no accident reaches.
        live: where processes die.
        disk: what `live` is on; None: a plain directory, without accidents of disks.
        calm: where none does.
        tell: called with each line of the run's log.
    """

    plan: Plan
    root: Path
    live: Site
    disk: SmallDisk | None
    calm: list[Site]
    tell: Callable[[str], None]
    accidents: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = Random(self.plan.seed)
        self._began = time.monotonic()
        self._measured = self._began
        self._moment = threading.Event()

    @property
    def sites(self) -> list[Site]:
        """All log dirs."""
        return [self.live, *self.calm]

    def _wait(self, seconds: float) -> None:
        """Let all of them work for a while, and look."""
        until = time.monotonic() + seconds
        while True:
            for site in self.sites:
                site.look()
            if time.monotonic() > self._measured + self.plan.measure_seconds:
                self._measured = time.monotonic()
                for site in self.sites:
                    site.measure()
            left = until - time.monotonic()
            if left <= 0:
                return
            self._moment.wait(min(left, _TICK_SECONDS))

    @contextlib.contextmanager
    def _trouble(self, site: Site) -> Iterator[Trouble]:
        trouble = Trouble(time.monotonic())
        site.troubles.append(trouble)
        try:
            yield trouble
        finally:
            trouble.end = time.monotonic()

    # ---- processes die ---------------------------------------------------------------------------------------------

    def _kill_writer(self) -> None:
        self.live.kill_writer()
        self._wait(self._random.uniform(0, 2))
        self.live.open_writer()

    def _kill_daemon(self) -> None:
        self.live.kill_daemon()
        self.live.start_daemon()

    def _kill_both(self) -> None:
        self.live.kill_writer()
        self.live.kill_daemon()
        if self._random.random() < 0.5:
            self.live.start_daemon()
            self.live.open_writer()
        else:
            self.live.open_writer()
            self.live.start_daemon()

    def _kill_reader(self) -> None:
        self.live.kill_reader()
        self.live.start_reader()

    def _stop_writer(self) -> None:
        with self._trouble(self.live):  # clients may be in the middle of a call when it closes
            self.live.end_writer(signal.SIGTERM)
        self._wait(self._random.uniform(0, 2))
        self.live.open_writer()

    def _stop_daemon(self) -> str:
        seconds = self.live.daemon.stop()
        if seconds > 5:
            raise Wrong(f"the daemon took {seconds:.1f} s to stop")
        self.live.start_daemon()
        return f"in {seconds:.2f} s"

    # ---- processes stand still -------------------------------------------------------------------------------------

    def _long(self) -> float:
        longest = self.plan.longest_freeze_seconds
        return min(longest, self._random.choice((1.0, 3.0, 10.0, longest)) * self._random.uniform(0.5, 1.5))

    def _a_while(self, seconds: float) -> float:
        return min(self.plan.longest_freeze_seconds, self._random.uniform(1, seconds))

    def _freeze_writer(self) -> str:
        """A second writer is refused; the first goes on where it stood."""
        seconds = self._long()
        self.live.freeze("writer")
        refused = subprocess.run(
            [sys.executable, "-c", _OPEN_BRIEFLY, str(self.live.log_dir)],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        if _LOCKED_WORDS not in refused.stderr:
            raise Wrong(f"a second writer was not refused: {refused.returncode} {refused.stdout} {refused.stderr}")
        self._wait(seconds)
        self.live.thaw("writer")
        return f"for {seconds:.1f} s, a second writer refused"

    def _freeze_writer_and_kill(self) -> str:
        """It is killed while it stands still, and another takes over."""
        seconds = self._long()
        self.live.freeze("writer")
        self._wait(seconds)
        self.live.kill_writer()
        self.live.open_writer()
        return f"for {seconds:.1f} s"

    def _freeze_daemon(self) -> str:
        """Another daemon works meanwhile, if the stopped one does not have the logs."""
        seconds = self._long()
        with self._trouble(self.live):  # it may have a partition's lock
            self.live.freeze("daemon")
            with self._other_daemon() as other:
                self._wait(seconds)
                rounds = len(other.events("cleaned"))
                self.live.thaw("daemon")
                self._wait(self._random.uniform(0, 3))
                judge_events(other)
        return f"for {seconds:.1f} s, another made {rounds} rounds"

    def _freeze_calm(self) -> str:
        site = self._random.choice(self.calm)
        what = self._random.choice(("daemon", "reader", "writer") if site.has_daemon else ("reader", "writer"))
        seconds = min(20.0, self._long())
        with self._trouble(site):
            site.freeze(what)
            self._wait(seconds)
            site.thaw(what)
        return f"{site.name} {what} for {seconds:.1f} s"

    # ---- others come -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _other_daemon(self) -> Iterator[CleanerRun]:
        place = self.root / "other"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        other = CleanerRun(place, DAEMON | {"log.dirs": str(self.live.log_dir)})
        try:
            other.start()
            yield other
            other.stop()
        finally:
            if other.process is not None and other.process.poll() is None:
                other.kill()

    def _second_daemon(self) -> str:
        with self._other_daemon() as other:
            self._wait(self._random.uniform(2, 10))
            judge_events(other)
            return f"made {len(other.events('cleaned'))} rounds"

    def _one_more_cleaner(self) -> str:
        """`cleaner clean` beside the daemon."""
        config = self.root / "clean.properties"
        config.write_text(settings_text({key: value for key, value in DAEMON.items() if key in _OF_CLEAN}))
        done = command("clean", "--all", "--as-root", "--config", str(config), str(self.live.log_dir))
        if done.returncode not in (0, 1, 75) or "Traceback" in done.stderr:
            raise Wrong(f"cleaner clean: {done.returncode} {done.stdout} {done.stderr}")
        return f"exit code {done.returncode}"

    # ---- settings and state ----------------------------------------------------------------------------------------

    def _reload(self) -> str:
        return self._reload_of(self.live)

    def _reload_calm(self) -> str:
        return self._reload_of(self.calm[0])

    def _reload_of(self, site: Site) -> str:
        changed = {
            "log.cleaner.threads": str(self._random.randint(1, 3)),
            "log.cleaner.io.max.bytes.per.second": str(self._random.choice((2_000_000, 50_000_000))),
        }
        site.daemon.settings.update(changed)
        site.daemon.write_settings(site.daemon.settings)
        self._send_and_see(site, "reloaded")
        return f"{site.name}: {changed}"

    def _reload_badly(self) -> None:
        daemon = self.live.daemon
        daemon.write_settings(daemon.settings | {"log.cleaner.threads": "many"})
        self._send_and_see(self.live, "reload refused, the settings stay as they were")
        daemon.write_settings(daemon.settings)

    def _send_and_see(self, site: Site, event: str) -> None:
        before = len(site.daemon.events(event))
        site.daemon.send(signal.SIGHUP)
        self._until(lambda: len(site.daemon.events(event)) > before, event, 30.0)

    def _lose_state(self) -> None:
        self.live.kill_daemon()
        shutil.rmtree(self.live.daemon.state_dir)
        self.live.daemon.state_dir.mkdir()
        self.live.start_daemon()

    # ---- disks -----------------------------------------------------------------------------------------------------

    def _power_cut(self) -> None:
        """Everything that was not forced to the disk is lost, and every process gone."""
        self.live.is_doubtful = True
        self.live.model.up_since = math.inf
        with self._trouble(self.live) as trouble:
            trouble.lies_until = math.inf
            self._the_disk().cut_power()
            self.live.end_all()
            trouble.lies_until = time.monotonic()
            self.live.drain()
        self._the_disk().repair()
        self.live.begin()

    def _full_disk(self) -> str:
        """No process may die of it; the writer may have to close a log, though."""
        disk, seconds = self._the_disk(), self._a_while(15)
        free_bytes = self._random.choice((0, 0, 20_000, 300_000))
        with self._trouble(self.live):
            self.live.model.up_since = math.inf
            disk.fill(free_bytes)
            self._wait(seconds)
            disk.free()
        died = self.live.writer is None
        if died:
            self.live.open_writer()
        return f"for {seconds:.1f} s, {free_bytes} bytes left{', the writer ended' if died else ''}"

    def _failing_disk(self) -> str:
        """Writes and fsyncs fail with EIO; then the disk is repaired, and all processes begin anew but the daemon."""
        disk, seconds = self._the_disk(), self._a_while(10)
        with self._trouble(self.live) as trouble:
            self.live.model.up_since = math.inf
            self.live.is_doubtful = True
            disk.fail_writes()
            self._wait(seconds)
            return f"for {seconds:.1f} s, {self._repair(trouble)}"

    def _read_only_disk(self) -> str:
        """ext4 finds an error and goes read-only."""
        seconds = self._a_while(10)
        with self._trouble(self.live) as trouble:
            self.live.model.up_since = math.inf
            self.live.is_doubtful = True
            trouble.lies_until = math.inf
            self._the_disk().break_down()
            self._wait(seconds)
            return f"for {seconds:.1f} s, {self._repair(trouble)}"

    def _repair(self, trouble: Trouble) -> str:
        """Repair the disk while the daemon runs, as an operator does."""
        live = self.live
        writer = "the writer had ended" if live.writer is None else "the writer was still there"
        live.kill_reader()
        if live.writer is not None:
            live.kill_writer()
        trouble.lies_until = min(trouble.lies_until, time.monotonic())
        self._the_disk().repair()
        live.open_writer()
        live.start_reader()
        return writer

    def _the_disk(self) -> SmallDisk:
        assert self.disk is not None
        return self.disk

    # ---- judging -----------------------------------------------------------------------------------------------------

    def _judge_live(self) -> None:
        self.live.judge_at_rest()

    def _judge_calm(self) -> str:
        for site in self.calm:
            site.judge_at_rest()
        return self._counts()

    def _check_live(self) -> None:
        """`cleaner check` beside everything that goes on."""
        self._check(self.live)

    def _check(self, site: Site, *more: str) -> None:
        checked = command("check", "--as-root", *more, str(site.log_dir))
        if checked.returncode:
            raise Wrong(f"cleaner check {site.name}: {checked.returncode}\n{checked.stdout}\n{checked.stderr}")

    def _counts(self) -> str:
        counts = sum((site.model.counts for site in self.sites), Counter())
        return ", ".join(f"{count} {what}" for what, count in counts.items())

    def _until(self, is_so: Callable[[], bool], what: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                raise Wrong(f"not within {seconds:.0f} s: {what}; {[site.not_clean() for site in self.sites]}")
            self._wait(_TICK_SECONDS)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `cleaner`."""
    return subprocess.run(
        [sys.executable, "-m", "cleaner", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def judge_events(daemon: CleanerRun) -> None:
    """Raises Wrong: a daemon has reported an internal error, or quarantined a log."""
    events = daemon.events(of_all_runs=True)
    strange = [event for event in events if "traceback" in event or event["event"] == "quarantined"]
    if strange:
        raise Wrong(f"the daemon reports {strange[:3]}")
