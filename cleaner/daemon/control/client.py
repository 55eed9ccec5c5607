"""
How a command talks to the daemon: one connection per question, so that a restart or a time-out does not affect the next
question.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from cleaner.base.clock import SystemClock
from cleaner.base.json_values import JsonValue, NotJsonError, WrongValueError, format_json, from_json, parse_json
from cleaner.daemon.control.verbs import MAX_ANSWER_BYTES, VERSION
from cleaner.errors import NoDaemonError, NotPermittedError, SteeringError, shortened

TIMEOUT_SECONDS = 20.0
"""For a question and its answer; a daemon answers within milliseconds, one with thousands of logs within a second."""

# struct timeval of 64-bit Linux.
_TIMEVAL = struct.Struct("@ll")
_READ_BYTES = 256 << 10

Value = TypeVar("Value")


class Control:
    """
    The daemon that listens at a socket; no connection is opened before a question.

    Args:
        path: the socket's file.
        timeout_seconds: for each question.
    """

    def __init__(self, path: Path, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.path = path
        self._timeout_seconds = timeout_seconds
        self._clock = SystemClock()

    def ask(self, do: str, **fields: JsonValue) -> dict[str, JsonValue]:
        """
        Ask for something; returns the answer's fields.

        Raises:
            SteeringError: the daemon refuses, with its reason.
            NoDaemonError: none listens, it is busy, or its answer cannot be understood.
            NotPermittedError: this user may not use the socket.
        """
        question = format_json({"v": VERSION, "do": do, **fields}).encode("ascii") + b"\n"
        answer = self._parsed(self._exchange(question))
        if answer.get("ok") is True:
            return answer
        reason = str(answer.get("error") or "refused without a reason")
        if answer.get("code") == "busy":
            raise NoDaemonError(f"the daemon at {self.path} is busy: {reason}")
        raise SteeringError(reason)

    def value(self, kind: type[Value], answer: Mapping[str, JsonValue], name: str) -> Value:
        """
        Return a field of an answer as a frozen value.

        Raises:
            NoDaemonError: it is not such a value.
        """
        try:
            return from_json(kind, answer.get(name))
        except WrongValueError as error:
            raise NoDaemonError(f"the daemon at {self.path} is of another release: {name}: {error}") from error

    def _parsed(self, line: bytes) -> dict[str, JsonValue]:
        try:
            answer = parse_json(line)
        except NotJsonError as error:
            raise NoDaemonError(f"what listens at {self.path} is no cleaner: {error}") from error
        if answer.get("v") != VERSION:
            raise NoDaemonError(
                f"the daemon at {self.path} speaks version {shortened(repr(answer.get('v')))}, not {VERSION}"
            )
        return answer

    def _exchange(self, question: bytes) -> bytes:
        end_ns = self._clock.monotonic_ns() + round(self._timeout_seconds * 1e9)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                self._connect(connection)
                connection.settimeout(self._timeout_seconds)
                # A server that is too busy answers and closes without reading.
                refused = _send(connection, question)
                received = bytearray()
                while not received.endswith(b"\n") and len(received) <= MAX_ANSWER_BYTES:
                    remaining_ns = end_ns - self._clock.monotonic_ns()
                    if remaining_ns <= 0:
                        raise TimeoutError
                    connection.settimeout(remaining_ns / 1e9)
                    data = connection.recv(_READ_BYTES)
                    if not data:
                        raise refused or ConnectionResetError("the connection was closed")
                    received += data
                return bytes(received)
            except TimeoutError as error:
                reason = f"the daemon at {self.path} does not answer within {self._timeout_seconds:g} s"
                raise NoDaemonError(reason) from error
            except OSError as error:
                raise NoDaemonError(f"the daemon at {self.path} went away: {error.strerror or error}") from error

    def _connect(self, connection: socket.socket) -> None:
        # With Python's time-out, connecting fails at once if the queue is full; with the kernel's, it waits.
        seconds = _TIMEVAL.pack(int(self._timeout_seconds), int(self._timeout_seconds % 1 * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
        try:
            connection.connect(os.fsencode(self.path))
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as error:
            raise NoDaemonError(f"no daemon is running at {self.path}") from error
        except PermissionError as error:
            raise NotPermittedError(f"{self.path} is {_owner_of(self.path)}") from error
        except BlockingIOError as error:
            raise TimeoutError from error
        except (OSError, ValueError) as error:  # such as a path no socket can have
            raise NoDaemonError(f"no daemon can be reached at {self.path}: {error}") from error


def _send(connection: socket.socket, question: bytes) -> OSError | None:
    try:
        connection.sendall(question)
    except (BrokenPipeError, ConnectionResetError) as error:
        return error
    return None


def _owner_of(path: Path) -> str:
    """Say which user and group may use the socket, as far as this user can see."""
    try:
        status = path.stat()
    except OSError:
        return "where only the daemon's user and group can go; run this as one of them, or as root"
    return f"for user {_user(status.st_uid)} and group {_group(status.st_gid)}; run this as one of them, or as root"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
