"""`cleaner dump`."""

from __future__ import annotations

import argparse

from cleaner.cli.arguments import parse_bytes, parse_offset

SUMMARY = "show what is in files of a log: batches, records, entries"

DESCRIPTION = """\
Shows the batches and records of .log files, the entries of .index, .timeindex and .txnindex files, of producer
.snapshot files, of leader-epoch-checkpoint, of a log dir's four checkpoints, of partition.metadata and
meta.properties, and the .checkpoint files of KRaft's metadata log.

Options and lines are those of Kafka's own kafka-dump-log.sh. Keys and values are shown only where an option asks for
them; on a terminal control characters are made visible. Behind a damaged batch the dump goes on.

Takes no lock and writes nothing, so it may run beside a broker."""

EXAMPLES = """\
examples:
  cleaner dump prices-0/00000000000000000000.log --print-data-log
  cleaner dump --files prices-0/00000000000000000000.index,prices-0/00000000000000000000.timeindex
  cleaner dump __consumer_offsets-3/00000000000000000000.log --offsets-decoder
  cleaner dump /var/lib/kafka/cleaner-offset-checkpoint --format json

exit status:
  0  shown      1  some file could not be read to its end      2  usage"""

_DECODERS = {
    "offsets": "of __consumer_offsets",
    "transaction-log": "of __transaction_state",
    "cluster-metadata": "of KRaft's metadata log",
    "share-group-state": "of __share_group_state",
}
_STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", metavar="FILE", nargs="*", help="what to show")
    parser.add_argument("--files", metavar="FILE,FILE...", default="", help="more of them")
    parser.add_argument("--deep-iteration", action="store_true", help="records, not batches alone")
    parser.add_argument("--print-data-log", action="store_true", help="records with their keys and values")
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="keys and values without what is around them"
    )
    for name, topic in _DECODERS.items():
        parser.add_argument(f"--{name}-decoder", action="store_true", help=f"keys and values {topic} in words")
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-decoder-class",
            metavar="CLASS",
            nargs="?",
            const=_STRING_DECODER,
            help=f"reads {part}s: StringDecoder (default), IntegerDecoder or LongDecoder",
        )
    parser.add_argument("--max-bytes", metavar="SIZE", type=parse_offset, help="read so many bytes of each .log")
    parser.add_argument(
        "--max-message-size",
        metavar="SIZE",
        type=parse_bytes,
        help="taken as Kafka's tool takes it; batches may be larger",
    )
    parser.add_argument(
        "--index-sanity-check",
        action="store_true",
        help="of indexes: only whether a broker would take them as they are",
    )
    parser.add_argument("--verify-index-only", action="store_true", help="of indexes: only what does not fit the log")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object a line (default: Kafka's lines)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the files; returns the exit code."""
    from cleaner.app.dump_files import DumpOptions, dump_files
    from cleaner.cli.compiling import announce_compiling
    from cleaner.cli.output import print_error
    from cleaner.cli.show_dump import show_pieces
    from cleaner.dump.decoders import DECODERS, class_decoder
    from cleaner.errors import UsageError
    from cleaner.storage.fs.file_system import FileSystem

    paths = [*arguments.paths, *(path.strip() for path in arguments.files.split(",") if path.strip())]
    if not paths:
        raise UsageError("no file named")
    chosen = [name for name in _DECODERS if getattr(arguments, f"{name.replace('-', '_')}_decoder")]
    classes = (arguments.key_decoder_class, arguments.value_decoder_class)
    with_data = arguments.print_data_log or bool(chosen) or any(classes)
    decoder = DECODERS[chosen[0]] if chosen else class_decoder(*(name or _STRING_DECODER for name in classes))
    announce_compiling(print_error)
    options = DumpOptions(
        with_records=arguments.deep_iteration or with_data,
        sanity_only=arguments.index_sanity_check,
        verify_only=arguments.verify_index_only,
        max_bytes=arguments.max_bytes,
    )
    viewer = show_pieces(
        arguments.format,
        decoder if with_data else None,
        is_decoded=bool(chosen),
        skips_metadata=arguments.skip_record_metadata,
    )
    return 1 if dump_files(FileSystem(), paths, options, viewer) else 0
