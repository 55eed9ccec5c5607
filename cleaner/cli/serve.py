"""`cleaner serve`."""

from __future__ import annotations

import argparse
import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.listening import Address
from cleaner.base.remote_path import any_path
from cleaner.base.sizes import counted
from cleaner.cli.arguments import add_as_root, add_settings, parse_count, sources
from cleaner.cli.logs import log_warning
from cleaner.cli.output import say
from cleaner.cli.work import prepare_work, run_work
from cleaner.config.forms import parse_address
from cleaner.errors import ConfigError, UsageError
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from cleaner.serve.login import Access

SUMMARY = "serve log dirs to Kafka clients, read-only, without a broker"

DESCRIPTION = """\
A Kafka endpoint over directories: kcat, consumers, Spark or MirrorMaker read a backup at its own offsets, with its own
times and transactions. Nothing is locked, written, expired or compacted; a writer or a cleaner may be at work in the
same directory. Requests that write are refused with the protocol's own errors.
Consumer groups work; what they commit is kept until the process ends.

With --compacted clients see the last value of each key: topics are copied to a scratch directory, cleaned there as
`cleaner clean` does, and removed at the end.

Log dirs may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs://, tiered+...:: (docs/buckets.md).

Only loopback addresses are served, unless --access names a file with a certificate and users. Records end at the
high watermark, as for any consumer. Needs the extra `serve` of this package (docs/serve.md)."""

EXAMPLES = """\
examples:
  cleaner serve /backup/kafka
  cleaner serve /backup/kafka-1 /backup/kafka-2 --listen 127.0.0.1:19092
  cleaner serve /backup/kafka --compacted --set prices:cleanup.policy=compact
  cleaner serve /backup/kafka --listen 0.0.0.0:9093 --access /etc/kafka/access.yml --metrics 127.0.0.1:9404
  cleaner serve s3://backups/kafka
  kcat -b 127.0.0.1:9092 -C -t prices -e

exit status:
  0  stopped by SIGTERM or SIGINT      1  a log dir cannot be read
  2  usage      69  the address is taken      78  a bad setting"""

_DEFAULT_ADDRESS = "127.0.0.1:9092"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("log_dirs", metavar="DIR", nargs="+", type=any_path, help="a log dir: one entry of log.dirs")
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
        "--compacted",
        action="store_true",
        help="serve compacted topics as if they had just been cleaned: the last value of each key as of the start",
    )
    parser.add_argument(
        "--scratch", metavar="DIR", type=Path, help="where --compacted puts its copies (default: $TMPDIR, or /tmp)"
    )
    parser.add_argument(
        "--access",
        metavar="FILE",
        type=Path,
        help="certificate and users, as for cleaner.http.web.config.file: TLS and SASL/PLAIN, needed beyond loopback",
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", type=_parse_address, help="where to show metrics: /metrics")
    parser.add_argument(
        "--max-connections", metavar="N", type=parse_count, default=2000, help="at a time (default: 2000)"
    )
    add_settings(parser)
    add_as_root(parser, "the log dirs'")


def _parse_address(text: str) -> Address:
    try:
        address = parse_address(text)
    except ConfigError:
        address = None
    if address is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as {_DEFAULT_ADDRESS}")
    return Address(*address)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes; returns the exit code."""
    settings = sources(arguments)
    if arguments.metrics is not None and not arguments.metrics.is_loopback and arguments.access is None:
        raise UsageError(f"--metrics {arguments.metrics}: beyond loopback addresses only with --access FILE")
    if arguments.scratch is not None and not arguments.compacted:
        raise UsageError("--scratch is for the copies of --compacted")

    from cleaner.app.options import CallContext
    from cleaner.app.serve_log_dirs import BUCKET_LIMITS, ServedLogDirs
    from cleaner.serve.server import Limits

    bar = prepare_work(*arguments.log_dirs, stay_root=arguments.as_root)
    access = _access(arguments.access)
    served = run_work(
        lambda context: ServedLogDirs(
            arguments.log_dirs,
            settings,
            context,
            listen_at=arguments.listen,
            advertised=arguments.advertise,
            limits=Limits(connections=arguments.max_connections),
            access=access,
            compacted=arguments.compacted,
            scratch=arguments.scratch,
        ),
        bar,
        fs=files_for(None, *arguments.log_dirs, limits=BUCKET_LIMITS),
    )

    def started(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        topics, partitions = served.counts
        copies = f" ({served.compacted} of them from cleaned copies)" if arguments.compacted else ""
        what = f"{counted(topics, 'topic')}, {counted(partitions, 'partition')}{copies}"
        say(f"serving {what} at {served.address}, read-only")

    with served, contextlib.ExitStack() as stack:
        if arguments.metrics is not None:
            from cleaner.present.http.endpoint import metrics_server

            context = CallContext.of(warn=log_warning)
            stack.enter_context(metrics_server(arguments.metrics, served.numbers, arguments.access, context))
        served.run(started)
    return 0


def _access(path: Path | None) -> Callable[[], Access] | None:
    if path is None:
        return None
    from cleaner.app.options import CallContext
    from cleaner.present.http.endpoint import access_of

    return access_of(path, CallContext.of(warn=log_warning))
