"""
Every parser of outside bytes by itself: files, lines of input, requests, answers, texts of settings and options.

Each takes a file whose content began as a sample. It may raise a CleanerError, or what it says it raises.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from cleaner.app.session import parse_names
from cleaner.base.clock import SystemClock
from cleaner.base.json_values import format_json, json_value
from cleaner.base.model import TopicPartition
from cleaner.base.properties import parse_properties
from cleaner.base.sizes import parse_size
from cleaner.cli.arguments import parse_bytes, parse_high_watermark, parse_now, parse_offset, parse_rate, parse_seconds
from cleaner.cli.history import parse_moment
from cleaner.cli.kafka_flags import FORMATTER_PROPERTIES
from cleaner.cli.record_lines import LineFormat
from cleaner.cli.record_text import TextFormat
from cleaner.cli.status import show_status
from cleaner.config.forms import parse_address, parse_log_dir_rates
from cleaner.config.values import CleanerConfig, TopicConfig
from cleaner.daemon.control.client import Control
from cleaner.daemon.control.verbs import answer
from cleaner.daemon.snapshot import ServiceSnapshot
from cleaner.dump.control import control_of
from cleaner.dump.decoders import coordinator_decoder, decode_cluster_metadata
from cleaner.errors import CleanerError
from cleaner.format.buffers import GrowingBuffer
from cleaner.format.codec_errors import DecompressedTooLargeError, DecompressionError
from cleaner.format.compression import decompress
from cleaner.format.group_messages import GROUP_RECORDS
from cleaner.format.other_messages import SHARE_RECORDS, TRANSACTION_RECORDS
from cleaner.kernels.codec_table import CODECS
from cleaner.log import record_json
from cleaner.log.record import Record
from cleaner.log.topic_settings_file import write_topic_settings
from cleaner.log.transactional_ids import FILE_NAME, TransactionalIds
from cleaner.policy.windows import Windows
from cleaner.present.http.message import BadRequestError, format_head, parse_request
from cleaner.present.http.passwords import Passwords
from cleaner.present.http.routes import Routes
from cleaner.present.http.web_config import load as load_web_config
from cleaner.settings.files import parse_cleaner_topics, read_config_file
from cleaner.settings.metadata_log import read_metadata_log
from cleaner.spark.source.options import read_options
from cleaner.spark.source.write_options import write_options
from cleaner.state.journal import JournalEntry
from cleaner.state.kept_manifest import manifest
from cleaner.state.quarantine import read_quarantine
from cleaner.state.state_file import BadStateError
from cleaner.storage.files.checkpoint import read_offset_checkpoint
from cleaner.storage.files.kafka_uuid import parse_uuid
from cleaner.storage.files.leader_epochs import read_leader_epochs
from cleaner.storage.files.meta_properties import read_meta_properties
from cleaner.storage.files.partition_metadata import read_topic_id
from cleaner.storage.files.producer_snapshot import read_snapshot
from cleaner.storage.fs.file_system import FileSystem
from cleaner.storage.segment.indexes import read_offset_index, read_time_index, read_txn_index
from cleaner.storage.segment.names import parse_file_name, parse_partition_dir
from tests.support import sample_daemons
from tests.support.codecs import compress
from tests.support.fake_steering import FakeSteering

FS = FileSystem()
_LOG_BYTES = 1 << 20
_LIMIT_BYTES = 16 << 20
_UID = 1001


class Parser(NamedTuple):
    """
    A parser.

    Attributes:
        parse: takes the file.
        samples: what the file's content begins as.
        raises: what it may raise besides CleanerError.
        file_name: some parsers look for a name.
    """

    parse: Callable[[Path], object]
    samples: Sequence[bytes]
    raises: tuple[type[Exception], ...] = ()
    file_name: str = "file"


def _of_bytes(parse: Callable[[bytes], object], *samples: bytes, raises: tuple[type[Exception], ...] = ()) -> Parser:
    return Parser(lambda path: parse(path.read_bytes()), samples, raises)


def _of_text(parse: Callable[[str], object], *samples: str) -> Parser:
    """A text of a command line, where any bytes can be; argparse makes errors of these two."""
    raises = (ValueError, argparse.ArgumentTypeError)
    return _of_bytes(
        lambda data: parse(data.decode(errors="surrogateescape")), *(s.encode() for s in samples), raises=raises
    )


def _fail(error: Exception) -> None:
    raise error


_ROUTES = Routes(sample_daemons.with_problems, clock=SystemClock())


def _serve(head: bytes) -> None:
    request = parse_request(head)
    response = _ROUTES(request)
    format_head(response)
    Passwords({"a": "$2b$04$" + "." * 53}).known(request.headers.get("authorization", ""))


def _steer(line: bytes) -> None:
    reply = answer(line, FakeSteering(sample_daemons.with_problems()), _UID, _fail)
    json.loads(reply.line)


def _show_status(line: bytes) -> None:
    """What `cleaner status` does with an answer."""
    control = Control(Path("socket"))
    answered = control._parsed(line)
    shown = control.value(ServiceSnapshot, answered, "snapshot")
    with contextlib.redirect_stdout(io.StringIO()):
        show_status(shown, "")


def _status_answer(shown: ServiceSnapshot) -> bytes:
    return format_json({"v": 1, "ok": True, "snapshot": json_value(shown)}).encode()


def _decompress(data: bytes) -> None:
    """The first byte says which codec, the second which magic."""
    codec, magic = data[:1] or b"\1", data[1:2] or b"\2"
    out = GrowingBuffer(1 << 10)
    decompress(codec[0], magic[0], memoryview(data[2:]), out, 0, _LIMIT_BYTES)


_PACKED = [bytes((number, 2)) + compress(codec.name, b"abcd" * 100 + bytes(300)) for number, codec in enumerate(CODECS)]


def _decode_all(decode: Callable[..., object]) -> Callable[[bytes], None]:
    """A key and a value, parted by their first byte, and each of them with none of the other."""

    def decode_both(data: bytes) -> None:
        key, value = data[1 : 1 + data[0]] if data else b"", data[1 + data[0] :] if data else b""
        for pair in ((key, value), (key, None), (None, value)):
            decode(0, *pair)

    return decode_both


def _text_of_record(data: bytes) -> None:
    record = Record(data[:8], data[8:], (("name", data[:4]), ("other", None)), 5)
    for name in ("Integer", "Short", "Long", "Double", "Boolean", "String", "UUID"):
        full = f"org.apache.kafka.common.serialization.{name}Deserializer"
        properties = {"key.deserializer": full, "value.deserializer": full, "headers.deserializer": full}
        format_ = TextFormat.of({**dict.fromkeys(FORMATTER_PROPERTIES, "true"), **properties})
        with contextlib.suppress(CleanerError):
            format_.text(0, record)


def _options(parse: Callable[[dict[str, str]], object]) -> Callable[[bytes], object]:
    """Lines of `name=value`."""

    def read(data: bytes) -> object:
        lines = data.decode(errors="replace").splitlines()
        return parse(dict(line.partition("=")[::2] for line in lines))

    return read


def _lines_of_input(data: bytes) -> None:
    for format_ in (
        LineFormat(),
        LineFormat(parse_key=True, null_marker=b"-"),
        LineFormat(parse_key=True, parse_headers=True),
        LineFormat(parse_key=True, parse_headers=True, ignore_error=True, null_marker=b"NULL"),
    ):
        with contextlib.suppress(CleanerError):
            format_.record(data, 1)


def _set_topic(path: Path) -> None:
    write_topic_settings(FS, path.parent, "topic", {"segment.ms": "5"}, ["topic", "other.topic"])


_JOURNAL_LINE = JournalEntry(1, "round", "topic-0", {"bytes_read": 5, "nested": {"a": [1, None, "x"]}}).to_line()
_REQUESTS = [
    {"v": 1, "do": "now", "partition": "orders-0"},
    {"v": 1, "do": "throttle", "bytes_per_second": 1.5e6, "log_dir": "/data"},
    {"v": 1, "do": "status", "logs": 3, "topics": True, "config": False, "partitions": ["orders-0"]},
    {"v": 1, "do": "pause", "scope": "orders"},
    {"v": 1, "do": "cancel", "job": 7},
]
_OF_READS = (
    b'path=/data\nstartingOffsets={"topic":{"0":5,"1":-2}}\nendingOffsets=latest\ntopics=a,b\npartitions=0,3-5\n',
    b'path=/data\nstartingTimestamp=5\nendingOffsetsByTimestamp={"topic":{"0":5}}\nassign={"topic":[0,1]}\n',
    b"path=/data\nsubscribePattern=a.*\nmaxBytesPerPartition=64m\nbadBatches=skip\nlatestPerKey=true\n",
)
_OF_WRITES = (
    b'path=/data\ntopic=t\nsegmentBytes=1m\nbatchBytes=16k\ntopicIds={"t":"AAAAAAAAQACAAAAAAAAAAg"}\nnodeId=1\n'
)
_SETTINGS = (
    b"# of a broker\nlog.dirs=/a,/b\nlog.cleaner.threads : 2\nlog.cleaner.\\\n  backoff.ms=15000\nk\\u0041\\t=v\n"
)
_STATE = json.dumps({"format": "cleaner-quarantine", "version": 1, "entries": []}).encode()


_KEYED = [
    bytes((8,)) + b"\0\2\0\4abcd" + b"\0\3\0\0\0\0\0\0\0\0\0\5\0\0" + bytes(12),
    bytes((13,)) + b"\0\1\0\1g\0\1t\0\0\0\0\0" + b"\0\3" + bytes(18),
    bytes((6,)) + b"\0\0\0\2ab" + b"\0\0" + bytes(30),
    bytes((4,)) + b"\0\5\0\0" + b"\0\0" + bytes(30),
]


def _metadata_values() -> list[bytes]:
    from tests.support.log_builder import TOPIC_ID
    from tests.support.metadata_builder import config_record, partition_record, topic_record

    values = [topic_record("t", parse_uuid(TOPIC_ID)), partition_record(parse_uuid(TOPIC_ID), 0, (1, 2))]
    return [b"\0" + value for value in [*values, config_record(2, "t", "segment.ms", "5")]]


def parsers(place: Path) -> dict[str, Parser]:
    """
    Return all parsers by name.

    Args:
        place: as `places.make_places` makes it; some of its files are samples.
    """

    def of(*names: str) -> list[bytes]:
        return [path.read_bytes() for name in names for path in sorted(place.glob(name)) if path.stat().st_size]

    return {
        "offset checkpoint": Parser(lambda p: read_offset_checkpoint(FS, p), of("logs/*-checkpoint")),
        "leader epochs": Parser(lambda p: read_leader_epochs(FS, p), of("logs/topic-0/leader-*")),
        "partition.metadata": Parser(lambda p: read_topic_id(FS, p), of("logs/topic-0/partition.metadata")),
        "meta.properties": Parser(lambda p: read_meta_properties(FS, p), of("logs/meta.properties")),
        "producer snapshot": Parser(lambda p: read_snapshot(FS, p), of("logs/topic-0/*.snapshot")),
        "offset index": Parser(lambda p: read_offset_index(FS, p, _LOG_BYTES), of("logs/topic-0/*.index")),
        "time index": Parser(lambda p: read_time_index(FS, p, log_bytes=_LOG_BYTES), of("logs/topic-0/*.timeindex")),
        "txn index": Parser(lambda p: read_txn_index(FS, p, log_bytes=_LOG_BYTES), of("logs/topic-0/*.txnindex")),
        "metadata log": Parser(
            lambda p: read_metadata_log(FS, p.parent), of("metadata/*/*.log"), file_name="00000000000000000000.log"
        ),
        "metadata snapshot": Parser(
            lambda p: read_metadata_log(FS, p.parent),
            of("metadata/*/*.checkpoint"),
            file_name="00000000000000000008-0000000001.checkpoint",
        ),
        "settings": Parser(lambda p: read_config_file(FS, p), [*of("server.properties", "topics/*"), _SETTINGS]),
        "properties": _of_bytes(lambda data: parse_properties(data, "file"), _SETTINGS),
        "settings of topics": _of_bytes(
            lambda data: parse_cleaner_topics(parse_properties(data, "file"), ["topic", "good", "a.b"], []),
            *of("logs/cleaner-topics.properties"),
        ),
        "settings of topics, rewritten": Parser(
            _set_topic, of("logs/cleaner-topics.properties"), file_name="cleaner-topics.properties"
        ),
        "values of a topic": _of_bytes(_options(TopicConfig.from_mapping), *of("topics/*")),
        "values of a process": _of_bytes(_options(CleanerConfig.from_mapping), _SETTINGS, *of("server.properties")),
        "web config": Parser(lambda p: load_web_config(FS, p), of("web.yml")),
        "quarantine": Parser(
            lambda p: read_quarantine(FS, p.parent),
            [*of("state/quarantine.json"), _STATE],
            (BadStateError,),
            "quarantine.json",
        ),
        "journal": _of_bytes(JournalEntry.from_line, _JOURNAL_LINE, *of("state/journal*")[0].splitlines()),
        "kept manifest": Parser(
            lambda p: manifest(FS, p.parent).peek(), of("kept/topic-0/manifest.json"), (BadStateError,), "manifest.json"
        ),
        "transactional ids": Parser(
            lambda p: TransactionalIds(FS, p.parent).begin("tx", lambda _: 3, 5),
            of(f"logs/topic-0/{FILE_NAME}"),
            file_name=FILE_NAME,
        ),
        "request": _of_bytes(
            _serve,
            b"GET /metrics?a=b HTTP/1.1\r\nHost: localhost:80\r\nAccept: application/openmetrics-text;q=0.5\r\n\r\n",
            b"HEAD /log?partition=orders-0&dir=/data&n=5 HTTP/1.0\r\nAuthorization: Basic YTpi\r\n\r\n",
            b"GET /?state=all&page=2&sort=ratio HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\n\r\n",
            raises=(BadRequestError,),
        ),
        "control request": _of_bytes(_steer, *(json.dumps(request).encode() for request in _REQUESTS)),
        "control answer": _of_bytes(
            _show_status, _status_answer(sample_daemons.with_problems()), _status_answer(sample_daemons.at_work())
        ),
        "record as json": _of_bytes(
            lambda line: record_json.from_json(line, 1),
            b'{"key": "k", "value": {"base64": "AAE="}, "headers": [["a", "b"], ["c", null]], "timestamp": 5}',
            b'{"key": null, "value": "v\\u00e4", "partition": 3}',
        ),
        "record as text": _of_bytes(_lines_of_input, b"a:b,c:d\tkey\tvalue", b"key\tvalue", b"NULL\tkey\t-"),
        "record's bytes as text": _of_bytes(_text_of_record, b"\0\0\0\5\0\0\0\5text", bytes(16)),
        "streams": _of_bytes(_decompress, *_PACKED, raises=(DecompressionError, DecompressedTooLargeError)),
        "group messages": _of_bytes(_decode_all(coordinator_decoder(GROUP_RECORDS)), *_KEYED),
        "transaction messages": _of_bytes(_decode_all(coordinator_decoder(TRANSACTION_RECORDS)), *_KEYED),
        "share messages": _of_bytes(_decode_all(coordinator_decoder(SHARE_RECORDS)), *_KEYED),
        "metadata messages": _of_bytes(_decode_all(decode_cluster_metadata), *_metadata_values()),
        "control records": _of_bytes(
            _decode_all(lambda _, key, value: control_of(key, value)), b"\4\0\0\0\1\0\0\0\0\0\5"
        ),
        "uuid": _of_text(parse_uuid, "AAAAAAAAQACAAAAAAAAAAg"),
        "partition's name": _of_text(TopicPartition.parse, "topic-0"),
        "names of partitions": _of_text(lambda text: parse_names(text.split()), "topic-0 a.b-17"),
        "file name": _of_text(parse_file_name, "00000000000000000005.log", "00000000000000000005.index.swap"),
        "directory name": _of_text(parse_partition_dir, "topic-0", "t-0.0123456789abcdef0123456789abcdef-delete"),
        "windows": _of_text(Windows.parse, "Mo-Fr 22:00-06:00, Sa 00:00-24:00", "mon-fri 22:00-06:00"),
        "address": _of_text(parse_address, "[::1]:80", "localhost:9108"),
        "size": _of_text(parse_size, "1.5 GiB", "10k"),
        "rates of log dirs": _of_text(lambda text: parse_log_dir_rates(tuple(text.split(","))), "/a:10m,/b:1.5k"),
        "numbers of a command": _of_text(_numbers, "5", "1700000000000", "10m", "2h", "end", "2026-11-22T10:00:00Z"),
        "options of reads": _of_bytes(_options(read_options), *_OF_READS),
        "options of writes": _of_bytes(_options(write_options), _OF_WRITES),
    }


def _numbers(text: str) -> None:
    """All forms of numbers of the command line, each for itself."""
    for parse in (parse_bytes, parse_high_watermark, parse_now, parse_offset, parse_rate, parse_seconds, parse_moment):
        with contextlib.suppress(ValueError, argparse.ArgumentTypeError, CleanerError):
            parse(text)
