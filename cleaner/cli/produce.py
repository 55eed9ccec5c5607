"""`cleaner produce`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.clock import SystemClock
from cleaner.cli.arguments import parse_count, parse_offset, parse_rate
from cleaner.cli.kafka_flags import (
    READER_PROPERTIES,
    add_ignored,
    add_log_dir,
    add_properties,
    note_ignored,
    properties_of,
)
from cleaner.cli.output import print_error
from cleaner.cli.stop import run_interruptibly
from cleaner.cli.work import announce_compiling, take_identity
from cleaner.errors import CleanerError, CleaningAborted, UsageError
from cleaner.storage.fs.file_system import FileSystem

if TYPE_CHECKING:
    from cleaner.cli.sending import Sender
    from cleaner.cli.stop import StopFlag
    from cleaner.log.manager import LogManager
    from cleaner.log.record_json import Addressed

SUMMARY = "append records from lines of input to a topic"

DESCRIPTION = """\
Appends records to a topic of a log dir, one a line, with the flags of kafka-console-producer. A key decides the
partition, as Kafka's default partitioner does; records without a key go to a random one, several in a row. On a
terminal there is a prompt for each line, and the line is on disk when the next prompt comes; otherwise everything is
on disk when the command ends. Ctrl-D ends it; what was read is written.

While it runs, the command is the only writer of the log dir. A cleaner and readers may run at the same time."""

EXAMPLES = """\
examples:
  cleaner produce --log-dir /tmp/logs --topic prices --property parse.key=true --property key.separator=:
  cleaner produce --log-dir /tmp/logs --topic prices --reader-config lines.properties --file prices.txt --rate 100
  cleaner produce --log-dir /tmp/logs --topic prices --file prices.json --format json
  cleaner produce --log-dir /tmp/logs --topic prices --file a.txt --transactional-id loader --transaction-records 1000

exit status:
  0  everything is written      1  a line is no record, or the log refused it      2  usage
  75  the log dir is in use      78  a bad setting"""

_IGNORED = (
    "--bootstrap-server",
    "--broker-list",
    "--zookeeper",
    "--producer-property",
    "--command-property",
    "--producer.config",
    "--command-config",
    "--producer-config",
    "--request-required-acks",
    "--request-timeout-ms",
    "--message-send-max-retries",
    "--retry-backoff-ms",
    "--timeout",
    "--batch-size",
    "--max-block-ms",
    "--max-memory-bytes",
    "--max-partition-memory-bytes",
    "--metadata-expiry-ms",
    "--socket-buffer-size",
    "--compression-codec",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_log_dir(parser, "the log dir; it must exist, see `cleaner topics create`")
    parser.add_argument("--topic", required=True, help="the topic to append to; it must exist")
    add_properties(parser, ("--property", "--reader-property"), READER_PROPERTIES)
    parser.add_argument("--reader-config", metavar="FILE", type=Path, help="a file of such properties")
    parser.add_argument("--line-reader", metavar="CLASS", help="Kafka's LineMessageReader, the only one there is")
    parser.add_argument("--file", metavar="FILE", type=Path, help="read this instead of standard input")
    parser.add_argument(
        "--format", choices=("lines", "json"), default="lines", help='json: {"key": ..., "value": ...} (default: lines)'
    )
    parser.add_argument("--partition", metavar="N", type=parse_offset, help="append to this one, whatever the keys are")
    parser.add_argument("--rate", metavar="N", type=parse_rate, help="at most this many records a second")
    parser.add_argument("--sync", action="store_true", help="wait for the disk after each append")
    parser.add_argument(
        "--transactional-id", metavar="ID", help="write transactions; fences an earlier producer with this id"
    )
    parser.add_argument(
        "--transaction-records",
        metavar="N",
        type=parse_count,
        help="with --transactional-id: commit after this many records (default: at the end)",
    )
    parser.add_argument(
        "--transaction-timeout-ms",
        metavar="MS",
        type=parse_count,
        default=60_000,
        help="with --transactional-id: abort a transaction that is open for longer (default: 60000)",
    )
    parser.add_argument("--abort", action="store_true", help="with --transactional-id: abort the last one at the end")
    parser.add_argument("--writer-config", metavar="FILE", type=Path, help="a server.properties: defaults for topics")
    add_ignored(parser, _IGNORED)


def run(arguments: argparse.Namespace) -> int:
    """Append the records read; returns the exit code."""
    if arguments.transactional_id is None and (arguments.abort or arguments.transaction_records is not None):
        raise UsageError("--abort and --transaction-records need a --transactional-id")
    if arguments.line_reader is not None and not arguments.line_reader.endswith("LineMessageReader"):
        raise UsageError(
            f"{arguments.line_reader}: classes of Java are not loaded; lines are read as LineMessageReader does"
        )
    parse = _parser_of(arguments)
    note_ignored(arguments)
    announce_compiling(print_error)
    with _opened(arguments.file) as descriptor:
        take_identity(arguments.log_dir, stay_root=arguments.as_root)
        run_interruptibly(lambda flag: _produce(arguments, descriptor, parse, flag))
    return 0


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[int]:
    """Yield the input's descriptor; a file is opened before the command stops being root."""
    if path is None:
        yield 0
        return
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise CleanerError(f"{path}: {error.strerror or error}") from error
    with file:
        yield file.fileno()


