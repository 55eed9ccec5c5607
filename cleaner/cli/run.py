"""`cleaner run`: the daemon."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.mistakes import Mistakes
from cleaner.cli.arguments import add_as_kafka, add_as_root, set_options
from cleaner.cli.collecting import begin_collecting
from cleaner.cli.work import announce_compiling, take_identity
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.app.configuration import Loaded

# A slow reader gets the last lines; a stopped one does not keep the process from ending.
_DRAIN_SECONDS = 1.0

SUMMARY = "the daemon: clean log dirs continuously (not those of a live broker)"

DESCRIPTION = """\
Not for the log dirs of a live broker: a broker locks them, and this daemon does not touch locked log dirs.

Runs in the foreground until it is stopped. Every log.cleaner.backoff.ms it inspects all logs of log.dirs and gives
the due ones to its workers: first those over max.compaction.lag.ms, then by their dirty ratio. A damaged log is
quarantined with its reason, and the others are cleaned.

Its status page (cleaner.http.listen, http://127.0.0.1:9404/) and /metrics there show what it does. `cleaner now`,
`pause`, `resume`, `release`, `throttle` and `reload` control it through a socket in cleaner.state.dir.

SIGTERM stops it at the next buffer with nothing half done, a second one at once; SIGHUP reloads the settings;
SIGUSR1 writes its state and the stacks of all threads to standard error."""

EXAMPLES = """\
examples:
  cleaner run --config /etc/cleaner/cleaner.properties
  cleaner run --set log.dirs=/data/logs --set cleaner.state.dir=/tmp/cleaner-state
  CLEANER_LOG_DIRS=/data/logs cleaner run              as in a container

exit status:
  0  stopped     69  the HTTP address is taken     75  another daemon has the state dir
  78  a bad setting: a line each, or too little memory for the configured buffers"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="a server.properties or cleaner.properties")
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="[TOPIC:]KEY=VALUE",
        action="append",
        default=[],
        help="a setting, with precedence over environment and file; may be repeated",
    )
    add_as_kafka(parser)
    add_as_root(parser, "the log dirs'")


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped; returns the exit code."""
    from cleaner.app.check_settings import check_places
    from cleaner.cleaning.round.warm_up import warm_up
    from cleaner.cli.daemon_logs import configure_logs, open_logs
    from cleaner.cli.daemon_process import DaemonProcess
    from cleaner.present.spans import open_spans
    from cleaner.storage.fs.ownership import OwnDirectories

    read_settings = _reader(arguments)
    loaded = read_settings()
    stream = open_logs(loaded.config.log_format)
    try:
        log = configure_logs(loaded.config.log_format, loaded.config.log_level, stream)
        mistakes = Mistakes()
        for warning in (*loaded.warnings, *check_places(FileSystem(), loaded.config, mistakes)):
            log.warning(warning)
        mistakes.raise_any()
        spans = open_spans(loaded.config.otel_endpoint, "", log.warning)
        announce_compiling(log.info)
        was_root = os.geteuid() == 0
        take_identity(*loaded.log_dirs, stay_root=arguments.as_root)
        warm_up(rounds_only=True)
        begin_collecting()
        # A log dir may be mounted later: its owner is checked then.
        fs = OwnDirectories() if was_root and not arguments.as_root else FileSystem()
        return DaemonProcess(loaded, read_settings, log, fs, spans).run()
    finally:
        stream.drain(_DRAIN_SECONDS)


def _reader(arguments: argparse.Namespace) -> Callable[[], Loaded]:
    from cleaner.app.configuration import load_settings

    return partial(load_settings, arguments.config, set_options(arguments), dict(os.environ))
