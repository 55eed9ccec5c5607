"""
Planted defects: the product with one promise broken, so that it is known what the simulator would notice.

Each is a context that replaces functions of the product. `found_by` runs seeds until one fails. A sync left out is a
line of `LEFT_OUT`; any other defect a function in `writer_defects.py`, `round_defects.py` or `disk_defects.py`, with
`@breaks` if it replaces one function and with `@defect` if it does more.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from inspect import Parameter
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from cleaner.cleaning.recopy import cleaned_segment
from cleaner.log.active_segment import ActiveSegment, create_segment
from cleaner.log.writable_log import WritableLog
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.load import leftovers, load_changes
from cleaner.storage.log_dir import LogDir
from cleaner.storage.swap import swap
from tests.simulation.disk import SimFile, SimFiles
from tests.simulation.run import run_seed
from tests.support.watched_fs import Operation

Planting = Callable[[], AbstractContextManager[object]]


class Found(NamedTuple):
    """The first seed that notices a defect, and how."""

    seed: int | str
    failure: str


DEFECTS: dict[str, Planting] = {}

# Which worlds are most likely to meet the defects of a file; "": all.
_FOCUSES = {
    "planting": ("fence", ""),
    "disk_defects": ("", "", "fence", "error"),
    "writer_defects": ("", "", "error", "cut"),
    "round_defects": ("", "fence"),
    "topic_defects": ("topics", ""),
    "operator_defects": ("daemon", "recover", "undo", "repair"),
    "index_defects": ("index",),
    "quiet_defects": ("quiet",),
    "proving_defects": ("prove",),
    "who_defects": ("who",),
    "erasing_defects": ("erase",),
    "accounting_defects": ("gaps",),
    "comparing_defects": ("replicas",),
    "packing_defects": ("pack",),
    "view_defects": ("view",),
    "rule_defects": ("rule",),
    "serving_defects": ("serve",),
    "replaying_defects": ("serve",),
    "fetching_defects": ("fetches", "cut"),
    "exporting_defects": ("export",),
    "lookups_defects": ("table",),
}
_FILES: dict[str, str] = {}  # of each defect


def defect(planting: Callable[[], Iterator[None]]) -> Planting:
    """Register a defect by its function's name."""
    name = planting.__name__.replace("_", " ")
    DEFECTS[name] = context = contextlib.contextmanager(planting)
    _FILES[name] = planting.__module__.rpartition(".")[2]
    return context


def likely_seeds(name: str, most: int) -> Iterator[int | str]:
    """Yield so many seeds, those first whose worlds are likely to meet a defect."""
    focuses = _FOCUSES[_FILES.get(name, "planting")]
    for number in range(most):
        focus = focuses[number % len(focuses)]
        yield f"{focus}/{number}" if focus else number


def breaks(owner: Any, name: str) -> Callable[[Callable[..., Any]], Planting]:
    """
    Register a defect that replaces one function of the product, by its function's name.

    Args:
        owner: the class or module that has the function.
        name: the function. The defect is called with the real one, and then with its arguments.
    Raises:
        AssertionError: there is no such function, or it has other arguments: the defect would fail by itself.
    """

    def register(broken: Callable[..., Any]) -> Planting:
        _require_fit(owner, name, broken)

        def planting() -> Iterator[None]:
            real = getattr(owner, name)

            def planted(*args: Any, **named: Any) -> Any:
                return broken(real, *args, **named)

            with replaced(owner, name, planted):
                yield

        planting.__name__, planting.__module__ = broken.__name__, broken.__module__
        return defect(planting)

    return register


def _require_fit(owner: Any, name: str, broken: Callable[..., Any]) -> None:
    """Require that a defect, after the real function, takes the same arguments as that: as many, and the same names."""
    real = getattr(owner, name, None)
    where = f"{broken.__name__}: {getattr(owner, '__name__', owner)}.{name}"
    assert real is not None, f"{where} is gone"
    wanted, taken = inspect.signature(real).parameters, inspect.signature(broken).parameters
    kinds = {parameter.kind for parameter in taken.values()}
    if Parameter.VAR_POSITIONAL not in kinds:
        assert _by_position(taken) - 1 == _by_position(wanted), f"{where} takes {list(wanted)}"
    if Parameter.VAR_KEYWORD not in kinds:
        assert _by_name(taken) == _by_name(wanted), f"{where} takes {list(wanted)}"


def _by_position(parameters: Mapping[str, Parameter]) -> int:
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters.values())


def _by_name(parameters: Mapping[str, Parameter]) -> set[str]:
    return {name for name, parameter in parameters.items() if parameter.kind is Parameter.KEYWORD_ONLY}


