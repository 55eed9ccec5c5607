"""What happens in a run, one accident after another, chosen by a seed; and what must be true at its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.found import Wrong, left_overs
from tests.soak.accidents import Accidents, Plan, judge_events
from tests.soak.disk import small_disk_of
from tests.soak.gauges import LEAST_ROUNDS, Gauge, Growth
from tests.soak.site import TOPICS, Site

_CLEAN_SECONDS = 120.0


class Soak(Accidents):
    """A run."""

    # ---- the run ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let it all happen, and judge. Raises Wrong."""
        for site in self.sites:
            site.begin()
        first = list(self.plan.first)
        kinds = self._kinds()
        self._began = time.monotonic()
        while first or time.monotonic() < self._began + self.plan.seconds:
            self._wait(self._random.expovariate(1 / self.plan.pause_seconds))
            kind = first.pop(0) if first else self._random.choice(kinds)
            began = time.monotonic()
            detail = getattr(self, f"_{kind}")()
            self.accidents[kind] += 1
            self.tell(
                f"{began - self._began:7.1f} s  {kind.replace('_', ' '):24} {detail or ''}"
                f"  [{time.monotonic() - began:.1f} s; rounds {self._rounds()}]"
            )
        self._end()

    def _rounds(self) -> str:
        return ", ".join(f"{site.name} {site.rounds:.0f}" for site in self.sites)

    def _kinds(self) -> list[str]:
        kinds = [
            *("kill_writer",) * 3,
            *("kill_daemon",) * 3,
            *("kill_both",) * 2,
            "kill_reader",
            "stop_writer",
            "stop_daemon",
            "freeze_writer",
            "freeze_writer_and_kill",
            *("freeze_daemon",) * 2,
            "second_daemon",
            "one_more_cleaner",
            "reload",
            "reload_badly",
            "lose_state",
            "judge_live",
            "check_live",
        ]
        if self.disk is not None:
            kinds += [*("power_cut",) * 3, *("full_disk",) * 2, "failing_disk", "read_only_disk"]
        if self.calm:
            kinds += [*("judge_calm",) * 3, "freeze_calm", "reload_calm"]
        return kinds

    # ---- judging ---------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """All is well: everything due is cleaned, everything ends in order, and no process has grown."""
        for site in self.sites:
            site.judge_at_rest()
            site.finish_writer() if site.has_daemon else self._clean_by_writer(site)
            site.kill_reader()
        self._until(lambda: not any(site.not_clean() for site in self.sites), "all is clean", _CLEAN_SECONDS)
        for site in self.sites:
            if site.has_daemon:
                site.daemon.stop()
                judge_events(site.daemon)
            site.model.judge(power_was_cut=False)
            self._judge_left_overs(site)
            self._check(site, "--clean-section")
        self._judge_growth()

    def _clean_by_writer(self, site: Site) -> None:
        """Let it roll, and its cleaner finish, before it closes."""
        site.roll_writer()
        self._until(lambda: not site.not_clean(), f"{site.name} is clean", _CLEAN_SECONDS)
        site.finish_writer(roll=False)

    def _judge_left_overs(self, site: Site) -> None:
        for topic in TOPICS:
            found = [name for name in left_overs(site.log_dir / f"{topic}-0") if not name.endswith(".deleted")]
            if found:
                raise Wrong(f"{site.name}: {topic}-0 has unfinished files: {found}")

    def _judge_growth(self) -> None:
        wrong = [f"{gauge.name}: {growth}" for gauge, growth in self._growths() if not growth.is_flat()]
        if wrong:
            raise Wrong(f"processes grow: {wrong}")

    def _growths(self) -> list[tuple[Gauge, Growth]]:
        gauges = [gauge for site in self.sites for gauge in site.gauges]
        return [(gauge, growth) for gauge in gauges if (growth := gauge.growth()) is not None]

    def tell_growth(self) -> None:
        """Tell how much each process that lived long enough has grown, also after a failure."""
        growths = self._growths()
        for gauge, growth in growths:
            self.tell(f"{gauge.name} {gauge.pid}: {growth}; {_extremes(gauge)}")
        if not growths:
            self.tell(f"growth NOT JUDGED: no process lived for {LEAST_ROUNDS} rounds after its warm-up")

    def summary(self) -> str:
        """Return what has happened, in figures."""
        kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in sorted(self.accidents.items()))
        lives = sum(site.life for site in self.sites)
        return (
            f"{time.monotonic() - self._began:.0f} s, {self.accidents.total()} accidents ({kinds}), "
            f"{lives} lives of writers, rounds: {self._rounds()}; {self._counts()}"
        )


def _extremes(gauge: Gauge) -> str:
    samples = gauge.judged
    sizes, files, threads = ([getattr(each, name) for each in samples] for name in ("bytes", "files", "threads"))
    return (
        f"{min(sizes) / 1e6:.1f} to {max(sizes) / 1e6:.1f} MB, {min(files)} to {max(files)} files, "
        f"{min(threads)} to {max(threads)} threads in {len(samples)} samples"
    )


@contextlib.contextmanager
def soak(plan: Plan, root: Path, tell: Callable[[str], None]) -> Iterator[Soak]:
    """Prepare a run; when the `with` block ends, no process and no disk is left."""
    with contextlib.ExitStack() as stack:
        disk, calm_disk = None, root
        try:
            disk = stack.enter_context(small_disk_of(root / "live-disk"))
            if plan.calm:
                calm_disk = stack.enter_context(small_disk_of(root / "calm-disk")).point
        except pytest.skip.Exception as reason:
            tell(f"accidents of disks: {reason}")
        live = _site("live", root if disk is None else disk.point, root, plan, rate=6.0)
        calm = []
        if plan.calm:
            calm.append(_site("calm", calm_disk, root, plan, rate=2.5))
            calm.append(_site("own", calm_disk, root, plan, rate=2.0, has_daemon=False))
        run = Soak(plan, root, live, disk, calm, tell)
        for site in run.sites:
            stack.callback(site.end_all)
        yield run


def _site(name: str, disk: Path, root: Path, plan: Plan, *, rate: float, has_daemon: bool = True) -> Site:
    return Site(name, disk / f"{name}-log-dir", root / name, plan.seed, rate, has_daemon)
