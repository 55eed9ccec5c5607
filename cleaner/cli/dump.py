"""`cleaner dump`."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cleaner.cli.arguments import parse_bytes, parse_offset
from cleaner.cli.output import json_line, print_error
from cleaner.cli.work import announce_compiling
from cleaner.errors import UsageError
from cleaner.present.text import printable
from cleaner.storage.fs.remote import files_for

if TYPE_CHECKING:
    from cleaner.dump.decoders import Decoder
    from cleaner.dump.dump_items import ShownBatch, ShownRecord, Viewer

SUMMARY = "show the batches, records and entries in a log's files"

DESCRIPTION = """\
Shows the batches and records of .log files, the entries of .index, .timeindex and .txnindex files, of producer
.snapshot files, of leader-epoch-checkpoint, of a log dir's four checkpoints, of partition.metadata and
meta.properties, and the .checkpoint files of KRaft's metadata log.

Options and lines are those of Kafka's own kafka-dump-log.sh. Keys and values are shown only where an option asks for
them; on a terminal control characters are made visible. The dump goes on behind a damaged batch.

Takes no lock and writes nothing, so it may run beside a broker.

Files may be in a bucket or in HDFS: s3://, gs://, abfs://, hdfs://, webhdfs:// (docs/buckets.md)."""

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
_NAMES = {
    "producer_id": "producerId",
    "producer_epoch": "producerEpoch",
    "coordinator_epoch": "coordinatorEpoch",
    "current_txn_first_offset": "currentTxnFirstOffset",
    "last_timestamp": "lastTimestamp",
    "first_sequence": "firstSequence",
    "last_sequence": "lastSequence",
    "first_offset": "firstOffset",
    "last_offset": "lastOffset",
    "last_stable_offset": "lastStableOffset",
    "offset_delta": "offsetDelta",
    "start_offset": "startOffset",
    "topic_id": "topicId",
    "cluster_id": "clusterId",
    "node_id": "nodeId",
    "directory_id": "directoryId",
}
_OPTIONAL = "current_txn_first_offset"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paths", metavar="FILE", nargs="*", help="what to show")
    parser.add_argument("--files", metavar="FILE,FILE...", default="", help="more of them")
    parser.add_argument("--deep-iteration", action="store_true", help="records, not only batches")
    parser.add_argument("--print-data-log", action="store_true", help="records with their keys and values")
    parser.add_argument("--skip-record-metadata", action="store_true", help="only keys and values")
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
    parser.add_argument("--max-bytes", metavar="SIZE", type=parse_offset, help="read this many bytes of each .log")
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
    from cleaner.dump.decoders import DECODERS, class_decoder

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
    viewer = _viewer(
        arguments.format,
        decoder if with_data else None,
        is_decoded=bool(chosen),
        skips_metadata=arguments.skip_record_metadata,
    )
    return 1 if dump_files(files_for(None, *paths), paths, options, viewer) else 0


def _viewer(form: str, decoder: Decoder | None, *, is_decoded: bool, skips_metadata: bool) -> Viewer:
    """
    Return the viewer that prints to standard output.

    Args:
        form: `text` or `json`.
        decoder: reads keys and values; None: they are not shown.
        is_decoded: the decoder returns JSON, or why it cannot.
        skips_metadata: show only keys and values of records.
    """
    return _Objects(decoder, is_decoded=is_decoded) if form == "json" else _Lines(decoder, skips_metadata)


class _Lines:
    """Kafka's lines; on a terminal control characters are escaped."""

    def __init__(self, decoder: Decoder | None, skips_metadata: bool) -> None:
        self._decoder = decoder
        self._skips_metadata = skips_metadata
        self._is_terminal = sys.stdout.isatty()

    def on_file(self, path: str) -> None:
        self._put(f"Dumping {path}")

    def on_log(self, words: str, /, **_fields: int) -> None:
        self._put(words)

    def on_batch(self, batch: ShownBatch) -> None:
        """Print a batch in one line, as Kafka's tool does."""
        head = f"offset: {batch.last_offset}"
        if batch.magic > 1:
            head = (
                f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
                f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
                f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
                f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_boolean(batch.is_transactional)} "
                f"isControl: {_boolean(batch.is_control)} deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
            )
        self._put(
            f"{head} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} "
            f"magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} isvalid: {_boolean(batch.is_valid)}"
        )

    def on_record(self, record: ShownRecord) -> None:
        """Print a record in one line, with key and value only if asked for."""
        line = "" if self._skips_metadata else _metadata(record)
        if self._decoder is not None and not record.batch.is_control:
            prefix = "| " if self._skips_metadata else " "
            key, payload = self._decoder(record.offset, record.key, record.value)
            if key is not None:
                line += f"{prefix}key: {key}"
                prefix = " "
            if payload is not None:
                line += f"{prefix}payload: {payload}"
        self._put(line)

    def on_trailing_bytes(self, path: str, count: int) -> None:
        self._put(f"Found {count} invalid bytes at the end of {path}")

    def on_entry(self, _kind: str, /, **fields: object) -> None:
        words = []
        for name, value in fields.items():
            shown = _optional(value) if name == _OPTIONAL else value
            words.append(f"{_NAMES.get(name, name)}: {shown}")
        self._put(" ".join(words))

    def on_verdict(self, _path: str, words: str, _verdict: str) -> None:
        self._put(words)

    def on_mistake(self, heading: str, lines: list[str]) -> None:
        _warn("\n".join([heading, *lines]))

    def on_damage(self, message: str) -> None:
        _warn(message)

    def _put(self, line: str) -> None:
        sys.stdout.write(f"{printable(line) if self._is_terminal else line}\n")


