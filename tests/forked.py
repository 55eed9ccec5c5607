"""A process that is killed while a child that it has forked lives on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def killed_beside_its_fork(take: Callable[[], object]) -> Iterator[None]:
    """Have a process take something, fork, and be killed; the block runs while the fork of it lives."""
    until_the_end, end = os.pipe()
    told, tell = os.pipe()
    taker = os.fork()
    if taker == 0:
        try:
            held = take()
            if os.fork() == 0:
                os.close(end)
                os.write(tell, b"f")
                os.read(until_the_end, 1)
                os._exit(0)
            signal.pause()
            del held
        finally:
            os._exit(1)
    os.close(tell)
    try:
        assert os.read(told, 1) == b"f"
        os.kill(taker, signal.SIGKILL)
        os.waitpid(taker, 0)
        yield
    finally:
        for descriptor in (until_the_end, end, told):
            os.close(descriptor)
