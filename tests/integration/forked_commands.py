"""
Runs `cleaner` commands of a shell in forks of one process that has loaded everything.

Loading Python, numba and the kernels takes most commands longer than their work. Pages have hundreds of them; how a
process of its own begins is tested in `test_start.py`, and pages with daemons have such processes.

    python -m tests.integration.forked_commands SOCKET     serves until it is ended
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Reads nothing of an installation, so that it begins in some milliseconds.
_CLIENT = """\
#!{python} -IS
import array, json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
    peer.connect({path!r})
    said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    peer.sendmsg([said], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]).tobytes())])
    sys.exit(int(peer.recv(16)))
"""
_LONGEST = 1 << 20


@contextlib.contextmanager
def forked_commands(home: Path) -> Iterator[Path]:
    """Serve commands; yields the directory that has `cleaner`, for the PATH of a shell."""
    path, program = home / "socket", home / "bin" / "cleaner"
    program.parent.mkdir(parents=True)
    program.write_text(_CLIENT.format(python=sys.executable, path=str(path)))
    program.chmod(0o755)
    server = subprocess.Popen([sys.executable, "-m", "tests.integration.forked_commands", str(path)])
    try:
        while not path.exists():
            if server.poll() is not None:
                raise RuntimeError(f"the server of commands has ended with {server.returncode}")
            time.sleep(0.02)
        yield program.parent
    finally:
        server.terminate()
        server.wait()


def _serve(path: str) -> None:
    from cleaner.cleaning.round.warm_up import warm_up
    from cleaner.cli import main as command

    warm_up()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path + ".new")
        listener.listen()
        Path(path + ".new").rename(path)  # only now there is somebody
        while True:
            peer, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _answer(peer, command.run)
            peer.close()


def _answer(peer: socket.socket, run: object) -> None:
    """Run one command in a process of its own, and tell how it ended."""
    said, handles, _, _ = socket.recv_fds(peer, _LONGEST, 3)
    child = os.fork()
    if child:
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, peer], [], [])[0]:
            os.kill(child, signal.SIGTERM)  # the client has been killed, and says nothing otherwise
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(BrokenPipeError):
            peer.send(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    arguments, directory, environment = json.loads(said)
    peer.close()
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    # Nothing of the server's is buffered in these, and nothing is known of its streams.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the process
        for number, mode in enumerate("rww")
    )
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["cleaner", *arguments]
    code = 0
    try:
        run()  # type: ignore[operator]
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