class _Objects:
    """One object per line; keys and values as text, or as decoded."""

    def __init__(self, decoder: Decoder | None, *, is_decoded: bool) -> None:
        self._decoder = decoder
        self._is_decoded = is_decoded
        self._path = ""

    def on_file(self, path: str) -> None:
        self._path = path

    def on_log(self, _words: str, /, **fields: int) -> None:
        self._object("log", fields)

    def on_batch(self, batch: ShownBatch) -> None:
        """Print a batch as an object; its fields are those of `ShownBatch`."""
        self._object("batch", dataclasses.asdict(batch))

    def on_record(self, record: ShownRecord) -> None:
        """Print a record as an object: sizes, and its content if it is a control record or there is a decoder."""
        fields: dict[str, object] = {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
            "sequence": record.sequence,
            "header_names": list(record.header_names),
        }
        if record.control is not None:
            fields["control"] = {"name": record.control[0], **record.control[1]}
        elif self._decoder is not None:
            fields |= self._data(self._decoder, record)
        self._object("record", fields)

    def _data(self, decoder: Decoder, record: ShownRecord) -> dict[str, object]:
        from cleaner.log.record_json import plain_field

        if not self._is_decoded:
            return {"key": plain_field(record.key), "value": plain_field(record.value)}
        key, payload = decoder(record.offset, record.key, record.value)
        return {"key": _parsed(key), "payload": _parsed(payload)}

    def on_trailing_bytes(self, _path: str, count: int) -> None:
        self._object("trailing_bytes", {"bytes": count})

    def on_entry(self, kind: str, /, **fields: object) -> None:
        self._object(kind, fields)

    def on_verdict(self, _path: str, _words: str, verdict: str) -> None:
        self._object("verdict", {"verdict": verdict})

    def on_mistake(self, heading: str, lines: list[str]) -> None:
        for line in lines:
            self._object("mistake", {"heading": heading, "line": line.strip()})

    def on_damage(self, message: str) -> None:
        _warn(message)

    def _object(self, what: str, fields: Mapping[str, object]) -> None:
        print(json_line("dump", {"path": self._path, "what": what, **fields}))


def _metadata(record: ShownRecord) -> str:
    key_size = -1 if record.key is None else len(record.key)
    value_size = -1 if record.value is None else len(record.value)
    line = (
        f"| offset: {record.offset} {record.batch.timestamp_type}: {record.timestamp} "
        f"keySize: {key_size} valueSize: {value_size}"
    )
    if record.legacy is None:
        line += f" sequence: {record.sequence} headerKeys: [{','.join(record.header_names)}]"
    else:
        is_valid, crc = record.legacy
        line += f" isValid: {_boolean(is_valid)} crc: {crc}"
    return line if record.control is None else line + _control(*record.control)


def _control(name: str, fields: Mapping[str, object]) -> str:
    if name == "endTxnMarker":
        return f" endTxnMarker: {fields['type']} coordinatorEpoch: {fields['coordinatorEpoch']}"
    if name == "controlType":
        return f" controlType: {fields['type']}({fields['number']})"
    import json

    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return f" {name}: {text}" if name == "LeaderChange" else f" {name} {text}"


def _parsed(text: str | None) -> object:
    """Return a decoder's result as an object, if it is JSON."""
    import json

    return json.loads(text) if text is not None and text.startswith("{") else text


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: object) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _warn(text: str) -> None:
    lines = [printable(line) for line in text.split("\n")]
    sys.stdout.flush()
    print("\n".join(lines), file=sys.stderr)
