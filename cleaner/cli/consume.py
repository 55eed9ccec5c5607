"""`cleaner consume`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cleaner.base.clock import SystemClock
from cleaner.base.remote_path import refuse_remote
from cleaner.cli.arguments import parse_count, parse_offset
from cleaner.cli.kafka_flags import (
    FORMATTER_PROPERTIES,
    add_ignored,
    add_log_dir,
    add_properties,
    note_ignored,
    properties_of,
)
from cleaner.cli.output import print_error
from cleaner.cli.stop import run_interruptibly
from cleaner.cli.work import announce_compiling, take_identity
from cleaner.errors import UsageError
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.cli.reading import Begin, Print
    from cleaner.cli.stop import StopFlag
    from cleaner.log.topics import Topic

SUMMARY = "print the records of a topic"

DESCRIPTION = """\
Prints records of a topic in a log dir, with the flags of kafka-console-consumer: from the end on, or --from-beginning,
or from an --offset. It stops at the end of the log, or waits there with --follow. Several partitions are printed one
after the other.

Nothing is locked and nothing changed: a writer and a cleaner may be at work. What a writer has appended is seen at
once; with --flushed only what is known to be on disk, which is what Kafka calls the high watermark.

The log dir may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

EXAMPLES = """\
examples:
  cleaner consume --log-dir /tmp/logs --topic prices --from-beginning
  cleaner consume --log-dir /tmp/logs --topic prices --from-beginning --property print.key=true
  cleaner consume --log-dir /tmp/logs --topic prices --partition 0 --offset 5 --max-messages 10
  cleaner consume --log-dir /tmp/logs --topic prices --from-beginning --isolation-level read_committed --format json
  cleaner consume --log-dir /tmp/logs --topic prices --follow --timeout-ms 5000
  cleaner consume --log-dir tiered+s3://backups/tiered::/tmp/logs --topic prices --from-beginning

exit status:
  0  printed; with --follow also when it was interrupted      1  damage, an offset that is not there, no such topic
  2  usage"""

_IGNORED = (
    "--bootstrap-server",
    "--zookeeper",
    "--broker-list",
    "--group",
    "--consumer-property",
    "--command-property",
    "--consumer.config",
    "--command-config",
    "--consumer-config",
)
_IGNORED_ALONE = ("--enable-systest-events", "--new-consumer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_log_dir(parser, "the log dir")
    parser.add_argument("--topic", required=True, help="the topic to read")
    parser.add_argument("--partition", metavar="N", type=parse_offset, help="only this one (default: all of them)")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from-beginning", action="store_true", help="from the first record on")
    begin.add_argument(
        "--offset",
        metavar="N|earliest|latest",
        type=_parse_begin,
        default="latest",
        help="from there on; a number needs --partition if there are several (default: latest)",
    )
    parser.add_argument("--max-messages", metavar="N", type=parse_count, help="stop after this many records")
    parser.add_argument("--follow", action="store_true", help="wait for more at the end; Ctrl-C stops it")
    parser.add_argument(
        "--timeout-ms", metavar="MS", type=parse_offset, help="with --follow: stop after this time without a record"
    )
    parser.add_argument(
        "--isolation-level",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="read_committed: no records of transactions that are open or were aborted (default: read_uncommitted)",
    )
    parser.add_argument("--flushed", action="store_true", help="only what a crash of the machine cannot take back")
    add_properties(parser, ("--property", "--formatter-property"), FORMATTER_PROPERTIES)
    parser.add_argument("--formatter-config", metavar="FILE", type=Path, help="a file of such properties")
    parser.add_argument("--formatter", metavar="CLASS", help="Kafka's DefaultMessageFormatter, the only one there is")
    for what in ("key", "value"):
        parser.add_argument(
            f"--{what}-deserializer", metavar="CLASS", help=f"the same as the property {what}.deserializer"
        )
    parser.add_argument("--skip-message-on-error", action="store_true", help="skip a record that cannot be shown")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object a record (default: text)"
    )
    add_ignored(parser, _IGNORED, _IGNORED_ALONE)


def _parse_begin(text: str) -> int | str:
    return text if text in ("earliest", "latest") else parse_offset(text)


