"""
What a step may take: seconds of processor time, and memory.

Processor time, because a busy machine must not make a step slow. A step that waits for something that never comes is
ended after `HANG_SECONDS`, with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import gc
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STEP_SECONDS = 5
HANG_SECONDS = 300
STEP_BYTES = 512 << 20

_CLEAR_PEAK = "5"  # to /proc/self/clear_refs: the most that was resident is counted anew
_SELF = Path("/proc/self")


class TooMuch(AssertionError):
    """A step took too long, or too much memory."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise TooMuch if the block takes more than `STEP_SECONDS` or `STEP_BYTES`."""
    gc.collect(0)
    _SELF.joinpath("clear_refs").write_text(_CLEAR_PEAK)
    began, resident = time.process_time(), _status("VmRSS")
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    took = time.process_time() - began
    if took > STEP_SECONDS:
        raise TooMuch(f"took {took:.1f} s of processor time")
    grown = _status("VmHWM") - resident
    if grown > STEP_BYTES:
        raise TooMuch(f"took {grown >> 20} MB of memory")


def _status(name: str) -> int:
    """Return a figure of this process in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", _SELF.joinpath("status").read_text())
    assert found is not None
    return int(found[1]) * 1024
