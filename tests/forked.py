"""Forked processes: a `cleaner` that need not import anything first, and one killed while a child of its lives on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import cleaner.cleaning.round.warm_up  # so that no child has to import numba and the kernels
import cleaner.log.manager  # noqa: F401
from cleaner.cli.main import run

_MOST_SECONDS = 120
_MOST_INPUT_BYTES = 1 << 16  # what a pipe takes while nobody reads


def cleaner_command(arguments: Sequence[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    """
    Run a command as a process of its own, with the standard streams of one, from `cleaner`'s entry point to its exit.

    It is a fork of this process, so that it takes milliseconds: most of what a new one does is to import numba. What
    depends on a process's start belongs into a test that starts one.
    """
    given, give = os.pipe()
    assert os.write(give, stdin.encode()) == len(stdin.encode()) < _MOST_INPUT_BYTES
    os.close(give)
    output, errors = os.memfd_create("output"), os.memfd_create("errors")
    try:
        child = os.fork()
        if child == 0:
            _be_cleaner(arguments, (given, output, errors))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        written = [os.pread(stream, os.fstat(stream).st_size, 0).decode() for stream in (output, errors)]
    finally:
        for descriptor in (given, output, errors):
            os.close(descriptor)
    return subprocess.CompletedProcess(list(arguments), status, *written)


def _be_cleaner(arguments: Sequence[str], streams: Sequence[int]) -> NoReturn:
    try:
        signal.alarm(_MOST_SECONDS)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, closefd=False)  # noqa: SIM115
            for number, mode in enumerate(("r", "w", "w"))
        )
        sys.argv = ["cleaner", *arguments]
        run()
    except SystemExit as ended:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)
    except BaseException:  # noqa: BLE001 - the parent's tests must not go on in this process
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(70)


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
