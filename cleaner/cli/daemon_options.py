"""Options of the commands that talk to a daemon: where it is, and how it is named in next commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from cleaner.base.model import TopicPartition

if TYPE_CHECKING:
    from cleaner.daemon.control.client import Control

EXIT_CODES = "69  no daemon is running      77  the daemon's socket is not for this user"

_SOCKET_KEY, _SOCKET_VARIABLE = "cleaner.control.socket", "CLEANER_CONTROL_SOCKET"
_STATE_DIR_KEY, _STATE_DIR_VARIABLE = "cleaner.state.dir", "CLEANER_STATE_DIR"


def add_daemon(parser: argparse.ArgumentParser, *, has_config: bool = False) -> None:
    """Add the options that locate the daemon; `has_config`: the command already has `--config`."""
    group = parser.add_argument_group(
        "which daemon",
        f"Without any of these: ${_SOCKET_VARIABLE}, ${_STATE_DIR_VARIABLE}, then the settings' defaults.",
    )
    if not has_config:
        help_ = "the daemon's settings, which say where it listens"
        group.add_argument("--config", metavar="FILE", type=Path, help=help_)
    group.add_argument("--state-dir", metavar="DIR", type=Path, help="its cleaner.state.dir")
    group.add_argument("--socket", metavar="PATH", type=Path, help="its cleaner.control.socket")


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    """Add the option for the state directory of a daemon, which need not be running."""
    group = parser.add_argument_group(
        "which daemon", f"Without any of these: ${_STATE_DIR_VARIABLE}, then the setting's default."
    )
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="the daemon's settings, which say where its state is"
    )
    group.add_argument("--state-dir", metavar="DIR", type=Path, help="its cleaner.state.dir")


def control_of(arguments: argparse.Namespace) -> Control:
    """
    Return the daemon that the options name; no connection is opened.

    Raises:
        ConfigError: the `--config` file cannot be read.
    """
    from cleaner.daemon.control.client import Control

    return Control(_socket(arguments))


def state_dir_of(arguments: argparse.Namespace) -> Path:
    """
    Return the state directory that the options name.

    Raises:
        ConfigError: the `--config` file cannot be read.
    """
    from cleaner.config.table import BROKER_SETTINGS

    if arguments.state_dir is not None:
        return Path(arguments.state_dir)
    default = BROKER_SETTINGS[_STATE_DIR_KEY].default
    return Path(os.environ.get(_STATE_DIR_VARIABLE) or _configured(arguments, _STATE_DIR_KEY) or default or "")


def parse_partition(text: str) -> TopicPartition:
    """Read `topic-0`."""
    try:
        return TopicPartition.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def options_given(arguments: argparse.Namespace) -> str:
    """Return the options that name the daemon, for a next command: ` --config /etc/cleaner.properties`, or nothing."""
    given = {"--config": arguments.config, "--state-dir": arguments.state_dir, "--socket": arguments.socket}
    return "".join(f" {option} {quote(str(value))}" for option, value in given.items() if value is not None)


def with_options(command: str, options: str) -> str:
    """Return a command with the options to reach the same daemon; commands for a log dir stay unchanged."""
    is_for_daemon = command.startswith("cleaner ") and not command.startswith(("cleaner plan ", "cleaner recover "))
    return command + options if is_for_daemon else command


def _socket(arguments: argparse.Namespace) -> Path:
    from cleaner.daemon.control.listening import SOCKET_NAME

    if arguments.socket is not None:
        return Path(arguments.socket)
    if arguments.state_dir is None:
        configured = os.environ.get(_SOCKET_VARIABLE) or _configured(arguments, _SOCKET_KEY)
        if configured:
            return Path(configured)
    return state_dir_of(arguments) / SOCKET_NAME


def _configured(arguments: argparse.Namespace, key: str) -> str | None:
    """
    Return a setting of the `--config` file.

    The rest of the file is not checked: a mistake in it must not keep an operator from asking a daemon for its status.
    """
    if arguments.config is None:
        return None
    from cleaner.settings import read_config_file
    from cleaner.storage.fs.file_system import FileSystem

    return read_config_file(FileSystem(), arguments.config).get(key)
