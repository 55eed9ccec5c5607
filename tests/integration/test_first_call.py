"""What the library loads at its first calls is out of reach of interrupts, which would leave it in pieces for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.integration.log_dirs import keyed_log
from tests.support.log_builder import write_log_dir

_INTERRUPTED = """
import os, signal, sys, threading
import cleaner

def call():
    read.append(sum(1 for _ in cleaner.open_reader(sys.argv[1], "topic").read(0)))

read, interrupts = [], 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(50):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
        break
    except KeyboardInterrupt:
        interrupts += 1
read.clear()
thread = threading.Thread(target=call, daemon=True)
thread.start()
thread.join(200)  # kernels may have to be compiled
if thread.is_alive():
    sys.exit("another thread hangs")
call()
print(interrupts > 0, read)
"""

_FORKED = """
import os, signal, sys
import cleaner

signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    cleaner.check(sys.argv[1])
    sys.exit("not interrupted")
except KeyboardInterrupt:
    child = os.fork()
signal.alarm(250 if child else 200)
cleaner.check(sys.argv[1])
if child:
    print(os.waitpid(child, 0)[1])
else:
    os._exit(0)
"""

_WITHIN_A_COMPILATION = """
import sys
import cleaner
from numba.core.compiler_lock import global_compiler_lock

reader = cleaner.open_reader(sys.argv[1], "topic")
with global_compiler_lock:
    print(sum(1 for _ in reader.read(0)))
"""

# Each first call in a fork of a process that has loaded nothing of ours.
_FIRST_CALLS = """
import contextlib, os, sys, threading
import cleaner, numba  # which would take the longest: a second in each

path, kept, is_broken = sys.argv[1], sys.argv[2], False
settings = {"cleanup.policy": "compact"}

def read():
    reader = cleaner.open_reader(path, "topic")
    list(reader.read(0)), reader.latest().to_dict()
    with reader.table() as table:
        table.get(b"k")
    with reader.follow(0) as follower:
        follower.poll(0.1)

calls = [
    read,
    lambda: cleaner.plan(path),
    lambda: cleaner.plan(path, settings, sampling=cleaner.Sampling()),
    lambda: cleaner.explain(path, "topic-0"),
    lambda: cleaner.check(path),
    lambda: cleaner.gaps(path),
    lambda: cleaner.who(path),
    lambda: cleaner.check_replicas([path, path]),
    lambda: cleaner.erase(path, ["topic"], [b"k"], settings, dry_run=True),
    lambda: cleaner.prove_erased([path], [b"k"]),
    lambda: cleaner.warm(),
    lambda: cleaner.recover(path, trust_marker=False),
    lambda: cleaner.clean(path, "topic-0", settings, keep_old=kept),
    lambda: cleaner.verify(kept, path, "topic-0", settings),
    lambda: cleaner.replay(kept, path),
    lambda: cleaner.undo(kept),
]
for number, call in enumerate(calls):
    child = os.fork()
    if child:
        is_broken |= os.waitpid(child, 0)[1] != 0
        continue

    class Finder:
        def find_spec(self, name, *_):
            if threading.current_thread() is threading.main_thread():
                print(number, name, file=sys.stderr)

    sys.meta_path.insert(0, Finder())
    with contextlib.suppress(cleaner.CleanerError):
        call()
    os._exit(0)
sys.exit(is_broken)
"""


def run(program: str, *arguments: Path) -> tuple[str, str]:
    """Run a program in a process that has loaded nothing; what it prints, and its errors."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.stdout, done.stderr


def test_first_calls_that_were_interrupted_break_nothing(tmp_path: Path) -> None:
    """The next one works, in the main thread and in others; numba in pieces failed for good, or hung."""
    write_log_dir(tmp_path, keyed_log())
    assert run(_INTERRUPTED, tmp_path) == ("True [80, 80]\n", "")


def test_first_calls_import_nothing_in_the_main_thread(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "logs", keyed_log())
    assert run(_FIRST_CALLS, tmp_path / "logs", tmp_path / "kept") == ("", "")


def test_first_call_that_was_interrupted_leaves_no_lock_to_a_fork(tmp_path: Path) -> None:
    """The thread that goes on loading does not exist there: its locks of modules were held for good."""
    write_log_dir(tmp_path, keyed_log())
    out, _ = run(_FORKED, tmp_path)  # Python's logging may complain: it was loaded in the middle of the fork
    assert out == "0\n"


def test_first_call_in_the_middle_of_a_compilation_does_not_wait_for_its_end(tmp_path: Path) -> None:
    """As in a signal handler: this thread has numba's lock already."""
    write_log_dir(tmp_path, keyed_log())
    assert run(_WITHIN_A_COMPILATION, tmp_path) == ("80\n", "")
