"""`cleaner serve`."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.cli.arguments import add_as_root, add_settings, parse_count, sources
from cleaner.cli.logs import log_warning
from cleaner.cli.output import print_error, say
from cleaner.cli.work import announce_compiling, take_identity
from cleaner.config.forms import parse_address
from cleaner.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

SUMMARY = "serve log dirs to Kafka clients, read-only, without a broker"

DESCRIPTION = """\
A Kafka endpoint over directories: kcat, consumers, Spark or MirrorMaker read a backup at its own offsets, with its own
times and transactions. Nothing is locked, written, expired or compacted; a writer or a cleaner may be at work in the
same directory. Requests that write are refused with the protocol's own errors.
Consumer groups work; what they commit is kept until the process ends.

Only loopback addresses are served. Records end at the high watermark, as for any consumer. Needs the extra
`serve` of this package (docs/serve.md)."""

EXAMPLES = """\
examples:
  cleaner serve /backup/kafka
  cleaner serve /backup/kafka-1 /backup/kafka-2 --listen 127.0.0.1:19092
  kcat -b 127.0.0.1:9092 -C -t prices -e

exit status:
  0  stopped by SIGTERM or SIGINT      1  a log dir cannot be read
  2  usage      69  the address is taken      78  a bad setting"""

_DEFAULT_ADDRESS = "127.0.0.1:9092"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("log_dirs", metavar="DIR", nargs="+", type=Path, help="a log dir: one entry of log.dirs")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_parse_address,
        default=_DEFAULT_ADDRESS,
        help=f"where to listen, port 0 for any that is free (default: {_DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        type=_parse_address,
        help="the address that clients are told (default: the one under which they came)",
    )
    parser.add_argument(
        "--max-connections", metavar="N", type=parse_count, default=2000, help="at a time (default: 2000)"
    )
    add_settings(parser)
    add_as_root(parser, "the log dirs'")


def _parse_address(text: str) -> tuple[str, int]:
    try:
        address = parse_address(text)
    except ConfigError:
        address = None
    if address is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as {_DEFAULT_ADDRESS}")
    return address


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit code."""
    settings = sources(arguments)

    from cleaner.app.options import CallContext
    from cleaner.app.serve_log_dirs import ServedLogDirs
    from cleaner.serve.server import Limits

    announce_compiling(print_error)
    take_identity(*arguments.log_dirs, stay_root=arguments.as_root)
    served = ServedLogDirs(
        arguments.log_dirs,
        settings,
        CallContext.of(warn=log_warning),
        listen_at=arguments.listen,
        advertised=arguments.advertise,
        limits=Limits(connections=arguments.max_connections),
    )

    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        topics, partitions = served.counts
        host, port = served.address
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        say(f"serving {topics} topics, {partitions} partitions at {place}, read-only")

    with served:
        served.run(started)
    return 0
