"""
Runs the commands of a document as a reader would: one shell, from the first to the last.

A fenced block that says `console` holds commands behind `$ `, continued where a line ends with a backslash, and below
each what it answers. There `...` stands for anything within a line, and alone on a line for any number of lines.

Elsewhere commands stand indented by four spaces, with or without `$ `, and what they answer is left out. A few words
may stand behind one, two spaces away.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_END = "-- end of the command"
_PATIENCE_SECONDS = 120.0

# What a line of an indented block begins with when it is a command; other such blocks are drawings and files.
_PROGRAMS = (
    "apt|apt-get|cat|chmod|chown|cleaner|cp|curl|docker|echo|export|git|helm|install|jq|journalctl|kubectl|ls|make|mkdir|mv|nc|"
    r"pip|pip3|podman|printf|python|python3|rm|seq|spark-submit|spark-sql|sudo|systemctl|systemd-[a-z]+|tar|uv|"
    r"kafka-[a-z-]+\.sh|[\w.~-]*/[\w./-]+"
)
_INDENTED = re.compile(rf"^ {{4}}(?:\$ )?((?:[A-Z_]+=\S+ )*(?:{_PROGRAMS})(?: .*)?)$")


@dataclass(frozen=True)
class Step:
    """
    One command.

    Attributes:
        heading: that of the section it stands in.
        line_number: where it stands.
        command: as a shell takes it.
        answer: the lines below it; None where they are left out.
    """

    heading: str
    line_number: int
    command: str
    answer: tuple[str, ...] | None


class CommandFailed(Exception):
    """A command ended with another status than 0, or did not end; carries what it wrote."""


def steps(text: str) -> Iterator[Step]:
    """Find the commands of a document."""
    heading = ""
    is_console = False
    command: list[str] = []
    answer: list[str] = []
    begin = 0

    def finished() -> Iterator[Step]:
        if command:
            yield Step(heading, begin, "\n".join(command), tuple(answer))
        command.clear()
        answer.clear()

    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            yield from finished()
            is_console = line == "```console"
        elif not is_console:
            heading = line.lstrip("# ") if line.startswith("#") else heading
        elif line.startswith("$ "):
            yield from finished()
            begin = number
            command.append(line[2:])
        elif command and not answer and command[-1].endswith("\\"):
            command.append(line)
        else:
            answer.append(line)


def commands(text: str) -> list[Step]:
    """Return all commands of a document in order: those with their answers, and those that stand indented."""
    found = list(steps(text))
    heading = ""
    is_fenced = False
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        is_fenced ^= line.startswith("```")
        if is_fenced:
            continue
        heading = line.lstrip("# ") if line.startswith("#") else heading
        if begun := _INDENTED.match(line):
            command = begun[1]
            while command.endswith("\\"):
                command += "\n" + next(lines)[1]
            found.append(Step(heading, number, re.split(r"(?<=\S) {2,}(?![#\s])(?!.*\n)", command)[0], None))
    return sorted(found, key=lambda step: step.line_number)


def matches(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Tell whether an answer is the one in the document."""
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + r"\n" for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in actual)) is not None


class Shell:
    """
    A shell that runs commands one after the other; with `with`, so that what they have left running ends with it.

    Args:
        directory: where it begins.
        inside: a command that runs another one, given to it in what follows.
        patience_seconds: how long a command may take before it is killed.
    """

    def __init__(
        self, directory: Path, inside: Sequence[str] = (), patience_seconds: float = _PATIENCE_SECONDS
    ) -> None:
        self._patience_seconds = patience_seconds
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        self._process = subprocess.Popen(
            [*inside, "bash", "--norc", "--noprofile"],
            cwd=directory,
            # No width is given: lines are as in a file, the same everywhere.
            env={**environment, "PATH": path, "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> list[str]:
        """
        Run a command; returns the lines it wrote, those on standard error too.

        Raises:
            CommandFailed: see there.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:  # for the type checker: they are pipes
            raise CommandFailed(command)
        # What a command reads is not the next command.
        stdin.write(f'{{ {command}\n}} < /dev/null; echo "{_END} $?"\n')
        stdin.flush()
        watch = threading.Timer(self._patience_seconds, self._kill)
        watch.start()
        lines: list[str] = []
        try:
            for line in stdout:
                text, end, status = line.rstrip("\n").partition(_END)
                if text or not end:
                    lines.append(text)
                if end:
                    if status.strip() != "0":
                        raise CommandFailed("\n".join([f"$ {command}", *lines, f"status{status}"]))
                    return lines
        finally:
            watch.cancel()
        raise CommandFailed("\n".join([f"$ {command}", *lines, f"it did not end within {self._patience_seconds:g} s"]))

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        # The group is the shell's and what it has started; the daemon is asked first.
        os.killpg(self._process.pid, signal.SIGTERM)
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