# What the product as it is does not raise, and a defect does whose functions have other arguments than the product's.
_OF_THE_DEFECT = re.compile(r"^\S+: (TypeError|AttributeError|NameError|UnboundLocalError)\b", re.MULTILINE)


def found_by(name: str, seeds: Iterable[int | str]) -> Found | None:
    """Run seeds with a defect until one fails; None: none did."""
    with DEFECTS[name]():
        for seed in seeds:
            report = run_seed(seed)
            if report.failure:
                if _OF_THE_DEFECT.search(report.failure):
                    raise AssertionError(f"the defect does not fit the product any more: {report.failure}")
                return Found(seed, report.failure)
    return None


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace an attribute for a `with` block."""
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---- syncs left out -------------------------------------------------------------------------------------------------


class LeftOut(NamedTuple):
    """
    A sync in a function: `call` is fsync, fsync_dir or fsync_all; the `number`-th such line of it, from 0.

    `caller`: only when called by this function.
    """

    function: Any
    call: str
    number: int = 0
    caller: Any = None


LEFT_OUT = {
    "flush without fsync": LeftOut(ActiveSegment._force, "fsync("),
    "new segment without directory fsync": LeftOut(create_segment, "fsync_dir"),
    "cleaned log without fsync": LeftOut(cleaned_segment.CleanedSegment.finish, "fsync("),
    "cleaned names without directory fsync": LeftOut(cleaned_segment.CleanedSegment.finish, "fsync_dir"),
    "swap announced without fence": LeftOut(swap._announce, "fsync_dir"),
    "old segments retired without first fence": LeftOut(swap._retire_old, "fsync_dir", 0),
    "old segments retired without second fence": LeftOut(swap._retire_old, "fsync_dir", 1),
    "new segment installed without first fence": LeftOut(swap._install, "fsync_dir", 0),
    "new segment installed without second fence": LeftOut(swap._install, "fsync_dir", 1),
    "clean-shutdown marker removed without directory fsync": LeftOut(LogDir.remove_marker, "fsync_dir"),
    "recovered log without fsync": LeftOut(load_changes._write_segment, "fsync("),
    "closed without directory fsync": LeftOut(WritableLog.finish, "fsync_dir"),
    "rolled without fsync": LeftOut(ActiveSegment._force, "fsync(", caller=ActiveSegment.fsync_all),
    "leftovers completed without first fence": LeftOut(leftovers.complete_swap, "fsync_dir", 0),
    "leftovers completed without second fence": LeftOut(leftovers.complete_swap, "fsync_dir", 1),
    "small file replaced without fsync": LeftOut(FileSystem.write_atomically, "fsync("),
    "small file replaced without directory fsync": LeftOut(FileSystem.write_atomically, "fsync_dir"),
}


def current_task(files: Any) -> object:
    """Return the thread that has the token, found by a file or its file system."""
    return getattr(files, "_owner", files).disk.scheduler.current


@contextlib.contextmanager
def unsynced(task: object, *kinds: str) -> Iterator[None]:
    """Keep a thread's syncs out of the journal."""

    def after(self: SimFiles, operation: Operation) -> None:
        if operation.kind not in kinds or current_task(self) is not task:
            real(self, operation)

    real = SimFiles.after
    with replaced(SimFiles, "after", after):
        yield


@contextlib.contextmanager
def leaving_out(left_out: LeftOut) -> Iterator[None]:
    """Leave a sync out: its call succeeds and does nothing."""
    code = left_out.function.__code__
    lines, start = inspect.getsourcelines(left_out.function)
    at = [start + number for number, line in enumerate(lines) if left_out.call in line and "def " not in line]
    line, caller = at[left_out.number], left_out.caller

    def is_wanted(frame: FrameType) -> bool:
        if frame.f_code is not code or frame.f_lineno != line:
            return False
        return caller is None or (frame.f_back is not None and frame.f_back.f_code is caller.__code__)

    def skipping(call: FunctionType) -> Callable[..., object]:
        def maybe(*args: object, **named: object) -> object:
            is_it = is_wanted(sys._getframe(1))
            # A step like any other: until the next power cut everything goes as without the defect.
            if is_it:
                with unsynced(current_task(args[0]), "fsync", "fsync_dir"):
                    return call(*args, **named)
            return call(*args, **named)

        return maybe

    with (
        replaced(SimFile, "fsync", skipping(SimFile.fsync)),  # type: ignore[arg-type]
        replaced(SimFiles, "fsync_dir", skipping(SimFiles.fsync_dir)),  # type: ignore[arg-type]
        replaced(SimFiles, "fsync_all", skipping(SimFiles.fsync_all)),  # type: ignore[arg-type]
    ):
        yield


for _name, _left_out in LEFT_OUT.items():
    DEFECTS[_name] = lambda left_out=_left_out: leaving_out(left_out)  # type: ignore[misc]