def _parser_of(arguments: argparse.Namespace) -> Callable[[bytes, int], Addressed]:
    """Return the function that makes a record from a line and its number."""
    from cleaner.cli.record_lines import LineFormat
    from cleaner.log.record_json import Addressed, from_json
    from cleaner.settings import read_config_file

    given: dict[str, str] = {}
    if arguments.reader_config is not None:
        given = read_config_file(FileSystem(), arguments.reader_config)
    given |= properties_of(arguments.properties, READER_PROPERTIES)
    partition: int | None = arguments.partition
    if arguments.format == "lines":
        lines = LineFormat.of(given)
        return lambda line, number: Addressed(lines.record(line, number), partition)
    if given:
        raise UsageError("--property is for lines; with --format json a record's fields are named")
    if partition is None:
        return from_json
    return lambda line, number: from_json(line, number)._replace(partition=partition)


def _produce(
    arguments: argparse.Namespace, descriptor: int, parse: Callable[[bytes, int], Addressed], flag: StopFlag
) -> None:
    from cleaner.cli.input_lines import LineInput, paced
    from cleaner.cli.log_dirs import open_log_dir
    from cleaner.cli.sending import feed

    def should_stop() -> bool:
        return flag.is_set

    source = LineInput(descriptor, should_stop)
    lines = iter(source)
    if arguments.rate is not None:
        lines = paced(lines, arguments.rate, SystemClock(), should_stop)
    with open_log_dir(arguments.log_dir, arguments.writer_config, flag) as manager:
        sender = _sender_to(manager, arguments, is_durable=arguments.sync or source.is_terminal)
        try:
            feed(lines, sender, parse, goes_on=source.is_terminal)
            sender.end(commit=not (arguments.abort or flag.is_set))
        except BaseException:
            with contextlib.suppress(CleanerError):  # the first error is the one to report
                sender.end(commit=False)
            raise
    if flag.is_set and not source.is_terminal:
        raise CleaningAborted(f"stopped after {sender.sent} records were written")


def _sender_to(manager: LogManager, arguments: argparse.Namespace, *, is_durable: bool) -> Sender:
    from cleaner.cli.sending import Sender, Transaction
    from cleaner.log.partitioner import Partitioner

    topic, transactional_id = arguments.topic, arguments.transactional_id
    numbers = [each.partition for each in manager.describe_topic(topic).partitions]

    def producer_of(partition: int) -> Transaction:
        timeout_ms = arguments.transaction_timeout_ms
        return manager.log(topic, partition).producer(transactional_id, transaction_timeout_ms=timeout_ms)

    return Sender(
        {number: manager.log(topic, number) for number in numbers},
        Partitioner(len(numbers)),
        producer_of=None if transactional_id is None else producer_of,
        transaction_records=arguments.transaction_records,
        is_durable=is_durable,
    )
