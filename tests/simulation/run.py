"""Runs seeds: sets a world up in memory, lets it live, and reports."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

from cleaner.base.io_throttle import IoThrottle
from cleaner.log.manager import LogManager
from tests.simulation.life import Life
from tests.simulation.plan import Plan
from tests.simulation.report import Report
from tests.simulation.topics import MAIN, SETTINGS
from tests.simulation.world import World

# Garbage is collected between worlds only, and not after each: it takes a twentieth of a world's time.
_WORLDS_PER_COLLECTION = 20
_worlds = itertools.count(1)


def scratch() -> Path:
    """Return this process's directory in memory; its name, which files may hold, is as long in each process."""
    base = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path("/tmp")  # noqa: S108 - in memory where it can be
    return base / f"cleaner-simulation-{os.getpid():08d}"


def run_seed(seed: int | str, plan: Plan | None = None) -> Report:
    """Run one seed's world, or another plan with its choices."""
    root = scratch()
    disk = root / "disk"
    plan = plan or Plan.of(seed)
    template = root / "-".join(("template", *plan.topics))
    if not root.exists():
        atexit.register(remove_scratch)
        _make_template(root / f"template-{MAIN}", (MAIN,))
        run_seed(
            "warm", dataclasses.replace(Plan.of("warm"), topics=(MAIN,))
        )  # what a process does only once, such as loading kernels, is done now
        gc.collect()
        gc.freeze()  # so that a later collection looks at the objects of worlds only
        gc.disable()  # when it would come by itself depends on what the process has done before
    if not template.exists():
        _make_template(template, plan.topics)
    shutil.rmtree(disk, ignore_errors=True)
    shutil.copytree(template, disk)
    world = World(seed, disk)
    world.disk.frees_behind = plan.frees_behind
    with world.installed(), _windows_of(plan):
        report = Life(world, disk / "log-dir", plan).run()
    if next(_worlds) % _WORLDS_PER_COLLECTION == 0:
        _close_strays(root)
    return report


@contextlib.contextmanager
def _windows_of(plan: Plan) -> Iterator[None]:
    """Let rounds read so little at a time in some worlds that a segment has several chunks."""
    window_bytes = Random(repr(plan.settings)).choice((None, 600, 2000))
    if window_bytes is None:
        yield
        return
    before = IoThrottle.window_bytes
    IoThrottle.window_bytes = lambda *_: window_bytes  # type: ignore[method-assign]
    try:
        yield
    finally:
        IoThrottle.window_bytes = before  # type: ignore[method-assign]


def _make_template(root: Path, topics: tuple[str, ...]) -> None:
    root.mkdir(parents=True)
    with LogManager(root / "log-dir", create=True, cleaner=False, tasks=False) as manager:
        for name in topics:
            manager.create_topic(name, settings=SETTINGS[name])
    (root / "state").mkdir(mode=0o700)


def remove_scratch() -> None:
    """Remove this process's directory; garbage is collected as usual again."""
    shutil.rmtree(scratch(), ignore_errors=True)
    gc.enable()


def _close_strays(disk: Path) -> None:
    """Close descriptors that killed threads have left, once no object is there that would close them later."""
    gc.collect()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if link.readlink().is_relative_to(disk):
                os.close(int(link.name))