def run(arguments: argparse.Namespace) -> int:
    """Print the records; returns the exit code."""
    from cleaner.cli.log_dirs import topics_in

    if arguments.timeout_ms is not None and not arguments.follow:
        raise UsageError("--timeout-ms needs --follow; without it reading stops at the end of the log")
    if arguments.follow:
        refuse_remote(arguments.log_dir, "--follow waits for a writer, which a copy in a bucket does not have")
    if arguments.formatter is not None and not arguments.formatter.endswith("DefaultMessageFormatter"):
        raise UsageError(f"{arguments.formatter}: classes of Java are not loaded; see --property and --format json")
    properties = _properties_of(arguments)
    note_ignored(arguments)
    announce_compiling(print_error)
    take_identity(arguments.log_dir, stay_root=arguments.as_root)
    fs = files_for(None, arguments.log_dir)
    topics = topics_in(arguments.log_dir, fs)
    topic = topics.find(arguments.topic)
    for sentence in topics.left_out(topic.name):
        print_error(sentence)
    text_of = _printer_of(arguments, properties, topic)
    run_interruptibly(lambda flag: _consume(arguments, topic, text_of, flag, fs))
    return 0


def _properties_of(arguments: argparse.Namespace) -> dict[str, str]:
    from cleaner.settings import read_config_file

    given: dict[str, str] = {}
    if arguments.formatter_config is not None:
        given = read_config_file(FileSystem(), arguments.formatter_config)
    given |= properties_of(arguments.properties, FORMATTER_PROPERTIES)
    for what in ("key", "value"):
        if (name := getattr(arguments, f"{what}_deserializer")) is not None:
            given[f"{what}.deserializer"] = name
    if given and arguments.format == "json":
        raise UsageError("--property is for text; with --format json a record's fields are all there")
    return given


def _printer_of(arguments: argparse.Namespace, properties: dict[str, str], topic: Topic) -> Print:
    from cleaner.cli.record_text import TextFormat
    from cleaner.log.record_json import to_json

    if arguments.format == "json":
        return lambda partition, record: to_json(topic.name, partition, record).encode() + b"\n"
    return TextFormat.of(properties, topic.settings.get("message.timestamp.type", "CreateTime")).text


def _consume(arguments: argparse.Namespace, topic: Topic, text_of: Print, flag: StopFlag, fs: FileSystem) -> None:
    from cleaner.cli.reading import Printer, ReadRange, begin_at, follow, read
    from cleaner.log.reader import open_reader

    reach = ReadRange(arguments.isolation_level, "high_watermark" if arguments.flushed else "end")
    out = sys.stdout.buffer
    printer = Printer(out, text_of, arguments.max_messages, skips_errors=arguments.skip_message_on_error)
    begin: Begin = "earliest" if arguments.from_beginning else arguments.offset
    with contextlib.ExitStack() as stack:
        numbers = _numbers_of(arguments, topic)
        readers = {
            number: stack.enter_context(open_reader(arguments.log_dir, topic.name, number, fs=fs)) for number in numbers
        }
        offsets = {number: begin_at(reader, begin, reach) for number, reader in readers.items()}
        try:
            if arguments.follow:
                follow(readers, offsets, reach, printer, flag, clock=SystemClock(), timeout_ms=arguments.timeout_ms)
            else:
                read(readers, offsets, reach, printer, flag)
        finally:
            out.flush()
    sys.stderr.write(f"Processed a total of {printer.count} messages\n")
    if begin == "latest" and not arguments.follow:
        print_error(
            "reading began at the end of the log; use --from-beginning for earlier records, --follow for new ones"
        )


def _numbers_of(arguments: argparse.Namespace, topic: Topic) -> list[int]:
    numbers = [each.partition for each in topic.partitions]
    if arguments.partition is None:
        if isinstance(arguments.offset, int) and len(numbers) > 1:
            raise UsageError(f"{topic.name} has {len(numbers)} partitions: an --offset needs a --partition")
        return numbers
    if arguments.partition not in numbers:
        raise UsageError(f"{topic.name} has no partition {arguments.partition}, only {numbers[0]} to {numbers[-1]}")
    return [arguments.partition]
