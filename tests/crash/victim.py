"""
A process whose children run a round and are killed in it.

    python -m tests.crash.victim LOG_DIR_TO_WARM_UP

It runs one round itself, so that everything is imported and compiled, and prints `ready`. For each log dir on its
standard input it then forks a child that stops itself, prints the child's pid, and later the child's exit status. A
tracer can attach to the child while it is stopped; SIGCONT lets it run.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.crash.rounds import clean


def _say(word: object) -> None:
    print(word, flush=True)


def main() -> None:
    """Serve until the standard input ends."""
    clean(Path(sys.argv[1]))
    _say("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            status = 1
            try:
                clean(Path(line.strip()))
                status = 0
            finally:
                os._exit(status)
        os.waitpid(child, os.WUNTRACED)
        _say(child)
        _say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
